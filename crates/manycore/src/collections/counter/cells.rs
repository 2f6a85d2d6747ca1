//! Counters that are one word each while cold and a row of words per slot while hot.
//!
//! Owns: promotion, demotion and eviction of counter rows. The paper's counter log (Figure 8), with
//! its double count mended.
//!
//! Laws:
//! - counter.N1 The total of counter i is `values[i] + base[i] +` the sum of `rows[..][i]`, of
//!   which the last two exist only while hot. A row is never folded while its writer may be at it
//!   (design oplog.D4).
//! - counter.N2 A row is written by its slot's owner alone, with plain stores, between announcing
//!   the cells and withdrawing the announcement, having checked in between that the counters still
//!   have these cells and that they are open.
//! - counter.N3 Cells are folded or freed after they were closed, the barrier was passed, and no
//!   record announced them. A reader announces them too.
//! - counter.N4 While cells are being folded (CLOSING or FOLDING), readers wait: they never see a
//!   total without the part that is on its way. They wait without announcing the cells, or
//!   announced as WAITING: whoever folds would else find them inside each time it looks.
//!
//! Source: OpLog, section 5.2; REQUIREMENTS O-10 and O-11.

use crate::config;
use crate::lock;
use crate::oplog::table::{self, Resident};
use crate::percpu::segmented::Lazy;
use crate::percpu::{self, Slot, barrier};
use crate::sync::{
    self, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Backoff, Ordering,
};
use std::cell::Cell;
use std::ptr;

/// Bit in the pointer to the cells: they are being folded into the values.
const CLOSING: usize = 16;
/// In an announcement: looks at the gate alone.
const WAITING: usize = 32;
const ADDRESS: usize = !0x7f;

const OPEN: u32 = 0;
const FOLDING: u32 = 1;
const EVICTED: u32 = 2;

/// Slots whose rows are found in the cells themselves: so many that these take two cache lines.
const FIRST: usize = if config::SMALL { 1 } else { 8 };
/// Slots whose rows are found without going through a segment.
const NEAR: usize = 1 << config::SEGMENT_BITS;
/// Words to a cache line pair.
const LINE: usize = config::CACHE_LINE_BYTES / size_of::<u64>();
/// Failed compare-and-swaps of one thread after which the counter it failed on is promoted.
const FAILURES: u32 = config::CONTENDED_FOR_LOGS;
/// Reads in a row that find at most one row changed before the cells are given up.
const IDLE_READS: u32 = config::IDLE_READS;

/// A row: one slot's part of every counter of a group, on lines of its own.
#[repr(align(128))]
struct Line([AtomicU64; LINE]);

/// Pointer to a slot's row; null until the slot counts something.
struct RowPtr(AtomicPtr<Line>);

impl From<usize> for RowPtr {
    fn from(_: usize) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// The rows of all slots but the first ones (whose places here stay empty).
struct MoreRows {
    near: [RowPtr; NEAR],
    far: Lazy<RowPtr>,
}

impl MoreRows {
    #[inline(always)]
    fn get(&self, slot: usize) -> Option<&RowPtr> {
        self.near.get(slot).or_else(|| self.far.get(slot))
    }

