/*
 * manycore for C: safe memory reclamation by read-side sections (RCU).
 *
 * C11 or later, C++17 or later; gcc or clang. Readers traverse shared objects without a lock. An updater
 * unlinks an object and retires it. Its call-back runs after its grace period, when no section can hold
 * the object any more. Nothing runs in the background: call-backs run in threads that retire, leave a
 * section, or call mc_collect, mc_barrier or mc_domain_free.
 *
 *     struct config { int limit; struct mc_head head; };
 *
 *     static void config_free(struct mc_head *head)
 *     {
 *         free(mc_container_of(head, struct config, head));
 *     }
 *
 *     mc_enter(domain);                                   // reader
 *     limit = mc_dereference(current)->limit;
 *     mc_leave(domain);
 *
 *     old = mc_exchange_pointer(current, new_config);     // updater
 *     mc_retire(domain, &old->head, sizeof(*old), config_free);
 *
 * RETURNS. Functions that can fail return 0 or a negative errno: -EINVAL for invalid arguments (a null
 * pointer, a freed domain, an unknown option), -EDEADLK for a call that would wait for itself, -EBUSY for
 * what is still in use. When memory runs out, the process ends with a message. No exception and no panic
 * crosses the boundary: if a call-back throws, the process ends.
 *
 * THREADS register with their first section, and unregister when they end. mc_thread_register does it
 * ahead of time. If a thread ends inside a section (by returning, pthread_exit or cancellation), the
 * section is closed before the destructors of pthread keys run. These may open sections of their own.
 *
 * CANCELLATION. No function here is a cancellation point, but a call-back may contain one. A thread that
 * may be cancelled disables cancellation around mc_retire and mc_leave, unless its call-backs contain
 * none.
 *
 * SIGNALS. In a thread that has registered with the domain, a handler may use mc_enter, mc_dereference
 * and mc_leave_in_handler. Any handler may use mc_assign_pointer and mc_exchange_pointer. Nothing else.
 *
 * FORK. The child has one thread, the one that forked. It may use the library and start threads. No
 * function in the child waits for a thread that the child does not have, except as the table says:
 *
 *     At the fork                               In the child
 *     a section of the forking thread           stays open
 *     a section of another thread               closed: what it alone protected must not be used
 *     retired by the forking thread             called
 *     retired by a thread outside of sections   called
 *     retired by a thread inside of a section   lost: not called, the memory stays
 *     a call-back that another thread runs      does not go on; nothing waits for it
 *     a call-back that the forking thread runs  goes on
 *     scheduled by mc_call                      called: mc_call or mc_call_barrier starts a thread
 *     a thread in any function of a domain      no effect on the others
 *     a thread in mc_domain_free                the domain must not be used
 *     a thread in an update of an object        its lock stays held
 *     an object that no other thread was using  works
 *     a load of a cache in another thread       does not end, nor do requests for its key
 *     a recording (trace.h)                     has ended
 *     mappings (mappings.h)                     must not be used
 *
 * Where a lock stays held (of a map's bucket, a cache, a queue, a set of ids, a value with logs), updates
 * and reads that need the lock wait forever. Look-ups in maps need none. None of this matters to a child
 * that goes on to exec. A signal handler must not fork, nor a thread whose thread-local destructors have
 * run.
 *
 * DLCLOSE. The library stays loaded: threads may end after the last dlclose. A plug-in that uses the
 * library calls mc_barrier before it is unloaded, because its call-backs go with it. Threads may stay.
 */
#ifndef MANYCORE_MANYCORE_H
#define MANYCORE_MANYCORE_H

#include <stddef.h>
#include <stdint.h>

#define MC_VERSION_MAJOR 0
#define MC_VERSION_MINOR 1
#define MC_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A domain: sections, and the objects that they can hold back. Opaque, except that inline functions read
 * the first field.
 */
typedef struct mc_domain mc_domain;

/*
 * The head of an object that can be retired. It belongs to the library from mc_retire until the call-back
 * is called.
 */
struct mc_head {
	void (*function_)(struct mc_head *head);
	const mc_domain *domain_;
};

