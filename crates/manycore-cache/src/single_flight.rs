//! Single flight: the loads under way, at most one of each kind for each key.
//!
//! Laws:
//! - single_flight.F1 A load enters the list before its leader looks into the cache a second time.
//!   It leaves the list after the leader has put the value into the cache, or has given up: has
//!   returned, panicked, or was dropped as a future.
//! - single_flight.F2 A waiter is woken when the load leaves the list, and then looks again; it may
//!   lead next.
//! - single_flight.F3 A thread that blocks waits for loads of blocked threads alone, never for a
//!   future, which may be its own thread's to poll: it loads beside it. A future waits for both.
//! - single_flight.F4 A load whose key is updated after the load's beginning is marked, under the
//!   lock of the key's bucket, and is not put in; its leader looks at the mark under the same lock.
//!   Updates know a load by its hash: one of equal hash is marked as well, and is only not kept.
//! - single_flight.F5 A load's key is in its node from the beginning. Requests compare it in a
//!   section of their own, opened before they look into the list, with no lock held. It is taken
//!   off the list before its node is linked or retired; so no request has it after the grace
//!   period.
//! - single_flight.F6 The error of a load reaches every request that waits for it and expects its
//!   type. It is published once, with the load's end, and not if the load was marked
//!   (single_flight.F4): a request that began after an update of its key never gets an error from
//!   before. The leader looks at the mark after the load has left the list, because requests join
//!   until then.
//! - single_flight.F7 A load may begin while its key has an entry, to replace it ahead of its end.
//!   There is none if another load of the key is listed, of whichever kind; its request waits for
//!   none. As any load, it is not put in if the key was updated since (single_flight.F4), also by
//!   another load.

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

/// Lists of loads under way, in a cache of many entries and in one of few.
const SHARDS: usize = if cfg!(manycore_loom) { 1 } else { 16 };
const SHARDS_OF_FEW: usize = if cfg!(manycore_loom) { 1 } else { 4 };

pub(crate) struct Flights<K, V>(Line<Shared<K, V>>);

struct Shared<K, V> {
    /// Loads under way. Updates read it, each; so it has a line of its own, but for what loads
    /// alone look at.
    count: AtomicUsize,
    shards: Box<[Shard<K, V>]>,
}

type Shard<K, V> = Mutex<Vec<Listed<K, V>>>;

/// A load under way, and its key's node; none once the value is there (single_flight.F5).
struct Listed<K, V> {
    flight: Arc<Flight>,
    node: Option<NonNull<Node<K, V>>>,
}

impl<K, V> Clone for Listed<K, V> {
    fn clone(&self) -> Self {
        Self { flight: Arc::clone(&self.flight), node: self.node }
    }
}

// SAFETY: threads share the key behind the node, by reference alone; the node itself is its
// leader's (single_flight.F5).
unsafe impl<K: Send + Sync, V: Send> Send for Listed<K, V> {}

/// What waiters know of a load.
pub(crate) struct Flight {
    id: LoadId,
    hash: u64,
    is_future: bool,
    /// Whether the key was updated since (single_flight.F4).
    is_stale: AtomicBool,
    state: Mutex<State>,
    landed: Condvar,
}

/// The error of a load, of whichever type.
pub(crate) type Failure = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
struct State {
    is_over: bool,
    /// For the waiters, once it is over (single_flight.F6).
    failure: Option<Failure>,
    /// Of each waiting future the last one.
    wakers: Vec<(u64, Waker)>,
    futures: u64,
}

/// A request for a key's load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Thread,
    Future,
    /// A thread that has an entry still, and waits for no load (single_flight.F7).
    Refresh,
}

/// What to do about a key that is not there, or is to be loaded anew.
pub(crate) enum Turn<'a, K, V> {
    Lead(Lead<'a, K, V>),
    /// The node comes back.
    Wait(Arc<Flight>, Seed<K, V>),
}

