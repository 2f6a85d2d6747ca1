/* Threads that end inside sections, that never registered, or that use the library at their end. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

static const mc_domain *domain, *second;
static long freed;
static pthread_key_t key;
static sem_t inside;

static void *return_inside(void *argument)
{
	(void)argument;
	mc_enter(domain);
	mc_enter(second);
	mc_enter(domain);
	return NULL;
}

static void *exit_inside(void *argument)
{
	(void)argument;
	mc_enter(second);
	mc_enter(domain);
	pthread_exit(NULL);
}

static void *cancelled_inside(void *argument)
{
	(void)argument;
	mc_enter(domain);
	sem_post(&inside);
	for (;;)
		pause();
	return NULL;
}

static void leave_on_cancel(void *argument)
{
	(void)argument;
	mc_leave(domain);
}

static void *cancelled_with_handler(void *argument)
{
	(void)argument;
	mc_enter(domain);
	pthread_cleanup_push(leave_on_cancel, NULL);
	sem_post(&inside);
	for (;;)
		pause();
	pthread_cleanup_pop(1);
	return NULL;
}

/* Runs after the thread's own destructors: its sections still protect, nest and are closed. */
static void use_late(void *argument)
{
	long before = __atomic_load_n(&freed, __ATOMIC_SEQ_CST);

	(void)argument;
	mc_enter(domain);
	mc_enter(second);
	mc_enter(domain);
	retire_counted(domain, &freed);
	mc_leave(domain);
	mc_leave(second);
	collect_often(domain);
	CHECK(__atomic_load_n(&freed, __ATOMIC_SEQ_CST) == before);
	mc_leave(domain);
	mc_leave(domain); /* nothing is open */
	retire_counted(domain, &freed);
	CHECK(mc_synchronize(domain) == 0);
}

static void *with_key(void *argument)
{
	if (argument != NULL)
		mc_enter(domain);
	CHECK(pthread_setspecific(key, &key) == 0);
	return NULL;
}

static void *retire_unregistered(void *argument)
{
	(void)argument;
	retire_counted(domain, &freed);
	return NULL;
}

static void run(void *(*function)(void *), void *argument, int cancel)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, function, argument) == 0);
	if (cancel) {
		while (sem_wait(&inside) != 0)
			;
		CHECK(pthread_cancel(thread) == 0);
	}
	CHECK(pthread_join(thread, NULL) == 0);
	retire_counted(domain, &freed);
	CHECK(mc_synchronize(domain) == 0 && mc_synchronize(second) == 0);
	CHECK(mc_barrier(domain) == 0);
}

/* Waits for a reader that does not leave; cancelling it has no effect until it has returned. */
static void *synchronize(void *argument)
{
	int *returned = (int *)argument;

	sem_post(&inside);
	CHECK(mc_synchronize(domain) == 0);
	__atomic_store_n(returned, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static sem_t go;
static const mc_domain *current;

/* Enters the current domain, which may have the address of one that was freed. */
static void *enter_each(void *argument)
{
	int i;

	(void)argument;
	for (i = 0; i < 100; i++) {
		sem_wait(&go);
		mc_enter(current);
		sem_post(&inside);
		sem_wait(&go);
		mc_leave(current);
		sem_post(&inside);
	}
	return NULL;
}

static pthread_key_t short_key;
static const mc_domain *own;

static void enter_late(void *argument)
{
	(void)argument;
	mc_enter(own);
	mc_leave(own);
}

static void *with_short_key(void *argument)
{
	CHECK(pthread_setspecific(short_key, &short_key) == 0);
	return argument;
}

/* Threads that use the library only at their end leave nothing behind: no number, and no address. */
static void ends(void)
{
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	struct mc_stalled stalled;
	pthread_t threads[100];
	int i, round;

	CHECK(pthread_key_create(&short_key, enter_late) == 0);
	own = eager_domain();
	for (round = 0; round < 3; round++) {
		/* Enough threads at a time that the C library gives their memory back. */
		for (i = 0; i < 100; i++)
			CHECK(pthread_create(&threads[i], NULL, with_short_key, NULL) == 0);
		for (i = 0; i < 100; i++)
			CHECK(pthread_join(threads[i], NULL) == 0);
		CHECK(mc_domain_free(own) == 0);
		own = eager_domain();
	}
	/* Threads that run at the same time have different numbers: there have been 500 of them, and 101. */
	for (i = 0; i < 200; i++)
		run(with_short_key, NULL, 0);
	CHECK(pthread_create(&threads[0], NULL, cancelled_inside, NULL) == 0);
	while (sem_wait(&inside) != 0)
		;
	CHECK(mc_backlog(domain, 0, &backlog, &stalled, 1) == 0 && backlog.stalled == 1);
	CHECK(stalled.slot < 250);
	CHECK(pthread_cancel(threads[0]) == 0 && pthread_join(threads[0], NULL) == 0);
	CHECK(mc_domain_free(own) == 0);
}

static void addresses(void)
{
	const mc_domain *last = NULL;
	pthread_t thread;
	int i, same = 0;

	sem_init(&go, 0, 0);
	CHECK(pthread_create(&thread, NULL, enter_each, NULL) == 0);
	for (i = 0; i < 100; i++) {
		long count = 0;

		current = eager_domain();
		same += current == last;
		last = current;
		mc_enter(current);
		mc_leave(current);
		sem_post(&go);
		sem_wait(&inside);
		retire_counted(current, &count);
		collect_often(current);
		CHECK(count == 0);
		sem_post(&go);
		sem_wait(&inside);
		CHECK(mc_barrier(current) == 0 && count == 1 && mc_domain_free(current) == 0);
	}
	pthread_join(thread, NULL);
	printf("%d of 99 domains had the address of the one before\n", same);
}

int main(void)
{
	const struct timespec pause = { 0, 10000000 };
	pthread_t thread;
	int i, returned = 0;

	domain = eager_domain();
	second = eager_domain();
	sem_init(&inside, 0, 0);
	CHECK(pthread_key_create(&key, use_late) == 0);
	for (i = 0; i < 50; i++) {
		run(return_inside, NULL, 0);
		run(exit_inside, NULL, 0);
		run(cancelled_inside, NULL, 1);
		run(cancelled_with_handler, NULL, 1);
		run(with_key, NULL, 0);
		run(with_key, &key, 0);
		run(retire_unregistered, NULL, 0);
	}
	CHECK(freed == 50 * (7 + 2 * 2 + 1));
	ends();

	mc_enter(domain);
	CHECK(pthread_create(&thread, NULL, synchronize, &returned) == 0);
	sem_wait(&inside);
	CHECK(pthread_cancel(thread) == 0);
	nanosleep(&pause, NULL);
	CHECK(__atomic_load_n(&returned, __ATOMIC_SEQ_CST) == 0);
	mc_leave(domain);
	CHECK(pthread_join(thread, NULL) == 0 && returned == 1);
	CHECK(mc_domain_free(domain) == 0 && mc_domain_free(second) == 0);
	addresses();
	return 0;
}
