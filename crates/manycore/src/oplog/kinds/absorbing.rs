use super::cancelling::Cancel;
use super::ordered::{Batch, Ordered};
use crate::clock::Stamp;
use crate::oplog::{Log, Op};
use crate::sync::drop_each;
use hashbrown::HashMap;

/// Keeps every update with its stamp. At the merge, an insert and a remove of one element absorb
/// each other: the *global absorption* of [OpLog](crate#sources), sections 5.2 and 7.3.
///
/// For sets of elements that one thread adds and another removes. The contract of the updates is
/// that of [`Cancel`]. OpLog's flag "already in the structure" is not needed. Inserts and removes
/// of one key alternate, so the update that is left over has not been applied. So the merge finds
/// pairs by their key alone, and sorts only the rest. If the same thread adds and removes,
/// [`Cancelling`](super::Cancelling) is cheaper: it takes no stamp and keeps no cancelled pair.
///
/// Use a [`DeferredSet`](crate::ldu::DeferredSet) if each element is an object that can hold a
/// mark, and this log if it is only a key. Let two threads of an EPYC (a virtual machine) add and
/// remove elements of one list. They make 260 million pairs a second with marks, and 23 million
/// with this log. With a read after every 100 pairs they make 76 and 16 million (`manycore-bench
/// bench list`).
///
/// ```
/// use manycore::oplog::{Absorbing, Cancel, Deferred, Logs, Op};
/// use std::collections::BTreeSet;
///
/// enum Lease {
///     Begins(u64),
///     Ends(u64),
/// }
/// impl Op<BTreeSet<u64>> for Lease {
///     fn apply(self, leases: &mut BTreeSet<u64>) {
///         match self {
///             Lease::Begins(id) => assert!(leases.insert(id)),
///             Lease::Ends(id) => assert!(leases.remove(&id)),
///         }
///     }
/// }
/// impl Cancel for Lease {
///     type Key = u64;
///     fn key(&self) -> u64 {
///         let (Lease::Begins(id) | Lease::Ends(id)) = self;
///         *id
///     }
///     fn inserts(&self) -> bool {
///         matches!(self, Lease::Begins(_))
///     }
/// }
///
/// type Leases = Deferred<BTreeSet<u64>, Absorbing<Lease>>;
/// let leases = Leases::builder().logs(Logs::Always).build(BTreeSet::new())?;
/// leases.append(Lease::Begins(7));
/// std::thread::scope(|s| {
///     s.spawn(|| leases.append(Lease::Ends(7))); // in another thread's log
/// });
/// assert!(leases.read().is_empty());
/// assert_eq!(leases.stats().applied, 0); // the set never heard of it
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Absorbing<O> {
    log: Ordered<O>,
}

impl<O> Default for Absorbing<O> {
    fn default() -> Self {
        Self { log: Ordered::default() }
    }
}

impl<T, O: Op<T> + Cancel + Send + 'static> Log<T> for Absorbing<O> {
    type Op = O;
    const ORDERED: bool = true;

    #[inline(always)]
    fn apply(op: O, target: &mut T) {
        op.apply(target);
    }

    #[inline(always)]
    fn push(&mut self, op: O, stamp: Stamp) {
        self.log.add(op, stamp);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        Log::<T>::len(&self.log)
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        Log::<T>::bytes(&self.log)
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        self.log.take_until(cut, &mut into.log);
    }

    fn merge(logs: &mut [Self], target: &mut T) -> usize {
        let Some((Self { log }, others)) = logs.split_first_mut() else { return 0 };
        let mut batch = Batch::take(log, others.iter_mut().map(|other| &mut other.log));
        absorb(&mut batch.all.entries);
        batch.all.sort();
        batch.all.drain_sorted(|_, op| op.apply(target))
    }
}

