//! Probation: the queue of the entries on it, and how long the queue should be. New entries wait
//! there until they are used; if the queue is too long, the oldest of them is evicted.
//!
//! ```text
//! push --> [ newest  ...  oldest ] --> pop
//!          |<-- longer than the target? Then its oldest entry makes room -->|
//! ```
//!
//! A record is the half of a hash that chooses the bucket, in a table of any size. The evictor that
//! takes a record searches that bucket for an entry on probation. The queue is a ring.
//!
//! Laws:
//! - probation.Q1 Records are hints: the links decide. If the entry of a record is gone, the record
//!   finds nothing, or another entry on probation in its bucket. The ends of the queue are read and
//!   written without a lock, so concurrent threads may lose a record, or take it twice. A lost
//!   record leaves an entry on probation to the next record of its bucket, or to the hand.
//! - probation.Q2 Records are added with the lock of their entry's bucket held, so none is added to
//!   a table that is being replaced.
//! - probation.Q3 The queue's target is at least an eighteenth of a record for each bucket, which
//!   is about a hundredth of the entries, and at most seven eighths of the ring. Before the first
//!   eviction there is no target, and nothing is on probation. When a key comes back that the
//!   ghosts remember, the target moves by half a record. It grows if entries that were evicted on
//!   probation come back more often than entries that had proved themselves, and shrinks if not.
//!   How often they come back is a share of the entries that left. It is a moving average over the
//!   last 256 or so of them.

use crate::ghosts::Part;
use crate::key_hash::KeyHash;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// At the least target, one entry is on probation for this number of buckets.
const BUCKETS_FOR_ONE: usize = 18;
/// The average if all entries that left have come back.
const ALL: u32 = 1 << 24;
/// An entry that leaves, or comes back, counts as one part of 2^`SHARE` in an average.
const SHARE: u32 = 8;

/// The probation queue of a table.
#[derive(Clone, Copy)]
pub(crate) struct ProbationQueue<'t> {
    records: &'t [AtomicU32],
    ends: &'t Ends,
    buckets: usize,
}

/// Returns room for at least this number of records, or no room if it is zero.
pub(crate) fn records(room: usize) -> Box<[AtomicU32]> {
    let room = if room == 0 { 0 } else { room.next_power_of_two() };
    (0..room).map(|_| AtomicU32::new(0)).collect()
}

/// The part of a queue that updates write. It lies apart from what readers look at.
#[derive(Default)]
pub(crate) struct Ends {
    /// Records taken so far.
    head: AtomicUsize,
    /// Records added so far.
    tail: AtomicUsize,
    /// The target, in half records (probation.Q3).
    target: AtomicUsize,
    /// For each part, the share of its evicted entries that come back: averages.
    returns: [AtomicU32; 2],
}

impl Ends {
    /// Sets the head back to the tail if the tail was set back. Returns false if it was not.
    #[cold]
    fn set_head_back(&self, tail: usize, head: usize) -> bool {
        if tail < head {
            // ORDER: Relaxed; a hint (probation.Q1).
            self.head.store(tail, Ordering::Relaxed);
        }
        tail < head
    }
}

impl<'t> ProbationQueue<'t> {
    #[inline(always)]
    pub(crate) fn of(records: &'t [AtomicU32], ends: &'t Ends, buckets: usize) -> Self {
        Self { records, ends, buckets }
    }

    #[inline(always)]
    pub(crate) fn has_room(self) -> bool {
        !self.records.is_empty()
    }

    pub(crate) fn bytes(self) -> usize {
        size_of_val(self.records)
    }

