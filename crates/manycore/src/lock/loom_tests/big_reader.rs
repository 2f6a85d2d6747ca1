//! Models of the big-reader lock. The value is a cell: loom sees a reader beside a writer, and a
//! reader that does not see what the writer before wrote.

use super::super::BrLock;
use crate::percpu::loom_tests::{RACE, large_model, model, must_catch, wait_for_ended};
use crate::percpu::{current_slot, thread_token};
use crate::sync::thread;
use std::sync::Arc;

fn lock(fenced: bool) -> Arc<BrLock<(usize, usize)>> {
    Arc::new(if fenced { BrLock::with_full_fences((0, 0)) } else { BrLock::new((0, 0)) })
}

fn look(lock: &BrLock<(usize, usize)>) {
    let value = lock.read();
    assert_eq!(value.0, value.1, "a reader saw half a write");
}

fn write(lock: &BrLock<(usize, usize)>) {
    let mut value = lock.write();
    value.0 += 1;
    value.1 += 1;
}

fn reader_beside_writer(fenced: bool) {
    model(2, move || {
        let shared = lock(fenced);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (0..2).for_each(|_| look(&shared)))
        };
        write(&shared);
        reader.join().unwrap();
        assert_eq!(*shared.read(), (1, 1));
    });
}

#[test]
fn loom_biased_reader_and_writer_exclude_each_other() {
    reader_beside_writer(false);
}

#[test]
fn loom_fenced_reader_and_writer_exclude_each_other() {
    reader_beside_writer(true);
}

#[test]
fn loom_reader_that_counts_itself_plainly_is_caught() {
    for reader in ["biased", "fenced"] {
        let test = format!("loom_{reader}_reader_and_writer_exclude_each_other");
        must_catch("plain-publish", &format!("lock::loom_tests::big_reader::{test}"), &RACE);
    }
}

#[test]
fn loom_two_writers_exclude_each_other_and_wake_a_reader() {
    model(1, || {
        let shared = lock(false);
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared))
        };
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || look(&shared))
        };
        write(&shared);
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(*shared.read(), (2, 2));
    });
}

/// The second read of a thread must not wait for a writer that waits for the first (br.R4).
#[test]
fn loom_reader_reads_again_while_a_writer_waits() {
    model(2, || {
        let shared = lock(false);
        let outer = shared.read();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared))
        };
        let inner = shared.read();
        assert_eq!(*outer, (0, 0));
        drop(outer);
        assert_eq!(*inner, (0, 0));
        drop(inner);
        writer.join().unwrap();
        look(&shared);
    });
}

#[test]
fn loom_try_write_has_the_value_alone_or_is_refused() {
    model(2, || {
        let shared = lock(false);
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || look(&shared))
        };
        if let Some(mut value) = shared.try_write() {
            value.0 += 1;
            value.1 += 1;
        }
        reader.join().unwrap();
        look(&shared);
        assert!(shared.try_write().is_some(), "nobody is left");
    });
}

/// A thread's lane goes with its slot to the next thread (br.R2).
#[test]
fn loom_lane_passes_to_the_next_thread() {
    large_model(1, || {
        let shared = lock(false);
        let comers: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || look(&shared))
            })
            .collect();
        write(&shared);
        comers.into_iter().for_each(|comer| comer.join().unwrap());
        look(&shared);
    });
}

/// A thread that has ended leaves its token to one thread and its lane to another: the first must
/// not count itself in the lane of the second (br.R4).
#[test]
fn loom_token_and_lane_of_an_ended_thread_go_different_ways() {
    large_model(3, || {
        let shared = lock(false);
        let here = thread_token();
        let visit = || {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                look(&shared);
                (thread_token(), current_slot())
            })
        };
        let ended = visit().join().unwrap();
        wait_for_ended();
        assert_eq!(current_slot(), ended.1);
        let heir = visit();
        look(&shared);
        write(&shared);
        let heir = heir.join().unwrap();
        assert!(here != ended.0 && heir.0 == ended.0 && heir.1 != ended.1);
        look(&shared);
    });
}

#[test]
fn loom_reader_that_trusts_a_dead_threads_token_is_caught() {
    let test = "loom_token_and_lane_of_an_ended_thread_go_different_ways";
    let test = format!("lock::loom_tests::big_reader::{test}");
    // Or the count that its leaving lost is still there.
    let signs = [RACE[0], RACE[1], RACE[2], "that it is reading or writing"];
    must_catch("token-before-count", &test, &signs);
}
