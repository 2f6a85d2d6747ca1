//! A map that all threads read, and that some of them change.
//!
//! Owns: the traits that every map implements, the loop, and the table of implementations.
//!
//! Keys are uniform, and half of them are in the map at any time. With a thousand keys the map fits
//! in the nearest cache, with a million ([`KEYS`]) in none. An operation is a look-up or, with the
//! probability that `--update` sets, a change. A change is an insertion or a removal, equally
//! often. All maps get the same fast hash function, and enough room from the start.

#[cfg(feature = "c-rivals")]
mod c;
pub mod ordered;
mod ours;
pub mod regions;
mod rivals;

use std::{collections::HashMap, hint::black_box, marker::PhantomData, thread};

use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// How many different keys there are, unless asked for.
pub const KEYS: [usize; 3] = [1_000, 64_000, 1_000_000];

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// A map from words to words.
pub trait MapImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: MapHandle;

    /// An empty map with room for so many keys.
    fn new(keys: usize) -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self) -> Self::Handle<'_>;
}

/// One thread's way to the map.
pub trait MapHandle {
    /// The key's value, if it is there.
    fn get(&mut self, key: u64) -> Option<u64>;

    /// Puts a value there, whether there is one or not.
    fn insert(&mut self, key: u64, value: u64);

    /// Removes the key, if it is there.
    fn remove(&mut self, key: u64);
}

/// The value that belongs to a key, with a mark of the thread that stored it.
fn value_of(key: u64, mark: u64) -> u64 {
    mark << 32 | key
}

/// A generator of keys and chances: Marsaglia's xorshift, the same for every map.
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

/// What threads do to a map.
trait Mix: Sync + Send + 'static {
    /// The workload's name.
    const BENCH: &'static str;
    /// Every so-many-th of them is in the map at the start.
    const STEP: usize;
    /// What a change is, for the title.
    const CHANGE: &'static str;

    /// The counts of keys: a group for each.
    fn keys(options: &Options) -> &[usize];

    /// Changes the key. `chance` is drawn anew for each change.
    fn change(handle: &mut impl MapHandle, key: u64, chance: bool);
}

/// The workload `map`: half of the keys are there, always.
struct Churn;

impl Mix for Churn {
    const BENCH: &'static str = "map";
    const STEP: usize = 2;
    const CHANGE: &'static str = "updates";

    fn keys(options: &Options) -> &[usize] {
        options.keys_or(&KEYS)
    }

    #[inline(always)]
    fn change(handle: &mut impl MapHandle, key: u64, chance: bool) {
        if chance {
            handle.remove(key);
        } else {
            handle.insert(key, value_of(key, 1));
        }
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    keys: usize,
    update: u8,
}

struct Shared<M, X> {
    map: M,
    shape: Shape,
    mix: PhantomData<X>,
}

impl<M: MapImpl, X: Mix> Shared<M, X> {
    fn new(shape: Shape) -> Self {
        let map = M::new(shape.keys);
        let mut handle = map.handle();
        (0..shape.keys as u64)
            .step_by(X::STEP)
            .for_each(|key| handle.insert(key, value_of(key, 0)));
        drop(handle);
        Self { map, shape, mix: PhantomData }
    }
}

impl<M: MapImpl, X: Mix> Subject for Shared<M, X> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut handle = self.map.handle();
        let mut random = Random::of(index);
        let keys = self.shape.keys as u64;
        // Of 2^16 chances.
        let updates = u64::from(self.shape.update) * 65_536 / 100;
        control.drive(|| {
            for _ in 0..BATCH {
                let word = random.next();
                let key = ((word >> 32) * keys) >> 32;
                if word & 0xFFFF >= updates {
                    black_box(handle.get(key));
                } else {
                    X::change(&mut handle, key, word & 0x1_0000 != 0);
                }
            }
            BATCH
        })
    }
}

/// The table's row for a map.
const fn entry<M: MapImpl, X: Mix>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        Kind::Rival,
        about,
        |shape| Box::new(Shared::<M, X>::new(shape)),
        || conform::<M>(3),
    )
}

/// How many implementations there are.
const COUNT: usize = 11 + cfg!(feature = "c-rivals") as usize;