    #[inline(always)]
    fn record(self, at: usize) -> &'t AtomicU32 {
        debug_assert!(
            self.records.len().is_power_of_two(),
            "probation.Q1: a queue of {} records",
            self.records.len()
        );
        &self.records[at & (self.records.len() - 1)]
    }

    /// Returns the number of records.
    #[inline]
    pub(crate) fn len(self) -> usize {
        // ORDER: Relaxed; hints (probation.Q1), as in all of this file. The head is read first, so
        // it is beyond the tail only if an end was set back.
        let head = self.ends.head.load(Ordering::Relaxed);
        self.ends.tail.load(Ordering::Relaxed).saturating_sub(head)
    }

    /// Returns the target, in half records; 0 before the first eviction (probation.Q3).
    #[inline(always)]
    fn target(self) -> usize {
        // ORDER: Relaxed; a hint (probation.Q1).
        self.ends.target.load(Ordering::Relaxed)
    }

    fn set_target(self, halves: usize) {
        let most = 2 * (self.records.len() - self.records.len() / 8);
        let least = (2 * self.buckets / BUCKETS_FOR_ONE).max(2);
        // ORDER: Relaxed; a hint (probation.Q1), as are the averages.
        self.ends.target.store(halves.min(most).max(least), Ordering::Relaxed);
    }

    /// Returns true if entries are put on probation: once an entry was evicted (probation.Q3).
    #[inline(always)]
    pub(crate) fn is_open(self) -> bool {
        self.target() != 0
    }

    /// Returns true if an entry on probation has to go before an entry that has proved itself.
    #[inline(always)]
    pub(crate) fn is_long(self) -> bool {
        2 * self.len() > self.target()
    }

    /// Sets the first target (probation.Q3), before the first eviction.
    pub(crate) fn open(self) {
        // ORDER: Relaxed; hints (probation.Q1).
        self.ends.returns.iter().for_each(|share| share.store(ALL / 2, Ordering::Relaxed));
        self.set_target(0);
    }

    /// Records that an entry of this part is evicted (probation.Q3). The queue is open.
    #[inline(always)]
    pub(crate) fn note_eviction(self, part: Part) {
        // ORDER: Relaxed; hints (probation.Q1). Of two concurrent evictions one may not be counted.
        let share = &self.ends.returns[part as usize];
        let before = share.load(Ordering::Relaxed);
        share.store(before - (before >> SHARE), Ordering::Relaxed);
    }

    /// Records that a key comes back that was evicted from this part (probation.Q3).
    pub(crate) fn note_return(self, part: Part) {
        // ORDER: Relaxed; hints (probation.Q1), as above.
        let [probation, proved] = &self.ends.returns;
        let share = &self.ends.returns[part as usize];
        let before = share.load(Ordering::Relaxed);
        share.store(before.saturating_add(ALL >> SHARE), Ordering::Relaxed);
        let is_too_short = probation.load(Ordering::Relaxed) > proved.load(Ordering::Relaxed);
        let target = self.target();
        self.set_target(if is_too_short { target + 1 } else { target.saturating_sub(1) });
    }

    /// Adds a record; returns false if there is no room. The caller keeps to probation.Q2.
    #[inline(always)]
    pub(crate) fn push(self, hash: KeyHash) -> bool {
        self.add(hash.upper())
    }

    #[inline(always)]
    fn add(self, record: u32) -> bool {
        // ORDER: Relaxed; hints (probation.Q1). Reading and writing an end is not one step. Of two
        // threads that add at once, one loses its record; a thread that was stopped in between may
        // set an end back.
        let (head, tail) = (&self.ends.head, &self.ends.tail);
        let at = tail.load(Ordering::Relaxed);
        let oldest = head.load(Ordering::Relaxed);
        if at.wrapping_sub(oldest) >= self.records.len() && !self.ends.set_head_back(at, oldest) {
            return false;
        }
        self.record(at).store(record, Ordering::Relaxed);
        tail.store(at + 1, Ordering::Relaxed);
        true
    }

    /// Takes the oldest record, if the queue is longer than its target.
    #[inline(always)]
    pub(crate) fn pop_if_long(self) -> Option<u32> {
        self.pop_beyond(self.target())
    }

    /// Takes the oldest record, if there are more than this number of half records.
    #[inline(always)]
    pub(crate) fn pop_beyond(self, halves: usize) -> Option<u32> {
        // ORDER: Relaxed; hints (probation.Q1). Not one step, as above: two threads may take the
        // same record.
        let mut head = self.ends.head.load(Ordering::Relaxed);
        // (Below zero if an end was set back.)
        let len = self.ends.tail.load(Ordering::Relaxed).wrapping_sub(head) as isize;
        if 2 * len <= halves as isize {
            return None;
        }
        if len as usize > self.records.len() {
            // The ring had no room: they were overwritten.
            head += len as usize - self.records.len();
        }
        let record = self.record(head).load(Ordering::Relaxed);
        self.ends.head.store(head + 1, Ordering::Relaxed);
        Some(record)
    }

    /// Takes over the records of another queue, as far as there is room, with its target and
    /// averages.
    pub(crate) fn take_over(self, old: Self) {
        while let Some(record) = old.pop_beyond(0) {
            self.add(record);
        }
        if old.is_open() {
            self.set_target(old.target());
        }
        for (new, old) in self.ends.returns.iter().zip(&old.ends.returns) {
            // ORDER: Relaxed; hints (probation.Q1).
            new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_order_and_stop_at_the_room() {
        let (room, ends) = (records(3), Ends::default());
        let probation = ProbationQueue::of(&room, &ends, 8);
        let hash = |n: u64| KeyHash::of(n);
        assert!((0..4).all(|n| probation.push(hash(n))));
        assert!(!probation.push(hash(4)));
        let all: Vec<_> = std::iter::from_fn(|| probation.pop_beyond(0)).collect();
        assert_eq!(all, (0..4).map(|n| hash(n).upper()).collect::<Vec<_>>());
        assert!(probation.push(hash(5)));
        assert_eq!(probation.len(), 1);
    }

    /// As if threads had been stopped between reading an end and writing it (probation.Q1).
    #[test]
    fn ends_that_were_set_back_come_into_step_again() {
        let (room, ends) = (records(4), Ends::default());
        let probation = ProbationQueue::of(&room, &ends, 4);
        ends.tail.store(100, Ordering::Relaxed);
        assert!(!probation.push(KeyHash::of(1)), "as if it were full");
        let records: Vec<_> = std::iter::from_fn(|| probation.pop_beyond(0)).collect();
        assert_eq!((records.len(), probation.len()), (4, 0));
        ends.tail.store(50, Ordering::Relaxed);
        assert_eq!((probation.pop_beyond(0), probation.len()), (None, 0));
        assert!(probation.push(KeyHash::of(2)));
        assert_eq!((probation.len(), probation.pop_beyond(0)), (1, Some(KeyHash::of(2).upper())));
    }

    /// probation.Q3
    #[test]
    fn target_moves_to_the_part_of_which_more_comes_back() {
        let (room, ends) = (records(64), Ends::default());
        let probation = ProbationQueue::of(&room, &ends, 36);
        assert!(!probation.is_open() && !probation.is_long());
        probation.open();
        probation.note_eviction(Part::Proved);
        assert!(probation.is_open());
        let add = |n: u64| (0..n).for_each(|n| assert!(probation.push(KeyHash::of(n))));
        add(2);
        assert!(!probation.is_long(), "two of 36 buckets");
        add(1);
        assert!(probation.is_long());
        // All entries that were on probation come back.
        (0..8).for_each(|_| probation.note_return(Part::Probation));
        assert!(!probation.is_long());
        (0..1000).for_each(|_| probation.note_return(Part::Probation));
        add(53);
        assert!(!probation.is_long(), "seven eighths of 64");
        add(1);
        assert!(probation.is_long());
        // Then so many of them leave that few come back.
        (0..2000).for_each(|_| probation.note_eviction(Part::Probation));
        (0..200).for_each(|_| probation.note_return(Part::Proved));
        while probation.pop_if_long().is_some() {}
        assert_eq!(probation.len(), 2);
    }

    #[test]
    fn without_room_nothing_goes_in() {
        let (room, ends) = (records(0), Ends::default());
        let probation = ProbationQueue::of(&room, &ends, 8);
        assert!(!probation.push(KeyHash::of(1)));
        assert_eq!(probation.pop_beyond(0), None);
    }

    #[test]
    fn a_larger_queue_takes_over_the_records() {
        let (less, more) = ((records(4), Ends::default()), (records(8), Ends::default()));
        let (old, new) =
            (ProbationQueue::of(&less.0, &less.1, 4), ProbationQueue::of(&more.0, &more.1, 8));
        assert!((0..4).all(|n| old.push(KeyHash::of(n))));
        new.take_over(old);
        assert_eq!((old.len(), new.len()), (0, 4));
        assert_eq!(new.pop_beyond(0), Some(KeyHash::of(0).upper()));
    }
}
