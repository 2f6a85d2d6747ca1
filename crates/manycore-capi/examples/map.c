/* Users by name: mc_map, with the program's own hash and equality. */
#include <manycore/map.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct user {
	char name[16];
	int age;
};

/* FNV-1a. */
static uint64_t user_hash(const void *key, void *argument)
{
	const char *at;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	(void)argument;
	for (at = (const char *)key; *at != 0; at++)
		hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
	return hash;
}

static int user_equal(const void *one, const void *other, void *argument)
{
	(void)argument;
	return strcmp((const char *)one, (const char *)other) == 0;
}

static void user_free(void *key, void *value, void *argument)
{
	(void)key; /* in the value */
	(void)argument;
	free(value);
}

static const struct mc_map_operations operations = {
	sizeof(operations), user_hash, user_equal, user_free, NULL
};

static mc_map *users;

static struct user *user_new(int number, int age)
{
	struct user *made = (struct user *)malloc(sizeof(*made));

	if (made == NULL)
		abort();
	snprintf(made->name, sizeof(made->name), "user%d", number);
	made->age = age;
	return made;
}

static void *replace(void *argument)
{
	int i;

	(void)argument;
	for (i = 0; i < 100000; i++) {
		struct user *next = user_new(i % 100, i % 90);

		mc_map_put(users, next->name, next);
	}
	return NULL;
}

static int count_old(const void *key, void *value, void *argument)
{
	(void)key;
	*(int *)argument += ((const struct user *)value)->age >= 90;
	return 0;
}

int main(void)
{
	const mc_domain *domain = mc_domain_default();
	struct user *ann, *found;
	pthread_t updater;
	int i, old = 0, wrong = 0;

	if (mc_map_new(&users, domain, &operations) != 0)
		return 1;
	if (pthread_create(&updater, NULL, replace, NULL) != 0)
		return 1;
	for (i = 0; i < 100000; i++) {
		const struct user *user;

		mc_enter(domain);
		user = (const struct user *)mc_map_get(users, "user7");
		wrong += user != NULL && (strcmp(user->name, "user7") != 0 || user->age >= 90);
		mc_leave(domain);
	}
	pthread_join(updater, NULL);

	ann = user_new(1000, 40);
	if (mc_map_add(users, ann->name, ann) != 0)
		return 1;
	found = user_new(1000, 41);
	if (mc_map_add(users, found->name, found) == 0)
		return 1;
	free(found); /* there is one of that name */

	/* Removes the user that was found, not a user that has replaced it since. */
	mc_enter(domain);
	found = (struct user *)mc_map_get(users, "user1000");
	if (found != ann || mc_map_remove_value(users, "user1000", found) != 0)
		return 1;
	mc_leave(domain);
	if (mc_map_remove(users, "user0") != 0 || mc_map_length(users) != 99)
		return 1;
	mc_map_for_each(users, count_old, &old);
	printf("%zu users, %d wrong, %d old\n", mc_map_length(users), wrong, old);
	mc_map_free(users);
	mc_barrier(domain); /* what was removed and replaced is freed, too */
	return wrong != 0 || old != 0;
}
