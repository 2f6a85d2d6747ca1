//! The [`Op`] and [`Log`] traits: what an update is, and how a slot keeps updates.

use crate::clock::Stamp;

/// An update that can be deferred: it returns nothing, so its caller cannot tell when it is
/// applied.
///
/// That is the whole condition (OpLog section 4.1). If the caller needs a result, it is a read: use
/// [`Deferred::read`](super::Deferred::read).
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no update of `{T}`",
    label = "lacks `Op<{T}>`",
    note = "implement `Op`: `fn apply(self, target: &mut {T})`, which returns nothing"
)]
pub trait Op<T> {
    /// Applies the update. May run later, on another thread, under the object's lock.
    fn apply(self, target: &mut T);
}

/// A boxed closure is an update; convenient for prototypes and for rare updates.
impl<T> Op<T> for Box<dyn FnOnce(&mut T) + Send> {
    fn apply(self, target: &mut T) {
        self(target);
    }
}

/// A kind of log: how one slot keeps the updates of one object until the next read.
///
/// The library's kinds are [`Ordered`](super::Ordered), [`Commuting`](super::Commuting),
/// [`Combining`](super::Combining) and [`Cancelling`](super::Cancelling). Write your own if the
/// updates of your type have a shorter form than a list: the counter of [OpLog](crate#sources),
/// figure 8, keeps one integer per core.
///
/// An updater and a reader use a log, but never at the same time:
/// - the *updater* calls [`push`](Log::push). It runs while readers are excluded, so keep it short.
///   It must not read the same object.
/// - the *reader* calls [`collect`](Log::collect) while the slot's updater is excluded, and then
///   [`merge`](Log::merge) on the collected logs while updaters run again. If no other thread has
///   updates, it calls [`merge`](Log::merge) on its own thread's log alone.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no log of updates of `{T}`",
    label = "lacks `Log<{T}>`",
    note = "take a kind of log, such as `manycore::oplog::Ordered<Op>` with `Op: Op<{T}>`"
)]
pub trait Log<T>: Default + Send + 'static {
    /// The type of its updates.
    type Op: Send + 'static;

    /// True if updates take a stamp and are applied in the order of their stamps. `false` saves the
    /// clock read (about 15 ns). It is right if and only if any two updates give the same state in
    /// either order, as far as `merge` can tell.
    const ORDERED: bool;

    /// Applies one update at once, for a cold object.
    fn apply(op: Self::Op, target: &mut T);

    /// Adds an update, perhaps absorbing or combining it. `stamp` is above every earlier stamp of
    /// this log; it is [`Stamp::ZERO`] if the log is not `ORDERED`.
    fn push(&mut self, op: Self::Op, stamp: Stamp);

    /// Returns the number of entries in the log.
    fn len(&self) -> usize;

    /// Returns true if the log has no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that count against the log's byte bound.
    fn bytes(&self) -> usize {
        self.len() * size_of::<Self::Op>()
    }

    /// Moves every entry with a stamp up to `cut` into `into`, which is empty. The updater waits
    /// for this, so swap buffers rather than walk entries. The default swaps everything, which is
    /// right for a log without stamps.
    fn collect(&mut self, _cut: Stamp, into: &mut Self) {
        std::mem::swap(self, into);
    }

    /// Moves the entries of `other` into this log, so that this log stands for both: `merge` of
    /// this log must have the effect of `merge` of the two. Leaves `other` empty, or unchanged:
    /// then `merge` gets both. The default does nothing, which is right for every log.
    ///
    /// Worthwhile if absorption reduces the entries: sums, updates that cancel. Updaters that a
    /// read keeps waiting call it on the logs of threads on the same last-level cache, so that the
    /// reader has fewer logs to fetch ([`MergeStrategy`](super::MergeStrategy)). Other threads wait
    /// for it, so it is not called for an `other` of more than 64 entries.
    ///
    /// If possible, take an update out of `other` only after all code that may panic. A panic
    /// reaches the reader, and the updates in either log are applied after the poison flag has been
    /// cleared.
    fn absorb(&mut self, _other: &mut Self) {}

    /// Applies the collected updates, and leaves every log empty. Returns the number of updates
    /// applied, without those that absorption saved.
    ///
    /// There is one log for each slot that had updates, or one log for several slots if one
    /// absorbed the others. The slots come in any order. If an earlier merge panicked, its logs
    /// come first, with the updates left in them. So a slot may have several logs, the older ones
    /// first.
    ///
    /// Take an update out of its log *before* applying it: if applying panics, the updates still in
    /// the logs stay queued for the next read.
    fn merge(logs: &mut [Self], target: &mut T) -> usize;
}
