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
        let Some((first, others)) = logs.split_first_mut() else { return 0 };
        let mut own = Vec::with_capacity(others.len() + 1);
        own.push(std::mem::take(&mut first.log));
        own.extend(others.iter_mut().map(|other| std::mem::take(&mut other.log)));
        let mut survivors: Vec<Option<(Stamp, O)>> = Vec::new();
        let mut inserted: HashMap<O::Key, usize> = HashMap::new();
        merge(&mut own, |stamp, op| {
            if op.inserts() {
                inserted.insert(op.key(), survivors.len());
                survivors.push(Some((stamp, op)));
            } else if let Some(place) = inserted.remove(&op.key()) {
                survivors[place] = None;
            } else {
                survivors.push(Some((stamp, op)));
            }
        });
        for (log, emptied) in logs.iter_mut().zip(own) {
            log.log = emptied; // gives the buffers back
        }
        let mut rest = Rest { home: &mut logs[0].log, rest: survivors.into_iter() };
        let mut applied = 0;
        for (_, op) in rest.rest.by_ref().flatten() {
            op.apply(target);
            applied += 1;
        }
        applied
    }
}

/// Puts what was not applied back into a log.
struct Rest<'a, O> {
    home: &'a mut Ordered<O>,
    rest: std::vec::IntoIter<Option<(Stamp, O)>>,
}

impl<O> Drop for Rest<'_, O> {
    fn drop(&mut self) {
        for (stamp, op) in self.rest.by_ref().flatten() {
            self.home.add(op, stamp);
        }
    }
}
