//! Clustered objects: a root, and a representative where calls come from. Law cluster.H1 and laws
//! clustered.R1 to clustered.R4.
//!
//! Owns: who represents the object where, and the making of representatives. Does not own: what
//! root and representatives keep.
//! - clustered.R1 A place has at most one representative. It is made by the first call that comes
//!   from there, under the object's list lock, and stays as long as the object: a reference to it
//!   never dies.
//! - clustered.R2 No representative is made while [`Clustered::scatter`] runs, so one that is made
//!   later is made of the changed root, and one that was made before is visited.
//! - clustered.R3 A constructor that panics leaves the place empty and the lock free: the next call
//!   tries again.
//! - clustered.R4 Locks are taken in this order: the list lock, a lock in the root, a lock in a
//!   representative.
//!
//! Source: K42, sections 3.3 and 4.4; Gamsa and others, *Tornado* (OSDI 1999), for making
//! representatives at the first miss.

use crate::lock::{self, Hold, Refused};
use crate::percpu::place::{self, Kind};
use crate::percpu::segmented::Segmented;
use crate::percpu::{self, Slot};
use crate::profile::Of;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, model_failed, seeded_bug};
use std::fmt;
use std::ptr;

/// A representative of a [`Clustered`] object: what answers calls from one place.
pub trait Rep: Send + Sync + 'static {
    /// What the representatives have in common.
    type Root: Send + Sync + 'static;

    /// A representative for the place with this number: called once for each place, at the first
    /// call from there, in the calling thread.
    ///
    /// It may lock what is in the root. It must not call the same object.
    fn create(root: &Self::Root, place: usize) -> Self;
}

/// Who shares a representative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Placement {
    /// Each thread has its own, by its [slot](crate::percpu::current_slot): like one for each core
    /// in a program with a thread for each core. A thread that ends leaves it to a later one.
    #[default]
    PerCore,
    /// The CPUs under one last-level cache.
    PerLlc,
    /// The CPUs of one memory node.
    PerNode,
    /// Everybody: the object is not distributed.
    Shared,
}

/// A representative, alone on its lines.
#[repr(align(128))]
struct Alone<R>(R);

/// Where the representative of a place is, once there is one.
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
        // SAFETY: clustered.R1 - null, or a leaked box that `drop` alone frees.
        unsafe { found.as_ref() }.map(|alone| &alone.0)
    }

    /// For the holder of the list lock, if the place is empty.
    fn fill(&self, rep: R) {
        // ORDER: Release; pairs with Acquire in `get`.
        self.0.store(Box::into_raw(Box::new(Alone(rep))), Ordering::Release);
    }
}

impl<R> Drop for Home<R> {
    fn drop(&mut self) {
        // ORDER: Relaxed; the object is ours alone.
        let rep = self.0.load(Ordering::Relaxed);
        if !rep.is_null() && !model_failed() {
            // SAFETY: clustered.R1 - from `Box::into_raw`, and nobody has a reference any more.
            drop(unsafe { Box::from_raw(rep) });
        }
    }
}

/// One object to its callers, and behind that a root and a representative in each place from which
/// it is called.
///
/// What for: an object that all cores use and whose common calls can be answered from what is near:
/// a cache of what the root knows, a part of a count, a stock of free items. When not: for values
/// that never change (an `Arc` will do), and for objects that one thread uses: distribution costs
/// memory and makes rare calls dearer. The ready-made
/// [`ReplicatedMap`](crate::collections::ReplicatedMap) is one.
///
/// Begin with everything in the root and a representative that passes on; then move the calls that
/// are hot. A call that changes what representatives have copied goes to the root first and then to
/// them, by [`scatter`](Self::scatter); one that needs all of their parts uses
/// [`gather`](Self::gather). Where a representative caches what it found in the root, a removal may
/// come between: cache under the root's lock, or look again after caching.
///
/// - Consistency: what root and representatives make of it. Representatives are shared references,
///   also for others than the callers from their place, so their parts need atomics or locks.
/// - Progress: a call never waits, but for the first from each place.
/// - Cost: a call costs some 2 to 4 ns more than one through a `dyn` reference (a thread-local,
///   three loads, branches that are always taken the same way), and writes nothing. From the 33rd
///   slot on it is a call more. With [`Placement::PerLlc`] and [`PerNode`](Placement::PerNode) it
///   is that and a few loads, where kernel and libc keep the CPU's number in memory (Linux 6.3
///   and glibc 2.35), else a call of `sched_getcpu`.
/// - Memory: a word for each place (256 bytes for the first 32), and each representative on 128
///   bytes of its own or a multiple.
/// - Panics: a constructor's panic reaches the call that needed the representative; the next call
///   tries again.
/// - Source: K42's clustered objects, section 3.3.
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
/// let page = Clustered::<Hits>::new(Placement::PerCore, String::from("index"));
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| page.with(|hits| hits.0.fetch_add(1, Relaxed)));
///     }
/// });
/// assert_eq!(page.gather(0, |sum, hits| sum + hits.0.load(Relaxed)), 4);
/// assert_eq!(page.root(), "index");
/// ```
pub struct Clustered<R: Rep> {
    placement: Placement,
    /// Dropped before the root.
    homes: Segmented<Home<R>>,
    /// The list lock (clustered.R1, clustered.R2).
    list: AtomicUsize,
    root: R::Root,
}

