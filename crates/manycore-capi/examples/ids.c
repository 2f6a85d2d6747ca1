/* Sessions by number: mc_ids. After a session ends, the number that a client has leads nowhere. */
#include <manycore/ids.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct session {
	int user;
};

static int visit(uint64_t id, void *node, void *argument)
{
	const struct session *session = (const struct session *)node;

	printf("session %#" PRIx64 " of user %d\n", id, session->user);
	*(int *)argument += 1;
	return 0;
}

int main(void)
{
	const mc_domain *domain = mc_domain_default();
	const struct session *found;
	mc_ids *sessions;
	uint64_t ids[3];
	int i, visited = 0;

	if (mc_ids_new(&sessions, domain, free) != 0)
		return 1;
	for (i = 0; i < 3; i++) {
		struct session *made = (struct session *)malloc(sizeof(*made));

		if (made == NULL)
			return 1;
		made->user = 100 + i;
		ids[i] = mc_ids_insert(sessions, made);
		if (ids[i] == 0)
			return 1;
	}

	mc_enter(domain);
	found = (const struct session *)mc_ids_get(sessions, ids[1]);
	if (found == NULL || mc_ids_remove(sessions, ids[1]) != 0)
		return 1;
	printf("user %d leaves\n", found->user); /* still here, as long as the section is open */
	mc_leave(domain);

	if (mc_ids_remove(sessions, ids[1]) != -ENOENT || mc_ids_length(sessions) != 2)
		return 1;
	mc_ids_for_each(sessions, visit, &visited);
	mc_ids_free(sessions);
	mc_barrier(domain); /* what was removed is freed, too */
	return visited != 2;
}
