//! Whether a thread runs a call-back (capi.A5).
//!
//! Of the word, the lower half counts the call-backs that the thread is running, one inside of
//! another; the upper half those of them in which it was forked (capi.A4).

use crate::record::Record;
use libc::c_int;
use std::cell::Cell;

thread_local! {
    /// As in the record, where threads have none.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
}

const FORKED: u32 = 16;
const DEPTH: u32 = (1 << FORKED) - 1;

/// The word.
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

/// Runs `f`, a call-back. Whether its end is to be counted: not if the process was forked in it.
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

/// In the child of a fork: of the call-backs that the thread runs, none is counted any more.
pub(crate) fn forked() {
    with(|running| {
        let depth = running.get() & DEPTH;
        running.set(depth << FORKED | depth);
    });
}

/// Whether the calling thread runs a call-back: 1 or 0.
#[unsafe(no_mangle)]
pub extern "C" fn mc_running() -> c_int {
    is_running().into()
}