impl<R: Rep> Clustered<R> {
    /// An object without representatives.
    #[must_use]
    pub fn new(placement: Placement, root: R::Root) -> Self {
        Self { placement, homes: Segmented::new(), list: AtomicUsize::new(0), root }
    }

    /// The part that all share.
    #[inline(always)]
    pub fn root(&self) -> &R::Root {
        &self.root
    }

    /// Who shares a representative.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The number of the place that the calling thread calls from now. Dense, from zero. What is
    /// kept for a place, such as a handle's home, is found again by [`at`](Self::at).
    #[inline]
    pub fn place(&self) -> usize {
        match self.placement {
            Placement::PerCore => match percpu::own_slot() {
                Some(slot) => slot.index(),
                None => percpu::with_own_slot(Slot::index), // the thread's locals are gone
            },
            Placement::PerLlc => place::group(Kind::Llc),
            Placement::PerNode => place::group(Kind::Node),
            Placement::Shared => 0,
        }
    }

    /// The representative of the place that the calling thread calls from now; makes it if there is
    /// none yet.
    ///
    /// # Panics
    /// If its constructor panics, or calls this object, or closes a circle of constructors that
    /// call each other's objects, or if a closure that [`scatter`](Self::scatter) runs needs a new
    /// one.
    #[inline(always)]
    pub fn local(&self) -> &R {
        match self.near() {
            Some(rep) => rep,
            None => self.local_elsewhere(),
        }
    }

    /// The representative of the calling thread's own slot, if places are slots and there is one
    /// that is found at once. The common placement by itself, so that a call is a few instructions
    /// in its caller.
    #[inline(always)]
    pub(crate) fn near(&self) -> Option<&R> {
        if self.placement != Placement::PerCore {
            return None;
        }
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

    /// The representative of a place, if it has one. No lock, no write.
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
            refused != Refused::Circle,
            "manycore: constructors of representatives call each other's clustered objects in a \
             circle"
        );
        panic!(
            "manycore: a clustered object is called from its representative's constructor, or \
             needs a new representative in the midst of its own scatter"
        )
    }

    /// The representatives that exist, with their places. Those made meanwhile may be among them.
    pub fn reps(&self) -> impl Iterator<Item = (usize, &R)> {
        self.homes.iter().filter_map(|(place, home)| home.get().map(|rep| (place, rep)))
    }

    /// Folds what the representatives have. Takes no lock: calls go on meanwhile.
    ///
    /// Cost: a cache miss or two for each representative.
    pub fn gather<T>(&self, start: T, mut fold: impl FnMut(T, &R) -> T) -> T {
        self.reps().fold(start, |folded, (_, rep)| fold(folded, rep))
    }

    /// Changes the root, then each representative; none is made meanwhile. So every one is either
    /// visited or made of the changed root.
    ///
    /// Scatters of one object wait for each other, and so does a first call from a place.
    ///
    /// # Panics
    /// If it is called from within itself.
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
    /// let limit = Clustered::<Limit>::new(Placement::PerCore, AtomicU32::new(1));
    /// assert_eq!(limit.local().0.load(Relaxed), 1);
    /// limit.scatter(|root| root.store(2, Relaxed), |rep| rep.0.store(2, Relaxed));
    /// assert_eq!(limit.local().0.load(Relaxed), 2);
    /// ```
    pub fn scatter<T>(&self, change: impl FnOnce(&R::Root) -> T, mut each: impl FnMut(&R)) -> T {
        let _list = self.lock();
        let changed = change(&self.root);
        self.reps().for_each(|(_, rep)| each(rep));
        changed
    }

    /// The root; the representatives are dropped.
    #[must_use]
    pub fn into_root(self) -> R::Root {
        self.root
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
