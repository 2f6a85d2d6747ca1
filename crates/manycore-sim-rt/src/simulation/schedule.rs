//! From the engine's choice to the running thread: follows an outcome, and cleans up after a thread
//! that has ended.

use manycore_sim::{Outcome, ThreadId};

use super::{Simulation, paused, result, with};
use crate::thread::join_real;
use crate::{host, switch};

/// Returns the thread that the outcome names. Ends the process if none can run.
pub(crate) fn chosen(mut outcome: Outcome) -> usize {
    loop {
        match outcome {
            Outcome::Continue => return with(|sim| sim.current),
            Outcome::Switch(ThreadId(next)) => return next as usize,
            Outcome::Idle => {
                if !with(Simulation::wait_idle) {
                    result::deadlock();
                }
                outcome = with(|sim| sim.engine.go_on());
            }
            Outcome::Finished | Outcome::Deadlock => result::deadlock(),
        }
    }
}

/// Runs the thread that the engine has chosen, and returns when it has chosen the caller again.
#[inline(always)]
pub(super) fn follow(outcome: Outcome) {
    if outcome != Outcome::Continue {
        follow_away(outcome);
    }
}

#[cold]
#[inline(never)]
fn follow_away(outcome: Outcome) {
    let next = chosen(outcome);
    if next != with(|sim| sim.current) {
        resume(next);
    }
    debug_assert!(
        with(|sim| sim.engine.running().0 as usize == sim.current),
        "the engine has chosen another thread"
    );
}

/// Runs `next`, the engine's choice. Returns when the engine chooses the caller.
fn resume(next: usize) {
    let (save, to, pointer) = with(|sim| sim.change_to(next));
    // SAFETY: threads.S2, switch.W1 - `to` is where the engine's choice gave way; it is not the
    // caller, and the pointer is that thread's own.
    unsafe { switch::switch(save, to, pointer) };
    arrive();
}

/// Cleans up after the last thread. Each thread calls this first when it gets the kernel thread.
pub(crate) fn arrive() {
    if let Some(gone) = with(|sim| sim.leaving.take()) {
        // A detached thread that ended gave way to this one.
        collect(gone);
    }
}

/// Lets the real thread of an ended virtual thread end as well.
pub(crate) fn collect(number: usize) {
    let (thread, handle) = with(|sim| {
        let thread = &mut *sim.threads[number];
        debug_assert!(thread.ended && !thread.collected, "a thread ends once");
        thread.collected = true;
        (std::ptr::from_mut(thread), thread.handle)
    });
    paused(|| {
        // SAFETY: threads are boxed and never dropped; the parked thread reads only this word.
        host::wake(unsafe { &(*thread).released }, 1);
        join_real(handle, std::ptr::null_mut());
    });
}
