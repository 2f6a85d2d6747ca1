//! Counters that are one word each while cold and a row of words per slot while hot.
//!
//! Owns: promotion, demotion and eviction of counter rows. This is the paper's counter log (Figure
//! 8), without its double counting.
//!
//! ```text
//! cold:   values[i]
//!
//! hot:    values[i]  +  base[i]  +  rows[slot 0][i]  +  rows[slot 1][i]  + ...
//!                       evicted     each written by its slot's owner alone
//!                       rows
//! ```
//!
//! Laws:
//! - cells.N1 The total of counter i is `values[i] + base[i] +` the sum of `rows[..][i]`. The
//!   last two exist only while hot. A row is never folded while its writer may be updating it
//!   (oplog.D4).
//! - cells.N2 Only its slot's owner writes a row, with plain stores, between announcing the cells
//!   and withdrawing the announcement. After the announcement the owner has checked that the
//!   counters still have these cells, and has found its row in them. An owner makes a row only if
//!   it has also found the cells open after the announcement.
//! - cells.N3 Cells are a hot state as [`promotion`] defines it: they are folded and freed as
//!   promotion.H2 and promotion.H4 require. A reader enters them as an updater does.
//! - cells.N4 While cells are being folded (CLOSING or FOLDING), readers wait: no reader sees a
//!   total that lacks what is being folded. A reader waits without announcing the cells, or
//!   announced as a waiter (promotion.H3).
//! - cells.N7 An eviction waits twice. It sets FOLDING, and waits: then no thread inside makes a
//!   row or adds rows up. It takes the rows out of the cells, and waits: then no thread inside has
//!   found its row. So an add looks only for its row, and not at the gate.
//! - cells.N5 To set a counter, a thread replaces its value by one compare-exchange. It expects
//!   the value with which it added up the total, and stores the value that makes the total the new
//!   one. So of two threads that set it, each returns what the other left. No add is lost: an add
//!   that was not in the total yet stays in its row.
//!
//! Source: OpLog, section 5.2; REQUIREMENTS O-10 and O-11.

use super::super::Line as Lines;
use super::recent::RECENT;
use super::word::GroupWord;
use super::words::Words;
use crate::config;
use crate::oplog::promotion::{self, Membership, Word};
use crate::oplog::table::{self, Evictable, Folding};
use crate::percpu::slot_table::{SlotPtr, SlotTable};
use crate::percpu::{self, BiasedSlot, Slot, barrier};
use crate::policy::Streak;
use crate::profile::{self, EventKind};
use crate::sync::{self, AtomicPtr, AtomicU32, AtomicU64, Backoff, Ordering, seeded_bug};
use std::ptr;

const OPEN: u32 = 0;
const FOLDING: u32 = 1;
const EVICTED: u32 = 2;

/// Slots that reach their rows by one load.
const FIRST: usize = config::FIRST_SLOTS;
/// Words in a pair of cache lines.
const LINE: usize = config::CACHE_LINE_BYTES / size_of::<u64>();
/// Failed compare-exchanges of one thread after which it promotes the counter that the last one
/// failed on.
const FAILURES: u32 = config::CONTENDED_FOR_LOGS;
/// Reads in a row that find the total changed by too little, after which the cells are folded and
/// freed.
const IDLE_READS: u32 = config::IDLE_READS;

