//! Every operation, with a panic in every piece of user code that it calls: at the first call, at
//! the second, and so on. After the panic the accounts must be right: entries that left were
//! reported once, the weight is that of the entries, everything still works, and everything is
//! freed once.

use crate::fuse::{Accounts, KINDS, Key, Kind, Value, arm, disarm};
use manycore_cache::{Cache, Change};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

/// Entries before the operation, each of weight 10.
const FILL: u32 = 12;
/// Capacity, in entries: for those, and for one more.
const ROOM: u64 = 13;

struct World {
    kind: Kind,
    accounts: Arc<Accounts>,
    cache: Cache<Key, Value>,
}

impl World {
    fn new(kind: Kind) -> Self {
        let accounts = Arc::<Accounts>::default();
        accounts.now.store(10, SeqCst);
        let capacity = if kind == Kind::Plain { ROOM } else { ROOM * 10 };
        let cache = accounts.builder(kind, capacity).build().unwrap();
        let world = Self { kind, accounts, cache };
        for number in 0..FILL {
            // Every third entry has an end: a moment in a cache without metadata, and a time in
            // other caches.
            let value = world.value(10);
            world.insert(number, if number % 3 == 0 { value.until(20) } else { value });
        }
        world
    }

    fn key(&self, number: u32) -> Key {
        self.accounts.key(number)
    }

    fn value(&self, weight: u32) -> Value {
        self.accounts.value(weight)
    }

    fn insert(&self, number: u32, value: Value) {
        self.cache.insert(self.key(number), value);
    }

    /// Moves the clock on until entries with an end have expired.
    fn age(&self) {
        self.accounts.now.store(100, SeqCst);
    }

    /// Returns the numbers of the entries, and their weight.
    fn present(&self) -> (BTreeSet<u64>, u64) {
        let before = self.accounts.now.swap(0, SeqCst);
        let entries: Vec<_> = self.cache.iter().map(|e| (e.id, self.kind.weight(&e))).collect();
        self.accounts.now.store(before, SeqCst);
        let ids: BTreeSet<_> = entries.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), entries.len(), "an entry is there twice");
        (ids, entries.iter().map(|(_, weight)| weight).sum())
    }

    /// Checks the accounts after the operation.
    #[track_caller]
    fn settle(self, before: &BTreeSet<u64>, what: &str) {
        let (now, weight) = self.present();
        let told = |id: &u64| self.accounts.is_told(*id);
        assert!(before.difference(&now).all(told), "{what}: an entry left and was not told");
        assert!(!now.iter().any(told), "{what}: an entry was told and is there");
        assert_eq!(self.cache.len(), now.len(), "{what}: entries");
        assert_eq!(self.cache.weight(), weight, "{what}: weight");
        // No lock is held, so all keys can be updated, and the table can grow.
        for number in 0..30 {
            self.insert(number, self.value(1));
            drop(self.cache.remove(&self.key(number)));
            drop(self.cache.get_or_insert_with(self.key(number), || self.value(2)));
        }
        let (now, weight) = self.present();
        assert_eq!((self.cache.len(), self.cache.weight()), (now.len(), weight), "{what}: later");
        self.cache.invalidate_all();
        assert_eq!((self.cache.len(), self.cache.weight()), (0, 0), "{what}: something is left");
        assert!(now.iter().all(told), "{what}: not all were told at the end");
        let accounts = Arc::clone(&self.accounts);
        drop(self);
        assert_eq!(accounts.living(), (0, 0), "{what}: leaked or freed twice");
    }
}

