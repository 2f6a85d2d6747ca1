/*
 * Pages of memory that threads take and give back by the thousand, without a system call for each.
 *
 *     mc_page_pool_new(&pool, 1 << 16, NULL);   // addresses for 256 MB, and no memory yet
 *
 *     frame = mc_pages_alloc(pool, 1);
 *     pread(file, frame, MC_PAGE_BYTES, offset);
 *     mc_pages_free(pool, frame, 1);            // by any thread
 *
 * For buffer pools of databases, instances of a virtual machine, network buffers. Not for objects smaller
 * than a page. For memory that is mapped at several addresses and revoked, use manycore/mappings.h. Only
 * on Linux.
 *
 * Taking, touching and giving back a page costs some tens of nanoseconds. As long as a thread gives back
 * what it took itself, it writes no line that another thread writes. Several pages at a time take the
 * pool's lock. Pages that pass from thread to thread take it once for 64 pages. The bound on memory is
 * hard.
 *
 * Pages hold what an earlier owner of this pool left, never the contents of another pool or process. If a
 * party must not see others' contents, take zeroed pages, or give the party a pool of its own. A child of
 * a fork has a copy of the pages. It must not take pages from the pool, because another thread may have
 * been in it.
 */
#ifndef MANYCORE_PAGES_H
#define MANYCORE_PAGES_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_page_pool mc_page_pool;

#define MC_PAGE_BYTES ((size_t)4096)

#define MC_PAGES_HUGE UINT64_C(1) /* 2 MB pages, if the system has some: a touch may take as much */
#define MC_PAGES_NODE UINT64_C(2) /* on one NUMA node only */
#define MC_PAGES_KEEP_NONE UINT64_C(4) /* idle pages go back to the system, in batches */

/* Zero is the default of each field, except for SIZE. */
struct mc_page_pool_options {
	size_t size; /* of this struct: MC_PAGE_POOL_OPTIONS_INIT */
	uint64_t flags;
	size_t keep; /* idle pages that keep their memory; a quarter of the pool by default */
	uint32_t node; /* its number, with MC_PAGES_NODE */
};

#define MC_PAGE_POOL_OPTIONS_INIT { sizeof(struct mc_page_pool_options), 0, 0, 0 }

/*
 * Makes a new pool of PAGES pages, in *out. OPTIONS may be null. No memory is taken before a page is
 * touched. -EINVAL: OUT is null, PAGES is 0, an option is invalid, or the system has no such node.
 * -EOPNOTSUPP: the system's pages do not have 4,096 bytes. Otherwise the system's error.
 */
int mc_page_pool_new(mc_page_pool **out, uint32_t pages, const struct mc_page_pool_options *options);

/* Frees a pool. No thread may use it any more. Null is fine. -EBUSY: pages are in use; the pool stays. */
int mc_page_pool_free(mc_page_pool *pool);

/* Returns PAGES pages in a row, with their old contents. Null: there are not enough, or PAGES is 0. */
void *mc_pages_alloc(mc_page_pool *pool, size_t pages);

/* Returns PAGES pages of zeros in a row. Null: as for mc_pages_alloc. */
void *mc_pages_alloc_zeroed(mc_page_pool *pool, size_t pages);

/*
 * Like mc_pages_alloc, at a multiple of ALIGNMENT pages. Also null if ALIGNMENT is not a power of two, or
 * is more than the pool's own alignment: 1 page, or 512 with MC_PAGES_HUGE.
 */
void *mc_pages_alloc_aligned(mc_page_pool *pool, size_t pages, size_t alignment);

/*
 * Gives pages back, all that were taken together or some of them. Null is fine. The pages must be in use,
 * and no thread may use them any more. -EINVAL: the pages do not belong to this pool.
 */
int mc_pages_free(mc_page_pool *pool, void *first, size_t pages);

/*
 * Returns the position in the pool of the page with this address, from 0 on, for a table with an entry
 * for each page. -EINVAL: the address does not belong to the pool.
 */
ptrdiff_t mc_page_pool_index(const mc_page_pool *pool, const void *address);

/* Returns how many pages are free. Approximate while other threads run. */
size_t mc_page_pool_idle(const mc_page_pool *pool);

/* Returns how many pages, free or in use, may have memory of the system. Visits every page. */
size_t mc_page_pool_resident(const mc_page_pool *pool);

/*
 * Gives the memory of idle pages back to the system, except for some hundred pages near the threads.
 * Returns how many pages lost their memory. For a program that expects to be idle.
 */
size_t mc_page_pool_trim(mc_page_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
