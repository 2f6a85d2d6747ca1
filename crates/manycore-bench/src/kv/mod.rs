//! A cache that all threads read, and fill when they miss (ParSec, figures 7 and 8).
//!
//! Owns: the traits that every cache implements, the loop, and the table of implementations.
//!
//! By default there are a million keys of 16 bytes and values of 32. Requests are generated
//! beforehand. With a sufficient capacity every key is inserted first. With a capacity of a tenth,
//! a get that misses is followed by a set, and a million requests warm up the cache. One operation
//! in sixteen is timed. All caches use the same fast hash function, and are allocated in full size.
//! Under a scan, a loop and a mix of both, only the hit ratio is meaningful.
//!
//! With the requests of a file (`--trace`; see `file` for its form), they are first replayed once
//! on an empty cache, which gives the hit ratio. They are then replayed repeatedly, which gives the
//! other figures.

#[cfg(feature = "c-rivals")]
mod c;
mod file;
mod ours;
mod paper;
mod rivals;
pub(crate) mod trace;

use std::{
    fmt,
    hint::black_box,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

pub use file::{FileTrace, TraceError};
pub use trace::Keys;
use trace::{KEYS, SET, Trace, Wanted};

use crate::{
    latency::Latencies,
    resident::resident,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks,
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// Operations between two looks at the stop flag.
const BATCH: usize = 64;

/// Of so many operations one is timed.
const TIMED: usize = 16;

/// Requests before the measurement, where the capacity is not sufficient.
const WARM_UP: usize = 1_000_000;

/// A key.
pub type Key = [u8; 16];

/// A value.
pub type Value = [u8; 32];

/// A cache.
pub trait KvImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: KvHandle;

    /// An empty cache of so many entries, for requests of so many keys: it has room for the smaller
    /// of the two from the start.
    fn new(capacity: usize, keys: usize) -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self) -> Self::Handle<'_>;
}

/// One thread's way to the cache.
pub trait KvHandle {
    /// Whether gets are done sixteen at a time.
    const BATCHED: bool = false;

    /// The first word of the key's value, if it is there.
    fn get(&mut self, key: &Key) -> Option<u64>;

    /// Puts a value there, whether there is one or not.
    fn set(&mut self, key: Key, value: Value);

    /// As `get`, for many keys.
    fn get_many(&mut self, keys: &[Key], mut each: impl FnMut(usize, Option<u64>)) {
        keys.iter().enumerate().for_each(|(index, key)| each(index, self.get(key)));
    }
}

fn word_of(value: &Value) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("values are longer"))
}

/// Room for so many entries in a cache that counts bytes, with what it has beside them.
fn bytes_of(entries: usize) -> u64 {
    256 * entries as u64
}

/// The key of a number.
#[inline(always)]
fn key_of(number: u32) -> Key {
    let word = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (u128::from(word) << 64 | u128::from(number)).to_le_bytes()
}

/// A value of a key's number, with the first word `word`.
#[inline(always)]
fn value_of(word: u64) -> Value {
    let mut value = [0; 32];
    value[..8].copy_from_slice(&word.to_le_bytes());
    value
}

/// What concerns `kv` alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvOptions {
    /// The requests, instead of generated ones; neither shares of sets nor keys count then.
    pub trace: Option<&'static FileTrace>,
    /// What the caches have room for.
    pub capacity: Capacity,
}

/// What the caches of a run have room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// All keys; then a tenth of them, with the hit ratios of other orders of keys.
    #[default]
    Both,
    /// All keys, and nothing else is run.
    All,
    /// A tenth of the keys, with the hit ratios of other orders.
    Tenth,
    /// So many entries.
    Entries(usize),
}

/// What a cache has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    All,
    Tenth,
    Entries(usize),
}

impl FromStr for Capacity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "both" => Ok(Capacity::Both),
            "all" => Ok(Capacity::All),
            "tenth" => Ok(Capacity::Tenth),
            _ => match text.parse() {
                Ok(entries @ 1..) => Ok(Capacity::Entries(entries)),
                _ => Err("say 'all', 'tenth', 'both' or a number of entries"),
            },
        }
    }
}

