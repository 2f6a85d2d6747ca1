/* A configuration that many threads read and one replaces: sections, links, retiring. */
#include <manycore/manycore.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct config {
	int limit;
	int twice;
	struct mc_head head;
};

static struct config *current;

static void config_free(struct mc_head *head)
{
	free(mc_container_of(head, struct config, head));
}

static struct config *config_new(int limit)
{
	struct config *made = (struct config *)malloc(sizeof(*made));

	if (made == NULL)
		abort();
	made->limit = limit;
	made->twice = 2 * limit;
	return made;
}

static void *read_often(void *argument)
{
	const mc_domain *domain = mc_domain_default();
	long *wrong = (long *)argument;
	int i;

	for (i = 0; i < 1000000; i++) {
		const struct config *config;

		mc_enter(domain);
		config = mc_dereference(current);
		*wrong += config->twice != 2 * config->limit;
		mc_leave(domain);
	}
	return NULL;
}

int main(void)
{
	const mc_domain *domain = mc_domain_default();
	struct config *old;
	pthread_t reader;
	long wrong = 0;
	int i;

	mc_assign_pointer(current, config_new(0));
	if (pthread_create(&reader, NULL, read_often, &wrong) != 0)
		return 1;
	for (i = 1; i < 100000; i++) {
		old = mc_exchange_pointer(current, config_new(i));
		mc_retire(domain, &old->head, sizeof(*old), config_free);
	}
	pthread_join(reader, NULL);

	/* Without retiring: wait for readers, then free. */
	old = mc_exchange_pointer(current, (struct config *)NULL);
	mc_synchronize(domain);
	free(old);

	/* Free everything before exit, so that leak checkers find nothing. */
	mc_barrier(domain);
	printf("%ld reads of a freed configuration\n", wrong);
	return wrong != 0;
}
