/*
 * A child continues with what the forking thread had, wherever the other threads were. Another thread is
 * stopped in every call-back and at every step of a barrier while the main thread forks. Then all threads
 * churn. A child that waits for a thread that it does not have is ended by its alarm.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <manycore/map.h>

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
/*
 * Some versions of the sanitizer's allocator do not take its locks for a fork. A child then hangs in malloc
 * if another thread was in it, for whatever purpose.
 */
#define MALLOC_SURVIVES_A_FORK 0
#else
#define MALLOC_SURVIVES_A_FORK 1
#endif

static const mc_domain *domain;
static int stop;

/* ---- a thread that is stopped at a step ---- */

static int has_come, may_go;

static void nap(void)
{
	struct timespec some = { 0, 200000 };

	nanosleep(&some, NULL);
}

static void wait_for(int *flag)
{
	while (!__atomic_load_n(flag, __ATOMIC_SEQ_CST))
		nap();
}

/* The other thread stays here until the main thread has forked. */
static void here(void)
{
	__atomic_store_n(&has_come, 1, __ATOMIC_SEQ_CST);
	wait_for(&may_go);
}

struct stopping {
	struct mc_head head;
};

static void stopping_free(struct mc_head *head)
{
	here();
	free(mc_container_of(head, struct stopping, head));
}

static void retire_stopping(void)
{
	struct stopping *made = (struct stopping *)malloc(sizeof(*made));

	CHECK(made != NULL);
	CHECK(mc_retire(domain, &made->head, sizeof(*made), stopping_free) == 0);
}

static void call_stopping(void)
{
	struct stopping *made = (struct stopping *)malloc(sizeof(*made));

	CHECK(made != NULL);
	CHECK(mc_call(&made->head, stopping_free) == 0);
}

static void call_counted(long *count)
{
	struct counted *made = (struct counted *)malloc(sizeof(*made));

	CHECK(made != NULL);
	made->count = count;
	CHECK(mc_call(&made->head, counted_free) == 0);
}

/* The count of the other thread's own call-backs, in this process and in the child. */
static long others;

static void in_section(void)
{
	mc_enter(domain);
	retire_counted(domain, &others);
	here();
	mc_leave(domain);
}

static void in_nested_section(void)
{
	mc_enter(mc_domain_default());
	mc_enter(domain);
	mc_enter(domain);
	here();
	mc_leave(domain);
	mc_leave(domain);
	mc_leave(mc_domain_default());
}

/* Stops outside, with only its retired objects. */
static void outside(void)
{
	retire_counted(domain, &others);
	here();
}

/* Stops in a call-back that mc_barrier runs; others, already taken out, wait behind it. */
static void in_barrier(void)
{
	int i;

	retire_stopping();
	for (i = 0; i < 20; i++)
		retire_counted(domain, &others);
	CHECK(mc_barrier(domain) == 0);
}

/* Stops in a call-back that mc_retire runs in a section. */
static void in_retire(void)
{
	mc_enter(domain);
	retire_stopping();
	mc_leave(domain);
	while (!__atomic_load_n(&has_come, __ATOMIC_SEQ_CST)) {
		mc_enter(domain);
		retire_counted(domain, &others);
		retire_counted(domain, &others);
		mc_leave(domain);
	}
}

/* Stops in a barrier that waits for a section of a third thread. */
static void *stay_inside(void *entered)
{
	mc_enter(domain);
	__atomic_store_n((int *)entered, 1, __ATOMIC_SEQ_CST);
	wait_for(&may_go);
	mc_leave(domain);
	return NULL;
}

static void (*waits_in)(void);

static void *waits(void *entered)
{
	__atomic_store_n((int *)entered, 1, __ATOMIC_SEQ_CST);
	waits_in();
	return NULL;
}

static void barrier_of_domain(void)
{
	CHECK(mc_barrier(domain) == 0);
}

static void synchronize(void)
{
	CHECK(mc_synchronize(domain) == 0);
}

