//! What a key was compared with before its bucket was locked, so that no `Eq` runs under the lock.

use std::cell::Cell;
use std::ptr;

/// Keys in a chain that are not equal to one that is sought, by their addresses, in the order of
/// the chain. The caller's section keeps them, so that no other node gets such an address.
#[derive(Default)]
pub(crate) struct Compared {
    keys: Vec<usize>,
    /// Where the next one is expected.
    next: Cell<usize>,
}

impl Compared {
    pub(crate) fn add<K>(&mut self, key: &K) {
        self.keys.push(ptr::from_ref(key).addr());
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// Before a walk along the chain.
    pub(crate) fn rewind(&self) {
        self.next.set(0);
    }

    /// Whether this very key was compared. Costs least in the order of the chain.
    pub(crate) fn has<K>(&self, key: &K) -> bool {
        let is_it = |own: &usize| *own == ptr::from_ref(key).addr();
        debug_assert!(
            self.next.get() <= self.keys.len(),
            "keys were compared anew, and the walk goes on behind them"
        );
        let (before, behind) = self.keys.split_at(self.next.get());
        let at = behind.iter().position(is_it).map(|at| before.len() + at);
        let at = at.or_else(|| before.iter().position(is_it));
        self.next.set(at.map_or(self.next.get(), |at| at + 1));
        at.is_some()
    }
}
