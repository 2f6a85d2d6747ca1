//! What an update is and how a slot keeps it: the [`Op`] and [`Log`] traits.

use crate::clock::Stamp;

/// An update that can be put off: it returns nothing, so its caller can't tell when it happens.
///
/// That is the whole condition (OpLog section 4.1). An update whose result somebody needs is a
/// read; do it under [`Deferred::read`](super::Deferred::read).
///
/// ```
/// use manycore::oplog::Op;
///
/// struct Push(u32);
/// impl Op<Vec<u32>> for Push {
///     fn apply(self, target: &mut Vec<u32>) {
///         target.push(self.0);
///     }
/// }
/// ```
///
/// An update that returns something does not compile:
///
/// ```compile_fail,E0053
/// use manycore::oplog::Op;
///
/// struct Pop;
/// impl Op<Vec<u32>> for Pop {
///     fn apply(self, target: &mut Vec<u32>) -> Option<u32> {
///         target.pop()
///     }
/// }
/// ```
pub trait Op<T> {
    /// Does the update. May run later, on another thread, under the object's lock.
    fn apply(self, target: &mut T);
}

/// A boxed closure is an update, for a first try and for rare ones.
impl<T> Op<T> for Box<dyn FnOnce(&mut T) + Send> {
    fn apply(self, target: &mut T) {
        self(target);
    }
}

/// A kind of log: how one slot keeps the updates of one object until somebody reads.
///
/// The library's kinds are [`Ordered`](super::Ordered), [`Commuting`](super::Commuting),
/// [`Combining`](super::Combining), [`Cancelling`](super::Cancelling) and
/// [`Absorbing`](super::Absorbing). Write your own when the updates of your type have a shorter
/// form than a list of them: the paper's counter (Figure 8) keeps one integer per core.
///
/// Two sides touch a log, never at the same time:
/// - the *updater* calls [`push`](Log::push). It runs while readers are shut out, so keep it short;
///   it may not read the same object.
/// - the *reader* calls [`collect`](Log::collect) while the slot's updater is shut out, and then
///   [`merge`](Log::merge) on what it collected while updaters run again.
///
/// ```
/// use manycore::clock::Stamp;
/// use manycore::oplog::{Deferred, Log};
///
/// /// The paper's Figure 8: a counter's log is a number.
/// #[derive(Default)]
/// struct CounterLog {
///     sum: i64,
/// }
///
/// impl Log<i64> for CounterLog {
///     type Op = i64;
///     const ORDERED: bool = false;
///
///     fn apply(add: i64, total: &mut i64) {
///         *total += add;
///     }
///     fn push(&mut self, add: i64, _: Stamp) {
///         self.sum += add;
///     }
///     fn len(&self) -> usize {
///         usize::from(self.sum != 0)
///     }
///     fn merge(logs: &mut [Self], total: &mut i64) -> usize {
///         for log in logs {
///             *total += std::mem::take(&mut log.sum);
///         }
///         1
///     }
/// }
///
/// let counter = Deferred::<i64, CounterLog>::new(0);
/// counter.append(2);
/// counter.append(3);
/// assert_eq!(*counter.read(), 5);
/// ```
pub trait Log<T>: Default + Send + 'static {
    /// The updates it keeps.
    type Op: Send + 'static;

    /// Whether updates take a stamp and are applied in the order of their stamps. `false` saves
    /// the clock read (about 15 ns) and is right if and only if any two updates give the same
    /// state in either order, as far as `merge` can tell.
    const ORDERED: bool;

    /// Applies one update at once: what a cold object does.
    fn apply(op: Self::Op, target: &mut T);

    /// Adds an update, perhaps absorbing or combining it. `stamp` is above every earlier one of
    /// this log, and [`Stamp::ZERO`] if not `ORDERED`.
    fn push(&mut self, op: Self::Op, stamp: Stamp);

    /// Entries kept.
    fn len(&self) -> usize;

    /// Whether nothing is kept.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes kept, as far as the log's bound is concerned.
    fn bytes(&self) -> usize {
        self.len() * size_of::<Self::Op>()
    }

    /// Moves every entry with a stamp up to `cut` into `into`, which is empty. The updater waits
    /// meanwhile: swap, do not walk. The default swaps everything, which is right for a log without
    /// stamps.
    fn collect(&mut self, _cut: Stamp, into: &mut Self) {
        std::mem::swap(self, into);
    }

    /// Takes over what `other` keeps, so that this log alone says what both said: what `merge` does
    /// with it must be what it does with the two. Leaves `other` empty, or as it is: then `merge`
    /// gets both. The default does nothing, which is right for every log.
    ///
    /// Worth while where what is taken over becomes less: sums, what cancels. Updaters that a read
    /// keeps waiting call it on the logs of threads near them, so that the reader has fewer logs to
    /// fetch ([`MergeStrategy`](super::MergeStrategy)); others wait meanwhile, so it is not called
    /// for an `other` of more than 64 entries.
    ///
    /// Take an update out of `other` after all that may panic, where that can be: a panic reaches
    /// the reader, and what is in either log by then is applied when the poison has been cleared.
    fn absorb(&mut self, _other: &mut Self) {}

    /// Applies what was collected and leaves every log empty. There is one log for each slot that
    /// had updates, or one for several slots if one absorbed the others, in any order of slots; if
    /// an earlier merge panicked, its logs, with what was left in them, come before, so that a slot
    /// may have several, the older ones first. Returns the number of updates applied (what
    /// absorption saved is not counted).
    ///
    /// Take an update out of its log *before* applying it: if applying panics, what is still in
    /// the logs stays queued for the next read.
    fn merge(logs: &mut [Self], target: &mut T) -> usize;
}
