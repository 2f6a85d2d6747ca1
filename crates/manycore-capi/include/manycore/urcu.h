/*
 * The API of a flavour of liburcu, on manycore. Programs that are written for liburcu compile with this
 * header instead of <urcu.h>. C11 or later, C++17 or later.
 *
 * It is like liburcu-bp: threads need not register; rcu_register_thread does it ahead of time. As in all
 * flavours except qsbr there are no quiescent states to announce, and the functions for that are empty.
 * The names are liburcu's. Comments say where the behaviour differs.
 */
#ifndef MANYCORE_URCU_H
#define MANYCORE_URCU_H

#include <stdbool.h>
#include <stdlib.h>

#include "manycore.h"

/*
 * The headers of liburcu's data structures include liburcu's own versions of these functions. This header
 * replaces them.
 */
#define _URCU_CALL_RCU_H
#define _URCU_DEFER_H
#define _URCU_POINTER_H
#ifndef URCU_API_MAP
#define URCU_API_MAP /* cds_lfht_new of the hash table: with this flavour */
#endif

struct rcu_head {
	struct mc_head head_;
	void (*func_)(struct rcu_head *head);
};

struct urcu_gp_poll_state {
	uint64_t moment_;
};

static inline void rcu_init(void)
{
	(void)mc_domain_default();
}

/* Private. */
static inline const mc_domain *mc_urcu_domain_(void)
{
	static const mc_domain *known;
	const mc_domain *domain = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (__builtin_expect(domain == NULL, 0)) {
		domain = mc_domain_default();
		__atomic_store_n(&known, domain, __ATOMIC_RELAXED);
	}
	return domain;
}

static inline void rcu_register_thread(void)
{
	(void)mc_thread_register(mc_urcu_domain_());
}

static inline void rcu_unregister_thread(void)
{
	if (mc_thread_unregister(mc_urcu_domain_()) != 0)
		mc_misuse_("rcu_unregister_thread inside of a section");
}

static inline void rcu_read_lock(void)
{
	mc_enter(mc_urcu_domain_());
}

static inline void rcu_read_unlock(void)
{
	mc_leave(mc_urcu_domain_());
}

static inline int rcu_read_ongoing(void)
{
	return mc_is_inside(mc_urcu_domain_());
}

static inline void rcu_quiescent_state(void)
{
}

static inline void rcu_thread_offline(void)
{
}

static inline void rcu_thread_online(void)
{
}

#define rcu_dereference(pointer) mc_dereference(pointer)
#define rcu_assign_pointer(pointer, value) mc_assign_pointer(pointer, value)
#define rcu_set_pointer(address, value) mc_assign_pointer(*(address), value)
#define rcu_xchg_pointer(address, value) mc_exchange_pointer(*(address), value)
/* A statement expression that returns the old value, as in liburcu. */
#define rcu_cmpxchg_pointer(address, old, value) \
	__extension__({ \
		__typeof__(*(address)) mc_expected_ = (old); \
		(void)__atomic_compare_exchange_n((address), &mc_expected_, (value), 0, \
		    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE); \
		mc_expected_; \
	})

/* Inside of a section it would wait for itself, so the process ends. */
static inline void synchronize_rcu(void)
{
	if (mc_synchronize(mc_urcu_domain_()) != 0)
		mc_misuse_("synchronize_rcu inside of a section would wait for itself");
}

static inline struct urcu_gp_poll_state start_poll_synchronize_rcu(void)
{
	struct urcu_gp_poll_state state = { mc_now(mc_urcu_domain_()) };

	return state;
}

static inline bool poll_state_synchronize_rcu(struct urcu_gp_poll_state state)
{
	return mc_quiesced(mc_urcu_domain_(), state.moment_) != 0;
}

/* Private. */
static inline void mc_urcu_call_(struct mc_head *head)
{
	struct rcu_head *own = mc_container_of(head, struct rcu_head, head_);

	own->func_(own);
}

static inline void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	head->func_ = func;
	(void)mc_call(&head->head_, mc_urcu_call_);
}

/*
 * liburcu's helper threads for a CPU or a thread. Here the process has one, and all of these functions
 * mean that one.
 */
struct call_rcu_data;

static inline struct call_rcu_data *get_default_call_rcu_data(void)
{
	static char one;

	return (struct call_rcu_data *)(void *)&one;
}

static inline struct call_rcu_data *create_call_rcu_data(unsigned long flags, int cpu)
{
	(void)flags;
	(void)cpu;
	return get_default_call_rcu_data();
}

static inline struct call_rcu_data *get_call_rcu_data(void)
{
	return get_default_call_rcu_data();
}

static inline struct call_rcu_data *get_cpu_call_rcu_data(int cpu)
{
	(void)cpu;
	return NULL;
}

