//! `Adaptive` from outside. It must behave like the sequential type in every mode and across
//! changes, and change when it should and not otherwise. Also tested: panics, and what a thread may
//! do while it reads.
//!
//! `MANYCORE_SOAK=60` runs the histories and the stress for 60 seconds each. `MANYCORE_SEED=0x12ab`
//! repeats the random choices of an earlier run.

use crate::common::env;
use crate::common::history::{State, Update};
use crate::common::kinds::{Add, List, Push, Set, SumLog, Toggle};
use crate::common::plan::{Adds, Disturb, Pushes, Script, Shared, Toggles};
use crate::common::rng::Rng;
use crate::common::run;
use manycore::cluster::Adaptive;
use manycore::cluster::adaptive::Mode;
use manycore::oplog::*;
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const MODES: [Mode; 3] = [Mode::Direct, Mode::Logs, Mode::Shared];

// ---- histories ----

/// An object that changes its mode again and again, on any thread.
struct Restless<S: Send + Sync + 'static, L: Log<S>> {
    object: Adaptive<S, L>,
    calls: AtomicU64,
    seed: u64,
}

impl<S: Send + Sync + 'static, L: Log<S>> Restless<S, L> {
    fn maybe_switch(&self) {
        let mut rng = Rng::part(self.seed, self.calls.fetch_add(1, SeqCst));
        if rng.once_in(4) {
            self.object.pin(*rng.pick(&MODES));
        }
    }
}

impl<S: State + Sync, U: Update<S>, L: Log<S, Op = U>> Shared<S, U> for Restless<S, L> {
    fn update(&self, update: U) {
        self.object.update(update);
        self.maybe_switch();
    }

    fn read(&self) -> S {
        let state = self.object.read().clone();
        self.maybe_switch();
        state
    }

    fn disturb(&self, how: Disturb) -> Option<S> {
        match how {
            Disturb::Promote => drop(self.object.pin(Mode::Logs)),
            Disturb::Demote => drop(self.object.pin(Mode::Shared)),
            Disturb::Synchronize => self.object.change(|_| ()),
            Disturb::TryRead => return self.object.try_read().ok().map(|guard| guard.clone()),
        }
        None
    }
}

fn histories_are_linearizable<S, P, L>(name: &str)
where
    S: State + Sync,
    P: Script<Update: Update<S>>,
    L: Log<S, Op = P::Update>,
{
    let _alone = env::alone();
    let until = env::soak(Duration::from_millis(500));
    let make = |rng: &mut Rng| {
        let object = Adaptive::new(S::default());
        object.pin(*rng.pick(&MODES));
        Restless { object, calls: AtomicU64::new(0), seed: rng.below(1 << 30) as u64 }
    };
    match run::check::<S, P, Restless<S, L>>(env::seed(), until, make) {
        Ok(histories) => println!("{name}: {histories} histories"),
        Err(violation) => panic!("{name}: {}", violation.report),
    }
}

#[test]
fn lists_that_switch_are_linearizable() {
    histories_are_linearizable::<List, Pushes, Ordered<Push>>("list, ordered");
}

#[test]
fn sets_that_switch_are_linearizable() {
    histories_are_linearizable::<Set, Toggles, Cancelling<Toggle>>("set, cancelling");
}

#[test]
fn sums_that_switch_are_linearizable() {
    histories_are_linearizable::<u64, Adds, SumLog>("sum, own log");
}

// ---- stress ----

/// A pair of equal numbers, and how often each thread has added.
#[derive(Debug, Default, Clone, PartialEq)]
struct Pairs {
    left: u64,
    right: u64,
    by_thread: [u64; 4],
}

#[derive(Debug, Clone, Copy)]
struct Both {
    thread: usize,
    number: u64,
}

impl Op<Pairs> for Both {
    fn apply(self, pairs: &mut Pairs) {
        pairs.left += self.number;
        assert_eq!(pairs.by_thread[self.thread] + 1, self.number, "order of {}", self.thread);
        pairs.by_thread[self.thread] = self.number;
        pairs.right += self.number;
    }
}

