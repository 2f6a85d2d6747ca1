/*
 * Objects by number: handles, descriptors, session ids. A number names one object forever. After the
 * object is removed, the number leads nowhere, even though its place is reused.
 *
 *     id = mc_ids_insert(sessions, session);
 *
 *     mc_enter(mc_domain_default());
 *     session = mc_ids_get(sessions, id);       // valid until the section is closed
 *     mc_leave(mc_domain_default());
 *
 *     mc_ids_remove(sessions, id);              // freed by the call-back, after its grace period
 */
#ifndef MANYCORE_IDS_H
#define MANYCORE_IDS_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_ids mc_ids;

/*
 * Called with a removed node after its grace period, or when the space is freed. The rules of mc_callback
 * in manycore.h hold. The call-back may use the space, unless the space is being freed. It must not
 * longjmp out.
 */
typedef void (*mc_free_node)(void *node);

/*
 * Makes a new space, in *out. Its nodes are looked up in sections of DOMAIN, or of the default domain if
 * DOMAIN is null. The domain must outlive the space. FREE_NODE may be null. -EINVAL: OUT is null.
 */
int mc_ids_new(mc_ids **out, const mc_domain *domain, mc_free_node free_node);

/*
 * Frees a space and its nodes. No thread may use it any more. Null is fine. Nodes that were removed
 * before may be freed later: mc_barrier waits for them.
 */
void mc_ids_free(mc_ids *ids);

/* Private to the inline functions below. */
uint64_t mc_ids_insert_(const mc_ids *ids, struct mc_thread_record_ *record, void *node);
void *mc_ids_get_(const mc_ids *ids, struct mc_thread_record_ *record, uint64_t id);
int mc_ids_remove_(const mc_ids *ids, struct mc_thread_record_ *record, uint64_t id);
int mc_ids_for_each_(const mc_ids *ids, struct mc_thread_record_ *record,
    int (*visit)(uint64_t id, void *node, void *argument), void *argument);

/*
 * Adds a node and returns its number, which is never 0. Returns 0 if NODE is null, or if no numbers are
 * left because some 2^32 are in use. Lock-free. An insertion works on lines of the thread's own.
 */
static inline uint64_t mc_ids_insert(mc_ids *ids, void *node)
{
	return mc_ids_insert_(ids, MC_RECORD_, node);
}

/*
 * Returns the node of a number, or null, for any number. The node is valid until the calling thread
 * closes its section of the space's domain. Wait-free: three to five loads and no store.
 */
static inline void *mc_ids_get(const mc_ids *ids, uint64_t id)
{
	return mc_ids_get_(ids, MC_RECORD_, id);
}

/*
 * Removes a node. It is freed once every section that is open now has been closed. -ENOENT: no node has
 * that number. If several threads remove it, one succeeds.
 */
static inline int mc_ids_remove(mc_ids *ids, uint64_t id)
{
	return mc_ids_remove_(ids, MC_RECORD_, id);
}

/* Returns how many nodes there are. */
size_t mc_ids_length(const mc_ids *ids);

/*
 * Calls VISIT with each node, in a section, until VISIT returns a value other than 0. Returns its last
 * value. This is no snapshot, but a node that is there all the time is visited once. VISIT may use the
 * space, and must not longjmp out. -EINVAL: VISIT is null.
 */
static inline int mc_ids_for_each(const mc_ids *ids,
    int (*visit)(uint64_t id, void *node, void *argument), void *argument)
{
	return mc_ids_for_each_(ids, MC_RECORD_, visit, argument);
}

#ifdef __cplusplus
}
#endif

#endif
