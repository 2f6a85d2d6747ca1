//! [`Section`], the guard of an open section: enter, leave, retire, defer.

use super::domain::Domain;
use super::grace_period::State;
use super::limbo::RetiredNode;
use super::local::{COUNT, FULL, Local, PRESSES, SPARE};
use super::pointer::Shared;
use super::weight::Weight;
use super::{domain, report};
use crate::percpu::{self, Slot};
use crate::sync::{self, AtomicPtr, LoadToChange, Ordering};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// An open section: while it lives, no node of its domain is freed that could be reached when it
/// was opened.
///
/// What for: reading nodes that other threads may unlink and retire concurrently. References to
/// nodes borrow from the section, so that none outlives it. When not: around anything that blocks
/// or computes for long. An open section holds memory back: everything retired since it was opened,
/// or in [`Mode::Bounded`](super::Mode::Bounded) what it could have reached; see
/// [`refresh`](Self::refresh).
///
/// Sections nest, in one domain and across domains; the outermost one of a domain counts. Dropping
/// it closes it. It stays with its thread: it is neither `Send` nor `Sync`.
///
/// Consistency: a section freezes nothing; two loads may see two versions. Progress: wait-free.
/// Cost: enter and leave together some 2 ns and no shared line written; where there is no
/// membarrier, a locked instruction more. Once a batch of retired nodes, the leaving thread seals
/// it and may pay the domain's barrier (some 2 us; see [`crate::section`], section.S5 and
/// section.S6).
///
/// Source: the paper's `ps_enter` and `ps_exit`, section 2.2.
///
/// A section stays with its thread:
/// ```compile_fail
/// let section = manycore::section::enter();
/// std::thread::spawn(move || drop(section));
/// ```
/// A reference does not outlive its section:
/// ```compile_fail
/// use manycore::section::{self, Atomic};
/// let shared = Atomic::new(7);
/// let section = section::enter();
/// let seven = shared.load(&section).as_ref();
/// drop(section);
/// println!("{seven:?}");
/// ```
#[must_use = "a section is closed when it is dropped"]
pub struct Section<'d> {
    state: &'d State,
    local: &'d Local,
    /// Neither Send nor Sync: the words in `local` are the thread's own.
    _thread: PhantomData<*mut ()>,
}

/// Where the thread has its sections.
struct Home {
    /// The number of the domain in which it last opened one, if its sections need no fence, and the
    /// thread's part of it: the way in that takes the fewest instructions.
    last: Cell<u64>,
    local: Cell<*const Local>,
    /// The slot.
    slot: Cell<usize>,
}

const NOWHERE: usize = usize::MAX;

sync::thread_local! {
    static HOME: Home = const {
        Home { last: Cell::new(0), local: Cell::new(ptr::null()), slot: Cell::new(NOWHERE) }
    };
}

/// Opens a section.
#[inline(always)]
pub(super) fn enter(state: &State) -> Section<'_> {
    let (last, local) = HOME.with(|home| (home.last.get(), home.local.get()));
    if last == state.number {
        // SAFETY: no two domains have the same number, so this is the thread's part of `state`,
        // which lives as long as `state`.
        let local = unsafe { &*local };
        if !local.is_inside() {
            state.open_light(local);
            return Section { state, local, _thread: PhantomData };
        }
    }
    enter_again(state)
}

/// An inner section, or another domain's than the last. (Cold, so that the usual way in is a
/// straight line.)
#[cold]
#[inline(never)]
fn enter_again(state: &State) -> Section<'_> {
    let slot = HOME.with(|home| home.slot.get());
    let Some(local) = Some(slot).filter(|slot| *slot != NOWHERE).and_then(|slot| state.local(slot))
    else {
        return enter_first(state);
    };
    if local.is_inside() {
        local.nest();
    } else {
        state.open(local);
    }
    if state.light {
        HOME.with(|home| {
            home.last.set(state.number);
            home.local.set(local);
        });
    }
    Section { state, local, _thread: PhantomData }
}

/// Whether the calling thread has a section open.
pub(super) fn is_inside(state: &State) -> bool {
    let slot = HOME.with(|home| home.slot.get());
    if slot != NOWHERE {
        return state.local(slot).is_some_and(Local::is_inside);
    }
    // Before its first section, or after its destructors.
    let inside = state.locals().filter(|(_, local)| local.is_inside());
    inside.map(|(slot, _)| slot).any(report::is_own)
}

/// The first section of a thread, or of a domain with threads so high; or one that a thread opens
/// after its destructors have run, on a slot of its own.
#[cold]
fn enter_first(state: &State) -> Section<'_> {
    let (slot, flags) = match percpu::home_slot(farewell) {
        Ok(home) => {
            HOME.with(|own| own.slot.set(home.index()));
            (home, 0)
        }
        Err(spare) => (spare, SPARE),
    };
    report::introduce(slot.index());
    let local = state.make_local(slot.index());
    if local.is_inside() {
        local.nest();
    } else {
        local.extra.set(local.extra.get() | flags);
        state.welcome(local);
        state.open(local);
    }
    Section { state, local, _thread: PhantomData }
}

