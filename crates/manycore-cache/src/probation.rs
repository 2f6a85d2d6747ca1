//! The queue of entries on probation, in a cache that weighs: a ring of records, oldest first.
//!
//! A record is the half of a hash that chooses the bucket, in a table of any size. The evictor that
//! takes it searches that bucket for an entry on probation.
//!
//! Laws:
//! - cache.Q1 Records are hints: what is linked counts. A record whose entry is gone finds nothing,
//!   or another entry on probation in its bucket. A record that was lost, because it was taken
//!   before it was written, leaves an entry on probation to the next record of its bucket.
//! - cache.Q2 Records are added with the lock of their entry's bucket held; so none is added to a
//!   table that is being replaced.

use crate::key_hash::KeyHash;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The queue of a table.
#[derive(Clone, Copy)]
pub(crate) struct ProbationQueue<'t> {
    records: &'t [AtomicU32],
    ends: &'t Ends,
}

/// Room for so many records or more; none if it is zero.
pub(crate) fn records(room: usize) -> Box<[AtomicU32]> {
    let room = if room == 0 { 0 } else { room.next_power_of_two() };
    (0..room).map(|_| AtomicU32::new(0)).collect()
}

/// What updates write of a queue: not beside what readers look at.
#[derive(Default)]
pub(crate) struct Ends {
    /// Records taken so far.
    head: AtomicUsize,
    /// Records added so far.
    tail: AtomicUsize,
}

impl<'t> ProbationQueue<'t> {
    #[inline(always)]
    pub(crate) fn of(records: &'t [AtomicU32], ends: &'t Ends) -> Self {
        Self { records, ends }
    }

    #[inline(always)]
    pub(crate) fn has_room(self) -> bool {
        !self.records.is_empty()
    }

    pub(crate) fn bytes(self) -> usize {
        size_of_val(self.records)
    }

    #[inline]
    fn record(self, at: usize) -> &'t AtomicU32 {
        debug_assert!(
            self.records.len().is_power_of_two(),
            "cache.Q1: a queue of {} records",
            self.records.len()
        );
        &self.records[at & (self.records.len() - 1)]
    }

    /// Records there are.
    #[inline]
    pub(crate) fn len(self) -> usize {
        // ORDER: Relaxed; hints (cache.Q1), as all of this file. The head is read first: so it is
        // not beyond the tail, except for what was taken in between.
        let head = self.ends.head.load(Ordering::Relaxed);
        self.ends.tail.load(Ordering::Relaxed).saturating_sub(head)
    }

    /// Adds a record; false if there is no room. cache.Q2 is the caller's.
    #[inline]
    pub(crate) fn push(self, hash: KeyHash) -> bool {
        self.add(hash.upper())
    }

    #[inline]
    fn add(self, record: u32) -> bool {
        if self.len() >= self.records.len() {
            return false;
        }
        // ORDER: Relaxed; cache.Q1.
        let at = self.ends.tail.fetch_add(1, Ordering::Relaxed);
        self.record(at).store(record, Ordering::Relaxed);
        true
    }

    /// Takes the oldest record.
    #[inline]
    pub(crate) fn pop(self) -> Option<u32> {
        // ORDER: Relaxed; cache.Q1.
        let mut head = self.ends.head.load(Ordering::Relaxed);
        while head < self.ends.tail.load(Ordering::Relaxed) {
            // ORDER: Relaxed; cache.Q1.
            let next = self.ends.head.compare_exchange(
                head,
                head + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match next {
                // ORDER: Relaxed; cache.Q1.
                Ok(_) => return Some(self.record(head).load(Ordering::Relaxed)),
                Err(now) => head = now,
            }
        }
        None
    }

    /// Takes over what is in another queue, as far as there is room.
    pub(crate) fn take_over(self, old: Self) {
        while let Some(record) = old.pop() {
            self.add(record);
        }
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_order_and_stop_at_the_room() {
        let (room, ends) = (records(3), Ends::default());
        let probation = ProbationQueue::of(&room, &ends);
        let hash = |n: u64| KeyHash::of(n);
        assert!((0..4).all(|n| probation.push(hash(n))));
        assert!(!probation.push(hash(4)));
        let all: Vec<_> = std::iter::from_fn(|| probation.pop()).collect();
        assert_eq!(all, (0..4).map(|n| hash(n).upper()).collect::<Vec<_>>());
        assert!(probation.push(hash(5)));
        assert_eq!(probation.len(), 1);
    }

    #[test]
    fn without_room_nothing_goes_in() {
        let (room, ends) = (records(0), Ends::default());
        let probation = ProbationQueue::of(&room, &ends);
        assert!(!probation.push(KeyHash::of(1)));
        assert_eq!(probation.pop(), None);
    }

    #[test]
    fn a_larger_queue_takes_over_the_records() {
        let (less, more) = ((records(4), Ends::default()), (records(8), Ends::default()));
        let (old, new) =
            (ProbationQueue::of(&less.0, &less.1), ProbationQueue::of(&more.0, &more.1));
        assert!((0..4).all(|n| old.push(KeyHash::of(n))));
        new.take_over(old);
        assert_eq!((old.len(), new.len()), (0, 4));
        assert_eq!(new.pop(), Some(KeyHash::of(0).upper()));
    }
}
