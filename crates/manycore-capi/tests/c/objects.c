/* Checks what the functions for objects refuse, what their call-backs may do, and that nothing is lost. */
#include "check.h"

#include <manycore/cache.h>
#include <manycore/counter.h>
#include <manycore/deferred.h>
#include <manycore/ids.h>
#include <manycore/map.h>
#include <manycore/queue.h>
#include <manycore/trace.h>

#include <pthread.h>
#include <string.h>

static void counters(void)
{
	struct mc_counter counter = MC_COUNTER_INIT;
	mc_histogram *histogram;
	mc_snapshot *snapshot;
	uint64_t value;

	mc_counter_add(&counter, INT64_MAX);
	mc_counter_add(&counter, 1);
	CHECK(mc_counter_sum(&counter) == INT64_MIN);
	CHECK(mc_counter_promote(&counter) == 0 && mc_counter_is_hot(&counter) == 1);
	mc_counter_destroy(&counter);
	CHECK(mc_counter_sum(&counter) == 0 && mc_counter_is_hot(&counter) == 0);

	CHECK(mc_histogram_new(NULL) == -EINVAL && mc_histogram_new(&histogram) == 0);
	CHECK(mc_histogram_read(NULL, &snapshot) == -EINVAL);
	CHECK(mc_histogram_read(histogram, NULL) == -EINVAL);
	CHECK(mc_histogram_read(histogram, &snapshot) == 0 && mc_snapshot_count(snapshot) == 0);
	CHECK(mc_snapshot_quantile(snapshot, 0.5, &value) == -ENOENT);
	CHECK(mc_snapshot_quantile(snapshot, 1.5, &value) == -EINVAL);
	CHECK(mc_snapshot_quantile(snapshot, 0.0 / (double)mc_snapshot_count(snapshot), &value) == -EINVAL);
	CHECK(mc_snapshot_quantile(snapshot, 0.5, NULL) == -EINVAL);
	CHECK(mc_snapshot_merge(snapshot, snapshot) == -EINVAL);
	mc_snapshot_free(snapshot);
	mc_histogram_free(histogram);
	mc_histogram_free(NULL);
	mc_snapshot_free(NULL);
}

static mc_ids *ids;
static const mc_domain *domain;
static long freed;

/* Frees a node, and uses the space and the domain. */
static void free_node(void *node)
{
	CHECK(mc_running() && mc_barrier(domain) == -EDEADLK && mc_domain_free(domain) == -EDEADLK);
	CHECK(mc_ids_get(ids, 1) == NULL && mc_ids_remove(ids, UINT64_MAX) == -ENOENT);
	freed++;
	free(node);
}

static int stop_at(uint64_t id, void *node, void *argument)
{
	(void)id;
	return node == argument ? 17 : 0;
}

static void id_spaces(void)
{
	uint64_t id;
	void *node;
	int i;

	CHECK(mc_ids_new(NULL, domain, free_node) == -EINVAL);
	CHECK(mc_ids_new(&ids, domain, free_node) == 0);
	CHECK(mc_ids_insert(ids, NULL) == 0);
	CHECK(mc_ids_for_each(ids, NULL, NULL) == -EINVAL);
	for (i = 0; i < 1000; i++) {
		node = malloc(8);
		id = mc_ids_insert(ids, node);
		CHECK(id != 0 && mc_ids_length(ids) == 1);
		CHECK(mc_ids_for_each(ids, stop_at, node) == 17);
		mc_enter(domain);
		CHECK(mc_ids_get(ids, id) == node && mc_ids_remove(ids, id) == 0);
		*(long *)node = 1; /* the section keeps it */
		mc_leave(domain);
		CHECK(mc_ids_get(ids, id) == NULL && mc_ids_remove(ids, id) == -ENOENT);
		/* Any id may be passed. */
		CHECK(mc_ids_get(ids, id ^ UINT64_C(1) << (i % 64)) == NULL);
		CHECK(mc_ids_remove(ids, id ^ UINT64_C(1) << (i % 64)) == -ENOENT);
	}
	/* Removed nodes are waited for; the others are freed with the space. */
	CHECK(mc_barrier(domain) == 0 && freed == 1000);
	CHECK(mc_ids_insert(ids, malloc(8)) != 0);
	id = mc_ids_insert(ids, malloc(8));
	CHECK(mc_ids_remove(ids, id) == 0);
	CHECK(mc_domain_free(domain) == -EBUSY);
	CHECK(mc_barrier(domain) == 0);
}

struct pair {
	long key, value;
};

static mc_map *map;
static int depth;

