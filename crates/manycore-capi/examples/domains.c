/* A domain of the program's own with settings; shows what waits in it, and which thread holds it up. */
#include <manycore/manycore.h>

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

static sem_t inside, may_leave;

static void *stall(void *argument)
{
	const mc_domain *domain = (const mc_domain *)argument;

	mc_thread_register(domain);
	mc_enter(domain);
	sem_post(&inside);
	sem_wait(&may_leave);
	mc_leave(domain);
	mc_thread_unregister(domain);
	return NULL;
}

static void free_head(struct mc_head *head)
{
	free(head);
}

int main(void)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	struct mc_stalled stalled[4];
	const mc_domain *domain;
	pthread_t reader;
	uint64_t moment;
	int i, over;

	options.budget = 1 << 20;
	options.batch_nodes = 64;
	if (mc_domain_new(&domain, &options) != 0)
		return 1;
	sem_init(&inside, 0, 0);
	sem_init(&may_leave, 0, 0);
	if (pthread_create(&reader, NULL, stall, (void *)(uintptr_t)domain) != 0)
		return 1;
	sem_wait(&inside);

	moment = mc_now(domain);
	for (i = 0; i < 1000; i++) {
		struct mc_head *head = (struct mc_head *)malloc(sizeof(*head));

		if (head == NULL || mc_retire(domain, head, sizeof(*head), free_head) != 0)
			return 1;
	}
	if (mc_backlog(domain, 0, &backlog, stalled, 4) != 0)
		return 1;
	printf("%" PRIu64 " objects of %" PRIu64 " bytes wait\n", backlog.nodes, backlog.bytes);
	for (i = 0; i < (int)backlog.stalled && i < 4; i++)
		printf("thread %" PRIu64 " has been inside for %" PRIu64 " ns or more\n",
		    stalled[i].os_id, stalled[i].at_least_ns);
	over = mc_quiesced(domain, moment);

	sem_post(&may_leave);
	pthread_join(reader, NULL);
	mc_barrier(domain);
	mc_backlog(domain, 0, &backlog, NULL, 0);
	printf("%" PRIu64 " objects wait\n", backlog.nodes);
	return over != 0 || backlog.nodes != 0 || mc_domain_free(domain) != 0;
}
