//! The synchronization of a ring: the standard library's atomics, or loom's (`--cfg
//! manycore_loom`). So loom checks the code that users run.

#[cfg(manycore_loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(manycore_loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, compiler_fence, fence},
    thread::yield_now,
};

/// Waits for another thread: yields the core at first, later sleeps.
pub(crate) fn pause(step: &mut u32) {
    *step += 1;
    if cfg!(manycore_loom) || *step < 100 {
        yield_now();
    } else {
        std::thread::sleep(std::time::Duration::from_micros(100));
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
