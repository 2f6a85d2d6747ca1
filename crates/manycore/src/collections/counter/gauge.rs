//! A number that goes up and down and can be set.

use super::Counter;
use std::fmt;

/// A number that many threads raise and lower, and that can be set: open connections, bytes in use,
/// queue lengths.
///
/// A [`Counter`] that can be set. When not: if each change decides something (a limit, a
/// semaphore), use an atomic or a [`BudgetTree`](crate::collections::BudgetTree). If one thread
/// only sets it, an atomic is as fast and simpler.
///
/// ```
/// use manycore::collections::Gauge;
///
/// static OPEN: Gauge = Gauge::new(0);
///
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| {
///             OPEN.inc();
///             // serves a connection
///             OPEN.dec();
///         });
///     }
/// });
/// assert_eq!(OPEN.get(), 0);
/// assert_eq!(OPEN.set(7), 0);
/// assert_eq!(OPEN.get(), 7);
/// ```
///
/// - Consistency: [`get`](Self::get) counts everything that happened before it and any subset of
///   the concurrent changes. An [`add`](Self::add) concurrent with a [`set`](Self::set) counts as
///   before it or after it.
/// - Progress, cost and memory of `add` and `get`: as `add` and `sum` of a [`Counter`], 16 bytes
///   while cold.
/// - Cost of `set`: as `get`, and a compare-exchange. A concurrent `set`, or an add while the gauge
///   is cold, makes that begin again.
/// - Overflow wraps around, as with atomics.
#[doc(alias = "up-down counter")]
#[derive(Default)]
pub struct Gauge {
    counter: Counter,
}

impl Gauge {
    /// Makes a cold gauge at this value.
    #[cfg(not(manycore_loom))]
    #[must_use]
    pub const fn new(value: i64) -> Self {
        Self { counter: Counter::new(value) }
    }

    /// Makes a cold gauge at this value.
    #[cfg(manycore_loom)]
    #[must_use]
    pub fn new(value: i64) -> Self {
        Self { counter: Counter::new(value) }
    }

    /// Returns the value: everything that happened before this call, and any subset of the
    /// concurrent changes.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.counter.sum()
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.counter.add(n);
    }

    /// Subtracts `n`.
    #[inline]
    pub fn sub(&self, n: i64) {
        self.counter.add(n.wrapping_neg());
    }

    /// Adds 1.
    #[inline]
    pub fn inc(&self) {
        self.counter.add(1);
    }

    /// Subtracts 1.
    #[inline]
    pub fn dec(&self) {
        self.counter.add(-1);
    }

    /// Sets the value and returns the old one. Each of several concurrent calls returns what
    /// another one set, with the changes in between.
    pub fn set(&self, value: i64) -> i64 {
        self.counter.group().replace(0, value as u64) as i64
    }

    /// Same as [`Counter::is_hot`].
    #[must_use]
    pub fn is_hot(&self) -> bool {
        self.counter.is_hot()
    }

    /// Same as [`Counter::promote`].
    pub fn promote(&self) -> bool {
        self.counter.promote()
    }

    /// Same as [`Counter::demote`].
    pub fn demote(&self) {
        self.counter.demote();
    }
}

impl From<i64> for Gauge {
    fn from(value: i64) -> Self {
        Self::new(value)
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.get()).finish()
    }
}
