/* Counters and a histogram that many threads change: mc_counter, mc_histogram. */
#include <manycore/counter.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

static struct mc_counter requests = MC_COUNTER_INIT;
static mc_histogram *latencies;

static void *serve(void *argument)
{
	int i;

	(void)argument;
	for (i = 1; i <= 10000; i++) {
		mc_counter_add(&requests, 1);
		mc_histogram_record(latencies, (uint64_t)i, 1);
	}
	return NULL;
}

int main(void)
{
	struct mc_counter open_files = MC_COUNTER_INIT;
	mc_snapshot *minute, *all;
	pthread_t threads[4];
	uint64_t median = 0;
	int i;

	if (mc_histogram_new(&latencies) != 0)
		return 1;
	/* Happens by itself when threads contend. Here one core may be enough for all threads. */
	if (mc_counter_promote(&requests) == -EBUSY)
		puts("not now");
	for (i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, serve, NULL);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("%" PRId64 " requests, a word for each thread: %d\n", mc_counter_sum(&requests),
	    mc_counter_is_hot(&requests));
	mc_counter_demote(&requests);
	if (mc_counter_take(&requests) != 40000 || mc_counter_sum(&requests) != 0)
		return 1;

	/* The values since the last report, and since the start. */
	if (mc_histogram_take(latencies, &minute) != 0)
		return 1;
	mc_histogram_record(latencies, 1000000, 1);
	if (mc_histogram_read(latencies, &all) != 0 || mc_snapshot_merge(all, minute) != 0)
		return 1;
	if (mc_snapshot_quantile(minute, 0.5, &median) != 0 || median < 4900 || median > 5100)
		return 1;
	printf("%" PRIu64 " values, mean %.0f, median %" PRIu64 "; %" PRIu64 " up to 100\n",
	    mc_snapshot_count(all), mc_snapshot_sum(all) / (double)mc_snapshot_count(all), median,
	    mc_snapshot_count_up_to(all, 100));
	i = mc_snapshot_count(all) != 40001;
	mc_snapshot_free(minute);
	mc_snapshot_free(all);
	mc_histogram_free(latencies);

	mc_counter_add(&open_files, 3);
	mc_counter_add(&open_files, -1);
	i |= mc_counter_sum(&open_files) != 2;
	mc_counter_destroy(&open_files); /* its memory is the stack's */
	mc_counter_destroy(&requests);
	return i;
}