/// Drops opposite updates of one key in pairs. If the key's code panics, all updates stay.
fn absorb<O: Cancel>(entries: &mut Vec<(Stamp, O)>) {
    let mut cancelled = vec![false; entries.len()];
    // By place: the place of another update with the same key and of the same kind.
    let mut others: Vec<Option<usize>> = Vec::with_capacity(entries.len());
    let mut places: HashMap<O::Key, usize> = HashMap::new();
    // Most pairs are adjacent, so the last key is kept out of the table.
    let mut last: Option<(O::Key, usize)> = None;
    for (place, (_, op)) in entries.iter().enumerate() {
        let key = op.key();
        let found = match last.take() {
            Some((same, found)) if same == key => Some(found),
            another => {
                places.extend(another);
                places.remove(&key)
            }
        };
        others.push(found);
        last = match found {
            Some(found) if entries[found].1.inserts() != op.inserts() => {
                (cancelled[found], cancelled[place]) = (true, true);
                others[found].map(|other| (key, other))
            }
            _ => Some((key, place)),
        };
    }
    // All are taken out before any is dropped, which may panic, and so may the next.
    let mut gone = Vec::new();
    let all = std::mem::replace(entries, Vec::with_capacity(entries.len()));
    for (entry, is_cancelled) in all.into_iter().zip(cancelled) {
        if is_cancelled { gone.push(entry) } else { entries.push(entry) }
    }
    drop_each(gone);
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, Ordering::SeqCst};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::slice::from_mut;

    const NO_KEY: u32 = u32::MAX;
    /// The number with the key that panics, and the number with the destructor that does.
    static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
    static DROP: AtomicU32 = AtomicU32::new(NO_KEY);

    struct Change(u32, bool);
    impl Cancel for Change {
        type Key = u32;
        fn key(&self) -> u32 {
            assert!(KEY.load(SeqCst) != self.0, "planned");
            self.0
        }
        fn inserts(&self) -> bool {
            self.1
        }
    }
    impl Op<Vec<u32>> for Change {
        fn apply(self, list: &mut Vec<u32>) {
            if self.1 { list.push(self.0) } else { list.retain(|other| *other != self.0) }
        }
    }
    impl Drop for Change {
        fn drop(&mut self) {
            let planned = DROP.compare_exchange(self.0, NO_KEY, SeqCst, SeqCst).is_ok();
            assert!(!planned, "planned");
        }
    }

    #[test]
    fn destructors_of_absorbed_updates_may_all_panic() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("planned");
            }
        }
        struct Pair(bool, Panics);
        impl Cancel for Pair {
            type Key = ();
            fn key(&self) {}
            fn inserts(&self) -> bool {
                self.0
            }
        }
        impl Op<()> for Pair {
            fn apply(self, (): &mut ()) {}
        }
        let mut log = Absorbing::default();
        (1..=4).for_each(|at| log.log.add(Pair(at % 2 == 0, Panics), Stamp::from_ticks(at)));
        let merged = catch_unwind(AssertUnwindSafe(|| Log::merge(from_mut(&mut log), &mut ())));
        assert!(merged.is_err());
        assert_eq!(Log::<()>::len(&log), 0);
    }

    #[test]
    fn panic_while_absorbing_loses_no_update() {
        for logs_used in [1, 3, 12] {
            for fails in [&KEY, &DROP] {
                let mut logs: Vec<Absorbing<Change>> = Vec::new();
                logs.resize_with(logs_used, Absorbing::default);
                let mut stamp = 0;
                let mut push = |change: Change| {
                    stamp += 1;
                    logs[stamp as usize % logs_used].log.add(change, Stamp::from_ticks(stamp));
                };
                (0..10).for_each(|key| push(Change(key, true)));
                push(Change(5, false));
                push(Change(10, true));
                let mut list = Vec::new();
                fails.store(5, SeqCst);
                let merged = catch_unwind(AssertUnwindSafe(|| Log::merge(&mut logs, &mut list)));
                assert!(merged.is_err());
                assert!(list.is_empty());
                fails.store(NO_KEY, SeqCst);
                assert_eq!(Log::merge(&mut logs, &mut list), 10);
                assert_eq!(list, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10], "{logs_used} logs");
            }
        }
    }

    /// Keys are inserted and removed on random threads, some of them present before the batch.
    #[test]
    fn what_is_left_is_what_the_object_lacks() {
        // Not the numbers that panic.
        const KEYS: std::ops::Range<u32> = 100..112;
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (seed >> 33) % below
        };
        for round in 0..300 {
            let mut logs: Vec<Absorbing<Change>> = Vec::new();
            logs.resize_with(1 + round % 12, Absorbing::default);
            let mut list: Vec<u32> = KEYS.filter(|key| key % 3 == 0).collect();
            let before = list.clone();
            let mut model = list.clone();
            for stamp in 1..=random(80) {
                let key = KEYS.start + random(12) as u32;
                let present = model.contains(&key);
                if present {
                    model.retain(|other| *other != key)
                } else {
                    model.push(key)
                }
                let log = random(logs.len() as u64) as usize;
                logs[log].log.add(Change(key, !present), Stamp::from_ticks(stamp));
            }
            let applied = Log::merge(&mut logs, &mut list);
            list.sort_unstable();
            model.sort_unstable();
            assert_eq!(list, model, "round {round}");
            let changed = KEYS.filter(|key| before.contains(key) != model.contains(key));
            assert_eq!(applied, changed.count(), "round {round}: others are absorbed");
        }
    }
}
