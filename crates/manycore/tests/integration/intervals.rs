//! `IntervalRegistry` and `ActiveSet` from outside: compared with a list, on several threads, and
//! when values are dropped.

use crate::common::{env, rng::Rng};
use manycore::collections::{Active, ActiveSet, IntervalRegistry};
use manycore::ldu::Queue;
use manycore::oplog::Logs;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

/// Returns a registry for every way to keep intervals.
fn registries<V: Send + Sync + 'static>() -> Vec<IntervalRegistry<u32, V>> {
    let logged = |logs| IntervalRegistry::builder().logs(logs).build().unwrap();
    let marked = |queue| IntervalRegistry::builder().marks(queue).build().unwrap();
    vec![
        logged(Logs::Auto),
        logged(Logs::Always),
        logged(Logs::Never),
        IntervalRegistry::builder().logs(Logs::Always).max_entries(2).build().unwrap(),
        marked(Queue::PerThread),
        marked(Queue::Global),
        IntervalRegistry::builder().marks(Queue::PerThread).max_entries(2).build().unwrap(),
    ]
}

fn range(rng: &mut Rng) -> Range<u32> {
    let start = rng.below(200) as u32;
    start..start + 1 + rng.below(30) as u32
}

fn overlap(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

#[test]
fn registry_answers_like_a_list() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    for registry in registries() {
        let mut rng = Rng::new(seed);
        let mut alive = BTreeMap::new();
        for number in 0..2_000_u32 {
            match rng.below(5) {
                0..2 => drop(alive.insert(number, registry.add(range(&mut rng), number))),
                2 => drop(alive.pop_first()),
                3 => drop(registry.add(range(&mut rng), number)),
                _ => {
                    let asked = range(&mut rng);
                    let mut seen = registry.overlapping(asked.clone());
                    seen.sort_unstable();
                    let all = alive.iter();
                    let expected = all.filter(|(_, one)| overlap(one.range(), &asked));
                    let expected: Vec<_> = expected.map(|(number, _)| *number).collect();
                    assert_eq!(seen, expected, "{registry:?}, seed {seed:#x}");
                }
            }
        }
        assert_eq!(registry.len(), alive.len());
        alive.into_values().for_each(|interval| interval.remove());
        assert!(registry.is_empty());
    }
}