/// Runs the operation in a new world for each call of user code, with a panic in that call.
fn every_fault(what: &str, prepare: impl Fn(&World), operation: impl Fn(&World)) {
    for kind in KINDS {
        let mut calls = 0;
        loop {
            let world = World::new(kind);
            prepare(&world);
            let (before, _) = world.present();
            arm(calls);
            let ended = catch_unwind(AssertUnwindSafe(|| operation(&world)));
            let has_fired = disarm();
            assert!(ended.is_ok() || has_fired, "{what}, {kind:?}: a panic of its own");
            world.settle(
                &before,
                &format!("{what}, {kind:?}, call {calls}, {}", crate::fuse::planted()),
            );
            if !has_fired {
                break;
            }
            calls += 1;
        }
        println!("{what}, {kind:?}: {calls} calls of user code");
        assert!(calls > 0, "{what}: no user code, so nothing is tested");
    }
}

/// Runs the test under a watchdog, without printing its panics.
fn quietly(test: impl FnOnce() + Send + 'static) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        if !crate::tasks::message(payload).starts_with("planted") {
            hook(info);
        }
    }));
    crate::tasks::within(120, test);
}

fn nothing(_: &World) {}

#[test]
fn a_panic_in_any_user_code_of_an_insertion_loses_nothing() {
    quietly(|| {
        every_fault("new key", nothing, |world| world.insert(50, world.value(10)));
        every_fault("replacement", nothing, |world| world.insert(5, world.value(10)));
        every_fault("lighter", nothing, |world| world.insert(5, world.value(3)));
        every_fault("heavier", nothing, |world| world.insert(5, world.value(70)));
        every_fault("too heavy", nothing, |world| world.insert(5, world.value(1_000)));
        every_fault("many evictions", nothing, |world| {
            (50..60).for_each(|number| world.insert(number, world.value(50)));
        });
        every_fault("growth", nothing, |world| {
            (50..70).for_each(|number| world.insert(number, world.value(1)));
        });
        every_fault("over an expired one", World::age, |world| world.insert(3, world.value(10)));
        every_fault("beside expired ones", World::age, |world| {
            (50..60).for_each(|number| world.insert(number, world.value(10)));
        });
    });
}

/// The same on the fast paths of insertions: without a listener, a weigher and times. Entries that
/// left were not reported, but they were counted and freed.
#[test]
fn a_panic_in_any_user_code_of_a_short_insertion_loses_nothing() {
    type Insert = fn(&Arc<Accounts>, &Cache<Key, Value>, u32);
    let ways: [(&str, Insert, std::ops::Range<u32>); 4] = [
        ("new key", insert, 50..51),
        ("replacements", insert, 3..6),
        ("evictions", insert, 50..60),
        ("evictions in batches", insert_in_batch, 50..60),
    ];
    quietly(move || {
        for (what, insert_into, keys) in ways {
            let mut calls = 0;
            loop {
                let accounts = Arc::<Accounts>::default();
                let cache = Cache::builder(ROOM).initial_entries(1).build().unwrap();
                (0..FILL).for_each(|number| insert(&accounts, &cache, number));
                arm(calls);
                let all = || keys.clone().for_each(|key| insert_into(&accounts, &cache, key));
                let ended = catch_unwind(AssertUnwindSafe(all));
                let has_fired = disarm();
                assert!(ended.is_ok() || has_fired, "{what}: a panic of its own");
                let there = cache.iter().count();
                assert!(there >= FILL as usize - 1, "{what}, call {calls}: {there} are left");
                assert_eq!((cache.len(), cache.weight()), (there, there as u64), "{what}, {calls}");
                (0..30).for_each(|number| insert(&accounts, &cache, number));
                assert_eq!(cache.len() as u64, ROOM, "{what}, call {calls}");
                drop(cache);
                assert_eq!(
                    accounts.living(),
                    (0, 0),
                    "{what}, call {calls}: leaked or freed twice"
                );
                if !has_fired {
                    break;
                }
                calls += 1;
            }
            println!("{what}: {calls} calls of user code");
            assert!(calls > 0, "{what}: no user code, so nothing is tested");
        }
    });
}

fn insert(accounts: &Arc<Accounts>, cache: &Cache<Key, Value>, number: u32) {
    cache.insert(accounts.key(number), accounts.value(10));
}

