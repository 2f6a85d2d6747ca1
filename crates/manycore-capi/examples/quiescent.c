/* A worker that opens no further sections and announces when it holds nothing, as with QSBR. */
#include <manycore/manycore.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct config {
	long limit;
	struct mc_head head;
};

static struct config *current;
static int stop;

static void config_free(struct mc_head *head)
{
	free(mc_container_of(head, struct config, head));
}

static struct config *config_new(long limit)
{
	struct config *made = (struct config *)malloc(sizeof(*made));

	if (made == NULL)
		abort();
	made->limit = limit;
	return made;
}

static void *work(void *argument)
{
	const mc_domain *domain = mc_domain_default();
	long *highest = (long *)argument;
	int packet;

	mc_enter(domain); /* online */
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		for (packet = 0; packet < 64; packet++) { /* each read is one load */
			long limit = mc_dereference(current)->limit;

			if (limit > *highest)
				*highest = limit;
		}
		mc_quiescent(domain); /* between two batches it holds nothing */
	}
	mc_leave(domain); /* offline; also before it waits for more work */
	return NULL;
}

int main(void)
{
	const mc_domain *domain = mc_domain_default();
	long highest = 0, limit;
	pthread_t worker;

	current = config_new(0);
	if (pthread_create(&worker, NULL, work, &highest) != 0)
		return 1;
	for (limit = 1; limit <= 1000; limit++) {
		struct config *old = mc_exchange_pointer(current, config_new(limit));

		mc_retire(domain, &old->head, sizeof(*old), config_free);
	}
	mc_synchronize(domain); /* the worker has said so since */
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(worker, NULL);
	mc_barrier(domain);
	printf("the worker has seen %ld\n", highest);
	free(current);
	return highest > 1000;
}
