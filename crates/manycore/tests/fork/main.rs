//! What outlives threads and processes: `fork`, threads that end with full logs, many threads.
//!
//! A forked child has one thread and a copy of everything. Each test here has its own process, so
//! that no other test's threads exist in it. The child only uses the objects and leaves through
//! `_exit`. If another thread is inside the library at the fork, the table in the crate's
//! documentation ("Fork") says what the child can do; the child does that. An alarm ends a child
//! that waits forever.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
mod steps;

use common::kinds::{Add, List, Push, Set, Toggle};
use common::process::{in_child, in_own_process};
use manycore::oplog::*;
use manycore::section::{Atomic, Domain, Mode, Owned};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// The objects that parent and child have: their logs are full, and several of the threads are
/// gone.
struct Objects {
    list: Deferred<List, Ordered<Push>>,
    sum: Deferred<u64, Commuting<Add>>,
    set: Deferred<Set, Cancelling<Toggle>>,
    cold: Deferred<u64, Commuting<Add>>,
}

fn filled(publish: Publish) -> Objects {
    let objects = Objects {
        list: builder(publish).build(List::new()).unwrap(),
        sum: builder(publish).build(0).unwrap(),
        set: builder(publish).build(Set::new()).unwrap(),
        cold: Deferred::new(0),
    };
    for thread in 0..5_u8 {
        thread::scope(|scope| {
            let fill = || {
                for value in 0..10 {
                    objects.list.append(Push(thread * 10 + value));
                    objects.sum.append(Add(1));
                    objects.set.append(Toggle { key: thread * 10 + value, insert: true });
                    objects.cold.append(Add(1));
                }
            };
            scope.spawn(fill);
        });
    }
    objects
}

fn builder<T: Send + 'static, L: Log<T>>(publish: Publish) -> Builder<T, L> {
    Deferred::builder().logs(Logs::Always).publish(publish)
}

/// Reads the updates logged before, appends `more` to each object, and reads those.
fn uses(objects: &Objects, more: u8) -> bool {
    let before: List = (0..50).collect();
    let mut passed = *objects.list.read() == before;
    passed &= *objects.sum.read() == 50 && *objects.cold.read() == 50;
    passed &= objects.set.read().len() == 50;
    for value in 0..more {
        objects.list.append(Push(100 + value));
        objects.sum.append(Add(1));
        objects.cold.append(Add(1));
        objects.set.append(Toggle { key: value, insert: false });
    }
    let after: List = (0..50).chain(100..100 + more).collect();
    passed &= *objects.list.read() == after;
    passed &= *objects.sum.read() == 50 + u64::from(more);
    passed &= *objects.cold.read() == 50 + u64::from(more);
    passed & (objects.set.read().len() == 50 - usize::from(more))
}

#[test]
fn forked_child_has_what_the_parent_had_logged_and_goes_on_by_itself() {
    in_own_process("forked_child_has_what_the_parent_had_logged_and_goes_on_by_itself", || {
        for publish in [Publish::Locked, Publish::Biased, Publish::Auto] {
            let objects = filled(publish);
            assert_eq!(objects.sum.stats().pending, 50, "nothing is left for the child to read");
            assert_eq!(in_child(|| uses(&objects, 7)), 0, "{publish:?}");
            // The parent's copies know nothing of that.
            assert_eq!(objects.sum.stats().pending, 50);
            assert!(uses(&objects, 20), "{publish:?}");
        }
    });
}

#[test]
fn forked_child_starts_threads_of_its_own() {
    in_own_process("forked_child_starts_threads_of_its_own", || {
        let objects = filled(Publish::Auto);
        let status = in_child(|| {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..1000).for_each(|_| objects.sum.append(Add(1))));
                }
            });
            objects.sum.promote() && *objects.sum.read() == 4050
        });
        assert_eq!(status, 0);
        assert_eq!(*objects.sum.read(), 50);
    });
}

#[test]
fn child_of_a_parent_that_never_ran_a_barrier_can_run_one() {
    in_own_process("child_of_a_parent_that_never_ran_a_barrier_can_run_one", || {
        let sum: Deferred<u64, Commuting<Add>> = builder(Publish::Biased).build(0).unwrap();
        let status = in_child(|| {
            sum.append(Add(1));
            *sum.read() == 1
        });
        assert_eq!(status, 0);
    });
}

#[test]
fn failing_child_is_noticed() {
    in_own_process("failing_child_is_noticed", || {
        assert_eq!(in_child(|| false), 1);
        assert_eq!(in_child(|| std::panic::panic_any("planned")), 1);
    });
}

