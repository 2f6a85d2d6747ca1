//! `Registry` from outside: its entries, cancelling, when values are dropped, panics.

use manycore::collections::{Entry, OwnedEntry, Registry};
use manycore::ldu::Queue;
use manycore::oplog::{Logs, Publish};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// Returns a registry for every way to keep entries, and one that chooses by itself.
fn registries<T: Send + Sync + 'static>() -> Vec<Registry<T>> {
    let marked = |queue| Registry::builder().marks(queue).build().unwrap();
    let mut all = logged();
    all.extend([marked(Queue::PerThread), marked(Queue::Global)]);
    all
}

/// Returns the registries with logs, or with neither logs nor marks.
fn logged<T: Send + Sync + 'static>() -> Vec<Registry<T>> {
    let build = |logs, publish| Registry::builder().logs(logs).publish(publish).build().unwrap();
    vec![
        build(Logs::Auto, Publish::Auto),
        build(Logs::Always, Publish::Locked),
        build(Logs::Always, Publish::Biased),
        build(Logs::Never, Publish::Auto),
    ]
}

fn sorted<T: Ord + Clone + Send + Sync>(registry: &Registry<T>) -> Vec<T> {
    let mut values = registry.snapshot();
    values.sort();
    values
}

#[test]
fn entries_are_there_until_dropped() {
    for registry in registries() {
        assert!(registry.is_empty());
        let mut entries: Vec<_> = (0..100).map(|i| registry.register(i)).collect();
        assert_eq!(registry.len(), 100);
        assert!(entries.iter().enumerate().all(|(i, entry)| **entry == i));
        entries.retain(|entry| **entry % 3 == 0);
        assert!(sorted(&registry).into_iter().eq((0..100).step_by(3)));
        let mut sum = 0;
        registry.for_each(|value| sum += value);
        assert_eq!(sum, (0..100).step_by(3).sum());
        entries.clear();
        assert!(registry.is_empty());
    }
}

#[test]
fn pair_on_one_thread_leaves_nothing_in_the_log() {
    for publish in [Publish::Locked, Publish::Biased] {
        let registry = Registry::builder().logs(Logs::Always).publish(publish).build().unwrap();
        let kept: Vec<_> = (0..50).map(|i| registry.register(i)).collect();
        for i in 0..1000 {
            drop(registry.register(i));
        }
        assert_eq!(registry.stats().appended, 2050);
        drop(kept); // first in, first out: no place in the log is where it was
        assert!(registry.is_empty());
        let stats = registry.stats();
        assert_eq!((stats.absorbed, stats.applied, stats.pending), (2100, 0, 0));
    }
}

#[test]
fn entry_dropped_on_another_thread_cancels_at_the_merge() {
    for registry in registries() {
        let entries: Vec<_> = (0..10).map(|i| registry.register(i)).collect();
        thread::scope(|s| {
            s.spawn(move || drop(entries));
        });
        assert_eq!(registry.len(), 0);
    }
}

#[test]
fn address_is_not_used_again_while_a_log_holds_it() {
    // A's entry leaves on B, and A goes on registering. If the node were freed too early, the
    // allocator would give its address to a new entry, and the leave would hit the new entry.
    let registry = Registry::builder().logs(Logs::Always).build().unwrap();
    let (give, take) = mpsc::channel::<Vec<Entry<'_, usize>>>();
    thread::scope(|s| {
        s.spawn(move || take.into_iter().for_each(drop));
        for round in 0..2_000 {
            give.send((0..4).map(|_| registry.register(round)).collect()).unwrap();
            let own: Vec<_> = (0..4).map(|_| registry.register(usize::MAX)).collect();
            if round % 16 == 0 {
                let seen = registry.snapshot().into_iter().filter(|v| *v == usize::MAX).count();
                assert_eq!(seen, own.len());
            }
        }
        drop(give);
    });
    assert!(registry.is_empty());
}

/// A value that counts how many of its kind are alive.
#[derive(Debug)]
struct Alive<'a>(&'a AtomicIsize);

impl<'a> Alive<'a> {
    fn new(count: &'a AtomicIsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn every_value_is_dropped_once() {
    static ALIVE: AtomicIsize = AtomicIsize::new(0);
    let alive = || ALIVE.load(Ordering::Relaxed);
    for registry in registries() {
        drop(registry.register(Alive::new(&ALIVE)));
        assert_eq!(alive(), 0, "an entry that no walk saw is dropped at once");
        let entry = registry.register(Alive::new(&ALIVE));
        assert_eq!(registry.len(), 1);
        drop(entry);
        assert!(registry.is_empty());
        assert_eq!(alive(), 0, "an entry that was merged is dropped at the next walk");
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let (give, take) = mpsc::channel();
                    thread::scope(|s| {
                        s.spawn(move || take.into_iter().for_each(drop));
                        (0..500).for_each(|_| {
                            give.send(registry.register(Alive::new(&ALIVE))).unwrap();
                        });
                        drop(give);
                    });
                });
            }
        });
        std::mem::forget(registry.register(Alive::new(&ALIVE)));
        let pending = registry.register(Alive::new(&ALIVE));
        thread::scope(|s| {
            s.spawn(move || drop(pending));
        });
        drop(registry);
        assert_eq!(alive(), 0, "dropping the registry drops what is left");
    }
}

