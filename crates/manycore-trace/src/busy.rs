//! Whether the calling thread is within this crate's code.

use crate::sync::{AtomicBool, Ordering, compiler_fence};
use std::ptr;

thread_local! {
    static BUSY: AtomicBool = const { AtomicBool::new(false) };
}

/// Runs `f`, with the thread marked busy; `None` if it is already: `f` is then interrupted, or has
/// called the program's allocator.
#[inline(always)]
pub(crate) fn if_idle<R>(f: impl FnOnce() -> R) -> Option<R> {
    // Not all in `with`: the compiler does not inline that where much is done in it.
    let busy = BUSY.with(ptr::from_ref);
    // SAFETY: the thread's own, without a destructor: it is there as long as the thread.
    let busy = unsafe { &*busy };
    // ORDER: Relaxed; only this thread and its handlers look, and the compiler's fences keep what
    // is between them there.
    if busy.load(Ordering::Relaxed) {
        return None;
    }
    busy.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    let result = f();
    compiler_fence(Ordering::SeqCst);
    // ORDER: Relaxed; as above.
    busy.store(false, Ordering::Relaxed);
    Some(result)
}

/// Runs `f`, of this crate, in which no event of this thread is recorded (session.S3).
pub(crate) fn quietly<R>(f: impl FnOnce() -> R) -> R {
    BUSY.with(|busy| {
        // ORDER: Relaxed; as in `if_idle`.
        let was_busy = busy.load(Ordering::Relaxed);
        busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let result = f();
        compiler_fence(Ordering::SeqCst);
        // ORDER: Relaxed; as in `if_idle`.
        busy.store(was_busy, Ordering::Relaxed);
        result
    })
}
