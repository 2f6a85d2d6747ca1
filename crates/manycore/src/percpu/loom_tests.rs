//! Models of the slots and the barrier, and what models of every module share.
//!
//! loom runs a model once for each way in which the threads' steps can interleave and, per load,
//! for each store that the load may see, up to a bound on preemptions. It runs the real code
//! through the facade. It can't show instructions, nor orders that only accesses marked SeqCst
//! would forbid. (It treats these as AcqRel, so it may find too much, never too little.) A
//! membarrier has its own model (see `barrier`), and so has a futex (see `lock::futex`).
//!
//! *A test of the test*: a model that passes with its law broken proves nothing. So models run
//! again, each in its own process, with a bug planted in the real code, and must fail there.

#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
mod stacks;

use super::slots::Records;
use super::{barrier, records, token};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Runs `body` in every interleaving with up to `preemptions` preemptions, or up to
/// `LOOM_MAX_PREEMPTIONS` if that is more. `body` joins the threads it starts; threads that took a
/// slot may still be giving it back.
pub(crate) fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let runs = Arc::new(Mutex::new(0_u64));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.max_branches = 5_000;
    let counted = Arc::clone(&runs);
    builder.check(move || {
        *counted.lock().unwrap() += 1;
        // Loom drops globals before the locals of its first thread, and a local gives the slot
        // back. So the first thread takes no slot, and waits at the end for the other threads'
        // slots.
        let body = Arc::clone(&body);
        thread::spawn(move || body()).join().unwrap();
        loom::stop_exploring();
        while !records().is_unused() || token::in_use() != 0 {
            thread::yield_now();
        }
    });
    println!("{} interleavings", runs.lock().unwrap());
}

/// Returns true if `MANYCORE_MODELS` asks for the short form of long models.
pub(crate) fn is_short() -> bool {
    std::env::var("MANYCORE_MODELS").is_ok_and(|form| form == "short")
}

/// Same as [`model`], for models that take many seconds: one preemption less if `MANYCORE_MODELS`
/// is `short`.
pub(crate) fn large_model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let short = is_short();
    model(preemptions - usize::from(short), body);
}

/// Same as [`large_model`], with two preemptions less in the short form.
pub(crate) fn huge_model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    model(preemptions - if is_short() { 2 } else { 0 }, body);
}

/// Runs `f` without a context switch in it, and with loads that see one store. For what a model
/// needs and does not test, such as the slot that a thread takes first.
pub(crate) fn unexplored<R>(f: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let result = f();
    loom::explore();
    result
}

/// Runs the model `test` (its path under the crate) again with `bug` planted, and asserts that it
/// fails with one of `signs` in its output.
pub(crate) fn must_catch(bug: &str, test: &str, signs: &[&str]) {
    must_catch_in(None, bug, test, signs);
}

/// Same as [`must_catch`], for a bug that the short form of a large model does not catch.
pub(crate) fn must_catch_in_full(bug: &str, test: &str, signs: &[&str]) {
    must_catch_in(Some("full"), bug, test, signs);
}

fn must_catch_in(form: Option<&str>, bug: &str, test: &str, signs: &[&str]) {
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("MANYCORE_SEEDED_BUG", bug)
        .envs(form.map(|form| ("MANYCORE_MODELS", form)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "{test} is no test:\n{said}");
    assert!(!run.status.success(), "{test} passes with the bug {bug} in place");
    let reason = said.lines().skip_while(|line| !line.contains("panicked at")).nth(1);
    println!("{bug} in {test}: {}", reason.unwrap_or_default());
    assert!(
        signs.iter().any(|sign| said.contains(sign)),
        "{test} fails with the bug {bug}, but for another reason:\n{said}"
    );
}

/// What loom prints when two threads access a cell at the same time, or with no happens-before.
pub(crate) const RACE: [&str; 3] =
    ["Causality violation", "currently writing to cell", "currently reading from cell"];

#[test]
fn loom_slot_handed_over_shows_the_old_owners_writes() {
    model(3, || {
        let shared = Arc::new((Records::new(), UnsafeCell::new(0)));
        let old = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (records, canary) = &*shared;
                let mine = records.take();
                if mine.index() == 0 {
                    // SAFETY: the owner of slot 0 has the cell; loom checks it.
                    canary.with_mut(|canary| unsafe { *canary += 1 });
                }
                records.give_back(mine);
                mine.index()
            })
        };
        let (records, canary) = &*shared;
        let mine = records.take();
        let index = mine.index();
        if index == 0 {
            // SAFETY: this thread has slot 0, and with it the cell; loom checks that the owner
            // before is done.
            canary.with_mut(|canary| unsafe { *canary += 1 });
        }
        records.give_back(mine);
        let other = old.join().unwrap();
        // SAFETY: the other thread is gone.
        let owned = canary.with(|canary| unsafe { *canary });
        assert_eq!(owned, [index, other].iter().filter(|index| **index == 0).count());
        assert!(owned > 0, "the lowest slot is handed out first");
        assert!(records.is_unused() && records.high() <= 2);
    });
}

