//! The primitives of locks and flights: the standard library's, or loom's (`--cfg manycore_loom`),
//! which then checks the code that users run.

#[cfg(manycore_loom)]
pub(crate) use loom::{
    hint,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
    },
    thread,
};
#[cfg(not(manycore_loom))]
pub(crate) use std::{
    hint,
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// Sleeps. Under loom it only switches threads.
pub(crate) fn sleep(time: std::time::Duration) {
    #[cfg(not(manycore_loom))]
    thread::sleep(time);
    #[cfg(manycore_loom)]
    {
        let _ = time;
        thread::yield_now();
    }
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