impl Capacity {
    /// The capacities to run.
    fn each(self) -> Vec<Room> {
        match self {
            Capacity::Both => vec![Room::All, Room::Tenth],
            Capacity::All => vec![Room::All],
            Capacity::Tenth => vec![Room::Tenth],
            Capacity::Entries(entries) => vec![Room::Entries(entries)],
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Room::All => f.write_str("sufficient"),
            Room::Tenth => f.write_str("a tenth"),
            Room::Entries(entries) => entries.fmt(f),
        }
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    wanted: Wanted,
    /// What is there instead.
    file: Option<&'static FileTrace>,
    room: Room,
}

impl Shape {
    /// Entries that the cache may hold.
    fn capacity(&self) -> usize {
        // Caches in shards and sets need more than the keys, to hold them all.
        let keys = self.wanted.keys;
        match self.room {
            Room::All => keys + keys.div_ceil(4),
            Room::Tenth => keys.div_ceil(10),
            Room::Entries(entries) => entries,
        }
    }
}

struct Shared<C> {
    cache: C,
    shape: Shape,
    trace: Arc<Trace>,
    times: Mutex<Latencies>,
    gets: AtomicU64,
    hits: AtomicU64,
    /// Resident memory before the cache was made, and once it was filled.
    resident: [AtomicU64; 2],
}

/// What a thread has seen.
#[derive(Default)]
struct Seen {
    gets: u64,
    hits: u64,
    digest: u64,
}

impl<C: KvImpl> Shared<C> {
    fn new(shape: Shape) -> Self {
        let trace = match shape.file {
            Some(file) => Arc::clone(&file.trace),
            None => Trace::shared(shape.wanted),
        };
        let before = resident();
        Self {
            cache: C::new(shape.capacity(), shape.wanted.keys),
            shape,
            trace,
            times: Mutex::new(Latencies::new()),
            gets: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            resident: [AtomicU64::new(before), AtomicU64::new(0)],
        }
    }

    #[inline(always)]
    fn request<H: KvHandle>(&self, handle: &mut H, request: u32, seen: &mut Seen) {
        let number = request & !SET;
        let key = key_of(number);
        if request & SET != 0 {
            handle.set(key, value_of(u64::from(number)));
            return;
        }
        seen.gets += 1;
        match handle.get(&key) {
            Some(word) => {
                seen.hits += 1;
                seen.digest ^= word;
            }
            None => handle.set(key, value_of(u64::from(number))),
        }
    }

    /// The gets of these requests together, then the sets.
    fn request_many<H: KvHandle>(&self, handle: &mut H, requests: &[u32], seen: &mut Seen) {
        let (mut keys, mut numbers) = ([[0; 16]; BATCH], [0; BATCH]);
        let mut count = 0;
        for request in requests.iter().filter(|request| **request & SET == 0) {
            (keys[count], numbers[count]) = (key_of(*request), *request);
            count += 1;
        }
        let mut missed = 0_u64;
        handle.get_many(&keys[..count], |index, word| match word {
            Some(word) => seen.digest ^= word,
            None => missed |= 1 << index,
        });
        seen.gets += count as u64;
        seen.hits += count as u64 - u64::from(missed.count_ones());
        for index in (0..count).filter(|index| missed & 1 << index != 0) {
            handle.set(keys[index], value_of(u64::from(numbers[index])));
        }
        for request in requests.iter().filter(|request| **request & SET != 0) {
            self.request(handle, *request, seen);
        }
    }

    fn count(&self, seen: &Seen) {
        self.gets.fetch_add(seen.gets, Relaxed);
        self.hits.fetch_add(seen.hits, Relaxed);
    }

