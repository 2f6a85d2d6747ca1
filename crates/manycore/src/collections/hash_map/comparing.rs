//! Which maps' keys the calling thread is comparing under a lock, or before it locks (law
//! hash_map.H6).
//!
//! An update of such a map would wait for a lock that the thread holds, or two threads that do it
//! for each other's. So it panics, whichever bucket it is for.

use crate::sync::thread_local;
use std::cell::Cell;
use std::ptr;

/// A comparison under a lock, and the one in whose `Eq` it runs.
struct Comparison {
    map: *const (),
    outer: *const Comparison,
}

thread_local! {
    static INNERMOST: Cell<*const Comparison> = const { Cell::new(ptr::null()) };
}

/// Makes the comparison around it the innermost again.
struct Over<'a>(&'a Cell<*const Comparison>, *const Comparison);

impl Drop for Over<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs `eq`, a comparison of keys of `map` under a lock, or before it locks.
#[inline(always)]
pub(super) fn comparing<M>(map: &M, eq: impl FnOnce() -> bool) -> bool {
    INNERMOST.with(|innermost| {
        let outer = innermost.get();
        let mine = Comparison { map: ptr::from_ref(map).cast(), outer };
        innermost.set(&raw const mine);
        let _over = Over(innermost, outer);
        eq()
    })
}

/// # Panics
/// If the calling thread compares keys of `map` under a lock.
#[inline(always)]
pub(super) fn forbid_in_eq<M>(map: &M) {
    let innermost = INNERMOST.with(Cell::get);
    if !innermost.is_null() {
        look_through(innermost, ptr::from_ref(map).cast());
    }
}

#[cold]
fn look_through(mut comparison: *const Comparison, map: *const ()) {
    // SAFETY: each stands on the stack of this thread, in a call of `comparing` that has not
    // returned: on the way out it takes itself from the list, also when `eq` panics.
    while let Some(Comparison { map: own, outer }) = unsafe { comparison.as_ref() } {
        assert!(*own != map, "manycore: a key's `Eq` updates the map that calls it");
        comparison = *outer;
    }
}