/// Intervals pass between threads. Each thread finds its own intervals, whole, and ordered by their
/// beginnings.
#[test]
fn threads_find_their_own_intervals() {
    for registry in registries::<Arc<(u32, Range<u32>)>>() {
        let counted = Arc::new((u32::MAX, 0..400));
        // Present throughout, and overlapping all others.
        let kept = registry.add(0..400, Arc::clone(&counted));
        let check = |name: u32, mut rng: Rng| {
            for _ in 0..200 {
                let own = range(&mut rng);
                let value = Arc::new((name, own.clone()));
                let interval = registry.add(own.clone(), Arc::clone(&value));
                let mut last = 0;
                let mut found = false;
                registry.for_overlapping(own.clone(), |at, other| {
                    assert!(overlap(at, &own) && *at == other.1 && at.start >= last);
                    last = at.start;
                    found |= Arc::ptr_eq(other, &value);
                });
                assert!(found, "{registry:?}: an own interval is missing");
                if rng.once_in(2) {
                    thread::scope(|s| drop(s.spawn(move || drop(interval))));
                }
            }
        };
        thread::scope(|s| {
            for name in 0..3 {
                s.spawn(move || check(name, Rng::part(7, u64::from(name))));
            }
        });
        drop(kept);
        assert!(registry.is_empty(), "{registry:?}");
        drop(registry);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

#[test]
fn every_value_is_dropped_once_also_of_leaked_handles() {
    for registry in registries() {
        let counted = Arc::new(());
        let kept = registry.add(0..10, Arc::clone(&counted));
        let gone = registry.add(5..15, Arc::clone(&counted));
        assert_eq!(registry.overlapping(7..8).len(), 2);
        drop(gone);
        assert_eq!(registry.overlapping(7..8).len(), 1);
        assert_eq!(registry.len(), 1, "and the next call drops what is left");
        assert_eq!(Arc::strong_count(&counted), 2, "{registry:?}");
        drop(kept);
        drop(registry);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
    let counted = Arc::new(());
    let registry = IntervalRegistry::builder().marks(Queue::Global).build().unwrap();
    std::mem::forget(registry.add(0..1, Arc::clone(&counted)));
    drop(registry);
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn panic_in_a_question_does_no_harm_and_empty_ranges_are_refused() {
    for registry in registries() {
        let interval = registry.add(0..10, 1);
        let ask = || registry.for_overlapping(0..1, |_, _| panic!("planned"));
        assert!(catch_unwind(AssertUnwindSafe(ask)).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(registry.add(3..3, 1)))).is_err());
        assert_eq!(registry.overlapping(9..100), [1]);
        assert_eq!(registry.overlapping(5..5), [0; 0]);
        drop(interval);
    }
}

#[test]
fn oldest_is_the_smallest_of_those_who_are_active() {
    for queue in [Queue::PerThread, Queue::Global] {
        let set = ActiveSet::with_queue(queue);
        assert_eq!(set.oldest(), None);
        let seed = env::seed();
        let mut rng = Rng::new(seed);
        let mut alive = Vec::new();
        for _ in 0..2_000 {
            match rng.below(4) {
                0 | 1 => alive.push(set.register(rng.below(50))),
                2 if !alive.is_empty() => alive.swap_remove(rng.below(alive.len())).leave(),
                _ => {
                    let mut keys: Vec<_> = alive.iter().map(|one| **one).collect();
                    keys.sort_unstable();
                    assert_eq!(set.oldest(), keys.first().copied(), "seed {seed:#x}");
                    assert_eq!(set.snapshot(), keys);
                    assert_eq!(set.len(), keys.len());
                }
            }
        }
    }
}

/// Models the use of snapshots: data that an open snapshot can still see must not be cleaned up.
/// Each snapshot registers with the counter's earlier value, and takes its version afterwards.
#[test]
fn oldest_never_passes_a_version_that_is_in_use() {
    for queue in [Queue::PerThread, Queue::Global] {
        let set = ActiveSet::with_queue(queue);
        let (version, cleaned, stop) =
            (AtomicU64::new(1), AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    for _ in 0..3_000 {
                        let active = set.register(version.load(SeqCst));
                        let mine = version.fetch_add(1, SeqCst);
                        assert!(*active <= mine);
                        assert!(cleaned.load(SeqCst) <= mine, "{mine} was cleaned up");
                        drop(active);
                    }
                    stop.store(true, SeqCst);
                });
            }
            s.spawn(|| {
                while !stop.load(SeqCst) {
                    let now = version.load(SeqCst);
                    let bound = set.oldest().map_or(now, |oldest| oldest.min(now));
                    cleaned.fetch_max(bound, SeqCst);
                    thread::yield_now();
                }
            });
        });
        assert!(set.is_empty());
    }
}

