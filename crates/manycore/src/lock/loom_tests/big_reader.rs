//! Models of the big-reader lock. The value is a cell: loom reports a reader that runs beside a
//! writer, and a reader that does not see what the writer before it wrote. The gate has models of
//! its own ([`crate::percpu::gate`]).

use super::super::BrLock;
use crate::percpu::loom_tests::{RACE, model, must_catch};
use crate::sync::thread;
use std::sync::Arc;

fn lock() -> Arc<BrLock<(usize, usize)>> {
    Arc::new(BrLock::new((0, 0)))
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

#[test]
fn loom_reader_and_writer_exclude_each_other() {
    model(2, || {
        let shared = lock();
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
fn loom_writer_that_waits_for_no_reader_is_caught() {
    let test = "lock::loom_tests::big_reader::loom_reader_and_writer_exclude_each_other";
    must_catch("unawaited-reader", test, &RACE);
}

#[test]
fn loom_two_writers_exclude_each_other_and_wake_a_reader() {
    model(1, || {
        let shared = lock();
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
        let shared = lock();
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
        let shared = lock();
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
        assert!(shared.try_write().is_some(), "no thread is left");
    });
}
