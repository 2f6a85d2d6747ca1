/* A child goes on with what the forking thread had, while other threads were at it. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static const mc_domain *domain;
static int stop;

static void *churn(void *argument)
{
	long count = 0;

	(void)argument;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
		const mc_domain *other = NULL;

		CHECK(mc_domain_new(&other, &options) == 0);
		retire_counted(other, &count);
		CHECK(mc_domain_free(other) == 0);
	}
	CHECK(count > 0);
	return NULL;
}

static void in_child(void)
{
	const mc_domain *other = eager_domain();
	struct counted *called = (struct counted *)malloc(sizeof(*called));
	long count = 0, by_call = 0;

	alarm(60);
	CHECK(mc_is_inside(domain) == 1);
	mc_leave(domain);
	retire_counted(domain, &count);
	CHECK(mc_barrier(domain) == 0 && count == 1);
	retire_counted(other, &count);
	CHECK(mc_domain_free(other) == 0 && count == 2);
	CHECK(called != NULL);
	called->count = &by_call;
	CHECK(mc_call(&called->head, counted_free) == 0);
	CHECK(mc_call_barrier() == 0 && by_call == 1);
	_exit(0);
}

int main(void)
{
	struct counted *called = (struct counted *)malloc(sizeof(*called));
	pthread_t thread;
	long by_call = 0;
	int i, status;

	domain = eager_domain();
	CHECK(called != NULL);
	called->count = &by_call;
	CHECK(mc_call(&called->head, counted_free) == 0);
	CHECK(mc_call_barrier() == 0 && by_call == 1);
	CHECK(pthread_create(&thread, NULL, churn, NULL) == 0);
	for (i = 0; i < 50; i++) {
		pid_t child;

		mc_enter(domain);
		child = fork();
		CHECK(child >= 0);
		if (child == 0)
			in_child();
		mc_leave(domain);
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(mc_domain_free(domain) == 0);
	return 0;
}
