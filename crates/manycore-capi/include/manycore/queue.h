/*
 * A queue of events from many threads. One thread at a time receives them, in the order in which they
 * were sent, across all threads. For notifications, audit logs, work for one thread. An event is a
 * pointer, which may be null.
 *
 *     mc_queue_send(log, event, MC_FOREVER);          // any thread
 *
 *     while (mc_queue_receive(log, &event, MC_FOREVER) == 0)
 *         handle(event);
 *
 * If senders contend, each gets a log of its own and writes no shared line. Not for spreading work over
 * many receivers: they take turns.
 */
#ifndef MANYCORE_QUEUE_H
#define MANYCORE_QUEUE_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_queue mc_queue;

/* Zero is the default of each field. */
struct mc_queue_options {
	size_t size; /* of this struct: MC_QUEUE_OPTIONS_INIT */
	size_t max_events; /* waiting events that make the queue full: 2^20; SIZE_MAX for no bound */
};

#define MC_QUEUE_OPTIONS_INIT { sizeof(struct mc_queue_options), 0 }

/* A timeout that never ends. */
#define MC_FOREVER UINT64_MAX

/* Makes a new queue, in *out. OPTIONS may be null. -EINVAL: OUT is null, or an option is invalid. */
int mc_queue_new(mc_queue **out, const struct mc_queue_options *options);

/* Frees a queue and drops its events. No thread may use it any more. Null is fine. */
void mc_queue_free(mc_queue *queue);

/*
 * Sends an event. If the queue is full, waits for room for TIMEOUT_NS; 0 means not at all. -EPIPE: the
 * queue is closed. -EAGAIN: full, and the timeout is 0. -ETIMEDOUT: full all the time.
 */
int mc_queue_send(mc_queue *queue, void *event, uint64_t timeout_ns);

/*
 * Receives an event, in *out. If there is none, waits for TIMEOUT_NS; 0 means not at all. -EPIPE: the
 * queue is closed, and every event was received. -EAGAIN: none, and the timeout is 0. -ETIMEDOUT: none
 * all the time. -EINVAL: OUT is null.
 */
int mc_queue_receive(mc_queue *queue, void **out, uint64_t timeout_ns);

/*
 * Receives the events that are there, up to ROOM. Returns how many: 0 only if there are none. Does not
 * wait. Faster than mc_queue_receive for many events.
 */
size_t mc_queue_receive_many(mc_queue *queue, void **events, size_t room);

/*
 * Closes the queue: it takes no more events. Events that were sent before can still be received. Wakes
 * waiting threads. Returns 1 if the queue was open, else 0.
 */
int mc_queue_close(mc_queue *queue);

/* Returns how many events there are. Collects them, so not for hot paths. */
size_t mc_queue_length(mc_queue *queue);

#ifdef __cplusplus
}
#endif

#endif
