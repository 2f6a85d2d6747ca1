//! Clustered objects: a root, and a representative for each place of its callers. Law cluster.H1
//! and laws clustered.R1 to clustered.R4.
//!
//! Owns: which representative serves which place, and the creation of representatives. Does not
//! own: what root and representatives keep.
//!
//! ```text
//!             root        shared by all
//!           /  |   \
//!   place 0  place 1  place 2       a place: a thread, an LLC, a NUMA node, or all
//!   (rep)     (rep)   (none yet)    created by the first call from the place
//! ```
//!
//! - clustered.R1 A place has at most one representative. The first call from that place creates
//!   it, under the object's list lock. It stays as long as the object, so a reference to it stays
//!   valid.
//! - clustered.R2 No representative is created while [`Clustered::scatter`] runs. So a later
//!   representative is created from the changed root, and an earlier one is visited.
//! - clustered.R3 A constructor that panics leaves the place empty and the lock free: the next call
//!   tries again.
//! - clustered.R4 Locks are taken in this order: the list lock, a lock in the root, a lock in a
//!   representative.
//!
//! Source: K42, sections 3.3 and 4.4; Gamsa and others, *Tornado* (OSDI 1999), for creating
//! representatives at the first miss.

use crate::config::SMALL;
use crate::lock::{self, Hold, Refused};
use crate::percpu::cpu_group::{self, Kind};
use crate::percpu::segmented::Segmented;
use crate::percpu::{self, Slot};
use crate::profile::Of;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, model_failed, seeded_bug};
use std::fmt;
use std::ptr;

/// A representative of a [`Clustered`] object: it answers the calls from one place.
///
/// ```
/// use manycore::cluster::{Clustered, Placement, Rep};
/// use std::sync::{Mutex, PoisonError};
///
/// /// Ids, taken from the root ten at a time.
/// struct Ids(Mutex<std::ops::Range<u64>>);
///
/// impl Rep for Ids {
///     type Root = Mutex<u64>; // the first id of the next ten
///     fn create(_: &Mutex<u64>, _place: usize) -> Self {
///         Ids(Mutex::new(0..0))
///     }
/// }
///
/// let ids = Clustered::<Ids>::new(Placement::PerThread, Mutex::new(0));
/// let next = || ids.with(|own| {
///     let mut own = own.0.lock().unwrap_or_else(PoisonError::into_inner);
///     own.next().unwrap_or_else(|| {
///         let mut root = ids.root().lock().unwrap_or_else(PoisonError::into_inner);
///         *own = *root + 1..*root + 10;
///         *root += 10;
///         *root - 10
///     })
/// });
/// assert_eq!([next(), next()], [0, 1]);
/// let other = std::thread::scope(|s| s.spawn(next).join().unwrap());
/// assert_eq!(other, 10); // from the ten of that thread
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no representative of a `Clustered` object",
    label = "lacks `Rep`",
    note = "implement `manycore::cluster::Rep`: how the representative of a place is made"
)]
pub trait Rep: Send + Sync + 'static {
    /// The part that all representatives share.
    type Root: Send + Sync + 'static;

    /// Creates the representative of the place with this number. Called once for each place, at the
    /// first call from there, in the calling thread.
    ///
    /// It may take locks in the root. It must not call the same object.
    fn create(root: &Self::Root, place: usize) -> Self;
}

