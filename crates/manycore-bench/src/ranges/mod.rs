//! Values under ranges of keys, as in an address space: threads look up keys, and insert and remove
//! ranges.
//!
//! Owns: the trait that every map of ranges implements, the loop, and the table of implementations.
//!
//! Keys are addresses. There are places for `--keys` ranges of `--pages` pages of 4096 keys, each
//! followed by a gap of the same length. Some lie a page or two off their multiple. Half of the
//! ranges are in the map at any time. An operation looks up a key of a place. With the probability
//! that `--update` sets, it inserts or removes the range of a place instead, equally often. An
//! insertion checks that the range is free.

mod ours;
mod rivals;

use std::{collections::BTreeMap, hint::black_box, thread};

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// How many places there are, unless asked for.
pub const KEYS: [usize; 2] = [1_000, 100_000];
/// How many pages a range has, unless asked for.
pub const PAGES: [u64; 2] = [1, 16];
const PAGE: u64 = 4096;
/// Where the places begin: as high as mappings of a process.
const BASE: u64 = 0x7f00_0000_0000;

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// The workload's own options.
#[derive(Clone, Debug, Default)]
pub struct RangesOptions {
    /// How many pages a range has; none for the defaults.
    pub pages: Vec<u64>,
}

/// A map from ranges to words.
pub trait RangesImpl: Sync + Send + Sized + 'static {
    /// An empty map.
    fn new() -> Self;

    /// The key's value.
    fn get(&self, key: u64) -> Option<u64>;

    /// Gives the keys a value, if none has one. Says whether it did.
    fn insert(&self, first: u64, last: u64, value: u64) -> bool;

    /// Takes the values off the keys, which are no more and no less than a range's, or no range's.
    fn remove(&self, first: u64, last: u64);
}

/// A generator of places and chances: Marsaglia's xorshift, the same for every map.
struct Random(u64);

impl Random {
    fn of(thread: usize) -> Self {
        Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread as u64 + 1))
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    places: u64,
    pages: u64,
    update: u8,
}

impl Shape {
    /// First and last key of a place.
    #[inline(always)]
    fn place(&self, number: u64) -> (u64, u64) {
        let keys = self.pages * PAGE;
        let first = BASE + number * 2 * keys + number % 3 % (self.pages + 1) * PAGE;
        (first, first + keys - 1)
    }
}

struct RangesSubject<M> {
    map: M,
    shape: Shape,
}

impl<M: RangesImpl> RangesSubject<M> {
    fn new(shape: Shape) -> Self {
        let map = M::new();
        for number in (0..shape.places).step_by(2) {
            let (first, last) = shape.place(number);
            map.insert(first, last, number);
        }
        Self { map, shape }
    }
}

impl<M: RangesImpl> Subject for RangesSubject<M> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut random = Random::of(index);
        // Of 2^16 chances.
        let updates = u64::from(self.shape.update) * 65_536 / 100;
        control.drive(|| {
            for _ in 0..BATCH {
                let word = random.next();
                let number = ((word >> 32) * self.shape.places) >> 32;
                let (first, last) = self.shape.place(number);
                if word & 0xFFFF >= updates {
                    black_box(self.map.get(first + (word >> 20) % (last - first)));
                } else if word & 0x1_0000 != 0 {
                    self.map.remove(first, last);
                } else {
                    black_box(self.map.insert(first, last, number));
                }
            }
            BATCH
        })
    }
}

/// The table's row for a map.
const fn entry<M: RangesImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(RangesSubject::<M>::new(shape)),
        || conform::<M>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", Kind::Baseline, "BTreeMap, owned by one thread")
    },
    entry::<rivals::StdRwLock>(
        "rwlock-btree",
        Kind::Rival,
        "BTreeMap by first key behind std's RwLock",
    ),
    entry::<rivals::ParkingLotRangeMap>(
        "parking_lot-rangemap",
        Kind::Rival,
        "the crate rangemap behind parking_lot's RwLock",
    ),
    entry::<rivals::SkipList>(
        "skiplist",
        Kind::Rival,
        "crossbeam SkipMap by first key; overlapping insertions at the same time both succeed",
    ),
    entry::<rivals::RangeLocked>(
        "range-lock",
        Kind::Rival,
        "the same under a range lock: a list of the locked ranges behind a mutex",
    ),
    entry::<ours::Trie>("range-map", Kind::Ours, "RangeMap, a section for each call"),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 };

/// The groups for some options: one for each count of places, length, share of updates and thread
/// count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("ranges", ENTRIES, &options.impls)?;
    let own: RangesOptions = options.own.get();
    let lengths = if own.pages.is_empty() { PAGES.to_vec() } else { own.pages };
    let group = |keys: usize, pages: u64, update: u8, threads: usize| {
        let shape = Shape { places: keys as u64, pages, update };
        let (cases, left_out) = cases(&chosen, threads, |_| shape);
        let threads = threads_word(threads);
        Group {
            bench: "ranges",
            title: format!("{threads}, {keys} ranges of {pages} pages, {update} % updates"),
            params: options.params([
                ("keys", keys.into()),
                ("pages", pages.into()),
                ("update", update.into()),
            ]),
            metrics: vec![METRIC],
            cases,
            left_out,
        }
    };
    let mut groups = Vec::new();
    for &keys in options.keys_or(&KEYS) {
        for &pages in &lengths {
            for &update in &options.update {
                let each = options.threads.iter();
                groups.extend(each.map(|&threads| group(keys, pages, update, threads)));
            }
        }
    }
    Ok(groups)
}

/// Each thread finds its own ranges as it left them, and in others' only what belongs there.
fn conform<M: RangesImpl>(threads: usize) -> Result<(), String> {
    let map = &M::new();
    thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(map, index, threads));
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })
}

fn churn(map: &impl RangesImpl, thread: usize, threads: usize) -> Result<(), String> {
    let shape = Shape { places: 64, pages: 3, update: 0 };
    let (mut own, mut random) = (BTreeMap::new(), Random::of(thread));
    for step in 0..3_000_u64 {
        let word = random.next();
        let number = (word >> 32) % shape.places;
        let (first, last) = shape.place(number);
        let is_own = number as usize % threads == thread;
        match word % 4 {
            0 if is_own => {
                let is_free = !own.contains_key(&number);
                let value = step << 32 | number;
                if map.insert(first, last, value) != is_free {
                    return Err(format!("range {number} was free: {is_free}, and not as inserted"));
                }
                own.entry(number).or_insert(value);
            }
            1 if is_own => {
                own.remove(&number);
                map.remove(first, last);
            }
            _ => {
                let found = map.get(first + (word >> 8) % (last - first + 1));
                let is_right = match found {
                    Some(value) if is_own => own.get(&number) == Some(&value),
                    Some(value) => value & 0xFFFF_FFFF == number,
                    None => !is_own || !own.contains_key(&number),
                };
                if !is_right || map.get(last + 1).is_some() {
                    return Err(format!("{found:?} in range {number}, or something behind it"));
                }
            }
        }
    }
    Ok(())
}
