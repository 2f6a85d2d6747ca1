/*
 * Deferred updates: an object of any type that many threads update and few read. An update is a call-back
 * with an argument, and is appended to a log of the calling thread; the next reader collects all logs
 * and applies the updates in the order in which they happened.
 *
 *     mc_deferred_new(&registry, &list, NULL);
 *     mc_deferred_append(registry, list_add, item);          // any thread
 *     mc_deferred_read(registry, list_print, NULL);          // sees every update from before
 *
 * An object that few threads use has no logs and is a lock. Not for updates whose result is needed at
 * once: those are reads.
 */
#ifndef MANYCORE_DEFERRED_H
#define MANYCORE_DEFERRED_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_deferred mc_deferred;

/*
 * Called once, with the state that the object was made with, by any thread, under the object's lock:
 * perhaps at once, perhaps in a read of another thread, perhaps in mc_deferred_append of one that has
 * waited for it. It may append to this object and to others; a read of the same object ends the process.
 * It takes no lock that is held around functions of the object, and does not longjmp out.
 */
typedef void (*mc_update)(void *state, void *argument);

/* The order of updates cannot be told from the state: saves a read of the clock for each. */
#define MC_DEFERRED_COMMUTING UINT64_C(1)

/* Zero is the default of each field. */
struct mc_deferred_options {
	size_t size; /* of this struct: MC_DEFERRED_OPTIONS_INIT */
	uint64_t flags;
	size_t max_entries; /* of a thread's log, before the thread applies the logs itself */
};

#define MC_DEFERRED_OPTIONS_INIT { sizeof(struct mc_deferred_options), 0, 0 }

/*
 * A new object, in *out, with a state that is used by its call-backs alone. OPTIONS may be null.
 * -EINVAL: OUT is null, or an option cannot be.
 */
int mc_deferred_new(mc_deferred **out, void *state, const struct mc_deferred_options *options);

/*
 * Applies what waits, frees the object, which no thread uses any more, and gives the state back. Null for
 * null.
 */
void *mc_deferred_free(mc_deferred *object);

/*
 * Appends an update. Without a lock and without a write to a shared line, if the object has logs.
 * -EINVAL: UPDATE is null.
 */
int mc_deferred_append(mc_deferred *object, mc_update update, void *argument);

/*
 * Applies every update that was appended before, and calls READ with the state, under the object's lock.
 * READ may change the state; as an update, except that it is called in this call. It may be null. Always
 * 0.
 */
int mc_deferred_read(mc_deferred *object, mc_update read, void *argument);

#ifdef __cplusplus
}
#endif

#endif