/// Which threads share a representative.
///
/// ```
/// use manycore::cluster::{Clustered, Placement, Rep};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// struct Hits(AtomicU64);
/// impl Rep for Hits {
///     type Root = ();
///     fn create(_: &(), _: usize) -> Self {
///         Hits(AtomicU64::new(0))
///     }
/// }
///
/// let representatives = |placement| {
///     let hits = Clustered::<Hits>::new(placement, ());
///     let hit = || hits.with(|own| own.0.fetch_add(1, Relaxed));
///     hit();
///     std::thread::scope(|s| {
///         s.spawn(hit);
///     });
///     assert_eq!(hits.gather(0, |sum, own| sum + own.0.load(Relaxed)), 2);
///     hits.reps().count()
/// };
/// assert_eq!(representatives(Placement::PerThread), 2);
/// assert_eq!(representatives(Placement::Shared), 1);
/// assert!(representatives(Placement::PerNode) <= 2); // as the scheduler has it
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Each thread has its own, by its [slot](crate::percpu::current_slot). In a program with a
    /// thread for each core, that is one for each core. The representative of a thread that ends
    /// serves a later thread.
    #[default]
    PerThread,
    /// The threads that run on CPUs with the same last-level cache.
    PerLlc,
    /// The threads that run on the same NUMA node.
    PerNode,
    /// All threads: the object is not distributed.
    Shared,
}

/// A representative on lines of its own.
#[repr(align(128))]
struct Alone<R>(R);

/// A pointer to the representative of a place, once there is one.
struct Home<R>(AtomicPtr<Alone<R>>);

impl<R> From<usize> for Home<R> {
    fn from(_: usize) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

impl<R> Home<R> {
    #[inline(always)]
    fn get(&self) -> Option<&R> {
        // ORDER: Acquire; pairs with Release in `fill`: the representative before its address.
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: clustered.R1 - null, or a leaked box that only `drop` frees.
        unsafe { found.as_ref() }.map(|alone| &alone.0)
    }

    /// Stores the representative. The caller holds the list lock, and the place is empty.
    fn fill(&self, rep: R) {
        debug_assert!(
            SMALL || self.get().is_none(),
            "clustered.R1: a place gets a second representative"
        );
        // ORDER: Release; pairs with Acquire in `get`.
        self.0.store(Box::into_raw(Box::new(Alone(rep))), Ordering::Release);
    }
}

impl<R> Drop for Home<R> {
    fn drop(&mut self) {
        // ORDER: Relaxed; `&mut self` is exclusive.
        let rep = self.0.load(Ordering::Relaxed);
        if !rep.is_null() && !model_failed() {
            // SAFETY: clustered.R1 - from `Box::into_raw`, and no reference to it is left.
            drop(unsafe { Box::from_raw(rep) });
        }
    }
}

/// One object to its callers. Inside, a root and a representative for each place from which it is
/// called.
///
/// What for: an object that all cores use, if its common calls can be answered from data near the
/// caller. Such data are a cache of the root's content, a part of a count, a stock of free items.
/// [`ReplicatedMap`](crate::collections::ReplicatedMap) is ready-made. When not: for values that
/// never change (use an `Arc`), and for objects that one thread uses: distribution costs memory and
/// makes rare calls more expensive.
///
/// Begin with everything in the root and a representative that forwards its calls; then move the
/// hot calls. A call that changes what representatives have copied goes to the root first and then
/// to them, by [`scatter`](Self::scatter). A call that needs all of their parts uses
/// [`gather`](Self::gather). If a representative caches what it found in the root, a removal may
/// come between: cache under the root's lock, or look again after caching.
///
/// ```
/// use manycore::cluster::{Clustered, Placement, Rep};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// /// Hits of a page, counted where they happen.
/// struct Hits(AtomicU64);
///
/// impl Rep for Hits {
///     type Root = String; // the page's name
///     fn create(_page: &String, _place: usize) -> Self {
///         Hits(AtomicU64::new(0))
///     }
/// }
///
/// let page = Clustered::<Hits>::new(Placement::PerThread, String::from("index"));
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| page.with(|hits| hits.0.fetch_add(1, Relaxed)));
///     }
/// });
/// assert_eq!(page.gather(0, |sum, hits| sum + hits.0.load(Relaxed)), 4);
/// assert_eq!(page.root(), "index");
/// ```
///
/// - Consistency: depends on root and representatives. Representatives are shared references, also
///   for callers from other places, so their parts need atomics or locks.
/// - Progress: a call never waits, except the first from each place.
/// - Cost: a call costs some 2 to 4 ns more than a call through a `dyn` reference (a thread-local,
///   three loads, well-predicted branches), and writes nothing. From the 33rd slot on it costs a
///   function call more. With [`Placement::PerLlc`] and [`PerNode`](Placement::PerNode) it costs
///   that and a few loads, if kernel and libc keep the CPU's number in memory (Linux 6.3 and glibc
///   2.35); else a call of `sched_getcpu`.
/// - Memory: a word for each place (256 bytes for the first 32), and 128 bytes or a multiple for
///   each representative.
/// - Panics: a constructor's panic reaches the call that needed the representative; the next call
///   tries again.
/// - Source: [K42](crate#sources)'s clustered objects, section 3.3.
#[doc(alias = "NUMA")]
#[doc(alias = "per-CPU")]
#[doc(alias = "sharding")]
pub struct Clustered<R: Rep> {
    placement: Placement,
    /// Dropped before the root.
    homes: Segmented<Home<R>>,
    /// The list lock (clustered.R1, clustered.R2).
    list: AtomicUsize,
    root: R::Root,
}

