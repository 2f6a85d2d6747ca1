//! Detects a key's `Eq` that updates the map that calls it (hash_map.H6). Records the maps whose
//! keys the calling thread is comparing for an update, with a bucket's lock or without.
//!
//! An update from within such a comparison could wait for a lock that the thread itself holds, or
//! two threads could wait for each other's locks. So it panics, whichever bucket it is for.

use crate::sync::thread_local;
use std::cell::Cell;
use std::ptr;

/// A comparison of keys of `map`, and the comparison in whose `Eq` it runs.
struct Comparison {
    map: *const (),
    outer: *const Comparison,
}

thread_local! {
    static INNERMOST: Cell<*const Comparison> = const { Cell::new(ptr::null()) };
}

/// Dropping this makes the outer comparison the innermost again.
struct RestoreOuter(*const Comparison);

impl Drop for RestoreOuter {
    #[inline(always)]
    fn drop(&mut self) {
        INNERMOST.with(|innermost| innermost.set(self.0));
    }
}

/// Runs `compare`, which compares keys of `map` and runs no other user code. The update has called
/// [`forbid_in_eq`].
#[inline(always)]
pub(super) fn comparing<M, T>(map: &M, compare: impl FnOnce() -> T) -> T {
    let outer = INNERMOST.with(Cell::get);
    let mine = Comparison { map: ptr::from_ref(map).cast(), outer };
    INNERMOST.with(|innermost| innermost.set(&raw const mine));
    let _restore = RestoreOuter(outer);
    compare()
}

/// Checks that the calling thread is in no such comparison of keys of `map`. Each update asks once.
///
/// # Panics
/// If it is.
#[inline(always)]
pub(super) fn forbid_in_eq<M>(map: &M) {
    let innermost = INNERMOST.with(Cell::get);
    if !innermost.is_null() {
        panic_if_comparing(innermost, ptr::from_ref(map).cast());
    }
}

#[cold]
#[inline(never)]
fn panic_if_comparing(mut comparison: *const Comparison, map: *const ()) {
    // SAFETY: each comparison is on this thread's stack, in a call of `comparing` that has not
    // returned. That call takes it from the list when it returns, also when `search` panics.
    while let Some(Comparison { map: own, outer }) = unsafe { comparison.as_ref() } {
        assert!(*own != map, "manycore: a key's `Eq` updates the map that calls it");
        comparison = *outer;
    }
}
