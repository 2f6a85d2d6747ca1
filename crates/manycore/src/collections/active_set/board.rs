//! A place for each member, in rows that belong to the threads' slots. An [`ActiveSet`] with
//! integer keys has a board in front of its pool, so that a read only loads the places.
//!
//! Owns: [`Board`], its rows and places. The pool has the members that found no place in their row,
//! and the epoch (ldu.U6). A change of a place notes the epoch, as a change of a member does.
//!
//! ```text
//! slot 0:  [ place ][ place ][ place ] ...     a place: state, key, noted epoch
//! slot 1:  [ place ][ place ][ place ] ...
//! pool:    members that found no place         gate: OPEN (scans count), SHUT, OPENING
//! ```
//!
//! A read collects all keys twice. If both collects find the same, the read has seen all keys at
//! one moment and has written nothing. This is a *scan*: an atomic snapshot by double collect (Afek
//! et al., 1993). If changes prevent that, or if the pool may have members, the read makes a *cut*
//! under the pool's lock.
//!
//! Laws:
//! - **board.B1** A place has one writer at a time: the owner of its slot while the place is free,
//!   and the owner of its handle while it is taken. Its key is written only while it is free.
//! - **board.B2** `state` counts a place's changes and never falls, nor do the other numbers that a
//!   collect adds up. So two collects with the same sum have found the same, and everything they
//!   found held at every moment between them.
//! - **board.B3** A change notes the epoch that it found, unless a later epoch is noted, and
//!   whether the place was taken before the change. Then it changes `state`. A key that a cut may
//!   still need stays: while a place says that it was taken before the present epoch, it is not
//!   reused.
//! - **board.B4** `gate` is not open from before a cut until its end, nor while the pool may have a
//!   member whose registration has returned. A scan counts only if `gate` is open before its first
//!   collect, and unchanged after its last. Only a cut opens the gate: it sets OPENING, looks
//!   whether the pool is empty, and opens the gate unless a registration has shut it since.
//!
//! Why cuts and scans have one order. Cuts among themselves have one (ldu.U6, `ldu::change`): a
//! place notes epochs as a member's word does, and a cut looks at it after the epoch was raised. A
//! scan sees exactly the changes before some moment, at which no cut is at work (board.B4).
//!
//! - A cut that had ended by that moment: the scan sees all that the cut saw. That includes late
//!   changes, which had changed their places before the cut ended. What the cut left out comes
//!   after the cut for both.
//! - A cut that begins later sees all that the scan saw: those changes were made before the epoch
//!   was raised.
//!
//! [`ActiveSet`]: super::ActiveSet

use crate::collections::Line;
use crate::config::SMALL;
use crate::percpu::{Slot, barrier, segmented::Segmented};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, seeded_bug};

/// Places in a row: as many as four lines hold.
const PLACES: usize = if SMALL { 2 } else { 10 };
/// Times that a read collects before it takes the lock, at most.
const COLLECTS: usize = if SMALL { 2 } else { 4 };

/// The phases of `gate`, in its lowest bits; above them is how often it was opened.
const OPEN: u64 = 0;
/// Scans do not count.
const SHUT: u64 = 1;
/// Scans do not count, and a cut is about to open the gate.
const OPENING: u64 = 2;
const PHASE: u64 = 3;

/// Cuts between two attempts to scan, at most. The number doubles after each failed attempt.
const PAUSE_MAX: u64 = if SMALL { 1 } else { 256 };

/// Bit of a place's state that says that the place is taken. Each change adds it.
const TAKEN: u64 = 1;

/// A taken place, for the owner of its handle.
pub(super) struct Taken<'a> {
    row: &'a Row,
    place: &'a KeyCell,
    at: usize,
}

struct KeyCell {
    /// Number of changes (board.B2); the lowest bit is [`TAKEN`].
    state: AtomicU64,
    key: AtomicU64,
    /// An epoch. The lowest bit says whether the place was taken before the first change that noted
    /// this epoch (board.B3).
    noted: AtomicU64,
}

/// The places of one slot. Reads look only at the lines of used places.
#[repr(C, align(128))]
struct Row {
    /// Number of places that were used so far. Written by the slot's owner.
    used: AtomicU32,
    /// A hint: where to begin the search for a free place, or [`PLACES`] while all are taken.
    first: AtomicU32,
    places: [KeyCell; PLACES],
}

