//! Handles of lent objects.

use super::{ObjectPool, Room};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::Arc;

/// An object borrowed from an [`ObjectPool`]. Dropping it gives the object back, as it is, or as
/// the pool's [`recycle`](super::ObjectPoolBuilder::recycle) hook leaves it.
///
/// ```
/// let pool = manycore::collections::ObjectPool::new(4, String::new);
/// let mut name = pool.get();
/// name.push_str("lent");
/// assert_eq!(pool.idle(), 0);
/// drop(name);
/// assert_eq!(pool.idle(), 1);
/// ```
#[must_use = "the object is given back when this is dropped"]
pub struct Pooled<'a, T: Send + 'static> {
    thing: ManuallyDrop<T>,
    pool: &'a ObjectPool<T>,
}

impl<'a, T: Send + 'static> Pooled<'a, T> {
    pub(super) fn new(thing: T, pool: &'a ObjectPool<T>) -> Self {
        Self { thing: ManuallyDrop::new(thing), pool }
    }

    /// Keeps the object; the pool may make another in its place.
    pub fn detach(self) -> T {
        let pool = self.pool;
        let thing = self.take_out();
        drop(Room(pool)); // one fewer
        thing
    }

    /// Returns a handle that shares the pool instead of borrowing it: to keep in a struct, or to
    /// take to another thread or task.
    ///
    /// ```
    /// use manycore::collections::{ObjectPool, Pooled};
    /// use std::sync::Arc;
    /// use std::thread;
    ///
    /// let pool = Arc::new(ObjectPool::new(4, String::new));
    /// let mut name = Pooled::into_owned(pool.get(), &pool);
    /// thread::spawn(move || name.push_str("given back at the thread's end")).join().unwrap();
    /// assert_eq!(pool.idle(), 1);
    /// ```
    ///
    /// # Panics
    /// If the object is from another pool.
    pub fn into_owned(this: Self, pool: &Arc<ObjectPool<T>>) -> OwnedPooled<T> {
        assert!(ptr::eq(this.pool, &**pool), "manycore: the object is from another pool");
        OwnedPooled { thing: ManuallyDrop::new(this.take_out()), pool: Arc::clone(pool) }
    }

    fn take_out(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, here, and `this` is not dropped.
        unsafe { ManuallyDrop::take(&mut this.thing) }
    }
}

impl<T: Send + 'static> Drop for Pooled<'_, T> {
    fn drop(&mut self) {
        // SAFETY: given back once, here, and not looked at again.
        unsafe { self.pool.give_back(&mut self.thing) };
    }
}

/// An object of an [`ObjectPool`] in an `Arc`: [`Pooled::into_owned`]. Dropping it gives the object
/// back. The pool lives as long as its last such handle.
///
/// See [`Pooled::into_owned`] for an example.
#[must_use = "the object is given back when this is dropped"]
pub struct OwnedPooled<T: Send + 'static> {
    thing: ManuallyDrop<T>,
    pool: Arc<ObjectPool<T>>,
}

impl<T: Send + 'static> OwnedPooled<T> {
    /// Keeps the object; the pool may make another in its place.
    pub fn detach(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: each is taken once, here, and `this` is not dropped.
        let (thing, pool) =
            unsafe { (ManuallyDrop::take(&mut this.thing), ptr::read(&raw const this.pool)) };
        drop(Room(&pool)); // one fewer
        thing
    }
}

impl<T: Send + 'static> Drop for OwnedPooled<T> {
    fn drop(&mut self) {
        // SAFETY: given back once, here, and not looked at again.
        unsafe { self.pool.give_back(&mut self.thing) };
    }
}

macro_rules! lends {
    ($([$($life:tt)*] $Handle:ty;)*) => {$(
        impl<$($life)* T: Send + 'static> Deref for $Handle {
            type Target = T;

            fn deref(&self) -> &T {
                &self.thing
            }
        }

        impl<$($life)* T: Send + 'static> DerefMut for $Handle {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.thing
            }
        }
    )*};
}
lends! {
    ['a,] Pooled<'a, T>;
    [] OwnedPooled<T>;
}

impl<T: fmt::Debug + Send + 'static> fmt::Debug for Pooled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug + Send + 'static> fmt::Debug for OwnedPooled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
