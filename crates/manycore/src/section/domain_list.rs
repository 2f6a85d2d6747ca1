//! Lists of the domains that exist, which a fork needs, and of each slot's parts in them, which the
//! end of a thread needs.
//!
//! Owns: the two lists. A part is listed before its owner opens a section with it, and stays listed
//! until its domain is dropped. The holder of the domains' lock may use every domain in either
//! list.

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use super::home::{HOME, NOWHERE};
use super::local::Local;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use super::state::HeldLocks;
use super::state::State;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::percpu::AtFork;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::sync::AtomicPtr;
use crate::sync::{Mutex, MutexGuard, Ordering, global};
use std::ptr::NonNull;
use std::sync::{Mutex as PlainMutex, MutexGuard as PlainMutexGuard, PoisonError};

global! {
    /// The domains that exist.
    static DOMAINS: Mutex<Vec<Listed>> = Mutex::new(Vec::new());
}

global! {
    /// The parts of each slot, so that a thread's end looks only at domains that it used. The lock
    /// is a plain one, taken inside the domains' lock. Only the lists are accessed under it, so the
    /// model checkers need not see it.
    static PARTS: PlainMutex<Vec<Vec<Part>>> = PlainMutex::new(Vec::new());
}

/// A slot's part of a domain.
#[derive(Clone, Copy)]
struct Part {
    state: NonNull<State>,
    local: NonNull<Local>,
}

// SAFETY: the pointers are used only under the domains' lock, or `local` for the place that `PARTS`
// guards. `remove` takes them out under both locks before the state is freed. Both are Sync.
unsafe impl Send for Part {}

fn parts() -> PlainMutexGuard<'static, Vec<Vec<Part>>> {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists a part of a domain that is itself listed.
pub(super) fn add_part(state: &State, local: &Local) {
    let mut parts = parts();
    if parts.len() <= local.slot {
        parts.resize_with(local.slot + 1, Vec::new);
    }
    let own = &mut parts[local.slot];
    local.place.set(own.len());
    own.push(Part { state: state.into(), local: local.into() });
}

fn remove_part(local: &Local) {
    let mut parts = parts();
    let removed = take_out(&mut parts[local.slot], local.place.get(), |moved, place| {
        // SAFETY: in the list, hence not freed.
        unsafe { moved.local.as_ref() }.place.set(place);
    });
    debug_assert!(
        removed.local == NonNull::from(local),
        "section.S9: a part is not at its place in the list"
    );
}

/// A list keeps room for this many items.
const KEPT_ROOM: usize = 64;

/// Takes out the item at `place`, in a time that does not depend on the length. The last item moves
/// to `place`, unless it was the one taken out, and `moved` is called with it. Now and then gives
/// back room that the list does not need.
fn take_out<T>(list: &mut Vec<T>, place: usize, moved: impl FnOnce(&T, usize)) -> T {
    let removed = list.swap_remove(place);
    if let Some(item) = list.get(place) {
        moved(item, place);
    }
    if list.capacity() > KEPT_ROOM && list.len() < list.capacity() / 4 {
        let room = 2 * list.len();
        list.shrink_to(room);
    }
    removed
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
    push(&mut domains(), state);
}

fn push(domains: &mut Vec<Listed>, state: NonNull<State>) {
    // ORDER: Relaxed; the list's lock orders it.
    // SAFETY: the caller's state is not dropped before it is taken out.
    unsafe { state.as_ref() }.place.store(domains.len(), Ordering::Relaxed);
    domains.push(Listed(state));
}

/// Publishes a domain's state and lists it, unless another thread has. Returns the state that is
/// published. Both happen under the list's lock, so a thread that ends finds in the list every
/// domain that it has used.
///
/// # Safety
/// As for [`add`], of `made`.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(super) unsafe fn add_first(link: &AtomicPtr<State>, made: NonNull<State>) -> *mut State {
    AT_FORK.list();
    let mut domains = domains();
    // ORDER: Relaxed; the lock orders it.
    let found = link.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    push(&mut domains, made);
    // ORDER: Release; pairs with Acquire in `Domain::state`: the state before its address.
    link.store(made.as_ptr(), Ordering::Release);
    made.as_ptr()
}

/// Takes a domain out of the list, so that no other thread uses it through the list any more.
///
/// # Safety
/// The state is listed, and threads use it only through the list.
pub(super) unsafe fn remove(state: NonNull<State>) {
    // SAFETY: the caller frees it after this returns.
    let state = unsafe { state.as_ref() };
    let mut domains = domains();
    // ORDER: Relaxed; the list's lock orders it, here and in `push`.
    let place = state.place.load(Ordering::Relaxed);
    let removed = take_out(&mut domains, place, |moved, place| {
        // SAFETY: in the list, hence not dropped.
        unsafe { moved.0.as_ref() }.place.store(place, Ordering::Relaxed);
    });
    debug_assert!(
        removed.0 == NonNull::from(state),
        "section.S9: a domain is not at its place in the list"
    );
    for (_, local) in state.locals() {
        remove_part(local);
    }
}

