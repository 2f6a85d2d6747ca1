//! Domains: a set of sections and the garbage that they can hold back.

use super::guard::Section;
use super::report::Backlog;
use super::settings::{Mode, Settings};
use super::state::State;
use super::{domain_list, enter};
use crate::sync::{self, const_fn};
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::sync::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

/// A set of structures whose nodes are freed when no [`Section`] of it can be holding them.
///
/// What for: memory that many threads read without a lock while others unlink and free. When not:
/// values that are read under a lock anyway, or that change so rarely that an `Arc` behind a lock
/// will do. Domains are coarse: one for a program or for a large structure. From its first section
/// on, each takes some 1,200 bytes, and 400 more for each further thread that has had a section of
/// it. Dropped domains give that back: a thread keeps a megabyte for its next ones, or 16 if it
/// drops and makes thousands again and again. To make and to drop one takes as long beside
/// thousands as alone. A thread's end looks at the domains that the thread used.
///
/// A node retired in one domain waits only for that domain's sections. Dropping a domain frees all
/// that waits in it; the borrow checker knows that no section of it is open then.
///
/// Consistency: a node is freed only after every section that could hold it has been closed (the
/// argument is in [`crate::section`]). Progress: to enter, load, retire and leave is wait-free, the
/// allocator's part and destructors aside. Not so a thread's first section here or at all (a list
/// of threads under a lock), a thread's end (a look at each domain that it used, under the list's
/// lock; what it leaves behind, under the domain's), to make or drop a domain, and
/// [`backlog`](Self::backlog), which waits for the leader of a round: each of these waits for
/// others that run some microseconds. [`synchronize`](Self::synchronize) waits for sections, and so
/// does a thread that closes a section in which it retired while the domain is over its budget.
///
/// Memory: with `T` threads that retire, at most `w` bytes in one section each, the garbage of a
/// domain weighs at most
///
/// ```text
/// budget + T * w
/// ```
///
/// bytes while no section stalls, and 32 bytes for each node on top. If a section retires one node,
/// `w` is the heaviest node. The budget is 32 MiB by default. It covers what is sealed, in all
/// threads, and the limits of the open batches. A batch is closed at
/// [`batch_nodes`](super::Builder::batch_nodes) nodes, or at its limit:
/// [`batch_bytes`](super::Builder::batch_bytes) (256 KiB by default) or `budget / (6 * T)`,
/// whichever is less, and nothing if that would exceed the budget. A thread that has sealed a batch
/// while the domain is over its budget waits at the end of its outermost section: until the domain
/// is within the budget, or all that the thread has sealed is free.
///
/// What it waits for are sections that were open when it retired. Those of threads that were
/// switched out end when these run again. A section that rounds have met for 100 ms
/// ([`STALLED_MILLIS`](crate::config::STALLED_MILLIS)) counts as *stalled*, and no thread waits
/// for it: it holds back all that was retired since it was opened, whatever the budget, and in
/// [`Mode::Bounded`](super::Mode::Bounded) only what it can have seen: what was linked or waited
/// when it was opened. So the end of a section takes at most 100 ms longer in such a case, once for
/// each section that stalls. [`backpressure`](super::Builder::backpressure) sets another time,
/// which then holds for stalled sections of an unbounded domain, too: the formula holds if no
/// section lasts longer.
///
/// A node weighs what [`Weight`](super::Weight) says. A node of unknown weight, one with drop glue,
/// may own more than it counts as: its batch is closed after 100 us too, so that a thread's
/// batches hold what it could produce in 600 us.
///
/// *When is a retired value dropped?* The library has no thread of its own, so only threads that
/// use the domain free anything.
/// - At once: a value with drop glue, a large one, and one that is [urgent](super::Weight::urgent).
///   It is dropped at the end of the outermost section in which it was retired, if no section is
///   open that was opened before. This costs a round (0.3 to 2 us), so a thread does it
///   [`URGENT_BURST`](crate::config::URGENT_BURST) (32) times in a row, and once every 100 us
///   in the long run. Where several threads retire, it may leave the round to others.
/// - Later: what is left after such a burst, and what an open section held back. It is dropped at
///   the end of a later section of the same thread, whether it retires or not: the first that
///   closes 100 us later, or up to 128 sections after that.
/// - If the thread uses the domain no more: by other threads that retire, some 10 ms later; by
///   [`collect`](Self::collect); or when the domain is dropped. If no thread does any of this, the
///   value lives on. So call `collect` after a burst of removals if sockets or channels must be
///   closed.
/// - Light nodes without drop glue own nothing, and wait for a full batch.
///
/// Threads may come and go; what they leave is freed by others.
///
/// `fork`: the child can go on to use a domain although other threads were using it. It has the
/// forking thread's sections and limbo. Sections that other threads had open stay open there,
/// because the forking thread may have references that they protect: what the child retires is safe
/// and never freed, and [`synchronize`](Self::synchronize) never returns, until the child closes
/// them ([`abandon_other_threads`](Self::abandon_other_threads)). What those threads had retired is
/// freed only if they were outside. A [`NodeLock`](super::NodeLock) that another thread had stays
/// locked. The [crate](crate#fork) has the table for everything else.
///
/// ```
/// use manycore::section::{Atomic, Domain, Owned};
///
/// let domain = Domain::new();
/// let shared = Atomic::new([1, 2, 3]);
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         let section = domain.enter();
///         let array = shared.load(&section).as_ref().unwrap();
///         assert_eq!(array[0] + 2, array[2]);
///     });
///     s.spawn(|| {
///         let section = domain.enter();
///         let old = shared.swap(Owned::new([4, 5, 6]), &section);
///         // SAFETY: unlinked by the swap; it has no links; all sections are of `domain`.
///         unsafe { section.retire(old) };
///     });
/// });
/// # // SAFETY: the threads are gone.
/// # drop(unsafe { shared.into_owned() });
/// ```
#[doc(alias = "collector")]
#[doc(alias = "epoch")]
#[doc(alias = "hazard pointer")]
#[doc(alias = "QSBR")]
#[doc(alias = "RCU")]
pub struct Domain {
    /// Null until a domain with the default settings is first used. A raw pointer, because
    /// `domain_list` has one, too, that moves of the domain must not invalidate.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    state: AtomicPtr<State>,
    /// Of the state that is made then.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    mode: Mode,
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    by_cores: bool,
    /// Model checkers look at domains that are made at once: a load of a pointer in each section
    /// would make models larger, and nothing waits for the making of a state.
    #[cfg(any(manycore_loom, manycore_shuttle))]
    state: NonNull<State>,
}

