/*
 * Memory while a reader stays in its section, by the settings of a domain, as in Rust. With backpressure, an
 * updater over the budget waits for the set time, once for a number of objects, a batch's at most. A report
 * names the reader. When the reader leaves, everything is freed.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#define BYTES 1024
#define BUDGET ((size_t)64 << 10)
#define WAIT_US 1000

static const mc_domain *domain;
static sem_t inside, may_leave;
static long freed;
static unsigned long overruns;

static void *stall(void *argument)
{
	(void)argument;
	mc_enter(domain);
	CHECK(sem_post(&inside) == 0);
	while (sem_wait(&may_leave) != 0)
		;
	mc_leave(domain);
	return NULL;
}

static void over_budget(void *argument, const struct mc_backlog *backlog)
{
	CHECK(argument == NULL && backlog->bytes > BUDGET);
	__atomic_add_fetch(&overruns, 1, __ATOMIC_SEQ_CST);
}

/* Retires an object of BYTES in a section. */
static void update(void)
{
	struct counted *made = (struct counted *)malloc(BYTES);

	CHECK(made != NULL);
	made->count = &freed;
	mc_enter(domain);
	CHECK(mc_retire(domain, &made->head, BYTES, counted_free) == 0);
	mc_leave(domain);
}

static double seconds(void)
{
	struct timespec now;

	CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	struct mc_stalled stalled;
	pthread_t reader;
	double start;
	long i, all = 0;

	options.budget = BUDGET;
	options.backpressure_us = WAIT_US;
	options.on_over_budget = over_budget;
	CHECK(mc_domain_new(&domain, &options) == 0);
	CHECK(sem_init(&inside, 0, 0) == 0 && sem_init(&may_leave, 0, 0) == 0);

	/* Without a stalled reader much more than the budget passes through. */
	for (i = 0; i < 20000; i++, all++) {
		update();
		if (i % 100 == 0) {
			CHECK(mc_backlog(domain, 0, &backlog, NULL, 0) == 0);
			CHECK(backlog.bytes <= 2 * BUDGET + 6 * BYTES);
		}
	}
	CHECK(mc_barrier(domain) == 0 && freed == all && overruns == 0);

	CHECK(pthread_create(&reader, NULL, stall, NULL) == 0);
	while (sem_wait(&inside) != 0)
		;
	for (i = 0; overruns == 0; i++, all++) {
		CHECK(i < 3 * (long)(BUDGET / BYTES));
		update();
	}
	start = seconds();
	for (i = 0; i < 100; i++, all++)
		update();
	CHECK(seconds() - start > 100 / (BUDGET / 6 / BYTES) * WAIT_US / 1e6 / 2);
	CHECK(mc_backlog(domain, 0, &backlog, &stalled, 1) == 0);
	CHECK(backlog.bytes <= 4 * BUDGET + 100 * BYTES && backlog.stalled == 1 && stalled.at_least_ns > 0);

	CHECK(sem_post(&may_leave) == 0 && pthread_join(reader, NULL) == 0);
	CHECK(mc_barrier(domain) == 0 && freed == all);
	CHECK(mc_domain_free(domain) == 0);
	return 0;
}
