//! The library's locks.

use manycore::lock::{BrLock, McsLock, TicketLock};

use super::{LockImpl, Words};

macro_rules! exclusive {
    ($(#[$doc:meta])* $Name:ident, $Lock:ident) => {
        $(#[$doc])*
        pub(super) struct $Name($Lock<Words>);

        impl LockImpl for $Name {
            fn new() -> Self {
                Self($Lock::new([0; 4]))
            }

            #[inline]
            fn read<R>(&self, f: impl FnOnce(&Words) -> R) -> R {
                f(&self.0.lock())
            }

            #[inline]
            fn update<R>(&self, f: impl FnOnce(&mut Words) -> R) -> R {
                f(&mut self.0.lock())
            }
        }
    };
}

exclusive!(
    /// First come, first served.
    Ticket,
    TicketLock
);
exclusive!(
    /// The same, in a queue.
    Mcs,
    McsLock
);

/// Readers beside each other.
pub(super) struct Br(BrLock<Words>);

impl LockImpl for Br {
    fn new() -> Self {
        Self(BrLock::new([0; 4]))
    }

    #[inline]
    fn read<R>(&self, f: impl FnOnce(&Words) -> R) -> R {
        f(&self.0.read())
    }

    #[inline]
    fn update<R>(&self, f: impl FnOnce(&mut Words) -> R) -> R {
        f(&mut self.0.write())
    }
}