/// A moment in a domain's time, for [`Domain::quiesced`].
///
/// See [`Domain::quiesced`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) u64);

// SAFETY: a `State` is Send and Sync (its parts say why), and a domain owns one as a box does.
unsafe impl Send for Domain {}
// SAFETY: a shared domain gives out `&State` alone, and `State` is `Sync`, as the assertion below
// says.
unsafe impl Sync for Domain {}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<State>();
};

impl Domain {
    const_fn! {
        /// A domain with the default settings, in [`Mode::Epoch`]: lock-free structures as
        /// textbooks have them are right in it. Costs nothing until it is first used: then it is
        /// made and listed (some 2 us).
        ///
        /// ```
        /// use manycore::section::Domain;
        ///
        /// static DOMAIN: Domain = Domain::new();
        /// drop(DOMAIN.enter());
        /// ```
        pub const fn new() -> Self {
            Self::unmade(Mode::Epoch, false)
        }
    }

    const_fn! {
        /// The same in [`Mode::Bounded`]: a section that stalls holds back only what was linked
        /// before it stalled. In return, every link out of a node is tagged or set to null *before*
        /// the node is unlinked (see [`Section::retire`]). A structure that does not keep this
        /// rule, like the queue of Michael and Scott, is a use after free here; a debug build
        /// panics where it sees that.
        ///
        /// What for: structures whose sections may stall (user code inside, preemption) and whose
        /// garbage must stay bounded all the same.
        ///
        /// ```
        /// use manycore::section::{Atomic, Domain, Owned};
        /// use std::time::Duration;
        ///
        /// static DOMAIN: Domain = Domain::bounded();
        /// let value = Atomic::new(0); // its node has no links, so there is nothing to tag
        /// let stalled = DOMAIN.enter();
        /// std::thread::spawn(move || {
        ///     for number in 1..100_000 {
        ///         let section = DOMAIN.enter();
        ///         let old = value.swap(Owned::new(number), &section);
        ///         // SAFETY: unlinked by the swap; it has no links.
        ///         unsafe { section.retire(old) };
        ///     }
        /// #   // SAFETY: no other thread has it.
        /// #   drop(unsafe { value.into_owned() });
        /// }).join().unwrap();
        /// assert!(DOMAIN.backlog(Duration::ZERO).nodes < 20_000); // of 100,000
        /// drop(stalled);
        /// ```
        pub const fn bounded() -> Self {
            Self::unmade(Mode::Bounded, false)
        }
    }

