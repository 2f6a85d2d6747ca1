//! The result of a swap.

use crate::sync::Panic;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A finished [`swap`](super::Swappable::swap).
///
/// ```
/// # use manycore::cluster::Family;
/// use manycore::cluster::Swappable;
/// use std::sync::Arc;
///
/// # struct Version(u32);
/// # impl Family for Version {
/// #     type Part = ();
/// #     fn export(&self, _: usize) {}
/// #     fn import(&self, (): ()) {}
/// # }
/// let service = Swappable::new(Arc::new(Version(1)));
/// let swapped = service.swap(Arc::new(Version(2))).unwrap();
/// assert_eq!(swapped.old.0, 1);
/// println!("calls waited {:?} at most", swapped.closed_for);
/// ```
#[non_exhaustive]
pub struct Swapped<F: ?Sized> {
    /// The implementation that was replaced, as the exchange found it. No call is in it any more.
    pub old: Arc<F>,
    /// The longest time that calls from outside had to wait.
    pub closed_for: Duration,
}

impl<F: ?Sized> fmt::Debug for Swapped<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swapped").field("closed_for", &self.closed_for).finish_non_exhaustive()
    }
}

/// The reason why an exchange was not done. The object keeps the implementation it had; after a
/// panic, the one that was refused may hold a part of what was moved.
///
/// ```
/// # use manycore::cluster::Family;
/// use manycore::cluster::{SwapFailure, Swappable};
/// use std::sync::Arc;
///
/// # struct Version(u32);
/// # impl Family for Version {
/// #     type Part = ();
/// #     fn export(&self, _: usize) {}
/// #     fn import(&self, (): ()) {}
/// # }
/// let service = Swappable::new(Arc::new(Version(1)));
/// let refused = service.call(|_| service.swap(Arc::new(Version(2)))); // waits for itself?
/// assert!(matches!(refused, Err(SwapFailure::InsideCall)));
/// assert_eq!(service.call(|service| service.0), 1);
/// ```
#[non_exhaustive]
pub enum SwapFailure {
    /// Another thread is exchanging the implementation.
    Busy,
    /// The calling thread is inside of a call, of this object or another, or runs a transfer. The
    /// exchange could wait for itself.
    InsideCall,
    /// The calls that were under way did not end in time.
    TimedOut,
    /// The transfer, or the closure that makes a wrapper, panicked with this payload.
    Panicked(Panic),
}

impl fmt::Display for SwapFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another swap of the object is in progress"),
            Self::InsideCall => f.write_str("a swap from within a call would wait for itself"),
            Self::TimedOut => f.write_str("calls that were in progress did not end in time"),
            Self::Panicked(payload) => {
                write!(
                    f,
                    "the transfer, or the closure that makes a wrapper, panicked: {}",
                    message(payload)
                )
            }
        }
    }
}

fn message(payload: &Panic) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl fmt::Debug for SwapFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for SwapFailure {}
