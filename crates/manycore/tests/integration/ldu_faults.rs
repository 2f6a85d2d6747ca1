//! Panics in user code: of all calls of a structure, a walker, a key or a destructor, the n-th
//! panics, for every n. The effects of other calls are not lost, nothing waits forever, and
//! everything that was made is freed.

use crate::common::fuse::{Value, every_fault, over, step, tick};
use manycore::collections::{ActiveSet, IntervalRegistry, Lru, Registry, TimerQueue};
use manycore::ldu::*;
use manycore::oplog::Logs;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// The members it was told of. A call that panics counts as made, too.
#[derive(Debug, Default)]
struct Told(BTreeSet<u32>);

impl Structure<Element<Value>> for Told {
    fn insert(&mut self, member: &Element<Value>) {
        assert!(self.0.insert(member.0), "{} is told twice", member.0);
        tick();
    }

    fn remove(&mut self, member: &Element<Value>) {
        assert!(self.0.remove(&member.0), "{} was never told", member.0);
        tick();
    }
}

/// Runs `f` on another thread, so that its changes go to a separate queue.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(f).join().expect("no panic gets so far"))
}

#[test]
fn set_loses_nothing_by_a_panic_of_its_structure_or_its_members() {
    every_fault("a set", || {
        let builder = DeferredSet::builder().queue(Queue::PerThread).max_queued(3);
        let set: DeferredSet<Told, _> = builder.build(Told::default()).unwrap();
        let mut members =
            elsewhere(|| (0..5).map(|at| set.add(Value::new(at))).collect::<Vec<_>>());
        step(|| drop(set.read()));
        members.extend((5..10).map(|at| set.add(Value::new(at))));
        step(|| drop(members.remove(1)));
        step(|| drop(set.read_shared()));
        elsewhere(|| step(|| drop(members.remove(1))));
        set.clear_poison();
        step(|| drop(members.remove(2).remove().into_box()));
        step(|| drop(set.try_read()));
        step(|| drop(members.remove(2)));
        set.clear_poison();
        step(|| set.synchronize());
        over();
        set.clear_poison();
        let attached: BTreeSet<_> = members.iter().map(|member| member.0).collect();
        assert_eq!(set.read().0, attached, "a change was lost or doubled");
        drop(members);
        assert!(set.read_shared().0.is_empty());
    });
}

/// A set ends while some members wait and leaked handles have left others.
#[test]
fn set_that_ends_with_a_panic_frees_what_is_its_own() {
    every_fault("a set's end", || {
        for taken in [false, true] {
            let set = DeferredSet::<Told, Element<Value>>::default();
            let members: Vec<_> = (0..6).map(|at| set.add(Value::new(at))).collect();
            step(|| drop(set.read()));
            members.into_iter().for_each(|member| {
                step(|| drop(member));
            });
            step(|| if taken { drop(set.into_inner()) } else { drop(set) });
        }
        over();
    });
}

fn registries() -> Vec<Registry<Value>> {
    let marks = |queue| Registry::builder().marks(queue).max_entries(2).build().unwrap();
    let logs = |logs| Registry::builder().logs(logs).max_entries(2).build().unwrap();
    vec![marks(Queue::PerThread), marks(Queue::Global), logs(Logs::Always), logs(Logs::Never)]
}

#[test]
fn registry_keeps_its_entries_whatever_walkers_and_destructors_do() {
    for form in 0..registries().len() {
        every_fault("a registry", move || {
            let registry = registries().swap_remove(form);
            let enter = |at| registry.register(Value::new(at));
            let mut entries = elsewhere(|| (0..4).map(enter).collect::<Vec<_>>());
            entries.extend((4..8).map(enter));
            step(|| registry.for_each(|_| tick()));
            step(|| drop(entries.pop()));
            step(|| drop(registry.snapshot()));
            elsewhere(|| step(|| drop(entries.remove(0))));
            step(|| entries.push(enter(9)));
            step(|| assert!(!registry.is_empty()));
            let blown = over();
            let mut left: Vec<_> = registry.snapshot().iter().map(|value| value.0).collect();
            left.sort_unstable();
            let mut held: Vec<_> = entries.iter().map(|entry| entry.0).collect();
            held.sort_unstable();
            // An entry whose push panicked is dropped again.
            assert_eq!(left, held, "blown: {blown}");
            std::mem::forget(entries.pop()); // freed with the registry
            drop(entries);
            assert_eq!(registry.len(), 1);
        });
    }
}

