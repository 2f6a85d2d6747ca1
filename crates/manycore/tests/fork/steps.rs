//! Forks while another thread is at a certain step: in a section, in a destructor, or in user code
//! that an object has called. Or the object is reserved, has logs, or is shared by readers.

use crate::Stop;
use crate::common::kinds::Add;
use crate::common::process::{in_child, in_own_process};
use manycore::cluster::{Adaptive, Family, SwapFailure, Swappable, adaptive};
use manycore::collections::{Counter, HashMap, ScalableArc};
use manycore::lock::TicketLock;
use manycore::oplog::{Commuting, Deferred, Op, Ordered, TryReadError};
use manycore::section::{Atomic, Domain, Mode};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Forks while another thread is at the point where `other` calls its argument. Demands that
/// `child` returns true.
fn fork_while(
    step: &str,
    other: impl FnOnce(&mut dyn FnMut()) + Send,
    child: impl FnOnce() -> bool,
) {
    let (come, has_come) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            other(&mut || {
                come.send(()).unwrap();
                goes.recv().unwrap_err(); // until the fork is over
            });
        });
        has_come.recv().unwrap();
        let status = in_child(|| {
            // SAFETY: ends the child if it hangs.
            unsafe { libc::alarm(20) };
            child()
        });
        drop(go);
        assert_eq!(status, 0, "{step}");
    });
}

/// More uses than it takes to reserve an object for the thread that makes them.
const USES: u64 = 5000;

type Sum = Deferred<u64, Commuting<Add>>;

fn used_by_one_thread(sum: &Sum) {
    (0..USES).for_each(|_| sum.append(Add(1)));
}

#[test]
fn child_can_use_an_object_that_is_reserved() {
    in_own_process("child_can_use_an_object_that_is_reserved", || {
        let go_on = |sum: &Sum| {
            sum.append(Add(1));
            let before = *sum.read() == USES + 1;
            thread::scope(|scope| {
                scope.spawn(|| used_by_one_thread(sum));
            });
            before && *sum.read() == 2 * USES + 1
        };
        let own = Sum::new(0);
        used_by_one_thread(&own);
        fork_while("for the forking thread", |here| here(), || go_on(&own));
        let guard = own.read();
        fork_while(
            "which is inside",
            |here| here(),
            || {
                let seen = *guard == USES;
                drop(guard);
                seen && go_on(&own)
            },
        );
        let other = Sum::new(0);
        let uses = |here: &mut dyn FnMut()| {
            used_by_one_thread(&other);
            here();
        };
        fork_while("for another thread", uses, || go_on(&other));
        let inside = Sum::new(0);
        let reads = |here: &mut dyn FnMut()| {
            used_by_one_thread(&inside);
            let guard = inside.read();
            here();
            drop(guard);
        };
        fork_while("for another thread, which is inside", reads, || {
            matches!(inside.try_read(), Err(TryReadError::Busy))
        });
        assert!(go_on(&other) && go_on(&inside));
    });
}

#[test]
fn child_can_use_an_object_with_logs_that_other_threads_append_to() {
    in_own_process("child_can_use_an_object_with_logs_that_other_threads_append_to", || {
        let sum = Sum::new(0);
        assert!(sum.promote());
        let appends = |here: &mut dyn FnMut()| {
            (0..10).for_each(|_| sum.append(Add(1)));
            here();
        };
        fork_while("another thread has appended", appends, || {
            sum.append(Add(1));
            *sum.read() == 11
        });
        let reads = |here: &mut dyn FnMut()| {
            let guard = sum.read();
            here();
            drop(guard);
        };
        fork_while("another thread reads", reads, || {
            sum.append(Add(1)); // in the log
            matches!(sum.try_read(), Err(TryReadError::Busy))
        });
        let shared = Adaptive::<u64, Commuting<Add>>::new(7);
        assert!(shared.pin(adaptive::Mode::Shared));
        drop(shared.read());
        let reads = |here: &mut dyn FnMut()| {
            drop(shared.read());
            let guard = shared.read();
            here();
            drop(guard);
        };
        fork_while("another thread reads beside others", reads, || *shared.read() == 7);
    });
}

