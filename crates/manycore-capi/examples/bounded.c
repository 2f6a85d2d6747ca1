/* A configuration behind one pointer, in a bounded domain: a reader stalls, and memory does not grow. */
#include <manycore/manycore.h>

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

struct config {
	int limit;
	struct mc_head head;
};

static const mc_domain *domain;
static struct config *current;
static sem_t inside, may_leave;

static void config_free(struct mc_head *head)
{
	free(mc_container_of(head, struct config, head));
}

static int set_limit(int limit)
{
	struct config *config = (struct config *)malloc(sizeof(*config)), *old;

	if (config == NULL)
		return -1;
	config->limit = limit;
	mc_enter(domain);
	mc_born(domain, &config->head); /* before it is linked */
	old = mc_exchange_pointer(current, config);
	if (old != NULL)
		mc_retire(domain, &old->head, sizeof(*old), config_free);
	mc_leave(domain);
	return 0;
}

static void *stall(void *argument)
{
	struct config *held;

	(void)argument;
	mc_enter(domain);
	held = mc_protect(domain, current);
	sem_post(&inside);
	sem_wait(&may_leave);
	printf("the reader that stalled read %d\n", held->limit); /* still valid */
	mc_leave(domain);
	return NULL;
}

int main(void)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	pthread_t reader;
	int limit;

	options.flags = MC_DOMAIN_BOUNDED;
	options.budget = 64 << 10;
	if (mc_domain_new(&domain, &options) != 0 || set_limit(0) != 0)
		return 1;
	sem_init(&inside, 0, 0);
	sem_init(&may_leave, 0, 0);
	if (pthread_create(&reader, NULL, stall, NULL) != 0)
		return 1;
	sem_wait(&inside);
	for (limit = 1; limit <= 100000; limit++) {
		if (set_limit(limit) != 0)
			return 1;
	}
	mc_backlog(domain, 0, &backlog, NULL, 0);
	printf("%d configurations later, %" PRIu64 " bytes wait\n", limit - 1, backlog.bytes);
	sem_post(&may_leave);
	pthread_join(reader, NULL);
	mc_barrier(domain);
	config_free(&current->head);
	return backlog.bytes > 128 << 10 || mc_domain_free(domain) != 0;
}
