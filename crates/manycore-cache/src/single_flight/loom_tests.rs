//! Models of loads beside updates of their key (single_flight.F4), with a bucket of one entry.
//!
//! The flights, the bucket's lock, and the key's memory are the real code. The steps around them
//! repeat what `load`, `update` and `locked` do.

use super::*;
use crate::bucket_lock::{BucketGuard, BucketLock, Queue};
use crate::node::{InBytes, Kind};
use crate::sync::{self, thread};
use std::process::Command;

/// The value of the source before its change, and after it. No entry is zero.
const OLD: usize = 1;
const NEW: usize = 2;

struct Shared {
    lock: BucketLock,
    queue: Queue,
    entry: AtomicUsize,
    /// The source of the cached value; it orders nothing.
    source: AtomicUsize,
    flights: Flights<usize, usize>,
    domain: Domain,
    home: Arc<Home<usize, usize>>,
}

impl Shared {
    fn new() -> Self {
        Self {
            lock: BucketLock::free(),
            queue: Queue::new(),
            entry: AtomicUsize::new(0),
            source: AtomicUsize::new(OLD),
            flights: Flights::new(true),
            domain: Domain::new(),
            home: Home::new(Kind::Plain, InBytes::No, None),
        }
    }

    fn hash() -> KeyHash {
        KeyHash::of(7)
    }

    fn lock(&self) -> BucketGuard<'_> {
        self.lock.lock(&self.queue).expect("the table is not replaced")
    }

    fn find(&self) -> Option<usize> {
        Some(self.entry.load(Ordering::Acquire)).filter(|entry| *entry != 0)
    }

    fn link(&self, value: usize, own_loads: usize) {
        self.entry.store(value, Ordering::Release);
        self.flights.note_change(Self::hash(), own_loads);
    }

    fn load(&self) {
        self.load_as(Asks::Thread);
    }

    fn load_as(&self, asks: Asks) {
        let is_refresh = asks == Asks::Refresh;
        let seed = self.home.begin(7);
        let turn = self.flights.join((&self.domain, &self.home), Self::hash(), seed, asks);
        let Turn::Lead(mut lead) = turn else { panic!("there is no other load") };
        if self.find().is_some() && !is_refresh {
            return;
        }
        let value = self.source.load(Ordering::Relaxed);
        let extra = |_: &usize, _: &usize| unreachable!("of a plain cache");
        let (_, flight) = lead.land(|seed| self.home.complete(seed, value, extra));
        let early = flight.is_stale();
        let hold = self.lock();
        // BUG: a load looks at its mark before it has the lock of its bucket (single_flight.F4).
        let is_stale = if sync::seeded_bug!("early-look") { early } else { flight.is_stale() };
        // BUG: a load that refreshes an entry replaces whatever is there (single_flight.F7).
        let is_over = is_refresh && sync::seeded_bug!("refresh-over-newer");
        if is_over || (is_refresh || self.find().is_none()) && !is_stale {
            self.link(value, 1);
        }
        drop(hold);
    }

    /// Requests a load that fails with the source's value as its error. Returns the error that the
    /// request gets: its own, or that of the load it waits for. `None` means that it shall look
    /// again.
    fn fail(&self) -> Option<usize> {
        let seed = self.home.begin(7);
        match self.flights.join((&self.domain, &self.home), Self::hash(), seed, Asks::Thread) {
            Turn::Lead(mut lead) => {
                let error = self.source.load(Ordering::Relaxed);
                lead.fail(Arc::new(error));
                Some(error)
            }
            Turn::Wait(flight, _seed) => flight.wait()?.downcast().ok().map(|error| *error),
        }
    }

    fn remove(&self) {
        loop {
            let Some(seen) = self.find() else {
                if self.flights.are_any_now() {
                    let _hold = self.lock();
                    self.flights.mark(Self::hash());
                }
                // BUG: a removal that finds nothing does not look again after it has looked for
                // loads.
                let is_looking = !sync::seeded_bug!("one-look");
                if is_looking && self.find().is_some() {
                    continue;
                }
                return;
            };
            let _hold = self.lock();
            if self.find() == Some(seen) {
                self.link(0, 0);
                return;
            }
        }
    }

    fn insert(&self, value: usize) {
        let _hold = self.lock();
        self.link(value, 0);
    }

    fn evict(&self) {
        let _hold = self.lock();
        self.entry.store(0, Ordering::Release);
    }
}

