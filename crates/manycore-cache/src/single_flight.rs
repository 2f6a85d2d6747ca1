//! Single flight: the loads under way, at most one of each kind for each key. Requests for a key
//! that is being loaded wait for that load.
//!
//! ```text
//! request --join--> leads:  on the list -- load -- value put in, or given up -- off the list
//!            |                                                                   |
//!            |                                                                   | wakes
//!            +----> waits: <-----------------------------------------------------+
//!                   gets the error, or looks again (and may lead next)
//! ```
//!
//! Laws:
//! - single_flight.F1 A load enters the list before its leader looks into the cache a second time.
//!   It leaves the list after the leader has put the value into the cache, or has given up: has
//!   returned, panicked, or was dropped as a future.
//! - single_flight.F2 A waiter is woken when the load leaves the list. It then looks again, and may
//!   lead next.
//! - single_flight.F3 A thread that blocks waits only for loads of blocking threads. It never waits
//!   for a future, which its own thread may have to poll: it loads beside that future. A future
//!   waits for both.
//! - single_flight.F4 If a load's key is updated after the load began, the load is marked, under
//!   the lock of the key's bucket, and its value is not put in. The leader looks at the mark under
//!   the same lock. Updates know a load by its hash: a load of another key with the same hash is
//!   marked as well, and its value is merely not kept.
//! - single_flight.F5 A load's key is in its node from the beginning. Requests compare the key with
//!   no lock held, in a section of their own, which they open before they look into the list. The
//!   key is taken off the list before its node is linked or retired. So no request has the key
//!   after the grace period.
//! - single_flight.F6 The error of a load reaches every request that waits for it and expects its
//!   type. It is published once, when the load ends, unless the load was marked (single_flight.F4).
//!   So a request that began after an update of its key never gets an error from before. The leader
//!   looks at the mark after the load has left the list, because requests join until then.
//! - single_flight.F7 A load may begin while its key has an entry, to replace the entry ahead of
//!   its end. It does not begin if another load of the key is listed, of whichever kind, and its
//!   request waits for none. As for any load, its value is not put in if the key was updated since
//!   (single_flight.F4), even if another load updated it.

use crate::deadlock::{self, Edge, LoadId, Running};
use crate::node::{Fresh, Home, Node, Seed};
use crate::sync::{
    AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, fence, seeded_bug,
};
use crate::{KeyHash, Line};
use manycore::section::{Domain, Section};
use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

/// Number of lists of loads under way, in a cache of many entries and in a cache of few.
const SHARDS: usize = if cfg!(manycore_loom) { 1 } else { 16 };
const SHARDS_OF_FEW: usize = if cfg!(manycore_loom) { 1 } else { 4 };

pub(crate) struct Flights<K, V>(Line<Shared<K, V>>);

struct Shared<K, V> {
    /// Number of loads under way. Every update reads it, so it shares its line only with data that
    /// loads alone look at.
    count: AtomicUsize,
    shards: Box<[Shard<K, V>]>,
}

type Shard<K, V> = Mutex<Vec<Listed<K, V>>>;

/// A load under way, and the node of its key; no node once the value is there (single_flight.F5).
struct Listed<K, V> {
    flight: Arc<Flight>,
    node: Option<NonNull<Node<K, V>>>,
}

impl<K, V> Clone for Listed<K, V> {
    fn clone(&self) -> Self {
        Self { flight: Arc::clone(&self.flight), node: self.node }
    }
}

// SAFETY: threads share only the key behind the node, by reference. The node itself belongs to its
// leader (single_flight.F5).
unsafe impl<K: Send + Sync, V: Send> Send for Listed<K, V> {}

/// The part of a load that waiters know.
pub(crate) struct Flight {
    id: LoadId,
    hash: u64,
    is_future: bool,
    /// True if the key was updated since the load began (single_flight.F4).
    is_stale: AtomicBool,
    state: Mutex<State>,
    landed: Condvar,
}