impl From<usize> for Row {
    fn from(_: usize) -> Self {
        let new = || KeyCell {
            state: AtomicU64::new(0),
            key: AtomicU64::new(0),
            noted: AtomicU64::new(0),
        };
        Self {
            used: AtomicU32::new(0),
            first: AtomicU32::new(0),
            places: std::array::from_fn(|_| new()),
        }
    }
}

/// See the module header. Reads that can't scan write it; changes seldom do.
#[repr(align(128))]
pub(super) struct Board {
    rows: Segmented<Row>,
    /// One past the last slot that has a used row.
    end: AtomicU64,
    /// Phase, and number of openings (board.B4).
    gate: AtomicU64,
    /// Cuts until the next attempt to scan, and the last such pause. Both are hints.
    rest: AtomicU64,
    pause: AtomicU64,
    /// The last cut with a known oldest key: the epoch after it, whether there was an oldest key,
    /// and that key. Guarded by the pool's lock. Cuts write it, so it has its own line:
    /// registrations in the pool load `gate`.
    known: Line<[AtomicU64; 3]>,
}

impl Default for Board {
    /// Begins as if the pool had members, because it may have been given some.
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            rows: Segmented::new(),
            end: zero(),
            gate: AtomicU64::new(SHUT),
            rest: zero(),
            pause: zero(),
            known: Line([zero(), zero(), zero()]),
        }
    }
}

impl KeyCell {
    /// Changes a place that is in `state`. The caller is its writer.
    #[inline(always)]
    fn change(&self, state: u64, epoch: u64) {
        // ORDER: Relaxed; one writer (board.B1).
        let noted = self.noted.load(Ordering::Relaxed);
        if epoch > noted >> 1 {
            // BUG: a change forgets that the place was taken (board.B3).
            let before = if seeded_bug!("board-before") { 0 } else { state & TAKEN };
            // ORDER: Release; pairs with Acquire in `at`: the key is the one that it was.
            self.noted.store(epoch << 1 | before, Ordering::Release);
        }
        // ORDER: SeqCst, and a full fence: what this thread does next comes after it for every
        // read, as ldu.U6 wants (`ldu::change`). Releases key and note.
        self.state.swap(state.wrapping_add(TAKEN), Ordering::SeqCst);
        barrier::full_after_rmw();
    }

    /// Returns the key that the place had at the cut: changes that noted `cut` or less count.
    fn at(&self, cut: u64) -> Option<u64> {
        loop {
            // ORDER: Acquire (all of these loads); pairs with Release in `change`. The note after
            // the state: a state of a change shows its note. The key between two looks at the
            // state: it is the state's. (A key is stored with Release, so that a read that finds
            // a new one finds a new state next.)
            let state = self.state.load(Ordering::Acquire);
            let noted = self.noted.load(Ordering::Acquire);
            let key = self.key.load(Ordering::Acquire);
            if noted >> 1 > cut {
                // board.B3: that key stays until there is a later cut.
                return (noted & 1 != 0).then_some(key);
            }
            // ORDER: Relaxed; after the key, by the key's Acquire.
            if self.state.load(Ordering::Relaxed) == state {
                return (state & TAKEN != 0).then_some(key);
            }
        }
    }
}

impl Taken<'_> {
    /// Gives the place back. The caller owns the handle and gives it up.
    #[inline(always)]
    pub(super) fn leave(&self, epoch: u64) {
        // ORDER: Relaxed; the handle came to this thread, and the state with it.
        let state = self.place.state.load(Ordering::Relaxed);
        debug_assert!(state & TAKEN != 0, "board.B1: a place is left that is free");
        self.place.change(state, epoch);
        // ORDER: Relaxed (both); a hint.
        if self.row.first.load(Ordering::Relaxed) as usize != self.at {
            self.row.first.store(self.at as u32, Ordering::Relaxed);
        }
    }
}

