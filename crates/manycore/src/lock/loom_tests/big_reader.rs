//! Models of the big-reader lock. The value is a cell: loom sees a reader beside a writer, and a
//! reader that does not see what the writer before wrote.

use super::super::BrLock;
use crate::percpu::loom_tests::{RACE, model, must_catch};
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

/// The second read of a thread must not wait for a writer that waits for the first (R4).
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

/// A thread's lane goes with its slot to the next thread (R2).
#[test]
fn loom_lane_passes_to_the_next_thread() {
    model(1, || {
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
