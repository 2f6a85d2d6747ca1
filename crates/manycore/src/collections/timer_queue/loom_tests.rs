//! Models of laws timer_queue.T1 and timer_queue.T2: a timer that is cancelled, or detached, beside
//! an advance. And of watch.E1 and watch.E3: timers that are set beside looks for the next
//! deadline.
//!
//! The value is a loom cell, which the inserter has written and the owner writes. So a value with
//! two owners, or an owner that misses an earlier write, fails the model.

use super::TimerQueue;
use crate::collections::member_pool::FewMembers;
use crate::ldu::Queue;
use crate::percpu::loom_tests::{model, must_catch};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

struct Value(Arc<UnsafeCell<usize>>);

// SAFETY: the cell is what the test is about.
unsafe impl Send for Value {}

impl Value {
    fn new() -> (Self, Arc<UnsafeCell<usize>>) {
        let cell = Arc::new(UnsafeCell::new(0));
        (Self(Arc::clone(&cell)), cell)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the owner of the value has it alone; loom checks it.
        self.0.with_mut(|drops| unsafe { *drops += 1 });
    }
}

fn beside_an_advance(is_small: bool, act: fn(super::Timer<'_, Value>) -> usize) {
    // Three switches: to the insertion, from it into the advance, and back into the act.
    model(3, move || {
        let timers = FewMembers::new(Queue::Global);
        let timers = if is_small { timers } else { timers.promoted() };
        let queue = Arc::new(TimerQueue { timers });
        let (value, cell) = Value::new();
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || act(queue.insert(1, value)))
        };
        let mut had = queue.advance(1).len();
        had += other.join().unwrap();
        had += queue.advance(1).len();
        assert_eq!(had, 1, "the value was had by none, or by two");
        assert!(queue.next_deadline().is_none());
        drop(queue);
        // SAFETY: all others have gone.
        assert_eq!(cell.with(|drops| unsafe { *drops }), 1);
    });
}

fn cancel(timer: super::Timer<'_, Value>) -> usize {
    usize::from(timer.cancel().is_some())
}

fn detach(timer: super::Timer<'_, Value>) -> usize {
    timer.detach();
    0
}

#[test]
fn loom_timer_is_fired_or_cancelled() {
    beside_an_advance(false, cancel);
}

#[test]
fn loom_timer_of_a_small_queue_is_fired_or_cancelled() {
    beside_an_advance(true, cancel);
}

#[test]
fn loom_detached_timer_fires_once_and_is_freed() {
    beside_an_advance(false, detach);
}

#[test]
fn loom_detached_timer_of_a_small_queue_fires_once_and_is_freed() {
    beside_an_advance(true, detach);
}

#[test]
fn loom_late_look_for_the_handle_is_caught() {
    let test = "collections::timer_queue::loom_tests::loom_detached_timer_fires_once_and_is_freed";
    must_catch("timer-late-look", test, &["is not in the set", "is used after its time"]);
}

#[test]
fn loom_value_taken_without_a_look_is_caught() {
    let test = "collections::timer_queue::loom_tests::loom_timer_is_fired_or_cancelled";
    let signs = ["had by none, or by two", "currently writing to cell", "Causality violation"];
    must_catch("timer-taken-twice", test, &signs);
}

#[test]
fn loom_timer_is_found_or_told_of() {
    model(3, || {
        let told = Arc::new(AtomicUsize::new(0));
        let hook = Arc::clone(&told);
        let queue = TimerQueue::with_queue(Queue::Global).on_earlier(move |_| {
            hook.fetch_add(1, Ordering::Relaxed);
        });
        queue.insert(3, 0).detach();
        assert_eq!(queue.next_deadline(), Some(3)); // which sets the bound
        assert_eq!(queue.advance(3).len(), 1);
        told.store(0, Ordering::Relaxed);
        let queue = Arc::new(queue);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.insert(9, 1).detach())
        };
        let found = queue.next_deadline();
        other.join().unwrap();
        let is_told = told.load(Ordering::Relaxed) != 0;
        assert!(found.is_some() || is_told, "a timer was neither found nor told of");
    });
}

/// Another thread's look, which finds what has fired meanwhile, must not leave its bound.
#[test]
fn loom_timer_is_found_or_told_of_beside_two_looks() {
    model(3, || {
        let told = Arc::new(AtomicUsize::new(0));
        let hook = Arc::clone(&told);
        let queue = TimerQueue::with_queue(Queue::Global).on_earlier(move |_| {
            hook.fetch_add(1, Ordering::Relaxed);
        });
        queue.insert(3, 0).detach();
        told.store(0, Ordering::Relaxed);
        let queue = Arc::new(queue);
        let look = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.next_deadline())
        };
        assert_eq!(queue.advance(3).len(), 1);
        let found = queue.next_deadline();
        look.join().unwrap();
        assert_eq!(found, None);
        queue.insert(9, 1).detach();
        assert_ne!(told.load(Ordering::Relaxed), 0, "a timer was neither found nor told of");
    });
}

#[test]
fn loom_look_before_the_bound_is_raised_is_caught() {
    let test = "collections::timer_queue::loom_tests::loom_timer_is_found_or_told_of";
    must_catch("timer-look-before-watch", test, &["neither found nor told of"]);
}
