//! The paper's basic log, and the merge by stamp.

use crate::clock::Stamp;
use crate::oplog::{Log, Op};

/// Keeps every update with its stamp and applies them in the order of their stamps.
///
/// Right for any type: the order of updates on different threads is the order in which they
/// happened. Cost of an append: a clock read (about 15 ns on current x86) and a push to a vector of
/// the slot. If order is not observable, [`Commuting`](super::Commuting) saves the clock read.
///
/// ```
/// use manycore::oplog::{Deferred, Op, Ordered};
///
/// struct Append(char);
/// impl Op<String> for Append {
///     fn apply(self, text: &mut String) {
///         text.push(self.0);
///     }
/// }
///
/// let text = Deferred::<String, Ordered<Append>>::new(String::new());
/// text.append(Append('a'));
/// text.append(Append('b'));
/// assert_eq!(*text.read(), "ab");
/// ```
#[derive(Debug)]
pub struct Ordered<O> {
    /// Ascending by stamp, except during a merge.
    pub(super) entries: Vec<(Stamp, O)>,
}

impl<O> Default for Ordered<O> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<T, O: Op<T> + Send + 'static> Log<T> for Ordered<O> {
    type Op = O;
    const ORDERED: bool = true;

    #[inline(always)]
    fn apply(op: O, target: &mut T) {
        op.apply(target);
    }

    #[inline(always)]
    fn push(&mut self, op: O, stamp: Stamp) {
        self.entries.push((stamp, op));
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.entries.len() * size_of::<(Stamp, O)>()
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        self.take_until(cut, into);
    }

    #[inline(always)]
    fn merge(logs: &mut [Self], target: &mut T) -> usize {
        if let [Self { entries }] = logs {
            if let [_] = entries[..] {
                entries.pop().into_iter().for_each(|(_, op)| op.apply(target));
                return 1;
            }
        }
        merge(logs, |_, op| op.apply(target))
    }
}

impl<O> Ordered<O> {
    /// Adds an entry. `stamp` is above every earlier stamp of this log.
    #[inline(always)]
    pub fn add(&mut self, op: O, stamp: Stamp) {
        self.entries.push((stamp, op));
    }

    /// Sorts by stamp. Entries of one stamp stay as they are.
    pub(super) fn sort(&mut self) {
        self.entries.sort_by_key(|(stamp, _)| *stamp); // quick with runs
    }

    /// Calls `visit` with each entry, the oldest first. If it panics, the rest stays in the log.
    /// Returns the number of calls.
    pub(super) fn drain_sorted(&mut self, mut visit: impl FnMut(Stamp, O)) -> usize {
        debug_assert!(
            self.entries.is_sorted_by_key(|(stamp, _)| *stamp),
            "oplog.D3: an update is applied after a later one"
        );
        let total = self.entries.len();
        let oldest_last = Turned::new(&mut self.entries);
        while let Some((stamp, op)) = oldest_last.0.pop() {
            visit(stamp, op);
        }
        total
    }

    /// Moves the entries with a stamp up to `cut` into `into`, which is empty.
    pub fn take_until(&mut self, cut: Stamp, into: &mut Self) {
        match self.entries.last() {
            Some((last, _)) if *last > cut => {
                let count = self.entries.partition_point(|(stamp, _)| *stamp <= cut);
                into.entries.extend(self.entries.drain(..count));
            }
            _ => std::mem::swap(&mut self.entries, &mut into.entries),
        }
    }
}

/// Calls `visit` with every entry in the order of (stamp, log, position in the log), and leaves the
/// logs empty. Returns the number of calls. If `visit` panics, the entries that were not visited
/// stay in the first log.
#[inline(never)] // keeps the merge of a single entry short
fn merge<O>(logs: &mut [Ordered<O>], visit: impl FnMut(Stamp, O)) -> usize {
    match logs {
        [] => 0,
        [only] => only.drain_sorted(visit),
        [first, others @ ..] => {
            let mut batch = Batch::take(first, others.iter_mut());
            batch.all.sort();
            batch.all.drain_sorted(visit)
        }
    }
}

/// The entries of several logs, which keep their own memory. Dropping this, also when user code
/// panics, leaves what was not applied in the first log.
pub(super) struct Batch<'a, O> {
    first: &'a mut Ordered<O>,
    /// Sorted by the caller.
    pub(super) all: Ordered<O>,
}