/// A thread ends: everything it leaves in any domain passes to others (section.S9).
fn farewell(slot: Slot) -> bool {
    let _ = HOME.try_with(|home| {
        home.slot.set(NOWHERE);
        home.last.set(0);
    });
    let mut is_free = true;
    domain::for_each(|state| {
        let Some(local) = state.local(slot.index()) else { return };
        if !state.bequeath(local) {
            is_free = false;
            local.extra.set(local.extra.get() | SPARE); // goes when the section is closed
        }
    });
    is_free
}

impl<'d> Section<'d> {
    pub(super) fn state(&self) -> &'d State {
        self.state
    }

    /// Whether this is a section of `domain`.
    #[inline(always)]
    pub(crate) fn is_of(&self, domain: &Domain) -> bool {
        std::ptr::eq(self.state, domain.state())
    }

    /// The slot under which the calling thread has the section: its own as long as it is open.
    #[inline(always)]
    pub(crate) fn slot(&self) -> usize {
        self.local.slot
    }

    /// Frees `node` once every section that is open now has been closed.
    ///
    /// Cost: an append to the thread's own list and, in the long run, one earlier node freed for
    /// each retired; no shared line is written. Progress: never waits. A destructor that panics
    /// panics here, in whichever thread frees the node, and its node counts as freed.
    ///
    /// # Panics
    /// If `node` is null. In a debug build, if it was retired before.
    ///
    /// # Safety
    /// - The node is unlinked: no section opened from now on can reach it, and it is retired once.
    /// - Every section under which it was or will be loaded or linked is of this section's domain,
    ///   and its value may be dropped by any thread at any time until the domain is dropped.
    /// - In [`Mode::Bounded`](super::Mode::Bounded): before it was unlinked, every link out of it
    ///   was given a tag (see [`Atomic::set_tag`](super::Atomic::set_tag)) or set to null, and was
    ///   not changed back, so that a reader that still has the node does not follow its links.
    ///   Nodes without links, like a value behind one pointer, need nothing. Textbook lock-free
    ///   structures do not tag them all: use [`Mode::Epoch`](super::Mode::Epoch) for those. In a
    ///   debug build, a load of an untagged link of a retired node panics.
    #[inline]
    pub unsafe fn retire<T: Send>(&self, node: Shared<'_, T>) {
        let weight = const { Weight::of::<T>().plus(Shared::<T>::HEADER) };
        self.state.retire(self.local, node.into_limbo(weight, self), weight.presses());
    }

    /// As [`retire`](Self::retire), of a node whose weight the caller knows better than its type
    /// tells: with everything that it owns on the heap, and without the node's header.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire). A wrong weight is safe.
    #[inline]
    pub unsafe fn retire_weighed<T: Send>(&self, node: Shared<'_, T>, weight: impl Into<Weight>) {
        let weight = weight.into().plus(Shared::<T>::HEADER);
        self.state.retire(self.local, node.into_limbo(weight, self), weight.presses());
    }

    /// As [`retire`](Self::retire), but no user code runs before the section is closed: nothing is
    /// freed and no gate is asked.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire).
    pub(crate) unsafe fn retire_quietly<T: Send>(
        &self,
        node: Shared<'_, T>,
        weight: impl Into<Weight>,
    ) {
        let weight = weight.into().plus(Shared::<T>::HEADER);
        self.state.retire_quietly(self.local, node.into_limbo(weight, self), weight.presses());
    }

    /// Calls `free(address)` once every section that is open now has been closed: for memory that
    /// is no [`Owned`](super::Owned). Its `weight` is what `free` gives back: a number of bytes, if
    /// that is exact (see [`Weight`]).
    ///
    /// In a bounded domain such memory has no known birth: every stalled section holds it back.
    ///
    /// # Safety
    /// As for [`retire`](Self::retire), with "node" for what is at `address`; and `free` may be
    /// called with it once, by any thread.
    #[inline]
    pub unsafe fn retire_raw(
        &self,
        address: NonNull<()>,
        weight: impl Into<Weight>,
        free: unsafe fn(NonNull<()>),
    ) {
        let weight = weight.into();
        let node = RetiredNode { address, free, birth: 0, bytes: weight.bytes() };
        self.state.retire(self.local, node, weight.presses());
    }

    /// Runs `f` once every section that is open now has been closed: in some thread that retires,
    /// at the latest when the domain is dropped.
    ///
    /// Cost: as `retire`, and an allocation.
    ///
    /// ```
    /// let section = manycore::section::enter();
    /// section.defer(|| println!("the grace period is over"));
    /// ```
    pub fn defer<F: FnOnce() + Send + 'static>(&self, f: F) {
        unsafe fn run<F: FnOnce()>(address: NonNull<()>) {
            // SAFETY: the address is that of the box below, and comes back once (`retire_raw`).
            let f = unsafe { Box::from_raw(address.cast::<F>().as_ptr()) };
            f();
        }
        let boxed = NonNull::from(Box::leak(Box::new(f))).cast();
        let weight = const { Weight::of::<F>() };
        let node = RetiredNode { address: boxed, free: run::<F>, birth: 0, bytes: weight.bytes() };
        self.state.retire(self.local, node, weight.presses());
    }

    /// Loads a pointer that this section may then follow, from memory of the caller's own making:
    /// the raw layer below [`Atomic`](super::Atomic).
    ///
    /// Whether the result may be followed is the caller's to know: the node behind it must be
    /// retired through this domain, and in a bounded domain a pointer found in an unlinked node
    /// must not be followed. Cost: one load; in a bounded domain two.
    #[inline(always)]
    pub fn protect<T>(&self, source: &AtomicPtr<T>) -> *mut T {
        // ORDER: Acquire; pairs with the Release that published the node, and keeps the load of
        // the era behind this one (section.E4).
        self.protect_by(|| source.load(Ordering::Acquire))
    }

    /// As `protect`, for a link that the caller may write next.
    #[inline(always)]
    pub(super) fn protect_to_change<T>(&self, source: &AtomicPtr<T>) -> *mut T {
        // ORDER: Acquire; as in `protect`.
        self.protect_by(|| source.load_to_change(Ordering::Acquire))
    }

    #[inline(always)]
    fn protect_by<T>(&self, load: impl Fn() -> *mut T) -> *mut T {
        loop {
            let found = load();
            if self.covers_now() {
                return found;
            }
            self.state.catch_up(self.local);
        }
    }

    /// Whether whatever was loaded before this call is covered (section.E4).
    #[inline(always)]
    fn covers_now(&self) -> bool {
        if !self.state.bounded {
            return true;
        }
        let era = self.state.era();
        era <= self.local.lower.own() || era <= self.local.raised.own()
    }

    /// The latest era that this section has seen.
    #[inline(always)]
    pub(super) fn upper(&self) -> u64 {
        self.local.upper()
    }

    /// Closes the section and opens it again, so that it holds nothing back that was retired
    /// before; does nothing if it is nested. References must be gone, and the borrow checker sees
    /// to that.
    pub fn refresh(&mut self) {
        let extra = self.local.extra.get();
        if extra & COUNT != 0 {
            return;
        }
        self.local.leave();
        // Whatever user code does in between: it may panic, or leave a section open.
        let _reopen = Reopen { state: self.state, local: self.local };
        if extra & (FULL | PRESSES) != 0 {
            self.state.seal_after(self.local, extra & (FULL | PRESSES));
        }
    }

    /// Closes the section, and frees what can be freed then of the calling thread's and of ended
    /// threads' nodes.
    pub(super) fn collect(self) {
        let Self { state, local, .. } = self;
        let is_spare = local.extra.get() & SPARE != 0;
        drop(self);
        if !is_spare {
            // The slot is the thread's own still.
            state.collect(local);
        }
    }

    /// The same without a round, for models.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn collect_found(self) {
        let Self { state, local, .. } = self;
        drop(self);
        state.collect_found(local);
    }
}