static uint64_t hash(const void *key, void *argument)
{
	CHECK(argument == &map);
	return (uint64_t)((const struct pair *)key)->key % 64; /* a bad hash */
}

static int equal(const void *one, const void *other, void *argument)
{
	static __thread int looks_up;
	struct pair absent = { -1, 0 };

	CHECK(argument == &map);
	/* Reads within a comparison, also from the same map. */
	if (depth && !looks_up) {
		looks_up = 1;
		CHECK(mc_map_get(map, &absent) == NULL);
		looks_up = 0;
	}
	return ((const struct pair *)one)->key == ((const struct pair *)other)->key;
}

static void free_pair(void *key, void *value, void *argument)
{
	CHECK(argument == &map && &((struct pair *)key)->value == value);
	CHECK(mc_running() && mc_synchronize(domain) == -EDEADLK);
	__atomic_add_fetch(&freed, 1, __ATOMIC_SEQ_CST);
	free(key);
}

static const struct mc_map_operations operations = {
	sizeof(operations), hash, equal, free_pair, &map
};

static struct pair *pair_new(long key)
{
	struct pair *made = (struct pair *)malloc(sizeof(*made));

	CHECK(made != NULL);
	made->key = key;
	made->value = 3 * key;
	return made;
}

static int stop_at_seven(const void *key, void *value, void *argument)
{
	++*(long *)argument;
	CHECK(*(long *)value == 3 * ((const struct pair *)key)->key);
	return ((const struct pair *)key)->key == 7 ? -7 : 0;
}

static void refusals_of_maps(void)
{
	struct mc_map_operations other = operations;
	struct { struct mc_map_operations known; uint64_t unknown; } later = { operations, 1 };
	struct pair seven = { 7, 0 };
	mc_map *none = NULL;

	CHECK(mc_map_new(NULL, domain, &operations) == -EINVAL);
	CHECK(mc_map_new(&none, domain, NULL) == -EINVAL);
	other.size = sizeof(size_t);
	CHECK(mc_map_new(&none, domain, &other) == -EINVAL);
	later.known.size = sizeof(later);
	CHECK(mc_map_new(&none, domain, &later.known) == -EINVAL);
	other.size = sizeof(other);
	other.hash = NULL;
	CHECK(mc_map_new(&none, domain, &other) == -EINVAL && none == NULL);
	CHECK(mc_map_put(map, &seven, NULL) == -EINVAL && mc_map_add(map, &seven, NULL) == -EINVAL);
	CHECK(mc_map_remove(map, &seven) == -ENOENT && mc_map_get(map, &seven) == NULL);
	CHECK(mc_map_remove_value(map, &seven, NULL) == -EINVAL);
	CHECK(mc_map_for_each(map, NULL, NULL) == -EINVAL);
}

static long made;

/* Puts, adds and removes the same keys as the other threads. */
static void *churn(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	int i;

	for (i = 0; i < 50000; i++) {
		struct pair probe, *own;
		const long *value;

		seed = seed * 1103515245 + 12345;
		probe.key = seed >> 16 & 255;
		switch (seed >> 8 & 3) {
		case 0:
			own = pair_new(probe.key);
			__atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST);
			CHECK(mc_map_put(map, own, &own->value) >= 0);
			break;
		case 1:
			own = pair_new(probe.key);
			if (mc_map_add(map, own, &own->value) == 0)
				__atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST);
			else
				free(own);
			break;
		case 2:
			mc_map_remove(map, &probe);
			break;
		default:
			mc_enter(domain);
			value = (const long *)mc_map_get(map, &probe);
			CHECK(value == NULL || *value == 3 * probe.key);
			if (value != NULL)
				mc_map_remove_value(map, &probe, value);
			CHECK(value == NULL || *value == 3 * probe.key);
			mc_leave(domain);
		}
	}
	return NULL;
}

