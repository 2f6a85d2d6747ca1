//! A value behind a lock that tells a thread that it holds it already.

use crate::lock::{self, Refused};
use crate::percpu::thread_token;
use crate::sync::{AtomicUsize, UnsafeCell};

/// A value, and the word that locks it.
pub(super) struct Held<T> {
    word: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the holder of the word has the value to itself (K1), and may take parts of it along.
unsafe impl<T: Send> Sync for Held<T> {}
// SAFETY: owned data.
unsafe impl<T: Send> Send for Held<T> {}

/// Gives the lock up, also when user code panics.
struct Unlock<'a>(&'a AtomicUsize);

impl Drop for Unlock<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made by who took the lock, on its thread; `self` keeps the word.
        unsafe { lock::unlock(self.0, 0) };
    }
}

impl<T> Held<T> {
    pub(super) fn new(value: T) -> Self {
        Self { word: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    /// Runs `f` on the value under the lock.
    ///
    /// # Panics
    /// If the calling thread holds the lock.
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        if lock::lock(&self.word, thread_token()) == Err(Refused::HeldBySelf) {
            held_by_self();
        }
        let _unlock = Unlock(&self.word);
        // SAFETY: K1 - this thread holds the lock until `_unlock` is dropped.
        self.value.with_mut(|value| f(unsafe { &mut *value }))
    }

    pub(super) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

#[cold]
fn held_by_self() -> ! {
    panic!(
        "manycore: a collection is used from within code that runs under its own lock: a closure, \
         or the Hash, Eq or Clone of what is in it"
    )
}