    fn iter(&self) -> impl Iterator<Item = &RowPtr> {
        self.near.iter().chain(self.far.iter().map(|(_, place)| place))
    }
}

/// The hot side of a group of counters.
#[repr(C, align(128))]
pub(super) struct Cells {
    gate: AtomicU32,
    idle_reads: AtomicU32,
    first: [RowPtr; FIRST],
    /// Null until another slot counts, and again once an eviction has freed it.
    more: AtomicPtr<MoreRows>,
    /// Counters in the group.
    len: usize,
    /// What evicted rows held.
    base: Box<[AtomicU64]>,
    lock: AtomicUsize,
    claimed: AtomicBool,
    /// Total at the last read, per group; for the policy alone.
    last: AtomicU64,
}

impl Cells {
    fn new(len: usize) -> Box<Self> {
        Box::new(Self {
            gate: AtomicU32::new(OPEN),
            idle_reads: AtomicU32::new(0),
            first: std::array::from_fn(RowPtr::from),
            more: AtomicPtr::new(ptr::null_mut()),
            len,
            base: (0..len).map(|_| AtomicU64::new(0)).collect(),
            lock: AtomicUsize::new(0),
            claimed: AtomicBool::new(false),
            last: AtomicU64::new(0),
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
        // ORDER: Acquire; pairs with the exchange in `make_more`: its contents.
        // SAFETY: counter.N3 keeps it, as the rows, while the cells are announced.
        unsafe { self.more.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make_more(&self) -> &MoreRows {
        let near = std::array::from_fn(RowPtr::from);
        let made = Box::into_raw(Box::new(MoreRows { near, far: Lazy::new() }));
        // ORDER: Release; pairs with Acquire in `more`, and on failure with the winner's.
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
        // SAFETY: counter.N3 keeps it, as the rows, while the calling thread announces the cells.
        unsafe { &*more }
    }

    /// The calling slot's word of a counter.
    #[inline(always)]
    fn word(&self, slot: usize, index: usize) -> &AtomicU64 {
        // ORDER: Relaxed; only the slot's owners write it, who follow each other by Release and
        // Acquire (percpu.P2).
        let row = match self.row_ptr(slot).map(|row| row.0.load(Ordering::Relaxed)) {
            Some(row) if !row.is_null() => row,
            _ => self.make_row(slot),
        };
        // SAFETY: a row has `lines()` lines, and `index < len`; counter.N3 keeps it while it is
        // announced.
        unsafe { &(*row.add(index / LINE)).0[index % LINE] }
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
                more.near.get(slot).unwrap_or_else(|| more.far.get_or_init(slot))
            }
        };
        // ORDER: Release; pairs with Acquire in `rows`: zeros before the pointer.
        place.0.store(row, Ordering::Release);
        row
    }

    /// Every row that exists.
    fn rows(&self) -> impl Iterator<Item = *mut Line> {
        let more = self.more().into_iter().flat_map(MoreRows::iter);
        let places = self.first.iter().chain(more);
        // ORDER: Acquire; pairs with Release in `make_row`.
        places.map(|place| place.0.load(Ordering::Acquire)).filter(|row| !row.is_null())
    }

    /// The hot part of a counter's total (counter.N1).
    fn part(&self, index: usize) -> u64 {
        // ORDER: Relaxed; the caller's gate check ordered the base, and a row's word is read for
        // what it is at some moment during the call.
        let base = self.base[index].load(Ordering::Relaxed);
        self.rows().fold(base, |sum, row| {
            // SAFETY: a row has `lines()` lines; the caller has announced or owns the cells
            // (counter.N3).
            let word = unsafe { &(*row.add(index / LINE)).0[index % LINE] };
            sum.wrapping_add(word.load(Ordering::Relaxed))
        })
    }

    fn address(&self) -> usize {
        ptr::from_ref(self) as usize
    }

    /// The cells are closed: waits until nobody is inside (counter.N3).
    fn wait_until_unannounced(&self) {
        barrier_against_updaters();
        let own = self.address();
        percpu::records().wait_until_none(|word| word & ADDRESS == own);
    }

    /// The rows are to be folded: waits until nobody is at them (counter.N3).
    fn wait_until_rows_are_free(&self) {
        barrier_against_updaters();
        let own = self.address();
        percpu::records().wait_until_none(|word| word & (ADDRESS | WAITING) == own);
    }

    fn free_rows(&self) {
        // ORDER: Acquire; pairs with the exchange in `make_more`.
        let more = self.more.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: made by `Box::into_raw` in `make_more`; counter.N3 - no thread is inside.
        let more = (!more.is_null()).then(|| unsafe { Box::from_raw(more) });
        for place in self.first.iter().chain(more.iter().flat_map(|more| more.iter())) {
            // ORDER: Acquire; pairs with Release in `make_row`.
            let row = place.0.swap(ptr::null_mut(), Ordering::Acquire);
            if !row.is_null() {
                let row = ptr::slice_from_raw_parts_mut(row, self.lines());
                // SAFETY: made by `Box::into_raw` of so many lines; counter.N3 - nobody is inside.
                drop(unsafe { Box::from_raw(row) });
            }
        }
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        self.free_rows();
    }
}

/// The closing side's half of the race that [`Slot::announce`] is the other half of.
fn barrier_against_updaters() {
    if barrier::is_asymmetric() { barrier::heavy() } else { barrier::fence_full() }
}

impl Resident for Cells {
    fn try_claim(&self) -> bool {
        let free = lock::try_lock(&self.lock, percpu::thread_token()).is_ok();
        if free {
            lock::held::enter();
            // ORDER: Relaxed; the table's mutex orders it.
            self.claimed.store(true, Ordering::Relaxed);
        }
        free
    }

    fn activity(&self) -> u64 {
        (0..self.len).fold(0, |sum, index| sum.wrapping_add(self.part(index)))
    }

    unsafe fn finish_eviction(this: *const Self) {
        // SAFETY: `claimed` keeps the cells alive until the last store below.
        let cells = unsafe { &*this };
        // ORDER: Release; the barrier comes before the look at the records.
        cells.gate.store(FOLDING, Ordering::Release);
        cells.wait_until_rows_are_free();
        for index in 0..cells.len {
            // ORDER: Relaxed; published by the gate's Release below.
            cells.base[index].store(cells.part(index), Ordering::Relaxed);
        }
        cells.free_rows();
        // ORDER: Release; pairs with Acquire of the gate in `sum`: base before EVICTED.
        cells.gate.store(EVICTED, Ordering::Release);
        // SAFETY: locked by `try_claim`.
        unsafe { lock::unlock(&raw const (*this).lock, 0) };
        lock::held::leave();
        // ORDER: Release; pairs with Acquire in `Group::give_up`.
        cells.claimed.store(false, Ordering::Release);
    }
}

sync::thread_local! {
    /// Compare-and-swaps that this thread has lost since it last promoted something.
    static LOST: Cell<u32> = const { Cell::new(0) };
}

/// A group of counters, wherever its owner keeps the two parts of it.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) values: &'a [AtomicU64],
    pub(super) hot: &'a AtomicPtr<Cells>,
}

impl Group<'_> {
    #[inline(always)]
    pub(super) fn add(self, index: usize, n: u64) {
        // ORDER: Acquire; pairs with Release in `promote`.
        let hot = self.hot.load(Ordering::Acquire);
        if !hot.is_null() {
            if let Some(slot) = percpu::idle_slot() {
                if self.add_hot(slot, hot, index, n) {
                    return;
                }
            }
            self.add_slow(index, n);
        } else {
            self.add_cold(index, n);
        }
    }

