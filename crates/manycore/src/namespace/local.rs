//! The state of one slot in one namespace: its free blocks, and its accounts.

use super::pool::{CLASSES, OwnedMagazine, Pool};
use super::trie::NodeSlot;
use crate::sync::{AtomicU64, Ordering, seeded_bug};
use std::cell::{Cell, OnceCell};

/// Flag in `account`: the namespace has been dropped.
const CLOSED: u64 = 1;

/// Free blocks of one class.
#[derive(Default)]
struct List {
    /// Magazine from which blocks are taken and to which they go.
    loaded: Cell<Option<OwnedMagazine>>,
    /// A second magazine, so that taking and giving at a magazine's end needs no stack.
    spare: Cell<Option<OwnedMagazine>>,
    /// Full magazines on their way from limbo to the slot's next inserts, and the empty ones left
    /// over.
    full: Cell<Vec<OwnedMagazine>>,
    empty: Cell<Vec<OwnedMagazine>>,
    /// The unused rest of a chunk.
    fresh: Cell<Fresh>,
}

/// Unused blocks of one chunk.
#[derive(Clone, Copy)]
pub(super) struct Fresh {
    pub(super) slot: *mut (),
    pub(super) index: u32,
    pub(super) blocks: u32,
}

impl Default for Fresh {
    fn default() -> Self {
        Self { slot: std::ptr::null_mut(), index: 0, blocks: 0 }
    }
}

/// One slot's part of a namespace. Only the slot's owner touches it (law percpu.P2), except
/// `account` and `live`, which others read.
#[repr(align(128))]
pub(super) struct Local {
    /// Single ids.
    ones: List,
    /// Extents, at their class minus one.
    extents: OnceCell<Box<[List; CLASSES - 1]>>,
    /// Nodes inserted minus nodes removed, modulo 2^64.
    live: AtomicU64,
    /// Twice (blocks that came back minus blocks retired), and `CLOSED`.
    account: AtomicU64,
    /// True while the owner is in a removal. A removal borrows the namespace, which therefore
    /// stays.
    is_removing: Cell<bool>,
}

// SAFETY: everything but the atomics is accessed by the slot's owner alone, one thread at a time,
// handed over by Release and Acquire (percpu.P2). The thread that drops the namespace's state
// accesses it, too, when no other thread has it (namespace.N7). The addresses are those of the
// state's slots.
unsafe impl Send for Local {}
// SAFETY: a shared part gives out `account` and `live`, which are atomic. All else is touched by
// the slot's owner alone (percpu.P2), or by the state's drop (namespace.N7).
unsafe impl Sync for Local {}

impl From<usize> for Local {
    fn from(_: usize) -> Self {
        Self {
            ones: List::default(),
            extents: OnceCell::new(),
            live: AtomicU64::new(0),
            account: AtomicU64::new(0),
            is_removing: Cell::new(false),
        }
    }
}

fn pop_held(stack: &Cell<Vec<OwnedMagazine>>) -> Option<OwnedMagazine> {
    let mut held = stack.take();
    let top = held.pop();
    stack.set(held);
    top
}

fn push_held(stack: &Cell<Vec<OwnedMagazine>>, top: OwnedMagazine) {
    let mut held = stack.take();
    held.push(top);
    stack.set(held);
}

impl List {
    /// Takes a block that was freed.
    #[inline(always)]
    fn pop(&self, pool: &Pool) -> Option<*mut ()> {
        let loaded = self.loaded.take()?;
        let block = pool.with(&loaded, |blocks| blocks.pop());
        self.loaded.set(Some(loaded));
        block.or_else(|| self.pop_spare(pool))
    }

    #[cold]
    fn pop_spare(&self, pool: &Pool) -> Option<*mut ()> {
        let mut spare = self.spare.take()?;
        let mut block = pool.with(&spare, |blocks| blocks.pop());
        if block.is_none() {
            let next = pop_held(&self.full);
            if let Some(next) = next {
                push_held(&self.empty, std::mem::replace(&mut spare, next));
                block = pool.with(&spare, |blocks| blocks.pop());
            }
        }
        self.spare.set(self.loaded.replace(Some(spare)));
        block
    }

    /// Keeps a block. Blocks beyond the room of these magazines go to the shared pool.
    #[inline(always)]
    fn push(&self, class: usize, block: *mut (), pool: &Pool) {
        if let Some(loaded) = self.loaded.take() {
            let kept = pool.push_to(&loaded, class, block);
            self.loaded.set(Some(loaded));
            if kept {
                return;
            }
        }
        self.push_spare(class, block, pool);
    }

    #[cold]
    fn push_spare(&self, class: usize, block: *mut (), pool: &Pool) {
        let mut next = self.spare.take().unwrap_or_else(|| pool.take_empty());
        if !pool.push_to(&next, class, block) {
            let kept = self.full.take();
            let has_room = class == 0 && kept.len() < pool.kept;
            self.full.set(kept);
            if has_room {
                push_held(&self.full, next);
            } else {
                pool.give_full(class, next);
            }
            next = pop_held(&self.empty).unwrap_or_else(|| pool.take_empty());
            pool.push_to(&next, class, block);
        }
        self.spare.set(self.loaded.replace(Some(next)));
    }

