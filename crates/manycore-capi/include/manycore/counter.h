/*
 * Counters and histograms of many threads: many threads change them, few read them.
 *
 *     static struct mc_counter requests = MC_COUNTER_INIT;
 *
 *     mc_counter_add(&requests, 1);
 *     printf("%" PRId64 "\n", mc_counter_sum(&requests));
 *
 * A counter is one word while one thread uses it. When threads contend, each thread gets a word on a
 * cache line of its own. When they do not contend any more, it becomes one word again.
 */
#ifndef MANYCORE_COUNTER_H
#define MANYCORE_COUNTER_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A counter. It lies in static memory, in an object, or on a stack, and is not moved while it is used.
 * All zeros are a counter at zero. No function fails because of a counter: a null or wild pointer is
 * undefined behaviour.
 */
struct mc_counter {
	uint64_t words_[2];
};

#define MC_COUNTER_INIT { { 0, 0 } }

/*
 * Adds N, which may be negative; wraps around. Wait-free, except when the counter changes its form. Costs
 * some 5 ns: an atomic addition, or a plain addition if the counter has a word for each thread.
 */
void mc_counter_add(struct mc_counter *counter, int64_t n);

/*
 * Returns the count. It includes every addition that happened before, and perhaps some that are
 * happening. If each thread has a word of its own, this costs a cache miss for each of these threads.
 */
int64_t mc_counter_sum(struct mc_counter *counter);

/* Returns the count and sets it to zero. If several threads call it, each addition is in one result. */
int64_t mc_counter_take(struct mc_counter *counter);

/* Returns 1 if each thread has a word of its own now, else 0. */
int mc_counter_is_hot(struct mc_counter *counter);

/* Gives each thread a word of its own from now on. -EBUSY: not now; it also happens by itself. */
int mc_counter_promote(struct mc_counter *counter);

/* Makes the counter one word again, until threads contend for it. */
void mc_counter_demote(struct mc_counter *counter);

/*
 * Frees what the counter has beside its two words, and leaves it at zero. Call it before the counter's
 * memory is used for something else. No other thread may use the counter. Not needed at the end of the
 * process.
 */
void mc_counter_destroy(struct mc_counter *counter);

/*
 * A histogram of 64-bit values with an error of at most 1.6 %, for quantiles of latencies and sizes. Ten
 * values within a factor of four take some 800 bytes; the maximum is 17 KiB. While threads contend, it
 * takes 15 KiB more, and as much for each recording thread.
 */
typedef struct mc_histogram mc_histogram;

/* The counts of a histogram at one time. They do not change by themselves. */
typedef struct mc_snapshot mc_snapshot;

/* Makes a new, empty histogram, in *out. -EINVAL: OUT is null. */
int mc_histogram_new(mc_histogram **out);

/* Frees a histogram. No thread may use it any more. Null is fine. */
void mc_histogram_free(mc_histogram *histogram);

/* Counts VALUE, TIMES times. Costs as much as mc_counter_add, and some instructions. */
void mc_histogram_record(mc_histogram *histogram, uint64_t value, uint64_t times);

/*
 * Copies the counts to a new snapshot, in *out, which mc_snapshot_free frees. Takes some tens of
 * microseconds. -EINVAL: a null pointer.
 */
int mc_histogram_read(mc_histogram *histogram, mc_snapshot **out);

/*
 * Like mc_histogram_read, and empties the histogram: each value is in one result. -EINVAL: a null
 * pointer.
 */
int mc_histogram_take(mc_histogram *histogram, mc_snapshot **out);

/* Frees a snapshot. Null is fine. */
void mc_snapshot_free(mc_snapshot *snapshot);

/* Returns how many values were counted. */
uint64_t mc_snapshot_count(const mc_snapshot *snapshot);

/*
 * Stores in *out the value that a part Q of all values does not exceed. Q is from 0 (the smallest) to 1
 * (the largest). -EINVAL: OUT is null, or Q is not between 0 and 1. -ENOENT: nothing was counted.
 */
int mc_snapshot_quantile(const mc_snapshot *snapshot, double q, uint64_t *out);

/* Returns the sum of all values, within the error. */
double mc_snapshot_sum(const mc_snapshot *snapshot);

/*
 * Returns how many values are at most VALUE, within the error. For buckets with bounds of the program's
 * own.
 */
uint64_t mc_snapshot_count_up_to(const mc_snapshot *snapshot, uint64_t value);

/* Adds the counts of another snapshot. -EINVAL: a null pointer, or the same snapshot twice. */
int mc_snapshot_merge(mc_snapshot *into, const mc_snapshot *from);

#ifdef __cplusplus
}
#endif

#endif