/*
 * Frees a retired object. Called once, by any thread, inside or outside a section.
 *
 * The call may come in mc_retire or mc_leave of a thread that holds locks, so the call-back must not take
 * a lock that a thread holds around these. It may retire, enter and leave. mc_synchronize, mc_barrier and
 * mc_domain_free return -EDEADLK in it. It must not longjmp out of its call: its thread would count as
 * running it forever, these functions would refuse, and no barrier would return any more.
 */
typedef void (*mc_callback)(struct mc_head *head);

/* Returns the object that has the head as its member. */
#define mc_container_of(head, type, member) ((type *)(void *)((char *)(head) - offsetof(type, member)))

struct mc_backlog {
	size_t size; /* of this struct: MC_BACKLOG_INIT */
	uint64_t nodes; /* retired and not freed yet */
	uint64_t bytes; /* their bytes together */
	uint64_t stalled; /* threads that have been in a section for that long */
};

#define MC_BACKLOG_INIT { sizeof(struct mc_backlog), 0, 0, 0 }

#define MC_STALLED_NAME 32

struct mc_stalled {
	uint64_t os_id; /* gettid(), or 0 */
	uint64_t at_least_ns; /* since the section was first seen */
	uint64_t slot; /* the thread's number here: small, and reused */
	char name[MC_STALLED_NAME]; /* of a thread that Rust code has named, or "" */
};

/*
 * Called by a thread that retires, after it has closed its section; perhaps by several threads at once.
 */
typedef void (*mc_over_budget)(void *argument, const struct mc_backlog *backlog);

#define MC_DOMAIN_FENCES UINT64_C(1) /* readers execute a fence, and no membarrier is used */
#define MC_DOMAIN_BOUNDED UINT64_C(2) /* a stalled section holds back little (mc_protect) */

/* Zero is the default of each field. */
struct mc_domain_options {
	size_t size; /* of this struct: MC_DOMAIN_OPTIONS_INIT */
	uint64_t flags;
	size_t batch_nodes; /* objects that a thread retires before it looks for reclaimable ones */
	size_t batch_bytes; /* the same in bytes */
	size_t bound; /* objects of one thread from which on it reclaims at the end of each section */
	size_t budget; /* bytes that may wait in the domain, as long as no section stalls */
	uint64_t backpressure_us; /* how long a retiring thread waits over the budget, at most */
	/* (by default, for sections that have not been open for 100 ms) */
	mc_over_budget on_over_budget;
	void *argument;
};

#define MC_DOMAIN_OPTIONS_INIT { sizeof(struct mc_domain_options), 0, 0, 0, 0, 0, 0, NULL, NULL }

/* Private to the inline functions below. */
struct mc_domain_front_ {
	const uint64_t *era;
};

struct mc_thread_record_ {
	const mc_domain *domain;
	uint64_t *announced;
	uint32_t slot;
	uint32_t running;
};

#define MC_PENDING_OFFSET_ 24
#define MC_RAISED_OFFSET_ 8

void mc_enter_(const mc_domain *domain, struct mc_thread_record_ *record);
void mc_leave_(const mc_domain *domain, struct mc_thread_record_ *record);
int mc_retire_(const mc_domain *domain, struct mc_thread_record_ *record, struct mc_head *head,
    size_t bytes, mc_callback function);
int mc_protects_loaded_(const mc_domain *domain, struct mc_thread_record_ *record);
int mc_born_(const mc_domain *domain, struct mc_thread_record_ *record, struct mc_head *head);
int mc_thread_register_(const mc_domain *domain, struct mc_thread_record_ *record);
int mc_thread_unregister_(const mc_domain *domain, struct mc_thread_record_ *record);
void mc_misuse_(const char *what);

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(MC_NO_INLINE)
/*
 * Reserved when the program starts. A library that is loaded later and uses this header takes 24 of the
 * bytes that the C library keeps for such variables. With MC_NO_INLINE it calls functions instead.
 */
extern __thread struct mc_thread_record_ mc_thread_ __attribute__((tls_model("initial-exec")));
#define MC_INLINE_ 1
#define MC_RECORD_ (&mc_thread_)
#define MC_ANNOUNCED_ (mc_thread_.announced)
#else
#define MC_INLINE_ 0
#define MC_RECORD_ ((struct mc_thread_record_ *)0)
#define MC_ANNOUNCED_ ((uint64_t *)0)
#endif