static inline struct call_rcu_data *get_thread_call_rcu_data(void)
{
	return NULL;
}

static inline int set_cpu_call_rcu_data(int cpu, struct call_rcu_data *data)
{
	(void)cpu;
	(void)data;
	return 0;
}

static inline void set_thread_call_rcu_data(struct call_rcu_data *data)
{
	(void)data;
}

static inline void call_rcu_data_free(struct call_rcu_data *data)
{
	(void)data;
}

static inline int create_all_cpu_call_rcu_data(unsigned long flags)
{
	(void)flags;
	return 0;
}

static inline void free_all_cpu_call_rcu_data(void)
{
}

/* Private. */
struct mc_urcu_deferred_ {
	struct mc_head head;
	void (*function)(void *pointer);
	void *pointer;
};

/* Private. */
static inline void mc_urcu_defer_(struct mc_head *head)
{
	struct mc_urcu_deferred_ *own = mc_container_of(head, struct mc_urcu_deferred_, head);

	own->function(own->pointer);
	free(own);
}

/* Allocates. Without memory, it waits for readers and calls at once. */
static inline void defer_rcu(void (*function)(void *pointer), void *pointer)
{
	struct mc_urcu_deferred_ *own = (struct mc_urcu_deferred_ *)malloc(sizeof(*own));

	if (own == NULL) {
		synchronize_rcu();
		function(pointer);
		return;
	}
	own->function = function;
	own->pointer = pointer;
	(void)mc_call(&own->head, mc_urcu_defer_);
}

static inline int rcu_defer_register_thread(void)
{
	return 0;
}

static inline void rcu_barrier(void)
{
	if (mc_call_barrier() != 0)
		mc_misuse_("rcu_barrier inside of a section or a call-back would wait for itself");
}

static inline void rcu_defer_barrier(void)
{
	rcu_barrier();
}

static inline void rcu_defer_barrier_thread(void)
{
	rcu_barrier();
}

static inline void rcu_defer_unregister_thread(void)
{
	rcu_barrier();
}

#if !defined(__cplusplus) && defined(__has_include)
#if __has_include(<urcu/flavor.h>)
#define MC_URCU_FLAVOR_ 1
#endif
#endif

#ifdef MC_URCU_FLAVOR_
#include <urcu/flavor.h>

/* What liburcu's hash table does around a fork, while a table exists; for the whole program. */
__attribute__((weak)) struct urcu_atfork *mc_urcu_atfork_;

/* Private. */
static inline void mc_urcu_set_atfork_(struct urcu_atfork *atfork)
{
	__atomic_store_n(&mc_urcu_atfork_, atfork, __ATOMIC_RELEASE);
}

/* Private. */
static inline void mc_urcu_unset_atfork_(struct urcu_atfork *atfork)
{
	(void)atfork;
	__atomic_store_n(&mc_urcu_atfork_, (struct urcu_atfork *)NULL, __ATOMIC_RELEASE);
}

/* The functions that the library of liburcu's hash table calls in a flavour. */
__attribute__((unused)) static const struct rcu_flavor_struct mc_urcu_flavor_ = {
	.read_lock = rcu_read_lock,
	.read_unlock = rcu_read_unlock,
	.read_ongoing = rcu_read_ongoing,
	.read_quiescent_state = rcu_quiescent_state,
	.update_call_rcu = call_rcu,
	.update_synchronize_rcu = synchronize_rcu,
	.update_defer_rcu = defer_rcu,
	.thread_offline = rcu_thread_offline,
	.thread_online = rcu_thread_online,
	.register_thread = rcu_register_thread,
	.unregister_thread = rcu_unregister_thread,
	.barrier = rcu_barrier,
	.register_rculfhash_atfork = mc_urcu_set_atfork_,
	.unregister_rculfhash_atfork = mc_urcu_unset_atfork_,
};

#define rcu_flavor mc_urcu_flavor_
#define MC_URCU_ATFORK_(step) \
	do { \
		struct urcu_atfork *atfork = __atomic_load_n(&mc_urcu_atfork_, __ATOMIC_ACQUIRE); \
		if (atfork != NULL) \
			atfork->step(atfork->priv); \
	} while (0)
#else
#define MC_URCU_ATFORK_(step) do { } while (0)
#endif

/* Called around a fork for liburcu's hash tables. The library itself needs no such call. */
static inline void call_rcu_before_fork(void)
{
	MC_URCU_ATFORK_(before_fork);
}

static inline void call_rcu_after_fork_parent(void)
{
	MC_URCU_ATFORK_(after_fork_parent);
}

static inline void call_rcu_after_fork_child(void)
{
	MC_URCU_ATFORK_(after_fork_child);
}

#endif