impl Board {
    /// Takes a place in the slot's row for this key, in this epoch. The slot is the caller's.
    #[inline(always)]
    pub(super) fn enter(&self, slot: Slot, key: u64, epoch: u64) -> Option<Taken<'_>> {
        let row = self.rows.get_or_init(slot.index());
        // ORDER: Relaxed (all of `first`); a hint.
        let first = row.first.load(Ordering::Relaxed) as usize;
        if first >= PLACES {
            return None;
        }
        let mut all = TAKEN;
        for at in (first..PLACES).chain(0..first) {
            let place = &row.places[at];
            // ORDER: Acquire; pairs with the swap of a thread that left the place.
            let state = place.state.load(Ordering::Acquire);
            // ORDER: Relaxed; shown by the state.
            let noted = place.noted.load(Ordering::Relaxed);
            // BUG: a place is used again while a cut may want its key (board.B3).
            let is_wanted = noted & 1 != 0 && noted >> 1 >= epoch && !seeded_bug!("board-reuse");
            if state & TAKEN != 0 || is_wanted {
                all &= state;
                continue;
            }
            // ORDER: Relaxed; one writer.
            if row.used.load(Ordering::Relaxed) as usize <= at {
                self.use_first(row, slot, at);
            }
            // ORDER: Release; pairs with Acquire of a read, which then finds a new state.
            place.key.store(key, Ordering::Release);
            place.change(state, epoch);
            return Some(Taken { row, place, at });
        }
        if all != 0 {
            row.first.store(PLACES as u32, Ordering::Relaxed);
        }
        None
    }

    /// Announces a place before its first use: reads know of it before its state changes.
    #[cold]
    fn use_first(&self, row: &Row, slot: Slot, at: usize) {
        // ORDER: SeqCst (both), as the state's swap: a read that finds less came before that.
        self.end.fetch_max(slot.index() as u64 + 1, Ordering::SeqCst);
        row.used.store(at as u32 + 1, Ordering::SeqCst);
    }

    /// Calls `f` with each place that was used. Returns the sum of the numbers that say which these
    /// are.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(&KeyCell)) -> u64 {
        // ORDER: SeqCst (both); as in `use_first`.
        let end = self.end.load(Ordering::SeqCst);
        let mut numbers = end;
        for row in (0..end as usize).filter_map(|slot| self.rows.get(slot)) {
            let used = row.used.load(Ordering::SeqCst);
            numbers += u64::from(used);
            row.places.iter().take(used as usize).for_each(&mut f);
        }
        numbers
    }

    /// Returns the smallest key that has a place, and the sum of all numbers found (board.B2).
    #[inline(always)]
    fn collect(&self) -> (Option<u64>, u64) {
        let (mut oldest, mut states) = (None, 0_u64);
        let numbers = self.each(|place| {
            // ORDER: SeqCst, as the swaps: both collects and the changes are in one order.
            let state = place.state.load(Ordering::SeqCst);
            states = states.wrapping_add(state);
            if state & TAKEN != 0 {
                // ORDER: Acquire; a newer key shows the next collect the state that freed it.
                let key = place.key.load(Ordering::Acquire);
                oldest = Some(oldest.map_or(key, |oldest: u64| oldest.min(key)));
            }
        });
        (oldest, numbers.wrapping_add(states))
    }

    /// Returns the smallest key, if the scan saw all keys at one moment.
    #[inline(always)]
    pub(super) fn scan(&self) -> Option<Option<u64>> {
        // ORDER: SeqCst (both loads); pairs with `block` and `admit`.
        let gate = self.gate.load(Ordering::SeqCst);
        // BUG: a scan does not mind that a cut is at work (board.B4).
        if gate & PHASE != OPEN && !seeded_bug!("board-blocked") {
            return None;
        }
        // ORDER: Relaxed (all of `rest` and `pause`); hints.
        if self.rest.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let (mut oldest, mut sum) = self.collect();
        for _ in 1..COLLECTS {
            let next = self.collect();
            // BUG: what one collect finds is taken for a moment's (board.B2).
            if next.1 == sum || seeded_bug!("board-collect") {
                // BUG: a scan does not mind that a cut has begun (board.B4).
                let same = self.gate.load(Ordering::SeqCst) == gate;
                if self.pause.load(Ordering::Relaxed) != 0 {
                    self.pause.store(0, Ordering::Relaxed);
                }
                return (same || seeded_bug!("board-blocked")).then_some(oldest);
            }
            (oldest, sum) = next;
        }
        self.pause_scans();
        None
    }

    /// Pauses scans: changes kept a scan from finding the same twice.
    #[cold]
    fn pause_scans(&self) {
        if self.rest.load(Ordering::Relaxed) == 0 {
            let pause = (2 * self.pause.load(Ordering::Relaxed)).clamp(1, PAUSE_MAX);
            self.pause.store(pause, Ordering::Relaxed);
            self.rest.store(pause, Ordering::Relaxed);
        }
    }

    /// Notes the oldest key at this cut. The caller holds the pool's lock.
    pub(super) fn note_oldest(&self, cut: u64, oldest: Option<u64>) {
        let known = [cut + 1, u64::from(oldest.is_some()), oldest.unwrap_or_default()];
        for (number, known) in self.known.0.iter().zip(known) {
            // ORDER: Relaxed; guarded by the lock.
            number.store(known, Ordering::Relaxed);
        }
    }

    /// Returns the oldest key at the last cut that `note_oldest` knows, unless that cut was before
    /// `epoch`. The caller is a reader that shares the pool.
    pub(super) fn oldest_since(&self, epoch: u64) -> Option<Option<u64>> {
        // ORDER: Relaxed; guarded by the lock.
        let [after, is_some, key] =
            self.known.0.each_ref().map(|known| known.load(Ordering::Relaxed));
        (after > epoch).then_some((is_some != 0).then_some(key))
    }

    /// Calls `f` with each key that had a place at the cut. The caller holds the pool's lock.
    pub(super) fn each_at(&self, cut: u64, mut f: impl FnMut(u64)) {
        self.each(|place| {
            if let Some(key) = place.at(cut) {
                f(key);
            }
        });
    }

    /// The first place of a slot's row.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn first(&self, slot: usize) -> Taken<'_> {
        let row = self.rows.get_or_init(slot);
        Taken { row, place: &row.places[0], at: 0 }
    }

    /// Shuts the gate: scans do not count from now on (board.B4). A cut calls this before it
    /// begins. A registration in the pool calls it before it returns, after its full fence.
    #[inline]
    pub(super) fn block(&self) {
        // ORDER: SeqCst; pairs with the loads in `scan`, and with the fence in `admit`. If the gate
        // is shut here, a cut that opens it later finds what this thread did before.
        let mut gate = self.gate.load(Ordering::SeqCst);
        while gate & PHASE != SHUT {
            let shut = gate & !PHASE | SHUT;
            let ordering = Ordering::SeqCst; // as above, and so that an opening cut finds it
            match self.gate.compare_exchange(gate, shut, ordering, ordering) {
                Ok(_) => return,
                Err(now) => gate = now,
            }
        }
    }

    /// Opens the gate unless the pool has members, so that scans count again. Called at the end of
    /// a cut, under the pool's lock.
    pub(super) fn admit(&self, pool_is_empty: impl Fn() -> bool) {
        let rest = self.rest.load(Ordering::Relaxed);
        if rest != 0 {
            self.rest.store(rest - 1, Ordering::Relaxed);
        }
        if !pool_is_empty() {
            return;
        }
        // ORDER: Relaxed; a shut gate is changed by cuts alone, under the lock.
        let shut = self.gate.load(Ordering::Relaxed);
        debug_assert!(shut & PHASE == SHUT, "board.B4: a cut has not shut the gate");
        let (closed, opening) = (shut & !PHASE, shut & !PHASE | OPENING);
        self.gate.store(opening, Ordering::SeqCst);
        // ORDER: a full fence between that and the look at the pool. Pairs with the fence of a
        // registration in the pool, and its `block` after it: the look finds the registration, or
        // `block` finds the gate opening and shuts it.
        fence(Ordering::SeqCst);
        // BUG: a cut admits scans although a member has come to the pool since its look (board.B4).
        let next = match pool_is_empty() || seeded_bug!("board-admit") {
            true => closed + PHASE + 1,
            false => shut,
        };
        // ORDER: SeqCst; pairs with the loads in `scan`. It fails where a registration has shut the
        // gate.
        let _ = self.gate.compare_exchange(opening, next, Ordering::SeqCst, Ordering::SeqCst);
    }
}
