/*
 * Pages that are granted to an address space, lent on to others with fewer rights, and revoked together
 * with everything derived from them.
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
 * The frames lie in a memory file, and the addresses are the processor's. With MC_MAPPINGS_BOOKS there is
 * no memory, and addresses are only numbers: for a device's pages, or blocks of a cache on an
 * accelerator. For pages with one owner at a time use a pool (manycore/pages.h), which maps nothing.
 * There are no private mappings (pages that are copied when they are written). Other backings can be
 * written only in Rust. Only on Linux.
 *
 * Each page's mapping, alias and revocation is linearizable. An operation on several pages is complete
 * when it returns, or has changed nothing if it failed. Look-ups beside it may see a part of it.
 *
 * STALE ADDRESSES. When mc_mappings_revoke, mc_mappings_unmap or mc_space_end return, no derived mapping
 * resolves, in any space. The processor's mapping stays until the next flush. Until then an access
 * reaches the old frame, with the old rights, and never another frame, because neither frame nor address
 * is reused before. mc_mappings_flush unmaps at once. Otherwise operations that come a tick later do it,
 * or mc_mappings_tick.
 *
 * Look-ups are wait-free. Other operations lock one page's node at a time. Only mc_mappings_flush waits
 * for readers. With MC_MAPPINGS_BOOKS, lending a page and revoking it costs some 270 ns together. With
 * memory, it costs the system calls that map and unmap, one for each run of pages. Operations on
 * different pages write no common line. A mapping takes 64 bytes. Linux allows a process 65,530 mapped
 * runs (vm.max_map_count).
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

#define MC_RIGHTS_NONE 0 /* the mapping only names the frame */
#define MC_RIGHTS_READ 1
#define MC_RIGHTS_WRITE 2 /* and reading */

#define MC_MAPPINGS_BOOKS UINT64_C(1) /* no memory: frames and addresses are numbers */

/* Zero is the default of each field, except for SIZE. */
struct mc_mappings_options {
	size_t size; /* of this struct: MC_MAPPINGS_OPTIONS_INIT */
	uint64_t flags;
	uint64_t tick_us; /* time before frames and addresses are reused, at least; 10000 by default */
};

#define MC_MAPPINGS_OPTIONS_INIT { sizeof(struct mc_mappings_options), 0, 0 }

/* The mapping of a page. */
struct mc_mapping {
	uint32_t frame; /* its number, from 0 on; times 4,096: its place in the file */
	uint32_t rights;
};

/*
 * Makes new mappings of FRAMES frames, in *out. OPTIONS may be null. They are looked up in sections of
 * DOMAIN, or of the default domain if DOMAIN is null. The domain must outlive them. No memory is taken
 * before a page is touched. -EINVAL: OUT is null, FRAMES is 0, or an option is invalid. -EOPNOTSUPP: the
 * system's pages do not have 4,096 bytes. Otherwise the system's error.
 */
int mc_mappings_new(mc_mappings **out, const mc_domain *domain, uint32_t frames,
    const struct mc_mappings_options *options);

/* Frees mappings with all their spaces. No thread may use their addresses any more. Null is fine. */
void mc_mappings_free(mc_mappings *mappings);

/*
 * Makes a new address space with a window of PAGES pages. Stores its number, never 0, in *out. -EINVAL:
 * OUT is null, or PAGES is 0. -ENOSPC: more than 2^32 - 1 pages. Otherwise the system's error.
 */
int mc_space_new(mc_mappings *mappings, size_t pages, uint64_t *out);

/* Returns the first address of a space's window. Null: the space has ended, or never existed. */
void *mc_space_base(const mc_mappings *mappings, uint64_t space);

/*
 * Ends a space: unmaps all of it, with everything derived from it, in every space. Returns how many
 * mappings it removed. The number leads nowhere from then on. -ESRCH: the space has ended, or never
 * existed.
 */
ptrdiff_t mc_space_end(mc_mappings *mappings, uint64_t space);

