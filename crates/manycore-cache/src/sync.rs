//! What `latch` is made of: the standard library's, or loom's (`--cfg manycore_loom`), which then
//! runs the code that users run.

#[cfg(manycore_loom)]
pub(crate) use loom::{
    hint,
    sync::atomic::{AtomicU8, Ordering},
    thread,
};
#[cfg(not(manycore_loom))]
pub(crate) use std::{
    hint,
    sync::atomic::{AtomicU8, Ordering},
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