fn insert_in_batch(accounts: &Arc<Accounts>, cache: &Cache<Key, Value>, number: u32) {
    let key = accounts.key(number);
    cache.visit_many([&key], |_, spot| {
        spot.insert(accounts.key(number), accounts.value(10));
    });
}

#[test]
fn a_panic_in_any_user_code_of_a_conditional_update_loses_nothing() {
    quietly(|| {
        every_fault("insert_if", nothing, |world| {
            drop(world.cache.insert_if(world.key(5), world.value(9), |old| old.is_some()));
            drop(world.cache.insert_if(world.key(6), world.value(9), |old| old.is_none()));
        });
        every_fault("insert_locked_if", nothing, |world| {
            drop(world.cache.insert_locked_if(world.key(5), world.value(9), |old| old.is_some()));
            drop(world.cache.insert_locked_if(world.key(6), world.value(9), |old| old.is_none()));
        });
        every_fault("compute", nothing, |world| {
            drop(world.cache.compute(world.key(5), |_| Change::Put(world.value(9))));
            drop(world.cache.compute(world.key(50), |_| Change::Put(world.value(9))));
            drop(world.cache.compute(world.key(6), |_| Change::Keep));
            drop(world.cache.compute(world.key(6), |_| Change::Remove));
        });
        every_fault("compute that is asked again", nothing, |world| {
            let mut calls = 0;
            drop(world.cache.compute(world.key(5), |_| {
                calls += 1;
                if calls < 3 {
                    world.insert(5, world.value(9));
                }
                Change::Put(world.value(9))
            }));
        });
        every_fault("compute, expired", World::age, |world| {
            drop(world.cache.compute(world.key(3), |_| Change::Remove));
            drop(world.cache.compute(world.key(6), |_| Change::Put(world.value(9))));
        });
        every_fault("pin", nothing, |world| {
            drop(world.cache.pin(&world.key(5)));
            (50..60).for_each(|number| world.insert(number, world.value(10)));
            world.cache.unpin(&world.key(5));
        });
        every_fault("remove", nothing, |world| drop(world.cache.remove(&world.key(5))));
        every_fault("remove, expired", World::age, |world| drop(world.cache.remove(&world.key(3))));
        every_fault("remove_locked_if", nothing, |world| {
            drop(world.cache.remove_locked_if(&world.key(5), |entry| entry.value().weight == 10));
        });
        every_fault("get_locked_if", nothing, |world| {
            drop(world.cache.get_locked_if(&world.key(5), |entry| {
                entry.value().ends.store(20, SeqCst);
                true
            }));
        });
        every_fault("expire", nothing, |world| {
            if world.kind == Kind::Full {
                world.cache.expire(&world.key(5), Some(Duration::from_secs(1)));
            } else {
                drop(world.cache.get(&world.key(5)));
            }
        });
    });
}

#[test]
fn a_panic_in_any_user_code_of_a_walk_loses_nothing() {
    quietly(|| {
        every_fault("invalidate_all", nothing, |world| world.cache.invalidate_all());
        every_fault("retain", nothing, |world| {
            world.cache.retain(|entry| entry.key() == &world.key(4));
        });
        every_fault("purge", World::age, |world| {
            world.cache.purge();
            drop(world.cache.get(&world.key(1)));
        });
        every_fault("set_capacity", nothing, |world| world.cache.set_capacity(ROOM / 2));
        every_fault("reads of expired ones", World::age, |world| {
            (0..FILL).for_each(|number| drop(world.cache.get(&world.key(number))));
        });
        every_fault("get_many", World::age, |world| {
            let keys: Vec<_> = (0..40).map(|number| world.key(number)).collect();
            world.cache.get_many(keys.iter(), |_, _| ());
        });
        every_fault("iter", World::age, |world| {
            assert!(world.cache.iter().count() > 0);
            drop(world.key(1));
        });
        // On a slow machine the insertions free everything by themselves.
        every_fault("replacements, and collect", nothing, |world| {
            (0..30).for_each(|_| world.insert(1, world.value(1)));
            (0..3).for_each(|_| world.cache.collect());
        });
    });
}