/*
 * Maps PAGES new frames, which hold zeros, somewhere in a space. Stores the address in *out. -EINVAL: OUT
 * is null, PAGES is 0, or the rights are none of the three. -ENOMEM: there are not enough free frames.
 * -ENOSPC: no gap of the space is large enough. (A flush frees frames and addresses that wait to be
 * reused.) -ESRCH: no such space. Otherwise the system's error.
 */
int mc_mappings_grant(mc_mappings *mappings, uint64_t space, size_t pages, int rights, void **out);

/*
 * Maps the frames of the PAGES at AT in FROM also in TO, at *to_at. If *to_at is null, maps them
 * somewhere and stores the address in *to_at. Revoking the pages at AT removes the new mappings. -EINVAL:
 * no pages, a bad address, or a range that leaves its space. -ENOENT: a page at AT is not mapped.
 * -EEXIST: a page at *to_at is mapped, or was mapped and waits to be reused. -EACCES: more rights than
 * the pages at AT have. -ENOSPC, -ESRCH: as for mc_mappings_grant.
 */
int mc_mappings_alias(mc_mappings *mappings, uint64_t from, const void *at, size_t pages, uint64_t to,
    void **to_at, int rights);

/*
 * Removes every mapping that was derived from these pages, in every space, to any depth. Returns how many
 * it removed. The pages themselves stay mapped. -EINVAL: a bad range. -ENOENT: a page of it is not
 * mapped. -ESRCH: no such space.
 */
ptrdiff_t mc_mappings_revoke(mc_mappings *mappings, uint64_t space, const void *at, size_t pages);

/*
 * Removes the mappings of these pages and everything derived from them. Returns how many it removed.
 * Frames that were granted there are free after the next flush. Fails like mc_mappings_revoke.
 */
ptrdiff_t mc_mappings_unmap(mc_mappings *mappings, uint64_t space, const void *at, size_t pages);

/*
 * Like mc_mappings_revoke, and limits the pages themselves to these rights. -EACCES: a page has fewer
 * rights. Otherwise fails like mc_mappings_revoke, or with the system's error.
 */
ptrdiff_t mc_mappings_restrict(mc_mappings *mappings, uint64_t space, const void *at, size_t pages,
    int rights);

/* Private to the inline function below. */
int mc_mappings_resolve_(const mc_mappings *mappings, struct mc_thread_record_ *record, uint64_t space,
    const void *at, struct mc_mapping *out);

/*
 * Stores the mapping of the page with this address in *out, which may be null. The page stays mapped
 * until the calling thread closes its section of the mappings' domain. Wait-free. -ENOENT: it is not
 * mapped, or there is no such space.
 */
static inline int mc_mappings_resolve(const mc_mappings *mappings, uint64_t space, const void *at,
    struct mc_mapping *out)
{
	return mc_mappings_resolve_(mappings, MC_RECORD_, space, at, out);
}

/*
 * Unmaps what has waited long enough, and never waits itself. Returns how many mappings are gone. Call it
 * from a timer if the program may stop unmapping. What the system refuses waits for the next call, and
 * its error is returned.
 */
ptrdiff_t mc_mappings_tick(mc_mappings *mappings);

/*
 * Waits for the open sections, and unmaps everything that was removed before. From then on an access
 * faults, and the frames and addresses are free. Returns how many mappings are gone. -EDEADLK: inside
 * a section of the domain, or in a call-back. Otherwise like mc_mappings_tick.
 */
ptrdiff_t mc_mappings_flush(mc_mappings *mappings);

/* Returns how many removed mappings wait to be unmapped. Approximate while other threads run. */
size_t mc_mappings_pending(const mc_mappings *mappings);

/* Returns how many frames are free. Approximate while other threads run. */
size_t mc_mappings_free_frames(const mc_mappings *mappings);

/*
 * Returns the memory file of the frames, so that another process can map it. A revocation does not reach
 * that process's mappings. The file is closed with the mappings. -EOPNOTSUPP: with MC_MAPPINGS_BOOKS.
 */
int mc_mappings_fd(const mc_mappings *mappings);

#ifdef __cplusplus
}
#endif

#endif
