/* The library's counter, map and cache as C programs call them; each function is one operation. */
#include <stdlib.h>

#include <manycore/cache.h>
#include <manycore/counter.h>
#include <manycore/map.h>

void manycore_c_counter_add(struct mc_counter *counter, int64_t n)
{
	mc_counter_add(counter, n);
}

int64_t manycore_c_counter_sum(struct mc_counter *counter)
{
	return mc_counter_sum(counter);
}

/* Keys and values are numbers, as they are for the map of Rust. */
static const struct mc_map_operations numbers = { sizeof(numbers), NULL, NULL, NULL, NULL };

/* As a program has it that uses the domain often. */
static const mc_domain *domain;

mc_map *manycore_c_map_new(void)
{
	mc_map *map;

	domain = mc_domain_default();
	if (mc_map_new(&map, domain, &numbers) != 0)
		abort();
	return map;
}

void manycore_c_map_free(mc_map *map)
{
	mc_map_free(map);
}

/* The value and one, or 0 if there is none. */
uint64_t manycore_c_map_get(const mc_map *map, uint64_t key)
{
	uint64_t value;

	mc_enter(domain);
	value = (uintptr_t)mc_map_get(map, (const void *)(uintptr_t)key);
	mc_leave(domain);
	return value;
}

void manycore_c_map_put(mc_map *map, uint64_t key, uint64_t value)
{
	mc_map_put(map, (void *)(uintptr_t)key, (void *)(uintptr_t)(value + 1));
}

void manycore_c_map_remove(mc_map *map, uint64_t key)
{
	mc_map_remove(map, (const void *)(uintptr_t)key);
}

mc_cache *manycore_c_cache_new(uint64_t bytes)
{
	struct mc_cache_options options = MC_CACHE_OPTIONS_INIT;
	mc_cache *cache;

	options.bytes = bytes;
	if (mc_cache_new(&cache, &options) != 0)
		abort();
	return cache;
}

void manycore_c_cache_free(mc_cache *cache)
{
	mc_cache_free(cache);
}

/* Copies the value; its length, or something below 0. */
ptrdiff_t manycore_c_cache_get(mc_cache *cache, const void *key, size_t key_length, void *buffer,
    size_t room)
{
	return mc_cache_get(cache, key, key_length, buffer, room);
}

void manycore_c_cache_put(mc_cache *cache, const void *key, size_t key_length, const void *value,
    size_t length)
{
	mc_cache_put(cache, key, key_length, value, length, 0);
}
