//! The count of a `ScalableArc`: one word while cold, a row per slot while hot.
//!
//! Owns: the count, its promotion and folding, and the decision that it is zero. Does not own: the
//! value and its memory. The word and its states are in `word`. How threads enter the rows, and how
//! a fold waits for them, is in [`promotion`].
//!
//! ```text
//!            promote                    the last central handle is dropped
//!   COLD  ------------->  HOT  ------------------------------------------->  FOLDING
//!    ^  count in the word      owners in the word, others in rows               |
//!    '------------------- the rows are added to the word <----------------------'
//! ```
//!
//! Laws:
//! - count.A1 The number of handles is the central count plus the sum of all rows. A row may
//!   be negative: its slot has dropped handles that other slots made. While cold, the rows are
//!   empty.
//! - count.A2 While hot (and not folding), the central count is exactly the number of
//!   central handles, and at least one. So the object is alive whatever the rows hold, and their
//!   sum is not needed. The drop of the last central handle folds first, and keeps its handle until
//!   the fold is over.
//! - count.A3 Zero is decided only while cold, by the exchange that takes the word from one
//!   to zero. The flags are in the same word, so no drop takes a hot object for a cold one. A drop
//!   that finds the word at one, and then no side, needs no exchange. Its handle is the only
//!   handle, and there is no weak handle to make another from (count.A9).
//! - count.A4 Only its slot's owner writes a row, with plain stores, between announcing the
//!   side and withdrawing the announcement. After the announcement it has seen that the word is
//!   hot, with flags and period unchanged. One thread sums and frees the rows: it has set FOLDING,
//!   has passed the barrier, and has seen no record that announces the side (barrier.B1). So no
//!   updater is in the middle of a change when the sum is taken. The folding thread waits for an
//!   updater that announced before; an updater that announces later sees FOLDING and does not touch
//!   the rows.
//! - count.A5 While folding, all threads count in the word, so its count may be below zero
//!   until the rows are added. The folding thread has a handle. So the count is at least one once
//!   the rows are added.
//! - count.A6 An object becomes hot at most 15 times, because a tag has four bits. Then it
//!   stays cold.
//! - count.A7 While the object is hot, a thread without a handle may make one (from a weak
//!   handle). The thread has announced the side and seen HOT, so count.A2 holds until it
//!   withdraws the announcement.
//! - count.A8 A change makes the generation odd before it begins and even when it is over.
//!   Take a reader that reads an even generation, then what the change writes, then makes a handle,
//!   and then finds the same generation. It has read a consistent state, and its handle refers to
//!   that state.
//! - count.A9 A handle is the only one if the count is one while the weak count is locked at
//!   none. No weak handle exists that could be upgraded after the look at the count, and none is
//!   made. Without a side there never was a weak handle.
//!
//! Source: OpLog, section 3 (the count of directory entries) and REQUIREMENTS O-11, O-20. The paper
//! has no rule for detecting zero; central handles and the fold are not in it.

mod weak_count;

use super::super::Line;
use super::contention;
use super::word::{CENTRAL, ONE_MORE, TOO_MANY, Word};
use crate::config;
use crate::oplog::promotion;
use crate::oplog::table::{self, Folding};
use crate::percpu::segmented::Segmented;
use crate::percpu::{self, Slot, barrier};
use crate::sync::{
    self, AtomicU64, AtomicUsize, Backoff, LoadToChange, Ordering, UnsafeCell, fence, global,
};

/// Objects that may be hot at the same time, at most.
const HOT_OBJECTS: usize = config::DEFAULT_TABLE_OBJECTS;

global! {
    /// Number of objects that are hot now. It bounds memory, so a thread raises it before an object
    /// becomes hot and lowers it after a fold.
    static HOT_NOW: AtomicUsize = AtomicUsize::new(0);
}

/// The weak count while a thread checks whether its handle is the only one (count.A9).
const LOCKED: u64 = u64::MAX;

/// One slot's part of the count.
#[repr(align(128))]
struct Row(AtomicU64);

impl From<usize> for Row {
    fn from(_: usize) -> Self {
        Self(AtomicU64::new(0))
    }
}

/// The rows, the weak count and the generation. Allocated when the object first becomes hot or has
/// a weak handle; freed with the object.
#[repr(C, align(128))]
struct Side {
    /// Weak handles, plus one for all strong handles together.
    weak: Line<AtomicU64>,
    /// Whether announcements are plain stores and the folding thread pays the barrier.
    biased: bool,
    /// Twice the number of changes so far; odd during a change (count.A8).
    generation: Line<AtomicU64>,
    /// Shared while announced, exclusive while folding (count.A4); loom checks it.
    rows: UnsafeCell<Segmented<Row>>,
}

