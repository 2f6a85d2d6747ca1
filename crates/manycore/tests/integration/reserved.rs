//! Cold objects that only one thread has used, so that they are reserved for it, and events that
//! end the reservation. Everything must work as with a plain lock.

use manycore::cluster::Adaptive;
use manycore::cluster::adaptive::Mode;
use manycore::oplog::{Commuting, Deferred, Op, TryReadError};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

type Act = Box<dyn FnOnce(&mut u64) + Send>;
type Acts = Deferred<u64, Commuting<Act>>;

struct Add(u64);
impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}
type Sum = Deferred<u64, Commuting<Add>>;

/// More uses than it takes to reserve an object for the thread that makes them.
const USES: u64 = 5000;

fn add(number: u64) -> Act {
    Box::new(move |sum| *sum += number)
}

/// Returns an object that is reserved for the calling thread, with the value 0.
fn reserved() -> Arc<Acts> {
    let acts = Arc::new(Acts::new(0));
    (0..USES).for_each(|_| acts.append(add(1)));
    *acts.read() -= USES;
    acts
}

fn in_other_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(f).join().unwrap())
}

/// Three threads update and read an object that was reserved for one thread. No update is lost.
fn goes_to_several_threads<O: Sync>(
    rounds: u64,
    new: impl Fn() -> O,
    update: impl Fn(&O) + Sync,
    read: impl Fn(&O) -> u64 + Sync,
) {
    for round in 0..rounds {
        let sum = &new();
        (0..USES).for_each(|_| update(sum));
        let start = Barrier::new(3);
        let count = 500 + round;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..count {
                        update(sum);
                        assert!(read(sum) > USES);
                    }
                });
            }
            start.wait();
            let mut last = USES;
            for _ in 0..count {
                update(sum);
                let now = read(sum);
                assert!(now > last, "a read went back from {last} to {now}");
                last = now;
            }
        });
        assert_eq!(read(sum), USES + 3 * count);
    }
}

#[test]
fn reserved_objects_go_to_several_threads_and_no_update_is_lost() {
    goes_to_several_threads(200, || Sum::new(0), |sum| sum.append(Add(1)), |sum| *sum.read());
}

#[test]
fn reserved_adaptive_objects_go_to_several_threads_and_no_update_is_lost() {
    let new = || Adaptive::<u64, Commuting<Add>>::new(0);
    goes_to_several_threads(100, new, |sum| sum.update(Add(1)), |sum| *sum.read());
}

#[test]
fn update_of_the_object_itself_is_queued_and_its_read_panics() {
    let acts = reserved();
    let own = Arc::clone(&acts);
    acts.append(Box::new(move |sum| {
        *sum += 1;
        own.append(add(2));
        assert!(matches!(own.try_read(), Err(TryReadError::Busy)));
        let read = catch_unwind(AssertUnwindSafe(|| drop(own.read())));
        assert!(read.is_err(), "an object was read from within its own update");
        assert_eq!(*sum, 1, "the update was not deferred");
    }));
    assert_eq!(*acts.read(), 3);
    assert_eq!(in_other_thread(|| *acts.read()), 3);
}

#[test]
fn guard_of_a_reserved_object_excludes_others_and_queues_updates() {
    let acts = reserved();
    let guard = acts.read();
    acts.append(add(1));
    in_other_thread(|| {
        assert!(matches!(acts.try_read(), Err(TryReadError::Busy)));
        acts.append(add(2));
    });
    assert_eq!(*guard, 0);
    drop(guard);
    assert_eq!(*acts.read(), 3);
}

#[test]
fn thread_waits_for_the_guard_of_a_reserved_object() {
    let acts = reserved();
    let mut guard = acts.read();
    thread::scope(|scope| {
        let reader = scope.spawn(|| *acts.read());
        thread::sleep(std::time::Duration::from_millis(20));
        *guard = 7;
        drop(guard);
        assert_eq!(reader.join().unwrap(), 7);
    });
}

