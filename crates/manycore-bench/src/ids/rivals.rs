//! Tables indexed by id, as they are commonly made.

use std::sync::{Mutex, MutexGuard, PoisonError};

use parking_lot::RwLock;

use super::{Node, Table, TableHandle};

type Plain = slab::Slab<Node>;

fn get(plain: &Plain, id: u64) -> Option<u64> {
    plain.get(id as usize).map(|node| node.0[0])
}

/// The baseline: locked once by the only thread that uses it.
pub(super) struct Unshared(Mutex<Plain>);

impl Table for Unshared {
    type Handle<'a> = MutexGuard<'a, Plain>;

    fn new() -> Self {
        Self(Mutex::new(Plain::new()))
    }

    fn handle(&self) -> MutexGuard<'_, Plain> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableHandle for MutexGuard<'_, Plain> {
    #[inline]
    fn insert(&mut self, node: Node) -> u64 {
        Plain::insert(self, node) as u64
    }

    #[inline]
    fn get(&mut self, id: u64) -> Option<u64> {
        get(self, id)
    }

    #[inline]
    fn remove(&mut self, id: u64) -> bool {
        self.try_remove(id as usize).is_some()
    }
}

/// Generations in the ids, blocks of each thread's own, a count in each node for its guards.
pub(super) struct Sharded(sharded_slab::Slab<Node>);

impl Table for Sharded {
    type Handle<'a> = &'a Self;

    fn new() -> Self {
        Self(sharded_slab::Slab::new())
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl TableHandle for &Sharded {
    #[inline]
    fn insert(&mut self, node: Node) -> u64 {
        self.0.insert(node).expect("a slab has room") as u64
    }

    #[inline]
    fn get(&mut self, id: u64) -> Option<u64> {
        self.0.get(id as usize).map(|node| node.0[0])
    }

    #[inline]
    fn remove(&mut self, id: u64) -> bool {
        self.0.remove(id as usize)
    }
}

macro_rules! locked {
    ($(#[$doc:meta])* $Name:ident, $Lock:ident, $lock:ident, $read:expr, $write:expr) => {
        $(#[$doc])*
        pub(super) struct $Name($Lock<Plain>);

        impl Table for $Name {
            type Handle<'a> = &'a Self;

            fn new() -> Self {
                Self($Lock::new(Plain::new()))
            }

            fn handle(&self) -> &Self {
                self
            }
        }

        impl TableHandle for &$Name {
            #[inline]
            fn insert(&mut self, node: Node) -> u64 {
                let $lock = &self.0;
                $write.insert(node) as u64
            }

            #[inline]
            fn get(&mut self, id: u64) -> Option<u64> {
                let $lock = &self.0;
                get(&$read, id)
            }

            #[inline]
            fn remove(&mut self, id: u64) -> bool {
                let $lock = &self.0;
                $write.try_remove(id as usize).is_some()
            }
        }
    };
}

locked!(
    /// One lock for all.
    Mutexed,
    Mutex,
    lock,
    lock.lock().unwrap_or_else(PoisonError::into_inner),
    lock.lock().unwrap_or_else(PoisonError::into_inner)
);

locked!(
    /// Readers together, if they find the time.
    RwLocked,
    RwLock,
    lock,
    lock.read(),
    lock.write()
);