#if defined(__SANITIZE_THREAD__)
#define MC_THREAD_SANITIZER_ 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MC_THREAD_SANITIZER_ 1
#endif
#endif

#define MC_LIKELY_(condition) __builtin_expect(!!(condition), 1)

/* Returns the version of the loaded library, for example "0.1.0". */
const char *mc_version(void);

/*
 * Returns the domain that the whole program shares. Retired objects wait for every open section of their
 * domain, so a structure with long sections should have its own. Never null, never freed.
 */
const mc_domain *mc_domain_default(void);

/*
 * Makes a new domain, in *out. OPTIONS may be null. -EINVAL: OUT is null, or an option is out of its
 * range, or unknown to this library and not zero.
 */
int mc_domain_new(const mc_domain **out, const struct mc_domain_options *options);

/*
 * Runs all waiting call-backs of the domain, and frees it. No thread may use it any more, not even to
 * leave a section. -EINVAL: no domain, a freed domain, or the default domain. -EBUSY: a section is open,
 * or a map or an id space is in the domain. -EDEADLK: called in a call-back.
 */
int mc_domain_free(const mc_domain *domain);

/*
 * Registers the calling thread ahead of its first section, which then allocates nothing. Required before
 * a signal handler uses the domain. -EINVAL: no domain.
 */
static inline int mc_thread_register(const mc_domain *domain)
{
	return mc_thread_register_(domain, MC_RECORD_);
}

/*
 * Hands over what the calling thread has retired, before it goes idle for long. The thread may enter
 * again. -EINVAL: no domain. -EBUSY: inside a section.
 */
static inline int mc_thread_unregister(const mc_domain *domain)
{
	return mc_thread_unregister_(domain, MC_RECORD_);
}

/*
 * Private: returns 1 if the thread has entered this domain last. Its record then points to its word
 * there.
 */
static inline int mc_is_known_(const mc_domain *domain)
{
#if MC_INLINE_
	/*
	 * A plain load, so that load and comparison are one instruction. Another thread stores here only null,
	 * and only in place of another domain, which it frees. ThreadSanitizer is shown an atomic load.
	 */
#ifdef MC_THREAD_SANITIZER_
	return __atomic_load_n(&mc_thread_.domain, __ATOMIC_RELAXED) == domain;
#else
	return MC_LIKELY_(mc_thread_.domain == domain);
#endif
#else
	(void)domain;
	return 0;
#endif
}

/* Private: the pending count beside the word. */
#define MC_PENDING_(announced) \
	((uint32_t *)(void *)((char *)(announced) + MC_PENDING_OFFSET_))

/*
 * Opens a section. Until it is closed, no object is freed that was reachable when it was opened. Sections
 * nest, and each domain has its own. Wait-free, 1 or 2 ns. A thread's first section of a domain registers
 * the thread. The domain must not be freed meanwhile.
 */
static inline void mc_enter(const mc_domain *domain)
{
	const struct mc_domain_front_ *front = (const struct mc_domain_front_ *)(const void *)domain;
	uint64_t *announced;

	if (mc_is_known_(domain) && MC_LIKELY_(*(announced = MC_ANNOUNCED_) == 0)) {
		/* Law section.S12 of the Rust side: the reclaimer pays for the fence. */
		__atomic_store_n(announced, __atomic_load_n(front->era, __ATOMIC_ACQUIRE),
		    __ATOMIC_RELEASE);
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	} else {
		mc_enter_(domain, MC_RECORD_);
	}
}

/* Returns 1 if the calling thread has a section of the domain open, else 0. */
int mc_is_inside(const mc_domain *domain);

/*
 * Closes the section that the calling thread opened last in the domain. The thread must not use what it
 * loaded in the section any more, unless an outer section is open. Wait-free, except that once a batch of
 * retired objects the thread leads a round, in which call-backs run. With MC_DEBUG defined, a call
 * outside a section ends the process.
 */