#[test]
fn thousand_threads_one_after_the_other_leave_everything_and_few_logs() {
    let sum = Deferred::<u64, Commuting<Add>>::builder().logs(Logs::Always).build(0).unwrap();
    for thread in 0..1000 {
        thread::scope(|scope| {
            scope.spawn(|| sum.append(Add(thread)));
        });
    }
    let stats = sum.stats();
    assert_eq!(stats.pending, 1000);
    // Other tests of this file have threads too, and on a busy machine a thread is still giving its
    // slot back when the next one starts.
    assert!(stats.logs < 500, "slots are not used again: {} logs", stats.logs);
    assert_eq!(*sum.read(), 999 * 1000 / 2);
}

#[test]
fn thousand_threads_at_once_end_with_full_logs_in_order() {
    const THREADS: usize = 1000;
    let list = Deferred::<Vec<(usize, u8)>, Ordered<Entry>>::builder()
        .logs(Logs::Always)
        .max_entries(4)
        .build(Vec::new())
        .unwrap();
    let list = Arc::new(list);
    let barrier = Arc::new(Barrier::new(THREADS));
    let start = |thread| {
        let (list, barrier) = (Arc::clone(&list), Arc::clone(&barrier));
        let work = move || {
            barrier.wait();
            (0..4).for_each(|number| list.append(Entry(thread, number)));
            barrier.wait(); // all of them are alive, each with a slot of its own
        };
        thread::Builder::new().stack_size(64 << 10).spawn(work).unwrap()
    };
    let threads: Vec<_> = (0..THREADS).map(start).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(list.stats().pending, 4 * THREADS as u64);
    assert!(list.stats().logs >= THREADS);
    let mut seen: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    for (thread, number) in list.read().iter() {
        seen.entry(*thread).or_default().push(*number);
    }
    assert_eq!(seen.len(), THREADS);
    assert!(seen.values().all(|numbers| *numbers == [0, 1, 2, 3]));
}

/// A thread and the number of one of its updates.
struct Entry(usize, u8);

impl Op<Vec<(usize, u8)>> for Entry {
    fn apply(self, list: &mut Vec<(usize, u8)>) {
        list.push((self.0, self.1));
    }
}

/// The parent's other thread is in a section at the fork, so that section stays open in the child
/// forever. The child retires without a crash, and nothing that the thread could hold is freed.
#[test]
fn child_retires_although_another_thread_was_inside() {
    in_own_process("child_retires_although_another_thread_was_inside", || {
        static FREED: AtomicUsize = AtomicUsize::new(0);
        struct Node;
        impl Drop for Node {
            fn drop(&mut self) {
                FREED.fetch_add(1, SeqCst);
            }
        }
        let retire = |domain: &Domain, link: &Atomic<Node>, times: usize| {
            for _ in 0..times {
                let section = domain.enter();
                let old = link.swap(Owned::new(Node), &section);
                // SAFETY: unlinked by the swap; no links; one domain.
                unsafe { section.retire(old) };
            }
        };
        for mode in [Mode::Epoch, Mode::Bounded] {
            let domain = Domain::builder().mode(mode).batch_nodes(8).build().unwrap();
            let link = Atomic::new(Node);
            let barrier = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let section = domain.enter();
                    let held = link.load(&section).as_ref();
                    barrier.wait();
                    barrier.wait();
                    assert!(held.is_some());
                });
                barrier.wait();
                let status = in_child(|| {
                    retire(&domain, &link, 1000);
                    domain.collect();
                    let freed = FREED.load(SeqCst);
                    // A bounded domain frees what was born later; the others nothing.
                    if mode == Mode::Bounded { freed > 900 && freed < 1000 } else { freed == 0 }
                });
                assert_eq!(status, 0, "{mode:?}");
                barrier.wait();
            });
            retire(&domain, &link, 10);
            drop(domain);
            assert_eq!(FREED.swap(0, SeqCst), 10, "{mode:?}");
            // SAFETY: no other thread has the link.
            drop(unsafe { link.into_owned() });
            FREED.store(0, SeqCst);
        }
    });
}

// ---- sets with marks ----

struct Largest(BTreeMap<u32, ()>);

impl manycore::ldu::Structure<manycore::ldu::Element<u32>> for Largest {
    fn insert(&mut self, number: &manycore::ldu::Element<u32>) {
        self.0.insert(**number, ());
    }
    fn remove(&mut self, number: &manycore::ldu::Element<u32>) {
        self.0.remove(&**number);
    }
}