/// Sections of other threads stay open in the child, unless it states that nothing relies on them.
#[test]
fn child_can_end_the_sections_of_threads_that_it_does_not_have() {
    in_own_process("child_can_end_the_sections_of_threads_that_it_does_not_have", || {
        static FREED: AtomicUsize = AtomicUsize::new(0);
        struct Counts<F: FnMut() + Send>(Option<F>);
        impl<F: FnMut() + Send> Drop for Counts<F> {
            fn drop(&mut self) {
                FREED.fetch_add(1, SeqCst);
                if let Some(mut last) = self.0.take() {
                    last();
                }
            }
        }
        fn retire(domain: &Domain, last: Option<impl FnMut() + Send>) {
            let section = domain.enter();
            let link = Atomic::new(Counts(last));
            let old = link.load(&section);
            // SAFETY: nothing else leads to it; it has no links; all sections are of one domain.
            unsafe { section.retire(old) };
        }
        let child = |domain: &Domain| {
            let mut kept = 0;
            // SAFETY: the child has one thread, which uses nothing of another's section.
            unsafe { domain.abandon_other_threads(|_, _| kept += 1) };
            domain.synchronize();
            let before = FREED.load(SeqCst);
            retire(domain, None::<fn()>);
            (0..4).for_each(|_| domain.collect());
            FREED.load(SeqCst) == before + kept + 1 && domain.backlog(Duration::ZERO).nodes == 0
        };
        for mode in [Mode::Epoch, Mode::Bounded] {
            let new = || Domain::builder().mode(mode).batch_nodes(1).build().unwrap();
            let domain = new();
            retire(&domain, None::<fn()>);
            let inside = |here: &mut dyn FnMut()| {
                let _section = domain.enter();
                retire(&domain, None::<fn()>);
                here();
            };
            fork_while("in a section", inside, || child(&domain));
            let outside = |here: &mut dyn FnMut()| {
                retire(&domain, None::<fn()>);
                here();
            };
            fork_while("outside", outside, || child(&domain));
            drop(domain);

            let domain = new();
            retire(&domain, None::<fn()>);
            let frees = |here: &mut dyn FnMut()| {
                let (come, has_come) = mpsc::channel();
                let (go, goes) = mpsc::channel::<()>();
                thread::scope(|scope| {
                    let domain = &domain;
                    scope.spawn(move || {
                        let last = move || {
                            come.send(()).unwrap();
                            goes.recv().unwrap_err();
                        };
                        retire(domain, Some(last));
                        (0..8).for_each(|_| domain.collect());
                    });
                    has_come.recv().unwrap();
                    here();
                    drop(go);
                });
            };
            fork_while("in a destructor", frees, || child(&domain));
        }
    });
}

/// An update that stays inside `apply` for as long as the test wants.
struct Visit<F: FnOnce()>(F);

impl<F: FnOnce()> Op<u64> for Visit<F> {
    fn apply(self, visits: &mut u64) {
        *visits += 1;
        (self.0)();
    }
}

struct Version(u32);

impl Family for Version {
    type Part = ();
    fn export(&self, _: usize) {}
    fn import(&self, (): ()) {}
}

/// What another thread had not left at the fork is never left in the child.
#[test]
fn childs_updates_and_calls_of_other_threads_do_not_end() {
    in_own_process("childs_updates_and_calls_of_other_threads_do_not_end", || {
        type Visits = Deferred<u64, Ordered<Visit<Box<dyn FnOnce() + Send>>>>;
        let visits = Visits::new(0);
        let (come, has_come) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let visit = move || {
            come.send(()).unwrap();
            goes.recv().unwrap_err();
        };
        thread::scope(|scope| {
            scope.spawn(|| visits.append(Visit(Box::new(visit))));
            has_come.recv().unwrap();
            let status = in_child(|| matches!(visits.try_read(), Err(TryReadError::Busy)));
            drop(go);
            assert_eq!(status, 0, "in an update");
        });
        assert_eq!(*visits.read(), 1);

        let service = Swappable::new(Arc::new(Version(1)));
        let calls = |here: &mut dyn FnMut()| service.call(|_| here());
        fork_while("in a call", calls, || {
            let swapped = service.swap_within(Arc::new(Version(2)), Duration::from_millis(20));
            let reason = swapped.err();
            let is_stuck = matches!(reason, Some(SwapFailure::TimedOut));
            is_stuck && service.call(|version| version.0) == 1
        });
        assert!(service.swap(Arc::new(Version(2))).is_ok());
    });
}

