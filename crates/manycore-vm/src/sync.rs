//! The synchronization of this crate: the standard library's types, or loom's (`--cfg
//! manycore_loom`). So loom checks the code that users run.

#[cfg(manycore_loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        },
    },
    thread::yield_now,
};
#[cfg(not(manycore_loom))]
pub(crate) use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
        },
    },
    thread::yield_now,
};

/// A word of a page's contents. No model looks at these words.
pub(crate) use std::sync::atomic::AtomicU64 as Word;

/// Returns true for one call in `of`, at random. `of` is a power of two, and the state is the
/// thread's own. Always false under loom, which needs the same decisions each time.
#[inline]
pub(crate) fn is_sampled(of: u64) -> bool {
    if cfg!(manycore_loom) {
        return false;
    }
    std::thread_local! {
        static RANDOM: std::cell::Cell<u64> = const { std::cell::Cell::new(0x9E37_79B9_7F4A_7C15) };
    }
    // After the thread's destructors have run: always false.
    RANDOM.try_with(|random| {
        let mut word = random.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        random.set(word);
        word >> 32 & (of - 1) == 0
    }) == Ok(true)
}

/// loom's cell, with accesses in closures, implemented with the standard library's.
#[cfg(not(manycore_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(manycore_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Takes a lock of this crate. Ignores poison: no user code runs under these locks, and each change
/// is complete before anything can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Has a pair of cache lines to itself, so that writes to neighbours do not disturb it.
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// Returns the number of parts of a table with parts for each thread: twice the machine's threads,
/// rounded up to a power of two. If there are more threads than parts, they share parts.
pub(crate) fn parts() -> usize {
    if cfg!(manycore_loom) {
        return 2;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * threads).next_power_of_two().clamp(4, 512)
}

/// Returns true if the bug with this name is planted, as in the library's `sync::bugs`.
macro_rules! seeded_bug {
    ($name:literal) => {
        $crate::sync::is_planted($name)
    };
}
pub(crate) use seeded_bug;

/// See [`seeded_bug!`].
#[cfg(manycore_loom)]
pub(crate) fn is_planted(bug: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("MANYCORE_SEEDED_BUG").ok()).as_deref() == Some(bug)
}
/// See [`seeded_bug!`].
#[cfg(not(manycore_loom))]
#[inline(always)]
pub(crate) const fn is_planted(_bug: &str) -> bool {
    false
}