static void maps(void)
{
	struct pair probe = { 0, 0 }, *pair;
	pthread_t threads[3];
	long visited = 0, key;
	int i;

	freed = 0;
	CHECK(mc_map_new(&map, domain, &operations) == 0);
	refusals_of_maps();
	for (key = 0; key < 500; key++) {
		pair = pair_new(key);
		CHECK(mc_map_put(map, pair, &pair->value) == 0);
		pair = pair_new(key);
		CHECK(mc_map_put(map, pair, &pair->value) == 1);
		CHECK(mc_map_add(map, pair, &pair->value) == -EEXIST);
	}
	CHECK(mc_map_length(map) == 500 && mc_barrier(domain) == 0 && freed == 500);
	CHECK(mc_map_for_each(map, stop_at_seven, &visited) == -7 && visited <= 500);
	depth = 1;
	for (probe.key = 0; probe.key < 500; probe.key++) {
		mc_enter(domain);
		CHECK(*(long *)mc_map_get(map, &probe) == 3 * probe.key);
		CHECK(mc_map_remove_value(map, &probe, &probe) == -ENOENT);
		CHECK(mc_map_remove(map, &probe) == 0 && mc_map_get(map, &probe) == NULL);
		mc_leave(domain);
	}
	depth = 0;
	CHECK(mc_barrier(domain) == 0 && freed == 1000 && mc_map_length(map) == 0);

	made = 1000;
	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(i + 1)) == 0);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	/* A barrier waited for the removed entries; freeing the map waited for those in it. */
	CHECK(mc_barrier(domain) == 0 && freed + (long)mc_map_length(map) == made);
	mc_map_free(map);
	CHECK(mc_barrier(domain) == 0 && freed == made);
	mc_map_free(NULL);
}

/* Keys that are numbers, which are not followed as pointers. */
static void numbers(void)
{
	struct mc_map_operations plain = { sizeof(plain), NULL, NULL, NULL, NULL };
	uintptr_t key;

	CHECK(mc_map_new(&map, domain, &plain) == 0);
	for (key = 0; key < 10000; key++)
		CHECK(mc_map_add(map, (void *)key, (void *)(key + 1)) == 0);
	for (key = 0; key < 10000; key += 2)
		CHECK(mc_map_remove(map, (void *)key) == 0);
	for (key = 0; key < 10000; key++)
		CHECK(mc_map_get(map, (void *)key) == (key % 2 ? (void *)(key + 1) : NULL));
	CHECK(mc_barrier(domain) == 0); /* the operations are on the stack */
	mc_map_free(map);
	CHECK(mc_barrier(domain) == 0);
}

static mc_queue *queue;

static void *late(void *argument)
{
	(void)argument;
	CHECK(mc_queue_send(queue, &queue, MC_FOREVER) == 0); /* waits for room */
	return NULL;
}

static void queues(void)
{
	struct mc_queue_options options = MC_QUEUE_OPTIONS_INIT;
	void *event = NULL, *events[4];
	pthread_t thread;
	size_t count;
	int i;

	options.size = 1;
	CHECK(mc_queue_new(&queue, &options) == -EINVAL && mc_queue_new(NULL, NULL) == -EINVAL);
	options.size = sizeof(options);
	options.max_events = SIZE_MAX / 2;
	CHECK(mc_queue_new(&queue, &options) == -EINVAL);
	options.max_events = SIZE_MAX;
	CHECK(mc_queue_new(&queue, &options) == 0);
	mc_queue_free(queue);
	options.max_events = 2;
	CHECK(mc_queue_new(&queue, &options) == 0);
	CHECK(mc_queue_receive(queue, NULL, 0) == -EINVAL);
	CHECK(mc_queue_receive(queue, &event, 0) == -EAGAIN);
	CHECK(mc_queue_receive(queue, &event, 1000) == -ETIMEDOUT);
	for (i = 0; mc_queue_send(queue, events + i % 4, 0) == 0; i++)
		continue;
	CHECK(i >= 2 && mc_queue_send(queue, NULL, 1000) == -ETIMEDOUT);
	CHECK(pthread_create(&thread, NULL, late, NULL) == 0);
	for (count = 0; count < (size_t)i + 1;)
		count += mc_queue_receive_many(queue, events, 4);
	pthread_join(thread, NULL);
	CHECK(mc_queue_receive_many(queue, NULL, 4) == 0 && mc_queue_length(queue) == 0);
	CHECK(mc_queue_send(queue, NULL, MC_FOREVER) == 0 && mc_queue_close(queue) == 1);
	CHECK(mc_queue_close(queue) == 0 && mc_queue_send(queue, NULL, MC_FOREVER) == -EPIPE);
	event = &event;
	CHECK(mc_queue_receive(queue, &event, MC_FOREVER) == 0 && event == NULL);
	CHECK(mc_queue_receive(queue, &event, MC_FOREVER) == -EPIPE);
	mc_queue_free(queue);
	mc_queue_free(NULL);
}

static int loads;