/// The error of a load, of any type.
pub(crate) type Failure = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct State {
    is_over: bool,
    /// The error for the waiters, once the load is over (single_flight.F6).
    failure: Option<Failure>,
    /// The last waker of each waiting future.
    wakers: Vec<(u64, Waker)>,
    futures: u64,
}

/// Who requests a key's load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Thread,
    Future,
    /// A thread that still has an entry, and waits for no load (single_flight.F7).
    Refresh,
}

/// What a request does if the key is missing, or is to be loaded again.
pub(crate) enum Turn<'a, K, V> {
    Lead(Lead<'a, K, V>),
    /// Waits for this load. The seed comes back.
    Wait(Arc<Flight>, Seed<K, V>),
}

/// Locks a mutex, poisoned or not: a panic leaves nothing half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fence after an exchange, which is a fence already on x86-64.
#[inline(always)]
fn fence_after_exchange() {
    if cfg!(any(not(target_arch = "x86_64"), manycore_loom)) {
        // ORDER: SeqCst; the callers name what it pairs with.
        fence(Ordering::SeqCst);
    } else {
        // ORDER: SeqCst; as above, for the compiler.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

impl<K, V> Flights<K, V> {
    /// Makes empty lists of loads, for a cache of few entries or of many.
    pub(crate) fn new(is_of_few: bool) -> Self {
        let shards = if is_of_few { SHARDS_OF_FEW } else { SHARDS };
        let shards = (0..shards).map(|_| Mutex::default()).collect();
        Self(Line(Shared { count: AtomicUsize::new(0), shards }))
    }

    fn shard(&self, hash: u64) -> &Shard<K, V> {
        let shards = &self.0.0.shards;
        &shards[(hash >> 20) as usize % shards.len()]
    }

    /// Notes that the entry of a key has changed, under the lock of its bucket: loads that began
    /// before are not put in (single_flight.F4). `own`: loads started by the caller, which are
    /// exempt.
    #[inline(always)]
    pub(crate) fn note_change(&self, hash: KeyHash, own: usize) {
        debug_assert!(own <= 1, "single_flight.F4: an update belongs to {own} loads");
        // ORDER: SeqCst; pairs with the fence in `begin`, as in `are_any_now`: each load that this
        // misses sees what the caller did before it took the lock.
        // BUG: an update of an entry looks for loads without a fence (single_flight.F4).
        if !seeded_bug!("unfenced-look") {
            fence_after_exchange();
        }
        // ORDER: Relaxed; loads that are over have put their values in under this lock.
        if self.0.0.count.load(Ordering::Relaxed) > own {
            self.mark(hash);
        }
    }

    /// Returns true if any load is under way, for an update that has no lock. If it returns false,
    /// the caller sees what the loads that are over have put in.
    pub(crate) fn are_any_now(&self) -> bool {
        // ORDER: SeqCst; pairs with the fence in `begin`: either this sees the load, or the load's
        // user code sees what the caller did before.
        fence(Ordering::SeqCst);
        // ORDER: Acquire; pairs with Release in `Lead::drop`.
        self.0.0.count.load(Ordering::Acquire) != 0
    }

    /// Returns the number of loads under way.
    pub(crate) fn under_way(&self) -> u64 {
        // ORDER: Relaxed; a count.
        self.0.0.count.load(Ordering::Relaxed) as u64
    }

    /// Marks the loads of this hash, under the lock of its bucket (single_flight.F4).
    #[cold]
    pub(crate) fn mark(&self, hash: KeyHash) {
        let hash = hash.whole();
        let shard = lock(self.shard(hash));
        let same = shard.iter().filter(|listed| listed.flight.hash == hash);
        // ORDER: Relaxed; the bucket's lock orders it.
        same.for_each(|listed| listed.flight.is_stale.store(true, Ordering::Relaxed));
    }

    /// Marks all loads, before a walk that locks every bucket.
    pub(crate) fn mark_all(&self) {
        if self.are_any_now() {
            for shard in &self.0.0.shards {
                // ORDER: Relaxed; the walk's locks order it.
                let mark = |listed: &Listed<K, V>| {
                    listed.flight.is_stale.store(true, Ordering::Relaxed);
                };
                lock(shard).iter().for_each(mark);
            }
        }
    }

    /// Leads the load of the seed's key, or returns the load to wait for (single_flight.F3).
    pub(crate) fn join<'a>(
        &'a self,
        (domain, home): (&'a Domain, &'a Home<K, V>),
        hash: KeyHash,
        seed: Seed<K, V>,
        asks: Asks,
    ) -> Turn<'a, K, V>
    where
        K: Eq,
    {
        let mut section = None;
        let mut others = Vec::new();
        loop {
            let mut shard = lock(self.shard(hash.whole()));
            let mut unknown = shard.iter().filter(|listed| {
                let flight = &listed.flight;
                flight.hash == hash.whole()
                    && (asks != Asks::Thread || !flight.is_future)
                    && !others.contains(&flight.id)
            });
            let Some(listed) = unknown.next().cloned() else {
                let flight = Arc::new(Flight::new(hash, asks == Asks::Future));
                debug_assert!(
                    shard.iter().all(|listed| listed.flight.id != flight.id),
                    "single_flight.F1: a load is listed twice"
                );
                shard.push(Listed { flight: Arc::clone(&flight), node: Some(seed.address()) });
                drop(shard);
                self.begin();
                let load = Load::Seed(seed);
                let (edge, failure) = (Edge::default(), None);
                return Turn::Lead(Lead {
                    flights: self,
                    domain,
                    home,
                    flight,
                    load,
                    edge,
                    failure,
                });
            };
            drop(shard);
            let Some(section) = &section else {
                section = Some(domain.enter()); // and looks again (single_flight.F5)
                continue;
            };
            if listed.is_of(seed.key(), section) {
                return Turn::Wait(listed.flight, seed);
            }
            others.push(listed.flight.id);
        }
    }

    fn begin(&self) {
        // ORDER: Relaxed; the fence orders it, and pairs with the fences of `are_any_now` and
        // `note_change`.
        self.0.0.count.fetch_add(1, Ordering::Relaxed);
        fence_after_exchange();
    }
}

impl<K: Eq, V> Listed<K, V> {
    /// Returns true if a request for this key waits for the load. A load that has its value does
    /// not tell its key any more. Other threads wait for it whatever its key is, because it is
    /// about to end.
    fn is_of(&self, key: &K, _section: &Section<'_>) -> bool {
        match self.node {
            // SAFETY: single_flight.F5 - the node was found in the list in this section, so it is
            // alive. A listed node has only a key, and nothing changes it.
            Some(node) => unsafe { (*node.as_ptr()).key == *key },
            None => !deadlock::is_running(self.flight.id),
        }
    }
}

/// The parts of an entry that is being loaded.
enum Load<K, V> {
    Seed(Seed<K, V>),
    /// `None` once the entry is in the cache.
    Fresh(Option<Fresh<K, V>>),
}

/// The right to load a key. Dropping it ends the load.
pub(crate) struct Lead<'a, K, V> {
    flights: &'a Flights<K, V>,
    domain: &'a Domain,
    home: &'a Home<K, V>,
    flight: Arc<Flight>,
    load: Load<K, V>,
    /// The edge from the load in which this load runs.
    edge: Edge,
    failure: Option<Failure>,
}

