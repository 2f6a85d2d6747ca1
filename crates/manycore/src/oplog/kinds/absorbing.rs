use super::cancelling::Cancel;
use super::ordered::{Ordered, merge};
use crate::clock::Stamp;
use crate::oplog::{Log, Op};
use hashbrown::HashMap;

/// Keeps every update with its stamp; at the merge a remove absorbs the insert that was not
/// applied yet: the paper's *global absorption* (sections 5.2 and 7.3).
///
/// For sets of elements that one thread adds and another removes. The contract of the updates is
/// that of [`Cancel`]; the paper's flag "already in the structure" is not needed, because an
/// insert that is still in the batch has by that very fact not been applied. Where the same thread
/// adds and removes, [`Cancelling`](super::Cancelling) does less: no stamp, and nothing kept.
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
        let mut batch = Batch::take(logs);
        let Batch { own, survivors, .. } = &mut batch;
        let mut inserted: HashMap<O::Key, usize> = HashMap::new();
        merge(own, |stamp, op| {
            // In first: the update's own code may panic, and then it goes back.
            let place = survivors.len();
            survivors.push(Some((stamp, op)));
            let Some(Some((_, op))) = survivors.last() else { return };
            let key = op.key();
            if op.inserts() {
                inserted.insert(key, place);
            } else if let Some(before) = inserted.remove(&key) {
                // Both out, and only then dropped, which may panic.
                drop((survivors[before].take(), survivors.pop()));
            }
        });
        let mut applied = 0;
        for place in 0..batch.survivors.len() {
            if let Some((_, op)) = batch.survivors[place].take() {
                op.apply(target);
                applied += 1;
            }
        }
        applied
    }
}

/// A batch in hand. Dropping it, also when user code panics, gives the logs their buffers back and
/// with them what was not applied.
struct Batch<'a, O> {
    logs: &'a mut [Absorbing<O>],
    own: Vec<Ordered<O>>,
    /// What was not absorbed, ascending by stamp, and below whatever is in `own` still.
    survivors: Vec<Option<(Stamp, O)>>,
}

impl<'a, O> Batch<'a, O> {
    fn take(logs: &'a mut [Absorbing<O>]) -> Self {
        let own = logs.iter_mut().map(|log| std::mem::take(&mut log.log)).collect();
        Self { logs, own, survivors: Vec::new() }
    }
}

impl<O> Drop for Batch<'_, O> {
    fn drop(&mut self) {
        for (log, own) in self.logs.iter_mut().zip(self.own.drain(..)) {
            log.log = own;
        }
        if let Some(first) = self.logs.first_mut() {
            first.log.put_before(self.survivors.drain(..).flatten());
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, Ordering::SeqCst};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const NOBODY: u32 = u32::MAX;
    /// Whose key panics, and whose destructor does.
    static KEY: AtomicU32 = AtomicU32::new(NOBODY);
    static DROP: AtomicU32 = AtomicU32::new(NOBODY);

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
            let planned = DROP.compare_exchange(self.0, NOBODY, SeqCst, SeqCst).is_ok();
            assert!(!planned, "planned");
        }
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
                fails.store(NOBODY, SeqCst);
                assert_eq!(Log::merge(&mut logs, &mut list), 10);
                assert_eq!(list, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10], "{logs_used} logs");
            }
        }
    }
}
