//! Distributed references: the value is dropped once, with the last handle, hot or cold.

use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::{ScalableArc, ScalableWeak};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const ALIVE: usize = 0x11fe;
const DEAD: usize = 0xdead;

/// A value that counts its drops, and knows whether it is alive.
struct Canary {
    state: AtomicUsize,
    dropped: Arc<AtomicUsize>,
}

impl Canary {
    fn new(dropped: &Arc<AtomicUsize>) -> Self {
        Self { state: AtomicUsize::new(ALIVE), dropped: Arc::clone(dropped) }
    }

    fn sing(&self) {
        assert_eq!(self.state.load(SeqCst), ALIVE, "a dead canary sang");
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        assert_eq!(self.state.swap(DEAD, SeqCst), ALIVE, "dropped twice");
        self.dropped.fetch_add(1, SeqCst);
    }
}

fn canary() -> (ScalableArc<Canary>, Arc<AtomicUsize>) {
    let dropped = Arc::default();
    (ScalableArc::new(Canary::new(&dropped)), dropped)
}

fn is_send_and_sync<T: Send + Sync>() {}

/// A thread makes and drops objects one after another at one address. No other thread changes it,
/// so the objects must not become distributed.
#[test]
fn objects_of_one_place_do_not_become_distributed() {
    for before in 0..100 {
        for value in 0..before {
            let first = ScalableArc::new(value);
            assert!(!ScalableArc::is_hot(&first.clone()));
        }
        let owner = ScalableArc::new(before);
        let clones: Vec<_> = (0..before).map(|_| owner.clone()).collect();
        assert!(!ScalableArc::is_hot(&owner), "after {before}");
        drop(owner);
        drop(clones);
    }
}

/// Two threads clone and drop in turn. A whole pair by the other thread leaves the number of
/// handles as it was.
#[test]
fn pairs_of_two_threads_in_turn_make_the_object_distributed() {
    let (owner, turn) = (ScalableArc::new(0), Barrier::new(2));
    thread::scope(|scope| {
        for me in 0..2 {
            let (owner, turn) = (&owner, &turn);
            scope.spawn(move || {
                for round in 0..100 {
                    if round % 2 == me {
                        drop(owner.clone());
                    }
                    turn.wait();
                }
            });
        }
    });
    assert!(ScalableArc::is_hot(&owner));
}

/// A thread that comes back to one object after using another has no note of the first.
#[test]
fn two_objects_in_turn_keep_their_counts() {
    let (one, other) = (ScalableArc::new(1), ScalableArc::new(2));
    for n in 1..50 {
        let ones: Vec<_> = (0..n).map(|_| (one.clone(), other.clone())).collect();
        assert_eq!(ScalableArc::strong_count(&one), n + 1);
        assert_eq!(ScalableArc::strong_count(&other), n + 1);
        drop(ones);
    }
    assert!(!ScalableArc::is_hot(&one) && !ScalableArc::is_hot(&other));
}

#[test]
fn handle_is_a_word_and_has_a_niche() {
    assert_eq!(size_of::<ScalableArc<u64>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<ScalableArc<u64>>>(), size_of::<usize>());
    is_send_and_sync::<ScalableArc<u64>>();
    is_send_and_sync::<ScalableWeak<u64>>();
}

