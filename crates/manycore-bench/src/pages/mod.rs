//! Pages of a slow store, used by many threads. `pages` pins a page at random and sometimes changes
//! it (K42, sections 4.2 and 4.3: file cache manager and page descriptors). `grep` reads a whole
//! file page by page, on every thread from the file's beginning (K42, figure 12).
//!
//! Owns: the store, the trait that every cache implements, the loops, and the table of
//! implementations.
//!
//! `pages` has two tables: all pages fit, or half of them do. The cache is full before the count
//! begins. Where all pages fit, nothing is loaded then, except by a cache whose shards fill up
//! unevenly. Where half fit, the steady state is counted. A load and a write-back take 2,000 ticks,
//! a number chosen here. It is less than any disk takes, so that the tables show the cache. The
//! column of loads gives the percentage of pins that load. The pages are chosen by squares of even
//! numbers, so that a tenth of them gets a third of the pins.
//!
//! `grep` has a file of 8 MiB, which is in the cache before the count begins; the paper's had 111
//! MB. A page has 4 KiB, as there.

mod conform;
mod ours;
mod rivals;

use std::{
    hint::black_box,
    marker::PhantomData,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_utils::CachePadded;

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// Pages of the store of `pages`.
const PAGES: u64 = 4096;

/// Ticks of a load and of a write-back.
const LATENCY: u64 = 2_000;

/// Pages of the file of `grep`, and bytes of each.
const FILE: u64 = 2048;
const BYTES: usize = 4096;

/// What `grep` looks for.
const NEEDLE: u8 = b'q';

/// Pages between two looks at the stop flag.
const BATCH: u64 = 16;

/// A page in memory.
struct Page {
    key: u64,
    /// How often it has been changed.
    changes: AtomicU64,
    text: Box<[u8]>,
}

/// The store: of each page it keeps how often that has been changed.
struct Disk {
    changes: Box<[AtomicU64]>,
    bytes: usize,
    latency: u64,
    loads: CachePadded<AtomicU64>,
    /// Keys of pages that are being written back: two at a time could overtake each other.
    writing: Mutex<Vec<u64>>,
}

impl Disk {
    fn new(pages: u64, bytes: usize, latency: u64) -> Self {
        Self {
            changes: (0..pages).map(|_| AtomicU64::new(0)).collect(),
            bytes,
            latency,
            loads: CachePadded::default(),
            writing: Mutex::default(),
        }
    }

    fn load(&self, key: u64) -> Page {
        spin(self.latency);
        self.loads.fetch_add(1, Ordering::Relaxed);
        let changes = self.changes[key as usize].load(Ordering::Relaxed).into();
        let letter = |at: usize| b'a' + ((at as u64).wrapping_mul(key | 1) % 26) as u8;
        Page { key, changes, text: (0..self.bytes).map(letter).collect() }
    }

    fn write_back(&self, page: &Page) {
        let mut writing = self.writing.lock().expect("no panic under this lock");
        assert!(!writing.contains(&page.key), "two write-backs of one page");
        writing.push(page.key);
        drop(writing);
        spin(self.latency);
        let changes = page.changes.load(Ordering::Relaxed);
        self.changes[page.key as usize].store(changes, Ordering::Relaxed);
        let mut writing = self.writing.lock().expect("no panic under this lock");
        writing.retain(|key| *key != page.key);
    }
}

/// A cache of pages.
trait Pages: Sync + Sized + 'static {
    /// An empty one for so many pages.
    fn new(disk: Disk, room: usize) -> Self;

    /// Calls `f` with a page, which is pinned until it returns. `f` says whether it has changed it.
    fn with(&self, key: u64, f: impl FnOnce(&Page) -> bool);

    /// Writes back all that was changed.
    fn flush(&self);

    /// The store.
    fn disk(&self) -> &Disk;
}

/// What a subject is made of.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    update: u8,
    room: u64,
}

/// What threads do to a cache.
trait Load: Send + Sync + 'static {
    fn cache<C: Pages>(shape: Shape) -> C;
    fn work<C: Pages>(cache: &C, shape: Shape, index: usize, control: &Control) -> Tally;
}

struct PagesSubject<C, L> {
    cache: C,
    shape: Shape,
    /// Loads before it counts.
    filled: u64,
    load: PhantomData<fn() -> L>,
}

impl<C: Pages, L: Load> Subject for PagesSubject<C, L> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        L::work(&self.cache, self.shape, index, control)
    }

    fn figure(&self, metric: &str, tallies: &[Tally]) -> Option<f64> {
        let loads = self.cache.disk().loads.load(Ordering::Relaxed) - self.filled;
        let pins = tallies.iter().map(|tally| tally.ops).sum::<u64>();
        (metric == LOADS.name).then(|| 100.0 * loads as f64 / pins.max(1) as f64)
    }
}

/// Pages at random.
struct Pin;

impl Load for Pin {
    fn cache<C: Pages>(shape: Shape) -> C {
        let cache = C::new(Disk::new(PAGES, 0, LATENCY), shape.room as usize);
        // The hot ones, which are the lowest, last.
        (0..shape.room).rev().for_each(|key| cache.with(key, |_| false));
        cache
    }

    fn work<C: Pages>(cache: &C, shape: Shape, index: usize, control: &Control) -> Tally {
        let mut random = Random::of(index);
        let changed = u64::from(shape.update) * 65_536 / 100;
        control.drive(|| {
            for _ in 0..BATCH {
                let word = random.next();
                let changes = word & 0xFFFF < changed;
                cache.with(skewed(word, PAGES), |page| {
                    if changes {
                        page.changes.fetch_add(1, Ordering::Relaxed);
                    }
                    black_box(page.key);
                    changes
                });
            }
            BATCH
        })
    }
}

