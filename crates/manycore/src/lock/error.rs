//! Errors of readers that cannot have an object.

use std::fmt;

/// Why [`Deferred::try_read`](crate::oplog::Deferred::try_read) or
/// [`DeferredSet::try_read`](crate::ldu::DeferredSet::try_read) returned no guard.
///
/// ```
/// use manycore::oplog::{Commuting, Deferred, Op, TryReadError};
///
/// struct Add(u64);
/// impl Op<u64> for Add {
///     fn apply(self, sum: &mut u64) {
///         *sum += self.0;
///     }
/// }
///
/// let sum: Deferred<u64, Commuting<Add>> = Deferred::new(7);
/// let reader = sum.read();
/// assert_eq!(*reader, 7);
/// std::thread::scope(|s| {
///     s.spawn(|| assert_eq!(sum.try_read().err(), Some(TryReadError::Busy)));
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryReadError {
    /// Another reader (or the calling thread) holds the object.
    Busy,
    /// An update panicked, or the structure of a set did; see
    /// [`clear_poison`](crate::oplog::Deferred::clear_poison).
    Poisoned,
}

impl fmt::Display for TryReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "another reader holds the object",
            Self::Poisoned => "an update panicked; repair the value and clear the poison",
        })
    }
}

impl std::error::Error for TryReadError {}

/// Panics because a wait would be a deadlock (`held`).
#[cold]
#[track_caller]
pub(crate) fn would_deadlock() -> ! {
    panic!(
        "manycore: deadlock: this thread would wait for itself, in a cycle of the wait-for graph: \
         it holds an object for which the holder of the one that it asks for waits"
    )
}
