/* A check that NDEBUG does not disable, and code that the tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <manycore/manycore.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/* An object that counts itself when its call-back is called. */
struct counted {
	struct mc_head head;
	long *count;
};

static inline void counted_free(struct mc_head *head)
{
	struct counted *own = mc_container_of(head, struct counted, head);

	__atomic_add_fetch(own->count, 1, __ATOMIC_SEQ_CST);
	free(own);
}

static inline void retire_counted(const mc_domain *domain, long *count)
{
	struct counted *made = (struct counted *)malloc(sizeof(*made));

	CHECK(made != NULL);
	made->count = count;
	CHECK(mc_retire(domain, &made->head, sizeof(*made), counted_free) == 0);
}

/* A domain that seals each batch at once. */
static inline const mc_domain *eager_domain(void)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	const mc_domain *domain = NULL;

	options.batch_nodes = 1;
	CHECK(mc_domain_new(&domain, &options) == 0 && domain != NULL);
	return domain;
}

/* Runs as many rounds as would free everything. */
static inline void collect_often(const mc_domain *domain)
{
	int i;

	for (i = 0; i < 10; i++)
		CHECK(mc_collect(domain) == 0);
}

#endif
