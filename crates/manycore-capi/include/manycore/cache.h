/*
 * A cache of bytes by bytes, bounded in memory, with eviction and times to live. Look-ups take no lock.
 *
 *     struct mc_cache_options options = MC_CACHE_OPTIONS_INIT;
 *
 *     options.bytes = 64 << 20;
 *     mc_cache_new(&cache, &options);
 *     mc_cache_put(cache, url, strlen(url), page, page_length, 0);
 *     length = mc_cache_get(cache, url, strlen(url), buffer, sizeof(buffer));
 *
 * The cache evicts entries that were not used lately (S3-FIFO with CLOCK). It copies keys and values.
 */
#ifndef MANYCORE_CACHE_H
#define MANYCORE_CACHE_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_cache mc_cache;

#define MC_CACHE_COUNT_READS UINT64_C(1) /* hits and misses are counted: some ns for each read */
#define MC_CACHE_TIMES UINT64_C(2) /* mc_cache_put may give a time to live */

/* Zero is the default of each field, except for SIZE and BYTES. */
struct mc_cache_options {
	size_t size; /* of this struct: MC_CACHE_OPTIONS_INIT */
	uint64_t flags;
	uint64_t bytes; /* limit of what keys, values and their bookkeeping take; not 0 */
	uint64_t live_ms; /* from an entry's insertion to its end; 0 for no end */
	uint64_t idle_ms; /* from an entry's last use to its end; 0 for no end */
};

#define MC_CACHE_OPTIONS_INIT { sizeof(struct mc_cache_options), 0, 0, 0, 0 }

struct mc_cache_stats {
	size_t size; /* of this struct: MC_CACHE_STATS_INIT */
	uint64_t entries; /* including expired entries that were not found yet */
	uint64_t bytes; /* that the entries take */
	uint64_t capacity; /* that the entries may take */
	uint64_t hits; /* with MC_CACHE_COUNT_READS */
	uint64_t misses; /* with MC_CACHE_COUNT_READS */
	uint64_t insertions;
	uint64_t evictions;
	uint64_t expirations;
};

#define MC_CACHE_STATS_INIT { sizeof(struct mc_cache_stats), 0, 0, 0, 0, 0, 0, 0, 0 }

/* Makes a new cache, in *out. -EINVAL: OUT is null, an option is invalid, or BYTES is 0 or above 2^62. */
int mc_cache_new(mc_cache **out, const struct mc_cache_options *options);

/* Frees a cache. No thread may use it any more. Null is fine. */
void mc_cache_free(mc_cache *cache);

/*
 * Puts a copy of the value in and replaces an old value. The entry lives for LIVE_MS, or for the cache's
 * own time if LIVE_MS is 0 or longer. An entry larger than the whole cache is not kept. -EINVAL: LIVE_MS
 * is given, but the cache was made without MC_CACHE_TIMES or times of its own.
 */
int mc_cache_put(mc_cache *cache, const void *key, size_t key_length, const void *value,
    size_t length, uint64_t live_ms);

/*
 * Copies the value of a key to BUFFER if there is ROOM for all of it. Returns the value's length, which
 * may be more than ROOM. -ENOENT: the key is not there.
 */
ptrdiff_t mc_cache_get(mc_cache *cache, const void *key, size_t key_length, void *buffer, size_t room);

/*
 * Called in a section with a value that is valid during the call. The call-back may use the cache. It
 * must not wait or compute for long, and must not longjmp out.
 */
typedef void (*mc_visit_bytes)(const void *value, size_t length, void *argument);

/*
 * Calls VISIT with the value of a key, without a copy. -ENOENT: it is not there. -EINVAL: VISIT is null.
 */
int mc_cache_visit(mc_cache *cache, const void *key, size_t key_length, mc_visit_bytes visit,
    void *argument);

/* The place where a load puts its value. */
typedef struct mc_loading mc_loading;

/*
 * Makes the value of a missing key. The call-back calls mc_loaded with the value and returns 0, or
 * returns a negative errno, which is not kept. It may take long and may use the cache, but must not load
 * the same key. It must not longjmp out.
 */
typedef int (*mc_load_bytes)(mc_loading *loading, const void *key, size_t key_length, void *argument);

/* Gives a load's value. The cache copies it. */
void mc_loaded(mc_loading *loading, const void *value, size_t length);

/*
 * Like mc_cache_visit, but loads the value first if the key is not there. If several threads want the
 * same key, one loads. The others wait for it, and fail with its error. A load that loads its own key
 * ends the process. -ENOENT: LOAD returned 0 without a value. -EINVAL: a null pointer. Otherwise returns
 * what LOAD returned.
 */
int mc_cache_get_or_load(mc_cache *cache, const void *key, size_t key_length, mc_load_bytes load,
    mc_visit_bytes visit, void *argument);

/* Removes a key. -ENOENT: it is not there. */
int mc_cache_remove(mc_cache *cache, const void *key, size_t key_length);

/* Removes every entry. */
void mc_cache_clear(mc_cache *cache);

/* Sets the capacity, and evicts what exceeds it. -EINVAL: BYTES is 0 or too large. */
int mc_cache_set_capacity(mc_cache *cache, uint64_t bytes);

/* Stores the cache's statistics in *out. The caller sets OUT->size before. -EINVAL: OUT is null. */
int mc_cache_stats(mc_cache *cache, struct mc_cache_stats *out);

#ifdef __cplusplus
}
#endif

#endif