#[test]
fn panic_in_a_reserved_update_poisons_for_all_until_cleared() {
    let acts = reserved();
    let panics = catch_unwind(AssertUnwindSafe(|| acts.append(Box::new(|_| panic!("planned")))));
    assert!(panics.is_err() && acts.is_poisoned());
    acts.append(add(1));
    assert!(matches!(in_other_thread(|| acts.try_read().err()), Some(TryReadError::Poisoned)));
    assert_eq!(*acts.read_poisoned(), 0);
    in_other_thread(|| acts.clear_poison());
    assert_eq!(*acts.read(), 1);
}

#[test]
fn forgotten_guard_of_a_reserved_object_leaves_it_locked_until_its_owner_takes_it() {
    let mut acts = reserved();
    std::mem::forget(acts.read());
    assert!(matches!(acts.try_read(), Err(TryReadError::Busy)));
    assert!(in_other_thread(|| acts.try_read().is_err()));
    acts.append(add(1)); // queued: the object is held
    let own = Arc::get_mut(&mut acts).unwrap();
    assert_eq!(*own.get_mut(), 1);
    own.append(add(1));
    assert_eq!(*own.read(), 2);
}

#[test]
fn promotion_and_demotion_end_a_reservation() {
    let acts = reserved();
    assert!(acts.promote() && acts.is_hot());
    acts.append(add(1));
    acts.demote();
    (0..USES).for_each(|_| acts.append(add(1)));
    assert_eq!(in_other_thread(|| *acts.read()), USES + 1);
    let acts = reserved();
    assert!(in_other_thread(|| acts.promote()));
    acts.append(add(1));
    assert_eq!(*acts.read(), 1);
}

#[test]
fn objects_reserved_for_ended_threads_go_to_the_next() {
    let acts = Acts::new(0);
    for _ in 0..20 {
        in_other_thread(|| (0..USES).for_each(|_| acts.append(add(1))));
    }
    assert_eq!(*acts.read(), 20 * USES);
}

#[test]
fn reads_in_a_cycle_of_reserved_objects_end_in_a_panic() {
    let (start, first) = (Barrier::new(2), Acts::new(0));
    let second = Acts::new(0);
    let crossing = |own: &Acts, other: &Acts| {
        (0..USES).for_each(|_| own.append(add(1)));
        let guard = own.read();
        start.wait();
        let ended = catch_unwind(AssertUnwindSafe(|| drop(other.read())));
        drop(guard);
        ended.is_err()
    };
    let panics = thread::scope(|scope| {
        let other = scope.spawn(|| crossing(&second, &first));
        [crossing(&first, &second), other.join().unwrap()]
    });
    assert!(panics[0] != panics[1], "one of the two readers is refused: {panics:?}");
}

/// Returns an adaptive object that is reserved for the calling thread, with the value 0.
fn reserved_adaptive() -> Arc<Adaptive<u64, Commuting<Act>>> {
    let acts = Arc::new(Adaptive::new(0));
    (0..USES).for_each(|_| acts.update(add(0)));
    assert_eq!(acts.change(|sum| *sum), 0);
    acts
}

#[test]
fn adaptive_object_of_reads_and_some_updates_goes_to_another_thread_while_it_is_read() {
    let acts = Adaptive::<u64, Commuting<Act>>::new(0);
    for round in 0..2 * USES {
        if round % 4 == 0 {
            acts.update(add(1));
        }
        let seen = acts.read();
        assert_eq!(*seen, round / 4 + 1);
        if round + 1 == 2 * USES {
            thread::scope(|scope| {
                let other = scope.spawn(|| acts.update(add(1)));
                thread::sleep(std::time::Duration::from_millis(20));
                assert_eq!(*seen, USES / 2);
                drop(seen);
                other.join().unwrap();
            });
        }
    }
    assert_eq!(*acts.read(), USES / 2 + 1);
}