/// Every implementation.
const fn entries<X: Mix>() -> [Entry<Shape>; COUNT] {
    [
        Entry {
            kind: Kind::Baseline,
            conform: || conform::<rivals::Unshared>(1),
            ..entry::<rivals::Unshared, X>("unshared", "std HashMap, owned by one thread")
        },
        Entry {
            kind: Kind::Ours,
            ..entry::<ours::Sections, X>(
                "hash-map",
                "collections::HashMap: a section for each call",
            )
        },
        #[cfg(feature = "c-rivals")]
        Entry {
            kind: Kind::Ours,
            ..entry::<c::FromC, X>("hash-map-c", "HashMap as C programs have it: a call for each")
        },
        Entry {
            kind: Kind::Ours,
            ..entry::<ours::Flat, X>(
                "flat-hash-map",
                "collections::FlatHashMap: entries in the buckets, by copy",
            )
        },
        Entry {
            kind: Kind::Ours,
            ..entry::<ours::Replicated, X>("replicated", "ReplicatedMap: a cache for each thread")
        },
        Entry {
            kind: Kind::Ours,
            ..entry::<ours::Distributed, X>(
                "dhash",
                "DHash: a table for each thread, which counts the look-ups of each key",
            )
        },
        entry::<rivals::StdMutex, X>("mutex", "std HashMap behind std's Mutex"),
        entry::<rivals::StdRwLock, X>("rwlock", "std HashMap behind std's RwLock"),
        entry::<rivals::Dash, X>("dashmap", "dashmap: a read-write lock for each shard"),
        entry::<rivals::Scc, X>("scc", "scc HashMap: a lock for each bucket, optimistic resizing"),
        entry::<rivals::SccIndex, X>(
            "scc-index",
            "scc HashIndex: the same with look-ups that take no lock",
        ),
        entry::<rivals::Papaya, X>(
            "papaya",
            "papaya HashMap: reads without a lock, pinned each time",
        ),
    ]
}

/// Every implementation, for the workload `map`.
pub static ENTRIES: &[Entry<Shape>] = &entries::<Churn>();

const METRICS: [Metric; 1] =
    [Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 }];

/// The groups of the workload `map` for some options: one for each count of keys, share of
/// updates and thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of::<Churn>(ENTRIES, options)
}

fn groups_of<X: Mix>(
    entries: &'static [Entry<Shape>],
    options: &Options,
) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose(X::BENCH, entries, &options.impls)?;
    let group = |keys: usize, update: u8, threads: usize| {
        let (cases, left_out) = cases(&chosen, threads, |_| Shape { keys, update });
        let threads = threads_word(threads);
        Group {
            bench: X::BENCH,
            title: format!("{threads}, {keys} keys, {update} % {}", X::CHANGE),
            params: options.params([("keys", keys.into()), ("update", update.into())]),
            metrics: METRICS.to_vec(),
            cases,
            left_out,
        }
    };
    let mut groups = Vec::new();
    for &keys in X::keys(options) {
        for &update in &options.update {
            groups.extend(options.threads.iter().map(|&threads| group(keys, update, threads)));
        }
    }
    Ok(groups)
}

/// Every thread finds its own keys as it left them, and under any other key only what belongs
/// there.
fn conform<M: MapImpl>(threads: usize) -> Result<(), String> {
    let map = &M::new(64);
    thread::scope(|scope| {
        let start = |index| scope.spawn(move || churn(&mut map.handle(), index, threads));
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked")?)
    })
}

fn churn(handle: &mut impl MapHandle, thread: usize, threads: usize) -> Result<(), String> {
    let (mut own, mut random) = (HashMap::new(), Random::of(thread));
    for step in 0..5_000 {
        let word = random.next();
        // Few keys, so that they come again; every so-many-th is this thread's.
        let key = (word >> 32) % 64;
        let mine = key as usize % threads == thread;
        match word % 4 {
            0 if mine => {
                own.insert(key, value_of(key, step));
                handle.insert(key, value_of(key, step));
            }
            1 if mine => {
                own.remove(&key);
                handle.remove(key);
            }
            _ => {
                let found = handle.get(key);
                if mine && found != own.get(&key).copied() {
                    return Err(format!("{found:?} under {key} instead of {:?}", own.get(&key)));
                }
                if found.is_some_and(|value| value & 0xFFFF_FFFF != key) {
                    return Err(format!("{found:?} under {key}, where it does not belong"));
                }
            }
        }
    }
    Ok(())
}