    /// Adds to the slot's row, if the cells are these and open.
    #[inline(always)]
    fn add_hot(self, slot: Slot, hot: *mut Cells, index: usize, n: u64) -> bool {
        let word = hot as usize;
        let _inside = slot.announce(word, barrier::is_asymmetric());
        // ORDER: Acquire; after the announcement (counter.N2).
        if self.hot.load(Ordering::Acquire) != hot || word & CLOSING != 0 {
            return false;
        }
        // SAFETY: counter.N3 - announced, and checked after that.
        let cells = unsafe { &*hot };
        // ORDER: Acquire; as above.
        if cells.gate.load(Ordering::Acquire) != OPEN {
            return false;
        }
        let word = cells.word(slot.index(), index);
        // ORDER: Relaxed (both); single writer (counter.N2).
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        true
    }

    #[inline]
    fn add_cold(self, index: usize, n: u64) {
        let value = &self.values[index];
        // ORDER: Relaxed (all); a count orders nothing.
        let seen = value.load(Ordering::Relaxed);
        let added = seen.wrapping_add(n);
        if value.compare_exchange(seen, added, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            value.fetch_add(n, Ordering::Relaxed);
            self.note_contention();
        }
    }

    #[cold]
    fn note_contention(self) {
        let lost = LOST.with(|lost| {
            lost.set(lost.get() + 1);
            lost.get()
        });
        if lost >= FAILURES {
            LOST.with(|lost| lost.set(0));
            self.promote(false);
        }
    }

