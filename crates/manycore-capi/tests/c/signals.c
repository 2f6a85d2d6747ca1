/* A signal handler reads, in threads that enter, leave, retire and change domains all the time. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

struct node {
	struct mc_head head;
	long value;
};

static const mc_domain *domain, *second;
static struct node *shared;
static long reads, wrong;
static int stop;

#define LIVE 0x11ce11ceL
#define DEAD 0xdeadL

static void node_free(struct mc_head *head)
{
	struct node *node = mc_container_of(head, struct node, head);

	__atomic_store_n(&node->value, DEAD, __ATOMIC_RELAXED);
	free(node);
}

static void on_signal(int number)
{
	int again;

	(void)number;
	for (again = 0; again < 2; again++) {
		mc_enter(again ? second : domain);
		mc_enter(domain);
		if (__atomic_load_n(&mc_dereference(shared)->value, __ATOMIC_RELAXED) != LIVE)
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
		mc_leave_in_handler(domain);
		mc_leave_in_handler(again ? second : domain);
	}
	__atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
}

static void replace(void)
{
	struct node *made = (struct node *)malloc(sizeof(*made));
	struct node *old;

	CHECK(made != NULL);
	made->value = LIVE;
	old = mc_exchange_pointer(shared, made);
	if (old != NULL)
		mc_retire(domain, &old->head, sizeof(*old), node_free);
}

static void *work(void *argument)
{
	CHECK(mc_thread_register(domain) == 0 && mc_thread_register(second) == 0);
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		mc_enter(domain);
		mc_enter(second);
		CHECK(mc_dereference(shared)->value == LIVE);
		mc_leave(domain);
		mc_enter(domain);
		mc_leave(second);
		CHECK(mc_dereference(shared)->value == LIVE);
		mc_leave(domain);
		if (argument != NULL)
			replace();
	}
	return NULL;
}

int main(void)
{
	struct sigaction action;
	pthread_t threads[2];
	int i;

	domain = eager_domain();
	second = eager_domain();
	replace();
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	for (i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, work, i ? &threads : NULL) == 0);
	/* Registers before the first signal comes. */
	for (i = 0; i < 2; i++) {
		uint64_t moment = mc_now(domain);

		while (!mc_quiesced(domain, moment))
			;
	}
	{
		struct timespec pause = { 0, 20000000 };

		nanosleep(&pause, NULL);
	}
	for (i = 0; i < 20000; i++) {
		struct timespec pause = { 0, 10000 };

		CHECK(pthread_kill(threads[i % 2], SIGUSR1) == 0);
		nanosleep(&pause, NULL);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(wrong == 0 && reads > 1000);
	mc_barrier(domain);
	free(shared);
	CHECK(mc_domain_free(domain) == 0 && mc_domain_free(second) == 0);
	return 0;
}