#[test]
fn cold_object_counts_like_an_arc() {
    let (first, dropped) = canary();
    let second = first.clone();
    assert!(ScalableArc::ptr_eq(&first, &second));
    assert_eq!(ScalableArc::strong_count(&first), 2);
    assert!(!ScalableArc::is_hot(&first));
    drop(first);
    second.sing();
    assert_eq!(dropped.load(SeqCst), 0);
    drop(second);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn hot_object_dies_with_its_last_handle_whichever_that_is() {
    for owner_goes_last in [false, true] {
        let (owner, dropped) = canary();
        assert!(ScalableArc::promote(&owner));
        let mut handles: Vec<_> = (0..10).map(|_| owner.clone()).collect();
        assert_eq!(ScalableArc::strong_count(&owner), 11);
        handles.truncate(3);
        assert_eq!(ScalableArc::strong_count(&owner), 4);
        if owner_goes_last {
            drop(handles);
            assert_eq!(dropped.load(SeqCst), 0);
            drop(owner);
        } else {
            drop(owner);
            assert_eq!(dropped.load(SeqCst), 0);
            assert_eq!(ScalableArc::strong_count(&handles[0]), 3);
            assert!(!ScalableArc::is_hot(&handles[0]));
            drop(handles);
        }
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

#[test]
fn object_becomes_hot_fifteen_times_and_works_on() {
    let (mut handle, dropped) = canary();
    for round in 0..20 {
        assert_eq!(ScalableArc::promote(&handle), round < 15, "round {round}");
        let next = handle.clone();
        assert_eq!(ScalableArc::strong_count(&next), 2);
        handle = next; // drops the owner
        assert!(!ScalableArc::is_hot(&handle));
        assert_eq!(ScalableArc::strong_count(&handle), 1);
    }
    assert_eq!(dropped.load(SeqCst), 0);
    drop(handle);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn demoted_object_counts_in_one_word_again() {
    let (owner, dropped) = canary();
    assert!(ScalableArc::promote(&owner));
    assert!(ScalableArc::promote(&owner), "it is hot already");
    let handles: Vec<_> = (0..5).map(|_| owner.clone()).collect();
    ScalableArc::demote(&handles[2]);
    ScalableArc::demote(&owner);
    assert!(!ScalableArc::is_hot(&owner));
    assert_eq!(ScalableArc::strong_count(&owner), 6);
    drop((owner, handles));
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn contention_promotes() {
    if !env::has_two_cores() {
        return;
    }
    let (owner, dropped) = canary();
    let is_hot = AtomicBool::new(false);
    let end = Instant::now() + Duration::from_secs(60);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !is_hot.load(SeqCst) && Instant::now() < end {
                    (0..1000).for_each(|_| drop(owner.clone()));
                    if ScalableArc::is_hot(&owner) {
                        is_hot.store(true, SeqCst);
                    }
                }
            });
        }
    });
    assert!(is_hot.into_inner(), "two contending threads never made the object hot");
    assert_eq!(ScalableArc::strong_count(&owner), 1);
    drop(owner);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn weak_handle_upgrades_until_the_last_strong_one_goes() {
    for hot in [false, true] {
        let (owner, dropped) = canary();
        let weak = ScalableArc::downgrade(&owner);
        assert_eq!(ScalableArc::promote(&owner) && !hot, !hot);
        if !hot {
            ScalableArc::demote(&owner);
        }
        let other = weak.clone();
        assert!(weak.ptr_eq(&other));
        assert_eq!(ScalableArc::weak_count(&owner), 2);
        let upgraded = weak.upgrade().expect("there is an owner");
        drop(owner);
        upgraded.sing();
        assert_eq!(other.strong_count(), 1);
        drop(upgraded);
        assert_eq!(dropped.load(SeqCst), 1);
        assert!(weak.upgrade().is_none());
        assert_eq!(weak.strong_count(), 0);
    }
}

#[test]
fn retired_object_is_found_no_more_and_lives_on() {
    for hot in [false, true] {
        let (owner, dropped) = canary();
        let weak = ScalableArc::downgrade(&owner);
        if hot {
            assert!(ScalableArc::promote(&owner));
        }
        let handle = weak.upgrade().unwrap();
        assert!(!ScalableArc::is_retired(&owner));
        assert!(ScalableArc::retire(&owner));
        assert!(!ScalableArc::retire(&handle), "once");
        assert!(ScalableArc::is_retired(&handle) && weak.upgrade().is_none());
        assert!(!ScalableArc::promote(&owner), "it stays cold");
        drop(owner);
        handle.clone().sing();
        assert_eq!(dropped.load(SeqCst), 0);
        drop(handle);
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

#[test]
fn value_is_unwrapped_by_the_last_handle_alone() {
    for hot in [false, true] {
        let (owner, dropped) = canary();
        if hot {
            assert!(ScalableArc::promote(&owner));
        }
        let handle = owner.clone();
        let owner = ScalableArc::try_unwrap(owner).err().expect("there are two");
        let handle = ScalableArc::try_unwrap(handle).err().expect("there are two");
        assert!(ScalableArc::into_inner(owner).is_none());
        let weak = ScalableArc::downgrade(&handle);
        let value = ScalableArc::try_unwrap(handle).ok().expect("it is the last");
        assert!(weak.upgrade().is_none());
        value.sing();
        assert_eq!(dropped.load(SeqCst), 0);
        drop(value);
        assert_eq!(dropped.load(SeqCst), 1);
        let (owner, dropped) = canary();
        ScalableArc::into_inner(owner).expect("the last").sing();
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

#[test]
fn value_that_panics_when_dropped_counts_as_dropped() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("boom");
        }
    }
    for hot in [false, true] {
        let owner = ScalableArc::new(Bomb);
        let weak = ScalableArc::downgrade(&owner);
        if hot {
            assert!(ScalableArc::promote(&owner));
        }
        let handle = owner.clone();
        drop(owner);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(handle))).is_err());
        assert!(weak.upgrade().is_none());
    }
}

