//! [`OwnedSection`]: a section that belongs to no thread.

use super::domain::Domain;
use super::enter;
use super::guard::Section;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::Arc;

/// A [`Section`] that may move to another thread: kept in a struct, or across an `.await`.
///
/// What for: a reference to a node in an asynchronous task, or in a value that is passed on. It
/// works wherever a `Section` is needed (`&owned` dereferences to one). When not: everywhere else,
/// and around an `.await` of unknown length: like any open section, it holds garbage back. There,
/// clone the value, or enter again after the `.await`.
///
/// It is `Send`, not `Sync`: one thread at a time uses it. [`Domain::enter_owned`] makes one that
/// borrows the domain, [`Domain::enter_arc`] one that keeps the domain alive. It is independent of
/// the sections of the threads that it visits: neither nests in the other.
///
/// Consistency: as for a [`Section`]. Progress: loads are as in a [`Section`]. Opening and closing
/// takes locks that are held for some instructions (of the list of domains, and of the threads'
/// names).
///
/// Cost: it takes a separate slot, as if it were a thread. Opening and closing takes some 100 ns,
/// where a [`Section`] takes 2. What was retired in it passes to other threads when it is closed.
/// Memory: a slot in its domain, some 400 bytes, which is used again. Each open one lengthens the
/// rounds as a thread does. [`Domain::backlog`] reports a stalled one with the name of the thread
/// that opened it.
///
/// ```
/// use manycore::section::{Atomic, Domain};
/// use std::sync::Arc;
///
/// async fn send(text: &str) {
///     // ...
/// #   let _ = text;
/// }
///
/// async fn greet(name: Arc<Atomic<String>>, domain: Arc<Domain>) {
///     let section = domain.enter_arc();
///     let name = name.load(&section).as_ref().unwrap(); // not cloned
///     send(name).await;
///     send(name).await; // perhaps on another thread
/// }
///
/// fn spawn(_: impl Future<Output = ()> + Send) {}
/// spawn(greet(Arc::new(Atomic::null()), Arc::new(Domain::new())));
/// ```
///
/// It is not shared:
/// ```compile_fail
/// let domain = manycore::section::Domain::new();
/// let section = domain.enter_owned();
/// std::thread::scope(|s| {
///     s.spawn(|| drop(section.is_of(&domain)));
///     section.is_of(&domain);
/// });
/// ```
#[doc(alias = "OwnedGuard")]
#[must_use = "a section is closed when it is dropped"]
pub struct OwnedSection<'d> {
    /// On a separate slot. Never given out by `&mut`: the caller could put a thread's section
    /// there. `MaybeUninit`, because a reference in an argument must be valid until the function
    /// returns, and `drop(owned)` may free the domain's state.
    section: MaybeUninit<Section<'d>>,
    /// Dropped after the section.
    _domain: Option<Arc<Domain>>,
}

// SAFETY: a section touches the words of its slot, which was taken for this section alone: the
// thread that has the guard is the slot's owner (percpu.P2). A guard moves to another thread with a
// happens-before, and is not `Sync`. So its loads come after its announcement also there, and the
// leader's barrier came before the announcement or found it (section.E1, barrier.B1).
unsafe impl Send for OwnedSection<'_> {}

impl Domain {
    /// Opens a section that may move to another thread and be kept across an `.await`; see
    /// [`OwnedSection`].
    ///
    /// ```
    /// let domain = manycore::section::Domain::new();
    /// let section = domain.enter_owned();
    /// std::thread::scope(|s| s.spawn(|| drop(section)).join()).unwrap();
    /// ```
    pub fn enter_owned(&self) -> OwnedSection<'_> {
        OwnedSection { section: MaybeUninit::new(self.enter_movable()), _domain: None }
    }

    /// As [`enter_owned`](Self::enter_owned), and the section keeps the domain alive.
    ///
    /// ```
    /// use manycore::section::{Domain, OwnedSection};
    /// use std::sync::Arc;
    ///
    /// let section: OwnedSection<'static> = Arc::new(Domain::new()).enter_arc();
    /// std::thread::spawn(|| drop(section)).join().unwrap();
    /// ```
    pub fn enter_arc(self: &Arc<Self>) -> OwnedSection<'static> {
        let domain = Arc::clone(self);
        let state = std::ptr::from_ref(domain.state());
        // SAFETY: freed by the domain's drop alone, and the guard keeps the domain until its
        // section is closed.
        let section = enter::enter_owned(unsafe { &*state });
        OwnedSection { section: MaybeUninit::new(section), _domain: Some(domain) }
    }

    /// Opens the section of an [`OwnedSection`], for guards of this library that move between
    /// threads.
    pub(crate) fn enter_movable(&self) -> Section<'_> {
        enter::enter_owned(self.state())
    }
}

impl OwnedSection<'_> {
    /// Does the same as [`Section::refresh`].
    ///
    /// ```
    /// let mut section = manycore::section::global().enter_owned();
    /// section.refresh(); // holds nothing back that was retired before
    /// ```
    pub fn refresh(&mut self) {
        // SAFETY: written when the guard was made, and taken only by its drop.
        unsafe { self.section.assume_init_mut() }.refresh();
    }
}

impl<'d> Deref for OwnedSection<'d> {
    type Target = Section<'d>;

    fn deref(&self) -> &Section<'d> {
        // SAFETY: written when the guard was made, and taken only by its drop.
        unsafe { self.section.assume_init_ref() }
    }
}

impl Drop for OwnedSection<'_> {
    fn drop(&mut self) {
        // SAFETY: written when the guard was made, and not used after its drop. The domain that it
        // borrows is dropped after it.
        unsafe { self.section.assume_init_drop() };
    }
}

impl fmt::Debug for OwnedSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSection").field("section", &**self).finish_non_exhaustive()
    }
}
