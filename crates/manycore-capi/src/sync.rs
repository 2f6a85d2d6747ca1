//! The synchronization of this crate: the standard library's atomics and threads, or loom's (`--cfg
//! manycore_loom`). So loom checks the code that users run.

#[cfg(manycore_loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    thread::{self, Thread},
};
#[cfg(not(manycore_loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    thread::{self, Thread},
};

use std::time::Duration;

/// Sleeps until other threads make progress, twice as long each time.
pub(crate) fn pause(time: &mut Duration) {
    #[cfg(manycore_loom)]
    thread::yield_now();
    #[cfg(not(manycore_loom))]
    thread::sleep(*time);
    *time = (2 * *time).min(Duration::from_millis(1));
}

/// Parks the calling thread. Only a fork can lose a wake-up, so the time-out is long.
pub(crate) fn park() {
    #[cfg(manycore_loom)]
    thread::park();
    #[cfg(not(manycore_loom))]
    thread::park_timeout(Duration::from_secs(1));
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
