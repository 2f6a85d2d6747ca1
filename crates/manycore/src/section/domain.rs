//! Domains: each is a set of sections and the garbage that they can hold back.

use super::guard::Section;
use super::report::Backlog;
use super::settings::{Mode, Settings};
use super::state::State;
use super::{domain_list, enter};
use crate::sync::{self, const_fn};
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

/// A set of structures; their nodes are freed when no [`Section`] of the domain can hold them.
///
/// What for: memory that many threads read without a lock while others unlink and free. When not:
/// values that are read under a lock anyway, or that change so rarely that an `Arc` behind a lock
/// will do. Domains are coarse: use one for a program or for a large structure.
///
/// From its first section on, a domain takes about 1,200 bytes, and 400 more for each further
/// thread that has had a section of it. Dropping a domain gives that memory back: a thread keeps a
/// megabyte for its next domains, or 16 if it drops and makes thousands again and again. Making and
/// dropping a domain takes no longer if thousands of others exist. When a thread ends, it looks
/// only at the domains that it used.
///
/// A node retired in one domain waits only for that domain's sections. Dropping a domain frees all
/// that waits in it; the borrow checker knows that no section of it is open then.
///
/// Consistency: a node is freed only after every section that could hold it has been closed
/// ([`crate::section`] has the argument).
///
/// Progress: entering, loading, retiring and leaving are wait-free, except for the allocator and
/// destructors. Some rare operations take locks, and so wait some microseconds for other threads.
/// These are a thread's first section (of this domain or at all), a thread's end, making and
/// dropping a domain, and [`backlog`](Self::backlog), which waits for the leader of a round. Two
/// operations wait for sections: [`synchronize`](Self::synchronize), and closing a section in which
/// the thread retired, if the domain is over its budget.
///
/// Memory: let `T` threads retire, each at most `w` bytes in one section. Then the garbage of a
/// domain weighs at most
///
/// ```text
/// budget + T * w
/// ```
///
/// bytes while no section stalls, plus 32 bytes for each node. If a section retires one node, `w`
/// is the weight of the heaviest node. The budget is 32 MiB by default. It covers the sealed
/// batches of all threads, and the limits of the open batches.
///
/// A batch is closed at [`batch_nodes`](super::Builder::batch_nodes) nodes, or at its limit. The
/// limit is the lesser of [`batch_bytes`](super::Builder::batch_bytes) (256 KiB by default) and
/// `budget / (6 * T)`, or zero if that would exceed the budget. A thread that has sealed a batch
/// while the domain is over its budget waits at the end of its outermost section. It waits until
/// the domain is within the budget, or until all that the thread has sealed is free.
///
/// It waits for sections that were open when it retired. A thread that was switched out ends its
/// section when it runs again. A section that rounds have met for 100 ms
/// counts as *stalled*, and no thread waits for
/// it. A stalled section holds back all that was retired since it was opened, whatever the budget.
/// In [`Mode::Bounded`](super::Mode::Bounded) it holds back only what it can have seen: nodes that
/// were linked, or that waited to be freed, when it was opened. So for each section that stalls,
/// the end of another section may once take up to 100 ms longer.
/// [`backpressure`](super::Builder::backpressure) sets another time. That time then holds for
/// stalled sections of an unbounded domain, too: the formula holds if no section lasts longer.
///
/// A node weighs what [`Weight`](super::Weight) says. A node of unknown weight (one with drop glue)
/// may own more than it counts as. So its batch is closed after 100 us, too, and a thread's batches
/// hold what the thread could produce in 600 us.
///
/// *When is a retired value dropped?* The library has no thread of its own, so only threads that
/// use the domain free anything.
/// - At once: a value with drop glue, a large one, and one that is [urgent](super::Weight::urgent).
///   It is dropped at the end of the outermost section in which it was retired, if no older section
///   is still open. This costs a round (0.3 to 2 us). So a thread does it
///   32 times in a row, and once every 100 us in
///   the long run. If several threads retire, one may leave the round to another.
/// - Later: what is left after such a burst, and what an open section held back. It is dropped at
///   the end of a later section of the same thread, whether the thread retires there or not. That
///   is the first section that closes 100 us later, or up to 128 sections after that.
/// - If the thread does not use the domain any more, the value is dropped by other threads that
///   retire, some 10 ms later; by [`collect`](Self::collect); or with the domain. If none of this
///   happens, the value lives on. So call `collect` after a burst of removals if sockets or
///   channels must be closed.
/// - Light nodes without drop glue own nothing, and wait for a full batch.
///
/// Threads may come and go; other threads free what they leave.
///
/// `fork`: the child can go on to use a domain although other threads were using it. The child has
/// the forking thread's sections and limbo. Sections that other threads had open stay open in the
/// child, because the forking thread may have references that they protect. Until the child closes
/// them ([`abandon_other_threads`](Self::abandon_other_threads)), what it retires is safe but never
/// freed, and [`synchronize`](Self::synchronize) never returns. What the other threads had retired
/// is freed only if they were outside. A [`NodeLock`](super::NodeLock) that another thread held
/// stays locked. The [crate](crate#fork) has the table for everything else.
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
    /// Null until a domain with the default settings is first used. It is a raw pointer, because
    /// `domain_list` keeps a copy, which moving the domain must not invalidate.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    state: AtomicPtr<State>,
    /// The mode of the state that is made then.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    mode: Mode,
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    by_cores: bool,
    /// The state's number, so that entering need not look into the state. Zero until the state is
    /// made, and if the number needs more bits.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    number: AtomicU32,
    /// Under a model checker the state is made at once. Loading a pointer in each section would
    /// make models larger, and nothing waits for the making of a state.
    #[cfg(any(manycore_loom, manycore_shuttle))]
    state: NonNull<State>,
}

