/*
 * liburcu: four flavours, each with its two ways to free later. call_rcu hands a node to a helper
 * thread; defer_rcu queues it with the thread, which waits for the readers when the queue is full.
 */
#define _LGPL_SOURCE
#define URCU_API_MAP
#include <stdlib.h>
#include <string.h>

#include "smr.h"

#include FLAVOUR_HEADER
#include <urcu/pointer.h>
#include <urcu/uatomic.h>

#define JOINED_(a, b, c) a##_##b##_##c
#define JOINED(a, b, c) JOINED_(a, b, c)

struct urcu_thread {
	struct thread base;
	/* Nodes queued since this thread emptied its queue. */
	unsigned int queued;
};

/*
 * A thread's queue holds 4096 nodes and is emptied by its owner when it is full, under a lock whose
 * holder waits for all readers. Where threads are readers until they say otherwise (qsbr), waiting
 * for that lock as a reader can wait for ever: so a thread empties its queue a little earlier, and
 * is no reader meanwhile. In the other flavours that comes to the same.
 */
#define QUEUED_MAX 4000

_Static_assert(sizeof(struct node) == 64, "a node is a line");
_Static_assert(sizeof(struct rcu_head) <= sizeof(((struct node *)0)->head), "the head has room");

/* There is one domain in the process. */
static void *process_wide(void)
{
	static char domain;

	return &domain;
}

static void drop_head(struct rcu_head *head)
{
	manycore_smr_drop((struct node *)head);
}

static void drop_node(void *node)
{
	manycore_smr_drop(node);
}

static void leave_call(struct urcu_thread *self)
{
	rcu_unregister_thread();
	free(self);
}

/*
 * Registration for defer_rcu can wait for a thread that waits for all readers. So this thread
 * becomes a reader after it, and ceases to be one before its queue is emptied.
 */
static void join_defer(void)
{
	if (rcu_defer_register_thread() != 0)
		abort();
	rcu_register_thread();
}

static void leave_defer(struct urcu_thread *self)
{
	rcu_unregister_thread();
	rcu_defer_unregister_thread();
	free(self);
}

static void empty_queue(struct urcu_thread *self)
{
	self->queued = 0;
	rcu_thread_offline();
	rcu_defer_barrier_thread();
	rcu_thread_online();
}

static inline void update_defer(struct urcu_thread *self, struct node **slot, struct node *new)
{
	defer_rcu(drop_node, rcu_xchg_pointer(slot, new));
	if (++self->queued == QUEUED_MAX)
		empty_queue(self);
}

#define NAME JOINED(urcu, FLAVOUR, call)
#define STATE struct urcu_thread
#define LOCK(self) ((void)(self), rcu_read_lock())
#define UNLOCK(self) ((void)(self), rcu_read_unlock())
#define LOAD(slot) rcu_dereference(*(slot))
#define UPDATE(self, slot, new) ((void)(self), \
	call_rcu((struct rcu_head *)rcu_xchg_pointer(slot, new)->head, drop_head))
#define OPEN() process_wide()
#define CLOSE(domain) ((void)(domain), rcu_barrier())
#define JOIN(self) ((void)(self), rcu_register_thread())
#define LEAVE(self) leave_call(self)
#define REST(self) ((void)(self), rcu_quiescent_state())
#define FLUSH(self) ((void)(self), rcu_quiescent_state())
#define PAUSE(self) ((void)(self), rcu_thread_offline())
#define RESUME(self) ((void)(self), rcu_thread_online())
#include "scheme.inc"

#define NAME JOINED(urcu, FLAVOUR, defer)
#define STATE struct urcu_thread
#define LOCK(self) ((void)(self), rcu_read_lock())
#define UNLOCK(self) ((void)(self), rcu_read_unlock())
#define LOAD(slot) rcu_dereference(*(slot))
#define UPDATE(self, slot, new) update_defer(self, slot, new)
#define OPEN() process_wide()
#define CLOSE(domain) ((void)(domain))
#define JOIN(self) ((void)(self), join_defer())
#define LEAVE(self) leave_defer(self)
#define REST(self) ((void)(self), rcu_quiescent_state())
#define FLUSH(self) empty_queue(self)
#define PAUSE(self) ((void)(self), rcu_thread_offline())
#define RESUME(self) ((void)(self), rcu_thread_online())
#include "scheme.inc"