fn stress<L: Log<Pairs, Op = Both>>(seed: u64, limit: Duration) {
    let object = Adaptive::<Pairs, L>::new(Pairs::default());
    let until = env::soak(limit);
    let live = |thread: usize| {
        let mut rng = Rng::part(seed, thread as u64);
        let mut done = 0;
        while std::time::Instant::now() < until {
            // Phases of its own, so that the object has reason to change by itself, too.
            let share = *rng.pick(&[1, 50, 99]);
            for _ in 0..2_000 {
                if rng.below(100) < share {
                    done += 1;
                    object.update(Both { thread, number: done });
                } else {
                    let seen = object.read();
                    assert_eq!(seen.left, seen.right, "a torn read");
                    assert_eq!(seen.by_thread[thread], done, "a read without one's own updates");
                }
            }
            match rng.below(4) {
                0 => drop(object.pin(*rng.pick(&MODES))),
                1 => object.unpin(),
                2 => drop(object.stats()),
                _ => assert!(object.change(|pairs| pairs.by_thread[thread]) == done),
            }
        }
        done
    };
    let done: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || live(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker panicked")).collect()
    });
    println!("{} updates, {:?}", done.iter().sum::<u64>(), object.stats());
    assert_eq!(object.into_inner().by_thread[..], done[..]);
}

#[test]
fn stress_loses_and_repeats_nothing() {
    let _alone = env::alone();
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    stress::<Ordered<Both>>(seed, Duration::from_millis(1_000));
}

// ---- the sequential type ----

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_steps_equal_the_sequential_list(steps in prop::collection::vec(0..20_u8, 1..120)) {
        let object = Adaptive::<List, Ordered<Push>>::new(List::new());
        let mut model = List::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                0..9 => {
                    object.update(Push(at as u8));
                    model.push(at as u8);
                }
                9..13 => prop_assert_eq!(&*object.read(), &model),
                13 => prop_assert_eq!(&*object.try_read().unwrap(), &model),
                14 => {
                    let last = object.change(|list| list.pop());
                    prop_assert_eq!(last, model.pop());
                }
                15 => {
                    let guard = object.read();
                    let seen = guard.clone();
                    object.update(Push(at as u8)); // waits for the guard
                    prop_assert_eq!(&*guard, &seen);
                    model.push(at as u8);
                }
                16 => object.unpin(),
                _ => {
                    let mode = MODES[usize::from(step) - 17];
                    prop_assert!(object.pin(mode));
                    prop_assert_eq!(object.mode(), mode);
                }
            }
        }
        prop_assert_eq!(object.into_inner(), model);
    }
}

// ---- the policy ----

type Sum = Adaptive<u64, Commuting<Add>>;

/// Does this many rounds of updates and reads, in turn.
fn load(sum: &Sum, rounds: u64, updates: u64, reads: u64) {
    for _ in 0..rounds {
        (0..updates).for_each(|_| sum.update(Add(1)));
        (0..reads).for_each(|_| assert!(*sum.read() < u64::MAX));
    }
}

/// Does the same as [`load`] on two threads, half of it on each.
fn load_by_two(sum: &Sum, rounds: u64, updates: u64, reads: u64) {
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| load(sum, rounds / 2, updates, reads));
        }
    });
}

#[test]
fn updates_of_one_thread_alone_leave_a_lock() {
    let sum = Sum::new(0);
    load(&sum, 100, 1_000, 0);
    assert_eq!(sum.mode(), Mode::Direct);
}

/// Loads the object until it is in `mode`.
fn settles(sum: &Sum, mode: Mode, load: impl Fn(&Sum)) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while sum.mode() != mode {
        assert!(std::time::Instant::now() < until, "{mode:?}: {:?}", sum.stats());
        load(sum);
    }
}

/// Updates on two threads, each of which sleeps in a few reads. So the other one waits for the
/// lock, also where other programs leave little time on a second processor.
fn contend(sum: &Sum) {
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50 {
                    (0..100).for_each(|_| sum.update(Add(1)));
                    let held = sum.read();
                    thread::sleep(Duration::from_micros(50));
                    drop(held);
                }
            });
        }
    });
}

