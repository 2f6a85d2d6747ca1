/* A program for liburcu, with its include line changed. */
#include <manycore/urcu.h>

#include <pthread.h>
#include <stdio.h>

struct node {
	int value;
	struct rcu_head head;
};

static struct node *shared;
static int stop;

static void node_free(struct rcu_head *head)
{
	free(mc_container_of(head, struct node, head));
}

static void *reader(void *argument)
{
	long *sum = (long *)argument;

	rcu_register_thread();
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		rcu_read_lock();
		*sum += rcu_dereference(shared)->value;
		rcu_read_unlock();
	}
	rcu_unregister_thread();
	return NULL;
}

static struct node *node_new(int value)
{
	struct node *made = (struct node *)malloc(sizeof(*made));

	if (made == NULL)
		abort();
	made->value = value;
	return made;
}

int main(void)
{
	struct urcu_gp_poll_state state;
	struct node *old;
	pthread_t thread;
	long sum = 0;
	int i;

	rcu_init();
	rcu_assign_pointer(shared, node_new(1));
	if (pthread_create(&thread, NULL, reader, &sum) != 0)
		return 1;
	for (i = 0; i < 10000; i++) {
		old = rcu_xchg_pointer(&shared, node_new(1));
		call_rcu(&old->head, node_free);
	}
	state = start_poll_synchronize_rcu();
	while (!poll_state_synchronize_rcu(state))
		;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	old = rcu_xchg_pointer(&shared, (struct node *)NULL);
	synchronize_rcu();
	free(old);
	rcu_barrier();
	printf("%ld\n", sum);
	return sum < 0;
}
