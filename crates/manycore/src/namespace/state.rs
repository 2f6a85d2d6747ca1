//! State that the threads of a namespace share: laws namespace.N3 to namespace.N7 of the parent
//! module.

use super::id::{HELD, Id, LAST_GENERATION, dead, generation_in, index_in};
use super::local::{Fresh, Local};
use super::pool::Pool;
use super::trie::{self, INDEX_BITS, NodeSlot};
use crate::percpu::{self, segmented::Segmented};
use crate::sync::{AtomicPtr, AtomicU64, LoadToChange, Ordering, UnsafeCell, seeded_bug};
use std::ptr::{self, NonNull};

/// The trie of a namespace, and a leaf of it.
pub(super) type Trie<T> = trie::Trie<T, State<T>>;
pub(super) type Leaf<T> = trie::Leaf<T, State<T>>;

/// Value of `late` while the namespace exists.
const OPEN: u64 = 1 << 62;

/// A value alone on its cache lines.
#[repr(align(128))]
struct Line<T>(T);

/// A namespace without its trie, which is beside it while the namespace exists.
pub(super) struct State<T> {
    locals: Segmented<Local>,
    pool: Pool,
    /// The first unused index.
    frontier: Line<AtomicU64>,
    /// `OPEN`, minus the blocks that came back without an account, or to a closed one. When the
    /// namespace is dropped, all accounts are settled here. The thread that brings it to zero frees
    /// the state (namespace.N7).
    late: Line<AtomicU64>,
    /// Number of blocks that have had their last generation.
    worn: AtomicU64,
    /// The trie of a namespace that has been dropped.
    orphans: UnsafeCell<Option<Trie<T>>>,
    /// The pointer from the state's box, for the leaves: their last block frees the state by it,
    /// which a pointer made of a reference must not do.
    own: AtomicPtr<Self>,
}

