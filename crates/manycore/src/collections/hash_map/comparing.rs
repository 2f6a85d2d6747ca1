//! Which maps' keys the calling thread is comparing under a lock, or before it locks (law
//! hash_map.H6).
//!
//! An update of such a map would wait for a lock that the thread holds, or two threads that do it
//! for each other's. So it panics, whichever bucket it is for.

use crate::sync::thread_local;
use std::cell::Cell;
use std::ptr;

/// A search under a lock, or before one, and the one in whose `Eq` it runs.
struct Comparison {
    map: *const (),
    outer: *const Comparison,
}

thread_local! {
    static INNERMOST: Cell<*const Comparison> = const { Cell::new(ptr::null()) };
}

/// Makes the search around it the innermost again.
struct Over<'a>(&'a Cell<*const Comparison>, *const Comparison);

impl Drop for Over<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

/// Runs `search`, which compares keys of `map` under a lock, or before it locks. It runs no other
/// code of the user's.
///
/// # Panics
/// If the calling thread is in such a search of `map` already.
#[inline(always)]
pub(super) fn comparing<M, T>(map: &M, search: impl FnOnce() -> T) -> T {
    // (The search in a closure of `with` would be a function of its own, which takes 70
    // instructions more.)
    let innermost = INNERMOST.with(ptr::from_ref);
    // SAFETY: a thread-local without a destructor lives as long as its thread, which is this one.
    let innermost = unsafe { &*innermost };
    let (outer, map) = (innermost.get(), ptr::from_ref(map).cast());
    if !outer.is_null() {
        look_through(outer, map);
    }
    let mine = Comparison { map, outer };
    innermost.set(&raw const mine);
    let _over = Over(innermost, outer);
    search()
}

/// # Panics
/// If the calling thread compares keys of `map` under a lock, or before it locks.
#[inline(always)]
pub(super) fn forbid_in_eq<M>(map: &M) {
    let innermost = INNERMOST.with(Cell::get);
    if !innermost.is_null() {
        look_through(innermost, ptr::from_ref(map).cast());
    }
}

#[cold]
#[inline(never)]
fn look_through(mut comparison: *const Comparison, map: *const ()) {
    // SAFETY: each stands on the stack of this thread, in a call of `comparing` that has not
    // returned: on the way out it takes itself from the list, also when `search` panics.
    while let Some(Comparison { map: own, outer }) = unsafe { comparison.as_ref() } {
        assert!(*own != map, "manycore: a key's `Eq` updates the map that calls it");
        comparison = *outer;
    }
}
