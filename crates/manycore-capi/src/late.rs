//! Sections that a thread opens after its thread-local destructors have run, in the destructor of a
//! pthread key for example: such a thread has no slot of its own to find them by.

use crate::handle::Domain;
use manycore::percpu::AtFork;
use manycore::section::OpenSection;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Thread, number of the domain, and the section's word.
type Late = (usize, usize, usize);

static AT_FORK: AtFork = AtFork::new(|| Box::new(hold()), in_child);

/// Held for some instructions, and by a fork.
static LATE: Mutex<Vec<Late>> = Mutex::new(Vec::new());

fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

thread_local! {
    /// How many of the sections are the calling thread's.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// The list. No user code runs while it is held; a fork holds it.
fn hold() -> MutexGuard<'static, Vec<Late>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<R>(f: impl FnOnce(&mut Vec<Late>) -> R) -> R {
    AT_FORK.list();
    f(&mut hold())
}

/// Keeps a section of the calling thread.
pub(crate) fn push(domain: &Domain, open: &OpenSection<'_>) {
    let domain = std::ptr::from_ref(domain).addr();
    with(|late| late.push((this_thread(), domain, open.announced().expose_provenance())));
    OPEN.with(|open| open.set(open.get() + 1));
}

/// As [`pop`], but the section is kept.
#[cold]
#[inline(never)]
pub(crate) fn last(domain: &Domain) -> Option<*mut u64> {
    if OPEN.with(Cell::get) == 0 {
        return None;
    }
    let own = (this_thread(), std::ptr::from_ref(domain).addr());
    let word = with(|late| late.iter().rfind(|entry| (entry.0, entry.1) == own).map(|late| late.2));
    word.map(std::ptr::with_exposed_provenance_mut)
}

/// The word of the section that the calling thread opened last in the domain.
pub(crate) fn pop(domain: &Domain) -> Option<*mut u64> {
    let (thread, domain) = (this_thread(), std::ptr::from_ref(domain).addr());
    let word = with(|late| {
        let own = |entry: &Late| (entry.0, entry.1) == (thread, domain);
        late.iter().rposition(own).map(|at| late.swap_remove(at).2)
    })?;
    OPEN.with(|open| open.set(open.get() - 1));
    Some(std::ptr::with_exposed_provenance_mut(word))
}

/// In the child of a fork: takes out the sections of threads that it does not have.
fn in_child() {
    let own = this_thread();
    hold().retain(|entry| entry.0 == own);
}
