//! What locks and flights are made of: the standard library's, or loom's (`--cfg manycore_loom`),
//! which then runs the code that users run.

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

/// Sleeps; loom only switches threads.
pub(crate) fn sleep(time: std::time::Duration) {
    #[cfg(not(manycore_loom))]
    thread::sleep(time);
    #[cfg(manycore_loom)]
    {
        let _ = time;
        thread::yield_now();
    }
}

/// Mistakes that a test of the tests plants, by the environment variable
/// `MANYCORE_CACHE_SEEDED_BUG`, to see that the models catch them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A load looks at its mark before it has the lock of its bucket (F4 of `flight`).
    #[cfg(manycore_loom)]
    EarlyLook,
    /// An update of what is there asks for loads with no fence (F4).
    UnfencedLook,
    /// A removal in vain does not look again when it has asked for loads.
    #[cfg(manycore_loom)]
    OneLook,
}

/// Whether `bug` is planted; never in ordinary builds.
#[cfg(manycore_loom)]
pub(crate) fn seeded_bug(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let named = || match std::env::var("MANYCORE_CACHE_SEEDED_BUG").as_deref() {
        Err(_) => None,
        Ok("early-look") => Some(Bug::EarlyLook),
        Ok("unfenced-look") => Some(Bug::UnfencedLook),
        Ok("one-look") => Some(Bug::OneLook),
        Ok(other) => panic!("MANYCORE_CACHE_SEEDED_BUG: there is no bug {other:?}"),
    };
    *PLANTED.get_or_init(named) == Some(bug)
}
#[cfg(not(manycore_loom))]
#[inline(always)]
pub(crate) const fn seeded_bug(_bug: Bug) -> bool {
    false
}