impl<R: Rep> Clustered<R> {
    /// Makes an object without representatives.
    #[must_use]
    pub fn new(placement: Placement, root: R::Root) -> Self {
        Self { placement, homes: Segmented::new(), list: AtomicUsize::new(0), root }
    }

    /// Returns the part that all representatives share.
    #[inline(always)]
    pub fn root(&self) -> &R::Root {
        &self.root
    }

    /// Returns which threads share a representative.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Returns the number of the place that the calling thread calls from now. Numbers are dense,
    /// from zero. [`at`](Self::at) finds by this number what is kept for a place, such as the home
    /// of a handle.
    #[inline]
    pub fn place(&self) -> usize {
        match self.placement {
            Placement::PerThread => match percpu::own_slot() {
                Some(slot) => slot.index(),
                None => percpu::with_own_slot(Slot::index), // the thread's locals are destroyed
            },
            Placement::PerLlc => cpu_group::group(Kind::Llc),
            Placement::PerNode => cpu_group::group(Kind::NumaNode),
            Placement::Shared => 0,
        }
    }

    /// Returns the representative of the place that the calling thread calls from now; creates it
    /// if there is none yet.
    ///
    /// # Panics
    /// If its constructor panics, or calls this object, or closes a cycle of constructors that call
    /// each other's objects, or if a closure that [`scatter`](Self::scatter) runs needs a new one.
    #[inline(always)]
    pub fn local(&self) -> &R {
        match self.near() {
            Some(rep) => rep,
            None => self.local_elsewhere(),
        }
    }

    /// Returns the representative of the calling thread's own slot, if places are slots and it is
    /// in the first segment. A separate function for the common placement, so that a call is a few
    /// instructions in its caller.
    #[inline(always)]
    pub(crate) fn near(&self) -> Option<&R> {
        if self.placement != Placement::PerThread {
            return None;
        }
        self.near_slot()
    }

    /// Same as [`near`](Self::near), for a caller that knows that places are slots.
    #[inline(always)]
    pub(crate) fn near_slot(&self) -> Option<&R> {
        debug_assert_eq!(self.placement, Placement::PerThread);
        let home = percpu::known_slot().and_then(|slot| self.homes.get_near(slot));
        home.and_then(Home::get)
    }

    #[cold]
    #[inline(never)]
    fn local_elsewhere(&self) -> &R {
        let place = self.place();
        match self.homes.get(place).and_then(Home::get) {
            Some(rep) => rep,
            None => self.make(place),
        }
    }

    /// Calls the representative of the calling thread's place; see [`local`](Self::local).
    #[inline(always)]
    pub fn with<T>(&self, call: impl FnOnce(&R) -> T) -> T {
        call(self.local())
    }

