//! A map that keeps its keys in order. The workload `ordered` is that of `map`. In `walks`, each
//! look-up is replaced by a visit to the fifty entries from a key on.
//!
//! Keys are scattered over all words, so that successive keys lie apart. With updates as half, a
//! twentieth or none of the operations, the two have the shapes of the mixes of YCSB (Cooper et
//! al., SoCC 2010). Keys are uniform here.

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_skiplist::SkipMap;
use crossbeam_utils::CachePadded;
use manycore::collections::OrderedMap;

use super::{
    BATCH, METRICS, MapHandle, MapImpl, Random, Shape, conform,
    rivals::{shared_map, unshared_map},
    value_of,
};
use crate::{
    row::Kind,
    runner::{Control, Group, Subject, Tally},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// How many different keys there are, unless asked for.
const KEYS: [usize; 1] = [1_000_000];

/// Entries of a walk.
const WALK: usize = 50;

/// One thread's way to a map that is in order.
trait OrderedHandle: MapHandle {
    /// The sum of the values from a key on.
    fn walk(&mut self, from: u64, entries: usize) -> u64;
}

/// The key with this number: another one for each.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

type Tree = BTreeMap<u64, u64>;

unshared_map!(Unshared, Own, Tree, |_keys| Tree::new());

impl OrderedHandle for Own<'_> {
    #[inline]
    fn walk(&mut self, from: u64, entries: usize) -> u64 {
        self.map.range(from..).take(entries).map(|entry| *entry.1).fold(0, u64::wrapping_add)
    }
}

macro_rules! walked {
    ($inner:ty, |$map:ident, $key:ident, $entries:ident| $walk:expr) => {
        impl OrderedHandle for &$inner {
            #[inline]
            fn walk(&mut self, $key: u64, $entries: usize) -> u64 {
                let $map = *self;
                $walk.fold(0, u64::wrapping_add)
            }
        }
    };
}

shared_map!(
    /// Ours.
    Ours, OrderedMap<u64, u64>, |_keys| OrderedMap::new(),
    map, key, value,
    map.get_cloned(&key),
    map.insert(key, value),
    map.remove(&key)
);
walked!(OrderedMap<u64, u64>, |map, key, entries| map
    .enter()
    .range(key..)
    .take(entries)
    .map(|entry| *entry.1));
shared_map!(
    /// std's map behind std's mutex.
    StdMutex, CachePadded<Mutex<Tree>>, |_keys| CachePadded::default(),
    map, key, value,
    map.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied(),
    map.lock().unwrap_or_else(PoisonError::into_inner).insert(key, value),
    map.lock().unwrap_or_else(PoisonError::into_inner).remove(&key)
);
walked!(CachePadded<Mutex<Tree>>, |map, key, entries| map
    .lock()
    .unwrap_or_else(PoisonError::into_inner)
    .range(key..)
    .take(entries)
    .map(|entry| *entry.1));
shared_map!(
    /// std's map behind std's read-write lock.
    StdRwLock, CachePadded<RwLock<Tree>>, |_keys| CachePadded::default(),
    map, key, value,
    map.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied(),
    map.write().unwrap_or_else(PoisonError::into_inner).insert(key, value),
    map.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
);
walked!(CachePadded<RwLock<Tree>>, |map, key, entries| map
    .read()
    .unwrap_or_else(PoisonError::into_inner)
    .range(key..)
    .take(entries)
    .map(|entry| *entry.1));
shared_map!(
    /// crossbeam's.
    SkipList, SkipMap<u64, u64>, |_keys| SkipMap::new(),
    map, key, value,
    map.get(&key).map(|entry| *entry.value()),
    map.insert(key, value),
    map.remove(&key)
);
walked!(SkipMap<u64, u64>, |map, key, entries| map
    .range(key..)
    .take(entries)
    .map(|entry| *entry.value()));
shared_map!(
    /// scc's, which does not replace a value: that is a removal and an insertion.
    SccTree, scc::TreeIndex<u64, u64>, |_keys| scc::TreeIndex::new(),
    map, key, value,
    map.peek_with(&key, |_, value| *value),
    {
        let mut entry = (key, value);
        while let Err(refused) = map.insert_sync(entry.0, entry.1) {
            map.remove_sync(&refused.0);
            entry = refused;
        }
    },
    map.remove_sync(&key)
);
walked!(scc::TreeIndex<u64, u64>, |map, key, entries| map
    .range(key.., &scc::Guard::new())
    .take(entries)
    .map(|entry| *entry.1));

struct Shared<M, const WALKS: bool> {
    map: M,
    shape: Shape,
}