impl<'a, O> Batch<'a, O> {
    /// Takes everything out of the logs.
    pub(super) fn take(
        first: &'a mut Ordered<O>,
        others: impl Iterator<Item = &'a mut Ordered<O>>,
    ) -> Self {
        let mut entries = Vec::new();
        entries.append(&mut first.entries);
        others.for_each(|other| entries.append(&mut other.entries));
        Self { first, all: Ordered { entries } }
    }
}

impl<O> Drop for Batch<'_, O> {
    fn drop(&mut self) {
        if !self.all.entries.is_empty() {
            self.all.sort();
            self.first.entries.append(&mut self.all.entries);
        }
    }
}

/// Reverses a log so that the oldest entry is popped first, and reverses it back when dropped.
struct Turned<'a, O>(&'a mut Vec<(Stamp, O)>);

impl<'a, O> Turned<'a, O> {
    fn new(entries: &'a mut Vec<(Stamp, O)>) -> Self {
        entries.reverse();
        Self(entries)
    }
}

impl<O> Drop for Turned<'_, O> {
    fn drop(&mut self) {
        self.0.reverse();
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    fn logs_of(stamps: &[&[u64]]) -> Vec<Ordered<(usize, u64)>> {
        let log = |(number, stamps): (usize, &&[u64])| Ordered {
            entries: stamps.iter().map(|s| (Stamp::from_ticks(*s), (number, *s))).collect(),
        };
        stamps.iter().enumerate().map(log).collect()
    }

    fn spread(logs: usize) -> Vec<Vec<u64>> {
        // Stamps with ties across logs, none inside a log.
        (0..logs as u64).map(|l| (0..50).map(|i| i * 3 + (l * 7 + i) % 3).collect()).collect()
    }

    #[test]
    fn merge_keeps_stamp_log_and_place() {
        for count in [0, 1, 2, 3, 9, 40] {
            let stamps = spread(count);
            let slices: Vec<&[u64]> = stamps.iter().map(Vec::as_slice).collect();
            let mut expected: Vec<(u64, usize)> = Vec::new();
            for (number, list) in stamps.iter().enumerate() {
                expected.extend(list.iter().map(|s| (*s, number)));
            }
            expected.sort();
            let mut seen = Vec::new();
            let mut logs = logs_of(&slices);
            merge(&mut logs, |stamp, (number, raw)| {
                assert_eq!(stamp.ticks(), raw);
                seen.push((raw, number));
            });
            assert_eq!(seen, expected, "{count} logs");
            assert!(logs.iter().all(|log| log.entries.is_empty()));
        }
    }

    #[test]
    fn merges_leave_each_log_the_memory_that_it_had() {
        let stamps: Vec<u64> = (0..1000).collect();
        let mut logs = logs_of(&[&stamps[..10], &stamps, &stamps, &stamps]);
        let room = |logs: &[Ordered<_>]| -> Vec<usize> {
            logs.iter().map(|log| log.entries.capacity()).collect()
        };
        let before = room(&logs);
        assert_eq!(merge(&mut logs, |_, _| ()), 3010);
        assert_eq!(room(&logs), before);
    }

    #[test]
    fn panic_in_visit_keeps_the_rest_in_order() {
        for count in [1, 3, 11] {
            let stamps = spread(count);
            let slices: Vec<&[u64]> = stamps.iter().map(Vec::as_slice).collect();
            let mut logs = logs_of(&slices);
            let mut seen = 0;
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                merge(&mut logs, |_, _| {
                    seen += 1;
                    assert!(seen < 20, "planned");
                })
            }));
            assert!(result.is_err());
            assert!(logs.iter().all(|l| l.entries.is_sorted_by_key(|(stamp, _)| *stamp)));
            assert_eq!(merge(&mut logs, |_, _| ()), count * 50 - 20);
        }
    }

    #[test]
    fn cut_leaves_later_entries() {
        let mut log = logs_of(&[&[1, 5, 9]]).remove(0);
        let mut taken = Ordered::default();
        log.take_until(Stamp::from_ticks(5), &mut taken);
        assert_eq!((log.entries.len(), taken.entries.len()), (1, 2));
        let mut rest = Ordered::default();
        log.take_until(Stamp::from_ticks(9), &mut rest);
        assert_eq!((log.entries.len(), rest.entries.len()), (0, 1));
    }
}
