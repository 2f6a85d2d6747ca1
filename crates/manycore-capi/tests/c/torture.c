/*
 * Readers and updaters of a table, with an oracle: a node's call-back poisons it, and a reader that finds
 * the poison was not protected. Freed nodes are kept for a while, so that the poison stays. Barriers run
 * meanwhile: nodes that were retired before a barrier are poisoned after it.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <time.h>

#define SLOTS 64
#define KEPT 4096
#define LIVE UINT64_C(0x6c6976656c697665)
#define POISON UINT64_C(0x706f69736f6e6564)

struct node {
	struct mc_head head;
	uint64_t state;
};

static const mc_domain *domain;
static struct node *table[SLOTS];
static struct node *kept[KEPT];
static unsigned long kept_at, retired, freed, read_count;
static int stop;

static void node_free(struct mc_head *head)
{
	struct node *node = mc_container_of(head, struct node, head), *old;
	unsigned long at = __atomic_fetch_add(&kept_at, 1, __ATOMIC_SEQ_CST) % KEPT;

	CHECK(__atomic_exchange_n(&node->state, POISON, __ATOMIC_SEQ_CST) == LIVE);
	old = __atomic_exchange_n(&kept[at], node, __ATOMIC_SEQ_CST);
	free(old);
	__atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
}

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void *work(void *argument)
{
	uint64_t seed = (uint64_t)(uintptr_t)argument * UINT64_C(0x9e3779b97f4a7c15), i;
	unsigned long reads = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		for (i = 0; i < 64; i++) {
			struct node **slot = &table[next(&seed) % SLOTS], *node;

			if (seed >> 33 & 1) {
				node = (struct node *)malloc(sizeof(*node));
				CHECK(node != NULL);
				node->state = LIVE;
				node = mc_exchange_pointer(*slot, node);
				__atomic_add_fetch(&retired, 1, __ATOMIC_SEQ_CST);
				CHECK(mc_retire(domain, &node->head, sizeof(*node), node_free) == 0);
			} else {
				int times = 1 + (int)(seed >> 40 & 15);

				mc_enter(domain);
				node = mc_dereference(*slot);
				while (times-- > 0)
					CHECK(__atomic_load_n(&node->state, __ATOMIC_RELAXED) == LIVE);
				mc_leave(domain);
				reads++;
			}
		}
		if ((seed >> 20 & 1023) == 0)
			CHECK(mc_barrier(domain) == 0);
	}
	__atomic_add_fetch(&read_count, reads, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Threads that start and end. */
static void *come_and_go(void *argument)
{
	(void)argument;
	mc_enter(domain);
	mc_leave(domain);
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1.0;
	struct timespec now, end;
	pthread_t threads[4];
	uintptr_t i;

	domain = mc_domain_default();
	for (i = 0; i < SLOTS; i++) {
		table[i] = (struct node *)malloc(sizeof(struct node));
		CHECK(table[i] != NULL);
		table[i]->state = LIVE;
	}
	for (i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)(seconds * 1e9) % 1000000000;
	end.tv_sec += (time_t)seconds + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	do {
		pthread_t thread;
		unsigned long before = __atomic_load_n(&retired, __ATOMIC_SEQ_CST);

		/* A node that was counted may not be retired yet: one for each thread. */
		CHECK(mc_barrier(domain) == 0);
		CHECK(__atomic_load_n(&freed, __ATOMIC_SEQ_CST) + 4 >= before);
		CHECK(pthread_create(&thread, NULL, come_and_go, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(mc_barrier(domain) == 0 && freed == retired);
	printf("%lu reads, %lu objects freed\n", read_count, freed);
	for (i = 0; i < SLOTS; i++)
		free(table[i]);
	for (i = 0; i < KEPT; i++)
		free(kept[i]);
	return read_count == 0 || freed == 0;
}