impl<M: MapImpl, const WALKS: bool> Shared<M, WALKS> {
    fn new(shape: Shape) -> Self {
        let map = M::new(shape.keys);
        let mut handle = map.handle();
        let every_other = (0..shape.keys as u64).step_by(2);
        every_other.for_each(|number| handle.insert(scattered(number), value_of(number, 0)));
        drop(handle);
        Self { map, shape }
    }
}

impl<M: MapImpl, const WALKS: bool> Subject for Shared<M, WALKS>
where
    for<'a> M::Handle<'a>: OrderedHandle,
{
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut handle = self.map.handle();
        let mut random = Random::of(index);
        let keys = self.shape.keys as u64;
        // Of 2^16 chances.
        let updates = u64::from(self.shape.update) * 65_536 / 100;
        control.drive(|| {
            for _ in 0..BATCH {
                let word = random.next();
                let key = scattered(((word >> 32) * keys) >> 32);
                if word & 0xFFFF < updates {
                    if word & 0x1_0000 != 0 {
                        handle.remove(key);
                    } else {
                        handle.insert(key, word >> 32);
                    }
                } else if WALKS {
                    black_box(handle.walk(key, WALK));
                } else {
                    black_box(handle.get(key));
                }
            }
            BATCH
        })
    }
}

const fn entry<M: MapImpl, const WALKS: bool>(
    name: &'static str,
    about: &'static str,
) -> Entry<Shape>
where
    for<'a> M::Handle<'a>: OrderedHandle,
{
    Entry::new(
        name,
        Kind::Rival,
        about,
        |shape| Box::new(Shared::<M, WALKS>::new(shape)),
        || conform::<M>(3).and_then(|()| walks_in_order::<M>()),
    )
}

const fn entries<const WALKS: bool>() -> [Entry<Shape>; 6] {
    [
        Entry {
            kind: Kind::Baseline,
            conform: || conform::<Unshared>(1),
            ..entry::<Unshared, WALKS>("unshared", "std BTreeMap, owned by one thread")
        },
        Entry {
            kind: Kind::Ours,
            ..entry::<Ours, WALKS>(
                "ordered-map",
                "collections::OrderedMap: a section for each call",
            )
        },
        entry::<StdMutex, WALKS>("mutex", "std BTreeMap behind std's Mutex"),
        entry::<StdRwLock, WALKS>("rwlock", "std BTreeMap behind std's RwLock"),
        entry::<SkipList, WALKS>(
            "crossbeam-skiplist",
            "crossbeam's SkipMap: a list with shortcuts",
        ),
        entry::<SccTree, WALKS>("scc-tree", "scc TreeIndex: a B+ tree, read without a lock"),
    ]
}

/// Every implementation, for the workload `ordered`.
pub static ENTRIES: &[Entry<Shape>] = &entries::<false>();
/// The same for `walks`.
pub static WALK_ENTRIES: &[Entry<Shape>] = &entries::<true>();

/// The groups of the workload `ordered`: one for each count of keys, share of updates and thread
/// count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of("ordered", ENTRIES, options)
}

/// The same for `walks`.
///
/// # Errors
/// If an implementation is unknown.
pub fn walk_groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of("walks", WALK_ENTRIES, options)
}

fn groups_of(
    bench: &'static str,
    entries: &'static [Entry<Shape>],
    options: &Options,
) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose(bench, entries, &options.impls)?;
    let mut groups = Vec::new();
    for &keys in options.keys_or(&KEYS) {
        for &update in &options.update {
            for &threads in &options.threads {
                let (cases, left_out) = cases(&chosen, threads, |_| Shape { keys, update });
                groups.push(Group {
                    bench,
                    title: format!("{}, {keys} keys, {update} % updates", threads_word(threads)),
                    params: options.params([("keys", keys.into()), ("update", update.into())]),
                    metrics: METRICS.to_vec(),
                    cases,
                    left_out,
                });
            }
        }
    }
    Ok(groups)
}

/// A walk has the entries from its key on, and no others.
fn walks_in_order<M: MapImpl>() -> Result<(), String>
where
    for<'a> M::Handle<'a>: OrderedHandle,
{
    let map = M::new(100);
    let mut handle = map.handle();
    (0..100).for_each(|key| handle.insert(key * 3 % 100, key * 3 % 100));
    let expected: u64 = (40..50).sum();
    match handle.walk(40, 10) {
        sum if sum == expected => Ok(()),
        sum => Err(format!("the sum of a walk is {sum} instead of {expected}")),
    }
}
