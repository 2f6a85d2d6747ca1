//! Calls: the exchangeable objects that a thread is inside of (`cluster`). They are announced so
//! that a call writes only its own line and nests.
//!
//! Owns: the calling thread's depth, and which entry of its slot's stack (`call_stack`) a call has.
//! Laws:
//! - calls.L1 Entry `i` of a slot's stack is the object of the `i`th call from the outside, as
//!   long as that call lasts, and zero afterwards. Only the owner writes it. So if a watcher has
//!   seen no entry of the object in any slot, no call that was announced before is still inside.
//! - calls.L2 Announcing is ordered before the caller's later loads, against a watcher that stores
//!   and then calls [`gate::pass_barrier`] with the same bias (gate.E1, gate.E2).
//! - calls.L3 The depth is the thread's, not the slot's, and is known until the thread's very end.
//!   Calls deeper than the stack, and calls of a thread that has lost its slot, are counted in the
//!   object, and here only in the depth.
//! - calls.L4 The depth [`LEAF`] says that the thread runs code that must not call exchangeable
//!   objects.

use super::announcement::{announce, announced, withdraw};
use super::records;
use super::slots::{self, Slot};
use crate::sync::{self, AtomicUsize};
use std::cell::Cell;

/// The depth in code that must not call exchangeable objects (calls.L4).
pub(crate) const LEAF: usize = usize::MAX;

sync::thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many calls the calling thread is inside of, or [`LEAF`].
#[inline(always)]
pub(crate) fn depth() -> usize {
    // loom drops a thread's locals when the thread ends; elsewhere `try_with` never fails.
    DEPTH.try_with(Cell::get).unwrap_or(0)
}

#[inline(always)]
fn set_depth(depth: usize) {
    let _ = DEPTH.try_with(|own| own.set(depth));
}

/// An announced call; dropping it withdraws the announcement.
pub(crate) struct Call {
    entry: &'static AtomicUsize,
    depth: usize,
}

/// Announces that the calling thread is inside of `object`, on the stack (calls.L1) and not in the
/// record, which has one object at a time (percpu.P5). Returns `None` if the stack is full, if the
/// thread must not call, or if it has no slot.
#[inline(always)]
pub(crate) fn enter(object: usize, biased: bool) -> Option<Call> {
    let depth = depth();
    let slot: Slot = slots::own_slot()?;
    let entry = slot.calls().entry(depth)?;
    debug_assert!(
        cfg!(manycore_loom) || announced(entry) == 0,
        "calls.L1: an entry of the stack is in use"
    );
    announce(entry, object, biased); // calls.L2
    set_depth(depth + 1);
    Some(Call { entry, depth })
}

impl Drop for Call {
    #[inline(always)]
    fn drop(&mut self) {
        debug_assert!(
            cfg!(manycore_loom) || announced(self.entry) != 0,
            "calls.L1: a call ends that is not announced"
        );
        debug_assert!(
            cfg!(manycore_loom) || depth() == self.depth + 1,
            "calls.L3: calls end out of order"
        );
        withdraw(self.entry);
        set_depth(self.depth);
    }
}

/// A change of the depth. Dropping this undoes the change, also when user code panics.
pub(crate) struct Depth(usize);

/// Increments the depth without an announcement (calls.L3).
pub(crate) fn deeper() -> Depth {
    let before = Depth(depth());
    set_depth(before.0 + 1);
    before
}

/// Forbids calls until the result is dropped (calls.L4).
pub(crate) fn leaf() -> Depth {
    let before = Depth(depth());
    set_depth(LEAF);
    before
}

impl Drop for Depth {
    fn drop(&mut self) {
        set_depth(self.0);
    }
}

/// Returns true if some slot's owner has announced that it is inside of `object`.
pub(crate) fn is_anybody_inside(object: usize) -> bool {
    (0..records().high()).any(|slot| records().get(slot).calls().contains(object))
}
