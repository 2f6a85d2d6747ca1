/* A buffer that a server lends to a client, read-only, and takes back: mc_mappings. */
#include <manycore/mappings.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	const mc_domain *domain = mc_domain_default();
	struct mc_mappings_options options = MC_MAPPINGS_OPTIONS_INIT;
	struct mc_mapping mapping;
	mc_mappings *mappings, *books;
	void *buffer, *seen = NULL, *inner = NULL;
	uint64_t server, client, library;
	ptrdiff_t gone;

	if (mc_mappings_new(&mappings, domain, 16, NULL) != 0 || mc_space_new(mappings, 16, &server) != 0 ||
	    mc_space_new(mappings, 16, &client) != 0 || mc_space_new(mappings, 16, &library) != 0)
		return 1;
	if (mc_mappings_grant(mappings, server, 2, MC_RIGHTS_WRITE, &buffer) != 0)
		return 1;
	strcpy((char *)buffer, "a message");
	if (mc_mappings_alias(mappings, server, buffer, 2, client, &seen, MC_RIGHTS_READ) != 0)
		return 1;
	printf("the client reads '%s' at another address\n", (const char *)seen);

	/* The client lends it on. It can't give more rights than its own. */
	if (mc_mappings_alias(mappings, client, seen, 1, library, &inner, MC_RIGHTS_WRITE) != -EACCES ||
	    mc_mappings_alias(mappings, client, seen, 1, library, &inner, MC_RIGHTS_READ) != 0)
		return 1;
	mc_enter(domain);
	if (mc_mappings_resolve(mappings, library, inner, &mapping) != 0 || mapping.rights != MC_RIGHTS_READ)
		return 1;
	printf("the library has frame %" PRIu32 " of file %d\n", mapping.frame, mc_mappings_fd(mappings));
	mc_leave(domain);

	/* Three pages were derived from the server's two. */
	gone = mc_mappings_revoke(mappings, server, buffer, 2);
	if (gone != 3 || mc_mappings_resolve(mappings, library, inner, NULL) != -ENOENT)
		return 1;
	printf("%zu mappings rest; ", mc_mappings_pending(mappings));
	printf("%td are unmapped\n", mc_mappings_flush(mappings)); /* now an access through SEEN faults */
	strcpy((char *)buffer, "the server has it still");

	if (mc_mappings_restrict(mappings, server, buffer, 2, MC_RIGHTS_READ) != 0 ||
	    mc_mappings_unmap(mappings, server, buffer, 1) != 1 || mc_space_end(mappings, server) != 1)
		return 1;
	mc_mappings_flush(mappings);
	if (mc_mappings_free_frames(mappings) != 16 || mc_space_base(mappings, server) != NULL)
		return 1;
	mc_mappings_free(mappings);

	/* Blocks of a device's memory: no memory here, only numbers. */
	options.flags = MC_MAPPINGS_BOOKS;
	if (mc_mappings_new(&books, domain, 1 << 20, &options) != 0 || mc_mappings_tick(books) != 0)
		return 1;
	mc_mappings_free(books);
	return 0;
}