/// Queues hold members of threads that are gone; parent and child each go on with their own copy.
#[test]
fn child_has_the_queued_members_of_a_set() {
    in_own_process("child_has_the_queued_members_of_a_set", || {
        use manycore::ldu::{DeferredSet, Queue};
        for queue in [Queue::PerThread, Queue::Global] {
            let set = DeferredSet::builder().queue(queue).build(Largest(BTreeMap::new())).unwrap();
            for thread in 0..5_u32 {
                thread::scope(|scope| {
                    scope.spawn(|| std::mem::forget((set.add(thread), set.add(thread + 10))));
                });
            }
            let uses = |more: u32| {
                let before = set.read().0.len() == 10;
                let members: Vec<_> = (0..more).map(|number| set.add(100 + number)).collect();
                let during = set.read().0.len() == 10 + more as usize;
                drop(members);
                before && during && set.read().0.len() == 10
            };
            assert_eq!(in_child(|| uses(7)), 0, "{queue:?}");
            assert!(uses(9));
        }
    });
}

/// Tells threads to stop, also when a test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Other threads retire, make domains, start and end all the while. So some fork finds each lock of
/// the sections held by a thread that the child does not have.
#[test]
fn child_of_a_busy_process_can_use_the_library() {
    fn replace(domain: &Domain, link: &Atomic<u64>) {
        let section = domain.enter();
        let old = link.swap(Owned::new(1), &section);
        // SAFETY: unlinked by the swap; no links; one domain.
        unsafe { section.retire(old) };
    }
    fn use_all(domain: &Domain, link: &Atomic<u64>) -> bool {
        (0..40).for_each(|_| replace(domain, link));
        domain.collect();
        let new = Domain::builder().batch_nodes(2).build().unwrap();
        let other = Atomic::new(0);
        (0..10).for_each(|_| replace(&new, &other));
        drop(new);
        // SAFETY: nothing else leads to the node.
        drop(unsafe { other.into_owned() });
        true
    }

    in_own_process("child_of_a_busy_process_can_use_the_library", || {
        let domain = Domain::builder().batch_nodes(4).build().unwrap();
        let link = Atomic::new(0);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            for _ in 0..3 {
                let (domain, link, stop) = (&domain, &link, &stop);
                scope.spawn(move || {
                    while !stop.load(SeqCst) {
                        assert!(use_all(domain, link));
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    // Threads that come and go leave their garbage and slots.
                    thread::scope(|inner| drop(inner.spawn(|| replace(&domain, &link))));
                }
            });
            for round in 0..30 {
                thread::sleep(Duration::from_millis(1));
                let status = in_child(|| {
                    // SAFETY: ends the child if it hangs.
                    unsafe { libc::alarm(20) };
                    use_all(&domain, &link)
                });
                assert_eq!(status, 0, "round {round}");
            }
        });
        // SAFETY: nothing else leads to the node.
        drop(unsafe { link.into_owned() });
    });
}

/// Other threads wait for an object while they hold another, all the while. So some fork happens
/// while they are in the wait-for graph and change it.
#[cfg(target_os = "linux")]
#[test]
fn childs_stalled_section_is_reported_with_the_childs_own_thread_id() {
    in_own_process("childs_stalled_section_is_reported_with_the_childs_own_thread_id", || {
        let domain = Domain::new();
        drop(domain.enter());
        let status = in_child(|| {
            let _stalled = domain.enter();
            let stalled = domain.backlog(Duration::ZERO).stalled;
            // The child's only thread has the number of its process.
            stalled.len() == 1 && stalled[0].os_id == Some(std::process::id().into())
        });
        assert_eq!(status, 0);
    });
}

#[test]
fn child_of_threads_that_wait_for_each_other_can_wait_too() {
    type Sum = Deferred<u64, Commuting<Add>>;
    /// Two threads hold an object each, and take turns at a third.
    fn take_turns(stop: impl Fn() -> bool + Sync) {
        let inner = Sum::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let outer = Sum::new(0);
                    while !stop() {
                        let _outer = outer.read();
                        let _inner = inner.read();
                        thread::sleep(Duration::from_micros(100)); // the other one goes to sleep
                    }
                });
            }
        });
    }

    in_own_process("child_of_threads_that_wait_for_each_other_can_wait_too", || {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            scope.spawn(|| take_turns(|| stop.load(SeqCst)));
            scope.spawn(|| take_turns(|| stop.load(SeqCst)));
            for round in 0..30 {
                thread::sleep(Duration::from_micros(300));
                let turns = AtomicUsize::new(0);
                let status = in_child(|| {
                    // SAFETY: ends the child if it hangs.
                    unsafe { libc::alarm(20) };
                    take_turns(|| turns.fetch_add(1, SeqCst) > 50);
                    true
                });
                assert_eq!(status, 0, "round {round}");
            }
        });
    });
}