#[test]
fn keys_that_panic_leave_no_lock_held_and_no_memory_behind() {
    type Intervals = IntervalRegistry<Value, Value>;
    let make: [fn() -> Intervals; 3] = [
        || Intervals::builder().marks(Queue::Global).max_entries(2).build().unwrap(),
        || Intervals::builder().logs(Logs::Always).max_entries(2).build().unwrap(),
        || Intervals::builder().logs(Logs::Never).build().unwrap(),
    ];
    for make in make {
        every_fault("intervals", move || {
            let intervals = make();
            let add = |at| intervals.add(Value::new(at)..Value::new(at + 2), Value::new(at));
            let mut handles = Vec::new();
            (0..3).for_each(|at| {
                step(|| handles.push(add(at)));
            });
            let all = || Value::new(0)..Value::new(99);
            step(|| intervals.for_overlapping(all(), |_, _| tick()));
            step(|| drop(handles.pop()));
            step(|| drop(intervals.overlapping(all())));
            step(|| assert!(!intervals.is_empty()));
            over();
            // It may be of no use any more, and say so; but nothing waits.
            step(|| drop(intervals.overlapping(all())));
            step(|| handles.push(add(7)));
            handles.into_iter().for_each(|handle| {
                step(|| drop(handle));
            });
            step(|| assert!(intervals.is_empty()));
        });
    }
    every_fault("active keys", || {
        let set = ActiveSet::with_queue(Queue::Global);
        let mut handles: Vec<_> = (0..5).map(|at| set.register(Value::new(at % 3))).collect();
        step(|| drop(set.oldest()));
        step(|| drop(handles.pop()));
        step(|| drop(set.snapshot()));
        step(|| drop(handles.pop()));
        step(|| assert!(!set.is_empty()));
        over();
        step(|| drop(set.oldest()));
        drop(handles);
        step(|| assert!(set.is_empty()));
    });
}

#[test]
fn timers_are_had_once_whatever_destructors_do() {
    every_fault("timers", || {
        let queue = TimerQueue::with_queue(Queue::Global);
        let mut timers: Vec<_> = (0..8).map(|at| queue.insert(at, Value::new(at as u32))).collect();
        step(|| drop(queue.advance(2)));
        step(|| drop(timers.pop()));
        step(|| drop(timers.pop().unwrap().cancel()));
        timers.pop().unwrap().detach();
        timers.pop().unwrap().detach();
        step(|| drop(queue.advance(4)));
        step(|| drop(timers.pop()));
        over();
        assert_eq!(queue.next_deadline(), Some(5), "a timer was lost");
        drop(timers);
    });
}

#[test]
fn recency_list_stays_in_order_whatever_its_keys_do() {
    for logs in [Logs::Always, Logs::Never] {
        every_fault("a recency list", move || {
            let lru = Lru::builder().logs(logs).max_entries(4).build().unwrap();
            let mut sure = BTreeSet::new();
            let mut gone = BTreeSet::new();
            elsewhere(|| {
                for at in 0..4 {
                    if !step(|| lru.touch(Value::new(at))) {
                        sure.insert(at);
                    }
                }
            });
            for at in 2..7 {
                let fails = step(|| lru.touch(Value::new(at)));
                if !fails {
                    sure.insert(at);
                }
            }
            step(|| assert!(lru.len() < 99 && !lru.contains(&Value::new(99))));
            step(|| lru.remove(Value::new(3)));
            gone.insert(3);
            step(|| drop(lru.snapshot()));
            let blown = over();
            let left: Vec<_> = lru.snapshot().iter().map(|key| key.0).collect();
            let mut once = left.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), left.len(), "a key is there twice: {left:?}");
            let missing = sure.iter().filter(|key| !left.contains(key) && !gone.contains(key));
            // The update in hand, of whichever thread, may be lost: lru.L3.
            assert!(missing.count() <= usize::from(blown), "{sure:?} but {left:?}");
            assert_eq!(lru.evict(99).len(), left.len());
        });
    }
}