    const_fn! {
        /// As [`bounded`](Self::bounded), with a budget of 2 MiB for each core that the process
        /// may use, if that is less than the default.
        pub(crate) const fn bounded_by_cores() -> Self {
            Self::unmade(Mode::Bounded, true)
        }
    }

    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    const fn unmade(mode: Mode, by_cores: bool) -> Self {
        Self { state: AtomicPtr::new(std::ptr::null_mut()), mode, by_cores }
    }

    #[cfg(any(manycore_loom, manycore_shuttle))]
    fn unmade(mode: Mode, by_cores: bool) -> Self {
        Self::from_settings(Settings { mode, ..Settings::with_budget(by_cores) })
    }

    pub(super) fn from_settings(settings: Settings) -> Self {
        let state = State::new(settings).keep();
        // SAFETY: made just now; `drop` takes it out of the list before it frees it.
        unsafe { domain_list::add(state) };
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        let made = {
            let state = AtomicPtr::new(state.as_ptr());
            Self { state, mode: Mode::default(), by_cores: false }
        };
        #[cfg(any(manycore_loom, manycore_shuttle))]
        let made = Self { state };
        made
    }

    #[inline(always)]
    pub(super) fn state(&self) -> &State {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        // ORDER: Acquire; pairs with Release in `domain_list::add_first`: the state before its
        // address.
        // SAFETY: null, or made by `from_settings` or `make`; freed by `drop` alone.
        match unsafe { self.state.load(Ordering::Acquire).as_ref() } {
            Some(state) => state,
            None => self.make(),
        }
        #[cfg(any(manycore_loom, manycore_shuttle))]
        // SAFETY: made by `from_settings`; freed by `drop` alone.
        unsafe {
            self.state.as_ref()
        }
    }

    /// The state, without a look whether it was made.
    ///
    /// # Safety
    /// It was made: a section has been opened.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    #[inline(always)]
    pub(super) unsafe fn made_state(&self) -> &State {
        // ORDER: Relaxed; the calling thread has loaded it before, with Acquire, to open the
        // section, and it does not change.
        let state = self.state.load(Ordering::Relaxed);
        debug_assert!(!state.is_null(), "section.S12: a domain has a section and no state");
        // SAFETY: not null, as the caller promises; freed by `drop` alone.
        unsafe { NonNull::new_unchecked(state).as_ref() }
    }

    /// Makes the state, unless another thread does.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    #[cold]
    #[inline(never)]
    fn make(&self) -> &State {
        let settings = Settings { mode: self.mode, ..Settings::with_budget(self.by_cores) };
        let made = State::new(settings).keep();
        // SAFETY: made just now; `drop` takes it out of the list before it frees it.
        let state = unsafe { domain_list::add_first(&self.state, made) };
        if state != made.as_ptr() {
            // SAFETY: made above, and shared with no thread.
            unsafe { State::free(made) };
        }
        // SAFETY: in the list now, by this thread or another; freed by `drop` alone.
        unsafe { &*state }
    }