impl<K, V> Lead<'_, K, V> {
    /// Marks the load's user code as running on this thread, until the result is dropped.
    ///
    /// # Panics
    /// If that closes a cycle of loads.
    pub(crate) fn run(&mut self) -> Running {
        self.edge.lead_to(self.flight.id);
        Running::new(self.flight.id)
    }

    pub(crate) fn key(&self) -> &K {
        match &self.load {
            Load::Seed(seed) => seed.key(),
            Load::Fresh(fresh) => &fresh.as_ref().expect("not yet in the cache").get().key,
        }
    }

    /// Records the load's error. The waiters get it when the load ends, unless the key was updated
    /// (single_flight.F6).
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Takes the key off the list, and returns the node that is to be linked (single_flight.F5).
    /// `fill` makes the node of the seed.
    pub(crate) fn land(
        &mut self,
        fill: impl FnOnce(&mut Option<Seed<K, V>>) -> Fresh<K, V>,
    ) -> (&mut Option<Fresh<K, V>>, &Flight) {
        if let Load::Seed(seed) = std::mem::replace(&mut self.load, Load::Fresh(None)) {
            /// Puts the seed back into the load if `fill` panics.
            struct Put<'l, K, V>(&'l mut Load<K, V>, Option<Seed<K, V>>);
            impl<K, V> Drop for Put<'_, K, V> {
                fn drop(&mut self) {
                    if let Some(seed) = self.1.take() {
                        *self.0 = Load::Seed(seed);
                    }
                }
            }
            let mut put = Put(&mut self.load, Some(seed));
            let fresh = fill(&mut put.1);
            drop(put);
            self.load = Load::Fresh(Some(fresh));
        }
        let shard = self.flights.shard(self.flight.hash);
        let mut shard = lock(shard);
        let own = shard.iter_mut().find(|listed| Arc::ptr_eq(&listed.flight, &self.flight));
        own.expect("listed until this is dropped").node = None;
        debug_assert!(
            !matches!(self.load, Load::Fresh(None)),
            "single_flight.F5: a load lands after its entry was linked"
        );
        match &mut self.load {
            Load::Fresh(fresh) => (fresh, &self.flight),
            Load::Seed(_) => unreachable!("filled above"),
        }
    }

    /// Retires the rest of the entry: other threads may still be comparing its key.
    fn retire(&mut self) {
        if matches!(self.load, Load::Fresh(None)) {
            return; // the entry is in the cache
        }
        let section = self.domain.enter();
        match std::mem::replace(&mut self.load, Load::Fresh(None)) {
            Load::Seed(seed) => seed.retire(self.home, &section),
            Load::Fresh(Some(fresh)) => fresh.retire(self.home, &section),
            Load::Fresh(None) => {}
        }
    }
}