impl promotion::State for Side {
    const RUNS_USER_CODE: bool = false;
}

/// The count.
pub(super) struct Head {
    count: AtomicU64,
    /// Zero, or the side as its updaters announce it ([`promotion::updater`]).
    side: AtomicUsize,
}

/// Returns the sum of the rows. Exact only while no updater writes them.
fn sum(rows: &Segmented<Row>) -> u64 {
    // ORDER: Relaxed; a caller that needs it exact has stopped the updaters (count.A4).
    rows.iter().fold(0, |sum, (_, row)| sum.wrapping_add(row.0.load(Ordering::Relaxed)))
}

/// Adds to the row that `find` returns. Returns false if it returns none.
///
/// # Safety
/// The calling thread has entered the side, and the row is its slot's.
#[inline(always)]
unsafe fn add_to(
    side: &Side,
    find: impl for<'a> FnOnce(&'a Segmented<Row>) -> Option<&'a Row>,
    n: u64,
) -> bool {
    side.rows.with(|rows| {
        // SAFETY: count.A4 - announced, and checked after that (# Safety): only a folding
        // thread changes the table of rows, and it waits for this thread.
        let Some(row) = find(unsafe { &*rows }) else { return false };
        // ORDER: Relaxed (both); single writer (count.A4).
        row.0.store(row.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        true
    })
}

impl Head {
    /// Starts with one handle, which is central.
    pub(super) fn new() -> Self {
        Self { count: AtomicU64::new(Word::NEW.0), side: AtomicUsize::new(0) }
    }

    /// Returns the word. The caller has a handle.
    #[inline(always)]
    pub(super) fn look(&self) -> Word {
        // ORDER: Acquire; pairs with Release in `promote`: the side before HOT.
        Word(self.count.load_to_change(Ordering::Acquire))
    }

    /// Counts another handle in the word. The caller has a handle. Correct in every state: if the
    /// object becomes hot first, there is one more central handle (count.A2).
    #[inline(always)]
    pub(super) fn acquire_central(&self) {
        // ORDER: Relaxed; the caller's handle keeps the object alive.
        self.count.fetch_add(ONE_MORE, Ordering::Relaxed);
    }

    /// Counts another handle and returns its tag. The caller has a handle.
    pub(super) fn acquire_slow(&self) -> u64 {
        loop {
            let seen = self.look();
            if !seen.is_hot() {
                if seen.central() >= TOO_MANY && !seen.is_folding() {
                    std::process::abort(); // as `Arc` does: only forgotten handles are so many
                }
                self.acquire_central();
                return CENTRAL;
            }
            if self.add_hot(seen, 1) {
                return seen.tag();
            }
        }
    }

    /// Counts a handle for a caller that has none, if the object is alive and not retired.
    #[inline]
    pub(super) fn try_acquire(&self) -> Option<u64> {
        loop {
            let seen = self.look();
            if seen.is_hot() {
                if self.add_straight(seen, 1) || self.add_hot(seen, 1) {
                    return Some(seen.tag()); // count.A7
                }
                continue;
            }
            if seen.is_retired() || (seen.is_cold() && seen.central() == 0) {
                return None;
            }
            // ORDER: Acquire; not needed, but free: sees what the last fold or retirement did.
            if self.exchange(seen, seen.one_more(), Ordering::Acquire) {
                return Some(CENTRAL);
            }
            self.note_contention();
        }
    }

    /// Uncounts a handle. Returns true if it was the last: the caller drops the value.
    pub(super) fn release(&self, tag: u64) -> bool {
        self.is_lone() || self.release_slow(tag)
    }

    /// The straight path of `release` for a central handle that is not the last, while the object
    /// is cold and no other thread drops handles. Returns false if it did nothing.
    #[inline(always)]
    pub(super) fn release_central(&self) -> bool {
        // ORDER: Relaxed; no more than the expected value of the exchange.
        let seen = Word(self.count.load_to_change(Ordering::Relaxed));
        // ORDER: Release; pairs with the fence in `was_last`: what was done with the value.
        seen.is_left_by(contention::known_mark())
            && self.exchange(seen, seen.one_less(), Ordering::Release)
    }

    /// The straight path of `release` for a handle with a tag, while the object is hot. Returns
    /// false if it did nothing.
    #[inline(always)]
    pub(super) fn release_hot(&self, tag: u64) -> bool {
        let seen = self.look();
        seen.is_hot_with(tag) && self.add_straight(seen, u64::MAX)
    }

    /// Returns true if the caller's handle is the only one of either kind, and there never was a
    /// weak one. Dropping it needs no exchange then (count.A3).
    #[inline]
    pub(super) fn is_lone(&self) -> bool {
        // BUG: a drop that finds its handle to be the only one does not see what was done by the
        // others (count.A3).
        let order = if sync::seeded_bug!("lone-relaxed") {
            Ordering::Relaxed
        } else {
            // ORDER: Acquire; pairs with Release in `release_slow`: what others did with the value,
            // and their weak handles.
            Ordering::Acquire
        };
        let seen = Word(self.count.load_to_change(order));
        // ORDER: Relaxed; the Acquire above has seen the side that an earlier handle made.
        seen.is_lone() && self.side.load(Ordering::Relaxed) == 0
    }

    /// Uncounts a handle by the general path.
    #[inline(never)]
    pub(super) fn release_slow(&self, tag: u64) -> bool {
        loop {
            let seen = self.look();
            if seen.is_hot() {
                if tag == seen.tag() {
                    if self.add_hot(seen, u64::MAX) {
                        return false;
                    }
                    continue;
                }
                // BUG: a reference count is zero when the word says so, whatever the rows hold
                // (count.A2).
                if seen.central() == 1 && !sync::seeded_bug!("central-alone") {
                    self.fold(seen, false); // count.A2
                    continue;
                }
            }
            let mut next = seen.one_less().marked(contention::mark());
            if seen.is_cold() && contention::is_contended(seen) {
                if self.promote() {
                    continue;
                }
                next = next.unchanged(); // try again after as many further changes
            }
            // ORDER: Release; as in `release_central`. While folding, the word need not be positive
            // (count.A5).
            if self.exchange(seen, next, Ordering::Release) {
                return !seen.is_folding() && was_last(seen);
            }
            self.note_contention();
        }
    }

    /// Uncounts the handle if it is the only one. Returns false if it is not; it stays counted
    /// then.
    pub(super) fn try_release_last(&self, tag: u64) -> bool {
        while let Some(seen) = self.word_of_only(tag) {
            // ORDER: AcqRel; Acquire pairs with Release in `release`: what others did with it.
            if self.exchange(seen, seen.one_less(), Ordering::AcqRel) {
                return true;
            }
        }
        false
    }

    /// Returns the word if the handle of this tag is the only strong one. Folds a hot object for
    /// that. Weak handles may be upgraded right afterwards.
    fn word_of_only(&self, tag: u64) -> Option<Word> {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Acquire; pairs with Release in `release` and `fold`: what others did with the
            // value.
            let seen = Word(self.count.load_to_change(Ordering::Acquire));
            if seen.is_hot() {
                if tag == seen.tag() || seen.central() > 1 {
                    return None; // there is a central one, too (count.A2)
                }
                self.fold(seen, false);
            } else if seen.is_folding() {
                backoff.pause();
            } else {
                return (seen.central() == 1).then_some(seen);
            }
        }
    }

    /// Counts the handle of this tag in the word, as a handle without a tag.
    pub(super) fn make_central(&self, tag: u64) {
        if tag != CENTRAL {
            self.acquire_central();
            let is_last = self.release_slow(tag);
            debug_assert!(!is_last, "count.A1: the caller's handle is counted in the word");
        }
    }

    /// Counts a lost exchange, and promotes if it is time. The caller has a handle.
    #[cold]
    fn note_contention(&self) {
        if contention::note_lost() {
            self.promote();
        }
    }

    #[inline(always)]
    fn exchange(&self, seen: Word, new: Word, order: Ordering) -> bool {
        // ORDER: as the caller says; Relaxed on failure, where the caller loads again.
        self.count.compare_exchange(seen.0, new.0, order, Ordering::Relaxed).is_ok()
    }

    /// Adds to the row of the calling thread's slot (count.A4), if there is a row, the slot
    /// is as in [`percpu::biased_slot`], and the word is still `seen`.
    #[inline(always)]
    pub(super) fn add_straight(&self, seen: Word, n: u64) -> bool {
        let Some(slot) = percpu::biased_slot() else { return false };
        let (side, announcement) = self.seen_side(seen);
        let is_current = || self.now() == seen;
        // SAFETY: the side is never changed while the head lives. Where a slot is biased, all sides
        // are (barrier.B1).
        let entered = unsafe { promotion::enter_straight(slot, side, announcement, is_current) };
        entered.is_some_and(|side| {
            // SAFETY: count.A4, of `add_to`.
            unsafe { add_to(&side, |rows| rows.get_at(slot.location()), n) }
        })
    }

    /// Same, from any slot, whatever it announces, and even if the counts have changed. Makes the
    /// row if there is none.
    #[cold]
    #[inline(never)]
    fn add_hot(&self, seen: Word, n: u64) -> bool {
        percpu::with_slot(|slot| {
            self.enter(slot, seen).is_some_and(|side| {
                // SAFETY: count.A4, of `add_to`.
                unsafe { add_to(&side, |rows| Some(rows.get_or_init(slot.index())), n) }
            })
        })
    }

    /// Returns the word, for a caller that has announced the side.
    #[inline(always)]
    fn now(&self) -> Word {
        // ORDER: Acquire; after the announcement (count.A4). Pairs with Release in
        // `promote`: the rows as the last fold left them.
        Word(self.count.load(Ordering::Acquire))
    }

    /// Returns the side and an updater's announcement of it, for a caller that has seen HOT.
    #[inline(always)]
    fn seen_side(&self, seen: Word) -> (&Side, usize) {
        // ORDER: Relaxed; HOT was seen by an Acquire load, and the side is set before it.
        let updater = self.side.load(Ordering::Relaxed);
        debug_assert!(updater != 0 && seen.is_hot(), "count.A4: {seen:?} has no rows");
        // SAFETY: the side is never changed while the head lives, and the caller has seen HOT: it
        // is set.
        (unsafe { &*promotion::announced_state(updater) }, updater)
    }

    /// Enters the side, if flags and period of the word have not changed.
    fn enter(&self, slot: Slot, seen: Word) -> Option<promotion::Inside<Side>> {
        let (side, _) = self.seen_side(seen);
        if side.biased {
            percpu::note_biased(slot);
        }
        // SAFETY: the side is never changed while the head lives. `fold`, which waits, passes the
        // side's bias, too.
        unsafe { promotion::enter(slot, side, side.biased, || self.now().is_in_state_of(seen)) }
    }

    /// Makes the object cold, and retires it if `retires` is true, unless flags or period differ
    /// from `seen`. The caller has a handle.
    #[cold]
    fn fold(&self, seen: Word, retires: bool) -> bool {
        let _folding = Folding::begin();
        // ORDER: AcqRel; the barrier comes before the loads of the records.
        let folding = if retires { seen.folding().retired() } else { seen.folding() };
        if !self.exchange(seen, folding, Ordering::AcqRel) {
            return false;
        }
        let side = self.side();
        promotion::wait_for_updaters(side, side.biased);
        let rows = side.rows.with_mut(|rows| {
            // SAFETY: count.A4 - this thread has set FOLDING, passed the barrier, and seen
            // no updater inside.
            std::mem::replace(unsafe { &mut *rows }, Segmented::new())
        });
        let counted = sum(&rows);
        debug_assert!(counted < TOO_MANY, "count.A1: a handle was counted down twice");
        if counted >= TOO_MANY {
            std::process::abort(); // as above
        }
        let added = Word::fold(counted);
        // ORDER: AcqRel; pairs with Acquire in `promote` and with the fence in `was_last`: the rows
        // are empty, and what their owners did with the value came before.
        let before = Word(self.count.fetch_add(added, Ordering::AcqRel));
        debug_assert!(before.is_folding(), "count.A4: {before:?} is folded by two threads");
        let after = Word(before.0.wrapping_add(added));
        debug_assert!(
            after.is_cold() && (1..TOO_MANY).contains(&after.central()),
            "count.A5: {after:?} after a fold by an owner"
        );
        // ORDER: Relaxed; a number.
        HOT_NOW.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Makes the object hot: rows count from now on. Returns true if it is hot.
    #[cold]
    pub(super) fn promote(&self) -> bool {
        table::prepare_for_forks();
        // ORDER: Relaxed; a number.
        if HOT_NOW.fetch_add(1, Ordering::Relaxed) < HOT_OBJECTS {
            self.side();
            // count.A6: after the last period the tag would repeat, so the object stays
            // cold.
            // ORDER: Acquire; pairs with the Release of the thread that made it hot: the side.
            let mut seen = Word(self.count.load_to_change(Ordering::Acquire));
            while seen.may_be_promoted() {
                // ORDER: AcqRel; Release pairs with Acquire in `acquire`: the side, and the rows as
                // the last fold left them, which Acquire reads from that.
                match self.count.compare_exchange(
                    seen.0,
                    seen.promoted().0,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => return true,
                    Err(now) => seen = Word(now),
                }
            }
        }
        // ORDER: Relaxed; a number.
        HOT_NOW.fetch_sub(1, Ordering::Relaxed);
        self.is_hot()
    }

    /// Makes the object cold: the word counts from now on. The caller has a handle.
    pub(super) fn demote(&self) {
        self.settle(false);
    }

    /// Makes the object cold for good, and refuses weak handles from now on. The caller has a
    /// handle. Returns true to the first caller.
    pub(super) fn retire(&self) -> bool {
        self.settle(true)
    }

    fn settle(&self, retires: bool) -> bool {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Acquire; pairs with Release in `fold`, if another thread has folded.
            let seen = Word(self.count.load_to_change(Ordering::Acquire));
            if seen.is_folding() {
                backoff.pause();
            } else if seen.is_hot() {
                if self.fold(seen, retires) {
                    return true;
                }
            // ORDER: AcqRel; a thread that sees the flag sees what came before it.
            } else if !retires || seen.is_retired() {
                return false;
            } else if self.exchange(seen, seen.retired(), Ordering::AcqRel) {
                return true;
            }
        }
    }

    pub(super) fn is_hot(&self) -> bool {
        // ORDER: Relaxed; a hint.
        Word(self.count.load(Ordering::Relaxed)).is_hot()
    }

    pub(super) fn is_retired(&self) -> bool {
        // ORDER: Acquire; what came before the retirement.
        Word(self.count.load(Ordering::Acquire)).is_retired()
    }

    /// Returns the number of handles: exact if no thread makes or drops one concurrently.
    pub(super) fn strong(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Acquire; as in `acquire`.
            let seen = Word(self.count.load(Ordering::Acquire));
            if seen.is_cold() {
                return seen.central();
            }
            if seen.is_hot() {
                let rows = percpu::with_slot(|slot| {
                    let side = self.enter(slot, seen)?;
                    // SAFETY: count.A4 - announced, and checked after that.
                    Some(side.rows.with(|rows| sum(unsafe { &*rows })))
                });
                if let Some(rows) = rows {
                    // At least the central count, however the rows changed while they were summed.
                    return seen.central() + (rows as i64).max(0) as u64;
                }
            }
            backoff.pause();
        }
    }

    /// Returns the side; allocates it on first use.
    fn side(&self) -> &Side {
        if let Some(side) = self.side_if_any() {
            return side;
        }
        let made = Box::into_raw(Box::new(Side {
            weak: Line(AtomicU64::new(1)),
            biased: barrier::is_asymmetric(),
            generation: Line(AtomicU64::new(0)),
            rows: UnsafeCell::new(Segmented::new()),
        }));
        // ORDER: Release publishes the side; Acquire on failure reads the winner's.
        let updater = promotion::updater(made);
        let side = match self.side.compare_exchange(0, updater, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above and shared with no other thread.
                drop(unsafe { Box::from_raw(made) });
                promotion::announced_state(other)
            }
        };
        // SAFETY: the head's side is set now (by this thread, or by the winner of the exchange),
        // and is never changed while the head lives.
        unsafe { &*side }
    }

    /// Returns the side, if there is one.
    #[inline]
    fn side_if_any(&self) -> Option<&Side> {
        // ORDER: Acquire; pairs with Release in `side`.
        let updater = self.side.load_to_change(Ordering::Acquire);
        // SAFETY: the side, once set, is neither changed nor freed while the head lives (`side`).
        (updater != 0).then(|| unsafe { &*promotion::announced_state(updater) })
    }

    /// Frees the side, if there is one.
    ///
    /// # Safety
    /// Neither the head nor its side is used after this.
    #[inline]
    pub(super) unsafe fn free_side(&self) {
        // ORDER: Relaxed; the drop of the last handle has ordered all others' use before.
        let updater = self.side.load(Ordering::Relaxed);
        if updater != 0 && !sync::model_failed() {
            // SAFETY: made by `Box::into_raw`, and freed here alone.
            drop(unsafe { Box::<Side>::from_raw(promotion::announced_state(updater)) });
        }
    }

    /// Returns the object's generation, which lives as long as the object's memory.
    #[inline]
    pub(super) fn generation(&self) -> &AtomicU64 {
        &self.side().generation.0
    }
}

/// Returns true if an exchange that took a handle from a word that was not folding took the last
/// handle (count.A3).
#[inline(always)]
fn was_last(before: Word) -> bool {
    debug_assert!(before.central() != 0, "count.A3: {before:?} has no handle to drop");
    if before.central() != 1 {
        return false;
    }
    // ORDER: Acquire; pairs with Release in `release` and `fold`: what others did with the value.
    fence(Ordering::Acquire);
    true
}
