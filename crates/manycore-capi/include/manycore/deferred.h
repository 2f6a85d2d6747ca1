/*
 * Deferred updates: an object of any type that many threads update and few read. An update is a call-back
 * with an argument. The calling thread appends it to a log of its own. The next reader collects all logs
 * and applies the updates in the order in which they happened.
 *
 *     mc_deferred_new(&registry, &list, NULL);
 *     mc_deferred_append(registry, list_add, item);          // any thread
 *     mc_deferred_read(registry, list_print, NULL);          // sees every update from before
 *
 * While few threads use an object, it has no logs and is a lock. Not for updates that return a result:
 * these are reads.
 */
#ifndef MANYCORE_DEFERRED_H
#define MANYCORE_DEFERRED_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_deferred mc_deferred;

/*
 * Called once with the object's state, by any thread, under the object's lock. The call may come at once,
 * in a read of another thread, or in mc_deferred_append of a thread that waited for the lock. The
 * call-back may append to this object and to others; a read of the same object ends the process. It must
 * not take a lock that a thread holds around functions of the object, and must not longjmp out.
 */
typedef void (*mc_update)(void *state, void *argument);

/* The state does not depend on the order of updates. Saves a read of the clock for each update. */
#define MC_DEFERRED_COMMUTING UINT64_C(1)

/* Zero is the default of each field. */
struct mc_deferred_options {
	size_t size; /* of this struct: MC_DEFERRED_OPTIONS_INIT */
	uint64_t flags;
	size_t max_entries; /* length of a thread's log at which the thread applies the logs itself */
};

#define MC_DEFERRED_OPTIONS_INIT { sizeof(struct mc_deferred_options), 0, 0 }

/*
 * Makes a new object, in *out. Only its call-backs use the state. OPTIONS may be null. -EINVAL: OUT is
 * null, or an option is invalid.
 */
int mc_deferred_new(mc_deferred **out, void *state, const struct mc_deferred_options *options);

/*
 * Applies the waiting updates, frees the object and returns the state. No thread may use the object any
 * more. Returns null for null.
 */
void *mc_deferred_free(mc_deferred *object);

/*
 * Appends an update. If the object has logs, this takes no lock and writes no shared line. -EINVAL:
 * UPDATE is null.
 */
int mc_deferred_append(mc_deferred *object, mc_update update, void *argument);

/*
 * Applies every update that was appended before, then calls READ with the state, under the object's lock.
 * READ may be null. It may change the state. The rules of an update hold for it, except that it is called
 * during this call. Always returns 0.
 */
int mc_deferred_read(mc_deferred *object, mc_update read, void *argument);

#ifdef __cplusplus
}
#endif

#endif