    /// Opens a section; see [`Section`].
    #[doc(alias = "pin")]
    #[inline(always)]
    pub fn enter(&self) -> Section<'_> {
        enter::enter(self.state())
    }

    /// Whether the calling thread has a section of this domain open. (An
    /// [`OwnedSection`](super::OwnedSection) is no thread's.)
    ///
    /// ```
    /// let domain = manycore::section::Domain::new();
    /// let section = domain.enter();
    /// assert!(domain.is_inside());
    /// drop(section);
    /// assert!(!domain.is_inside());
    /// ```
    #[doc(alias = "is_pinned")]
    pub fn is_inside(&self) -> bool {
        enter::is_inside(self.state())
    }

    /// Now. A full fence: what the calling thread has unlinked is visible before this moment.
    pub fn now(&self) -> Moment {
        Moment(self.state().stamp())
    }

    /// Whether every section that was open at `moment`, of this domain, has been closed.
    ///
    /// Does not wait. It uses the results of finished rounds, or else leads one round itself; if no
    /// section is open, two calls after the moment are enough. Inside a section of this domain that
    /// is as old as `moment` it is false.
    ///
    /// ```
    /// let domain = manycore::section::Domain::new();
    /// let section = domain.enter();
    /// let moment = domain.now();
    /// assert!(!domain.quiesced(moment));
    /// drop(section);
    /// assert!(domain.quiesced(moment) || domain.quiesced(moment));
    /// ```
    ///
    /// Source: the paper's `ps_quiesce`, section 2.2.
    pub fn quiesced(&self, moment: Moment) -> bool {
        self.state().is_expired(moment.0) || self.state().round_is_over(moment.0)
    }

    /// Waits until every section that is open now has been closed.
    ///
    /// Progress: blocks as long as the longest of them lasts. Cost: at least one membarrier.
    ///
    /// # Panics
    /// If the calling thread has a section of this domain open: it would wait for itself. (An
    /// [`OwnedSection`](super::OwnedSection) that the caller holds is not noticed: it waits for
    /// ever.)
    #[doc(alias = "synchronize_rcu")]
    pub fn synchronize(&self) {
        assert!(
            !self.is_inside(),
            "manycore: synchronize inside a section of the same domain would wait for itself; drop \
             the section first, or use `retire` or `defer`"
        );
        let moment = self.now();
        let mut backoff = sync::Backoff::new();
        while !self.quiesced(moment) {
            backoff.pause();
        }
    }

    /// Frees what can be freed now, of all threads: what the calling thread retired, what threads
    /// left that have ended, and what waits for threads that have no section of this domain open.
    /// Call it before a thread goes idle, or from one that looks after the domain.
    ///
    /// Does not wait for sections. Runs the nodes' destructors. A node retired just now may need a
    /// second call. Inside a section of this domain it can do little.
    pub fn collect(&self) {
        self.enter().collect();
    }

    /// How much waits to be freed, and which threads have held it up for `stalled_for` or longer.
    ///
    /// Cost: a round, after the one that another thread may be leading (it waits for that), and a
    /// look at every thread; for an operator's page, not for a hot path.
    ///
    /// ```
    /// use std::time::Duration;
    /// let domain = manycore::section::Domain::new();
    /// let backlog = domain.backlog(Duration::from_millis(100));
    /// assert_eq!(backlog.nodes, 0);
    /// assert!(backlog.stalled.is_empty());
    /// ```
    pub fn backlog(&self, stalled_for: Duration) -> Backlog {
        self.state().backlog(stalled_for)
    }
}

/// What tells a domain's sections from others', for as long as the domain is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct DomainMark<'d>(*const State, PhantomData<&'d Domain>);

impl Domain {
    /// The domain's mark. It makes the state, if there is none, which does not change.
    #[inline]
    pub(crate) fn mark(&self) -> DomainMark<'_> {
        DomainMark(self.state(), PhantomData)
    }
}

impl Section<'_> {
    /// Whether this is a section of the domain with this mark.
    #[inline(always)]
    pub(crate) fn is_marked(&self, mark: DomainMark<'_>) -> bool {
        std::ptr::eq(self.state(), mark.0)
    }

    /// Whether this is a section of `domain`.
    ///
    /// ```
    /// use manycore::section::{self, Domain};
    ///
    /// assert!(section::enter().is_of(section::global()));
    /// assert!(!section::enter().is_of(&Domain::new()));
    /// ```
    #[doc(alias = "collector")]
    #[inline(always)]
    pub fn is_of(&self, domain: &Domain) -> bool {
        std::ptr::eq(self.state(), domain.state())
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        // ORDER: Relaxed; `&mut self` proves that no other thread is left.
        let Some(state) = NonNull::new(self.state.load(Ordering::Relaxed)) else {
            return; // never used
        };
        #[cfg(any(manycore_loom, manycore_shuttle))]
        let state = self.state;
        // SAFETY: made by `from_settings` or `make`, which list it; no section borrows it any more.
        unsafe { domain_list::remove(state) };
        // SAFETY: made by `from_settings` or `make`, out of the list, and borrowed by no section.
        unsafe { State::free(state) };
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("mode", &self.state().mode)
            .field("waiting", &self.state().waiting().0)
            .finish_non_exhaustive()
    }
}
