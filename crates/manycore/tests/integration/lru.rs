//! `Lru` from outside: the order of a sequential list, across threads, with user code that panics.

use manycore::collections::Lru;
use manycore::oplog::{Logs, Publish};
use proptest::prelude::*;
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Returns a list for every way to keep touches, and one that chooses by itself.
fn lists<K: Eq + Hash + Send + 'static>() -> Vec<Lru<K>> {
    let build = |logs, publish| Lru::builder().logs(logs).publish(publish).build().unwrap();
    vec![
        build(Logs::Auto, Publish::Auto),
        build(Logs::Always, Publish::Locked),
        build(Logs::Always, Publish::Biased),
        build(Logs::Never, Publish::Auto),
    ]
}

#[test]
fn least_recently_touched_keys_leave_first() {
    for list in lists() {
        (0..10).for_each(|key| list.touch(key));
        [3, 0, 7, 3].into_iter().for_each(|key| list.touch(key));
        list.remove(5);
        list.remove(99);
        assert_eq!(list.len(), 9);
        assert!(list.contains(&7) && !list.contains(&5));
        assert_eq!(list.evict(3), [1, 2, 4]);
        list.touch(1);
        assert_eq!(list.snapshot(), [6, 8, 9, 0, 7, 3, 1]);
        assert_eq!(list.evict(0), []);
        assert_eq!(list.evict(usize::MAX), [6, 8, 9, 0, 7, 3, 1]);
        assert!(list.is_empty());
    }
}

#[test]
fn log_keeps_one_entry_for_each_key() {
    let list = Lru::builder().logs(Logs::Always).build().unwrap();
    for _ in 0..100 {
        (0..30).for_each(|key| list.touch(key));
    }
    list.remove(29);
    let stats = list.stats();
    assert_eq!((stats.appended, stats.pending), (3001, 3001));
    assert!(list.snapshot().into_iter().eq(0..29));
    assert_eq!(list.stats().absorbed, 2971);
}

#[test]
fn full_log_is_merged_and_nothing_is_lost() {
    let list = Lru::builder().logs(Logs::Always).max_entries(7).build().unwrap();
    thread::scope(|s| {
        for me in 0..3 {
            let list = &list;
            s.spawn(move || (0..1000).for_each(|i| list.touch(me * 1000 + i)));
        }
    });
    assert_eq!(list.len(), 3000);
    let order = list.evict(usize::MAX);
    for me in 0..3 {
        let own = order.iter().copied().filter(|key| key / 1000 == me);
        assert!(own.eq(me * 1000..(me + 1) * 1000), "a thread's own order is kept");
    }
}

/// Threads pass a baton. Each touch happens after the previous touch, on another thread.
#[test]
fn order_holds_across_threads() {
    const STEPS: usize = 3_000;
    const KEYS: usize = 50;
    let key = |step: usize| step.wrapping_mul(7919) % KEYS;
    for list in lists() {
        let turn = AtomicUsize::new(0);
        thread::scope(|s| {
            for me in 0..3 {
                let (list, turn) = (&list, &turn);
                s.spawn(move || {
                    for step in (me..STEPS).step_by(3) {
                        while turn.load(Ordering::Acquire) != step {
                            thread::yield_now();
                        }
                        if step % 5 == 4 {
                            list.remove(key(step))
                        } else {
                            list.touch(key(step))
                        }
                        turn.store(step + 1, Ordering::Release);
                    }
                });
            }
            for _ in 0..20 {
                assert!(list.len() <= KEYS); // merges in between change nothing
                thread::yield_now();
            }
        });
        let mut model: Vec<usize> = Vec::new();
        for step in 0..STEPS {
            model.retain(|other| *other != key(step));
            if step % 5 != 4 {
                model.push(key(step));
            }
        }
        assert_eq!(list.evict(usize::MAX), model);
    }
}

#[test]
fn evictions_and_touches_at_once_conserve_keys() {
    for list in lists() {
        let evicted = thread::scope(|s| {
            let touching: Vec<_> = (0..3)
                .map(|me| {
                    let list = &list;
                    s.spawn(move || (0..5_000).for_each(|i| list.touch(me * 5_000 + i)))
                })
                .collect();
            let mut evicted = Vec::new();
            while touching.iter().any(|thread| !thread.is_finished()) {
                evicted.extend(list.evict(64));
            }
            evicted
        });
        let mut all: Vec<_> = evicted.into_iter().chain(list.evict(usize::MAX)).collect();
        all.sort();
        assert!(all.into_iter().eq(0..15_000), "a key was lost or evicted twice");
    }
}

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
}