    /// Returns the representative of a place, if it has one. Takes no lock and writes nothing.
    #[inline]
    pub fn at(&self, place: usize) -> Option<&R> {
        self.homes.get(place).and_then(Home::get)
    }

    #[cold]
    #[inline(never)]
    fn make(&self, place: usize) -> &R {
        let home = self.homes.get_or_init(place);
        // BUG: a clustered object's representative is made without the list lock (clustered.R1,
        // clustered.R2).
        let _list = (!seeded_bug!("unlisted-rep")).then(|| self.lock());
        if home.get().is_none() {
            home.fill(R::create(&self.root, place)); // clustered.R3: a panic passes the guard
        }
        home.get().expect("just made, and never removed")
    }

    fn lock(&self) -> Hold<'_> {
        let refused = match lock::hold(&self.list, Of::new("Clustered", self)) {
            Ok(hold) => return hold,
            Err(refused) => refused,
        };
        assert!(
            refused != Refused::Deadlock,
            "manycore: deadlock: constructors of representatives call each other's clustered \
             objects in a cycle"
        );
        panic!(
            "manycore: a clustered object is called from its representative's constructor, or \
             needs a new representative during its own scatter"
        )
    }

    /// Iterates over the representatives that exist, with their places. Representatives created
    /// during the iteration may be among them.
    pub fn reps(&self) -> impl Iterator<Item = (usize, &R)> {
        self.homes.iter().filter_map(|(place, home)| home.get().map(|rep| (place, rep)))
    }

    /// Folds the contents of the representatives. Takes no lock: calls go on concurrently.
    ///
    /// Cost: a cache miss or two for each representative.
    pub fn gather<T>(&self, start: T, mut fold: impl FnMut(T, &R) -> T) -> T {
        self.reps().fold(start, |folded, (_, rep)| fold(folded, rep))
    }

    /// Changes the root, then each representative; none is created while this runs. So every
    /// representative is either visited or created from the changed root.
    ///
    /// Scatters of one object wait for each other, and so does a first call from a place.
    ///
    /// # Panics
    /// If it is called from within a scatter of the same object.
    ///
    /// ```
    /// use manycore::cluster::{Clustered, Placement, Rep};
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    ///
    /// struct Limit(AtomicU32);
    /// impl Rep for Limit {
    ///     type Root = AtomicU32;
    ///     fn create(root: &AtomicU32, _: usize) -> Self {
    ///         Limit(AtomicU32::new(root.load(Relaxed)))
    ///     }
    /// }
    ///
    /// let limit = Clustered::<Limit>::new(Placement::PerThread, AtomicU32::new(1));
    /// assert_eq!(limit.local().0.load(Relaxed), 1);
    /// limit.scatter(|root| root.store(2, Relaxed), |rep| rep.0.store(2, Relaxed));
    /// assert_eq!(limit.local().0.load(Relaxed), 2);
    /// ```
    pub fn scatter<T>(&self, change: impl FnOnce(&R::Root) -> T, mut each: impl FnMut(&R)) -> T {
        let _list = self.lock();
        let count = || if SMALL { 0 } else { self.reps().count() };
        let before = count();
        let changed = change(&self.root);
        let mut visited = 0;
        self.reps().for_each(|(_, rep)| {
            each(rep);
            visited += 1;
        });
        debug_assert!(
            SMALL || (before, visited) == (visited, count()),
            "clustered.R2: {visited} representatives were changed, of {before} and then {}",
            count()
        );
        changed
    }

    /// Drops the representatives and returns the root.
    #[must_use]
    pub fn into_root(self) -> R::Root {
        let Self { homes, root, .. } = self;
        drop(homes); // first: a destructor that panics leaks what is being returned
        root
    }
}

impl<R: Rep> fmt::Debug for Clustered<R>
where
    R::Root: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clustered")
            .field("placement", &self.placement)
            .field("root", &self.root)
            .field("representatives", &self.reps().count())
            .finish()
    }
}