/// Checks every interleaving of a scenario, up to this number of preemptions.
fn checked(preemptions: usize, scenario: fn(&Arc<Shared>)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.max(Some(preemptions));
    model.max_branches = 5_000;
    model.check(move || {
        // Not on the first thread: loom drops its globals before the locals of that thread.
        let body = move || {
            let shared = Arc::new(Shared::new());
            scenario(&shared);
            assert_eq!(shared.flights.0.0.count.load(Ordering::Relaxed), 0);
        };
        thread::spawn(body).join().unwrap();
        // The locals of the threads use globals of the library, which must not be dropped before
        // them.
        loom::stop_exploring();
        (0..100).for_each(|_| thread::yield_now());
    });
}

/// One thread loads, while another changes the source and then runs `update`. The older value must
/// not stay.
fn beside_a_load(shared: &Arc<Shared>, update: fn(&Shared)) {
    let other = Arc::clone(shared);
    let loader = thread::spawn(move || other.load());
    shared.source.store(NEW, Ordering::Relaxed);
    update(shared);
    loader.join().unwrap();
    assert_ne!(shared.find(), Some(OLD), "{OLDER}");
}

#[test]
fn loom_load_beside_a_removal_of_its_key() {
    checked(2, |shared| beside_a_load(shared, Shared::remove));
}

#[test]
fn loom_load_beside_an_insertion_of_its_key() {
    checked(2, |shared| beside_a_load(shared, |shared| shared.insert(NEW)));
}

#[test]
fn loom_load_beside_an_insertion_and_its_eviction() {
    checked(2, |shared| {
        beside_a_load(shared, |shared| {
            shared.insert(NEW);
            shared.evict();
        });
    });
}

/// An entry is refreshed while it is removed, or replaced by a newer entry.
fn beside_a_refresh(shared: &Arc<Shared>, update: fn(&Shared)) {
    shared.insert(OLD);
    let other = Arc::clone(shared);
    let loader = thread::spawn(move || other.load_as(Asks::Refresh));
    shared.source.store(NEW, Ordering::Relaxed);
    update(shared);
    loader.join().unwrap();
    assert_ne!(shared.find(), Some(OLD), "{OLDER}");
}

#[test]
fn loom_refresh_beside_a_removal_of_its_key() {
    checked(2, |shared| beside_a_refresh(shared, Shared::remove));
}

#[test]
fn loom_refresh_beside_an_insertion_of_its_key() {
    checked(2, |shared| beside_a_refresh(shared, |shared| shared.insert(NEW)));
}

/// One of two requests begins after a removal: it gets no error from before the removal.
#[test]
fn loom_failing_load_beside_a_removal_of_its_key() {
    checked(2, |shared| {
        let other = Arc::clone(shared);
        let loader = thread::spawn(move || other.fail());
        shared.source.store(NEW, Ordering::Relaxed);
        shared.remove();
        assert_ne!(shared.fail(), Some(OLD), "an error from before the removal");
        loader.join().unwrap();
    });
}

/// Two requests of a load that fails, and no update: both end with the error.
#[test]
fn loom_failing_load_reaches_a_request_that_waits() {
    checked(2, |shared| {
        let other = Arc::clone(shared);
        let loader = thread::spawn(move || other.fail());
        assert_eq!(shared.fail(), Some(OLD));
        assert_eq!(loader.join().unwrap(), Some(OLD));
    });
}

/// The message of a model in which a load has put in an older value.
const OLDER: &str = "an older load is in the cache";

/// Runs a model again with a planted bug, and checks that it fails for this reason.
fn must_catch(bug: &str, model: &str, reason: &str) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("single_flight::loom_tests::{model}"), "--nocapture"])
        .env("MANYCORE_SEEDED_BUG", bug)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "{model} is no test:\n{said}");
    assert!(!run.status.success(), "{model} passes with the bug {bug} in place");
    assert!(said.contains(reason), "another reason:\n{said}");
}

#[test]
fn loom_refresh_that_replaces_what_is_newer_is_caught() {
    must_catch("refresh-over-newer", "loom_refresh_beside_an_insertion_of_its_key", OLDER);
}

#[test]
fn loom_failing_load_that_looks_at_its_mark_too_early_is_caught() {
    let model = "loom_failing_load_beside_a_removal_of_its_key";
    must_catch("early-error", model, "an error from before the removal");
}

#[test]
fn loom_load_that_looks_at_its_mark_too_early_is_caught() {
    must_catch("early-look", "loom_load_beside_a_removal_of_its_key", OLDER);
}

#[test]
fn loom_removal_in_vain_that_looks_once_is_caught() {
    must_catch("one-look", "loom_load_beside_a_removal_of_its_key", OLDER);
}

#[test]
fn loom_update_that_asks_for_loads_with_no_fence_is_caught() {
    must_catch("unfenced-look", "loom_load_beside_an_insertion_and_its_eviction", OLDER);
}