impl<K, V> Drop for Lead<'_, K, V> {
    fn drop(&mut self) {
        let flight = &self.flight;
        let own = |listed: &Listed<K, V>| Arc::ptr_eq(&listed.flight, flight);
        let early = flight.is_stale();
        let listed = {
            let mut shard = lock(self.flights.shard(flight.hash));
            shard.iter().position(own).map(|at| shard.swap_remove(at))
        };
        debug_assert!(listed.is_some(), "single_flight.F1: a load ends that is not listed");
        drop(listed);
        // ORDER: Release; pairs with Acquire in `are_any_now`: a thread that sees no load sees its
        // entry.
        let before = self.flights.0.0.count.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "single_flight.F1: more loads have ended than were listed");
        // Marks are set under the list's lock, so each update that a waiter may know of is seen
        // here.
        // BUG: a load that fails looks at its mark before it leaves the list (single_flight.F6).
        let is_stale = if seeded_bug!("early-error") { early } else { flight.is_stale() };
        let failure = self.failure.take().filter(|_| !is_stale);
        let wakers = {
            let mut state = lock(&flight.state);
            debug_assert!(!state.is_over, "single_flight.F2: a load ends twice");
            state.is_over = true;
            state.failure = failure;
            std::mem::take(&mut state.wakers)
        };
        // single_flight.F2: the load has left the list, so a thread or task that wakes here may
        // lead the next.
        flight.landed.notify_all();
        // Wakers and destructors are user code: if one panics, the others must still run.
        let mut panics = Panics::default();
        wakers.into_iter().for_each(|(_, waker)| panics.catch(|| waker.wake()));
        panics.catch(|| self.retire());
        panics.resume();
    }
}