/// Nothing here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fence behind an exchange, which is one already on x86-64.
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
    /// No loads, of a cache of few entries or of many.
    pub(crate) fn new(is_of_few: bool) -> Self {
        let shards = if is_of_few { SHARDS_OF_FEW } else { SHARDS };
        let shards = (0..shards).map(|_| Mutex::default()).collect();
        Self(Line(Shared { count: AtomicUsize::new(0), shards }))
    }

    fn shard(&self, hash: u64) -> &Shard<K, V> {
        let shards = &self.0.0.shards;
        &shards[(hash >> 20) as usize % shards.len()]
    }

    /// The entry of a key has changed, under the lock of its bucket: loads that began before are
    /// not put in (single_flight.F4), but for the caller's own, `own` of which are counted.
    #[inline(always)]
    pub(crate) fn note_change(&self, hash: KeyHash, own: usize) {
        debug_assert!(own <= 1, "single_flight.F4: an update is of {own} loads");
        // ORDER: SeqCst; pairs with the fence in `begin`, as in `are_any_now`: what the caller did
        // before it took the lock is seen by each load that this misses.
        // BUG: an update of what is there asks for loads with no fence (single_flight.F4).
        if !seeded_bug!("unfenced-look") {
            fence_after_exchange();
        }
        // ORDER: Relaxed; loads that are over have put in what they had under this lock.
        if self.0.0.count.load(Ordering::Relaxed) > own {
            self.mark(hash);
        }
    }

    /// Whether any load is under way, for an update that has no lock. If not, the caller sees what
    /// loads have put in that are over.
    pub(crate) fn are_any_now(&self) -> bool {
        // ORDER: SeqCst; pairs with the fence in `begin`: either this sees the load, or the load's
        // user code sees what the caller did before.
        fence(Ordering::SeqCst);
        // ORDER: Acquire; pairs with Release in `Lead::drop`.
        self.0.0.count.load(Ordering::Acquire) != 0
    }

    /// Loads under way.
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
        // ORDER: Relaxed; the bucket's lock orders.
        same.for_each(|listed| listed.flight.is_stale.store(true, Ordering::Relaxed));
    }

    /// Marks all loads: before a walk that locks every bucket.
    pub(crate) fn mark_all(&self) {
        if self.are_any_now() {
            for shard in &self.0.0.shards {
                // ORDER: Relaxed; the walk's locks order.
                let mark = |listed: &Listed<K, V>| {
                    listed.flight.is_stale.store(true, Ordering::Relaxed);
                };
                lock(shard).iter().for_each(mark);
            }
        }
    }

    /// Leads the load of the seed's key, or names the load to wait for (single_flight.F3).
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
        // ORDER: Relaxed; the fence orders, which pairs with those of `are_any_now` and
        // `note_change`.
        self.0.0.count.fetch_add(1, Ordering::Relaxed);
        fence_after_exchange();
    }
}

impl<K: Eq, V> Listed<K, V> {
    /// Whether a request for this key waits for the load. One that has its value tells its key no
    /// more: other threads wait for it whatever its key, for it is about to end.
    fn is_of(&self, key: &K, _section: &Section<'_>) -> bool {
        match self.node {
            // SAFETY: single_flight.F5 - found in the list in this section, so alive; of a node on
            // the list nothing but the key is there, and nothing changes it.
            Some(node) => unsafe { (*node.as_ptr()).key == *key },
            None => !deadlock::is_running(self.flight.id),
        }
    }
}

/// What is there of an entry that is being loaded.
enum Load<K, V> {
    Seed(Seed<K, V>),
    /// `None` once it is in the cache.
    Fresh(Option<Fresh<K, V>>),
}

/// The right to load; dropping it ends the load.
pub(crate) struct Lead<'a, K, V> {
    flights: &'a Flights<K, V>,
    domain: &'a Domain,
    home: &'a Home<K, V>,
    flight: Arc<Flight>,
    load: Load<K, V>,
    /// From the load in which this one runs.
    edge: Edge,
    failure: Option<Failure>,
}

impl<K, V> Lead<'_, K, V> {
    /// The load's user code runs on this thread until the result is dropped.
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

    /// The load has failed: its end tells the waiters, unless the key was updated
    /// (single_flight.F6).
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Takes the key off the list, and the node that is to be linked (single_flight.F5); `fill`
    /// makes it of the seed.
    pub(crate) fn land(
        &mut self,
        fill: impl FnOnce(&mut Option<Seed<K, V>>) -> Fresh<K, V>,
    ) -> (&mut Option<Fresh<K, V>>, &Flight) {
        if let Load::Seed(seed) = std::mem::replace(&mut self.load, Load::Fresh(None)) {
            /// Back to the load, also if `fill` panics.
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

    /// Ends what is left of the entry; others may be comparing its key still.
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
        // Marks are set under the list's lock: each update that a waiter may know of is seen here.
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
        // Wakers and destructors are user code: a panic of one must not keep the rest from running.
        let mut panics = Panics::default();
        wakers.into_iter().for_each(|(_, waker)| panics.catch(|| waker.wake()));
        panics.catch(|| self.retire());
        panics.resume();
    }
}

/// The first of the panics of several pieces of user code that all have to run.
#[derive(Default)]
pub(crate) struct Panics(Option<Box<dyn Any + Send>>);

impl Panics {
    /// Runs one of them.
    pub(crate) fn catch(&mut self, run: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
            match self.0 {
                None => self.0 = Some(payload),
                Some(_) => forgo(payload),
            }
        }
    }

    /// Goes on with the first panic, unless the thread unwinds already.
    pub(crate) fn resume(self) {
        match self.0 {
            Some(payload) if std::thread::panicking() => forgo(payload),
            Some(payload) => resume_unwind(payload),
            None => {}
        }
    }
}

/// Drops what a panic carried, the destructor of which may panic, too.
fn forgo(payload: Box<dyn Any + Send>) {
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

    /// Whether the key was updated since the load began. Under the lock of its bucket
    /// (single_flight.F4), or after the load has left the list (single_flight.F6).
    pub(crate) fn is_stale(&self) -> bool {
        // ORDER: Relaxed; the bucket's lock orders, and that of the list.
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Waits until the load is over; the error, if it failed.
    ///
    /// # Panics
    /// If the load runs on this thread, or waits itself for what this thread loads.
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

/// Ready when the load is over, with its error, if it failed.
pub(crate) struct Landed {
    flight: Arc<Flight>,
    /// Which of the flight's waiting futures this is.
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
        // A waker is cloned and dropped with no lock held: that is user code.
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
