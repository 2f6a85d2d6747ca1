/* A buffer pool: frames for the pages of a file, from an mc_page_pool; a table by their positions. */
#include <manycore/pages.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FRAMES 64

static unsigned numbers[FRAMES]; /* which page of the file each frame holds */

int main(void)
{
	struct mc_page_pool_options options = MC_PAGE_POOL_OPTIONS_INIT;
	mc_page_pool *pool;
	char *frames[FRAMES], *run;
	int i;

	options.keep = 16; /* of what is idle, the rest goes back to the system */
	if (mc_page_pool_new(&pool, FRAMES, &options) != 0)
		return 1;
	for (i = 0; i < FRAMES; i++) {
		frames[i] = (char *)mc_pages_alloc(pool, 1);
		if (frames[i] == NULL)
			return 1;
		memset(frames[i], i, MC_PAGE_BYTES); /* as if it were read */
		numbers[mc_page_pool_index(pool, frames[i])] = (unsigned)i;
	}
	/* The bound is hard, and a pool with pages in use is not freed. */
	if (mc_pages_alloc(pool, 1) != NULL || mc_page_pool_free(pool) != -EBUSY)
		return 1;
	for (i = 0; i < FRAMES; i++)
		if (numbers[mc_page_pool_index(pool, frames[i] + 100)] != (unsigned)i ||
		    mc_pages_free(pool, frames[i], 1) != 0)
			return 1;

	run = (char *)mc_pages_alloc_zeroed(pool, 8); /* in a row, for a large object */
	if (run == NULL || run[0] != 0 || run[8 * MC_PAGE_BYTES - 1] != 0)
		return 1;
	mc_pages_free(pool, run + 4 * MC_PAGE_BYTES, 4); /* it needs half of that only */
	mc_pages_free(pool, run, 4);
	run = (char *)mc_pages_alloc_aligned(pool, 2, 1);
	mc_pages_free(pool, run, 2);

	printf("%zu pages are free, %zu have memory", mc_page_pool_idle(pool), mc_page_pool_resident(pool));
	printf("; %zu gave theirs back\n", mc_page_pool_trim(pool));
	return mc_page_pool_idle(pool) != FRAMES || mc_page_pool_free(pool) != 0;
}