/// A moment in a domain's time, for [`Domain::quiesced`].
///
/// See [`Domain::quiesced`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) u64);

// SAFETY: a `State` is Send and Sync (its parts say why), and a domain owns its state as a box
// does.
unsafe impl Send for Domain {}
// SAFETY: a shared domain gives out only `&State`, and `State` is `Sync`, as the assertion below
// says.
unsafe impl Sync for Domain {}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<State>();
};

impl Domain {
    const_fn! {
        /// Makes a domain with the default settings, in [`Mode::Epoch`]: lock-free structures from
        /// textbooks are correct in it. Costs nothing until the domain is first used: then its
        /// state is made and listed (some 2 us).
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
        /// Makes a domain in [`Mode::Bounded`]: a section that stalls holds back only what was
        /// linked before it stalled.
        ///
        /// In return, every link out of a node must be tagged or set to null *before* the node is
        /// unlinked (see [`Section::retire`]). A structure that breaks this rule, like the queue of
        /// Michael and Scott, uses memory after it was freed. A debug build panics where it sees
        /// that.
        ///
        /// What for: structures with sections that may stall (user code inside, preemption) and
        /// garbage that must stay bounded all the same.
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
        /// As [`bounded`](Self::bounded), with a budget of 2 MiB for each core that the process may
        /// use, if that is less than the default.
        pub(crate) const fn bounded_by_cores() -> Self {
            Self::unmade(Mode::Bounded, true)
        }
    }

    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    const fn unmade(mode: Mode, by_cores: bool) -> Self {
        let state = AtomicPtr::new(std::ptr::null_mut());
        Self { state, mode, by_cores, number: AtomicU32::new(0) }
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
            // SAFETY: made just now.
            let number = AtomicU32::new(unsafe { state.as_ref() }.short_number());
            let state = AtomicPtr::new(state.as_ptr());
            Self { state, mode: Mode::default(), by_cores: false, number }
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

    /// Returns the state without checking that it was made.
    ///
    /// # Safety
    /// The state was made: the calling thread has opened a section.
    #[inline(always)]
    pub(super) unsafe fn made_state(&self) -> &State {
        #[cfg(any(manycore_loom, manycore_shuttle))]
        return self.state();
        // ORDER: Relaxed; the calling thread has loaded it before, with Acquire, to open the
        // section, and it does not change.
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        let state = self.state.load(Ordering::Relaxed);
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        debug_assert!(!state.is_null(), "section.S12: a domain has a section and no state");
        // SAFETY: not null, as the caller promises; freed by `drop` alone.
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        unsafe {
            NonNull::new_unchecked(state).as_ref()
        }
    }

    /// Makes the state, unless another thread has made it.
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
        let state = unsafe { &*state };
        // ORDER: Relaxed; a thread that finds it equal to its own number has loaded the state.
        self.number.store(state.short_number(), Ordering::Relaxed);
        state
    }

