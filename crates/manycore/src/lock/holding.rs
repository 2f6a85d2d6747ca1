//! The objects that the calling thread holds or shares, if user code runs under their guards.
//!
//! Owns: one list for each thread. A lock in rounds asks the list before it waits (rounds.V4). A
//! change asks it before it waits for a reader, because that reader may wait for what the thread
//! holds.
//!
//! Laws:
//! - **holding.S1** The list has the address of each object from the moment that the thread has the
//!   object, exclusively or shared, until the thread releases it. The address of a forgotten
//!   guard's object stays.
//! - **holding.S2** The list exists until the thread's very end: it has no destructor, so it also
//!   answers in the destructors of other thread-locals. Beyond [`NEAR`] objects it allocates, and
//!   it frees the memory when they are released.

use crate::sync;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

/// Number of objects that a thread can hold without an allocation.
const NEAR: usize = 4;

struct Holding {
    /// Zero in unused entries.
    near: [Cell<usize>; NEAR],
    far: RefCell<ManuallyDrop<Vec<usize>>>,
}

sync::thread_local! {
    static HOLDING: Holding = const { Holding::new() };
}

impl Holding {
    const fn new() -> Self {
        let near = [const { Cell::new(0) }; NEAR];
        Self { near, far: RefCell::new(ManuallyDrop::new(Vec::new())) }
    }

    fn note(&self, object: usize) {
        debug_assert!(object != 0, "holding.S1: an object at no address is listed");
        match self.near.iter().find(|entry| entry.get() == 0) {
            Some(entry) => entry.set(object),
            None => self.far.borrow_mut().push(object),
        }
    }

    fn forget(&self, object: usize) {
        if let Some(entry) = self.near.iter().find(|entry| entry.get() == object) {
            return entry.set(0);
        }
        let mut far = self.far.borrow_mut();
        if let Some(entry) = far.iter().rposition(|held| *held == object) {
            far.swap_remove(entry);
        }
        if far.is_empty() {
            ManuallyDrop::into_inner(std::mem::replace(&mut far, ManuallyDrop::new(Vec::new())));
        }
    }

    fn has(&self, object: usize) -> bool {
        self.near.iter().any(|entry| entry.get() == object) || self.far.borrow().contains(&object)
    }

    fn all(&self) -> Vec<usize> {
        let near = self.near.iter().map(Cell::get).filter(|object| *object != 0);
        near.chain(self.far.borrow().iter().copied()).collect()
    }

    fn is_any(&self) -> bool {
        self.near.iter().any(|entry| entry.get() != 0) || !self.far.borrow().is_empty()
    }
}

// Under loom, a thread's locals are dropped when the thread ends; elsewhere `try_with` never fails
// (holding.S2).

/// Notes that the calling thread has the object from here on (holding.S1).
pub(super) fn note(object: usize) {
    let _ = HOLDING.try_with(|own| own.note(object));
}

/// Notes that the calling thread releases the object.
pub(super) fn forget(object: usize) {
    let _ = HOLDING.try_with(|own| own.forget(object));
}

/// Returns true if the calling thread has the object.
pub(super) fn has(object: usize) -> bool {
    HOLDING.try_with(|own| own.has(object)).unwrap_or(false)
}

/// Returns the objects that the calling thread has.
pub(super) fn all() -> Vec<usize> {
    HOLDING.try_with(Holding::all).unwrap_or_default()
}

/// Returns true if the calling thread has any object. Then other threads may wait for it, and it
/// must not wait for them where its caller does not expect that.
pub(super) fn is_any() -> bool {
    HOLDING.try_with(Holding::is_any).unwrap_or(false)
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn list_has_what_is_held_however_much() {
        let held = Holding::new();
        assert!(!held.is_any() && !held.has(16));
        for objects in [1, NEAR, 3 * NEAR] {
            (1..=objects).for_each(|object| held.note(object * 16));
            assert!((1..=objects).all(|object| held.has(object * 16)) && held.is_any());
            assert_eq!(held.all(), (1..=objects).map(|object| object * 16).collect::<Vec<_>>());
            assert!(!held.has((objects + 1) * 16));
            (1..=objects).for_each(|object| {
                held.forget(object * 16);
                assert!(!held.has(object * 16));
                assert_eq!(held.is_any(), object < objects);
            });
            assert_eq!(held.far.borrow().capacity(), 0, "the memory is given back");
        }
        held.forget(16); // forgetting an object that is not held changes nothing
        assert!(!held.is_any());
    }
}