#[test]
fn handle_in_a_thread_local_is_dropped_with_its_thread() {
    thread_local! {
        static KEPT: RefCell<Vec<ScalableArc<Canary>>> = const { RefCell::new(Vec::new()) };
    }
    let (owner, dropped) = canary();
    assert!(ScalableArc::promote(&owner));
    for _ in 0..50 {
        thread::scope(|s| {
            s.spawn(|| KEPT.with_borrow_mut(|kept| kept.extend([owner.clone(), owner.clone()])));
        });
    }
    // Thread-locals may be dropped after the scope's end.
    let end = Instant::now() + Duration::from_secs(60);
    while ScalableArc::strong_count(&owner) > 1 && Instant::now() < end {
        thread::yield_now();
    }
    assert_eq!(ScalableArc::strong_count(&owner), 1);
    drop(owner);
    assert_eq!(dropped.load(SeqCst), 1);
}

#[test]
fn handle_of_a_value_of_great_alignment_leads_to_it() {
    #[repr(align(256))]
    struct Wide(u64);
    let wide = ScalableArc::new(Wide(7));
    assert!(ScalableArc::promote(&wide));
    let other = wide.clone();
    assert_eq!(ScalableArc::as_ptr(&other).addr() % 256, 0);
    assert_eq!(other.0, 7);
}

#[test]
fn handle_compares_and_prints_like_its_value() {
    let one: ScalableArc<u32> = 1.into();
    assert_eq!(one, ScalableArc::new(1));
    assert!(one < ScalableArc::new(2) && !ScalableArc::ptr_eq(&one, &ScalableArc::new(1)));
    assert_eq!((format!("{one}"), format!("{one:?}")), ("1".into(), "1".into()));
    assert_eq!(*ScalableArc::<u32>::default(), 0);
    let set = std::collections::HashSet::from([one.clone()]);
    assert!(set.contains(&1_u32));
}

/// Does one random thing with the handles of a thread of the stress test, or with those in the
/// pool.
fn act(rng: &mut Rng, mine: &mut Vec<ScalableArc<Canary>>, pool: &Pool, weak: &[Weak]) {
    match rng.below(100) {
        0..40 if !mine.is_empty() => {
            let handle = rng.pick(mine).clone();
            handle.sing();
            mine.push(handle);
        }
        40..75 if !mine.is_empty() => drop(mine.swap_remove(rng.below(mine.len()))),
        75..82 if !mine.is_empty() => {
            pool.lock().unwrap().push(mine.swap_remove(rng.below(mine.len())));
        }
        82..89 => mine.extend(pool.lock().unwrap().pop()),
        89..95 => mine.extend(rng.pick(weak).upgrade()),
        95 if !mine.is_empty() => drop(ScalableArc::promote(rng.pick(mine))),
        96 if !mine.is_empty() => ScalableArc::demote(rng.pick(mine)),
        97 if !mine.is_empty() && rng.once_in(20) => drop(ScalableArc::retire(rng.pick(mine))),
        98 if !mine.is_empty() => {
            let taken = mine.swap_remove(rng.below(mine.len()));
            match ScalableArc::try_unwrap(taken) {
                Ok(value) => value.sing(),
                Err(handle) => mine.push(handle),
            }
        }
        _ => mine.iter().for_each(|handle| handle.sing()),
    }
}