/// Closes an inner section, or the outermost one if there is more to do. (Not a method: the
/// section would have to be in memory for it, each time.)
#[cold]
#[inline(never)]
fn close_slow(state: &State, local: &Local, extra: u32) {
    if extra & COUNT != 0 {
        local.extra.set(extra - 1);
        return;
    }
    local.leave();
    // SPARE stays until the slot is given back: user code that runs before may close another
    // domain's section there.
    local.extra.set(extra & SPARE);
    let _spare = (extra & SPARE != 0).then(|| GiveBack { state, local });
    if extra & (FULL | PRESSES) != 0 {
        state.seal_after(local, extra & (FULL | PRESSES));
    }
}

/// Opens a section again whose place was left for a while.
struct Reopen<'a> {
    state: &'a State,
    local: &'a Local,
}

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        if self.local.is_inside() {
            self.local.nest(); // a section that was opened in between is the outermost now
        } else {
            self.state.open(self.local);
        }
    }
}

/// Gives back a slot of a thread that has ended, unless the thread has another domain's section
/// there that is open, being refreshed, or being closed: then the last one does.
struct GiveBack<'a> {
    state: &'a State,
    local: &'a Local,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.state.bequeath(self.local);
        self.local.extra.set(self.local.extra.get() & !SPARE);
        let slot = self.local.slot;
        let mut is_free = true;
        domain::for_each(|state| is_free &= state.local(slot).is_none_or(|l| !l.is_spare()));
        if is_free {
            percpu::give_back(slot);
        }
    }
}

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let extra = self.local.extra.get();
        if extra == 0 {
            self.local.leave();
        } else {
            close_slow(self.state, self.local, extra);
        }
    }
}

impl fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section").field("mode", &self.state.mode).finish_non_exhaustive()
    }
}
