//! Sections of a thread whose thread-local destructors have run, for example in the destructor of a
//! pthread key. Such a thread has no slot any more by which its sections could be found.

use crate::handle::Domain;
use manycore::percpu::AtFork;
use manycore::section::OpenSection;
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread, the domain's address, and the address of the section's word.
type Late = (usize, usize, usize);

static AT_FORK: AtFork = AtFork::new(|| Box::new(hold()), in_child);

/// Held only for some instructions, and by a fork.
static LATE: Mutex<Vec<Late>> = Mutex::new(Vec::new());

fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

thread_local! {
    /// The number of the sections that belong to the calling thread.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// Locks the list. No user code runs while it is held. A fork holds it.
fn hold() -> MutexGuard<'static, Vec<Late>> {
    LATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<R>(f: impl FnOnce(&mut Vec<Late>) -> R) -> R {
    AT_FORK.list();
    f(&mut hold())
}

/// Remembers a section of the calling thread.
pub(crate) fn push(domain: &Domain, open: &OpenSection<'_>) {
    let domain = std::ptr::from_ref(domain).addr();
    with(|late| late.push((this_thread(), domain, open.announced().expose_provenance())));
    OPEN.with(|open| open.set(open.get() + 1));
}

/// Like [`pop`], but keeps the section.
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

/// Removes and returns the word of the section that the calling thread opened last in the domain.
pub(crate) fn pop(domain: &Domain) -> Option<*mut u64> {
    let (thread, domain) = (this_thread(), std::ptr::from_ref(domain).addr());
    let word = with(|late| {
        let own = |entry: &Late| (entry.0, entry.1) == (thread, domain);
        late.iter().rposition(own).map(|at| late.swap_remove(at).2)
    })?;
    OPEN.with(|open| open.set(open.get() - 1));
    Some(std::ptr::with_exposed_provenance_mut(word))
}

/// Runs in the child of a fork: removes the sections of threads that the child does not have.
fn in_child() {
    let own = this_thread();
    hold().retain(|entry| entry.0 == own);
}
