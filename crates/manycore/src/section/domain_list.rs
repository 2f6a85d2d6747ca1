//! The domains that exist, for threads that end and for a fork.

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use super::state::HeldLocks;
use super::state::State;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::percpu::AtFork;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::sync::{AtomicPtr, Ordering};
use crate::sync::{Mutex, MutexGuard, global};
use std::ptr::NonNull;
use std::sync::PoisonError;

global! {
    /// The domains that exist, for threads that end.
    static DOMAINS: Mutex<Vec<Listed>> = Mutex::new(Vec::new());
}

/// A domain in the list.
struct Listed(NonNull<State>);

// SAFETY: the pointer is used only under the list's lock, and `remove` takes it out under the
// same lock before `Domain::drop` frees the state, which is Sync.
unsafe impl Send for Listed {}

fn domains() -> MutexGuard<'static, Vec<Listed>> {
    DOMAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists a domain.
///
/// # Safety
/// The state lives until it is taken out by [`remove`].
pub(super) unsafe fn add(state: NonNull<State>) {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    AT_FORK.list();
    domains().push(Listed(state));
}

/// Publishes a domain's state and lists it, unless another thread has; the one that is published.
/// Both under the list's lock: a thread that ends finds in the list every domain that it has used.
///
/// # Safety
/// As [`add`], of `made`.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(super) unsafe fn add_first(link: &AtomicPtr<State>, made: *mut State) -> *mut State {
    AT_FORK.list();
    let mut domains = domains();
    // ORDER: Relaxed; the lock orders it.
    let found = link.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    domains.extend(NonNull::new(made).map(Listed));
    // ORDER: Release; pairs with Acquire in `Domain::state`: the state before its address.
    link.store(made, Ordering::Release);
    made
}

/// Takes a domain out of the list: no other thread uses it through the list any more.
pub(super) fn remove(state: NonNull<State>) {
    domains().retain(|listed| listed.0 != state);
}

/// Calls `f` with every domain that exists. It must run no user code.
pub(super) fn for_each(mut f: impl FnMut(&State)) {
    for listed in domains().iter() {
        // SAFETY: in the list, hence not dropped, and its drop waits for this lock.
        f(unsafe { listed.0.as_ref() });
    }
}

/// Keeps every lock of the sections' for a fork: the list's, each domain's, the names', and in a
/// debug build those of `stray`. Parent and child let them go, and no leader is half-way through a
/// round in the child.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static AT_FORK: AtFork = AtFork::new(hold_for_fork, || ());

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
fn hold_for_fork() -> Box<dyn std::any::Any> {
    struct Held {
        _states: Vec<HeldLocks<'static>>,
        _names: Box<dyn std::any::Any>,
        _retired: Box<dyn std::any::Any>,
        _list: MutexGuard<'static, Vec<Listed>>,
    }
    let list = domains();
    // SAFETY: in the list, hence not dropped, and its drop waits for the list's lock, which is held
    // longer than the state's locks are (fields are dropped in order).
    let states = list.iter().map(|listed| unsafe { &*listed.0.as_ptr() }.hold()).collect();
    Box::new(Held {
        _states: states,
        _names: super::report::hold_names(),
        _retired: super::stray::hold(),
        _list: list,
    })
}
