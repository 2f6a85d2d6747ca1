//! Which tables a thread is inside of: law dhash.M6.
//!
//! Owns: a thread-local list of the uses on the thread's stack. A lock could record only itself,
//! and a table has many locks.

use super::super::reentrancy_lock::panic_on_reentrancy;
use crate::sync;
use std::cell::Cell;
use std::ptr;

sync::thread_local! {
    static INNERMOST: Cell<*const TableUse> = const { Cell::new(ptr::null()) };
}

/// A use of a table by this thread.
pub(super) struct TableUse {
    table: *const (),
    outer: Cell<*const TableUse>,
}

/// Takes the use from the list when it is dropped. It borrows the use, so the use stays where it is
/// in memory.
pub(super) struct Entered<'a>(&'a TableUse);

impl TableUse {
    #[inline(always)]
    pub(super) const fn new(table: *const ()) -> Self {
        Self { table, outer: Cell::new(ptr::null()) }
    }

    /// Refuses a thread that is inside of the table.
    ///
    /// # Panics
    /// If the calling thread is inside of the table.
    #[inline(always)]
    #[track_caller]
    pub(super) fn refuse(&self) {
        let innermost = innermost();
        if !innermost.is_null() && is_among(innermost, self.table) {
            panic_on_reentrancy();
        }
    }

    /// Puts the use on the list.
    ///
    /// # Panics
    /// If the thread is inside of the table.
    #[inline(always)]
    #[track_caller]
    pub(super) fn enter(&self) -> Entered<'_> {
        self.refuse();
        self.outer.set(innermost());
        set(self);
        Entered(self)
    }
}

#[inline(always)]
fn innermost() -> *const TableUse {
    // Loom takes the thread-local away late in a thread's life.
    INNERMOST.try_with(Cell::get).unwrap_or(ptr::null())
}

#[inline(always)]
fn set(innermost: *const TableUse) {
    let _ = INNERMOST.try_with(|list| list.set(innermost));
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        debug_assert!(
            innermost().is_null() || ptr::eq(innermost(), self.0),
            "dhash.M6: uses of tables end in the order of a stack"
        );
        set(self.0.outer.get());
    }
}

#[cold]
fn is_among(mut use_: *const TableUse, table: *const ()) -> bool {
    // SAFETY: each stands on this thread's stack, borrowed by an `Entered` that takes it from the
    // list when it is dropped. Drops come in the order of a stack, because these are locals of this
    // module's functions.
    while let Some(found) = unsafe { use_.as_ref() } {
        if ptr::eq(found.table, table) {
            return true;
        }
        use_ = found.outer.get();
    }
    false
}