#[test]
fn update_of_a_reserved_adaptive_object_from_within_is_deferred() {
    let acts = reserved_adaptive();
    let own = Arc::clone(&acts);
    acts.update(Box::new(move |sum| {
        *sum += 1;
        own.update(add(2));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(own.read()))).is_err());
        assert_eq!(*sum, 1, "the update was not deferred");
    }));
    assert_eq!(*acts.read(), 3);
}

#[test]
fn guard_of_a_reserved_adaptive_object_excludes_others() {
    let acts = reserved_adaptive();
    let guard = acts.read();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            acts.update(add(1));
            *acts.read()
        });
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(*guard, 0);
        drop(guard);
        assert_eq!(other.join().unwrap(), 1);
    });
}

#[test]
fn reserved_adaptive_object_is_poisoned_and_changes_its_mode_as_any() {
    for mode in [Mode::Direct, Mode::Shared, Mode::Logs] {
        let acts = reserved_adaptive();
        assert!(in_other_thread(|| acts.pin(mode)));
        acts.update(add(1));
        assert_eq!(*acts.read(), 1);
        let acts = reserved_adaptive();
        assert!(acts.pin(mode));
        acts.update(add(1));
        assert_eq!(in_other_thread(|| *acts.read()), 1);
    }
    let acts = reserved_adaptive();
    let panics = catch_unwind(AssertUnwindSafe(|| acts.update(Box::new(|_| panic!("planned")))));
    assert!(panics.is_err());
    assert!(matches!(in_other_thread(|| acts.try_read().err()), Some(TryReadError::Poisoned)));
}

/// Yields the thread to other tasks once.
async fn pass_on() {
    let mut is_new = true;
    poll_fn(|_| if mem::take(&mut is_new) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// Runs the tasks on two threads; the next free thread runs a task's next step.
fn run_on_two_threads(tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>) {
    let left = AtomicUsize::new(tasks.len());
    let tasks = Mutex::new(VecDeque::from(tasks));
    let work = || {
        while left.load(SeqCst) != 0 {
            thread::yield_now();
            let Some(mut task) = tasks.lock().unwrap().pop_front() else { continue };
            let mut context = Context::from_waker(Waker::noop());
            match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context))) {
                Ok(Poll::Pending) => tasks.lock().unwrap().push_back(task),
                Ok(Poll::Ready(())) => _ = left.fetch_sub(1, SeqCst),
                Err(panic) => {
                    left.store(0, SeqCst); // the other thread ends, too
                    resume_unwind(panic);
                }
            }
        }
    };
    thread::scope(|scope| [(); 2].map(|()| scope.spawn(work)).map(|worker| worker.join().unwrap()));
}

/// Each task has its own object, which is reserved for the thread that runs the task first. All
/// tasks share two more objects.
#[test]
fn tasks_that_move_between_threads_lose_no_update_of_reserved_objects() {
    const TASKS: u64 = 4;
    const STEPS: u64 = 40;
    let shared = Arc::new((Sum::new(0), Adaptive::<u64, Commuting<Add>>::new(0)));
    (0..USES).for_each(|_| shared.0.append(Add(1)));
    let task = |shared: Arc<(Sum, Adaptive<u64, Commuting<Add>>)>| async move {
        let own = (Sum::new(0), Adaptive::<u64, Commuting<Add>>::new(0));
        for step in 1..=STEPS {
            let uses = if step == 1 { USES } else { 10 };
            for _ in 0..uses {
                own.0.append(Add(1));
                own.1.update(Add(1));
            }
            shared.0.append(Add(1));
            shared.1.update(Add(1));
            let expected = USES + 10 * (step - 1);
            assert_eq!((*own.0.read(), *own.1.read()), (expected, expected));
            own.0.append(Add(1)); // the last one before another thread reads
            *own.0.read() -= 1;
            assert!(*shared.0.read() >= USES + step && *shared.1.read() >= step);
            pass_on().await;
        }
    };
    run_on_two_threads((0..TASKS).map(|_| Box::pin(task(Arc::clone(&shared))) as _).collect());
    assert_eq!((*shared.0.read(), *shared.1.read()), (USES + TASKS * STEPS, TASKS * STEPS));
}