type Pool = Mutex<Vec<ScalableArc<Canary>>>;
type Weak = ScalableWeak<Canary>;

/// Handles of some objects pass between threads that start and end, until all are dropped.
#[test]
fn stressed_objects_are_dropped_exactly_once() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let end = env::deadline("MANYCORE_STRESS_SECONDS", Duration::from_secs(1));
    for round in 0.. {
        if Instant::now() > end {
            break;
        }
        let (objects, dropped) = (4, Arc::default());
        let first: Vec<_> = (0..objects).map(|_| ScalableArc::new(Canary::new(&dropped))).collect();
        let weak: Vec<_> = first.iter().map(ScalableArc::downgrade).collect();
        let pool = Mutex::new(first);
        thread::scope(|s| {
            for thread in 0..4 {
                let (pool, weak) = (&pool, &weak);
                s.spawn(move || {
                    let mut rng = Rng::part(seed, round * 8 + thread);
                    let mut mine = Vec::new();
                    for _ in 0..5000 {
                        act(&mut rng, &mut mine, pool, weak);
                    }
                });
            }
        });
        drop(pool);
        assert_eq!(dropped.load(SeqCst), objects, "round {round} of MANYCORE_SEED={seed:#x}");
        assert!(weak.iter().all(|weak| weak.upgrade().is_none()));
    }
}

/// One thread makes handles and another drops them, so one row grows and the other sinks.
#[test]
fn handles_made_here_and_dropped_there_add_up() {
    let (owner, dropped) = canary();
    assert!(ScalableArc::promote(&owner));
    let (give, take) = mpsc::sync_channel(64);
    thread::scope(|s| {
        s.spawn(|| take.into_iter().for_each(|handle: ScalableArc<Canary>| handle.sing()));
        (0..20_000).for_each(|_| give.send(owner.clone()).unwrap());
        drop(give);
    });
    assert_eq!(ScalableArc::strong_count(&owner), 1);
    drop(owner);
    assert_eq!(dropped.load(SeqCst), 1);
}

/// A model of a directory entry; both words change together.
#[derive(Default)]
struct Entry([AtomicUsize; 2]);

#[test]
fn handle_by_generation_is_of_an_entry_that_did_not_change_meanwhile() {
    for promote in [false, true] {
        let entry = ScalableArc::new(Entry::default());
        assert!(!promote || ScalableArc::promote(&entry));
        let weak = ScalableArc::downgrade(&entry);
        let (stop, found) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !stop.load(Relaxed) {
                        let generation = weak.generation();
                        let Some(looked_at) = weak.upgrade() else { return };
                        let [name, parent] = [0, 1].map(|n: usize| looked_at.0[n].load(Relaxed));
                        drop(looked_at);
                        if let Some(handle) = weak.try_acquire(generation) {
                            assert_eq!(name, parent, "a handle of half a change");
                            assert!(handle.0[0].load(Relaxed) >= name);
                            found.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let until = Instant::now() + Duration::from_millis(200);
            for name in 1.. {
                let rename = || entry.0.iter().for_each(|word| word.store(name, Relaxed));
                ScalableArc::change(&entry, rename);
                assert!(ScalableArc::try_acquire(&entry, 2 * name as u64 - 2).is_none());
                thread::yield_now();
                if Instant::now() > until && found.load(Relaxed) > 0 {
                    break;
                }
            }
            stop.store(true, Relaxed);
        });
        let generation = ScalableArc::generation(&entry);
        assert_eq!(generation, 2 * entry.0[0].load(Relaxed) as u64);
        assert!(ScalableArc::try_acquire(&entry, generation).is_some());
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            ScalableArc::change(&entry, || {
                assert_eq!(weak.generation(), generation + 1);
                assert!(weak.try_acquire(generation + 1).is_none(), "an odd one gets none");
                panic!("planned");
            });
        }));
        assert!(panicked.is_err());
        assert_eq!(weak.generation(), generation + 2);
        assert!(ScalableArc::retire(&entry));
        assert!(weak.try_acquire(generation + 2).is_none());
        drop(entry);
        assert_eq!(weak.generation(), generation + 2);
    }
}

