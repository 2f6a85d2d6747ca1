/* Pages by address, in bounded memory: mc_cache. */
#include <manycore/cache.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Slow work, done once for all threads that want the same page. */
static int load(mc_loading *loading, const void *key, size_t key_length, void *argument)
{
	char page[64];
	int length;

	(void)argument;
	if (key_length == 0)
		return -EINVAL;
	length = snprintf(page, sizeof(page), "the page of %.*s", (int)key_length, (const char *)key);
	mc_loaded(loading, page, (size_t)length);
	return 0;
}

static void print(const void *value, size_t length, void *argument)
{
	(void)argument;
	printf("%.*s\n", (int)length, (const char *)value);
}

int main(void)
{
	struct mc_cache_options options = MC_CACHE_OPTIONS_INIT;
	struct mc_cache_stats stats = MC_CACHE_STATS_INIT;
	char buffer[16];
	mc_cache *cache;
	int i;

	options.bytes = 1 << 20;
	options.flags = MC_CACHE_COUNT_READS | MC_CACHE_TIMES;
	if (mc_cache_new(&cache, &options) != 0)
		return 1;

	mc_cache_put(cache, "/", 1, "index", 5, 60000); /* for a minute */
	if (mc_cache_get(cache, "/", 1, buffer, sizeof(buffer)) != 5 || memcmp(buffer, "index", 5) != 0)
		return 1;
	if (mc_cache_visit(cache, "/", 1, print, NULL) != 0)
		return 1;
	if (mc_cache_get_or_load(cache, "/about", 6, load, print, NULL) != 0)
		return 1;
	if (mc_cache_get_or_load(cache, "", 0, load, print, NULL) != -EINVAL)
		return 1;
	if (mc_cache_remove(cache, "/", 1) != 0 || mc_cache_remove(cache, "/", 1) != -ENOENT)
		return 1;
	if (mc_cache_get(cache, "/", 1, buffer, sizeof(buffer)) != -ENOENT)
		return 1;

	/* More than fits. */
	for (i = 0; i < 100000; i++)
		mc_cache_put(cache, &i, sizeof(i), buffer, sizeof(buffer), 0);
	mc_cache_set_capacity(cache, 1 << 18);
	if (mc_cache_stats(cache, &stats) != 0)
		return 1;
	printf("%" PRIu64 " entries in %" PRIu64 " bytes, %" PRIu64 " evicted; %" PRIu64 " hits\n",
	    stats.entries, stats.bytes, stats.evictions, stats.hits);
	i = stats.bytes > 1 << 18 || stats.hits != 2 || stats.entries == 0;
	mc_cache_clear(cache);
	mc_cache_free(cache);
	return i;
}
