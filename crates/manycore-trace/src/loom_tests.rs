//! Models of a ring's writer beside a reader (ring.R1 to ring.R4).

use crate::format::{BLOCK_HEAD, block, parts, tag};
use crate::memory::Words;
use crate::ring::{Copied, Policy, Ring, Sizes, Writer};
use crate::sync::Ordering;
use loom::thread;
use std::process::Command;
use std::sync::Arc;

/// Sizes of sub-buffers with room for `events` events of two words.
fn sizes(events: usize, blocks: usize) -> Sizes {
    Sizes { block_words: BLOCK_HEAD + 2 * events, blocks }
}

fn ring(sizes: Sizes, policy: Policy) -> Arc<Ring> {
    Arc::new(Ring::new(Words::on_heap(sizes.words()), sizes, 0, policy))
}

/// Event number `n` holds `n`, at the time 100 + `n`.
fn record(writer: &mut Writer, n: u64) -> bool {
    writer.record(tag(16, 0), 2, 100 + n, |words| words[0].store(n, Ordering::Relaxed))
}

/// Checks the events of a copied sub-buffer and returns their numbers.
fn check(words: &[u64]) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut at = BLOCK_HEAD;
    while at < words.len() && words[at] != 0 {
        let (time, length, id, _) = parts(words[at]);
        assert_eq!((length, id), (2, 16), "a record is torn");
        assert_eq!(time, 100 + words[at + 1], "a record is torn");
        numbers.push(words[at + 1]);
        at += 2;
    }
    assert!(numbers.first().is_none_or(|n| *n == words[block::FIRST]), "a record is torn");
    numbers
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(3));
    builder.max_branches = 50_000;
    builder.check(body);
}

/// The reader copies a sub-buffer while the writer goes on in it and overwrites it.
#[test]
fn loom_copied_events_are_whole_beside_the_writer() {
    model(|| {
        let ring = ring(sizes(1, 1), Policy::Overwrite);
        let mut writer = Writer::new(Arc::clone(&ring));
        assert!(record(&mut writer, 0));
        let thread = thread::spawn(move || {
            assert!(record(&mut writer, 1));
        });
        let mut words = Vec::new();
        for sequence in 0..2 {
            if ring.copy(sequence, &mut words) == Copied::Whole {
                let events = check(&words);
                assert!(events.iter().all(|n| *n == sequence), "a record is torn");
            }
        }
        thread.join().unwrap();
        assert_eq!(ring.copy(1, &mut words), Copied::Whole);
        assert_eq!(check(&words), [1], "an event is missing");
    });
}

/// Two events in one sub-buffer: the reader sees none, one or both.
#[test]
fn loom_count_of_complete_words_covers_whole_events() {
    model(|| {
        let ring = ring(sizes(2, 2), Policy::Overwrite);
        let mut writer = Writer::new(Arc::clone(&ring));
        let thread = thread::spawn(move || (0..2).all(|n| record(&mut writer, n)));
        let mut words = Vec::new();
        if ring.copy(0, &mut words) == Copied::Whole {
            let count = (words.len() - BLOCK_HEAD) as u64 / 2;
            assert!(check(&words).iter().copied().eq(0..count), "a record is torn");
        }
        assert!(thread.join().unwrap());
    });
}

/// The reader consumes. The writer drops events without room. Each event is read or counted.
#[test]
fn loom_events_are_read_or_counted_where_a_reader_consumes() {
    model(|| {
        let ring = ring(sizes(1, 1), Policy::Drop);
        let mut writer = Writer::new(Arc::clone(&ring));
        assert!(record(&mut writer, 0));
        let thread = thread::spawn(move || u64::from(!record(&mut writer, 1)));
        let mut words = Vec::new();
        let mut read = 0;
        assert_eq!(ring.copy(0, &mut words), Copied::Whole, "an event is missing");
        read += check(&words).len() as u64;
        ring.consume(1);
        let lost = thread.join().unwrap();
        if ring.copy(1, &mut words) == Copied::Whole {
            read += check(&words).len() as u64;
        }
        assert_eq!(read + lost, 2, "an event is missing");
    });
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
fn loom_early_commit_is_caught() {
    must_catch("trace-early-commit", "loom_count_of_complete_words_covers_whole_events", "torn");
}

#[test]
fn loom_copy_without_a_second_look_is_caught() {
    must_catch("trace-one-look", "loom_copied_events_are_whole_beside_the_writer", "torn");
}

#[test]
fn loom_open_rewrite_is_caught() {
    must_catch("trace-open-rewrite", "loom_copied_events_are_whole_beside_the_writer", "torn");
}

#[test]
fn loom_writer_that_does_not_ask_is_caught() {
    let model = "loom_events_are_read_or_counted_where_a_reader_consumes";
    must_catch("trace-unconsumed", model, "missing");
}