/// A key that panics in its hash, comparison or drop while `ARMED`.
#[derive(Debug, Clone)]
struct Touchy {
    key: u32,
    in_hash: bool,
    in_eq: bool,
    in_drop: bool,
}

impl Touchy {
    fn calm(key: u32) -> Self {
        Self { key, in_hash: false, in_eq: false, in_drop: false }
    }

    fn check(&self, armed: bool) {
        assert!(!(armed && ARMED.get()), "planned");
    }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.check(self.in_hash);
        0.hash(state); // all collide, so that `Eq` runs
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.check(self.in_eq || other.in_eq);
        self.key == other.key
    }
}

impl Eq for Touchy {}

impl Drop for Touchy {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.check(self.in_drop);
        }
    }
}

fn armed<R>(f: impl FnOnce() -> R) -> thread::Result<R> {
    ARMED.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    ARMED.set(false);
    result
}

#[test]
fn panic_in_user_code_leaves_the_list_in_order() {
    let wild = [
        Touchy { in_hash: true, ..Touchy::calm(2) },
        Touchy { in_eq: true, ..Touchy::calm(2) },
        Touchy { in_drop: true, ..Touchy::calm(2) },
    ];
    for wild in wild {
        for list in lists() {
            (0..4).for_each(|key| list.touch(Touchy::calm(key)));
            // In the caller's hands or in `push`.
            assert!(armed(|| list.touch(wild.clone())).is_err() || wild.in_drop);
            // In a merge: each thread's log has what it has, and only merging compares them.
            thread::scope(|s| {
                s.spawn(|| list.touch(wild.clone()));
                s.spawn(|| list.touch(Touchy::calm(4)));
                s.spawn(|| list.touch(Touchy::calm(1)));
            });
            let _ = armed(|| list.len());
            let mut keys: Vec<_> = list.snapshot().iter().map(|key| key.key).collect();
            keys.sort();
            let lost = keys.iter().filter(|key| !(0..5).contains(*key)).count();
            assert_eq!(lost, 0);
            assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?} has a key twice");
            assert!(keys.len() >= 4, "{keys:?}: more than the update in hand was lost");
            assert_eq!(list.evict(usize::MAX).len(), keys.len());
            list.touch(Touchy::calm(9));
            assert_eq!(list.len(), 1);
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Touch(u8),
    Remove(u8),
    Evict(usize),
    Look(u8),
}

/// Generates steps, each with the worker that does it.
fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let key = 0..24_u8;
    let step = prop_oneof![
        8 => key.clone().prop_map(Step::Touch),
        3 => key.clone().prop_map(Step::Remove),
        1 => (0..6_usize).prop_map(Step::Evict),
        1 => key.prop_map(Step::Look),
    ];
    proptest::collection::vec((0..3_usize, step), 0..150)
}

fn run_model(model: &mut Vec<u8>, step: Step) -> Vec<u8> {
    match step {
        Step::Touch(key) => {
            model.retain(|other| *other != key);
            model.push(key);
            Vec::new()
        }
        Step::Remove(key) => {
            model.retain(|other| *other != key);
            Vec::new()
        }
        Step::Evict(count) => model.drain(..count.min(model.len())).collect(),
        Step::Look(key) => vec![u8::from(model.contains(&key)), model.len() as u8],
    }
}

fn run(list: &Lru<u8>, step: Step) -> Vec<u8> {
    match step {
        Step::Touch(key) => {
            list.touch(key);
            Vec::new()
        }
        Step::Remove(key) => {
            list.remove(key);
            Vec::new()
        }
        Step::Evict(count) => list.evict(count),
        Step::Look(key) => vec![u8::from(list.contains(&key)), list.len() as u8],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any sequence of steps, spread over threads, gives what a sequential list gives.
    #[test]
    fn behaves_like_a_sequential_list(steps in steps(), max_entries in 1..20_usize, always: bool) {
        let logs = if always { Logs::Always } else { Logs::Auto };
        let list = Lru::builder().logs(logs).max_entries(max_entries).build().unwrap();
        let mut model = Vec::new();
        thread::scope(|s| {
            let workers: Vec<_> = (0..3)
                .map(|_| {
                    let (give, take) = mpsc::channel();
                    let (answer, answers) = mpsc::channel();
                    let list = &list;
                    s.spawn(move || {
                        take.into_iter().for_each(|step| answer.send(run(list, step)).unwrap());
                    });
                    (give, answers)
                })
                .collect();
            for (worker, step) in steps {
                workers[worker].0.send(step).unwrap();
                assert_eq!(workers[worker].1.recv().unwrap(), run_model(&mut model, step));
            }
        });
        prop_assert_eq!(list.evict(usize::MAX), model);
    }
}
