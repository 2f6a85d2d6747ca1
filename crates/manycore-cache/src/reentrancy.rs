//! User code that runs under a bucket's lock, and what it may do there. Most callbacks run with no
//! lock held; the others are recorded here for their thread.
//!
//! - The closures of `get_locked_if`, `expire_if` and `retain`, and `settle` of `relocate`.
//! - The second call of the closures of [`insert_locked_if`](crate::Cache::insert_locked_if) and
//!   `remove_locked_if`.
//! - The clock, and the callbacks for an entry without metadata, when these methods or a removal of
//!   many entries ask for them.
//! - `Hash` while a table is replaced.
//!
//! Laws:
//! - reentrancy.U1 If a thread runs a callback under a lock of a cache, an update of the same cache
//!   panics in that thread, before it changes anything: it might wait for itself. Reads take no
//!   lock, and work.
//! - reentrancy.U2 A thread that runs a callback under a lock never waits without limit for another
//!   cache's lock, and never replaces a table. So if callbacks of two caches update each other's
//!   cache, they end with a panic after [`WAIT_LIMIT`], and not with a deadlock.

use std::cell::Cell;
use std::ptr;
use std::time::Duration;

/// How long a callback under one cache's lock waits for a lock of another cache.
pub(crate) const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// A callback that runs under a lock of a cache, and the callback around it.
struct Frame {
    cache: *const (),
    outer: *const Frame,
}

thread_local! {
    static INNERMOST: Cell<*const Frame> = const { Cell::new(ptr::null()) };
}

#[inline(always)]
fn innermost() -> *const Frame {
    INNERMOST.try_with(Cell::get).unwrap_or(ptr::null())
}

/// Runs a callback of the cache at this address. The caller holds a lock of that cache.
pub(crate) fn under_lock<R>(cache: *const (), callback: impl FnOnce() -> R) -> R {
    /// Removes the frame, also if the callback panics.
    struct Leave(*const Frame);
    impl Drop for Leave {
        fn drop(&mut self) {
            let _gone = INNERMOST.try_with(|innermost| innermost.set(self.0));
        }
    }
    let frame = Frame { cache, outer: innermost() };
    let _leave = Leave(frame.outer);
    let _gone = INNERMOST.try_with(|innermost| innermost.set(&raw const frame));
    callback()
}

/// Returns true if the thread runs a callback under a lock of any cache.
#[inline(always)]
pub(crate) fn is_under_lock() -> bool {
    !innermost().is_null()
}

/// Returns true if the thread runs a callback under a lock of the cache at this address.
#[inline(always)]
pub(crate) fn is_under_lock_of(cache: *const ()) -> bool {
    is_under_lock() && has_frame_of(cache)
}

#[cold]
fn has_frame_of(cache: *const ()) -> bool {
    let mut frame = innermost();
    // SAFETY: frames are on this thread's stack, and `under_lock` removes each frame before it
    // returns or unwinds. So the linked frames are alive.
    while let Some(one) = unsafe { frame.as_ref() } {
        if one.cache == cache {
            return true;
        }
        frame = one.outer;
    }
    false
}

/// Panics in a callback that runs under a lock of this cache (law reentrancy.U1).
#[inline(always)]
#[track_caller]
pub(crate) fn refuse_under_lock_of(cache: *const ()) {
    if is_under_lock_of(cache) {
        refuse();
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refuse() -> ! {
    panic!("manycore: a callback that runs under a cache's lock updates the same cache");
}
