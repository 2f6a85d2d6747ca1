/* The library's counter and map as C programs call them; each function is one operation. */
#include <stdlib.h>

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

mc_map *manycore_c_map_new(void)
{
	mc_map *map;

	if (mc_map_new(&map, NULL, &numbers) != 0)
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
	const mc_domain *domain = mc_domain_default();
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
