use super::keyed::Keyed;
use crate::clock::Stamp;
use crate::oplog::{Log, Op};
use std::hash::Hash;

/// An update that combines with another update of the same key: k increments become one "add k".
///
/// Contract: applying the combination has the effect of applying both, in either order; and updates
/// of different keys commute.
///
/// ```
/// use manycore::oplog::{Combine, Combining, Deferred, Logs, Op};
///
/// /// The largest value seen: all updates have one key.
/// struct Seen(u64);
/// impl Combine for Seen {
///     type Key = ();
///     fn key(&self) {}
///     fn combine(&mut self, other: Self) {
///         self.0 = self.0.max(other.0);
///     }
/// }
/// impl Op<u64> for Seen {
///     fn apply(self, largest: &mut u64) {
///         *largest = self.0.max(*largest);
///     }
/// }
///
/// let largest = Deferred::<u64, Combining<Seen>>::builder().logs(Logs::Always).build(0)?;
/// for value in [3, 9, 4] {
///     largest.append(Seen(value));
/// }
/// assert_eq!(*largest.read(), 9);
/// assert_eq!(largest.stats().applied, 1); // one for each key and thread
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "updates of type `{Self}` do not say how two of one key are combined",
    label = "lacks `Combine`",
    note = "implement `manycore::oplog::Combine`, or take `Commuting`, whose updates need only `Op`"
)]
pub trait Combine: Sized {
    /// The key by which updates combine; `()` if all updates do.
    type Key: Hash + Eq;
    /// Returns the key of this update.
    fn key(&self) -> Self::Key;
    /// Combines `other`, of the same key, into this update.
    fn combine(&mut self, other: Self);
}

/// Keeps one update per key: the *combining* absorption of [OpLog](crate#sources), section 4.2.
///
/// For sums, maxima, sets of flags, per-key counts. No stamp is taken. Not for updates with an
/// observable order.
///
/// ```
/// use manycore::oplog::{Combine, Combining, Deferred, Op};
/// use std::collections::HashMap;
///
/// struct Hits(&'static str, u64);
/// impl Op<HashMap<&'static str, u64>> for Hits {
///     fn apply(self, totals: &mut HashMap<&'static str, u64>) {
///         *totals.entry(self.0).or_default() += self.1;
///     }
/// }
/// impl Combine for Hits {
///     type Key = &'static str;
///     fn key(&self) -> &'static str {
///         self.0
///     }
///     fn combine(&mut self, other: Self) {
///         self.1 += other.1;
///     }
/// }
///
/// let hits = Deferred::<_, Combining<Hits>>::new(HashMap::new());
/// hits.append(Hits("/index", 1));
/// hits.append(Hits("/index", 1));
/// assert_eq!(hits.read()["/index"], 2);
/// ```
#[derive(Debug)]
pub struct Combining<O> {
    ops: Keyed<O>,
}

impl<O> Default for Combining<O> {
    fn default() -> Self {
        Self { ops: Keyed::default() }
    }
}

impl<T, O: Op<T> + Combine + Send + 'static> Log<T> for Combining<O> {
    type Op = O;
    const ORDERED: bool = false;

    #[inline(always)]
    fn apply(op: O, target: &mut T) {
        op.apply(target);
    }

    #[inline(always)]
    fn push(&mut self, op: O, _: Stamp) {
        match self.ops.find(&op.key(), O::key) {
            Some(place) => self.ops.get_mut(place).combine(op),
            None => self.ops.push(op, O::key),
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.ops.len()
    }

    fn absorb(&mut self, other: &mut Self) {
        while let Some(op) = other.ops.last() {
            let place = self.ops.find(&op.key(), O::key); // may panic: `op` is still in its log
            let Some(op) = other.ops.pop() else { break };
            match place {
                Some(place) => self.ops.get_mut(place).combine(op),
                None => self.ops.push(op, O::key),
            }
        }
    }

    fn merge(logs: &mut [Self], target: &mut T) -> usize {
        let mut applied = 0;
        for log in logs {
            while let Some(op) = log.ops.pop() {
                op.apply(target);
                applied += 1;
            }
        }
        applied
    }
}