/// A key below `keys`: the square of an even number, scaled.
fn skewed(word: u64, keys: u64) -> u64 {
    let even = word >> 40; // 24 bits
    (((even * even) >> 24) * keys) >> 24
}

/// A file, read by all threads.
struct Grep;

impl Load for Grep {
    fn cache<C: Pages>(shape: Shape) -> C {
        let cache = C::new(Disk::new(FILE, BYTES, 0), shape.room as usize);
        (0..FILE).for_each(|key| cache.with(key, |_| false));
        cache
    }

    fn work<C: Pages>(cache: &C, _: Shape, _: usize, control: &Control) -> Tally {
        let mut next = 0;
        control.drive(|| {
            let mut found = 0;
            for _ in 0..BATCH {
                cache.with(next, |page| {
                    found += page.text.iter().filter(|&&letter| letter == NEEDLE).count();
                    false
                });
                next = (next + 1) % FILE;
            }
            black_box(found);
            BATCH
        })
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn of(thread: usize) -> Self {
        Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread as u64 + 1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

const fn entry<C: Pages, L: Load>(
    name: &'static str,
    kind: Kind,
    about: &'static str,
) -> Entry<Shape> {
    Entry {
        name,
        kind,
        about,
        threads_max: usize::MAX,
        build: |shape| {
            let cache: C = L::cache(shape);
            let filled = cache.disk().loads.load(Ordering::Relaxed);
            Box::new(PagesSubject::<C, L> { cache, shape, filled, load: PhantomData })
        },
        conform: conform::conform::<C>,
    }
}

const fn entries<L: Load>() -> [Entry<Shape>; 9] {
    [
        Entry {
            threads_max: 1,
            ..entry::<rivals::Locked<rivals::StdMutex, 1>, L>(
                "unshared",
                Kind::Baseline,
                "mutex-map, which only one thread uses",
            )
        },
        entry::<rivals::Locked<rivals::StdMutex, 1>, L>(
            "mutex-map",
            Kind::Rival,
            "HashMap of Arcs behind std's Mutex; loads outside of it, write-backs inside",
        ),
        entry::<rivals::Locked<rivals::StdRwLock, 1>, L>(
            "rwlock-map",
            Kind::Rival,
            "HashMap of Arcs behind std's RwLock; loads outside of it, write-backs inside",
        ),
        entry::<rivals::Locked<rivals::ParkingLot, 1>, L>(
            "parking_lot-map",
            Kind::Rival,
            "HashMap of Arcs behind parking_lot's RwLock, as above",
        ),
        entry::<rivals::Locked<rivals::StdMutex, 64>, L>(
            "hand-sharded",
            Kind::ByHand,
            "64 mutex-maps by hand, each with its part of the room",
        ),
        entry::<rivals::Dash, L>(
            "dashmap",
            Kind::Rival,
            "DashMap of Arcs, and a queue for eviction behind std's Mutex",
        ),
        entry::<ours::Cached<ours::Contended>, L>(
            "page-cache",
            Kind::Ours,
            "PageCache: one table, and one for each thread once they wait for each other",
        ),
        entry::<ours::Cached<ours::Always>, L>(
            "page-cache-distributed",
            Kind::Ours,
            "PageCache with a table for each thread from the start",
        ),
        entry::<ours::Cached<ours::Never>, L>(
            "page-cache-in-one",
            Kind::Ours,
            "PageCache that stays with one table",
        ),
    ]
}

/// The implementations under `pages`.
pub static PIN: &[Entry<Shape>] = &entries::<Pin>();

/// The implementations under `grep`.
pub static GREP: &[Entry<Shape>] = &entries::<Grep>();

const PINS: Metric =
    Metric { name: "throughput", unit: "Mpins/s", of: |tallies| total_rate(tallies) / 1e6 };

const LOADS: Metric = Metric::of_subject("loads", "% of pins");

const SCANNED: Metric = Metric {
    name: "throughput",
    unit: "MB/s",
    of: |tallies| total_rate(tallies) * BYTES as f64 / 1e6,
};

/// The groups of `pages`: one for each share of changes, thread count, and whether all pages fit.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("pages", PIN, &options.impls)?;
    let mut groups = Vec::new();
    for (room, fit) in [(PAGES, "all fit"), (PAGES / 2, "half fit")] {
        for &update in &options.update {
            for &threads in &options.threads {
                let shape = |_| Shape { update, room };
                let (cases, left_out) = cases(&chosen, threads, shape);
                groups.push(Group {
                    bench: "pages",
                    title: format!("{}, {fit}, {update} % change it", threads_word(threads)),
                    params: options.params([("room", room.into()), ("update", update.into())]),
                    metrics: vec![PINS, LOADS],
                    cases,
                    left_out,
                });
            }
        }
    }
    Ok(groups)
}

/// The groups of `grep`: one for each thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn grep(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("grep", GREP, &options.impls)?;
    let group = |&threads: &usize| {
        // Shards fill up unevenly, and all of the file has to fit.
        let shape = |_| Shape { update: 0, room: 2 * FILE };
        let (cases, left_out) = cases(&chosen, threads, shape);
        Group {
            bench: "grep",
            title: threads_word(threads),
            params: options.params([("pages", FILE.into()), ("page_bytes", BYTES.into())]),
            metrics: vec![SCANNED],
            cases,
            left_out,
        }
    };
    Ok(options.threads.iter().map(group).collect())
}
