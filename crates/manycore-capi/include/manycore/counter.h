/*
 * Counters and histograms of many threads: many change them, few read them.
 *
 *     static struct mc_counter requests = MC_COUNTER_INIT;
 *
 *     mc_counter_add(&requests, 1);
 *     printf("%" PRId64 "\n", mc_counter_sum(&requests));
 *
 * A counter is one word while one thread uses it. Where threads contend for it, each gets a word on a
 * cache line of its own, and it becomes one word again when they no longer do.
 */
#ifndef MANYCORE_COUNTER_H
#define MANYCORE_COUNTER_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * In static memory, in an object, or on a stack; not moved while it is used. All zero is a counter at
 * zero. No function fails because of a counter: a pointer that is null or wild is undefined.
 */
struct mc_counter {
	uint64_t words_[2];
};

#define MC_COUNTER_INIT { { 0, 0 } }

/*
 * Adds N, which may be negative; wraps around. Wait-free, except when the counter changes its form. Some
 * 5 ns: one atomic addition, or without one when the counter has a word for each thread.
 */
void mc_counter_add(struct mc_counter *counter, int64_t n);

/*
 * The count: every addition that happened before, and any of those that are happening. A cache miss for
 * each thread that has counted, if each has a word of its own.
 */
int64_t mc_counter_sum(struct mc_counter *counter);

/* The count, which becomes zero: each addition is in one result, although several threads call it. */
int64_t mc_counter_take(struct mc_counter *counter);

/* Whether each thread has a word of its own now: 1 or 0. */
int mc_counter_is_hot(struct mc_counter *counter);

/* Gives each thread a word of its own from now on. -EBUSY: not now; it happens by itself as well. */
int mc_counter_promote(struct mc_counter *counter);

/* Goes back to one word, until threads contend for it again. */
void mc_counter_demote(struct mc_counter *counter);

/*
 * Frees what the counter has beside its two words, and leaves it at zero: before its memory is used for
 * something else. No other thread uses it. Not needed at the end of the process.
 */
void mc_counter_destroy(struct mc_counter *counter);

/*
 * How often values occur, of the whole range of 64 bits, with an error of at most 1.6 %: for quantiles
 * of latencies and sizes. Some 800 bytes with ten values within a factor of four, at most 17 KiB; while
 * threads contend for it 15 KiB more, and as much for each thread that records.
 */
typedef struct mc_histogram mc_histogram;

/* What a histogram had counted at some time. Does not change by itself. */
typedef struct mc_snapshot mc_snapshot;

/* A new, empty histogram, in *out. -EINVAL: OUT is null. */
int mc_histogram_new(mc_histogram **out);

/* Frees a histogram, which no thread uses any more. Null is fine. */
void mc_histogram_free(mc_histogram *histogram);

/* Counts VALUE, TIMES times. Costs what mc_counter_add costs, and some instructions. */
void mc_histogram_record(mc_histogram *histogram, uint64_t value, uint64_t times);

/*
 * What was recorded, in *out, for mc_snapshot_free. Some tens of microseconds. -EINVAL: a null pointer.
 */
int mc_histogram_read(mc_histogram *histogram, mc_snapshot **out);

/* The same, and the histogram forgets it: each value is in one result. -EINVAL: a null pointer. */
int mc_histogram_take(mc_histogram *histogram, mc_snapshot **out);

/* Frees a snapshot. Null is fine. */
void mc_snapshot_free(mc_snapshot *snapshot);

/* How many values were counted. */
uint64_t mc_snapshot_count(const mc_snapshot *snapshot);

/*
 * The value that a part Q of all values does not exceed, from 0 (the least) to 1 (the greatest), in *out.
 * -EINVAL: OUT is null, or Q is not between 0 and 1. -ENOENT: nothing was counted.
 */
int mc_snapshot_quantile(const mc_snapshot *snapshot, double q, uint64_t *out);

/* The sum of all values, within the error. */
double mc_snapshot_sum(const mc_snapshot *snapshot);

/* How many values are at most VALUE, within the error: for buckets with bounds of one's own. */
uint64_t mc_snapshot_count_up_to(const mc_snapshot *snapshot, uint64_t value);

/* Adds what another snapshot has counted. -EINVAL: a null pointer, or the same snapshot twice. */
int mc_snapshot_merge(mc_snapshot *into, const mc_snapshot *from);

#ifdef __cplusplus
}
#endif

#endif
