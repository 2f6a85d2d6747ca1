//! A flag for each thread: true while the thread runs this crate's code.

use crate::sync::{AtomicBool, Ordering, compiler_fence};
use std::ptr;

thread_local! {
    static BUSY: AtomicBool = const { AtomicBool::new(false) };
}

/// Runs `f` with the thread marked busy. Returns `None` if the thread is busy already.
///
/// In that case a signal handler interrupted another `f`, or an `f` has called the program's
/// allocator.
#[inline(always)]
pub(crate) fn if_idle<R>(f: impl FnOnce() -> R) -> Option<R> {
    // Not all inside `with`: the compiler does not inline `with` around a large closure.
    let busy = BUSY.with(ptr::from_ref);
    // SAFETY: the variable is the thread's own and has no destructor, so it lives as long as the
    // thread.
    let busy = unsafe { &*busy };
    // ORDER: Relaxed; only this thread and its handlers read it. The compiler fences keep the code
    // between them in place.
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

/// Runs `f`, which is code of this crate. No event of this thread is recorded meanwhile
/// (session.S3).
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