/// A thread hands the smallest key to the next thread. To do so it registers the key again and
/// leaves the old handle, or it sends the old handle to a thread that does this. So the key is
/// present at every moment. Other threads' keys are larger, and come and go; some threads have more
/// keys than there are places.
#[test]
fn key_that_is_handed_over_is_the_oldest_at_every_moment() {
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    let set = &ActiveSet::new();
    let (sender, receiver) = mpsc::channel();
    let stop = &AtomicBool::new(false);
    thread::scope(|s| {
        let mut mine = set.register(1_u64);
        s.spawn(move || {
            let handed_over = catch_unwind(AssertUnwindSafe(|| {
                for round in 0..rounds {
                    let old = mem::replace(&mut mine, set.register(1));
                    match round % 3 {
                        0 => sender.send(old).unwrap(),
                        _ => old.leave(),
                    }
                    assert_eq!(set.oldest(), Some(1));
                }
            }));
            stop.store(true, SeqCst);
            drop((mine, sender));
            handed_over.unwrap();
        });
        s.spawn(move || receiver.into_iter().for_each(Active::leave));
        for thread in 0..2 {
            s.spawn(move || {
                let mut kept = VecDeque::new();
                let mut rng = Rng::new(thread);
                while !stop.load(SeqCst) {
                    kept.push_back(set.register(2 + rng.below(9) as u64));
                    if kept.len() > rng.below(if thread == 0 { 3 } else { 12 }) {
                        kept.pop_front();
                    }
                    let oldest = set.oldest();
                    let all = (rng.below(8) == 0).then(|| set.snapshot());
                    if !stop.load(SeqCst) {
                        assert_eq!(oldest, Some(1));
                        assert!(all.is_none_or(|all| all.is_sorted() && all[0] == 1));
                    }
                }
            });
        }
    });
    assert!(set.is_empty());
}

/// A key that can be told to panic, or to give a wrong order.
#[derive(Debug)]
struct Odd(u32, Arc<AtomicU64>);

const PANIC_IN_ORD: u64 = 1;
const PANIC_IN_CLONE: u64 = 2;
const LIE: u64 = 3;

impl Clone for Odd {
    fn clone(&self) -> Self {
        assert!(self.1.load(SeqCst) != PANIC_IN_CLONE, "planned");
        Self(self.0, Arc::clone(&self.1))
    }
}

impl PartialEq for Odd {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Odd {}
impl PartialOrd for Odd {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Odd {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.1.load(SeqCst) {
            PANIC_IN_ORD => panic!("planned"),
            LIE => other.0.cmp(&self.0),
            _ => self.0.cmp(&other.0),
        }
    }
}

/// No value is dropped twice, whatever the key's code does in a removal or an insertion.
#[test]
fn keys_that_panic_or_lie_cost_the_registry_and_no_value_twice() {
    for (queue, what, leaves) in [Queue::PerThread, Queue::Global].into_iter().flat_map(|queue| {
        let faults = [PANIC_IN_ORD, PANIC_IN_CLONE, LIE];
        faults.into_iter().flat_map(move |what| [true, false].map(|leaves| (queue, what, leaves)))
    }) {
        let (mode, counted) = (Arc::new(AtomicU64::new(0)), Arc::new(()));
        let odd = |at: u32| Odd(at, Arc::clone(&mode));
        let registry = IntervalRegistry::builder().marks(queue).build().unwrap();
        let add = |at: u32| registry.add(odd(at)..odd(at + 5), Arc::clone(&counted));
        let mut alive: Vec<_> = (0..20).map(|at| add(at * 3)).collect();
        assert_eq!(registry.len(), 20);
        // A change of the tree that goes wrong, and many that the set makes or forgets after it.
        if leaves {
            alive.drain(5..15).for_each(drop);
        } else {
            alive.extend((20..30).map(|at| add(at * 3)));
        }
        mode.store(what, SeqCst);
        let asked = catch_unwind(AssertUnwindSafe(|| registry.len()));
        assert!(asked.is_err() || what == LIE, "the fault was not met");
        drop(alive);
        let _ = catch_unwind(AssertUnwindSafe(|| registry.len()));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(registry)));
        assert_eq!(Arc::strong_count(&counted), 1, "{queue:?}, {what}, {leaves}");

        let set = ActiveSet::with_queue(queue);
        mode.store(0, SeqCst);
        let mut alive: Vec<_> = (0..20).map(|at| set.register(odd(at % 7))).collect();
        assert_eq!(set.len(), 20);
        mode.store(what, SeqCst);
        alive.drain(5..15).for_each(drop);
        let _ = catch_unwind(AssertUnwindSafe(|| set.len()));
        drop(alive);
        let _ = catch_unwind(AssertUnwindSafe(|| set.len()));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(set)));
        assert_eq!(Arc::strong_count(&mode), 1, "every key is dropped");
    }
}
