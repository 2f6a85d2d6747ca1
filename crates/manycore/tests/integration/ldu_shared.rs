//! Readers that share the structure of a set with marks. They are in it together, see the changes
//! made before them, and are told when they would wait for themselves.

use manycore::collections::IntervalRegistry;
use manycore::ldu::*;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

#[derive(Debug, Default)]
struct Numbers(BTreeSet<u32>);

impl Structure<Element<u32>> for Numbers {
    fn insert(&mut self, member: &Element<u32>) {
        assert!(**member != 13, "the structure has an accident");
        self.0.insert(**member);
    }

    fn remove(&mut self, member: &Element<u32>) {
        self.0.remove(&**member);
    }
}

type Set = DeferredSet<Numbers, Element<u32>>;

fn set(queue: Queue) -> Set {
    DeferredSet::builder().queue(queue).max_queued(2).build(Numbers::default()).unwrap()
}

fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| {
        panic.downcast_ref::<&str>().expect("a panic says something").to_string()
    })
}

#[test]
fn readers_are_in_the_structure_together() {
    for queue in [Queue::PerThread, Queue::Global] {
        let set = &set(queue);
        let _one = set.add(1);
        let all_inside = &Barrier::new(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let shared = set.read_shared();
                    all_inside.wait(); // none of them leaves before all have come
                    assert_eq!(shared.0, [1].into());
                });
            }
        });
        assert!(set.try_read().is_ok(), "no reader is left");
    }
}

#[test]
fn changes_go_on_beside_a_reader_and_the_next_one_sees_them() {
    let set = set(Queue::PerThread);
    let shared = set.read_shared();
    // More than the queue's bound: the changes would bring the structure up to date, and may not.
    let members: Vec<_> = (0..7).map(|number| set.add(number)).collect();
    assert!(shared.0.is_empty(), "the structure changed under a reader");
    assert!(matches!(set.try_read(), Err(TryReadError::Busy)));
    drop(shared);
    assert_eq!(set.read_shared().0.len(), 7);
    drop(members);
    assert_eq!(set.read_shared().0.len(), 0);
}

#[test]
fn reading_again_where_a_thread_would_wait_for_itself_panics() {
    let set = set(Queue::Global);
    let shared = set.read_shared();
    let ways: [fn(&Set); 2] = [|set| drop(set.read_shared()), |set| set.synchronize()];
    for again in ways {
        let said = message(|| again(&set));
        assert!(said.contains("this thread") && said.contains("drop the guard"), "{said}");
    }
    drop(shared);
    let held = set.read();
    let said = message(|| drop(set.read_shared()));
    assert!(said.contains("drop the guard"), "{said}");
    drop(held);
    drop(set.read_shared());
}

#[test]
fn reader_of_a_poisoned_set_panics_until_it_is_repaired() {
    let set = set(Queue::PerThread);
    let bad = set.add(13);
    assert!(message(|| drop(set.read_shared())).contains("accident"));
    assert!(message(|| drop(set.read_shared())).contains("poisoned"));
    assert!(set.try_read().is_err());
    set.clear_poison();
    let good = set.add(1);
    assert_eq!(set.read_shared().0, [1].into(), "the call that panicked counts as made");
    drop((good, bad));
    assert!(set.read_shared().0.is_empty());
}

#[test]
fn panic_of_a_reader_poisons_nothing() {
    let set = set(Queue::PerThread);
    let _one = set.add(1);
    message(|| {
        let shared = set.read_shared();
        assert!(shared.0.is_empty(), "a reader has an accident");
    });
    assert!(!set.is_poisoned());
    assert_eq!(set.read().0, [1].into());
}

/// Two mappings come and go in turn, so that there always is one, and at most one is new.
#[test]
fn questions_side_by_side_always_find_who_was_there() {
    let registry = &IntervalRegistry::builder().marks(Queue::PerThread).build().unwrap();
    let (asking, asked) = (&AtomicUsize::new(3), &AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = registry.add(0..8_u64, 0_u64);
            for turn in 1.. {
                let next = registry.add(turn % 4..turn % 4 + 8, turn);
                drop(std::mem::replace(&mut last, next));
                if asking.load(SeqCst) == 0 {
                    break;
                }
            }
        });
        while registry.is_empty() {
            thread::yield_now();
        }
        for _ in 0..3 {
            scope.spawn(|| {
                let mut newest = 0;
                for _ in 0..2_000 {
                    let seen = registry.overlapping(7..8);
                    assert!(matches!(seen.len(), 1 | 2), "{seen:?} was never there");
                    let now = *seen.iter().max().unwrap();
                    assert!(now - seen.iter().min().unwrap() <= 1, "{seen:?} were never together");
                    assert!(now >= newest, "{now} after {newest}");
                    newest = now;
                    asked.fetch_add(1, SeqCst);
                }
                asking.fetch_sub(1, SeqCst);
            });
        }
    });
    assert_eq!(asked.load(SeqCst), 6_000);
    assert_eq!(registry.len(), 0);
}
