/*
 * Pages that are granted to an address space, lent on to others with fewer rights, and revoked with all
 * that was derived from them.
 *
 *     mc_mappings_new(&mappings, NULL, 1 << 10, NULL);
 *     mc_space_new(mappings, 1 << 10, &server);
 *     mc_space_new(mappings, 1 << 10, &client);
 *
 *     mc_mappings_grant(mappings, server, 4, MC_RIGHTS_WRITE, &buffer);
 *     seen = NULL;                              // anywhere
 *     mc_mappings_alias(mappings, server, buffer, 4, client, &seen, MC_RIGHTS_READ);
 *
 *     mc_mappings_revoke(mappings, server, buffer, 4);    // nothing resolves that was derived
 *     mc_mappings_flush(mappings);                        // and an access through SEEN faults
 *
 * The frames are of a memory file, and their addresses are the processor's; or, with MC_MAPPINGS_BOOKS,
 * there is no memory, and addresses are numbers: for a device's pages, or blocks of a cache on an
 * accelerator. A page that has one owner at a time is one of a pool (manycore/pages.h), which maps nothing.
 * Private mappings, whose page is copied when it is written, there are none. What is behind the frames is
 * one of these two; a backing of the program's own can be written in Rust alone. Linux alone.
 *
 * Each page's mapping, alias and revocation is linearizable. One that is about several pages is done when
 * it returns, or has changed nothing if it failed; look-ups beside it may see a part.
 *
 * STALE ADDRESSES. When mc_mappings_revoke, mc_mappings_unmap or mc_space_end return, nothing that was
 * derived resolves, in any space. The processor's mapping goes with the next flush: until then a stray
 * access reaches the frame that it was mapped to, with the old rights, and never another one, because
 * neither frame nor address is used again before. mc_mappings_flush does it at once; otherwise operations
 * that come a tick later do, or mc_mappings_tick.
 *
 * Look-ups are wait-free. The others lock one page's node at a time, and wait for no reader, except for
 * mc_mappings_flush. With books, to lend a page and revoke it costs some 270 ns together; with memory, the
 * system calls that map and unmap it, one for each run of pages. Operations on different pages write no
 * line in common. A mapping takes 64 bytes. Linux allows a process 65,530 mapped runs (vm.max_map_count).
 *
 * A child of a fork shares the memory with its parent, and must not use the mappings.
 */
#ifndef MANYCORE_MAPPINGS_H
#define MANYCORE_MAPPINGS_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mc_mappings mc_mappings;

#define MC_RIGHTS_NONE 0 /* the mapping names the frame, and allows no access */
#define MC_RIGHTS_READ 1
#define MC_RIGHTS_WRITE 2 /* and to read */

#define MC_MAPPINGS_BOOKS UINT64_C(1) /* no memory: frames and addresses are numbers */

/* Zero is the default of each field, except of the first. */
struct mc_mappings_options {
	size_t size; /* of this struct: MC_MAPPINGS_OPTIONS_INIT */
	uint64_t flags;
	uint64_t tick_us; /* for how long frames and addresses rest, at least; 10000 by default */
};

#define MC_MAPPINGS_OPTIONS_INIT { sizeof(struct mc_mappings_options), 0, 0 }

/* What a page is mapped to. */
struct mc_mapping {
	uint32_t frame; /* its number, from 0 on; times 4,096, its place in the file */
	uint32_t rights;
};

/*
 * New mappings of so many frames, in *out; OPTIONS may be null. They are looked up in sections of DOMAIN,
 * or of the default one if that is null; the domain is freed after them. No memory is taken before a page
 * is touched. -EINVAL: OUT is null, FRAMES is 0, or an option cannot be. -EOPNOTSUPP: the system's pages
 * are not of 4,096 bytes. Else what the system said.
 */
int mc_mappings_new(mc_mappings **out, const mc_domain *domain, uint32_t frames,
    const struct mc_mappings_options *options);

/* Frees mappings with all their spaces, of which no thread uses an address any more. Null is fine. */
void mc_mappings_free(mc_mappings *mappings);

/*
 * A new address space with a window of so many pages; its number, never 0, in *out. -EINVAL: OUT is null,
 * or PAGES is 0. -ENOSPC: more than 2^32 - 1 pages. Else what the system said.
 */
int mc_space_new(mc_mappings *mappings, size_t pages, uint64_t *out);

