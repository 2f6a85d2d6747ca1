/* A list that many threads change and few read: mc_deferred. */
#include <manycore/deferred.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct item {
	struct item *next;
	int number;
};

struct list {
	struct item *first;
	int length;
};

static mc_deferred *items;

/* The state is the list. Updates of one thread are applied in their order. */
static void add(void *state, void *argument)
{
	struct list *list = (struct list *)state;
	struct item *item = (struct item *)argument;

	item->next = list->first;
	list->first = item;
	list->length++;
}

static void drop_first(void *state, void *argument)
{
	struct list *list = (struct list *)state;
	struct item *first = list->first;

	(void)argument;
	list->first = first->next;
	list->length--;
	free(first);
}

static void get_length(void *state, void *argument)
{
	*(int *)argument = ((const struct list *)state)->length;
}

static void *change(void *argument)
{
	int i;

	(void)argument;
	for (i = 0; i < 1000; i++) {
		struct item *item = (struct item *)malloc(sizeof(*item));

		if (item == NULL)
			abort();
		item->number = i;
		mc_deferred_append(items, add, item);
		if (i % 2 == 0)
			mc_deferred_append(items, drop_first, NULL);
	}
	return NULL;
}

int main(void)
{
	struct mc_deferred_options options = MC_DEFERRED_OPTIONS_INIT;
	struct list list = { NULL, 0 }, *whole;
	pthread_t threads[3];
	int i, length;

	options.max_entries = 128; /* then a thread that appends applies what waits */
	if (mc_deferred_new(&items, &list, &options) != 0)
		return 1;
	for (i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, change, NULL);
	mc_deferred_read(items, get_length, &length);
	printf("%d items, so far\n", length);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	mc_deferred_read(items, get_length, &length);

	whole = (struct list *)mc_deferred_free(items);
	if (whole != &list || whole->length != length)
		return 1;
	while (list.first != NULL)
		drop_first(&list, NULL);
	printf("%d items\n", length);
	return length != 1500;
}
