//! [`Section`], the guard of an open section.

use super::leave::{Reopen, close_slow};
use super::local::{COUNT, FULL, Local, SPARE, URGENT};
use super::state::State;
use crate::sync::{AtomicPtr, LoadToChange, Ordering};
use std::fmt;
use std::marker::PhantomData;

/// An open section: while it lives, no node of its domain is freed that could be reached when the
/// section was opened.
///
/// What for: reading nodes that other threads may unlink and retire concurrently. References to
/// nodes borrow from the section, so none outlives it. When not: around anything that blocks or
/// computes for long. An open section holds back everything that was retired since it was opened,
/// or in [`Mode::Bounded`](super::Mode::Bounded) what it could have reached; see
/// [`refresh`](Self::refresh).
///
/// Sections nest, in one domain and across domains; the outermost section of a domain counts.
/// Dropping a section closes it. A section stays with its thread: it is neither `Send` nor `Sync`.
///
/// Consistency: a section freezes nothing; two loads may see two versions. Progress: wait-free.
/// Cost: entering and leaving take some 2 ns together and write no shared line; without membarrier,
/// they take one more locked instruction. Once per batch of retired nodes, the leaving thread seals
/// the batch and may pay the domain's barrier (some 2 us; see [`crate::section`], section.S5 and
/// section.S6).
///
/// ```
/// use manycore::section::{self, Atomic};
///
/// let shared = Atomic::new(7);
/// let section = section::enter();
/// assert_eq!(shared.load(&section).as_ref(), Some(&7)); // valid until the section is closed
/// ```
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
#[doc(alias = "epoch")]
#[doc(alias = "guard")]
#[doc(alias = "pin")]
#[doc(alias = "RCU")]
#[must_use = "a section is closed when it is dropped"]
pub struct Section<'d> {
    state: &'d State,
    local: &'d Local,
    /// Neither Send nor Sync: the words in `local` are the thread's own.
    _thread: PhantomData<*mut ()>,
}

impl<'d> Section<'d> {
    /// Makes the guard of a section that `local`'s owner, the calling thread, has just opened.
    #[inline(always)]
    pub(super) fn opened(state: &'d State, local: &'d Local) -> Self {
        Self { state, local, _thread: PhantomData }
    }

    #[inline(always)]
    pub(super) fn state(&self) -> &'d State {
        self.state
    }

    #[inline(always)]
    pub(super) fn local(&self) -> &'d Local {
        self.local
    }

    /// Returns the slot of the section, which the calling thread has for itself as long as the
    /// section is open.
    #[inline(always)]
    pub(crate) fn slot(&self) -> usize {
        self.local.slot
    }

    /// Loads a pointer that this section may then follow, from memory that the caller manages: the
    /// raw layer below [`Atomic`](super::Atomic).
    ///
    /// The caller must know whether the result may be followed. The node behind it must be retired
    /// through this domain. In a bounded domain, a pointer found in an unlinked node must not be
    /// followed. Cost: one load; two in a bounded domain.
    #[inline(always)]
    pub fn protect<T>(&self, source: &AtomicPtr<T>) -> *mut T {
        // ORDER: Acquire; pairs with the Release that published the node, and keeps the load of the
        // era behind this load (section.E4).
        self.protect_by(|| source.load(Ordering::Acquire))
    }

    /// As `protect`, but returns `None` if the section has to raise its era first. It calls
    /// nothing, so it is short.
    #[inline(always)]
    pub(super) fn protect_now<T>(&self, source: &AtomicPtr<T>) -> Option<*mut T> {
        // ORDER: Acquire; as in `protect`.
        let found = source.load(Ordering::Acquire);
        // The first condition is enough in any domain, and nearly always true in a bounded one.
        let covers = self.state.era() <= self.local.lower.own() || self.covers_now();
        covers.then_some(found)
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
            if self.protects_loaded() {
                return found;
            }
        }
    }

    /// Returns true if the section protects what the thread has loaded until now: always true
    /// except in [`Mode::Bounded`](super::Mode::Bounded). If it is false, load again and ask again.
    ///
    /// What for: links that are not of type [`Atomic`](super::Atomic), which asks by itself. Load
    /// the link with Acquire before this call.
    ///
    /// ```
    /// use manycore::section::Domain;
    /// use std::sync::atomic::{AtomicPtr, Ordering};
    ///
    /// let mut number = 7;
    /// let (domain, link) = (Domain::bounded(), AtomicPtr::new(&raw mut number));
    /// let section = domain.enter();
    /// let found = loop {
    ///     let found = link.load(Ordering::Acquire);
    ///     if section.protects_loaded() {
    ///         break found;
    ///     }
    /// };
    /// assert_eq!(found, &raw mut number);
    /// ```
    #[inline(always)]
    pub fn protects_loaded(&self) -> bool {
        let covers = self.covers_now();
        if !covers {
            self.state.catch_up(self.local);
        }
        covers
    }

    /// Returns true if the section covers whatever was loaded before this call (section.E4).
    #[inline(always)]
    fn covers_now(&self) -> bool {
        if !self.state.bounded {
            return true;
        }
        let era = self.state.era();
        era <= self.local.lower.own() || era <= self.local.raised.own()
    }

    /// Returns true if the section's domain is in [`Mode::Bounded`](super::Mode::Bounded).
    ///
    /// ```
    /// use manycore::section::Domain;
    ///
    /// assert!(Domain::bounded().enter().is_bounded());
    /// assert!(!Domain::new().enter().is_bounded());
    /// ```
    #[inline(always)]
    pub fn is_bounded(&self) -> bool {
        self.state.bounded
    }

    /// Returns the latest era that this section has seen.
    #[inline(always)]
    pub(super) fn upper(&self) -> u64 {
        self.local.upper()
    }

    /// Closes the section and opens it again, so that it does not hold back what was retired
    /// before. Does nothing if the section is nested. The borrow checker ensures that no reference
    /// from the section is left.
    #[doc(alias = "repin")]
    pub fn refresh(&mut self) {
        self.refresh_after(|| ());
    }

    /// As [`refresh`](Self::refresh), and runs `f` while the section is closed: something that
    /// blocks, for example. Returns what `f` returns.
    ///
    /// ```
    /// let mut section = manycore::section::enter();
    /// let line = section.refresh_after(|| String::from("what a client sent at last"));
    /// assert!(line.len() > 9);
    /// ```
    #[doc(alias = "repin_after")]
    pub fn refresh_after<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let extra = self.local.extra.get();
        if extra & COUNT != 0 {
            return f(); // an outer section of the thread stays open
        }
        self.local.leave();
        // Reopens whatever user code does in between: it may panic, or leave a section open.
        let _reopen = Reopen { state: self.state, local: self.local };
        if extra & (FULL | URGENT) != 0 {
            self.state.seal_after(self.local, extra & (FULL | URGENT));
        }
        f()
    }

    /// Closes the section, then frees what can be freed of the nodes of the calling thread and of
    /// ended threads.
    pub(super) fn collect(self) {
        let Self { state, local, .. } = self;
        let is_spare = local.extra.get() & SPARE != 0;
        drop(self);
        if !is_spare {
            // The slot still belongs to the thread.
            state.collect(local);
        }
    }

    /// As [`collect`](Self::collect), without a round, for models.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn collect_found(self) {
        let Self { state, local, .. } = self;
        drop(self);
        state.collect_found(local);
    }
}

impl Drop for Section<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let extra = self.local.extra.get();
        if extra == 0 || extra == URGENT && self.local.pace.passes() {
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
