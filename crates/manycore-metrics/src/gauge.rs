//! A number that rises and falls.

use manycore::collections;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whole numbers below this are exact in an `f64`.
const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// A number that many threads raise, lower and set: open connections, bytes in use, a temperature.
///
/// The value is the sum of two parts: a [`manycore::collections::Gauge`] for whole numbers, and a
/// rest behind a lock. So [`add`](Self::add) of a whole number is the library's. `add` of a
/// fraction, [`set`](Self::set) and [`get`](Self::get) take the lock.
///
/// - Consistency: `get` counts every change that happened before it, and any subset of the
///   concurrent ones. An `add` counts as before or after a concurrent `set`.
/// - Cost: an `add` of a whole number writes no shared cache line while the gauge is hot
///   (contended).
/// - Memory: 32 bytes while cold; while hot as for [`Counter`](crate::Counter).
/// - Range: whole numbers wrap around at 2^63. NaN and the infinities stay until the next `set`.
///
/// When not: for a gauge that threads only `set`, at a high rate, an atomic is better.
///
/// ```
/// use manycore_metrics::Gauge;
///
/// static OPEN: Gauge = Gauge::new();
///
/// OPEN.add(2.0);
/// OPEN.inc();
/// OPEN.dec();
/// assert_eq!(OPEN.get(), 2.0);
/// OPEN.set(0.25);
/// OPEN.add(1.0);
/// assert_eq!(OPEN.get(), 1.25);
/// ```
pub struct Gauge {
    whole: collections::Gauge,
    rest: Mutex<f64>,
}

/// Returns the number if it is whole and an `f64` holds it exactly.
#[inline]
fn whole(value: f64) -> Option<i64> {
    (value.trunc() == value && value.abs() < EXACT).then_some(value as i64)
}

impl Gauge {
    /// Creates a gauge at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { whole: collections::Gauge::new(0), rest: Mutex::new(0.0) }
    }

    fn rest(&self) -> MutexGuard<'_, f64> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `n`, which may be negative.
    #[doc(alias = "increment")]
    #[inline]
    pub fn add(&self, n: f64) {
        match whole(n) {
            Some(n) => self.whole.add(n),
            None => *self.rest() += n,
        }
    }

    /// Subtracts `n`.
    #[doc(alias = "decrement")]
    #[inline]
    pub fn sub(&self, n: f64) {
        self.add(-n);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.whole.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn dec(&self) {
        self.whole.add(-1);
    }

    /// Sets the value.
    pub fn set(&self, value: f64) {
        // Readers wait until both parts are set. An `add` of a whole number counts as before or
        // after the exchange of the whole part.
        let mut rest = self.rest();
        let whole = whole(value);
        self.whole.set(whole.unwrap_or(0));
        *rest = if whole.is_some() { 0.0 } else { value };
    }

    /// Returns the value.
    #[must_use]
    pub fn get(&self) -> f64 {
        let rest = self.rest();
        self.whole.get() as f64 + *rest
    }
}

impl Default for Gauge {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the whole part, to promote or demote it.
impl AsRef<collections::Gauge> for Gauge {
    fn as_ref(&self) -> &collections::Gauge {
        &self.whole
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.get()).finish()
    }
}
