//! Deferred drops: values that merges remove from a collection, until a thread without a lock drops
//! them.
//!
//! Owns: [`DeferredDrops`]. No user code runs under its lock.

use crate::sync::{AtomicBool, Mutex, Ordering, contain, drop_each};
use std::sync::PoisonError;

/// Removed values, to be dropped outside of locks.
///
/// It has a line of its own, because every change of the collection reads `any`. Without that, such
/// a small allocation would lie beside nodes that some thread writes.
#[repr(align(64))]
pub(super) struct DeferredDrops<X> {
    any: AtomicBool,
    things: Mutex<Vec<X>>,
}

impl<X> DeferredDrops<X> {
    pub(super) fn new() -> Self {
        Self { any: AtomicBool::new(false), things: Mutex::new(Vec::new()) }
    }

    pub(super) fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<X>> + '_ {
        // No user code runs under the lock, so poison means nothing.
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, any: bool) {
        // ORDER: Relaxed; a hint, and the lock orders the things.
        if self.any.load(Ordering::Relaxed) != any {
            self.any.store(any, Ordering::Relaxed);
        }
    }

    /// Takes one value out, if there is one.
    #[inline(always)]
    pub(super) fn take(&self) -> Option<X> {
        // ORDER: Relaxed; as in `sweep`.
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut things = self.lock();
        let thing = things.pop();
        self.note(!things.is_empty());
        thing
    }

    /// Drops all values, on behalf of a change that has nothing to do with them: a panic ends here.
    /// Runs user code, so the caller must hold no lock.
    #[inline(always)]
    pub(super) fn sweep(&self) {
        // ORDER: Relaxed; a hint. Whatever is missed now is found by the next call.
        if self.any.load(Ordering::Relaxed) {
            self.sweep_quietly();
        }
    }

    #[cold]
    fn sweep_quietly(&self) {
        contain(|| self.sweep_all());
    }

    /// Same on behalf of a reader: the first panic reaches the reader.
    pub(super) fn sweep_for_reader(&self) {
        // ORDER: Relaxed; as above.
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
        drop_each(things);
    }
}

impl<X> Drop for DeferredDrops<X> {
    fn drop(&mut self) {
        drop_each(std::mem::take(&mut *self.lock()));
    }
}

impl<X> Default for DeferredDrops<X> {
    fn default() -> Self {
        Self::new()
    }
}