#[test]
fn load_decides_the_mode_both_ways() {
    let _alone = env::alone();
    let sum = Sum::new(0);
    assert_eq!(sum.mode(), Mode::Direct);
    for _ in 0..2 {
        settles(&sum, Mode::Shared, |sum| load_by_two(sum, 100, 1, 1_000));
        settles(&sum, Mode::Direct, |sum| load_by_two(sum, 100, 1, 1));
        // Logs take several waits for the lock in a short time. On one processor there are none.
        if thread::available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            settles(&sum, Mode::Logs, contend);
            settles(&sum, Mode::Direct, |sum| load_by_two(sum, 100, 1, 1));
        }
    }
}

#[test]
fn mixed_load_of_one_thread_stays_a_lock() {
    for (updates, reads) in [(1, 1), (1, 3), (9, 1)] {
        let sum = Sum::new(0);
        for _ in 0..50 {
            load(&sum, 100, updates, reads);
            assert_eq!(sum.mode(), Mode::Direct);
        }
    }
}

/// Three threads keep one ratio of updates to reads for long: the object must settle on a mode.
#[test]
fn long_load_of_one_ratio_does_not_flap() {
    let _alone = env::alone();
    for (updates, reads) in [(4, 1), (1, 1), (1, 4), (200, 1), (1, 200)] {
        let sum = Sum::new(0);
        let until = env::soak(Duration::from_millis(300));
        let (mut mode, mut switches) = (sum.mode(), 0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while std::time::Instant::now() < until {
                        load(&sum, 10, updates, reads);
                    }
                });
            }
            while std::time::Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
                let now = sum.mode();
                switches += usize::from(now != mode);
                mode = now;
            }
        });
        println!("{updates}:{reads}: {switches} changes of mode seen; {:?}", sum.stats());
        assert!(switches <= 40, "{updates}:{reads}: {switches} changes");
    }
}

#[test]
fn pinned_object_stays() {
    for mode in MODES {
        let sum = Sum::new(0);
        assert!(sum.pin(mode));
        load(&sum, 50, 1_000, 1);
        load(&sum, 50, 1, 1_000);
        assert_eq!(sum.mode(), mode);
        sum.unpin();
        settles(&sum, Mode::Shared, |sum| load_by_two(sum, 100, 1, 1_000));
    }
}

#[test]
fn plain_object_is_three_words() {
    assert_eq!(size_of::<Sum>(), size_of::<u64>() + 24);
}

// ---- while reading ----

#[test]
fn update_under_ones_own_guard_is_seen_by_the_next_read() {
    for mode in MODES {
        let sum = Sum::new(0);
        assert!(sum.pin(mode));
        for round in 0..3 {
            let guard = sum.read();
            sum.update(Add(1));
            assert_eq!(*guard, round);
            drop(guard);
            assert_eq!(*sum.read(), round + 1);
        }
        drop(sum.read());
        sum.update(Add(1));
        assert_eq!(sum.into_inner(), 4);
    }
}

#[test]
fn update_from_within_an_update_is_applied() {
    use std::sync::Arc;
    type Nested = Adaptive<u64, Commuting<Box<dyn FnOnce(&mut u64) + Send>>>;
    for mode in MODES {
        let sum = Arc::new(Nested::new(0));
        assert!(sum.pin(mode));
        let inner = Arc::clone(&sum);
        sum.update(Box::new(move |value| {
            *value += 1;
            inner.update(Box::new(|value| *value += 10));
        }));
        drop(sum.read());
        assert_eq!(*sum.read(), 11, "{mode:?}");
    }
}

#[test]
fn shared_readers_are_inside_together() {
    let sum = Sum::new(5);
    assert!(sum.pin(Mode::Shared));
    drop(sum.read());
    let guard = sum.read();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            drop(sum.read());
            *sum.read()
        });
        assert_eq!(other.join().unwrap(), 5); // or this waits for ever
        scope.spawn(|| sum.update(Add(1)));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(*guard, 5);
        drop(guard);
    });
    assert_eq!(*sum.read(), 6);
}

