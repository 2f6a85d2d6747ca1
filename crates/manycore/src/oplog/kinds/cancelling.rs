use super::keyed::Keyed;
use crate::clock::Stamp;
use crate::oplog::{Log, Op};
use std::hash::Hash;

/// An update that inserts or removes one identified element.
///
/// Contract:
/// - Inserts and removes of one key alternate, each happening after the previous one. (Two inserts
///   of one key are kept as two, as a multiset requires.)
/// - Updates of different keys commute.
/// - All inserts of one key insert the same element: the key is its identity. The key is not reused
///   for another element while an update with it may be in a log.
///
/// ```
/// use manycore::oplog::{Cancel, Cancelling, Deferred, Logs, Op};
///
/// /// A window opens, or closes.
/// struct Window {
///     handle: u32,
///     opens: bool,
/// }
/// impl Cancel for Window {
///     type Key = u32;
///     fn key(&self) -> u32 {
///         self.handle
///     }
///     fn inserts(&self) -> bool {
///         self.opens
///     }
/// }
/// impl Op<Vec<u32>> for Window {
///     fn apply(self, open: &mut Vec<u32>) {
///         match self.opens {
///             true => open.push(self.handle),
///             false => open.retain(|handle| *handle != self.handle),
///         }
///     }
/// }
///
/// type Windows = Deferred<Vec<u32>, Cancelling<Window>>;
/// let windows = Windows::builder().logs(Logs::Always).build(Vec::new())?;
/// windows.append(Window { handle: 1, opens: true });
/// windows.append(Window { handle: 2, opens: true });
/// windows.append(Window { handle: 1, opens: false });
/// assert_eq!(*windows.read(), [2]);
/// assert_eq!(windows.stats().applied, 1); // the pair of window 1 was not
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a removal of `{Self}` does not say which insertion it cancels",
    label = "lacks `Cancel`",
    note = "implement `Cancel`, or take `Ordered` or `Commuting`, whose updates need only `Op`"
)]
pub trait Cancel {
    /// Identifies the element: a removal finds its insertion by this key, not by the value.
    // (oplog.D5)
    type Key: Hash + Eq;
    /// Returns the element's identity.
    fn key(&self) -> Self::Key;
    /// Returns true if this inserts the element, false if it removes it.
    fn inserts(&self) -> bool;
}

/// Cancels a remove against the matching insert in the same slot's log, and vice versa: the
/// *local absorption* of [OpLog](crate#sources), section 5.2.
///
/// For sets of short-lived elements: open files, connections, mappings, subscriptions. An element
/// that is added and removed on one thread never reaches the object at all. No stamp is taken. What
/// is left in several logs is cancelled against each other at the merge. Not for structures with an
/// observable order, such as queues.
///
/// Cost of a pair on one thread: two appends, no clock, no allocation once warm.
///
/// ```
/// use manycore::oplog::{Cancel, Cancelling, Deferred, Op};
/// use std::collections::BTreeSet;
///
/// enum Conn {
///     Open(u64),
///     Close(u64),
/// }
/// impl Op<BTreeSet<u64>> for Conn {
///     fn apply(self, set: &mut BTreeSet<u64>) {
///         match self {
///             Conn::Open(id) => assert!(set.insert(id)),
///             Conn::Close(id) => assert!(set.remove(&id)),
///         }
///     }
/// }
/// impl Cancel for Conn {
///     type Key = u64;
///     fn key(&self) -> u64 {
///         let (Conn::Open(id) | Conn::Close(id)) = self;
///         *id
///     }
///     fn inserts(&self) -> bool {
///         matches!(self, Conn::Open(_))
///     }
/// }
///
/// let open = Deferred::<BTreeSet<u64>, Cancelling<Conn>>::new(BTreeSet::new());
/// open.append(Conn::Open(7));
/// open.append(Conn::Open(8));
/// open.append(Conn::Close(7));
/// assert_eq!(open.read().len(), 1);
/// ```
#[derive(Debug)]
pub struct Cancelling<O> {
    ops: Keyed<O>,
}

impl<O> Default for Cancelling<O> {
    fn default() -> Self {
        Self { ops: Keyed::default() }
    }
}

impl<O: Cancel> Cancelling<O> {
    /// Adds `op`, or cancels its opposite.
    #[inline(always)]
    fn add(&mut self, op: O) {
        match self.opposite_of(&op) {
            Some(place) => drop(self.ops.remove(place)),
            None => self.ops.push(op, O::key),
        }
    }

    /// Moves the entries of `other` here, except those that cancel.
    fn cancel_with(&mut self, other: &mut Self) {
        while let Some(op) = other.ops.last() {
            let opposite = self.opposite_of(op); // may panic: `op` is still in its log
            let Some(op) = other.ops.pop() else { break };
            match opposite {
                Some(place) => drop((self.ops.remove(place), op)),
                None => self.ops.push(op, O::key),
            }
        }
    }

    /// Returns the index of the update that `op` cancels.
    #[inline(always)]
    fn opposite_of(&mut self, op: &O) -> Option<usize> {
        let place = self.ops.find(&op.key(), O::key)?;
        (self.ops.get(place).inserts() != op.inserts()).then_some(place)
    }
}

impl<T, O: Op<T> + Cancel + Send + 'static> Log<T> for Cancelling<O> {
    type Op = O;
    const ORDERED: bool = false;

    #[inline(always)]
    fn apply(op: O, target: &mut T) {
        op.apply(target);
    }

    #[inline(always)]
    fn push(&mut self, op: O, _: Stamp) {
        self.add(op);
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.ops.len()
    }

    fn absorb(&mut self, other: &mut Self) {
        self.cancel_with(other);
    }

    fn merge(logs: &mut [Self], target: &mut T) -> usize {
        let Some((first, others)) = logs.split_first_mut() else { return 0 };
        others.iter_mut().for_each(|other| first.cancel_with(other));
        // What is left of one key is all inserts or all removes, so their order is not observable.
        let mut applied = 0;
        while let Some(op) = first.ops.pop() {
            op.apply(target);
            applied += 1;
        }
        applied
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[derive(Debug, Clone, Copy)]
    struct Toggle(u32, bool);
    impl Cancel for Toggle {
        type Key = u32;
        fn key(&self) -> u32 {
            self.0
        }
        fn inserts(&self) -> bool {
            self.1
        }
    }
    impl Op<BTreeSet<u32>> for Toggle {
        fn apply(self, set: &mut BTreeSet<u32>) {
            let fresh = if self.1 { set.insert(self.0) } else { set.remove(&self.0) };
            assert!(fresh, "{self:?} was applied twice");
        }
    }

    #[test]
    fn pair_on_one_slot_leaves_nothing() {
        let mut log = Cancelling::default();
        log.add(Toggle(1, true));
        log.add(Toggle(1, false));
        assert_eq!(log.ops.len(), 0);
    }

    #[test]
    fn any_spread_of_alternating_updates_gives_the_net_effect() {
        let mut seed = 7_u64;
        for round in 0..500 {
            let mut logs: Vec<Cancelling<Toggle>> = (0..4).map(|_| Cancelling::default()).collect();
            let mut set: BTreeSet<u32> = (0..20).collect();
            let mut model = set.clone();
            for _ in 0..round {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let key = (seed >> 40) as u32 % 40;
                let insert = !model.remove(&key);
                if insert {
                    model.insert(key);
                }
                logs[(seed >> 33) as usize % 4].add(Toggle(key, insert));
            }
            Log::merge(&mut logs, &mut set);
            assert_eq!(set, model);
        }
    }
}