/// If another thread holds an object, the child is told at once by every call that can report it.
#[test]
fn child_is_told_of_what_other_threads_hold() {
    in_own_process("child_is_told_of_what_other_threads_hold", || {
        let lock = TicketLock::new(1);
        let holds = |here: &mut dyn FnMut()| {
            let _guard = lock.lock();
            here();
        };
        fork_while("a lock", holds, || lock.try_lock().is_none());

        let map = HashMap::<u32, u32>::new();
        map.insert(1, 10);
        let updates = |here: &mut dyn FnMut()| {
            map.update(&1, |value| {
                here();
                value + 1
            });
        };
        fork_while("a section, in an update of a map", updates, || {
            let found = map.read(&1, |value| *value) == Some(10);
            map.insert(2, 20);
            found && map.update(&1, |value| value + 2) && map.get_cloned(&1) == Some(12)
        });
    });
}

/// Objects whose operations hold nothing while user code runs, used by other threads all the while.
#[test]
fn child_can_use_what_other_threads_use_without_locks() {
    in_own_process("child_can_use_what_other_threads_use_without_locks", || {
        let counter = Counter::new(0);
        counter.promote();
        let counted = ScalableArc::new(1_u64);
        // More than can have rows at a time, so that some are evicted.
        let many: Vec<Counter> = (0..5_000).map(|_| Counter::new(1)).collect();
        many.iter().for_each(|one| _ = one.promote());
        let use_all = || {
            counter.add(1);
            let counts = ScalableArc::strong_count(&counted) > 0;
            *counted.clone() == 1 && counts && counter.sum() > 0
        };
        // Has rows and no weak handle. A thread asks whether its handle is the only one.
        let asked = ScalableArc::new(1_u64);
        ScalableArc::promote(&asked);
        let lock = TicketLock::new(());
        let waits = || {
            let profile = manycore::profile::read();
            profile.hottest(usize::MAX).iter().map(|object| object.waits).sum::<u64>()
        };
        manycore::profile::start();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            scope.spawn(|| {
                let mut handle = asked.clone();
                while !stop.load(SeqCst) {
                    assert!(ScalableArc::get_mut(&mut handle).is_none());
                }
            });
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    assert!(use_all());
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        assert!(use_all());
                        let _guard = lock.lock(); // waits, which is counted
                        thread::yield_now();
                        // A fork waits until rows are folded.
                        counter.demote();
                        counter.promote();
                        ScalableArc::demote(&counted);
                        ScalableArc::promote(&counted);
                        many.iter().step_by(97).for_each(|one| _ = one.promote());
                        drop(manycore::profile::name(&counter, "counter"));
                    }
                });
            }
            for round in 0..30 {
                thread::sleep(Duration::from_micros(300));
                let waited = waits();
                let status = in_child(|| {
                    // SAFETY: ends the child if it hangs.
                    unsafe { libc::alarm(20) };
                    let goes_on = waits() >= waited;
                    manycore::profile::start();
                    many.iter().for_each(Counter::demote);
                    ScalableArc::demote(&counted);
                    counter.demote();
                    drop(ScalableArc::downgrade(&asked));
                    let all_count = || many.iter().all(|one| one.sum() == 1);
                    use_all() && goes_on && (0..20).all(|_| all_count())
                });
                assert_eq!(status, 0, "round {round}");
            }
        });
        manycore::profile::stop();
    });
}