/// A row: one slot's part of every counter of a group, on lines of its own.
#[repr(align(128))]
struct Line(#[allow(dead_code, reason = "reached as words: `word_of`")] [AtomicU64; LINE]);

/// A slot's row: its first line.
type RowPtr = SlotPtr<Line>;
/// The rows of all slots except the first ones (their entries stay null here).
type MoreRows = SlotTable<Line>;

/// The hot state of a group of counters.
#[repr(C, align(128))]
pub(super) struct Cells {
    gate: AtomicU32,
    first: [RowPtr; FIRST],
    /// Null until another slot counts. Null again once an eviction has freed it.
    more: AtomicPtr<MoreRows>,
    /// Counters in the group.
    len: usize,
    /// The sums of the rows that an eviction freed.
    base: Box<[AtomicU64]>,
    membership: Membership,
    /// Whether announcements are plain stores and the folding thread pays the barrier.
    biased: bool,
    reads: Lines<Reads>,
}

/// Counts of reads, for the policy. On its own lines, because all adds load the lines of the cells.
struct Reads {
    /// A [`Streak`]: the reads in a row that found the total changed by too little.
    idle: AtomicU32,
    /// The group's total at the last read that was noted.
    last: AtomicU64,
}

impl Cells {
    fn new(len: usize) -> Box<Self> {
        Box::new(Self {
            gate: AtomicU32::new(OPEN),
            first: std::array::from_fn(RowPtr::from),
            more: AtomicPtr::new(ptr::null_mut()),
            len,
            base: (0..len).map(|_| AtomicU64::new(0)).collect(),
            membership: Membership::new(),
            biased: barrier::is_asymmetric(),
            reads: Lines(Reads {
                idle: AtomicU32::new(Streak::NONE.raw()),
                last: AtomicU64::new(0),
            }),
        })
    }

    fn is_evicted(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `finish_eviction`.
        self.gate.load(Ordering::Acquire) == EVICTED
    }

    fn lines(&self) -> usize {
        self.len.div_ceil(LINE)
    }

    #[inline(always)]
    fn row_ptr(&self, slot: usize) -> Option<&RowPtr> {
        match self.first.get(slot) {
            None => self.more()?.get(slot),
            place => place,
        }
    }

    #[inline(always)]
    fn more(&self) -> Option<&MoreRows> {
        // ORDER: Acquire; pairs with the exchange in `make_more`: the table's contents before its
        // address.
        // SAFETY: cells.N3 keeps the table and its rows while the cells are announced.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make_more(&self) -> &MoreRows {
        let made = Box::into_raw(Box::new(MoreRows::new()));
        // ORDER: AcqRel; Release pairs with Acquire in `more`; Acquire on failure with the winner's
        // Release.
        let raced =
            self.more.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        let more = match raced {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above and shared with no other thread.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: cells.N3 keeps the table and its rows while the calling thread announces the
        // cells.
        unsafe { &*more }
    }

    /// Returns true if the cells are not being folded, nor were. Asked after the announcement
    /// (cells.N2).
    #[inline(always)]
    fn is_open(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `finish_eviction`.
        self.gate.load(Ordering::Acquire) == OPEN
    }

    /// Returns true if an evictor is adding up the rows. A reader asks after the announcement
    /// (cells.N3, cells.N4).
    #[inline(always)]
    fn is_folding(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `finish_eviction`: the base before EVICTED.
        self.gate.load(Ordering::Acquire) == FOLDING
    }

    /// Adds to a counter's word in a row.
    ///
    /// # Safety
    /// It is the row of the calling thread's slot in these cells, which that announces.
    #[inline(always)]
    unsafe fn add(&self, row: *mut Line, index: usize, n: u64) {
        debug_assert!(index < self.len, "cells.N1: the group has no counter {index}");
        // SAFETY: a row has words for all counters, and `index < len`; cells.N3 keeps it while it
        // is announced (# Safety).
        let word = unsafe { word_of(row, index) };
        // ORDER: Relaxed (both); single writer (cells.N2).
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Same as [`add`](Self::add), if the slot has a row.
    ///
    /// # Safety
    /// It is the calling thread's slot, which announces these cells.
    #[inline(always)]
    unsafe fn add_straight(&self, slot: BiasedSlot, index: usize, n: u64) -> bool {
        let Some(place) = self.row_ptr(slot.index()) else { return false };
        // ORDER: Relaxed, as in `row`. After the announcement: an evictor that has taken the row
        // out, or the table that it is in, sees that, or this sees no row (cells.N7, barrier.B1).
        let row = place.0.load(Ordering::Relaxed);
        if row.is_null() {
            return false;
        }
        // SAFETY: the slot's row, in cells that it announces (# Safety).
        unsafe { self.add(row, index, n) };
        true
    }

    /// Returns the row of the calling thread's slot; makes it if there is none.
    fn row(&self, slot: usize) -> *mut Line {
        // ORDER: Relaxed; only the slot's owners write it, and one owner succeeds another by
        // Release and Acquire (percpu.P2).
        match self.row_ptr(slot).map(|row| row.0.load(Ordering::Relaxed)) {
            Some(row) if !row.is_null() => row,
            _ => self.make_row(slot),
        }
    }

    #[cold]
    fn make_row(&self, slot: usize) -> *mut Line {
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        let row: Box<[Line]> = (0..self.lines()).map(line).collect();
        let row = Box::into_raw(row).cast::<Line>();
        let place = match self.first.get(slot) {
            Some(place) => place,
            None => {
                let more = self.more().unwrap_or_else(|| self.make_more());
                more.get_or_init(slot)
            }
        };
        // ORDER: Release; pairs with Acquire in `add_counted`: zeros before the pointer.
        place.0.store(row, Ordering::Release);
        row
    }

    /// Returns the hot part of a counter's total (cells.N1).
    #[inline]
    fn part(&self, index: usize) -> u64 {
        // ORDER: Relaxed; the caller's gate check ordered the base, and a row's word is read for
        // what it is at some moment during the call.
        let base = self.base[index].load(Ordering::Relaxed);
        // SAFETY: the caller has announced or owns the cells (cells.N3).
        let add = |sum: u64, row| unsafe { add_counted(sum, row, index) };
        let part = self.first.iter().fold(base, add);
        match self.more() {
            None => part,
            Some(more) => Self::part_with(part, more, index),
        }
    }

    /// Same, with the rows of the other slots.
    #[inline(never)]
    fn part_with(part: u64, more: &MoreRows, index: usize) -> u64 {
        // SAFETY: the caller of `part`, which has found them, keeps them (cells.N3).
        more.iter().fold(part, |sum, (_, row)| unsafe { add_counted(sum, row, index) })
    }

    fn leave_table(&self) {
        self.membership.leave(table::shared(), ptr::from_ref(self));
    }

    /// Takes all rows out of the cells (cells.N7).
    fn take_rows(&self) -> TakenRows {
        // ORDER: Acquire (both); pairs with the exchange in `make_more`, and with Release in
        // `make_row`.
        let more = self.more.swap(ptr::null_mut(), Ordering::Acquire);
        let take = |at: usize| self.first[at].0.swap(ptr::null_mut(), Ordering::Acquire);
        TakenRows { first: std::array::from_fn(take), more, lines: self.lines() }
    }
}

/// Returns the word of a counter in a row.
///
/// # Safety
/// The row is there as long as the result, and has lines for so many counters.
#[inline(always)]
unsafe fn word_of<'a>(row: *mut Line, index: usize) -> &'a AtomicU64 {
    // SAFETY: lines are words and nothing else, and there are enough of them (# Safety).
    unsafe { &*row.cast::<AtomicU64>().add(index) }
}

/// Returns the sum plus what the row at this place has counted, if there is a row.
///
/// # Safety
/// The row, if there is one, has lines for so many counters, and is not freed during the call.
#[inline(always)]
unsafe fn add_counted(sum: u64, place: &RowPtr, index: usize) -> u64 {
    // ORDER: Acquire; pairs with Release in `make_row`.
    let row = place.0.load(Ordering::Acquire);
    if row.is_null() {
        return sum;
    }
    // ORDER: Relaxed; a count orders nothing.
    // SAFETY: the row is there (# Safety).
    sum.wrapping_add(unsafe { word_of(row, index) }.load(Ordering::Relaxed))
}

/// Rows that were taken out of their cells. Dropping this frees them, once no thread is inside that
/// has found one of them (cells.N7).
struct TakenRows {
    first: [*mut Line; FIRST],
    more: *mut MoreRows,
    lines: usize,
}

impl TakenRows {
    fn iter(&self) -> impl Iterator<Item = *mut Line> {
        // SAFETY: made by `Box::into_raw` in `make_more`, taken out of the cells by this thread
        // alone, and freed in `drop`.
        let more = unsafe { self.more.as_ref() };
        let others = more.into_iter().flat_map(MoreRows::iter);
        // ORDER: Acquire; pairs with Release in `make_row`.
        let others = others.map(|(_, place)| place.0.load(Ordering::Acquire));
        self.first.iter().copied().chain(others).filter(|row| !row.is_null())
    }

    /// Returns the sum of a counter's words.
    fn part(&self, index: usize) -> u64 {
        self.iter().fold(0, |sum, row| {
            // ORDER: Relaxed; the last thread that wrote it has withdrawn its announcement.
            // SAFETY: a row has lines for all counters of its group, and is freed in `drop`.
            sum.wrapping_add(unsafe { word_of(row, index) }.load(Ordering::Relaxed))
        })
    }
}

impl Drop for TakenRows {
    fn drop(&mut self) {
        for row in self.iter() {
            let row = ptr::slice_from_raw_parts_mut(row, self.lines);
            // SAFETY: made by `Box::into_raw` of so many lines, in no cells any more, and found
            // there by no thread that is still inside (cells.N7, cells.N3).
            drop(unsafe { Box::from_raw(row) });
        }
        if !self.more.is_null() {
            // SAFETY: made by `Box::into_raw` in `make_more`; taken out by this thread alone.
            drop(unsafe { Box::from_raw(self.more) });
        }
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        // ORDER: Relaxed; `&mut self` proves that no other thread is left.
        debug_assert!(
            self.gate.load(Ordering::Relaxed) != FOLDING || sync::panicking(),
            "cells.N3: cells are freed during an eviction"
        );
        drop(self.take_rows());
    }
}

impl promotion::State for Cells {
    const RUNS_USER_CODE: bool = false;
}

impl Evictable for Cells {
    fn try_claim(&self) -> bool {
        // There is no lock: the claim alone excludes other evictors (promotion.H5).
        self.membership.claim();
        true
    }

    fn activity(&self) -> u64 {
        (0..self.len).fold(0, |sum, index| sum.wrapping_add(self.part(index)))
    }

    unsafe fn finish_eviction(this: *const Self) {
        // SAFETY: the claim keeps the cells alive until it ends below (promotion.H5).
        let cells = unsafe { &*this };
        // ORDER: Relaxed, Release; the barrier comes before the loads of the records.
        debug_assert_eq!(cells.gate.load(Ordering::Relaxed), OPEN, "cells.N3: evicted twice");
        cells.gate.store(FOLDING, Ordering::Release);
        promotion::wait_for_updaters(this, cells.biased);
        let rows = cells.take_rows();
        // BUG: rows are added up while a thread that has found its row may be adding to it
        // (cells.N7).
        if !seeded_bug!("unwaited-rows") {
            promotion::wait_for_updaters(this, cells.biased);
        }
        for (index, base) in cells.base.iter().enumerate() {
            // ORDER: Relaxed (both); published by the gate's Release below.
            let before = base.load(Ordering::Relaxed);
            base.store(before.wrapping_add(rows.part(index)), Ordering::Relaxed);
        }
        drop(rows);
        // ORDER: Release; pairs with Acquire of the gate in `sum`: base before EVICTED.
        cells.gate.store(EVICTED, Ordering::Release);
        // SAFETY: claimed by `try_claim`.
        unsafe { Membership::end_claim(&raw const (*this).membership) };
    }
}

/// Returns true if a total has changed too little since the last read for rows to pay: by fewer
/// adds of one than the lost adds that make rows.
fn is_few(change: u64) -> bool {
    (change as i64).unsigned_abs() < u64::from(FAILURES)
}

/// A group of counters that share one hot state, borrowed from a `Counter`, a `CounterArray` or a
/// `Histogram`.
pub(super) struct Group<'a, W: ?Sized = [AtomicU64]> {
    pub(super) values: &'a W,
    pub(super) hot: &'a GroupWord,
}

impl<W: ?Sized> Copy for Group<'_, W> {}

impl<W: ?Sized> Clone for Group<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W: Words + ?Sized> Group<'_, W> {
    #[inline(always)]
    pub(super) fn add(self, index: usize, n: u64) {
        if RECENT.with(|recent| recent.take_read(self.values.key(index))) {
            // The thread has found the group cold, and another thread may have changed its word
            // since. A look at `hot`, which is in the same line, would fetch that line twice.
            // ORDER: Relaxed; the value is always part of the total (cells.N1).
            self.values.get_or_make(index).fetch_add(n, Ordering::Relaxed);
            return;
        }
        let seen = self.hot.load();
        // Closing cells are as good as none: the value is always part of the total (cells.N1).
        if !seen.is_open_if_not_zero() {
            self.add_cold(index, n);
        } else if !self.add_straight(seen, index, n) {
            Self::add_slow(self.values, self.hot, index, n);
        }
    }

    /// The straight path while hot: adds to an existing row, of a slot that is as in
    /// [`BiasedSlot`]. Returns false if it did nothing.
    #[inline(always)]
    fn add_straight(self, seen: Word, index: usize, n: u64) -> bool {
        let Some(slot) = percpu::biased_slot() else { return false };
        // SAFETY: this thread's slot, by which it has entered the cells.
        self.enter_straight(slot, seen)
            .is_some_and(|cells| unsafe { cells.add_straight(slot, index, n) })
    }

    /// Enters the cells of `seen`, which is open, as an updater.
    #[inline(always)]
    fn enter_straight(self, slot: BiasedSlot, seen: Word) -> Option<promotion::Inside<Cells>> {
        // If a slot is biased, all cells are (barrier.B1), so the word has no other bits.
        let cells: *mut Cells = seen.state_of_plain_biased();
        let is_current = || self.hot.load() == seen;
        // SAFETY: cells.N3 - `seen` is this group's word, and led to these cells, which are freed
        // only as promotion.H4 allows.
        unsafe { promotion::enter_straight(slot, cells, seen.raw(), is_current) }
    }

    /// Adds to the slot's row, if the word still leads to the cells of `hot` and they are open.
    fn add_hot(self, slot: Slot, hot: Word, index: usize, n: u64) -> bool {
        let Some(cells) = self.enter(slot, hot).filter(|cells| cells.is_open()) else {
            return false;
        };
        // SAFETY: the slot's row, which is in the cells that were just entered.
        unsafe { cells.add(cells.row(slot.index()), index, n) };
        true
    }

    #[inline]
    fn add_cold(self, index: usize, n: u64) {
        let value = self.values.get_or_make(index);
        // ORDER: Relaxed (all); a count orders nothing.
        let seen = value.load(Ordering::Relaxed);
        if value.fetch_add(n, Ordering::Relaxed) != seen {
            Self::note_contention(self.values, self.hot, index);
        }
    }

    /// Counts a lost add. Takes the group in parts, which fit into registers: else the locked
    /// instruction of the short path would wait for their stores. The same goes for the functions
    /// below.
    #[cold]
    #[inline(never)]
    fn note_contention(values: &W, hot: &GroupWord, index: usize) {
        let is_due = RECENT.with(|recent| recent.note_lost(values.key(index), FAILURES));
        if is_due {
            Group { values, hot }.promote(false);
        }
    }

    /// Enters the cells as an updater, if the word is open and still leads to them.
    #[inline(always)]
    fn enter(self, slot: Slot, hot: Word) -> Option<promotion::Inside<Cells>> {
        if !hot.is_open() {
            return None;
        }
        if hot.is_biased() {
            percpu::note_biased(slot);
        }
        // SAFETY: cells.N3 - this is the group's word, and its cells are freed only as
        // promotion.H4 allows.
        unsafe { promotion::enter_by(slot, self.hot.raw(), hot) }
    }

    /// Reads the cells, if there are any, without entering them as an updater.
    fn look_on<R>(self, look: impl FnOnce(&Cells) -> R) -> Option<R> {
        // SAFETY: cells.N3 - this is the group's word, and its cells are freed only as
        // promotion.H4 allows.
        unsafe { promotion::look_on::<Cells, R>(self.hot.raw(), |cells, _| look(cells)) }
    }

    /// Adds by the general path: if the cells are closing, evicted or freed, if announcements are
    /// not plain stores, or if the thread has no row or no idle slot.
    #[cold]
    #[inline(never)]
    fn add_slow(values: &W, hot: &GroupWord, index: usize, n: u64) {
        let (group, hot) = (Group { values, hot }, hot.load());
        if !hot.is_open() {
            // ORDER: Relaxed; cells.N1 - the value is always part of the total.
            values.get_or_make(index).fetch_add(n, Ordering::Relaxed);
            return;
        }
        if !percpu::with_slot(|slot| group.add_hot(slot, hot, index, n)) {
            values.get_or_make(index).fetch_add(n, Ordering::Relaxed);
            group.give_up(Cells::is_evicted);
        }
    }

    /// Returns the total of a counter (cells.N1).
    #[inline]
    pub(super) fn sum(self, index: usize) -> u64 {
        if self.is_read_cold(index) {
            self.value(index)
        } else {
            Self::sum_hot(self.values, self.hot, index)
        }
    }

    /// Returns true if the group is cold for a read that begins here. Its values, loaded after
    /// this, are the totals then. The rows are folded before the group is cold again (cells.N4).
    #[inline(always)]
    pub(super) fn is_read_cold(self, index: usize) -> bool {
        let is_cold = !self.hot.load().is_hot();
        if is_cold {
            RECENT.with(|recent| recent.note_read(self.values.key(index)));
        }
        is_cold
    }

    #[inline(always)]
    fn value(self, index: usize) -> u64 {
        // ORDER: Relaxed; see `add_cold`.
        self.values.get(index).map_or(0, |value| value.load(Ordering::Relaxed))
    }

    /// Same as [`sum`](Self::sum), for a group that was hot a moment ago. Tries the straight path
    /// first: to cells that are not being folded, from a slot that is as in [`BiasedSlot`].
    #[inline(never)]
    fn sum_hot(values: &W, hot: &GroupWord, index: usize) -> u64 {
        let (group, seen) = (Group { values, hot }, hot.load());
        if seen.is_open_if_not_zero() {
            if let Some(slot) = percpu::biased_slot() {
                if let Some(cells) = group.enter_straight(slot, seen).filter(|c| !c.is_folding()) {
                    let part = cells.part(index);
                    return group.value(index).wrapping_add(part);
                }
            }
        }
        Self::sum_slow(values, hot, index)
    }

    #[inline(never)]
    fn sum_slow(values: &W, hot: &GroupWord, index: usize) -> u64 {
        let group = Group { values, hot };
        group.with_part(index, |part| group.value(index).wrapping_add(part))
    }

    /// Sets the total of a counter (cells.N5) and returns the old one.
    pub(super) fn replace(self, index: usize, total: u64) -> u64 {
        let is_absent = || self.values.get(index).is_none();
        // The word was zero before and after the part was read, as if it were exchanged with zero
        // (cells.N5, words.N6).
        if total == 0 && is_absent() && self.with_part(index, |part| part == 0 && is_absent()) {
            return 0;
        }
        let value = self.values.get_or_make(index);
        loop {
            // ORDER: Acquire; pairs with Release of the exchange: a thread that sees what another
            // one has set while hot sees that the group was hot, and adds the rows up (cells.N5).
            let seen = value.load(Ordering::Acquire);
            let found = self.with_part(index, |part| {
                let new = total.wrapping_sub(part);
                // BUG: a counter is set whatever others have added to its value (cells.N5).
                if seeded_bug!("set-unseen") {
                    value.store(new, Ordering::Relaxed);
                    return Some(seen.wrapping_add(part));
                }
                let set = value.compare_exchange(seen, new, Ordering::Release, Ordering::Relaxed);
                set.ok().map(|seen| seen.wrapping_add(part))
            });
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Calls `f` with the hot part of a counter's total, which is not folded while `f` runs.
    #[inline]
    fn with_part<R>(self, index: usize, f: impl Fn(u64) -> R) -> R {
        let mut backoff = Backoff::new();
        loop {
            let hot = self.hot.load();
            if !hot.is_hot() {
                return f(0);
            }
            if hot.is_open() {
                let entered = percpu::with_slot(|slot| {
                    let cells = self.enter(slot, hot)?;
                    (!cells.is_folding()).then(|| f(cells.part(index)))
                });
                if let Some(result) = entered {
                    return result;
                }
                self.wait_for_folding(&mut backoff);
            }
            backoff.pause();
        }
    }

    /// Waits while an evictor folds the rows (cells.N4).
    #[cold]
    fn wait_for_folding(self, backoff: &mut Backoff) {
        self.look_on(|cells| {
            while cells.is_folding() {
                backoff.pause();
            }
        });
    }

    /// Returns every count. Not a consistent snapshot.
    pub(super) fn snapshot(self) -> Vec<i64> {
        let sums: Vec<i64> = (0..self.values.len()).map(|index| self.sum(index) as i64).collect();
        if self.has_cells() {
            self.note_read(sums.iter().fold(0, |total, sum| total.wrapping_add(*sum as u64)));
        }
        sums
    }

    /// Returns every count and sets each to zero (cells.N5).
    pub(super) fn take(self) -> Vec<i64> {
        let all = 0..self.values.len();
        let taken: Vec<i64> = all.map(|index| self.replace(index, 0) as i64).collect();
        if self.has_cells() {
            self.note_reset(taken.iter().all(|count| *count == 0));
        }
        taken
    }

    /// Returns true if the group has cells, perhaps evicted ones. A hint.
    #[inline]
    pub(super) fn has_cells(self) -> bool {
        self.hot.hint().is_hot()
    }

    /// Returns true if each thread counts in a row of its own; false once the cells were evicted.
    pub(super) fn is_hot(self) -> bool {
        self.hot.load().is_open() && self.look_on(|cells| !cells.is_evicted()).unwrap_or(false)
    }

    /// Notes a read of the whole group that found `total`, and frees cells that do not pay. After a
    /// read that found them in use, this thread notes no reads for a while.
    #[inline]
    pub(super) fn note_read(self, total: u64) {
        if !RECENT.with(|recent| recent.skip_note(self.hot.address())) {
            Self::note_total(self.values, self.hot, total);
        }
    }

    #[inline(never)]
    fn note_total(values: &W, hot: &GroupWord, total: u64) {
        Group { values, hot }.note_read_by(|last| {
            // ORDER: Relaxed (both); of two concurrent reads, one may be lost.
            let is_idle = is_few(total.wrapping_sub(last.load(Ordering::Relaxed)));
            last.store(total, Ordering::Relaxed);
            if !is_idle {
                RECENT.with(|recent| recent.note_in_use(hot.address()));
            }
            is_idle
        });
    }

    /// Notes that the whole group was set to zero; `idle` is true if it was zero before.
    pub(super) fn note_reset(self, idle: bool) {
        self.note_read_by(|last| (last.store(0, Ordering::Relaxed), idle).1);
    }

    fn note_read_by(self, is_idle: impl Fn(&AtomicU64) -> bool) {
        self.give_up(|cells| {
            // ORDER: Relaxed (all); a policy's hints.
            if cells.gate.load(Ordering::Relaxed) == EVICTED {
                return true;
            }
            let Reads { idle, last } = &cells.reads.0;
            let is_idle = is_idle(last);
            let mut streak = Streak::from_raw(idle.load(Ordering::Relaxed));
            // Of two concurrent reads, one may be lost.
            idle.store(streak.observe(is_idle).raw(), Ordering::Relaxed);
            streak.is_due(IDLE_READS)
        });
    }

    /// Gives the group cells. With `insist`, evicts the object that has their place in the table.
    #[cold]
    pub(super) fn promote(self, insist: bool) -> bool {
        self.give_up(Cells::is_evicted);
        if self.hot.load().is_hot() {
            return true;
        }
        let cells = Box::into_raw(Cells::new(self.values.len()));
        // SAFETY: made just above and shared with no thread.
        let (word, entered) = unsafe {
            let made = &*cells;
            let word = Word::hot(cells, made.biased, false);
            (word, made.membership.enter(table::shared(), cells.cast_const(), insist, 0))
        };
        let Ok(eviction) = entered else {
            // SAFETY: made above and shared with no thread.
            drop(unsafe { Box::from_raw(cells) });
            return false;
        };
        if !self.hot.publish(word) {
            // SAFETY: published nowhere but in the table, which it leaves here.
            unsafe { release(cells) };
        }
        profile::happened(EventKind::Promoted, "Counter", self.values, 0);
        drop(eviction);
        true
    }

    /// Folds the cells into the values and frees them, if `agree` returns true.
    #[cold]
    pub(super) fn give_up(self, agree: impl Fn(&Cells) -> bool) {
        let closed = self.look_on(|cells| {
            let hot = self.hot.load();
            let is_theirs = ptr::eq(hot.state(), cells);
            if !is_theirs || !hot.is_open() || !agree(cells) {
                return None;
            }
            let folding = Folding::begin();
            self.hot.close(hot).then_some((hot, folding))
        });
        let Some((hot, folding)) = closed.flatten() else { return };
        let raw: *mut Cells = hot.state();
        debug_assert!(!raw.is_null(), "cells.N3: {hot:?} leads to no cells");
        // SAFETY: `close` made this thread the one that frees the cells.
        let cells = unsafe { &*raw };
        cells.leave_table();
        promotion::wait_for_updaters(raw, hot.is_biased());
        for index in 0..self.values.len() {
            let part = cells.part(index);
            if part != 0 {
                // ORDER: Relaxed; published by `make_cold`.
                self.values.get_or_make(index).fetch_add(part, Ordering::Relaxed);
            }
        }
        self.hot.make_cold(hot);
        promotion::wait_until_left(raw, hot.is_biased());
        // SAFETY: cells.N3 - out of the table, out of the group, announced by no record.
        drop(unsafe { Box::from_raw(raw) });
        drop(folding);
        profile::happened(EventKind::Demoted, "Counter", self.values, 0);
    }
}

/// Frees the cells of a group that is dropped.
pub(super) fn release_of(hot: &GroupWord) {
    let hot = hot.hint(); // the caller has exclusive access to the counters
    if hot.is_hot() {
        debug_assert!(hot.is_open(), "cells.N3: a demotion ends before the borrow it runs under");
        // SAFETY: the owner is being dropped, so no thread can reach the cells through it.
        unsafe { release(hot.state()) };
    }
}

/// Frees cells that no other thread can reach, except an evictor.
///
/// # Safety
/// The cells came from `Box::into_raw` and no longer belong to a group, and no other thread reaches
/// them, except an evictor that found them in the table.
unsafe fn release(cells: *mut Cells) {
    // SAFETY: the caller promises that the cells came from `Box::into_raw`; only `release` frees
    // such cells, and it does so below.
    unsafe { (*cells).leave_table() };
    // SAFETY: they came from `Box::into_raw` (# Safety), no group leads to them, and they have left
    // the table and its evictors (promotion.H5).
    drop(unsafe { Box::from_raw(cells) });
}
