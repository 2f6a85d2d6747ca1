//! What merges take out of a collection, until somebody without a lock drops it.
//!
//! Owns: [`Garbage`]. Nothing of the user's runs under its lock.

use crate::sync::{AtomicBool, Mutex, Ordering};
use std::sync::PoisonError;

/// Things that have left, to be dropped outside of locks.
pub(super) struct Garbage<X> {
    any: AtomicBool,
    things: Mutex<Vec<X>>,
}

impl<X> Garbage<X> {
    pub(super) fn new() -> Self {
        Self { any: AtomicBool::new(false), things: Mutex::new(Vec::new()) }
    }

    pub(super) fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<X>> + '_ {
        // Nothing of the user's runs under it.
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, any: bool) {
        // ORDER: Relaxed; a hint, and the lock orders the things.
        if self.any.load(Ordering::Relaxed) != any {
            self.any.store(any, Ordering::Relaxed);
        }
    }

    /// Drops what is there. Runs user code: no lock may be held.
    #[inline(always)]
    pub(super) fn sweep(&self) {
        // ORDER: Relaxed; a hint. Whatever is missed now is found by the next call.
        if self.any.load(Ordering::Relaxed) {
            self.sweep_all();
        }
    }

    #[cold]
    fn sweep_all(&self) {
        let things = {
            let mut things = self.lock();
            self.note(false);
            std::mem::take(&mut *things)
        };
        drop(things);
    }
}
