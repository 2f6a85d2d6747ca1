//! Records with which keys of a bucket a key was compared before the bucket was locked, so that no
//! `Eq` runs under the lock.

use std::cell::Cell;
use std::ptr;

/// Addresses of keys in a chain that differ from a given key, in the order of the chain. The
/// caller's section keeps these keys, so no other node gets one of the addresses.
#[derive(Default)]
pub(crate) struct Compared {
    keys: Vec<usize>,
    /// Where the walk expects the next key.
    next: Cell<usize>,
}

impl Compared {
    pub(crate) fn add<K>(&mut self, key: &K) {
        self.keys.push(ptr::from_ref(key).addr());
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Begins a walk along the chain.
    pub(crate) fn rewind(&self) {
        self.next.set(0);
    }

    /// Returns true if this very key was compared. It costs least in the order of the chain.
    pub(crate) fn has<K>(&self, key: &K) -> bool {
        let is_it = |own: &usize| *own == ptr::from_ref(key).addr();
        debug_assert!(
            self.next.get() <= self.keys.len(),
            "a walk is beyond the keys that were compared"
        );
        let (before, behind) = self.keys.split_at(self.next.get());
        let at = behind.iter().position(is_it).map(|at| before.len() + at);
        let at = at.or_else(|| before.iter().position(is_it));
        self.next.set(at.map_or(self.next.get(), |at| at + 1));
        at.is_some()
    }
}
