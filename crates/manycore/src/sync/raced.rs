//! A value that is made at first use, by several threads at once if they come together.
//!
//! Not a `OnceLock`: there a thread waits for the thread that makes the value, and the child of a
//! `fork` waits forever if it does not have that thread. Here each thread makes a value, and the
//! first that is published stays.

use super::unmodelled::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

/// A value that `F` makes at first use; see the module header. Making it twice must have the same
/// effect as making it once.
pub(crate) struct Raced<T, F = fn() -> T> {
    /// Null, or from a box.
    value: AtomicPtr<T>,
    make: F,
    owns: PhantomData<T>,
}

// SAFETY: owns a `T` as a box does, and a function.
unsafe impl<T: Send, F: Send> Send for Raced<T, F> {}
// SAFETY: a shared one gives out `&T`, and a thread may make the value that another one drops.
unsafe impl<T: Send + Sync, F: Sync> Sync for Raced<T, F> {}

impl<T> Raced<T, ()> {
    /// Makes a value that [`get_or_make`](Self::get_or_make) fills.
    pub(crate) const fn unmade() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), make: (), owns: PhantomData }
    }
}

impl<T, F> Raced<T, F> {
    /// Returns the value, if it was made.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&T> {
        // ORDER: Acquire; pairs with the exchange in `set`: the value before its address.
        // SAFETY: null, or from a box that is dropped with `self`.
        unsafe { self.value.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value; `make` makes it if there is none.
    #[inline(always)]
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        self.get().unwrap_or_else(|| self.set(make()).0)
    }

    /// Publishes `value`, if there is none. Returns the published value, and true if it is this
    /// one.
    #[cold]
    pub(crate) fn set(&self, value: T) -> (&T, bool) {
        let made = Box::into_raw(Box::new(value));
        // ORDER: AcqRel; the value before its address, here and in `get`.
        let (set, read) = (Ordering::AcqRel, Ordering::Acquire);
        match self.value.compare_exchange(ptr::null_mut(), made, set, read) {
            // SAFETY: made above; dropped with `self`.
            Ok(_) => (unsafe { &*made }, true),
            Err(found) => {
                // SAFETY: made above, and published to no thread.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: from a box of another call; dropped with `self`.
                (unsafe { &*found }, false)
            }
        }
    }
}

impl<T> Raced<T> {
    /// Makes a value that `make` fills at first use.
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()), make, owns: PhantomData }
    }
}

impl<T> Deref for Raced<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.get_or_make(self.make)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for Raced<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Raced").field(&self.get()).finish()
    }
}

impl<T, F> Drop for Raced<T, F> {
    fn drop(&mut self) {
        let value = *self.value.get_mut();
        if !value.is_null() {
            // SAFETY: from a box in `set`, and `&mut self`: nothing borrows it.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use crate::sync::thread;
    use std::sync::Arc;

    #[test]
    fn first_value_stays_and_each_is_dropped_once() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let raced = Raced::unmade();
        assert!(raced.get().is_none());
        assert_eq!(**raced.get_or_make(|| first.clone()), 1);
        assert_eq!(raced.set(second.clone()), (&first, false));
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 1));
        drop(raced);
        assert_eq!(Arc::strong_count(&first), 1);
    }

    #[test]
    fn value_is_used_while_another_thread_makes_one() {
        static RACED: Raced<u32, ()> = Raced::unmade();
        let (made, is_made) = std::sync::mpsc::channel();
        let (go, goes) = std::sync::mpsc::channel::<()>();
        thread::scope(|scope| {
            let slow = scope.spawn(move || {
                *RACED.get_or_make(|| {
                    made.send(()).unwrap();
                    goes.recv().unwrap();
                    1
                })
            });
            is_made.recv().unwrap();
            assert_eq!(*RACED.get_or_make(|| 2), 2);
            go.send(()).unwrap();
            assert_eq!(slow.join().unwrap(), 2);
        });
    }
}
