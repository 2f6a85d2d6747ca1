//! Models of the pool's laws: one object, two or three threads. The object is a loom cell. So the
//! model fails if it has two holders, or a holder that does not see what the last one did.

use super::{ObjectPool, Pooled};
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch};
use crate::sync::{UnsafeCell, thread};
use loom::sync::Notify;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

struct Thing(UnsafeCell<usize>);

// SAFETY: the cell is what the test is about.
unsafe impl Send for Thing {}

#[test]
fn loom_pool_lends_a_thing_to_one_at_a_time() {
    model(2, || {
        let pool = Arc::new(ObjectPool::new(1, || Thing(UnsafeCell::new(0))));
        let use_it = |pool: &ObjectPool<Thing>| {
            let Some(thing) = pool.take() else { return false };
            // SAFETY: the pool lends it to one at a time; loom checks it.
            thing.0.with_mut(|uses| unsafe { *uses += 1 });
            true
        };
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || usize::from(use_it(&pool)))
        };
        let mut uses = usize::from(use_it(&pool));
        uses += other.join().unwrap();
        assert!(uses >= 1, "one of them comes first");
        assert_eq!(pool.created(), 1, "more things than the bound");
        let thing = pool.take().expect("idle, wherever it lies");
        // SAFETY: the pool lends the thing to this thread alone, as the other one has ended; loom
        // checks it.
        assert_eq!(thing.0.with(|seen| unsafe { *seen }), uses);
        assert!(pool.take().is_none() && pool.created() == 1);
    });
}

#[test]
fn loom_thing_counted_after_the_look_at_the_bound_is_caught() {
    let test = "collections::object_pool::loom_tests::loom_pool_lends_a_thing_to_one_at_a_time";
    must_catch("late-count", test, &["more things than the bound"]);
}

fn pool() -> Arc<ObjectPool<Thing>> {
    Arc::new(ObjectPool::new(1, || Thing(UnsafeCell::new(0))))
}

fn use_once(thing: &mut Thing) {
    // SAFETY: the pool lends it to one at a time; loom checks it.
    thing.0.with_mut(|uses| unsafe { *uses += 1 });
}

/// A thread begins to wait while the only object is given back, by a thread that has no shelf yet
/// (object_pool.P5). A missed object is a deadlock.
#[test]
fn loom_pool_waiter_gets_what_is_given_back() {
    model(2, || {
        let pool = pool();
        let lent = Pooled::into_owned(pool.get(), &pool);
        let gives = thread::spawn(move || drop(lent));
        use_once(&mut pool.get());
        gives.join().unwrap();
        assert_eq!((pool.created(), pool.idle()), (1, 1));
    });
}

const WAITER: &str =
    "collections::object_pool::loom_tests::loom_pool_waiter_gets_what_is_given_back";

#[test]
fn loom_pool_waiter_that_no_return_sees_is_caught() {
    must_catch("unseen-waiter", WAITER, &["deadlock"]);
}

/// A shelf's user and the closer that empties it (object_pool.P2).
#[test]
fn loom_pool_closed_behind_the_users_back_is_caught() {
    let test = "collections::object_pool::loom_tests::loom_pool_lends_a_thing_to_one_at_a_time";
    for bug in ["plain-publish", "fenced-closing", "unawaited-reader"] {
        must_catch(bug, test, &RACE);
    }
}

/// A count that is given up serves a waiter as well.
#[test]
fn loom_pool_waiter_makes_a_thing_in_place_of_a_detached_one() {
    model(2, || {
        let pool = pool();
        let lent = Pooled::into_owned(pool.get(), &pool);
        let keeps = thread::spawn(move || _ = lent.detach());
        use_once(&mut pool.get());
        keeps.join().unwrap();
        assert_eq!((pool.created(), pool.idle()), (1, 1));
    });
}

/// Wakes a task that is a thread; see the queue's models for why not by `unpark`.
struct Task(Notify);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// A future that waits first in line is dropped while the object comes back (object_pool.P6). The
/// second in line gets it.
#[test]
fn loom_pool_dropped_future_passes_its_turn_on() {
    large_model(2, || {
        let pool = pool();
        let lent = Pooled::into_owned(pool.get(), &pool);
        let idle = Waker::from(Arc::new(Task(Notify::new())));
        let mut first = Box::pin(pool.get_async());
        assert!(first.as_mut().poll(&mut Context::from_waker(&idle)).is_pending());
        let gives = thread::spawn(move || drop(lent));
        let second = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let task = Arc::new(Task(Notify::new()));
                let waker = Waker::from(Arc::clone(&task));
                let mut future = pin!(pool.get_async());
                while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    task.0.wait();
                }
            })
        };
        drop(first);
        gives.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn loom_pool_turn_lost_with_its_future_is_caught() {
    let test = "collections::object_pool::loom_tests::loom_pool_dropped_future_passes_its_turn_on";
    must_catch("dropped-turn", test, &["deadlock"]);
}
