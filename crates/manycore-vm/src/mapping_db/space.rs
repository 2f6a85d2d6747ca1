//! An address space: a window of addresses with a slot for each page.
//!
//! ```text
//! free --claim--> claimed --publish--> node --its killer--> pending --flush--> free
//!   ^                |  |                                      ^
//!   +----unclaim-----+  +--killed before it was published------+
//! ```
//!
//! Laws:
//! - space.A1 A slot is *free*, *claimed* by one running operation, holds a node, or is *pending*:
//!   the node is dead, and the address waits for the gate. Free becomes claimed by
//!   compare-exchange. Claimed becomes a node or free by its claimer, or pending by the killer of a
//!   node that is not published yet. A node becomes pending by its killer. Pending becomes free in
//!   a flush.
//! - space.A2 A look-up is two loads: the leaf and the slot. It takes no lock and writes nothing.
//! - space.A3 An operation claims, fences, and checks whether the space has ended. The end marks
//!   the space, fences, and visits all slots, waiting for claimed ones. One of the two sees the
//!   other, so nothing is published in a space after its end has returned.
//! - space.A4 A leaf stays until the space is freed. A space is freed when it has ended, the
//!   sections that may have found it are over, and all its slots are free.

use crate::sync::{AtomicPtr, AtomicU32, Ordering, fence, yield_now};
use crate::{Error, ErrorKind, PAGE_BYTES};
use std::ptr;

/// Pages of a leaf.
pub(super) const LEAF: usize = if cfg!(manycore_loom) { 2 } else { 512 };

const fn free<N>() -> *mut N {
    ptr::null_mut()
}
const fn claimed<N>() -> *mut N {
    ptr::without_provenance_mut(1)
}
const fn pending<N>() -> *mut N {
    ptr::without_provenance_mut(2)
}

struct Leaf<N>([AtomicPtr<N>; LEAF]);

/// The pages of one address space.
pub(super) struct Window<N> {
    base: usize,
    pages: u32,
    leaves: Box<[AtomicPtr<Leaf<N>>]>,
    ended: AtomicU32,
}

/// The start of the search for a gap.
#[derive(Clone, Copy)]
pub(super) enum Near {
    From(u32),
    /// Behind this page, the last claimed page, and first in its leaf.
    Behind(u32),
}

/// Returns the node in a slot's value, if there is one.
fn node_in<N>(value: *mut N) -> Option<*mut N> {
    (value != free() && value != claimed() && value != pending()).then_some(value)
}

impl<N> Window<N> {
    pub(super) fn new(base: usize, pages: u32) -> Self {
        let leaves = (pages as usize).div_ceil(LEAF);
        let leaves = (0..leaves).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { base, pages, leaves, ended: AtomicU32::new(0) }
    }

