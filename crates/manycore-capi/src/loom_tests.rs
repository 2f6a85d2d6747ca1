//! Models of waiting: the counts of a barrier (capi.A4), and the list of `mc_call` (capi.A6).

use crate::call_list::{CallList, Link};
use crate::pending::Pending;
use crate::sync::{AtomicUsize, Ordering, thread};
use std::process::Command;
use std::ptr;
use std::sync::Arc;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(body);
}

/// One call-back is scheduled before the barrier and runs in another thread. A third thread
/// schedules others in the same generation, which are done at once.
#[test]
fn loom_barrier_waits_for_what_was_scheduled_before() {
    model(|| {
        let pending = Arc::new(Pending::new());
        let has_run = Arc::new(AtomicUsize::new(0));
        let generation = pending.schedule(Some(0));
        let runs = {
            let (pending, has_run) = (Arc::clone(&pending), Arc::clone(&has_run));
            thread::spawn(move || {
                has_run.store(1, Ordering::Relaxed);
                pending.done(Some(1), generation);
            })
        };
        let others = {
            let pending = Arc::clone(&pending);
            thread::spawn(move || {
                let generation = pending.schedule(None);
                pending.done(None, generation);
            })
        };
        pending.wait(|| ());
        assert_eq!(has_run.load(Ordering::Relaxed), 1, "a call-back has not run");
        runs.join().unwrap();
        others.join().unwrap();
        assert!(pending.is_none(), "a call-back is counted twice, or not");
    });
}

/// A call-back schedules another one. The barrier need not wait for that.
#[test]
fn loom_barrier_ends_beside_a_call_back_that_schedules() {
    model(|| {
        let pending = Arc::new(Pending::new());
        let generation = pending.schedule(Some(0));
        let chain = {
            let pending = Arc::clone(&pending);
            thread::spawn(move || {
                let next = pending.schedule(Some(1));
                pending.done(Some(1), generation);
                pending.done(Some(1), next);
            })
        };
        pending.wait(|| ());
        chain.join().unwrap();
        assert!(pending.is_none(), "a call-back is counted twice, or not");
    });
}

struct Number {
    next: *mut Number,
    value: usize,
}

impl Link for Number {
    fn next(&self) -> *mut Self {
        self.next
    }

    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
}

fn number(value: usize) -> *mut Number {
    Box::into_raw(Box::new(Number { next: ptr::null_mut(), value }))
}

/// Two threads push. A thread that finds no helper starts it. A lost wake-up is a deadlock.
#[test]
fn loom_each_call_is_taken_once_and_in_order() {
    model(|| {
        let list = Arc::new(CallList::<Number>::new());
        let push = |list: &Arc<CallList<Number>>, value| {
            // SAFETY: from a box that `help` frees.
            let is_lonely = unsafe { list.push(number(value)) };
            let helper = (is_lonely && list.claim()).then(|| Arc::clone(list));
            helper.map(|list| thread::spawn(move || help(&list)))
        };
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || push(&list, 1))
        };
        let helper = [push(&list, 10), push(&list, 11), other.join().unwrap()];
        let mut helpers = helper.into_iter().flatten();
        helpers.next().expect("a thread starts the helper").join().unwrap();
        assert!(helpers.next().is_none(), "two helpers");
    });
}

/// Takes the elements that the model pushes.
fn help(list: &CallList<Number>) {
    let mut values = Vec::new();
    list.serve(
        || (),
        |mut link| {
            while !link.is_null() {
                // SAFETY: in the list that was taken, and from a box.
                let number = unsafe { Box::from_raw(link) };
                values.push(number.value);
                link = number.next;
            }
            values.len() < 3
        },
    );
    values.retain(|value| *value >= 10);
    assert_eq!(values, [10, 11], "out of order");
}

/// Runs a model again with a planted bug, and checks that it fails for the right reason.
fn must_catch(bug: &str, model: &str, sign: &str) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("loom_tests::{model}"), "--nocapture"])
        .env("MANYCORE_SEEDED_BUG", bug)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "{model} is no test:\n{said}");
    assert!(!run.status.success(), "{model} passes with the bug {bug} in place");
    assert!(said.contains(sign), "another reason:\n{said}");
}

#[test]
fn loom_scheduled_summed_first_is_caught() {
    let model = "loom_barrier_waits_for_what_was_scheduled_before";
    must_catch("pending-scheduled-first", model, "has not run");
}

#[test]
fn loom_unpublished_count_is_caught() {
    let model = "loom_barrier_waits_for_what_was_scheduled_before";
    must_catch("pending-unpublished", model, "has not run");
}

#[test]
fn loom_look_before_the_push_is_caught() {
    must_catch("call-early-look", "loom_each_call_is_taken_once_and_in_order", "deadlock");
}