static void barrier_of_calls(void)
{
	CHECK(mc_call_barrier() == 0);
}

/* Calls WAIT in a thread, and goes to the fork after the call has had time to begin. */
static void beside(void (*wait)(void))
{
	pthread_t thread;
	int i, is_in = 0;

	waits_in = wait;
	CHECK(pthread_create(&thread, NULL, waits, &is_in) == 0);
	wait_for(&is_in);
	for (i = 0; i < 20; i++)
		nap();
	here();
	CHECK(pthread_join(thread, NULL) == 0);
}

static void waiting_for_a_section(void (*wait)(void))
{
	pthread_t thread;
	int is_in = 0;

	CHECK(pthread_create(&thread, NULL, stay_inside, &is_in) == 0);
	wait_for(&is_in);
	retire_counted(domain, &others);
	beside(wait);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void in_barrier_that_waits(void)
{
	waiting_for_a_section(barrier_of_domain);
}

static void in_synchronize(void)
{
	waiting_for_a_section(synchronize);
}

/* Stops in a call-back of the helper; others and a barrier's mark wait behind it. */
static void in_call(void)
{
	mc_enter(mc_domain_default()); /* the helper calls nothing before both are scheduled */
	call_stopping();
	call_counted(&others);
	mc_leave(mc_domain_default());
	CHECK(mc_call_barrier() == 0);
}

/* Stops in mc_call_barrier, while the helper waits for a section. */
static void *stay_inside_default(void *entered)
{
	mc_enter(mc_domain_default());
	__atomic_store_n((int *)entered, 1, __ATOMIC_SEQ_CST);
	wait_for(&may_go);
	mc_leave(mc_domain_default());
	return NULL;
}

static void in_call_barrier(void)
{
	pthread_t thread;
	int is_in = 0;

	CHECK(pthread_create(&thread, NULL, stay_inside_default, &is_in) == 0);
	wait_for(&is_in);
	call_counted(&others);
	beside(barrier_of_calls);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* Stops in mc_domain_free of a domain of its own, which runs that domain's call-back. */
static const mc_domain *freed;

static void in_free(void)
{
	struct stopping *made = (struct stopping *)malloc(sizeof(*made));

	freed = eager_domain();
	CHECK(made != NULL);
	CHECK(mc_retire(freed, &made->head, sizeof(*made), stopping_free) == 0);
	CHECK(mc_domain_free(freed) == 0);
}

/* Stops in a function of a map, which locks one of its buckets. */
static uint64_t hash(const void *key, void *argument)
{
	(void)argument;
	return (uint64_t)(uintptr_t)key;
}

static int is_stopped_in_equal;

static int equal(const void *one, const void *other, void *argument)
{
	(void)argument;
	if (__atomic_load_n(&is_stopped_in_equal, __ATOMIC_SEQ_CST) && !__atomic_load_n(&has_come, __ATOMIC_SEQ_CST))
		here();
	return one == other;
}

static void in_map(void)
{
	static const struct mc_map_operations operations = { sizeof(operations), hash, equal, NULL, NULL };
	mc_map *map = NULL;

	CHECK(mc_map_new(&map, domain, &operations) == 0);
	CHECK(mc_map_put(map, (void *)1, (void *)1) >= 0);
	__atomic_store_n(&is_stopped_in_equal, 1, __ATOMIC_SEQ_CST);
	CHECK(mc_map_put(map, (void *)1, (void *)2) >= 0);
	__atomic_store_n(&is_stopped_in_equal, 0, __ATOMIC_SEQ_CST);
	mc_map_free(map);
}

struct step {
	const char *name;
	void (*run)(void);
	long kept; /* call-backs of the other threads that also run in the child; -1: any number */
};

static const struct step steps[] = {
	{ "in a section", in_section, 0 },
	{ "in sections of two domains", in_nested_section, 0 },
	{ "outside of sections", outside, 1 },
	{ "in a call-back, in mc_barrier", in_barrier, -1 },
	{ "in a call-back, in a section", in_retire, -1 },
	{ "in mc_barrier", in_barrier_that_waits, -1 },
	{ "in mc_synchronize", in_synchronize, -1 },
	{ "in a call-back of mc_call", in_call, 1 },
	{ "in mc_call_barrier", in_call_barrier, 1 },
	{ "in a call-back, in mc_domain_free", in_free, 0 },
	{ "in a map", in_map, 0 },
};

static const struct step *step;

static void *other_thread(void *argument)
{
	(void)argument;
	step->run();
	return NULL;
}

/* ---- the child ---- */

static void *in_thread_of_child(void *count)
{
	mc_enter(domain);
	retire_counted(domain, (long *)count);
	mc_leave(domain);
	CHECK(mc_barrier(domain) == 0);
	return NULL;
}

/* COUNT counts the EXPECTED call-backs that were retired and scheduled before the fork. */
static void in_child(long *count, long expected)
{
	const mc_domain *other;
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	pthread_t thread;
	long more = 0, by_call = 0;

	alarm(60);
	if (mc_is_inside(domain))
		mc_leave(domain);
	CHECK(mc_synchronize(domain) == 0);
	retire_counted(domain, &more);
	CHECK(mc_barrier(domain) == 0 && more == 1);
	call_counted(&by_call);
	CHECK(mc_call_barrier() == 0 && by_call == 1);
	CHECK(*count == expected);
	CHECK(mc_backlog(domain, 0, &backlog, NULL, 0) == 0);
	CHECK(backlog.nodes == 0 && backlog.stalled == 0);
	CHECK(pthread_create(&thread, NULL, in_thread_of_child, &more) == 0);
	CHECK(pthread_join(thread, NULL) == 0 && more == 2);
	other = eager_domain();
	retire_counted(other, &more);
	CHECK(mc_domain_free(other) == 0 && more == 3);
	retire_counted(domain, &more);
	if (step == NULL || step->run != in_map) /* the map was not freed */
		CHECK(mc_domain_free(domain) == 0 && more == 4);
}

static void expect_success(pid_t child, const char *where)
{
	int status;

	CHECK(child >= 0);
	CHECK(waitpid(child, &status, 0) == child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "a child of a fork while a thread was %s: %s %d\n", where,
		    WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		abort();
	}
}

static void fork_at(int is_inside)
{
	pthread_t thread;
	pid_t child;
	long own = 0;

	domain = eager_domain();
	__atomic_store_n(&has_come, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&may_go, 0, __ATOMIC_SEQ_CST);
	others = 0;
	CHECK(pthread_create(&thread, NULL, other_thread, NULL) == 0);
	wait_for(&has_come);
	if (is_inside)
		mc_enter(domain);
	retire_counted(domain, &own);
	mc_enter(mc_domain_default()); /* scheduled call-backs wait */
	call_counted(&own);
	child = fork();
	mc_leave(mc_domain_default());
	if (child == 0) {
		in_child(&own, 2);
		CHECK(step->kept < 0 || others == step->kept);
		_exit(0);
	}
	__atomic_store_n(&may_go, 1, __ATOMIC_SEQ_CST);
	if (is_inside)
		mc_leave(domain);
	expect_success(child, step->name);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(mc_call_barrier() == 0);
	CHECK(mc_domain_free(domain) == 0);
	CHECK(own == 2);
}

/* ---- the forking thread is itself in call-backs, one inside another ---- */

static const mc_domain *inner;
static pid_t forked;
static long behind;

static void forking_free(struct mc_head *head)
{
	free(mc_container_of(head, struct stopping, head));
	CHECK(mc_running() == 1);
	forked = fork();
	CHECK(forked >= 0);
}

static void nesting_free(struct mc_head *head)
{
	struct stopping *made = (struct stopping *)malloc(sizeof(*made));
	int i;

	free(mc_container_of(head, struct stopping, head));
	CHECK(made != NULL);
	CHECK(mc_retire(inner, &made->head, sizeof(*made), forking_free) == 0);
	for (i = 0; i < 8 && forked == 0; i++)
		CHECK(mc_collect(inner) == 0);
	CHECK(mc_running() == 1);
}

static void fork_in_a_call_back(void)
{
	struct stopping *made = (struct stopping *)malloc(sizeof(*made));
	pid_t parent = getpid();
	int i;

	step = NULL;
	domain = eager_domain();
	inner = eager_domain();
	behind = 0;
	forked = 0;
	CHECK(made != NULL);
	mc_enter(domain);
	CHECK(mc_retire(domain, &made->head, sizeof(*made), nesting_free) == 0);
	for (i = 0; i < 40; i++)
		retire_counted(domain, &behind);
	mc_leave(domain);
	CHECK(mc_barrier(domain) == 0);
	CHECK(behind == 40 && mc_running() == 0);
	CHECK(mc_barrier(inner) == 0 && mc_domain_free(inner) == 0);
	if (getpid() != parent) {
		in_child(&behind, 40);
		_exit(0);
	}
	expect_success(forked, "in a call-back, as the forking thread was");
	CHECK(mc_domain_free(domain) == 0);
}

static void forking_helper(struct mc_head *head)
{
	free(mc_container_of(head, struct stopping, head));
	forked = fork();
	if (forked == 0)
		alarm(60);
}

/* In the child the helper is the only thread, and continues with the call-backs that it had taken. */
static void last_of_helper(struct mc_head *head)
{
	free(mc_container_of(head, struct stopping, head));
	if (forked == 0)
		_exit(behind == 1 ? 0 : 1);
}

static void fork_in_the_helper(void)
{
	struct stopping *first = (struct stopping *)malloc(sizeof(*first));
	struct stopping *last = (struct stopping *)malloc(sizeof(*last));

	CHECK(first != NULL && last != NULL);
	behind = 0;
	mc_enter(mc_domain_default()); /* so that the helper takes all of them at once */
	CHECK(mc_call(&first->head, forking_helper) == 0);
	call_counted(&behind);
	CHECK(mc_call(&last->head, last_of_helper) == 0);
	mc_leave(mc_domain_default());
	CHECK(mc_call_barrier() == 0 && behind == 1);
	expect_success(forked, "forking in a call-back of mc_call");
}

/* ---- all at once ---- */

static void *churn(void *argument)
{
	long count = 0, called = 0;

	(void)argument;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
		const mc_domain *other = NULL;

		CHECK(mc_domain_new(&other, &options) == 0);
		retire_counted(other, &count);
		CHECK(mc_domain_free(other) == 0);
		retire_counted(domain, &count);
		CHECK(mc_barrier(domain) == 0);
		call_counted(&called);
		CHECK(mc_call_barrier() == 0);
	}
	CHECK(count > 0 && called > 0);
	return NULL;
}

static void fork_beside_churn(void)
{
	pthread_t threads[2];
	int i;

	step = NULL;
	domain = eager_domain();
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
	for (i = 0; i < 50; i++) {
		long own = 0;
		pid_t child;

		mc_enter(domain);
		retire_counted(domain, &own);
		call_counted(&own);
		child = fork();
		if (child == 0) {
			in_child(&own, 2);
			_exit(0);
		}
		mc_leave(domain);
		expect_success(child, "anywhere");
		CHECK(mc_barrier(domain) == 0 && mc_call_barrier() == 0 && own == 2);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(mc_domain_free(domain) == 0);
}

int main(void)
{
	size_t i;
	long first = 0;

	/* Waits until the helper has started, because its start allocates. */
	call_counted(&first);
	CHECK(mc_call_barrier() == 0 && first == 1);
	for (i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		step = &steps[i];
		if (step->run == in_barrier_that_waits && !MALLOC_SURVIVES_A_FORK)
			continue; /* it collects all the time, which may allocate */
		fork_at(0);
		fork_at(1);
	}
	fork_in_a_call_back();
	fork_in_the_helper();
	if (MALLOC_SURVIVES_A_FORK)
		fork_beside_churn();
	return 0;
}