    pub(super) fn base(&self) -> usize {
        self.base
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    pub(super) fn address(&self, page: u32) -> usize {
        self.base + page as usize * PAGE_BYTES
    }

    /// Checks that a range lies in this space, and returns its first page.
    #[inline]
    pub(super) fn check(&self, at: usize, n: usize) -> Result<u32, Error> {
        let refused = |kind| Err(Error::new(kind, at, n));
        if n == 0 {
            return refused(ErrorKind::ZeroPages);
        }
        if at % PAGE_BYTES != 0 {
            return refused(ErrorKind::Unaligned);
        }
        if n.checked_mul(PAGE_BYTES).and_then(|bytes| at.checked_add(bytes)).is_none() {
            return refused(ErrorKind::Wraps);
        }
        let first = at.checked_sub(self.base).map(|offset| offset / PAGE_BYTES);
        match first.filter(|first| first + n <= self.pages as usize) {
            Some(first) => Ok(first as u32),
            None => refused(ErrorKind::OutsideSpace),
        }
    }

    /// Returns the slot of a page, if its leaf exists (space.A2).
    #[inline]
    fn slot(&self, page: u32) -> Option<&AtomicPtr<N>> {
        // ORDER: Acquire; pairs with the compare-exchange in `leaf`: the slots.
        let leaf = self.leaves.get(page as usize / LEAF)?.load(Ordering::Acquire);
        // SAFETY: space.A4 - a leaf stays as long as the space.
        Some(unsafe { &leaf.as_ref()?.0[page as usize % LEAF] })
    }

    /// Returns the leaf of a page. Makes it if it is missing.
    fn leaf(&self, page: u32) -> &Leaf<N> {
        let link = &self.leaves[page as usize / LEAF];
        // ORDER: Acquire; pairs with the compare-exchange below: the slots.
        let mut leaf = link.load(Ordering::Acquire);
        if leaf.is_null() {
            let slots = std::array::from_fn(|_| AtomicPtr::new(free()));
            let made = Box::into_raw(Box::new(Leaf(slots)));
            // ORDER: SeqCst; publishes the slots, and comes before the fence of space.A3.
            let placed = link.compare_exchange(leaf, made, Ordering::SeqCst, Ordering::Acquire);
            leaf = match placed {
                Ok(_) => made,
                Err(other) => {
                    // SAFETY: made above, and published to no thread.
                    drop(unsafe { Box::from_raw(made) });
                    other
                }
            };
        }
        // SAFETY: space.A4 - a leaf stays as long as the space.
        unsafe { &*leaf }
    }

    /// Returns the node of a page, if the page is mapped.
    #[inline]
    pub(super) fn node(&self, page: u32) -> Option<*mut N> {
        // ORDER: Acquire; pairs with Release in `publish`: the node.
        node_in(self.slot(page)?.load(Ordering::Acquire))
    }

    /// Claims a range if all of it is free (space.A1).
    pub(super) fn claim(&self, first: u32, n: u32) -> Result<(), ErrorKind> {
        for page in first..first + n {
            let slot = &self.leaf(page).0[page as usize % LEAF];
            // ORDER: Acquire; pairs with Release in `free`: the page was unmapped before.
            let claimed =
                slot.compare_exchange(free(), claimed(), Ordering::Acquire, Ordering::Relaxed);
            if claimed.is_err() {
                self.unclaim(first, page - first);
                return Err(ErrorKind::Overlaps);
            }
        }
        fence(Ordering::SeqCst); // space.A3
        // BUG: an operation does not check whether the space has ended (space.A3).
        let looks = !crate::sync::seeded_bug!("vm-claim-in-ended-space");
        // ORDER: Relaxed; after the fence.
        if looks && self.ended.load(Ordering::Relaxed) != 0 {
            self.unclaim(first, n);
            return Err(ErrorKind::SpaceEnded);
        }
        Ok(())
    }

    /// Frees pages that were claimed but not published.
    pub(super) fn unclaim(&self, first: u32, n: u32) {
        for page in first..first + n {
            let slot = self.slot(page).expect("space.A1: claimed");
            // The killer of a node that was not published yet has made the slot pending.
            // ORDER: Release; pairs with `claim`.
            let _ = slot.compare_exchange(claimed(), free(), Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Claims `n` free pages in a row.
    ///
    /// Searches the leaf of `near`, and then leaves that are a multiple of `stride` away. Then it
    /// searches the leaves at half of `stride`, and then everywhere, wrapping around the end. So
    /// threads that began in leaves of their own stay apart, if there are fewer than `stride / 2`
    /// threads.
    pub(super) fn claim_gap(&self, n: u32, near: Near, stride: u32) -> Result<u32, ErrorKind> {
        const PAGES: u32 = LEAF as u32;
        let (of_leaf, from) = match near {
            Near::From(page) => (page, page),
            Near::Behind(page) => (page, page.wrapping_add(1)),
        };
        let (mut leaf, leaves) = (of_leaf / PAGES, self.leaves.len() as u32);
        let (mut start, each) = (from, leaves.div_ceil(stride));
        for turn in 0..if n <= PAGES { 2 * each } else { 0 } {
            if leaf < leaves {
                let end = (leaf + 1).saturating_mul(PAGES).min(self.pages);
                if let Some(first) = self.claim_within(n, start, end)? {
                    return Ok(first);
                }
            }
            leaf = if leaf.saturating_add(stride) < leaves { leaf + stride } else { leaf % stride };
            if turn + 1 == each {
                leaf = (leaf + stride / 2) % stride;
            }
            start = leaf * PAGES;
        }
        let from = if from < self.pages { from } else { 0 };
        for (start, end) in [(from, self.pages), (0, self.pages.min(from.saturating_add(n)))] {
            if let Some(first) = self.claim_within(n, start, end)? {
                return Ok(first);
            }
        }
        Err(ErrorKind::NoAddresses)
    }

    /// Claims the first `n` free pages in a row in this range, if there are any.
    fn claim_within(&self, n: u32, mut start: u32, end: u32) -> Result<Option<u32>, ErrorKind> {
        let mut page = start;
        while page < end {
            let free = match self.slot(page) {
                None => (page / LEAF as u32 + 1).saturating_mul(LEAF as u32), // skip the whole leaf
                // ORDER: Relaxed; the claim decides.
                Some(slot) if slot.load(Ordering::Relaxed).is_null() => page + 1,
                Some(_) => {
                    page += 1;
                    start = page;
                    continue;
                }
            };
            page = free.min(end);
            if page - start >= n {
                match self.claim(start, n) {
                    Ok(()) => return Ok(Some(start)),
                    Err(ErrorKind::SpaceEnded) => return Err(ErrorKind::SpaceEnded),
                    // Another thread was faster: search again from there.
                    Err(_) => page = start + 1,
                }
                start = page;
            }
        }
        Ok(None)
    }

    /// Publishes a node in a claimed page. Returns false if the node was killed before.
    #[inline]
    pub(super) fn publish(&self, page: u32, node: *mut N) -> bool {
        let slot = self.slot(page).expect("space.A1: claimed");
        // ORDER: Release; pairs with `node`: the node, and that it is mapped.
        slot.compare_exchange(claimed(), node, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Makes a page pending: its node is dead.
    #[inline]
    pub(super) fn clear(&self, page: u32) {
        let slot = self.slot(page).expect("space.A1: it had a node");
        // A swap, because a claimer may publish the node at the same time (space.A1).
        // ORDER: AcqRel; pairs with `await_clear` and `node`: the nodes killed below it.
        slot.swap(pending(), Ordering::AcqRel);
    }

    /// Waits until the killer of a node has made its page pending. Then all nodes below are dead.
    pub(super) fn await_clear(&self, page: u32, node: *mut N) {
        // ORDER: Acquire, in `node`; pairs with `clear`.
        while self.node(page) == Some(node) {
            yield_now();
        }
    }

    /// Frees a pending page after it was unmapped.
    pub(super) fn free(&self, page: u32) {
        let slot = self.slot(page).expect("space.A1: it had a node");
        // ORDER: Release; pairs with `claim`.
        slot.store(free(), Ordering::Release);
    }

    /// Marks the space as ended (space.A3).
    pub(super) fn end(&self) {
        // ORDER: Relaxed; before the fence, which pairs with the one in `claim`.
        self.ended.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Iterates over the pages that have a leaf.
    pub(super) fn used_pages(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.pages)
            .step_by(LEAF)
            .filter(|page| self.slot(*page).is_some())
            .flat_map(|start| start..self.pages.min(start.saturating_add(LEAF as u32)))
    }

    /// Like [`node`](Self::node), but waits for an operation that has claimed the page (space.A3).
    pub(super) fn settled_node(&self, page: u32) -> Option<*mut N> {
        let slot = self.slot(page)?;
        loop {
            // ORDER: Acquire; as in `node`.
            let value = slot.load(Ordering::Acquire);
            if value != claimed() {
                return node_in(value);
            }
            yield_now();
        }
    }

    /// Returns true if all slots are free (space.A4).
    pub(super) fn is_free(&self) -> bool {
        self.used_pages().all(|page| {
            // ORDER: Acquire; pairs with the flush that freed the slot, or the claimer that gave
            // up.
            self.slot(page).is_none_or(|slot| slot.load(Ordering::Acquire) == free())
        })
    }
}

impl<N> Drop for Window<N> {
    fn drop(&mut self) {
        for link in &self.leaves {
            // ORDER: Acquire; pairs with the compare-exchange in `leaf`.
            let leaf = link.load(Ordering::Acquire);
            if !leaf.is_null() {
                // SAFETY: space.A4 - `leaf` made it, and no thread has the space any more.
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_taken_leaf_by_leaf_of_one_class_and_then_anywhere() {
        const PAGES: u32 = LEAF as u32;
        let window = Window::<u64>::new(PAGE_BYTES, 8 * PAGES + 3);
        let mut near = Near::From(PAGES);
        let mut leaves = Vec::new();
        for _ in 0..8 * PAGES + 3 {
            let page = window.claim_gap(1, near, 4).unwrap();
            leaves.push(page / PAGES);
            near = Near::Behind(page);
        }
        leaves.dedup();
        assert_eq!(leaves, [1, 5, 3, 7, 8, 0, 4, 2, 6]);
        assert_eq!(window.claim_gap(1, near, 4), Err(ErrorKind::NoAddresses));
        window.unclaim(PAGES - 2, 4);
        assert_eq!(window.claim_gap(4, near, 4), Ok(PAGES - 2), "a gap across leaves");
    }
}
