//! Whether a thread runs a call-back (capi.A5).

use libc::c_int;
use std::cell::Cell;

thread_local! {
    /// The call-backs that the thread is running, one inside of another.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread runs a call-back.
pub(crate) fn is_running() -> bool {
    RUNNING.with(|running| running.get() != 0)
}

/// Runs `f`, a call-back.
pub(crate) fn during(f: impl FnOnce()) {
    RUNNING.with(|running| running.set(running.get() + 1));
    f();
    RUNNING.with(|running| running.set(running.get() - 1));
}

/// Whether the calling thread runs a call-back: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn mc_running() -> c_int {
    is_running().into()
}
