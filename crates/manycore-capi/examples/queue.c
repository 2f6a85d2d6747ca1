/* A log of events from several threads, in the order in which they happened: mc_queue. */
#include <manycore/queue.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct event {
	int thread;
	int number;
};

static mc_queue *events;

static void *send_some(void *argument)
{
	int i, thread = *(int *)argument;

	for (i = 0; i < 1000; i++) {
		struct event *event = (struct event *)malloc(sizeof(*event));

		if (event == NULL)
			abort();
		event->thread = thread;
		event->number = i;
		if (mc_queue_send(events, event, MC_FOREVER) != 0)
			abort();
	}
	return NULL;
}

int main(void)
{
	struct mc_queue_options options = MC_QUEUE_OPTIONS_INIT;
	int numbers[3] = { 0, 1, 2 }, next[3] = { 0, 0, 0 }, wrong = 0, i;
	void *batch[64], *event;
	pthread_t threads[3];
	size_t at, count;

	options.max_events = 256; /* then senders wait */
	if (mc_queue_new(&events, &options) != 0)
		return 1;
	if (mc_queue_receive(events, &event, 0) != -EAGAIN)
		return 1;
	for (i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, send_some, &numbers[i]);

	/* First one by one, then all that are there. */
	for (i = 0; i < 3000;) {
		count = 0;
		if (mc_queue_receive(events, &batch[count], UINT64_C(1000000)) == 0)
			count++;
		count += mc_queue_receive_many(events, batch + count, 64 - count);
		for (at = 0; at < count; at++) {
			struct event *seen = (struct event *)batch[at];

			wrong += seen->number != next[seen->thread]++;
			free(seen);
		}
		i += (int)count;
	}
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);

	printf("%zu events are left, %d were out of order\n", mc_queue_length(events), wrong);
	mc_queue_close(events);
	if (mc_queue_send(events, NULL, 0) != -EPIPE)
		return 1;
	if (mc_queue_receive(events, &event, MC_FOREVER) != -EPIPE)
		return 1;
	mc_queue_free(events);
	return wrong != 0;
}