#[test]
fn walk_sees_exactly_what_its_thread_has_registered() {
    for registry in registries() {
        thread::scope(|s| {
            for me in 0..4_usize {
                let registry = &registry;
                s.spawn(move || {
                    let mut own: Vec<(Entry<'_, _>, usize)> = Vec::new();
                    let mut random = me as u32 + 1;
                    for step in 0..3_000 {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let pick = (random >> 8) as usize;
                        if own.is_empty() || random >> 31 == 0 {
                            own.push((registry.register((me, step)), step));
                        } else {
                            drop(own.swap_remove(pick % own.len()));
                        }
                        if pick % 64 == 0 {
                            let mut seen = Vec::new();
                            registry.for_each(|(who, step)| {
                                if *who == me {
                                    seen.push(*step);
                                }
                            });
                            seen.sort();
                            let mut mine: Vec<_> = own.iter().map(|(_, step)| *step).collect();
                            mine.sort();
                            assert_eq!(seen, mine);
                        }
                    }
                });
            }
        });
        assert!(registry.is_empty());
    }
}

/// If A registers before B does, no walk sees B without A.
#[test]
fn walk_is_one_moment() {
    for registry in registries::<usize>() {
        let turn = AtomicUsize::new(0);
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            for me in 0..2 {
                let (registry, turn, done) = (&registry, &turn, &done);
                s.spawn(move || {
                    let mut kept = Vec::new();
                    for number in (me..2_000).step_by(2) {
                        while turn.load(Ordering::Acquire) != number {
                            thread::yield_now();
                        }
                        kept.push(registry.register(number));
                        turn.store(number + 1, Ordering::Release);
                    }
                    while !done.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                });
            }
            while turn.load(Ordering::Acquire) < 2_000 {
                let before = turn.load(Ordering::Acquire);
                let seen = sorted(&registry);
                assert!(seen.iter().copied().eq(0..seen.len()), "one is missing below another");
                assert!(seen.len() >= before);
            }
            done.store(true, Ordering::Release);
        });
    }
}

#[test]
fn entries_of_threads_that_ended_are_there_and_can_leave() {
    for registry in registries() {
        let entries = Mutex::new(Vec::new());
        for i in 0..40 {
            thread::scope(|s| {
                s.spawn(|| entries.lock().unwrap().push(registry.register(i)));
            });
        }
        assert!(sorted(&registry).into_iter().eq(0..40));
        drop(entries.into_inner());
        assert!(registry.is_empty());
    }
}

#[test]
fn owned_entry_outlives_the_registry() {
    for registry in registries() {
        let (a, b) =
            (registry.register_owned("a".to_string()), registry.register_owned("b".into()));
        assert_eq!(sorted(&registry), ["a", "b"]);
        drop(a);
        assert_eq!(registry.len(), 1);
        drop(registry);
        assert_eq!(*b, "b");
        thread::spawn(move || assert_eq!(format!("{b:?}"), "OwnedEntry(\"b\")")).join().unwrap();
    }
}

#[test]
fn owned_entries_of_many_threads_come_and_go() {
    for registry in registries() {
        let alive = Arc::new(());
        let (give, take) = mpsc::channel::<OwnedEntry<Arc<()>>>();
        thread::scope(|s| {
            for _ in 0..3 {
                let (give, alive, registry) = (give.clone(), &alive, &registry);
                s.spawn(move || {
                    for i in 0..500 {
                        let entry = registry.register_owned(Arc::clone(alive));
                        if i % 2 == 0 {
                            give.send(entry).unwrap();
                        }
                    }
                });
            }
            drop(give);
            take.into_iter().for_each(drop);
        });
        assert!(registry.is_empty());
        drop(registry);
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

#[test]
fn entries_come_and_go_within_a_walk() {
    for registry in registries() {
        let mut first = Some(registry.register(1));
        let mut second = None;
        registry.for_each(|value| {
            assert_eq!(*value, 1);
            first = None;
            second = Some(registry.register(2));
        });
        assert_eq!(registry.snapshot(), [2]);
        drop(second);
    }
}

#[test]
fn walk_within_a_walk_is_reported() {
    for registry in registries() {
        let _entry = registry.register(1);
        let nested = catch_unwind(AssertUnwindSafe(|| {
            registry.for_each(|_| assert_eq!(registry.len(), 1));
        }));
        assert!(nested.is_err());
        assert_eq!(registry.len(), 1);
    }
}

#[test]
fn panic_in_a_walk_does_no_harm() {
    struct Touchy(u32);
    impl Clone for Touchy {
        fn clone(&self) -> Self {
            assert_ne!(self.0, 13, "planned");
            Self(self.0)
        }
    }
    for registry in registries() {
        let entries: Vec<_> = (10..16).map(|i| registry.register(Touchy(i))).collect();
        assert!(catch_unwind(AssertUnwindSafe(|| registry.snapshot().len())).is_err());
        let walk = || registry.for_each(|_| panic!("planned"));
        assert!(catch_unwind(AssertUnwindSafe(walk)).is_err());
        assert_eq!(registry.len(), 6);
        drop(entries);
        assert!(registry.is_empty());
    }
}

/// A value that panics when it is dropped.
struct Explosive(bool);

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(!self.0, "planned");
    }
}