    /// The cells are closing, evicted or gone; or the thread has no idle slot.
    #[cold]
    fn add_slow(self, index: usize, n: u64) {
        let hot = self.hot.load(Ordering::Acquire);
        if hot.is_null() || hot as usize & CLOSING != 0 {
            // ORDER: Relaxed; counter.N1 - the value is always part of the total.
            self.values[index].fetch_add(n, Ordering::Relaxed);
            return;
        }
        if !percpu::with_slot(|slot| self.add_hot(slot, hot, index, n)) {
            self.values[index].fetch_add(n, Ordering::Relaxed);
            self.give_up(Cells::is_evicted);
        }
    }

    /// The total of a counter (counter.N1).
    pub(super) fn sum(self, index: usize) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let hot = self.hot.load(Ordering::Acquire);
            if hot.is_null() {
                // ORDER: Relaxed; see `add_cold`.
                return self.values[index].load(Ordering::Relaxed);
            }
            if hot as usize & CLOSING == 0 {
                if let Some(sum) = percpu::with_slot(|slot| self.sum_hot(slot, hot, index)) {
                    return sum;
                }
                self.wait_for_folding(hot, &mut backoff);
            }
            backoff.pause();
        }
    }

    /// Waits while an evictor folds the rows (counter.N4).
    #[cold]
    fn wait_for_folding(self, hot: *mut Cells, backoff: &mut Backoff) {
        percpu::with_slot(|slot| {
            let _inside = slot.announce(hot as usize | WAITING, false);
            // ORDER: Acquire; after the announcement (counter.N3).
            if self.hot.load(Ordering::Acquire) != hot {
                return;
            }
            // SAFETY: counter.N3 - announced, and checked after that.
            let cells = unsafe { &*hot };
            // ORDER: Acquire; pairs with Release in `finish_eviction`: the base before EVICTED.
            while cells.gate.load(Ordering::Acquire) == FOLDING {
                backoff.pause();
            }
        });
    }

    fn sum_hot(self, slot: Slot, hot: *mut Cells, index: usize) -> Option<u64> {
        let _inside = slot.announce(hot as usize, barrier::is_asymmetric());
        // ORDER: Acquire (both); after the announcement (counter.N3, counter.N4).
        if self.hot.load(Ordering::Acquire) != hot || hot as usize & CLOSING != 0 {
            return None;
        }
        // SAFETY: counter.N3 - announced, and checked after that.
        let cells = unsafe { &*hot };
        if cells.gate.load(Ordering::Acquire) == FOLDING {
            return None;
        }
        // ORDER: Relaxed; see `add_cold`.
        Some(self.values[index].load(Ordering::Relaxed).wrapping_add(cells.part(index)))
    }

    /// Whether the group has cells, perhaps evicted ones; a hint.
    #[inline]
    pub(super) fn is_hot(self) -> bool {
        // ORDER: Relaxed; a hint.
        !self.hot.load(Ordering::Relaxed).is_null()
    }

    /// Whether each thread counts for itself: not any more once the cells were evicted.
    pub(super) fn is_distributed(self) -> bool {
        let hot = self.hot.load(Ordering::Acquire);
        if hot.is_null() || hot as usize & CLOSING != 0 {
            return false;
        }
        percpu::with_slot(|slot| {
            let _inside = slot.announce(hot as usize | WAITING, false);
            // ORDER: Acquire; after the announcement (counter.N3).
            // SAFETY: counter.N3 - announced, and checked after that.
            self.hot.load(Ordering::Acquire) == hot && !unsafe { &*hot }.is_evicted()
        })
    }

    /// After a read of the whole group that gave `total`: gives cells up that nobody uses.
    pub(super) fn note_read(self, total: u64) {
        self.give_up(|cells| {
            // ORDER: Relaxed (all); a policy's hints.
            if cells.gate.load(Ordering::Relaxed) == EVICTED {
                return true;
            }
            if cells.last.swap(total, Ordering::Relaxed) != total {
                cells.idle_reads.store(0, Ordering::Relaxed);
                return false;
            }
            cells.idle_reads.fetch_add(1, Ordering::Relaxed) + 1 >= IDLE_READS
        });
    }

    /// Gives the group cells. `insist` evicts whoever has their place.
    #[cold]
    pub(super) fn promote(self, insist: bool) -> bool {
        self.give_up(Cells::is_evicted);
        if !self.hot.load(Ordering::Acquire).is_null() {
            return true;
        }
        let cells = Box::into_raw(Cells::new(self.values.len()));
        let Ok(eviction) = table::shared().enter(cells.cast_const(), insist, 0) else {
            // SAFETY: made just above and shared with nobody.
            drop(unsafe { Box::from_raw(cells) });
            return false;
        };
        // ORDER: AcqRel; Release publishes the cells.
        let raced = self
            .hot
            .compare_exchange(ptr::null_mut(), cells, Ordering::AcqRel, Ordering::Acquire)
            .is_err();
        if raced {
            // SAFETY: published nowhere but in the table, which it leaves here.
            unsafe { release(cells) };
        }
        drop(eviction);
        true
    }

    /// Takes the cells away if they agree, folding what they hold into the values.
    #[cold]
    pub(super) fn give_up(self, agree: impl Fn(&Cells) -> bool) {
        let hot = self.hot.load(Ordering::Acquire);
        if hot.is_null() || hot as usize & CLOSING != 0 {
            return;
        }
        let closing = percpu::with_slot(|slot| {
            let _inside = slot.announce(hot as usize, false);
            // ORDER: Acquire; after the announcement (counter.N3).
            if self.hot.load(Ordering::Acquire) != hot {
                return false;
            }
            // SAFETY: counter.N3 - announced, and checked after that.
            if !agree(unsafe { &*hot }) {
                return false;
            }
            let marked = hot.map_addr(|address| address | CLOSING);
            // ORDER: AcqRel; whoever wins folds alone (counter.N4).
            self.hot.compare_exchange(hot, marked, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if !closing {
            return;
        }
        // SAFETY: the CAS above made this thread the one that frees the cells.
        let cells = unsafe { &*hot };
        leave_table(cells);
        cells.wait_until_unannounced();
        for (index, value) in self.values.iter().enumerate() {
            // ORDER: Relaxed; published by the Release below.
            value.fetch_add(cells.part(index), Ordering::Relaxed);
        }
        // ORDER: Release; pairs with Acquire in `sum`: the values before the null.
        self.hot.store(ptr::null_mut(), Ordering::Release);
        cells.wait_until_unannounced();
        // SAFETY: counter.N3 - out of the table, out of the group, announced by nobody.
        drop(unsafe { Box::from_raw(hot) });
    }
}

/// Leaves the table and waits for an evictor that claimed the cells before.
fn leave_table(cells: &Cells) {
    table::shared().leave(ptr::from_ref(cells));
    let mut backoff = Backoff::new();
    // ORDER: Acquire; pairs with Release in `finish_eviction`.
    while cells.claimed.load(Ordering::Acquire) {
        backoff.pause();
    }
}

/// Frees cells that no other thread can reach, an evictor apart.
///
/// # Safety
/// The cells came from `Box::into_raw` and belong to no group any more, and no other thread reaches
/// them, but for an evictor that found them in the table.
pub(super) unsafe fn release(cells: *mut Cells) {
    // SAFETY: the caller promises that the cells came from `Box::into_raw`; only `release` frees
    // such cells, and it does so below.
    leave_table(unsafe { &*cells });
    // SAFETY: they came from `Box::into_raw` (# Safety), no group leads to them, and the table and
    // its evictors have let go of them (`leave_table`).
    drop(unsafe { Box::from_raw(cells) });
}