static int load(mc_loading *loading, const void *key, size_t length, void *argument)
{
	mc_cache *cache = (mc_cache *)argument;

	__atomic_add_fetch(&loads, 1, __ATOMIC_SEQ_CST);
	if (length == 1)
		return *(const char *)key == 'e' ? -EIO : 0;
	mc_cache_put(cache, "by load", 7, key, length, 0); /* a call-back that uses the cache */
	mc_loaded(loading, key, length);
	mc_loaded(loading, key, length - 1); /* the last call counts */
	return 0;
}

static void visit(const void *value, size_t length, void *argument)
{
	CHECK(length == 2 && memcmp(value, "ab", 2) == 0);
	CHECK(mc_cache_get((mc_cache *)argument, "by load", 7, NULL, 0) == 3);
}

static void *load_abc(void *argument)
{
	CHECK(mc_cache_get_or_load((mc_cache *)argument, "abc", 3, load, visit, argument) == 0);
	return NULL;
}

static void caches(void)
{
	struct mc_cache_options options = MC_CACHE_OPTIONS_INIT;
	struct mc_cache_stats stats = MC_CACHE_STATS_INIT;
	pthread_t threads[3];
	mc_cache *cache;
	char room[4] = "---";
	int i;

	CHECK(mc_cache_new(&cache, NULL) == -EINVAL && mc_cache_new(&cache, &options) == -EINVAL);
	options.bytes = 1 << 20;
	options.flags = UINT64_C(1) << 9;
	CHECK(mc_cache_new(&cache, &options) == -EINVAL);
	options.flags = 0;
	CHECK(mc_cache_new(NULL, &options) == -EINVAL && mc_cache_new(&cache, &options) == 0);
	CHECK(mc_cache_put(cache, "k", 1, "v", 1, 1000) == -EINVAL);
	CHECK(mc_cache_put(cache, NULL, 0, NULL, 0, 0) == 0);
	CHECK(mc_cache_get(cache, NULL, 0, NULL, 0) == 0);
	CHECK(mc_cache_put(cache, "k", 1, "value", 5, 0) == 0);
	CHECK(mc_cache_get(cache, "k", 1, room, 3) == 5 && strcmp(room, "---") == 0);
	CHECK(mc_cache_get(cache, "K", 1, room, 3) == -ENOENT);
	CHECK(mc_cache_visit(cache, "k", 1, NULL, NULL) == -EINVAL);
	CHECK(mc_cache_visit(cache, "K", 1, visit, NULL) == -ENOENT);
	CHECK(mc_cache_get_or_load(cache, "e", 1, load, visit, cache) == -EIO);
	CHECK(mc_cache_get_or_load(cache, "n", 1, load, visit, cache) == -ENOENT && loads == 2);
	CHECK(mc_cache_get_or_load(cache, "n", 1, NULL, visit, cache) == -EINVAL);
	for (i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, load_abc, cache) == 0);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CHECK(loads == 3);
	CHECK(mc_cache_set_capacity(cache, 0) == -EINVAL);
	CHECK(mc_cache_set_capacity(cache, UINT64_MAX) == -EINVAL);
	CHECK(mc_cache_stats(cache, NULL) == -EINVAL && mc_cache_stats(cache, &stats) == 0);
	CHECK(stats.size == sizeof(stats) && stats.entries == 4 && stats.hits == 0);
	mc_cache_clear(cache);
	stats.size = 2 * sizeof(size_t);
	CHECK(mc_cache_stats(cache, &stats) == 0 && stats.entries == 0 && stats.bytes != 0);
	mc_cache_free(cache);
	mc_cache_free(NULL);
}

static mc_deferred *object, *other;

static void count_up(void *state, void *argument)
{
	CHECK(mc_running());
	if (argument != NULL)
		CHECK(mc_deferred_append(other, count_up, NULL) == 0);
	++*(long *)state;
}

static void *count_often(void *argument)
{
	int i;

	for (i = 0; i < 20000; i++)
		CHECK(mc_deferred_append(object, count_up, argument) == 0);
	return NULL;
}

static void get(void *state, void *argument)
{
	*(long *)argument = *(const long *)state;
}

