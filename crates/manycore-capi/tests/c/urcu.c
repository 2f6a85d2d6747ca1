/* The API of liburcu's flavours: checks what a program may rely on. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <manycore/urcu.h>

#include <pthread.h>

struct node {
	struct rcu_head head;
	int number;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int called, deferred, last = -1, out_of_order;
static pthread_t caller;

/* Takes the lock that its caller held; runs outside sections, and in order. */
static void on_call(struct rcu_head *head)
{
	struct node *node = mc_container_of(head, struct node, head);

	pthread_mutex_lock(&lock);
	CHECK(!rcu_read_ongoing() && !pthread_equal(caller, pthread_self()));
	out_of_order += node->number != last + 1;
	last = node->number;
	called++;
	pthread_mutex_unlock(&lock);
	if (node->number == 0)
		synchronize_rcu();
	free(node);
}

static void on_defer(void *pointer)
{
	deferred++;
	free(pointer);
}

static void *hold(void *argument)
{
	int *step = (int *)argument;

	rcu_register_thread();
	rcu_read_lock();
	rcu_read_lock();
	rcu_read_unlock();
	CHECK(rcu_read_ongoing());
	__atomic_store_n(step, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(step, __ATOMIC_SEQ_CST) != 2)
		;
	rcu_read_unlock();
	rcu_quiescent_state();
	rcu_thread_offline();
	rcu_thread_online();
	rcu_unregister_thread();
	return NULL;
}

static void *synchronize(void *argument)
{
	synchronize_rcu();
	__atomic_store_n((int *)argument, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

int main(void)
{
	struct urcu_gp_poll_state state;
	pthread_t reader, writer;
	int i, step = 0, over = 0, one = 1, two = 2, *link = &one;

	rcu_init();
	caller = pthread_self();
	CHECK(rcu_cmpxchg_pointer(&link, &two, &two) == &one && link == &one);
	CHECK(rcu_cmpxchg_pointer(&link, &one, &two) == &one && link == &two);
	rcu_set_pointer(&link, &one);
	CHECK(rcu_dereference(link) == &one);

	/* A grace period lasts as long as a section that was open at its start. */
	CHECK(pthread_create(&reader, NULL, hold, &step) == 0);
	while (__atomic_load_n(&step, __ATOMIC_SEQ_CST) != 1)
		;
	state = start_poll_synchronize_rcu();
	CHECK(pthread_create(&writer, NULL, synchronize, &over) == 0);
	for (i = 0; i < 1000; i++)
		CHECK(!poll_state_synchronize_rcu(state));
	CHECK(__atomic_load_n(&over, __ATOMIC_SEQ_CST) == 0);
	__atomic_store_n(&step, 2, __ATOMIC_SEQ_CST);
	CHECK(pthread_join(reader, NULL) == 0 && pthread_join(writer, NULL) == 0 && over == 1);
	while (!poll_state_synchronize_rcu(state))
		;

	/* Call-backs run by themselves, although this thread holds their lock. */
	for (i = 0; i < 10000; i++) {
		struct node *node = (struct node *)malloc(sizeof(*node));

		CHECK(node != NULL);
		node->number = i;
		pthread_mutex_lock(&lock);
		call_rcu(&node->head, on_call);
		pthread_mutex_unlock(&lock);
	}
	for (i = 0; i != 10000;) {
		pthread_mutex_lock(&lock);
		i = called;
		pthread_mutex_unlock(&lock);
	}
	CHECK(out_of_order == 0);
	for (i = 0; i < 100; i++)
		defer_rcu(on_defer, malloc(1));
	rcu_barrier();
	CHECK(deferred == 100);
	return 0;
}