static inline void mc_leave(const mc_domain *domain)
{
	uint64_t *announced;

#ifdef MC_DEBUG
	if (!mc_is_inside(domain))
		mc_misuse_("mc_leave outside of a section");
#endif
	if (mc_is_known_(domain) && MC_LIKELY_(*MC_PENDING_(announced = MC_ANNOUNCED_) == 0))
		__atomic_store_n(announced, UINT64_C(0), __ATOMIC_RELEASE);
	else
		mc_leave_(domain, MC_RECORD_);
}

/*
 * Like mc_leave, for a signal handler, which may have interrupted anything. No call-back runs. The same
 * handler must have opened the section.
 */
static inline void mc_leave_in_handler(const mc_domain *domain)
{
	uint64_t *announced;
	uint32_t *pending;

	if (!mc_is_known_(domain)) {
		mc_leave_(domain, MC_RECORD_);
		return;
	}
	announced = MC_ANNOUNCED_;
	pending = MC_PENDING_(announced);
	/* The lower 29 bits count sections beyond the first. */
	if ((*pending & ((UINT32_C(1) << 29) - 1)) == 0)
		__atomic_store_n(announced, UINT64_C(0), __ATOMIC_RELEASE);
	else
		*pending -= 1;
}

/*
 * Announces a quiescent state: mc_leave and mc_enter together.
 *
 * For a thread that keeps a section open all the time and reads without further sections, as in QSBR
 * (quiescent-state-based reclamation). A read then costs nothing. Call it often, at points where the
 * thread holds nothing of the domain, because everything that any thread retires waits for it. Close the
 * section before the thread waits or goes idle. Inside of an inner section it has no effect. Call-backs
 * may run, as in mc_leave.
 */
static inline void mc_quiescent(const mc_domain *domain)
{
	mc_leave(domain);
	mc_enter(domain);
}

/*
 * Loads a pointer. The section then protects the object: it is not freed before the section is closed.
 * (pointer) is an lvalue. The object must be retired through the same domain. In a bounded domain use
 * mc_protect instead.
 */
#define mc_dereference(pointer) __atomic_load_n(&(pointer), __ATOMIC_ACQUIRE)

/* Private: returns 1 if the thread's section protects what it has loaded until now. */
static inline int mc_is_protected_(const mc_domain *domain)
{
#ifdef MC_DEBUG
	if (!mc_is_inside(domain))
		mc_misuse_("mc_protect outside of a section");
#endif
	if (mc_is_known_(domain)) {
		const struct mc_domain_front_ *front =
		    (const struct mc_domain_front_ *)(const void *)domain;
		const uint64_t *announced = MC_ANNOUNCED_;
		uint64_t era = __atomic_load_n(front->era, __ATOMIC_ACQUIRE);

		if (MC_LIKELY_(era <= announced[0] || era <= announced[MC_RAISED_OFFSET_ / 8]))
			return 1;
	}
	return mc_protects_loaded_(domain, MC_RECORD_);
}

/*
 * Like mc_dereference, for a domain that was made with MC_DOMAIN_BOUNDED. Correct in any domain; costs
 * one more load.
 *
 * In a bounded domain a stalled section (for example of a thread that was switched out) holds back only
 * what was linked before. So memory stays bounded, whatever the readers do. This needs three rules.
 *
 * Every pointer to an object of the domain is loaded by mc_protect, in the section that follows the
 * pointer.
 *
 * Every object is passed to mc_born before it is linked, or its head is zeroed. With a zeroed head, every
 * open section holds it back.
 *
 * Before an object is unlinked, every link from it to another object is set to null, or tagged by setting
 * its lowest bit. A reader follows no such link: it begins again. An object without links needs nothing,
 * for example a configuration behind one pointer.
 *
 * If the rules are not kept, an object is used after it was freed. Textbook RCU code does not keep the
 * third: its readers go on from an unlinked object to the objects behind it. The thread that unlinked an
 * object and retires it may follow what an exchange returned.
 *
 * (pointer) is an lvalue. It may be evaluated more than once.
 */
#define mc_protect(domain, pointer) \
	__extension__({ \
		__typeof__(1 ? (pointer) : NULL) mc_found_; \
		do \
			mc_found_ = mc_dereference(pointer); \
		while (!mc_is_protected_(domain)); \
		mc_found_; \
	})