#[test]
fn a_panic_in_any_user_code_of_a_load_loses_nothing() {
    quietly(|| {
        every_fault("get_or_insert_with", nothing, |world| {
            drop(world.cache.get_or_insert_with(world.key(50), || world.value(50)));
        });
        every_fault("load of an expired one", World::age, |world| {
            drop(world.cache.get_or_insert_with(world.key(3), || world.value(50)));
        });
        every_fault("too heavy a load", nothing, |world| {
            drop(world.cache.get_or_insert_with(world.key(50), || world.value(1_000)));
        });
        every_fault("a load that is not kept", nothing, |world| {
            drop(world.cache.get_or_insert_with(world.key(50), || {
                drop(world.cache.remove(&world.key(50)));
                world.value(10)
            }));
            drop(world.cache.get_or_insert_with(world.key(51), || {
                world.insert(51, world.value(10));
                world.value(10)
            }));
        });
        every_fault("futures that wait", nothing, |world| {
            let load = async {
                crate::tasks::yield_once().await;
                world.value(10)
            };
            let mut leader = pin!(world.cache.get_or_insert_async(world.key(50), load));
            let ask = || world.cache.get_or_insert_async(world.key(50), async { world.value(1) });
            let (mut second, mut third) = (pin!(ask()), pin!(ask()));
            let waker = crate::fuse::waker::new();
            let mut context = Context::from_waker(&waker);
            assert!(leader.as_mut().poll(&mut context).is_pending());
            assert!(second.as_mut().poll(&mut context).is_pending());
            assert!(third.as_mut().poll(&mut context).is_pending());
            assert!(matches!(leader.poll(&mut context), Poll::Ready(_)));
            assert!(matches!(second.poll(&mut context), Poll::Ready(_)));
        });
    });
}

/// Destructors also run when the cache is dropped: if one of them panics, the others still run.
#[test]
fn a_destructor_that_panics_when_the_cache_is_dropped_frees_the_rest() {
    quietly(|| {
        for kind in KINDS {
            for calls in 0..2 * i64::from(FILL) {
                let World { accounts, cache, .. } = World::new(kind);
                arm(calls);
                assert!(catch_unwind(AssertUnwindSafe(|| drop(cache))).is_err());
                assert!(disarm());
                assert_eq!(accounts.living(), (0, 0), "{kind:?}, {calls}");
            }
        }
    });
}

/// An insertion is refused. At its end runs the destructor of a value that was replaced meanwhile,
/// and panics. The key and value that the insertion gives back are not lost.
#[test]
fn a_panic_in_a_destructor_at_the_end_of_a_refused_insertion_loses_nothing() {
    quietly(|| {
        let mut fired = 0;
        for _ in 0..50 {
            let world = World::new(Kind::Plain);
            let (key, value) = (world.key(5), world.value(9));
            // This is so slow that the thread looks for garbage to free at the end of each call.
            for _ in 0..5 {
                thread::sleep(Duration::from_micros(200));
                drop(world.cache.get(&world.key(2)));
            }
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let refused = world.cache.insert_if(key, value, |_| {
                    (0..3).for_each(|_| world.insert(1, world.value(1)));
                    thread::sleep(Duration::from_millis(1));
                    arm(0); // the next call of user code is at the end, or later
                    false
                });
                disarm();
                drop(refused);
            }));
            disarm();
            fired += u32::from(ended.is_err());
            let accounts = Arc::clone(&world.accounts);
            drop(world);
            assert_eq!(accounts.living(), (0, 0), "leaked or freed twice");
        }
        assert!(fired > 0, "no destructor ran at the end of an insertion");
    });
}