static LEFT: AtomicUsize = AtomicUsize::new(0);
static COUNTED: Mutex<()> = Mutex::new(());

/// A value that panics whenever it is dropped, if `true`.
#[derive(Debug)]
struct Hostile(bool);

impl Hostile {
    fn new(panics: bool) -> Self {
        LEFT.fetch_add(1, SeqCst);
        Self(panics)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        LEFT.fetch_sub(1, SeqCst);
        assert!(!self.0, "always");
    }
}

#[derive(Default)]
struct Count(usize);

impl<E> Structure<E> for Count {
    fn insert(&mut self, _: &E) {
        self.0 += 1;
    }

    fn remove(&mut self, _: &E) {
        self.0 -= 1;
    }
}

/// A second panic from a vector of values, or while a guard unwinds, would end the process.
#[test]
fn destructors_that_all_panic_end_neither_the_process_nor_each_other() {
    let _alone = COUNTED.lock();
    let set = DeferredSet::<Count, Element<Hostile>>::default();
    let told = || {
        let members: Vec<_> = (0..5).map(|_| set.add(Hostile::new(true))).collect();
        assert_eq!(set.read().0, 5);
        members.into_iter().for_each(drop); // while queued or told: freed by a read
    };
    told();
    assert!(step(|| set.synchronize()), "the first panic reaches the reader");
    assert_eq!((LEFT.load(SeqCst), set.is_poisoned()), (0, false));
    told();
    assert!(step(|| drop(set.read_shared())), "the first panic reaches the reader");
    told();
    assert!(step(|| {
        let _guard = set.read();
        panic!("the reader's own");
    }));
    set.clear_poison();
    told();
    assert!(step(|| drop(set)));
    assert_eq!(LEFT.load(SeqCst), 0);
    for logs in [Logs::Always, Logs::Never] {
        for marks in [false, true] {
            let builder = Registry::builder().logs(logs);
            let builder = if marks { builder.marks(Queue::Global) } else { builder };
            let registry = builder.build().unwrap();
            let entries: Vec<_> = (0..5).map(|_| registry.register(Hostile::new(true))).collect();
            assert_eq!(registry.len(), 5);
            entries.into_iter().for_each(|entry| {
                step(|| drop(entry));
            });
            (0..3).for_each(|_| std::mem::forget(registry.register(Hostile::new(true))));
            step(|| assert!(!registry.is_empty()));
            assert_eq!(LEFT.load(SeqCst), 3, "only those whose entries were leaked are there");
            step(|| drop(registry));
            assert_eq!(LEFT.load(SeqCst), 0);
        }
    }
}

#[test]
fn set_that_is_poisoned_keeps_only_what_is_in_it() {
    let _alone = COUNTED.lock();
    struct Fails;
    impl Structure<Element<Hostile>> for Fails {
        fn insert(&mut self, _: &Element<Hostile>) {
            panic!("always");
        }
        fn remove(&mut self, _: &Element<Hostile>) {}
    }
    for queue in [Queue::PerThread, Queue::Global] {
        let set = DeferredSet::builder().queue(queue).max_queued(8).build(Fails).unwrap();
        let kept = set.add(Hostile::new(false));
        assert!(step(|| set.synchronize()) && set.is_poisoned());
        let waits = set.add(Hostile::new(false));
        for _ in 0..1_000 {
            drop(set.add(Hostile::new(false))); // the structure need not hear of it
        }
        assert!(LEFT.load(SeqCst) < 2 + 10, "{} are kept", LEFT.load(SeqCst));
        let again = set.add(Hostile::new(false)).remove().into_box();
        drop((again, waits));
        drop(set.read_poisoned());
        assert_eq!(LEFT.load(SeqCst), 1, "of the one that waited it did not hear, either");
        drop(kept);
        set.clear_poison();
        set.synchronize();
        assert_eq!(LEFT.load(SeqCst), 0);
    }
}
