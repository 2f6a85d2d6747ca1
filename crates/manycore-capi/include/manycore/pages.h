/*
 * Pages of memory that threads take and give back by the thousand, without a system call for each.
 *
 *     mc_page_pool_new(&pool, 1 << 16, NULL);   // addresses for 256 MB, and no memory yet
 *
 *     frame = mc_pages_alloc(pool, 1);
 *     pread(file, frame, MC_PAGE_BYTES, offset);
 *     mc_pages_free(pool, frame, 1);            // by any thread
 *
 * For buffer pools of databases, instances of a virtual machine, network buffers. Not for objects that
 * are smaller than a page, nor for memory that is mapped at several addresses and revoked: that is
 * manycore/mappings.h. Linux alone.
 *
 * A page taken, touched and given back costs some tens of nanoseconds, and writes no line that another
 * thread writes, while a thread gives back what it took itself; several pages at a time, and pages that
 * pass from thread to thread, take the pool's lock, 64 pages at once. The bound on memory is hard.
 *
 * Pages hold what an earlier owner of this pool left, never another pool's or process's contents: take
 * zeroed ones, or a pool of its own, for a party that must not see that. A child of a fork has a copy
 * of the pages, and takes none from the pool: another thread may have been in it.
 */
#ifndef MANYCORE_PAGES_H
#define MANYCORE_PAGES_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_page_pool mc_page_pool;

#define MC_PAGE_BYTES ((size_t)4096)

#define MC_PAGES_HUGE UINT64_C(1) /* of 2 MB where the system has some: a touch may take as much */
#define MC_PAGES_NODE UINT64_C(2) /* on one NUMA node, and nowhere else */
#define MC_PAGES_KEEP_NONE UINT64_C(4) /* idle pages go back to the system, in batches */

/* Zero is the default of each field, except of the first. */
struct mc_page_pool_options {
	size_t size; /* of this struct: MC_PAGE_POOL_OPTIONS_INIT */
	uint64_t flags;
	size_t keep; /* idle pages that keep their memory; a quarter of the pool by default */
	uint32_t node; /* its number, with MC_PAGES_NODE */
};

#define MC_PAGE_POOL_OPTIONS_INIT { sizeof(struct mc_page_pool_options), 0, 0, 0 }

/*
 * A new pool of so many pages, in *out; OPTIONS may be null. No memory is taken before a page is touched.
 * -EINVAL: OUT is null, PAGES is 0, an option cannot be, or the system has no such node. -EOPNOTSUPP: the
 * system's pages are not of 4,096 bytes. Else what the system said.
 */
int mc_page_pool_new(mc_page_pool **out, uint32_t pages, const struct mc_page_pool_options *options);

/* Frees a pool, which no thread uses any more. Null is fine. -EBUSY: pages are in use; it stays then. */
int mc_page_pool_free(mc_page_pool *pool);

/* So many pages in a row, with whatever is in them. Null: none are left, or PAGES is 0. */
void *mc_pages_alloc(mc_page_pool *pool, size_t pages);

/* So many pages of zeros in a row. Null: as for mc_pages_alloc. */
void *mc_pages_alloc_zeroed(mc_page_pool *pool, size_t pages);

/*
 * As mc_pages_alloc, at a multiple of ALIGNMENT pages. Null, too, if that is no power of two, or more than
 * the pool itself is aligned to: 1 page, or 512 with MC_PAGES_HUGE.
 */
void *mc_pages_alloc_aligned(mc_page_pool *pool, size_t pages, size_t alignment);

/*
 * Gives pages back, all that were taken together or some of them. Null is fine. The caller promises that
 * they are in use, and that no thread uses them any more. -EINVAL: no pages of this pool.
 */
int mc_pages_free(mc_page_pool *pool, void *first, size_t pages);

/*
 * The position in the pool of the page that has the address, from 0 on: for a table with an entry for each
 * page. -EINVAL: it is none of the pool's.
 */
ptrdiff_t mc_page_pool_index(const mc_page_pool *pool, const void *address);

/* How many pages are free; beside other threads, approximate. */
size_t mc_page_pool_idle(const mc_page_pool *pool);

/* How many pages, free or in use, may have memory of the system. Looks at every page. */
size_t mc_page_pool_resident(const mc_page_pool *pool);

/*
 * Gives the memory of idle pages back to the system, and returns of how many: all but some hundred that lie
 * near the threads. For a program that expects to be idle.
 */
size_t mc_page_pool_trim(mc_page_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
