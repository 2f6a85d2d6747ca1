//! What the calling thread holds: how many object locks, and at which level of the lock order.
//!
//! Owns: the count of object locks that a thread holds, and in debug builds the check of the lock
//! order below. Does not own: the locks, and the graph of waiting threads (`wait_graph`).
//!
//! ```text
//! outside                                                        inside
//!   object locks ------> updater (a log in use) ------> leaf locks
//!   user code, several   user code, no object lock      no user code, no wait
//! ```
//!
//! The lock order has three levels. A thread takes a lock only at a level further inside than the
//! locks that it has:
//! - *Object*: the lock of an object. User code runs under it. A thread may hold several, and may
//!   wait for one while it holds others, because such a wait is entered into the graph.
//! - *Updater*: a log in use by the thread (announced in a record of [`percpu`]). User code runs
//!   under it, too. No object lock is taken at this level: the lock's holder may wait for this very
//!   thread, and no graph shows that wait.
//! - *Leaf*: an internal mutex. No user code runs under it, and no thread waits.
//!
//! Law:
//! - held.Q1 [`enter`] and [`leave`] come in pairs: [`count`] is the number of object locks that
//!   the thread holds, including those of forgotten guards.

use super::holding;
use crate::percpu;
use crate::sync;
use std::cell::Cell;

sync::thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

// Under loom, a thread's locals are dropped when the thread ends; elsewhere `try_with` never fails.

/// Counts an object lock that the calling thread has taken (held.Q1).
#[inline(always)]
pub(crate) fn enter() {
    let _ = HELD.try_with(|held| held.set(held.get() + 1));
}

/// Counts off an object lock that the calling thread has released.
#[inline(always)]
pub(crate) fn leave() {
    let _ = HELD.try_with(|held| {
        debug_assert!(held.get() > 0, "held.Q1: a lock is released that was not counted");
        held.set(held.get().wrapping_sub(1));
    });
}

/// Returns the number of object locks that the calling thread holds (held.Q1).
#[inline(always)]
pub(crate) fn count() -> usize {
    HELD.try_with(Cell::get).unwrap_or(0)
}

/// Returns true if the calling thread holds an object lock, holds or shares a set, or uses a log.
/// Then other threads may wait for it, and it must not wait for what they hold.
#[inline]
pub(crate) fn is_inside() -> bool {
    may_be_waited_for(0)
}

/// As [`is_inside`], for a thread that holds `own` object locks for this very call.
#[inline]
pub(crate) fn may_be_waited_for(own: usize) -> bool {
    count() > own || percpu::has_log() || holding::is_any()
}

/// A leaf lock that is held. In debug builds, user code that begins under it panics.
#[must_use]
pub(crate) struct Leaf(());

#[cfg(debug_assertions)]
sync::thread_local! {
    static LEAVES: Cell<usize> = const { Cell::new(0) };
}

/// Counts a leaf lock as held.
#[inline(always)]
pub(crate) fn leaf() -> Leaf {
    #[cfg(debug_assertions)]
    let _ = LEAVES.try_with(|leaves| leaves.set(leaves.get() + 1));
    Leaf(())
}

impl Drop for Leaf {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        let _ = LEAVES.try_with(|leaves| leaves.set(leaves.get() - 1));
    }
}

/// Asserts, in debug builds, that the thread holds no leaf lock. Called before user code.
#[inline(always)]
pub(crate) fn assert_no_leaf() {
    #[cfg(debug_assertions)]
    let _ = LEAVES.try_with(|leaves| {
        assert!(leaves.get() == 0, "manycore: user code runs under a lock that is no object's");
    });
}

#[cfg(all(test, debug_assertions, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn user_code_under_a_leaf_lock_is_reported() {
        assert_no_leaf();
        let leaf = leaf();
        assert!(catch_unwind(AssertUnwindSafe(assert_no_leaf)).is_err());
        drop(leaf);
        assert_no_leaf();
    }
}