#[test]
fn panic_in_a_values_drop_does_no_harm() {
    for registry in registries() {
        // Dropped by its own thread, at once.
        let entry = registry.register(Explosive(true));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(entry))).is_err());
        assert!(registry.is_empty());
        // Merged, left, and dropped by the next thread that passes.
        let entry = registry.register(Explosive(true));
        let calm = registry.register(Explosive(false));
        assert_eq!(registry.len(), 2);
        let blown = catch_unwind(AssertUnwindSafe(|| {
            drop(entry);
            registry.len()
        }));
        assert!(blown.is_err());
        assert_eq!(registry.len(), 1);
        drop(calm);
        assert!(registry.is_empty());
    }
}

#[test]
fn panic_in_a_values_drop_is_kept_from_one_who_registers() {
    for registry in logged() {
        let calm = registry.register(Explosive(false));
        let entry = registry.register(Explosive(true));
        assert_eq!(registry.len(), 2);
        let met = catch_unwind(AssertUnwindSafe(|| {
            drop(entry);
            (0..1_000).for_each(|_| {
                let others: Vec<_> = (0..8).map(|_| registry.register(Explosive(false))).collect();
                thread::scope(|s| drop(s.spawn(move || drop(others))));
            });
        }));
        // With logs, the value is dropped after a merge, which a registration or an end makes.
        let logged = format!("{registry:?}").contains("hot: true");
        assert_eq!(met.is_ok(), logged, "only the end of its own entry may meet it");
        assert_eq!(registry.len(), 1);
        drop(calm);
        assert!(registry.is_empty());
    }
}

#[test]
fn values_drop_may_use_the_registry() {
    struct Successor(Arc<Registry<Successor>>, u32);
    impl Drop for Successor {
        fn drop(&mut self) {
            if self.1 > 0 {
                assert!(self.0.len() < 100);
                drop(self.0.register(Successor(Arc::clone(&self.0), self.1 - 1)));
            }
        }
    }
    for registry in registries() {
        let registry = Arc::new(registry);
        let entry = registry.register(Successor(Arc::clone(&registry), 3));
        assert_eq!(registry.len(), 1);
        drop(entry);
        assert_eq!(registry.len(), 0);
        assert_eq!(Arc::strong_count(&registry), 1);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Register { owned: bool },
    Drop { pick: usize, elsewhere: bool },
    Walk,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|owned| Step::Register { owned }),
        4 => (any::<usize>(), any::<bool>())
            .prop_map(|(pick, elsewhere)| Step::Drop { pick, elsewhere }),
        1 => Just(Step::Walk),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any sequence of registrations and drops, here and on another thread, gives the model's list.
    #[test]
    fn behaves_like_a_set(steps in steps(), max_entries in 1..50_usize, always: bool) {
        let logs = if always { Logs::Always } else { Logs::Auto };
        let registry = Registry::builder().logs(logs).max_entries(max_entries).build().unwrap();
        let mut entries: Vec<(usize, Box<dyn Send + '_>)> = Vec::new();
        let (give, take) = mpsc::channel::<Box<dyn Send + '_>>();
        let (answer, answers) = mpsc::channel();
        thread::scope(|s| {
            s.spawn(move || take.into_iter().for_each(|entry| {
                drop(entry);
                answer.send(()).unwrap();
            }));
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Register { owned: true } => {
                        entries.push((number, Box::new(registry.register_owned(number))));
                    }
                    Step::Register { owned: false } => {
                        entries.push((number, Box::new(registry.register(number))));
                    }
                    Step::Drop { .. } if entries.is_empty() => {}
                    Step::Drop { pick, elsewhere } => {
                        let (_, entry) = entries.swap_remove(pick % entries.len());
                        if elsewhere {
                            give.send(entry).unwrap();
                            answers.recv().unwrap();
                        } else {
                            drop(entry);
                        }
                    }
                    Step::Walk => {
                        let mut model: Vec<_> = entries.iter().map(|(number, _)| *number).collect();
                        model.sort();
                        assert_eq!(sorted(&registry), model);
                    }
                }
            }
            drop(give);
        });
        prop_assert_eq!(registry.len(), entries.len());
    }
}
