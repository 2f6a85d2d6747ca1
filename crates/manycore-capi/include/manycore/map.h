/*
 * A hash map of pointers, with hash and equality of the program's: look-ups take no lock and write
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
 * What a map does with keys and entries. It stays as it is until the map was freed, and mc_barrier has
 * returned after that: static, for example.
 *
 * HASH and EQUAL are called by any thread in any function here, EQUAL also under the lock of a bucket:
 * they may read this map and others, but an update of the same map in EQUAL ends the process, and it
 * neither waits nor takes a lock that is held around functions of the map. If they contradict each other,
 * keys are not found, or are there twice; nothing else happens. None of the functions here longjmps out
 * of its call: the bucket would stay locked for ever, and the section open.
 *
 * If both are null, keys are numbers that are passed as pointers: the map does not follow them. Then
 * nothing is called in a look-up; if FREE_ENTRY is null as well, an entry takes 32 bytes in place of 64.
 *
 * HASH may be simple: its result is mixed. But keys that an attacker chooses need one with a secret.
 */
struct mc_map_operations {
	size_t size; /* of this struct */
	uint64_t (*hash)(const void *key, void *argument);
	int (*equal)(const void *one, const void *other, void *argument); /* not 0 if they are */
	/*
	 * Called with an entry that was removed or replaced, after its grace period, or when the map is
	 * freed; as an mc_callback of manycore.h is, which does not longjmp out either. It may use the map,
	 * unless that is being freed.
	 * May be null.
	 */
	void (*free_entry)(void *key, void *value, void *argument);
	void *argument; /* what these are called with */
};

/*
 * A new map, in *out. Its entries are looked up in sections of DOMAIN, or of the default one if that is
 * null; the domain is freed after it. -EINVAL: a null pointer, a hash without an equality or the other
 * way round, or a struct that is shorter than this one, or longer and not zero there.
 */
int mc_map_new(mc_map **out, const mc_domain *domain, const struct mc_map_operations *operations);

/*
 * Frees a map, which no thread uses any more, and the entries that are in it. Null is fine. Entries that
 * were removed before may be freed later: mc_barrier waits for them.
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
 * The value of a key, or null if it is not there. It is valid until the section is closed that the
 * calling thread has open in the map's domain. Lock-free.
 */
static inline void *mc_map_get(const mc_map *map, const void *key)
{
	return ((const struct mc_map_front_ *)(const void *)map)->get(map, MC_RECORD_, key);
}

/*
 * Puts an entry in, in place of one with an equal key, which is freed after its grace period. Key and
 * value are the map's from now on. Returns 1 if there was one, 0 if not. -EINVAL: VALUE is null.
 */
static inline int mc_map_put(mc_map *map, void *key, void *value)
{
	return mc_map_put_(map, MC_RECORD_, key, value);
}

/*
 * Puts an entry in, if there is none with an equal key. -EEXIST: there is one, and key and value stay the
 * caller's. -EINVAL: VALUE is null.
 */
static inline int mc_map_add(mc_map *map, void *key, void *value)
{
	return mc_map_add_(map, MC_RECORD_, key, value);
}

/* Removes a key; its entry is freed after its grace period. -ENOENT: it is not there. */
static inline int mc_map_remove(mc_map *map, const void *key)
{
	return mc_map_remove_(map, MC_RECORD_, key, NULL);
}

/*
 * Removes a key if its value is VALUE: one that the calling thread has found, and that no thread has
 * replaced since. -ENOENT: it is not there, or has another value. -EINVAL: VALUE is null.
 */
static inline int mc_map_remove_value(mc_map *map, const void *key, const void *value)
{
	return value == NULL ? -EINVAL : mc_map_remove_(map, MC_RECORD_, key, value);
}

/* How many entries there are. */
size_t mc_map_length(const mc_map *map);

/*
 * Calls VISIT with each entry, in a section, until it returns something else than 0; what it returned
 * last. No snapshot: an entry that is there all the time is visited once. It may use the map. It does not
 * longjmp out. -EINVAL: VISIT is null.
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
