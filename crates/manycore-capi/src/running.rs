//! Whether a thread runs a call-back (capi.A5).

use crate::record::Record;
use libc::c_int;
use std::cell::Cell;

thread_local! {
    /// As in the record, where threads have none.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

/// The call-backs that the thread is running, one inside of another.
#[inline(always)]
fn with<R>(f: impl FnOnce(&Cell<u32>) -> R) -> R {
    match Record::own() {
        // SAFETY: the calling thread's own variable, which lives as long as it.
        Some(record) => f(&unsafe { &*record }.running),
        None => RUNNING.with(f),
    }
}

/// Whether the calling thread runs a call-back.
pub(crate) fn is_running() -> bool {
    with(|running| running.get() != 0)
}

/// Runs `f`, a call-back.
#[inline(always)]
pub(crate) fn during(f: impl FnOnce()) {
    with(|running| running.set(running.get() + 1));
    f();
    with(|running| running.set(running.get() - 1));
}

/// Whether the calling thread runs a call-back: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn mc_running() -> c_int {
    is_running().into()
}