    fn warm_up<H: KvHandle>(&self, handle: &mut H, index: usize) {
        let part = |whole: usize| {
            let length = whole / self.shape.threads;
            index * length..if index + 1 == self.shape.threads {
                whole
            } else {
                length * (index + 1)
            }
        };
        if self.shape.file.is_some() {
            // An empty cache, and each request once: this is the hit ratio.
            let (requests, mut seen) = (&self.trace.requests, Seen::default());
            requests[part(requests.len())].iter().for_each(|r| self.request(handle, *r, &mut seen));
            self.count(&seen);
            return;
        }
        if self.shape.room == Room::All {
            part(self.shape.wanted.keys)
                .for_each(|n| handle.set(key_of(n as u32), value_of(n as u64)));
            return;
        }
        let requests = self.trace.requests.iter().rev().cycle();
        let own = part(WARM_UP.min(self.trace.requests.len()));
        let mut seen = Seen::default();
        requests.skip(own.start).take(own.len()).for_each(|r| self.request(handle, *r, &mut seen));
    }
}

impl<C: KvImpl> Subject for Shared<C> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        fn batched<H: KvHandle>(_: &H) -> bool {
            H::BATCHED
        }
        let mut handle = self.cache.handle();
        self.warm_up(&mut handle, index);
        self.resident[1].fetch_max(resident(), Relaxed);
        let requests = &self.trace.requests;
        let mut at = requests.len() / self.shape.threads * index;
        let (mut seen, mut times) = (Seen::default(), Latencies::new());
        let tally = control.drive(|| {
            if at + BATCH > requests.len() {
                at = 0;
            }
            let batch = &requests[at..requests.len().min(at + BATCH)];
            at += BATCH;
            if batched(&handle) {
                let start = ticks::now();
                self.request_many(&mut handle, batch, &mut seen);
                times.record(ticks::now().wrapping_sub(start) / batch.len() as u64);
                return batch.len() as u64;
            }
            for (number, request) in batch.iter().enumerate() {
                if number % TIMED == 0 {
                    let start = ticks::now();
                    self.request(&mut handle, *request, &mut seen);
                    times.record(ticks::now().wrapping_sub(start));
                } else {
                    self.request(&mut handle, *request, &mut seen);
                }
            }
            batch.len() as u64
        });
        black_box(seen.digest);
        if self.shape.file.is_none() {
            self.count(&seen);
        }
        self.times.lock().unwrap_or_else(PoisonError::into_inner).merge(&times);
        tally
    }

    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        let times = || self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let hits =
            || 100.0 * self.hits.load(Relaxed) as f64 / self.gets.load(Relaxed).max(1) as f64;
        match metric {
            "hits" => Some(hits()),
            "memory" => {
                let [before, after] = [0, 1].map(|at| self.resident[at].load(Relaxed));
                let entries = self.shape.capacity().min(self.shape.wanted.keys);
                Some(after.saturating_sub(before) as f64 / entries as f64)
            }
            "p50" => Some(times().quantile_ns(0.5)),
            "p99" => Some(times().quantile_ns(0.99)),
            "p99.9" => Some(times().quantile_ns(0.999)),
            _ => None,
        }
    }
}

/// The table's row for what forgets nothing: what a cache costs beyond it.
const fn unbounded<C: KvImpl>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry { kind: Kind::Floor, ..entry::<C>(name, about) }
}

/// The table's row for a cache.
const fn entry<C: KvImpl>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        Kind::Rival,
        about,
        |shape| Box::new(Shared::<C>::new(shape)),
        || conform::<C>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        kind: Kind::Baseline,
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", "lru's LruCache, owned by one thread")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Ours<false, false>>("cache", "manycore-cache, scan-resistant eviction")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Ours<true, false>>("cache-clock", "manycore-cache, the paper's CLOCK")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Ours<false, true>>(
            "cache-many",
            "manycore-cache, gets by get_many; times are a batch's, divided by its length",
        )
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Bytes>("cache-bytes", "manycore-cache with keys and values of any length")
    },
    #[cfg(feature = "c-rivals")]
    Entry {
        kind: Kind::Ours,
        ..entry::<c::FromC>("cache-c", "the same as C programs have it: a call for each")
    },
    entry::<paper::Stock>(
        "stock",
        "as memcached was: a mutex for each chain, a list of recency behind another",
    ),
    entry::<paper::Modified>("modified", "the same with MCS locks, and CLOCK in place of the list"),
    unbounded::<paper::Unreplaced>(
        "sections-only",
        "collections::HashMap: sections, nothing evicted; cache-clock without its policy",
    ),
    entry::<rivals::LruMutex>("lru-mutex", "lru's LruCache behind std's Mutex"),
    entry::<rivals::Scc<false>>(
        "scc",
        "scc HashCache: a list of recency in each bucket, read_sync",
    ),
    entry::<rivals::Scc<true>>("scc-get", "the same by get_sync, which keeps recency at each hit"),
    entry::<rivals::Quick>("quick_cache", "quick_cache: Clock-PRO in shards with locks"),
    entry::<rivals::Moka>("moka", "moka: W-TinyLFU, with logs of reads and of writes"),
    entry::<rivals::MiniMoka>("mini-moka", "mini-moka: the same with less around it"),
    #[cfg(feature = "foyer")]
    entry::<rivals::Foyer<false>>("foyer", "foyer's memory cache as it comes: LRU in shards"),
    #[cfg(feature = "foyer")]
    entry::<rivals::Foyer<true>>("foyer-s3fifo", "the same with S3-FIFO, whose reads share a lock"),
    unbounded::<rivals::Dash>("dashmap", "a map in shards with locks, where nothing is evicted"),
    unbounded::<rivals::Papaya>("papaya", "a map with lock-free reads, where nothing is evicted"),
    Entry {
        threads_max: 1,
        ..unbounded::<rivals::Floor>(
            "floor",
            "a line for each entry, one thread, nothing evicted: the least that a look-up costs",
        )
    },
];