    /// Returns the number of the domain's state, or zero.
    #[inline(always)]
    pub(super) fn number(&self) -> u64 {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        // ORDER: Relaxed; as in `make`.
        return self.number.load(Ordering::Relaxed).into();
        #[cfg(any(manycore_loom, manycore_shuttle))]
        self.state().number
    }

    /// Opens a section; see [`Section`].
    #[doc(alias = "pin")]
    #[inline(always)]
    pub fn enter(&self) -> Section<'_> {
        // SAFETY: no two domains have the same number, so the calling thread has opened a section
        // of this domain, if it finds the number equal to its own.
        let last = enter::enter_last(self.number(), || unsafe { self.made_state() });
        last.unwrap_or_else(|| self.enter_again())
    }

    /// As `enter`, for another domain than the thread's last, or an inner section. Makes the state.
    /// (Cold, so that the usual way in is a straight line.)
    #[cold]
    #[inline(never)]
    fn enter_again(&self) -> Section<'_> {
        enter::enter_again(self.state())
    }

    /// Returns true if the calling thread has a section of this domain open. (An
    /// [`OwnedSection`](super::OwnedSection) belongs to no thread.)
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

    /// Returns the present moment. This is a full fence: what the calling thread has unlinked is
    /// visible before this moment.
    pub fn now(&self) -> Moment {
        Moment(self.state().stamp())
    }

    /// Returns true if every section of this domain that was open at `moment` has been closed.
    ///
    /// Does not wait. It uses the results of finished rounds, or else leads one round itself. If no
    /// section is open, two calls after the moment are enough. Inside a section of this domain that
    /// is as old as `moment`, it returns false.
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
    /// Progress: blocks until the longest of these sections ends. Cost: at least one membarrier.
    ///
    /// # Panics
    /// If the calling thread has a section of this domain open: it would wait for itself. (An
    /// [`OwnedSection`](super::OwnedSection) that the caller holds is not noticed: the call then
    /// waits for ever.)
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

    /// Frees what can be freed now, of all threads. That is what the calling thread retired, what
    /// ended threads left, and what waits for threads that have no section of this domain open.
    /// Call it before a thread goes idle, or from a thread that looks after the domain.
    ///
    /// Does not wait for sections. Runs the nodes' destructors. A node retired just now may need a
    /// second call. Inside a section of this domain, the call can do little.
    ///
    /// ```
    /// use manycore::section::{Atomic, Domain, Shared};
    /// use std::sync::Arc;
    ///
    /// let (domain, file) = (Domain::new(), Arc::new("a file that is closed when it is dropped"));
    /// let link = Atomic::new(Arc::clone(&file));
    /// let reader = domain.enter();
    /// std::thread::scope(|s| {
    ///     s.spawn(|| {
    ///         let section = domain.enter();
    ///         // SAFETY: unlinked by the swap; it has no links; all sections are of `domain`.
    ///         unsafe { section.retire(link.swap(Shared::null(), &section)) };
    ///     });
    /// });
    /// domain.collect(); // returns at once; the reader may still have the node
    /// assert_eq!(Arc::strong_count(&file), 2);
    /// drop(reader);
    /// domain.collect();
    /// domain.collect();
    /// assert_eq!(Arc::strong_count(&file), 1);
    /// ```
    #[doc(alias = "flush")]
    #[doc(alias = "eager_reclaim")]
    pub fn collect(&self) {
        self.enter().collect();
    }

    /// Returns how much waits to be freed, and which threads have held it up for `stalled_for` or
    /// longer.
    ///
    /// Cost: waits for the round that another thread may be leading, leads one itself, and looks at
    /// every thread. Meant for an operator's page, not for a hot path.
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

/// Tells a domain's sections from those of others, for as long as the domain is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct DomainMark<'d>(*const State, PhantomData<&'d Domain>);

impl Domain {
    /// Returns the domain's mark. Makes the state if there is none; the state does not change
    /// afterwards.
    #[inline]
    pub(crate) fn mark(&self) -> DomainMark<'_> {
        DomainMark(self.state(), PhantomData)
    }
}

impl Section<'_> {
    /// Returns true if this is a section of the domain with this mark.
    #[inline(always)]
    pub(crate) fn is_marked(&self, mark: DomainMark<'_>) -> bool {
        std::ptr::eq(self.state(), mark.0)
    }

    /// Returns true if this is a section of `domain`.
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