static void deferreds(void)
{
	struct mc_deferred_options options = MC_DEFERRED_OPTIONS_INIT;
	pthread_t threads[3];
	long state, also, seen;
	int i;

	options.flags = 2;
	CHECK(mc_deferred_new(&object, &state, &options) == -EINVAL);
	for (options.flags = 0; options.flags < 2; options.flags++) {
		state = also = 0;
		CHECK(mc_deferred_new(NULL, &state, &options) == -EINVAL);
		CHECK(mc_deferred_new(&object, &state, &options) == 0);
		CHECK(mc_deferred_new(&other, &also, NULL) == 0);
		CHECK(mc_deferred_append(object, NULL, NULL) == -EINVAL);
		for (i = 0; i < 3; i++)
			CHECK(pthread_create(&threads[i], NULL, count_often, i ? &i : NULL) == 0);
		CHECK(mc_deferred_read(object, get, &seen) == 0 && seen <= 60000);
		for (i = 0; i < 3; i++)
			pthread_join(threads[i], NULL);
		CHECK(mc_deferred_read(object, NULL, NULL) == 0 && state == 60000);
		CHECK(mc_deferred_append(object, count_up, NULL) == 0);
		CHECK(mc_deferred_free(object) == &state && state == 60001);
		CHECK(mc_deferred_free(other) == &also && also == 40000);
	}
	CHECK(mc_deferred_free(NULL) == NULL);
}

static struct mc_event full = MC_EVENT(3, "test", MC_EVENT_INSTANT, "Full", 8,
    { "a", MC_FIELD_U64 }, { "b", MC_FIELD_TEXT }, { "c", MC_FIELD_I64 }, { "d", MC_FIELD_TEXT },
    { "e", MC_FIELD_F64 }, { "f", MC_FIELD_U64 }, { "g", MC_FIELD_U64 }, { "h", MC_FIELD_TEXT });
static struct mc_event wrong_class = MC_EVENT(64, "test", MC_EVENT_INSTANT, "C", 0, { NULL, 0 });
static struct mc_event wrong_kind = MC_EVENT(1, "test", 6, "K", 0, { NULL, 0 });
static struct mc_event wrong_field = MC_EVENT(1, "test", 0, "F", 1, { "f", 9 });
static struct mc_event wrong_count = MC_EVENT(1, "test", 0, "N", 9, { NULL, 0 });

static void traces(const char *path)
{
	struct mc_recording_options options = MC_RECORDING_OPTIONS_INIT;
	mc_recording *recording, *second = NULL;
	union mc_value values[MC_EVENT_FIELDS];
	char text[600];
	int i;

	CHECK(mc_event_is_on(&full) == 0 && mc_event_record(&full, NULL) == 0);
	options.policy = 3;
	CHECK(mc_recording_start(&recording, &options) == -EINVAL);
	options.policy = MC_TRACE_BLOCK;
	CHECK(mc_recording_start(&recording, &options) == -EINVAL); /* without a stream */
	options.policy = 0;
	options.path = "/no such folder/file";
	CHECK(mc_recording_start(&recording, &options) == -ENOENT);
	options.path = path;
	options.flags = path == NULL ? 0 : MC_TRACE_STREAM;
	CHECK(mc_recording_start(&recording, &options) == 0);
	CHECK(mc_recording_start(&second, NULL) == -EEXIST && second == NULL);
	CHECK(mc_event_record(&wrong_class, NULL) == -EINVAL && !mc_event_is_on(&wrong_class));
	CHECK(mc_event_record(&wrong_kind, NULL) == -EINVAL);
	CHECK(mc_event_record(&wrong_field, values) == -EINVAL);
	CHECK(mc_event_record(&wrong_count, NULL) == -EINVAL);
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = 0;
	for (i = 0; i < 1000; i++) {
		values[0] = mc_u64(UINT64_MAX);
		values[1] = mc_text("");
		values[2] = mc_i64(-i);
		values[3] = mc_text("text");
		values[4] = mc_f64(0.5);
		values[5] = values[6] = mc_u64((uint64_t)i);
		values[7] = mc_text(text);
		CHECK(mc_event_is_on(&full) == 1 && mc_event_record(&full, values) == 0);
	}
	CHECK(mc_recording_save(NULL, "") == -EINVAL && mc_recording_save(recording, NULL) == -EINVAL);
	CHECK(mc_recording_stop(recording) == 0 && mc_recording_stop(NULL) == -EINVAL);
}

int main(int count, char **arguments)
{
	const mc_domain *first;

	/* Batches are not full, so objects that nobody waits for are not freed. */
	CHECK(mc_domain_new(&domain, NULL) == 0);
	first = domain;
	counters();
	id_spaces();
	maps();
	numbers();
	CHECK(mc_domain_free(domain) == -EBUSY); /* it is the ids' domain */
	freed = 0;
	domain = mc_domain_default(); /* for the call-back: the other domain is freed */
	mc_ids_free(ids);
	CHECK(freed == 1);
	mc_ids_free(NULL);
	CHECK(mc_domain_free(first) == 0);
	queues();
	caches();
	deferreds();
	traces(count > 1 ? arguments[1] : NULL);
	return 0;
}