/// A free block that this thread owns: its first slot, its index, and its last generation.
pub(super) struct Block<T> {
    pub(super) slot: *mut NodeSlot<T>,
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl<T> State<T> {
    /// Makes a state that is freed when all accounts are settled (namespace.N7).
    pub(super) fn leak() -> NonNull<Self> {
        let state = NonNull::from(Box::leak(Box::new(Self::new())));
        // SAFETY: just made.
        // ORDER: Relaxed; shown by whatever shows the state.
        unsafe { (*state.as_ptr()).own.store(state.as_ptr(), Ordering::Relaxed) };
        state
    }

    fn new() -> Self {
        Self {
            own: AtomicPtr::new(ptr::null_mut()),
            locals: Segmented::new(),
            pool: Pool::new(size_of::<NodeSlot<T>>()),
            frontier: Line(AtomicU64::new(0)),
            late: Line(AtomicU64::new(OPEN)),
            worn: AtomicU64::new(0),
            orphans: UnsafeCell::new(None),
        }
    }

    #[inline(always)]
    pub(super) fn local(&self, slot: usize) -> &Local {
        match self.locals.get_near(slot) {
            Some(local) => local,
            None => self.make_local(slot),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_local(&self, slot: usize) -> &Local {
        self.locals.get_or_init(slot)
    }

    /// Returns the number of nodes inserted minus nodes removed.
    pub(super) fn live(&self) -> u64 {
        self.locals.iter().fold(0, |sum, (_, local)| sum.wrapping_add(local.live()))
    }

    /// Returns one past the highest index that may be in use.
    pub(super) fn end(&self) -> u64 {
        // ORDER: Relaxed; a holder of an id knows its leaf by other means.
        self.frontier.0.load(Ordering::Relaxed)
    }

    /// Takes a block of this class, or returns `None` if there are no indices left for one
    /// (namespace.N6).
    #[inline(always)]
    pub(super) fn take(&self, local: &Local, class: usize, trie: &Trie<T>) -> Option<Block<T>> {
        if let Some(block) = local.pop(class, &self.pool) {
            return Some(Block::used(block));
        }
        self.take_other(local, class, trie)
    }

    #[cold]
    fn take_other(&self, local: &Local, class: usize, trie: &Trie<T>) -> Option<Block<T>> {
        if let Some((slot, index)) = local.pop_fresh(class) {
            return Some(Block { slot, index, generation: 0 });
        }
        if let Some(block) = local.refill(class, &self.pool) {
            return Some(Block::used(block));
        }
        self.take_chunk(local, class, trie)?;
        let (slot, index) = local.pop_fresh(class)?;
        Some(Block { slot, index, generation: 0 })
    }

    /// Takes a chunk from the frontier: one instruction on a line that all threads share.
    fn take_chunk(&self, local: &Local, class: usize, trie: &Trie<T>) -> Option<()> {
        let log = class.max(Leaf::<T>::CHUNK_BITS as usize);
        let ids = 1_u64 << log;
        let next = |start: u64| Some(start + ids).filter(|end| *end <= 1 << INDEX_BITS);
        // ORDER: Relaxed; only the numbers count. Not beyond the end, so that what does not fit one
        // class is there for the others.
        let start =
            self.frontier.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let index = start as u32;
        let slot = self.make_slots(index, ids, trie).cast();
        debug_assert!(
            index.trailing_zeros() >= Leaf::<T>::CHUNK_BITS || index == 0,
            "namespace.N6: a chunk begins amid another"
        );
        trie.set_class(index, class);
        local.set_fresh(class, Fresh { slot, index, blocks: 1 << (log - class) });
        Some(())
    }

    /// Makes the leaves of a chunk, linked to one another. Returns the first slot.
    fn make_slots(&self, index: u32, ids: u64, trie: &Trie<T>) -> *mut NodeSlot<T> {
        // ORDER: Relaxed; written before the state was shown.
        let own = self.own.load(Ordering::Relaxed);
        let leaf = trie.make(index, own);
        let mut last = leaf;
        let (len, offset) = (Leaf::<T>::LEN, index as usize % Leaf::<T>::LEN);
        for more in ((len - offset) as u64..ids).step_by(len) {
            let next = trie.make(index + more as u32, own);
            // SAFETY: namespace.N2 - a leaf, of a trie that the caller borrows.
            // ORDER: Relaxed; read by holders of an id of this chunk, which is published
            // afterwards.
            unsafe { (*last).next.store(next, Ordering::Relaxed) };
            last = next;
        }
        // SAFETY: namespace.N2 - a leaf, and the offset is a remainder.
        unsafe { Leaf::slot(leaf, offset) }
    }

    /// Makes a block free again after its grace period. Its content has been dropped.
    ///
    /// # Safety
    /// The caller has the block to itself, and `local` is its own.
    #[inline(always)]
    unsafe fn recycle(&self, local: Option<&Local>, slot: *mut NodeSlot<T>, class: usize) {
        // SAFETY: namespace.N2 - slots live as long as the state.
        let word = unsafe { &(*slot).word };
        // ORDER: Relaxed; the caller's own, and readers take any dead word alike. It comes before
        // the next use by the slot's owner, or by the stacks of the pool.
        let last = word.load_to_change(Ordering::Relaxed);
        debug_assert!(Id::in_word(last).is_none(), "namespace.N4: a live node's slot is free");
        word.store(last & !HELD, Ordering::Relaxed);
        if generation_in(last) == LAST_GENERATION {
            // ORDER: Relaxed; a report.
            self.worn.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match local {
            Some(local) => local.push(class, slot.cast(), &self.pool),
            None => {
                let held = self.pool.take_empty();
                let has_room = self.pool.push_to(&held, class, slot.cast());
                debug_assert!(has_room, "namespace.N6: an empty magazine has no room");
                self.pool.give_full(class, held);
            }
        }
    }

    /// Gives back a block that was taken. User code has seen its ids before it panicked, so they
    /// count as used (namespace.N5).
    pub(super) fn untake(&self, local: &Local, class: usize, block: &Block<T>) {
        // SAFETY: namespace.N2; and the block is the caller's.
        let word = unsafe { &(*block.slot).word };
        // ORDER: Relaxed; as in `recycle`. (A fresh one's word is zero and has no index yet.)
        word.store(dead(block.index, block.next_generation(), 0), Ordering::Relaxed);
        // SAFETY: namespace.N2; the block is the caller's, and its word says what is to be next.
        unsafe { self.recycle(Some(local), block.slot, class) };
    }

    /// Makes a block free that has come back from the section; what it held has been dropped.
    /// Afterwards the state may be gone.
    ///
    /// # Safety
    /// Called once for each block for which `Local::debit` was called, with its state.
    pub(super) unsafe fn come_back(state: *const Self, slot: *mut NodeSlot<T>, class: usize) {
        // SAFETY: namespace.N7 - the state stays until this block has been credited.
        let locals = unsafe { &(*state).locals };
        match percpu::known_slot().and_then(|own| locals.get_near(own)) {
            // SAFETY: as the caller promises (# Safety); the part is that of the thread's slot.
            Some(local) => unsafe { Self::come_back_to(state, Some(local), slot, class) },
            // SAFETY: as the caller promises (# Safety).
            None => unsafe { Self::come_back_far(state, slot, class) },
        }
    }

    /// Same as [`come_back`](Self::come_back), if the thread's part is not near, or there is none.
    ///
    /// # Safety
    /// That of `come_back`.
    #[cold]
    #[inline(never)]
    unsafe fn come_back_far(state: *const Self, slot: *mut NodeSlot<T>, class: usize) {
        percpu::with_own_slot(|own| {
            // SAFETY: namespace.N7 - the state stays until this block has been credited.
            let local = unsafe { (*state).locals.get(own.index()) };
            // SAFETY: as the caller promises (# Safety); the part is that of the thread's slot.
            unsafe { Self::come_back_to(state, local, slot, class) };
        });
    }

    /// # Safety
    /// That of `come_back`; `local` is that of the thread's slot.
    #[inline(always)]
    unsafe fn come_back_to(
        state: *const Self,
        local: Option<&Local>,
        slot: *mut NodeSlot<T>,
        class: usize,
    ) {
        // SAFETY: namespace.N7 - the state stays until this block has been credited, or counted in
        // `late`; and this reference is used no more after that. No section can see the block.
        let is_over = unsafe {
            (*state).recycle(local, slot, class);
            !local.is_some_and(Local::credit)
        };
        if is_over {
            // SAFETY: namespace.N7 - the block was retired with a debit and not credited, so `late`
            // counts it. The state stays until `commit_wait` has taken it off, and no reference to
            // the state is left.
            unsafe { Self::settle(state.cast_mut(), 1) };
        }
    }

    /// Takes `blocks` off `late`, and frees the state if nothing is left.
    ///
    /// # Safety
    /// namespace.N7: the caller accounts for `blocks`, and does not use the state afterwards.
    unsafe fn settle(state: *mut Self, blocks: u64) {
        // SAFETY: namespace.N7 - the caller promises that `late` counts so many blocks for it
        // (# Safety), so the state stays until they are taken off; the reference ends with that.
        // ORDER: AcqRel; everything that others did with the state comes before its end.
        let before = unsafe { &*state }.late.0.fetch_sub(blocks, Ordering::AcqRel);
        debug_assert!(before >= blocks, "namespace.N7: more blocks came back than were retired");
        if before == blocks && !crate::sync::model_failed() {
            // SAFETY: namespace.N7 - made by `Box::leak`, and this was the last account.
            drop(unsafe { Box::from_raw(state) });
        }
    }

    /// Closes a namespace that goes. The state follows when the last block has come back
    /// (namespace.N7).
    ///
    /// # Safety
    /// No other thread has the namespace, and `state` came from `Box::leak`.
    pub(super) unsafe fn close(state: NonNull<Self>, trie: Trie<T>) {
        let state = state.as_ptr();
        // SAFETY: `orphans` is accessed when the namespace is dropped and when the state is, which
        // the accounts order; blocks that come back in between access other fields.
        unsafe { (*state).orphans.with_mut(|orphans| *orphans = Some(trie)) };
        // SAFETY: namespace.N7 - the state stays until `late` is settled below.
        let locals = unsafe { &(*state).locals };
        // No account is opened concurrently: only the owner of the namespace does that.
        let away = locals.iter().fold(0, |sum: u64, (_, local)| sum.wrapping_add(local.close()));
        // SAFETY: the accounts are settled, and this is the last use.
        unsafe { Self::settle(state, OPEN.wrapping_sub(away)) }
    }

    #[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
    pub(super) fn worn(&self) -> u64 {
        self.worn.load(Ordering::Relaxed)
    }

    #[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
    pub(super) fn set_frontier(&self, index: u64) {
        self.frontier.0.store(index, Ordering::Relaxed);
    }
}

impl<T> Block<T> {
    /// Returns the generation of the block's next ids (namespace.N5).
    #[inline(always)]
    pub(super) fn next_generation(&self) -> u32 {
        // BUG: a slot's next id has the generation of its last one (namespace.N5).
        if seeded_bug!("same-generation") { 1 } else { self.generation + 1 }
    }

    /// Makes a block that was in use before.
    #[inline(always)]
    fn used(slot: *mut ()) -> Self {
        let slot = slot.cast::<NodeSlot<T>>();
        // SAFETY: namespace.N2; it came from a list of free blocks of this state, which keeps the
        // trie's slots, so it is one.
        // ORDER: Relaxed; the block is the caller's (see `State::recycle`).
        let word = unsafe { &(*slot).word }.load(Ordering::Relaxed);
        debug_assert!(
            Id::in_word(word).is_none() && word & HELD == 0,
            "namespace.N6: a free block's slot has a node"
        );
        debug_assert!(
            (1..LAST_GENERATION).contains(&generation_in(word)),
            "namespace.N5: a free block has had its last generation, or none"
        );
        Self { slot, index: index_in(word), generation: generation_in(word) }
    }
}