/* The first address of a space's window. Null: it has ended, or never was. */
void *mc_space_base(const mc_mappings *mappings, uint64_t space);

/*
 * Ends a space: unmaps all of it, and what was derived from it, in every space; how many mappings. The
 * number leads nowhere from then on. -ESRCH: it has ended, or never was.
 */
ptrdiff_t mc_space_end(mc_mappings *mappings, uint64_t space);

/*
 * Maps so many new frames, which hold zeros, somewhere in a space; the address in *out. -EINVAL: OUT is
 * null, PAGES is 0, or the rights are none of the three. -ENOMEM: there are not as many free frames.
 * -ENOSPC: no gap of the space has room. (Frames and addresses that rest come back with a flush.) -ESRCH:
 * no such space. Else what the system said.
 */
int mc_mappings_grant(mc_mappings *mappings, uint64_t space, size_t pages, int rights, void **out);

/*
 * Maps the frames of the PAGES at AT in FROM also in TO: at *to_at, or somewhere if that is null, and then
 * the address is in *to_at. They go when those at AT are revoked. -EINVAL: no pages, a bad address, or a
 * range that is not within its space. -ENOENT: a page at AT is not mapped. -EEXIST: one at *to_at is, or
 * was and rests. -EACCES: more rights than those at AT have. -ENOSPC, -ESRCH: as for mc_mappings_grant.
 */
int mc_mappings_alias(mc_mappings *mappings, uint64_t from, const void *at, size_t pages, uint64_t to,
    void **to_at, int rights);

/*
 * Removes every mapping that was derived from these pages, in every space, to any depth; how many. The
 * pages themselves stay mapped. -EINVAL: a bad range. -ENOENT: a page of it is not mapped. -ESRCH: no such
 * space.
 */
ptrdiff_t mc_mappings_revoke(mc_mappings *mappings, uint64_t space, const void *at, size_t pages);

/*
 * Removes the mappings of these pages, and all that was derived from them; how many. Frames that were
 * granted there are free after the next flush. Fails as mc_mappings_revoke.
 */
ptrdiff_t mc_mappings_unmap(mc_mappings *mappings, uint64_t space, const void *at, size_t pages);

/*
 * As mc_mappings_revoke, and leaves the pages themselves these rights. -EACCES: a page has fewer. Else
 * as mc_mappings_revoke, or what the system said.
 */
ptrdiff_t mc_mappings_restrict(mc_mappings *mappings, uint64_t space, const void *at, size_t pages,
    int rights);

/* Private to the inline function below. */
int mc_mappings_resolve_(const mc_mappings *mappings, struct mc_thread_record_ *record, uint64_t space,
    const void *at, struct mc_mapping *out);

/*
 * What the page that has the address is mapped to, in *out, which may be null. It stays mapped until the
 * section is closed that the calling thread has open in the mappings' domain. Wait-free. -ENOENT: it is
 * not mapped, or there is no such space.
 */
static inline int mc_mappings_resolve(const mc_mappings *mappings, uint64_t space, const void *at,
    struct mc_mapping *out)
{
	return mc_mappings_resolve_(mappings, MC_RECORD_, space, at, out);
}

/*
 * Unmaps what has rested long enough, and never waits; how many mappings are gone. For a timer, if the
 * program may stop unmapping. What the system refuses waits for the next call; its reason is returned.
 */
ptrdiff_t mc_mappings_tick(mc_mappings *mappings);

/*
 * Waits for the sections that are open, and unmaps all that was removed before: an access to it faults from
 * then on, and its frames and addresses are free. How many mappings are gone. -EDEADLK: inside of a section
 * of the domain, or in a call-back. Else as mc_mappings_tick.
 */
ptrdiff_t mc_mappings_flush(mc_mappings *mappings);

/* How many mappings were removed and wait to be unmapped; beside other threads, approximate. */
size_t mc_mappings_pending(const mc_mappings *mappings);

/* How many frames are free; beside other threads, approximate. */
size_t mc_mappings_free_frames(const mc_mappings *mappings);

/*
 * The memory file that the frames are of, for another process to map: a revocation does not reach what is
 * mapped there. It is closed with the mappings. -EOPNOTSUPP: with MC_MAPPINGS_BOOKS.
 */
int mc_mappings_fd(const mc_mappings *mappings);

#ifdef __cplusplus
}
#endif

#endif
