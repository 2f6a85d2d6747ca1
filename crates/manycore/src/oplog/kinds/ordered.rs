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
    entries: Vec<(Stamp, O)>,
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

    /// Takes out the latest entry.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<(Stamp, O)> {
        self.entries.pop()
    }

    /// Puts back entries of any age.
    pub(super) fn put_back(&mut self, entries: impl Iterator<Item = (Stamp, O)>) {
        self.entries.extend(entries);
        self.entries.sort_by_key(|(stamp, _)| *stamp);
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

/// Up to this many logs, the smallest head is found by a scan of all heads.
const SCAN_LIMIT: usize = 8;

/// Calls `visit` with every entry in the order of (stamp, log, position in the log), and leaves the
/// logs empty. Returns the number of calls. If `visit` panics, the entries that were not visited
/// stay in the logs.
pub(crate) fn merge<O>(logs: &mut [Ordered<O>], mut visit: impl FnMut(Stamp, O)) -> usize {
    let mut last = Stamp::ZERO;
    let visit = |stamp, op| {
        if cfg!(debug_assertions) {
            assert!(stamp >= last, "oplog.D3: an update is applied after a later one");
            last = stamp;
        }
        visit(stamp, op);
    };
    let total = logs.iter().map(|log| log.entries.len()).sum();
    if logs.len() > SCAN_LIMIT {
        merge_by_sort(logs, visit);
    } else {
        merge_by_scan(logs, visit);
    }
    total
}

/// Reverses logs so that the oldest entry is popped first, and reverses them back when dropped.
struct Turned<'a, O>(&'a mut [Ordered<O>]);

impl<'a, O> Turned<'a, O> {
    fn new(logs: &'a mut [Ordered<O>]) -> Self {
        logs.iter_mut().for_each(|log| log.entries.reverse());
        Self(logs)
    }
}

impl<O> Drop for Turned<'_, O> {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|log| log.entries.reverse());
    }
}

/// Merges few logs: takes from the log with the oldest head for as long as that head stays the
/// oldest.
fn merge_by_scan<O>(logs: &mut [Ordered<O>], mut visit: impl FnMut(Stamp, O)) {
    let turned = Turned::new(logs);
    loop {
        let mut oldest: Option<(Stamp, usize)> = None;
        // The oldest head of the other logs. A tie goes to the lower log number.
        let mut next: Option<(Stamp, usize)> = None;
        for (number, log) in turned.0.iter().enumerate() {
            let Some((stamp, _)) = log.entries.last() else { continue };
            if oldest.is_none_or(|(first, _)| *stamp < first) {
                next = oldest;
                oldest = Some((*stamp, number));
            } else if next.is_none_or(|(second, _)| *stamp < second) {
                next = Some((*stamp, number));
            }
        }
        let Some((_, number)) = oldest else { return };
        let run = &mut turned.0[number].entries;
        let goes_on = |stamp: Stamp| match next {
            None => true,
            Some((other, holder)) => stamp < other || (stamp == other && number < holder),
        };
        while run.last().is_some_and(|(stamp, _)| goes_on(*stamp)) {
            if let Some((stamp, op)) = run.pop() {
                visit(stamp, op);
            }
        }
    }
}

/// Merges many logs: one sort of everything (PEERS measured it ahead of heaps from about ten logs
/// on).
fn merge_by_sort<O>(logs: &mut [Ordered<O>], mut visit: impl FnMut(Stamp, O)) {
    let total = logs.iter().map(|log| log.entries.len()).sum();
    let mut all: Vec<(Stamp, u32, u32, O)> = Vec::with_capacity(total);
    for (number, log) in logs.iter_mut().enumerate() {
        let entries = log.entries.drain(..).enumerate();
        all.extend(entries.map(|(seq, (stamp, op))| (stamp, number as u32, seq as u32, op)));
    }
    all.sort_unstable_by_key(|(stamp, number, seq, _)| std::cmp::Reverse((*stamp, *number, *seq)));
    let mut rest = Rest { logs, all };
    while let Some((stamp, _, _, op)) = rest.all.pop() {
        visit(stamp, op);
    }
}

/// Puts the entries that were not visited back into their logs when dropped.
struct Rest<'a, O> {
    logs: &'a mut [Ordered<O>],
    all: Vec<(Stamp, u32, u32, O)>,
}

impl<O> Drop for Rest<'_, O> {
    fn drop(&mut self) {
        while let Some((stamp, number, _, op)) = self.all.pop() {
            self.logs[number as usize].entries.push((stamp, op));
        }
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
    fn both_merges_keep_stamp_log_and_place() {
        for count in [0, 1, 2, 3, SCAN_LIMIT, SCAN_LIMIT + 1, 40] {
            let stamps = spread(count);
            let slices: Vec<&[u64]> = stamps.iter().map(Vec::as_slice).collect();
            let mut expected: Vec<(u64, usize)> = Vec::new();
            for (number, list) in stamps.iter().enumerate() {
                expected.extend(list.iter().map(|s| (*s, number)));
            }
            expected.sort();
            for by_sort in [false, true] {
                let mut seen = Vec::new();
                let mut logs = logs_of(&slices);
                let visit = |stamp: Stamp, (number, raw)| {
                    assert_eq!(stamp.ticks(), raw);
                    seen.push((raw, number));
                };
                if by_sort {
                    merge_by_sort(&mut logs, visit);
                } else {
                    merge_by_scan(&mut logs, visit);
                }
                assert_eq!(seen, expected, "{count} logs, by_sort={by_sort}");
                assert!(logs.iter().all(|log| log.entries.is_empty()));
            }
        }
    }

    #[test]
    fn panic_in_visit_keeps_the_rest_in_order() {
        for count in [1, 3, SCAN_LIMIT + 3] {
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