/*
 * Notes the time of an object's birth in its head, for mc_retire. Call it before the object is linked in
 * a bounded domain. The thread that links the object calls it, in the same section or outside
 * sections, and again if the object is linked again. In other domains it has no effect. -EINVAL: a null
 * pointer.
 */
static inline int mc_born(const mc_domain *domain, struct mc_head *head)
{
	return mc_born_(domain, MC_RECORD_, head);
}

/* Publishes an object. A reader that loads the pointer finds the object as it was before this call. */
#define mc_assign_pointer(pointer, value) __atomic_store_n(&(pointer), (value), __ATOMIC_RELEASE)

/* Publishes an object and returns the old one, which is unlinked if nothing else leads to it. */
#define mc_exchange_pointer(pointer, value) \
	__atomic_exchange_n(&(pointer), (value), __ATOMIC_ACQ_REL)

/*
 * Calls FUNCTION(HEAD) once every section of the domain that is open now has been closed. BYTES is what
 * the call-back frees; the domain bounds what waits by it. If BYTES is 0 (unknown), the object counts as
 * a page, and the domain is checked more often.
 *
 * The caller promises that the object is unlinked, that no section opened from now on can reach it, that
 * it is retired once, and that any thread may call FUNCTION. In a bounded domain, HEAD was zeroed or
 * passed to mc_born of this domain, and the links out of the object are null or tagged (mc_protect).
 * Never waits. May be called outside a section. Other call-backs may run in it. -EINVAL: a null
 * pointer.
 */
static inline int mc_retire(const mc_domain *domain, struct mc_head *head, size_t bytes,
    mc_callback function)
{
	return mc_retire_(domain, MC_RECORD_, head, bytes, function);
}

/*
 * Waits until every section that is open now has been closed. Takes some microseconds if none is.
 * -EINVAL: no domain. -EDEADLK: inside a section of the domain, or in a call-back.
 */
int mc_synchronize(const mc_domain *domain);

/*
 * Waits until every call-back that any thread retired before this call has returned. -EINVAL: no domain.
 * -EDEADLK: inside a section of the domain, or in a call-back.
 */
int mc_barrier(const mc_domain *domain);

/*
 * Runs the call-backs that can run now, of all threads outside sections. Does not wait. For a thread
 * that looks after the domain, or before a thread goes idle. -EINVAL: no domain.
 */
int mc_collect(const mc_domain *domain);

/*
 * Like mc_retire in the default domain, but a thread of the library calls FUNCTION. The first call starts
 * that thread. It runs call-backs outside sections, in the order of the calls, never in this call, and
 * even if no other thread retires. Slower than mc_retire, and without a bound on what waits. -EINVAL: a
 * null pointer.
 */
int mc_call(struct mc_head *head, mc_callback function);

/*
 * Waits until every call-back that mc_call scheduled before has returned. In the child of a fork it does
 * not wait for the call-back that was running at the fork. -EDEADLK: inside a section of the default
 * domain, or in such a call-back.
 */
int mc_call_barrier(void);

/*
 * Returns the present moment, for mc_quiesced. What the calling thread unlinked before is visible at it.
 */
uint64_t mc_now(const mc_domain *domain);

/*
 * Returns 1 if every section that was open at MOMENT has been closed, else 0. Does not wait. If no
 * section is open, the second call after the moment returns 1.
 */
int mc_quiesced(const mc_domain *domain, uint64_t moment);

/* Returns 1 if the calling thread runs a call-back, else 0. */
int mc_running(void);

/*
 * Reports what waits to be freed in the domain, and which threads have held it up for STALLED_FOR_NS or
 * longer, the longest first. STALLED has ROOM entries, and may be null if ROOM is 0. The caller sets
 * OUT->size before. For an operator's page, not for a hot path. -EINVAL: a null pointer, or an invalid
 * size.
 */
int mc_backlog(const mc_domain *domain, uint64_t stalled_for_ns, struct mc_backlog *out,
    struct mc_stalled *stalled, size_t room);

#ifdef __cplusplus
}
#endif

#endif
