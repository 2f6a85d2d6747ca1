//! A flag for a thread that runs a call-back (capi.A5).
//!
//! The lower half of the word counts the nested call-backs that the thread is running. The upper
//! half counts those in which the process was forked (capi.A4).

use crate::record::Record;
use libc::c_int;
use std::cell::Cell;

thread_local! {
    /// Used instead of the record on platforms without records.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

const FORKED: u32 = 16;
const DEPTH: u32 = (1 << FORKED) - 1;

/// Calls `f` with the thread's word.
#[inline(always)]
fn with<R>(f: impl FnOnce(&Cell<u32>) -> R) -> R {
    match Record::own() {
        // SAFETY: the calling thread's own variable, which lives as long as it.
        Some(record) => f(&unsafe { &*record }.running),
        None => RUNNING.with(f),
    }
}

/// Returns true if the calling thread runs a call-back.
pub(crate) fn is_running() -> bool {
    with(|running| running.get() != 0)
}

/// Runs the call-back `f`. Returns true if its end must be counted: false if it forked the process.
#[inline(always)]
pub(crate) fn during(f: impl FnOnce()) -> bool {
    with(|running| running.set(running.get() + 1));
    f();
    with(|running| {
        let rest = running.get() - 1;
        let (depth, forked) = (rest & DEPTH, rest >> FORKED);
        let is_counted = forked <= depth;
        running.set(if is_counted { rest } else { depth << FORKED | depth });
        is_counted
    })
}

/// Runs in the child of a fork: the ends of the thread's running call-backs are not counted any
/// more.
pub(crate) fn forked() {
    with(|running| {
        let depth = running.get() & DEPTH;
        running.set(depth << FORKED | depth);
    });
}

/// Returns 1 if the calling thread runs a call-back, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn mc_running() -> c_int {
    is_running().into()
}
