/*
 * A hash map of pointers, with the program's own hash and equality. Look-ups take no lock and write
 * nothing.
 *
 *     static const struct mc_map_operations operations = {
 *         sizeof(operations), user_hash, user_equal, user_free, NULL
 *     };
 *
 *     mc_map_new(&users, NULL, &operations);
 *     mc_map_put(users, user->name, user);
 *
 *     mc_enter(mc_domain_default());
 *     user = mc_map_get(users, "ann");          // valid until the section is closed
 *     mc_leave(mc_domain_default());
 *
 * For many look-ups and some updates: an update locks one bucket, and allocates. Linearizable for each
 * key.
 */
#ifndef MANYCORE_MAP_H
#define MANYCORE_MAP_H

#include <errno.h>

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque, except that an inline function reads the first field. */
typedef struct mc_map mc_map;

/*
 * The program's functions for keys and entries. The struct must not change until the map was freed and
 * mc_barrier has returned after that: make it static, for example.
 *
 * Any thread calls HASH and EQUAL, in any function here, EQUAL also under the lock of a bucket. They may
 * read this map and others. They must not wait, and must not take a lock that a thread holds around
 * functions of the map. An update of the same map in EQUAL ends the process. If HASH and EQUAL contradict
 * each other, keys are not found, or are there twice; nothing else happens. No function here may longjmp
 * out of its call: the bucket would stay locked forever, and the section open.
 *
 * If both are null, keys are numbers that are passed as pointers, which the map does not follow. A
 * look-up then calls nothing. If FREE_ENTRY is null as well, an entry takes 32 bytes instead of 64.
 *
 * HASH may be simple, because the map mixes its result. But keys that an attacker chooses need a hash
 * with a secret.
 */
struct mc_map_operations {
	size_t size; /* of this struct */
	uint64_t (*hash)(const void *key, void *argument);
	int (*equal)(const void *one, const void *other, void *argument); /* not 0 if equal */
	/*
	 * Called with a removed or replaced entry after its grace period, or when the map is freed. The rules of
	 * mc_callback in manycore.h hold: it must not longjmp out either. It may use the map, unless the map is
	 * being freed. May be null.
	 */
	void (*free_entry)(void *key, void *value, void *argument);
	void *argument; /* passed to these functions */
};

/*
 * Makes a new map, in *out. Its entries are looked up in sections of DOMAIN, or of the default domain if
 * DOMAIN is null. The domain must outlive the map. -EINVAL: a null pointer, only one of HASH and EQUAL,
 * or a struct that is shorter than this one, or longer and not zero there.
 */
int mc_map_new(mc_map **out, const mc_domain *domain, const struct mc_map_operations *operations);

/*
 * Frees a map and its entries. No thread may use it any more. Null is fine. Entries that were removed
 * before may be freed later: mc_barrier waits for them.
 */
void mc_map_free(mc_map *map);

/* Private to the inline functions below. */
struct mc_map_front_ {
	void *(*get)(const mc_map *map, struct mc_thread_record_ *record, const void *key);
};

int mc_map_put_(const mc_map *map, struct mc_thread_record_ *record, void *key, void *value);
int mc_map_add_(const mc_map *map, struct mc_thread_record_ *record, void *key, void *value);
int mc_map_remove_(const mc_map *map, struct mc_thread_record_ *record, const void *key,
    const void *value);
int mc_map_for_each_(const mc_map *map, struct mc_thread_record_ *record,
    int (*visit)(const void *key, void *value, void *argument), void *argument);

/*
 * Returns the value of a key, or null if it is not there. The value is valid until the calling thread
 * closes its section of the map's domain. Lock-free.
 */
static inline void *mc_map_get(const mc_map *map, const void *key)
{
	return ((const struct mc_map_front_ *)(const void *)map)->get(map, MC_RECORD_, key);
}

/*
 * Puts an entry in. An entry with an equal key is replaced, and freed after its grace period. From now on
 * the map owns key and value. Returns 1 if an entry was replaced, else 0. -EINVAL: VALUE is null.
 */
static inline int mc_map_put(mc_map *map, void *key, void *value)
{
	return mc_map_put_(map, MC_RECORD_, key, value);
}

/*
 * Puts an entry in, unless there is one with an equal key. -EEXIST: there is one, and the caller keeps
 * key and value. -EINVAL: VALUE is null.
 */
static inline int mc_map_add(mc_map *map, void *key, void *value)
{
	return mc_map_add_(map, MC_RECORD_, key, value);
}

/* Removes a key. Its entry is freed after its grace period. -ENOENT: it is not there. */
static inline int mc_map_remove(mc_map *map, const void *key)
{
	return mc_map_remove_(map, MC_RECORD_, key, NULL);
}

/*
 * Removes a key if its value is still VALUE, which the calling thread has found before. -ENOENT: the key
 * is not there, or has another value. -EINVAL: VALUE is null.
 */
static inline int mc_map_remove_value(mc_map *map, const void *key, const void *value)
{
	return value == NULL ? -EINVAL : mc_map_remove_(map, MC_RECORD_, key, value);
}

/* Returns how many entries there are. */
size_t mc_map_length(const mc_map *map);

/*
 * Calls VISIT with each entry, in a section, until VISIT returns a value other than 0. Returns its last
 * value. This is no snapshot, but an entry that is there all the time is visited once. VISIT may use the
 * map, and must not longjmp out. -EINVAL: VISIT is null.
 */
static inline int mc_map_for_each(const mc_map *map,
    int (*visit)(const void *key, void *value, void *argument), void *argument)
{
	return mc_map_for_each_(map, MC_RECORD_, visit, argument);
}

#ifdef __cplusplus
}
#endif

#endif
