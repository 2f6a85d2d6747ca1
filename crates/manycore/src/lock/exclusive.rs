//! The public interface of locks with one holder, around a raw lock.
//!
//! Owns: the interface that `TicketLock` and `McsLock` share. Does not own: how they wait.

/// The acquiring and releasing of a lock.
///
/// # Safety
/// Between `lock` or a successful `try_lock` and the `unlock` that follows, no other `lock` returns
/// and no `try_lock` succeeds. The thread that acquires the lock next sees what was written before
/// `unlock`.
pub(super) unsafe trait Raw {
    #[track_caller]
    fn lock(&self);

    fn try_lock(&self) -> bool;

    /// # Safety
    /// The caller holds the lock.
    unsafe fn unlock(&self);
}

/// Makes a lock type and its guard from a raw lock.
macro_rules! exclusive {
    (
        raw: $raw:ty;
        $(#[$lock_doc:meta])*
        lock: $Lock:ident;
        $(#[$guard_doc:meta])*
        guard: $Guard:ident;
    ) => {
        $(#[$lock_doc])*
        pub struct $Lock<T> {
            raw: $raw,
            value: crate::sync::UnsafeCell<T>,
        }

        // SAFETY: Raw - one thread at a time has access to the value, and may move it out.
        unsafe impl<T: Send> Sync for $Lock<T> {}
        // SAFETY: an owned lock is an owned value: no guard borrows it, so no thread waits in it.
        unsafe impl<T: Send> Send for $Lock<T> {}

        impl<T> $Lock<T> {
            crate::sync::const_fn! {
                /// Makes a free lock around `value`.
                #[must_use]
                pub const fn new(value: T) -> Self {
                    Self { raw: <$raw>::new(), value: crate::sync::UnsafeCell::new(value) }
                }
            }

            /// Acquires the lock; waits for its turn if the lock is held.
            #[inline]
            #[track_caller]
            pub fn lock(&self) -> $Guard<'_, T> {
                self.raw.lock();
                self.guard()
            }

            /// Acquires the lock if it is free and no thread waits for it.
            #[inline]
            pub fn try_lock(&self) -> Option<$Guard<'_, T>> {
                self.raw.try_lock().then(|| self.guard())
            }

            /// Consumes the lock and returns the value.
            #[must_use]
            pub fn into_inner(self) -> T {
                self.value.into_inner()
            }

            /// Returns the value without locking: `&mut self` proves that no guard is left.
            #[must_use]
            pub fn get_mut(&mut self) -> &mut T {
                let value = self.value.get_mut();
                // SAFETY: `&mut self` - the only guards left are forgotten ones, which give no
                // access. The pointer is into `self`, which is borrowed for as long.
                unsafe { &mut *std::ptr::from_mut(value.deref()) }
            }

            /// Makes the guard. The caller is the thread that has just acquired the raw lock.
            #[inline]
            fn guard(&self) -> $Guard<'_, T> {
                $Guard {
                    value: std::mem::ManuallyDrop::new(self.value.get_mut()),
                    lock: self,
                    not_send: std::marker::PhantomData,
                }
            }
        }

        impl<T: std::fmt::Debug> std::fmt::Debug for $Lock<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut text = f.debug_struct(stringify!($Lock));
                match self.try_lock() {
                    Some(guard) => text.field("value", &*guard),
                    None => text.field("value", &format_args!("<locked>")),
                };
                text.finish()
            }
        }

        impl<T: Default> Default for $Lock<T> {
            fn default() -> Self {
                Self::new(T::default())
            }
        }

        impl<T> From<T> for $Lock<T> {
            fn from(value: T) -> Self {
                Self::new(value)
            }
        }

        $(#[$guard_doc])*
        #[must_use = "the lock is given up when the guard is dropped"]
        pub struct $Guard<'a, T> {
            /// Dropped before the lock is released.
            value: std::mem::ManuallyDrop<crate::sync::MutPtr<T>>,
            lock: &'a $Lock<T>,
            not_send: std::marker::PhantomData<*mut ()>,
        }

        // SAFETY: a shared guard gives only shared access to `T`.
        unsafe impl<T: Sync> Sync for $Guard<'_, T> {}

        impl<T> std::ops::Deref for $Guard<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: Raw - the guard holds the lock.
                unsafe { crate::sync::deref_ref(&self.value) }
            }
        }

        impl<T> std::ops::DerefMut for $Guard<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: Raw - the guard holds the lock, and `&mut self` is the only way to it.
                unsafe { (*self.value).deref() }
            }
        }

        impl<T: std::fmt::Debug> std::fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: std::fmt::Display> std::fmt::Display for $Guard<'_, T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T> Drop for $Guard<'_, T> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: dropped only here, and not used afterwards.
                unsafe { std::mem::ManuallyDrop::drop(&mut self.value) };
                // SAFETY: Raw - the guard was made by the thread that acquired the lock, and is
                // gone after this.
                unsafe { self.lock.raw.unlock() };
            }
        }
    };
}
pub(super) use exclusive;