#[test]
fn handles_of_slices_and_strings_are_counted_and_dropped_as_others() {
    let owner = Arc::new(());
    let slice: ScalableArc<[Arc<()>]> = (0..5).map(|_| Arc::clone(&owner)).collect();
    let weak = ScalableArc::downgrade(&slice);
    ScalableArc::promote(&slice);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..1000).for_each(|_| assert_eq!(slice.clone().len(), 5)));
        }
    });
    assert_eq!(Arc::strong_count(&owner), 6);
    assert!(weak.upgrade().is_some_and(|other| ScalableArc::ptr_eq(&other, &slice)));
    drop(slice);
    assert!(weak.upgrade().is_none() && weak.ptr_eq(&weak.clone()));
    assert_eq!(Arc::strong_count(&owner), 1);

    let text = ScalableArc::<str>::from(String::from("héllo"));
    assert_eq!(
        (&*text, text.to_string(), format!("{text:?}")),
        ("héllo", "héllo".into(), "\"héllo\"".into())
    );
    assert!(text == ScalableArc::from("héllo") && text > ScalableArc::from("a"));
    let found = std::collections::HashMap::from([(text, 1)]);
    assert_eq!(found.get("héllo"), Some(&1));
    assert_eq!((ScalableArc::<[u8]>::default().len(), ScalableArc::<str>::default().len()), (0, 0));
    #[repr(align(64))]
    #[derive(Clone)]
    struct Wide(u8);
    let wide = ScalableArc::<[Wide]>::from([Wide(1), Wide(2)]);
    assert_eq!((ScalableArc::as_ptr(&wide).cast::<u8>().addr() % 64, wide[1].0), (0, 2));
    let zeros = ScalableArc::<[()]>::from(&[(); 7][..]);
    assert_eq!(zeros.len(), 7);
}

#[test]
fn handle_of_a_dyn_value_is_made_by_way_of_a_pointer_hot_or_cold() {
    #[repr(align(32))]
    struct Value(Arc<()>);
    trait Named: Send + Sync {
        fn name(&self) -> &'static str;
    }
    impl Named for Value {
        fn name(&self) -> &'static str {
            if Arc::strong_count(&self.0) == 2 { "one" } else { "many" }
        }
    }
    for hot in [false, true] {
        let owner = Arc::new(());
        let first = ScalableArc::new(Value(Arc::clone(&owner)));
        assert_eq!(hot && ScalableArc::promote(&first), hot);
        let second = first.clone();
        let raw: *const Value = ScalableArc::into_raw(second);
        let raw: *const dyn Named = raw;
        drop(first);
        // SAFETY: from `into_raw`, of the same value.
        let named: ScalableArc<dyn Named> = unsafe { ScalableArc::from_raw(raw) };
        assert_eq!((named.name(), ScalableArc::strong_count(&named)), ("one", 1));
        let twin = named.clone();
        thread::spawn(move || assert_eq!(twin.name(), "one")).join().unwrap();
        drop(named);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}

#[test]
fn value_is_changed_in_place_by_an_only_handle_alone() {
    for hot in [false, true] {
        let mut mine = ScalableArc::new(1);
        assert_eq!(hot && ScalableArc::promote(&mine), hot);
        *ScalableArc::get_mut(&mut mine).expect("no other") += 1;
        let other = mine.clone();
        assert!(ScalableArc::get_mut(&mut mine).is_none());
        *ScalableArc::make_mut(&mut mine) += 1;
        assert_eq!((*mine, *other), (3, 2));
        let weak = ScalableArc::downgrade(&mine);
        assert!(ScalableArc::get_mut(&mut mine).is_none());
        *ScalableArc::make_mut(&mut mine) += 1;
        assert!(weak.upgrade().is_none() && *mine == 4);
        drop(weak);
        *ScalableArc::make_mut(&mut mine) += 1;
        assert_eq!(
            (ScalableArc::unwrap_or_clone(mine), ScalableArc::unwrap_or_clone(other)),
            (5, 2)
        );
    }
}