    /// Takes a block that others have freed.
    fn refill(&self, class: usize, pool: &Pool) -> Option<*mut ()> {
        let full = pool.take_full(class)?;
        let block = pool.with(&full, |blocks| blocks.pop());
        if let Some(empty) = self.loaded.replace(Some(full)) {
            pool.give_empty(empty); // `pop` found nothing in it, nor in the other
        }
        block
    }
}

impl Local {
    #[inline(always)]
    fn list(&self, class: usize) -> &List {
        match class {
            0 => &self.ones,
            _ => &self.more()[class - 1],
        }
    }

    #[cold]
    fn more(&self) -> &[List; CLASSES - 1] {
        self.extents.get_or_init(|| Box::new(std::array::from_fn(|_| List::default())))
    }

    /// Takes a block that was in use before, from the slot's own magazines.
    #[inline(always)]
    pub(super) fn pop(&self, class: usize, pool: &Pool) -> Option<*mut ()> {
        self.list(class).pop(pool)
    }

    /// Takes a block that was never in use, from a chunk that the slot has.
    #[inline(always)]
    pub(super) fn pop_fresh<T>(&self, class: usize) -> Option<(*mut NodeSlot<T>, u32)> {
        let fresh = &self.list(class).fresh;
        let Fresh { slot, index, blocks } = fresh.get();
        let blocks = blocks.checked_sub(1)?;
        let slot = slot.cast::<NodeSlot<T>>();
        // A wrapping step, because the last one may lead behind the leaf.
        let next = slot.wrapping_add(1 << class).cast();
        fresh.set(Fresh { slot: next, index: index.wrapping_add(1 << class), blocks });
        Some((slot, index))
    }

    pub(super) fn set_fresh(&self, class: usize, fresh: Fresh) {
        let list = self.list(class);
        debug_assert!(list.fresh.get().blocks == 0, "namespace.N6: unused blocks are dropped");
        list.fresh.set(fresh);
    }

    pub(super) fn refill(&self, class: usize, pool: &Pool) -> Option<*mut ()> {
        self.list(class).refill(class, pool)
    }

    #[inline(always)]
    pub(super) fn push(&self, class: usize, block: *mut (), pool: &Pool) {
        self.list(class).push(class, block, pool);
    }

    /// Counts nodes in (or, wrapping, out). Called by the owner.
    #[inline(always)]
    pub(super) fn count(&self, nodes: u64) {
        // ORDER: Relaxed; the owner's own word, and for others a report.
        let live = self.live.load(Ordering::Relaxed).wrapping_add(nodes);
        self.live.store(live, Ordering::Relaxed);
    }

    pub(super) fn live(&self) -> u64 {
        // ORDER: Relaxed; a report.
        self.live.load(Ordering::Relaxed)
    }

    /// Counts a block in or out while the namespace exists. Called by the owner.
    #[inline(always)]
    fn book(&self, change: u64) {
        // ORDER: Relaxed; the owner's own word until the namespace is dropped, and then the
        // dropping thread has it alone.
        let account = self.account.load(Ordering::Relaxed);
        debug_assert!(account & CLOSED == 0, "namespace.N7: a block is booked after the end");
        self.account.store(account.wrapping_add(change), Ordering::Relaxed);
    }

    /// Counts out a block that is about to be retired. Called by the owner.
    #[inline(always)]
    pub(super) fn debit(&self) {
        self.book(2_u64.wrapping_neg());
    }

    /// Runs `retire`, which retires a block, as part of a removal: blocks that come back meanwhile
    /// are credited by a load and a store. Called by the owner.
    #[inline(always)]
    pub(super) fn in_removal(&self, retire: impl FnOnce()) {
        /// Also if a destructor panics.
        struct Removing<'a>(&'a Cell<bool>, bool);
        impl Drop for Removing<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        let outer = self.is_removing.replace(true); // a destructor removes nodes, too
        let _removing = Removing(&self.is_removing, outer);
        retire();
    }

    /// Credits a block while the caller borrows the namespace (namespace.N7).
    #[inline(always)]
    pub(super) fn credit_borrowed(&self) {
        self.book(2);
    }

    /// Counts a block that has come back. Returns false if the account is closed. Called by the
    /// owner; if this returns true, the namespace may be gone afterwards.
    #[inline(always)]
    pub(super) fn credit(&self) -> bool {
        // BUG: a block is credited by a load and a store when the namespace may be dropped between
        // the two (namespace.N7).
        if self.is_removing.get() || seeded_bug!("unborrowed-credit") {
            self.credit_borrowed();
            return true;
        }
        // ORDER: Release; pairs with Acquire in `close`: what was done with the block before the
        // namespace goes.
        self.account.fetch_add(2, Ordering::Release) & CLOSED == 0
    }

    /// Closes the account. Returns how many more blocks were retired here than came back here,
    /// modulo 2^64.
    pub(super) fn close(&self) -> u64 {
        // ORDER: Acquire; see `credit`.
        let account = self.account.swap(CLOSED, Ordering::Acquire);
        debug_assert!(account & CLOSED == 0, "namespace.N7: an account is closed twice");
        (account as i64 >> 1).wrapping_neg() as u64
    }
}
