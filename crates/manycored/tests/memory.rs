//! How much memory a store takes, whatever sizes its items have, one after the other; and that
//! items stay what they are when memory is put in order.
//!
//! `MANYCORE_SEED=0x12ab` asks for the same sequence again.
#![cfg(target_os = "linux")]

#[path = "../../manycore/tests/common/env.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod env;
#[path = "../../manycore/tests/common/rng.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod rng;

use manycored::protocol::Mode;
use manycored::store::{Handle, Limits, NewItem, Outcome, Store, StoreCondition};
use rng::Rng;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const MB: usize = 1 << 20;
const SIZES: [usize; 14] =
    [45, 60, 100, 200, 300, 700, 1000, 2000, 5000, 12_000, 30_000, 100_000, 400_000, 900_000];

/// Resident bytes of this process.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("as ever");
    let kilobytes: usize = line.split_whitespace().nth(1).expect("a number").parse().expect("one");
    kilobytes << 10
}

fn key(number: usize) -> Vec<u8> {
    // Some are long: then nothing but the key lies in the first piece of the item's memory.
    let mut key = format!("key{number}").into_bytes();
    if number.is_multiple_of(11) {
        key.resize(250 - number % 40, b'k');
    }
    key
}

/// A value that says whose it is.
fn value(number: usize, length: usize, pattern: &mut Vec<u8>) {
    pattern.clear();
    let word = (number as u64).to_le_bytes();
    pattern.extend(word.iter().cycle().take(length));
}

fn set(handle: &mut Handle<'_>, number: usize, value: &[u8], ttl: i64) -> Outcome {
    let deadline = handle.store().clock().deadline(ttl);
    let key = key(number);
    let new_item = NewItem { deadline, flags: (number % 3) as u32, ..NewItem::new(&key, value) };
    handle.put(&new_item, StoreCondition::plain(Mode::Set)).outcome
}

/// A sequence of sizes, deletions, times and flushes: memory stays within a tenth more than the
/// limit, and what a process has besides.
#[test]
fn resident_memory_is_bounded_after_any_sequence_of_sizes() {
    const LIMIT: usize = 64 * MB;
    const BOUND: usize = LIMIT + LIMIT / 10 + (24 + 3) * MB;
    let _alone = env::alone();
    let seed = env::seed();
    let mut rng = Rng::new(seed);
    let before = resident();
    let store = Store::new(Limits { memory: LIMIT as u64, ..Limits::default() }, 1);
    let mut handle = store.handle(0);
    let (mut number, mut bytes) = (0, Vec::new());
    for phase in 0..env::rounds(3) {
        let size = SIZES[rng.below(SIZES.len())];
        let (spread, ttl) = (rng.below(3), rng.below(4) as i64 / 3);
        let deletes = rng.below(3) == 0;
        // A phase may end before the last one's items have gone.
        let mut left = LIMIT / 4 + rng.below(LIMIT * 3 / 2);
        let mut most = 0;
        while left > 0 {
            let length = size + rng.below(size * spread / 4 + 1);
            value(number, length, &mut bytes);
            set(&mut handle, number, &bytes, ttl);
            if deletes && number.is_multiple_of(2) {
                handle.delete(&key(number - rng.below(number / 2 + 1)), None);
            }
            number += 1;
            left = left.saturating_sub(length + 64);
            if number.is_multiple_of(4096) || size > 10_000 && number.is_multiple_of(64) {
                most = most.max(resident());
            }
        }
        match rng.below(8) {
            0 => handle.flush(0),
            1 => store.sweep(true),
            _ => {}
        }
        most = most.max(resident()).saturating_sub(before);
        println!(
            "phase {phase}, {size} bytes: {:.1} MB resident, {:.1} counted, {:?}, seed {seed:#x}",
            most as f64 / MB as f64,
            store.bytes() as f64 / MB as f64,
            store.usage()
        );
        assert!(most <= BOUND, "{most} bytes in phase {phase}, of {size} bytes, seed {seed:#x}");
    }
}

/// Nothing is evicted here, so each item must be there, and whole, while others are made and
/// deleted, and their memory is put in order.
#[test]
fn items_stay_what_they_are_when_memory_is_vacated() {
    const THREADS: usize = 3;
    let _alone = env::alone();
    let seed = env::seed();
    let limits = Limits { memory: 24 << 20, evicts: false, ..Limits::default() };
    let store = Store::new(limits, THREADS);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, refused) = (&store, &refused);
            scope.spawn(move || {
                let mut rng = Rng::new(seed + thread as u64);
                let mut handle = store.handle(thread);
                let mut own: Vec<(usize, usize)> = Vec::new();
                let (mut number, mut bytes) = (thread, Vec::new());
                let check = |handle: &Handle<'_>, (number, length): (usize, usize)| {
                    let mut expected = Vec::new();
                    value(number, length, &mut expected);
                    let found = handle.peek(&key(number));
                    let found = found.unwrap_or_else(|| panic!("{number} is lost, {seed:#x}"));
                    assert!(*found.key().value() == expected[..], "{number} is torn, {seed:#x}");
                    assert_eq!(found.key().flags(), (number % 3) as u32, "{number}, {seed:#x}");
                };
                for round in 0..env::rounds(12) {
                    // At first small ones, of which most go, and then large ones: memory must move.
                    let size = [SIZES[0], SIZES[9], SIZES[rng.below(12)]][round.min(2)];
                    let mut refusals = 0;
                    while refusals < 3 {
                        let length = size + rng.below(size / 4 + 1);
                        value(number, length, &mut bytes);
                        match set(&mut handle, number, &bytes, 0) {
                            Outcome::Stored => own.push((number, length)),
                            _ => refusals += 1,
                        }
                        number += THREADS;
                        if rng.below(4) == 0 && !own.is_empty() {
                            check(&handle, own[rng.below(own.len())]);
                        }
                    }
                    refused.fetch_add(refusals, Ordering::Relaxed);
                    // Holes everywhere.
                    let keep = if round == 0 { 1 } else { 1 + rng.below(3) };
                    own.retain(|item| {
                        let stays = rng.below(4) < keep;
                        if !stays {
                            check(&handle, *item);
                            assert_eq!(handle.delete(&key(item.0), None), Outcome::Stored);
                        }
                        stays
                    });
                }
                own.iter().for_each(|item| check(&handle, *item));
            });
        }
    });
    assert!(refused.into_inner() > 0);
    let usage = store.usage();
    println!("{usage:?}, seed {seed:#x}");
    assert!(usage.mapped < 40 * MB, "{usage:?}, seed {seed:#x}");
    assert!(usage.vacated > 0 || env::rounds(12) < 12, "nothing was moved, seed {seed:#x}");
}