#[test]
fn whoever_holds_the_object_is_told_instead_of_waiting_for_itself() {
    for mode in MODES {
        let sum = Sum::new(5);
        assert!(sum.pin(mode));
        drop(sum.read());
        let guard = sum.read();
        assert!(!sum.pin(Mode::Logs) || mode == Mode::Logs);
        let refused = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
        assert!(refused(&|| sum.change(|_| ())), "{mode:?}");
        assert!(refused(&|| sum.unpin()), "{mode:?}");
        assert_eq!(sum.mode(), mode);
        assert_eq!(*guard, 5);
        drop(guard);
        assert_eq!(sum.change(|sum| *sum), 5);
    }
}

// ---- panics ----

/// An update that pushes its number, or panics if the number is 13.
#[derive(Debug, Clone, Copy)]
struct Fragile(u8);

impl Op<List> for Fragile {
    fn apply(self, list: &mut List) {
        assert_ne!(self.0, 13, "planned");
        list.push(self.0);
    }
}

#[test]
fn panic_in_an_update_poisons_and_loses_no_other_update() {
    for mode in MODES {
        let list = Adaptive::<List, Ordered<Fragile>>::new(List::new());
        assert!(list.pin(mode));
        let caught = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f));
        let _ = caught(&|| {
            list.update(Fragile(1));
            list.update(Fragile(13));
            drop(list.read());
        });
        list.update(Fragile(2));
        assert!(list.is_poisoned(), "{mode:?}");
        assert!(caught(&|| drop(list.read())).is_err(), "{mode:?}");
        assert!(caught(&|| list.change(|_| ())).is_err(), "{mode:?}");
        assert_eq!(list.try_read().unwrap_err(), TryReadError::Poisoned);
        list.repair(|list| list.push(100));
        list.update(Fragile(3));
        assert_eq!(*list.read(), [1, 100, 2, 3], "{mode:?}");
        list.unpin();
        assert_eq!(list.into_inner(), [1, 100, 2, 3]);
    }
}

#[test]
fn panic_of_a_reader_does_not_poison() {
    for mode in MODES {
        let sum = Sum::new(1);
        assert!(sum.pin(mode));
        for _ in 0..2 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _guard = sum.read();
                panic!("planned");
            }));
            assert!(caught.is_err());
            sum.update(Add(1));
        }
        assert_eq!(*sum.read(), 3, "{mode:?}");
    }
}

#[test]
fn panic_in_a_change_poisons() {
    for mode in MODES {
        let sum = Sum::new(1);
        assert!(sum.pin(mode));
        let caught = catch_unwind(AssertUnwindSafe(|| sum.change(|_| panic!("planned"))));
        assert!(caught.is_err() && sum.is_poisoned(), "{mode:?}");
        assert_eq!(sum.repair(|sum| *sum), 1);
        assert_eq!(*sum.read(), 1);
    }
}

#[test]
fn dropped_object_applies_what_waits() {
    use std::sync::Arc;
    #[derive(Default)]
    struct Witness(Arc<AtomicU64>);
    struct Count;
    impl Op<Witness> for Count {
        fn apply(self, witness: &mut Witness) {
            witness.0.fetch_add(1, SeqCst);
        }
    }
    for mode in MODES {
        let seen = Arc::new(AtomicU64::new(0));
        let object = Adaptive::<Witness, Commuting<Count>>::new(Witness(Arc::clone(&seen)));
        assert!(object.pin(mode));
        let guard = object.read();
        object.update(Count); // waits
        drop(guard);
        drop(object);
        assert_eq!(seen.load(SeqCst), 1, "{mode:?}");
    }
}

#[test]
fn forgotten_reader_of_an_ended_thread_does_not_stop_reads() {
    let sum: &Sum = Box::leak(Box::new(Sum::new(1)));
    assert!(sum.pin(Mode::Shared));
    thread::spawn(move || {
        drop(sum.read());
        std::mem::forget(sum.read());
    })
    .join()
    .unwrap();
    for _ in 0..3 {
        assert_eq!(thread::spawn(move || *sum.read()).join().unwrap(), 1);
    }
}