/// Either the thread that takes an ended thread's slot for that, or the slot's next owner, changes
/// what the ended thread left behind, one after the other.
#[test]
fn loom_free_slot_is_worked_on_by_one_thread_at_a_time() {
    model(2, || {
        let shared = Arc::new((Records::new(), UnsafeCell::new(0)));
        shared.0.give_back(shared.0.take());
        let works: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (records, left) = &*shared;
                    // SAFETY: runs with slot 0 taken; loom checks that it is alone.
                    records.with_free(0, || left.with_mut(|left| unsafe { *left += 1 }));
                })
            })
            .collect();
        let (records, left) = &*shared;
        let mine = records.take();
        if mine.index() == 0 {
            // SAFETY: the owner of slot 0 has the cell; loom checks it.
            left.with_mut(|left| unsafe { *left += 1 });
        }
        records.give_back(mine);
        works.into_iter().for_each(|work| work.join().unwrap());
        assert!(records.is_unused() && records.high() <= 2);
    });
}

#[test]
fn loom_work_on_an_untaken_slot_is_caught() {
    let test = "percpu::loom_tests::loom_free_slot_is_worked_on_by_one_thread_at_a_time";
    must_catch("untaken-slot", test, &RACE);
}

#[test]
fn loom_slots_taken_at_once_are_different() {
    model(2, || {
        let records = Arc::new(Records::new());
        let others: Vec<_> = (0..2)
            .map(|_| {
                let records = Arc::clone(&records);
                thread::spawn(move || records.take().index())
            })
            .collect();
        let mut taken = vec![records.take().index()];
        taken.extend(others.into_iter().map(|other| other.join().unwrap()));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2], "slots are dense and have one owner");
        assert_eq!(records.high(), 3);
    });
}

/// A watcher that has waited for the withdrawal sees what the owner did before it withdrew.
#[test]
fn loom_wait_for_returns_after_the_owners_writes() {
    model(3, || {
        let shared = Arc::new((Records::new(), UnsafeCell::new(0), AtomicUsize::new(0)));
        let owner = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (records, canary, closed) = &*shared;
                let mine = records.take();
                let _inside = mine.announce(16, false);
                if closed.load(Ordering::Acquire) == 0 {
                    // SAFETY: announced while open: the watcher waits for the withdrawal.
                    canary.with_mut(|canary| unsafe { *canary += 1 });
                }
            })
        };
        let (records, canary, closed) = &*shared;
        closed.store(1, Ordering::Release);
        barrier::fence_full();
        records.wait_until_none(|word| word == 16);
        // SAFETY: closed, barrier passed, no owner is inside.
        canary.with_mut(|canary| unsafe { *canary += 1 });
        owner.join().unwrap();
    });
}

#[test]
fn loom_unwaited_owner_is_caught() {
    let test = "percpu::loom_tests::loom_wait_for_returns_after_the_owners_writes";
    must_catch("unawaited-reader", test, &RACE);
}

/// Waits until only the caller has a token or a slot: the other threads have ended then.
pub(crate) fn wait_for_ended() {
    while token::in_use() > 1 || !records().is_unused() {
        thread::yield_now();
    }
}

/// The process's records: slots of threads that end are taken over, and the canary with them.
#[test]
fn loom_threads_that_end_leave_their_slot() {
    model(2, || {
        let canary = Arc::new(UnsafeCell::new(0));
        let visit = |canary: &UnsafeCell<usize>| {
            let slot = super::current_slot();
            if slot == 0 {
                // SAFETY: the owner of slot 0 has the cell.
                canary.with_mut(|canary| unsafe { *canary += 1 });
            }
            slot
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let canary = Arc::clone(&canary);
                thread::spawn(move || visit(&canary))
            })
            .collect();
        let slots: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(slots.contains(&0) && slots.iter().all(|slot| *slot < 2));
        assert!(super::slot_count() <= 2);
    });
}