/// The first panic of several pieces of user code that all have to run.
#[derive(Default)]
pub(crate) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Runs one of the pieces, and keeps its panic.
    pub(crate) fn catch(&mut self, run: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            match self.0 {
                None => self.0 = Some(payload),
                Some(_) => drop_payload(payload),
            }
        }
    }

    /// Resumes the first panic, unless the thread unwinds already.
    pub(crate) fn resume(self) {
        match self.0 {
            Some(payload) if std::thread::panicking() => drop_payload(payload),
            Some(payload) => resume_unwind(payload),
            None => {}
        }
    }
}

/// Drops the payload of a panic; its destructor may panic, too.
fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(another);
    }
}

impl Flight {
    fn new(hash: KeyHash, is_future: bool) -> Self {
        Self {
            id: deadlock::next_id(),
            hash: hash.whole(),
            is_future,
            is_stale: AtomicBool::new(false),
            state: Mutex::default(),
            landed: Condvar::new(),
        }
    }

    /// # Panics
    /// If the load runs on this thread: it would wait for itself.
    fn refuse_own(&self) {
        let is_own = deadlock::is_running(self.id);
        assert!(!is_own, "manycore: the load of a cached value asks for the same key");
    }

    /// Returns true if the key was updated since the load began. The caller holds the lock of its
    /// bucket (single_flight.F4), or the load has left the list (single_flight.F6).
    pub(crate) fn is_stale(&self) -> bool {
        // ORDER: Relaxed; the bucket's lock orders it, or the list's.
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Waits until the load is over. Returns the error, if the load failed.
    ///
    /// # Panics
    /// If the load runs on this thread, or itself waits for a load of this thread.
    pub(crate) fn wait(&self) -> Option<Failure> {
        self.refuse_own();
        let mut edge = Edge::default();
        edge.lead_to(self.id);
        let mut state = lock(&self.state);
        while !state.is_over {
            state = self.landed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.clone()
    }
}

/// A future that is ready when the load is over, with the error if the load failed.
pub(crate) struct Landed {
    flight: Arc<Flight>,
    /// The number of this future among the flight's waiting futures.
    number: Option<u64>,
    edge: Edge,
}

impl Landed {
    pub(crate) fn of(flight: Arc<Flight>) -> Self {
        Self { flight, number: None, edge: Edge::default() }
    }
}

impl Future for Landed {
    type Output = Option<Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Failure>> {
        let this = &mut *self;
        this.flight.refuse_own();
        // A waker is cloned and dropped with no lock held, because that is user code.
        let waker = context.waker().clone();
        let mut state = lock(&this.flight.state);
        if state.is_over {
            return Poll::Ready(state.failure.clone());
        }
        let mut old = None;
        if let Some(number) = this.number {
            let mut own = state.wakers.iter_mut().filter(|(own, _)| *own == number);
            old = own.next().map(|(_, old)| std::mem::replace(old, waker));
        } else {
            let number = state.futures;
            state.futures += 1;
            debug_assert!(
                state.wakers.iter().all(|(other, _)| *other < number),
                "single_flight.F2: two waiting futures have the number {number}"
            );
            state.wakers.push((number, waker));
            this.number = Some(number);
        }
        drop(state);
        drop(old);
        this.edge.lead_to(this.flight.id);
        Poll::Pending
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = lock(&self.flight.state);
        let own = state.wakers.iter().position(|(own, _)| *own == number);
        let waker = own.map(|at| state.wakers.swap_remove(at));
        drop(state);
        drop(waker);
    }
}

#[cfg(all(test, manycore_loom))]
mod loom_tests;