/// Those that hold whatever is put in, or bound it by bytes: shown only where the capacity is
/// sufficient.
const UNBOUNDED: [&str; 6] =
    ["sections-only", "dashmap", "papaya", "floor", "cache-bytes", "cache-c"];

const METRICS: [Metric; 6] = [
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric::of_subject("hits", "%"),
    Metric::of_subject("memory", "B/entry"),
    Metric::of_subject("p50", "ns"),
    Metric::of_subject("p99", "ns"),
    Metric::of_subject("p99.9", "ns"),
];

/// The groups for some options: capacity sufficient and of a tenth for each share of sets and
/// thread count, then the hit ratios of other shapes on one thread.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("kv", ENTRIES, &options.impls)?;
    let mut groups = Vec::new();
    let KvOptions { trace: file, capacity } = options.own.get::<KvOptions>();
    let mut group = |keys, threads, set, order: Keys, room: Room| {
        let wanted = Wanted { set, requests: options.ops, order, keys };
        let shape = |threads| Shape { threads, wanted, file, room };
        let mut chosen = chosen.clone();
        chosen.retain(|entry| room == Room::All || !UNBOUNDED.contains(&entry.name));
        let (cases, left_out) = cases(&chosen, threads, shape);
        let capacity = room.to_string();
        let order = if file.is_some() { "trace" } else { order.word() };
        let words = [("order", order), ("capacity", &capacity)];
        let mut params = options.params([("set", set.into()), ("keys", keys.into())]);
        params.extend(words.map(|(name, word)| (name.to_owned(), word.into())));
        groups.push(Group {
            bench: "kv",
            title: format!(
                "{}, {order}{}, {set} % sets, capacity {capacity}",
                threads_word(threads),
                Wanted::keys_word(keys)
            ),
            params,
            metrics: METRICS.to_vec(),
            cases,
            left_out,
        });
    };
    if let Some(file) = file {
        for room in capacity.each() {
            for &threads in &options.threads {
                group(file.keys, threads, file.set, Keys::Zipf, room);
            }
        }
        return Ok(groups);
    }
    for &keys in options.keys_or(&[KEYS]) {
        for room in capacity.each() {
            for &set in &options.set {
                for &threads in &options.threads {
                    group(keys, threads, set, Keys::Zipf, room);
                }
            }
        }
        if matches!(capacity, Capacity::Both | Capacity::Tenth) {
            for order in [Keys::Scan, Keys::Loop, Keys::Mixed] {
                group(keys, 1, 0, order, Room::Tenth);
            }
        }
    }
    Ok(groups)
}

/// Every thread finds its own keys as it left them, and under any other key only what belongs
/// there.
fn conform<C: KvImpl>(threads: usize) -> Result<(), String> {
    let cache = &C::new(4_096, 4_096);
    thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(&mut cache.handle(), index, threads));
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })
}

fn churn(handle: &mut impl KvHandle, thread: usize, threads: usize) -> Result<(), String> {
    let mut own = std::collections::HashMap::new();
    for step in 0..3_000_u64 {
        // Few keys, so that they come again; every so-many-th is this thread's.
        let number = (step.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as u32 % 64;
        let mine = number as usize % threads == thread;
        if mine && step % 2 == 0 {
            own.insert(number, step << 32 | u64::from(number));
            handle.set(key_of(number), value_of(step << 32 | u64::from(number)));
        }
        let mut all = Vec::new();
        handle.get_many(&[key_of(number), key_of(number + 1_000)], |_, word| all.push(word));
        let found = handle.get(&key_of(number));
        if all.len() != 2 || all[1].is_some() || (mine && all[0] != found) {
            return Err(format!("{all:?} of two keys, of which the first gave {found:?}"));
        }
        if mine && found != own.get(&number).copied() {
            return Err(format!("{found:?} under {number} instead of {:?}", own.get(&number)));
        }
        if found.is_some_and(|word| word as u32 != number) {
            return Err(format!("{found:?} under {number}, where it does not belong"));
        }
    }
    Ok(())
}