/// Calls `f` with each domain in which the slot has a part, and with that part. The calling thread
/// has the slot, and `f` runs no user code.
pub(super) fn for_each_part(slot: usize, mut f: impl FnMut(&State, &Local)) {
    let _domains = domains();
    for place in 0.. {
        // The slot's owner is here, and no domain can be dropped, so the list stays as it is.
        let part = parts().get(slot).and_then(|own| own.get(place)).copied();
        let Some(Part { state, local }) = part else { break };
        // SAFETY: in the list, hence not dropped, and its drop waits for the domains' lock.
        unsafe { f(state.as_ref(), local.as_ref()) };
    }
}

/// Holds every lock of the sections over a fork: the list's lock, each domain's, the names', and in
/// a debug build those of `stray`. Parent and child release them, so no leader is half-way through
/// a round in the child.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static AT_FORK: AtFork = AtFork::new(hold_for_fork, introduce_in_child);

/// Notes the new number of the child's thread: the operating system gave it another number than in
/// the parent.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
fn introduce_in_child() {
    let slot = HOME.try_with(|home| home.slot.get());
    if let Some(slot) = slot.ok().filter(|slot| *slot != NOWHERE) {
        super::report::introduce(slot);
    }
}

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
fn hold_for_fork() -> Box<dyn std::any::Any> {
    struct Held {
        _states: Vec<HeldLocks<'static>>,
        _parts: PlainMutexGuard<'static, Vec<Vec<Part>>>,
        _names: Box<dyn std::any::Any>,
        _retired: Box<dyn std::any::Any>,
        _list: MutexGuard<'static, Vec<Listed>>,
    }
    let list = domains();
    // SAFETY: in the list, hence not dropped. Its drop waits for the list's lock, which is held
    // longer than the state's locks are (fields are dropped in order).
    let states = list.iter().map(|listed| unsafe { &*listed.0.as_ptr() }.hold()).collect();
    Box::new(Held {
        _states: states,
        _parts: parts(),
        _names: super::report::hold_names(),
        _retired: super::stray::hold(),
        _list: list,
    })
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use crate::percpu;
    use crate::section::Domain;
    use crate::sync::thread;
    use std::cell::Cell;
    use std::ptr;

    #[test]
    fn item_is_taken_out_of_a_long_list_with_one_move_at_most() {
        const LEN: usize = if cfg!(miri) { 200 } else { 20_000 };
        // Each item knows its place.
        let mut list: Vec<_> = (0..LEN).map(Cell::new).collect();
        let mut moves = 0;
        for taken in 0..LEN {
            let place = taken * 7919 % list.len();
            let removed = take_out(&mut list, place, |moved, place| {
                moves += 1;
                moved.set(place);
            });
            assert_eq!(removed.get(), place);
            if taken % 1000 == 0 {
                assert!(list.iter().enumerate().all(|(place, item)| item.get() == place));
            }
        }
        assert!(moves <= LEN && list.is_empty());
        assert!(list.capacity() <= 2 * KEPT_ROOM, "the list keeps its room");
    }

    /// Returns the indices of those `domains` in which the calling thread has a part.
    fn own_parts(domains: &[Domain]) -> Vec<usize> {
        let slot = percpu::own_slot().expect("no destructor runs").index();
        let mut states = Vec::new();
        for_each_part(slot, |state, local| {
            assert_eq!(local.slot, slot);
            states.push(ptr::from_ref(state));
        });
        let has_part = |at: &usize| states.contains(&ptr::from_ref(domains[*at].state()));
        (0..domains.len()).filter(has_part).collect()
    }

    #[test]
    fn thread_that_ends_looks_at_no_domain_that_it_has_not_used() {
        const MANY: usize = 200;
        let mut domains: Vec<_> = (0..MANY).map(|_| Domain::new()).collect();
        domains.iter().for_each(|domain| drop(domain.enter()));
        assert_eq!(own_parts(&domains).len(), MANY);
        thread::scope(|scope| {
            let used = scope.spawn(|| {
                drop((domains[150].enter(), domains[3].enter(), domains[150].enter()));
                own_parts(&domains)
            });
            assert_eq!(used.join().unwrap(), [3, 150]);
        });
        let kept = domains.split_off(MANY - 10);
        drop(domains); // in another order than that of the list, as far as this list is concerned
        assert_eq!(own_parts(&kept).len(), 10);
    }
}
