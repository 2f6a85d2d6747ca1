/* What look-ups cost from C: the loops of lookups.rs. Prints a line for each: what, and the least
 * nanoseconds of 100 runs. */
#include <manycore/cache.h>
#include <manycore/map.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOOKUPS = 65536, RUNS = 100 };

static uint32_t keys[LOOKUPS];

static void choose_keys(size_t count)
{
	uint64_t word = 88172645463325252u;

	for (int i = 0; i < LOOKUPS; i++) {
		word ^= word << 13;
		word ^= word >> 7;
		word ^= word << 17;
		keys[i] = (uint32_t)((word >> 20) % count);
	}
}

static double now(void)
{
	struct timespec time;

	timespec_get(&time, TIME_UTC);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static uint64_t run_map(const mc_map *map, const mc_domain *domain)
{
	uint64_t sum = 0;

	for (int i = 0; i < LOOKUPS; i++) {
		mc_enter(domain);
		sum += (uintptr_t)mc_map_get(map, (const void *)(uintptr_t)keys[i]);
		mc_leave(domain);
	}
	return sum;
}

static void key_of(uint64_t number, char *key)
{
	uint64_t words[2] = { number * 0x9e3779b97f4a7c15u, number };

	memcpy(key, words, sizeof(words));
}

static uint64_t run_cache(mc_cache *cache)
{
	uint64_t sum = 0, value[4];
	char key[16];

	for (int i = 0; i < LOOKUPS; i++) {
		key_of(keys[i], key);
		if (mc_cache_get(cache, key, sizeof(key), value, sizeof(value)) >= 0)
			sum += value[0];
	}
	return sum;
}

static void time_map(size_t count)
{
	const struct mc_map_operations numbers = { sizeof(numbers), NULL, NULL, NULL, NULL };
	const mc_domain *domain = mc_domain_default();
	double least = 1e18;
	uint64_t sum = 0;
	mc_map *map;

	choose_keys(count);
	if (mc_map_new(&map, domain, &numbers) != 0)
		abort();
	for (uintptr_t i = 0; i < count; i++)
		mc_map_put(map, (void *)i, (void *)(i + 1));
	for (int run = 0; run < RUNS; run++) {
		double start = now(), took;

		sum += run_map(map, domain);
		took = (now() - start) / LOOKUPS;
		least = took < least ? took : least;
	}
	printf("map %zu %.2f %llu\n", count, least, (unsigned long long)sum);
	mc_map_free(map);
}

static void time_cache(size_t count)
{
	struct mc_cache_options options = MC_CACHE_OPTIONS_INIT;
	double least = 1e18;
	uint64_t sum = 0, value[4] = { 0 };
	char key[16];
	mc_cache *cache;

	choose_keys(count);
	options.bytes = count * 1000 + (1 << 20);
	if (mc_cache_new(&cache, &options) != 0)
		abort();
	for (uint64_t i = 0; i < count; i++) {
		key_of(i, key);
		value[0] = i + 1;
		mc_cache_put(cache, key, sizeof(key), value, sizeof(value), 0);
	}
	for (int run = 0; run < RUNS; run++) {
		double start = now(), took;

		sum += run_cache(cache);
		took = (now() - start) / LOOKUPS;
		least = took < least ? took : least;
	}
	printf("cache %zu %.2f %llu\n", count, least, (unsigned long long)sum);
	mc_cache_free(cache);
}

int main(void)
{
	time_map(1000);
	time_map(64000);
	time_cache(1000);
	time_cache(8000);
	return 0;
}
