//! The ParSec paper's steps from memcached to sections (section 5.2), without memcached: the same
//! locks and lists around a table of chains.
//!
//! - `Stock`: a mutex for each chain, and one LRU list behind another mutex, which each get
//!   changes.
//! - `Modified`: CLOCK, in which a get only sets a bit, and MCS locks.
//! - Sections with CLOCK, sharded by hash, are `manycore-cache` itself.
//! - `Unreplaced`: sections without eviction, which shows the cost of CLOCK.
//!
//! Law: an entry is in its chain before it is in a list, and leaves the list before the chain. A
//! thread that takes a victim from a list therefore finds it in its chain, and no other thread
//! removes it.

use std::{
    hash::BuildHasher,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use manycore::{collections::HashMap, lock::McsLock};

use super::{Key, KvHandle, KvImpl, Value, word_of};

/// A lock of either kind.
pub(super) trait Lock<T>: Send + Sync {
    fn new(value: T) -> Self;
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R;
}

impl<T: Send> Lock<T> for Mutex<T> {
    fn new(value: T) -> Self {
        Mutex::new(value)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Send> Lock<T> for McsLock<T> {
    fn new(value: T) -> Self {
        McsLock::new(value)
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut self.lock())
    }
}

/// A place in a list, and the key that was evicted from it, if one was.
pub(super) struct Room {
    at: u32,
    victim: Option<Key>,
}

/// Which entry goes.
pub(super) trait Policy: Send + Sync {
    fn new(capacity: usize) -> Self;
    /// A place for an entry; `None` if all are other threads' this moment.
    fn take(&self) -> Option<Room>;
    /// Fills a place that was taken.
    fn fill(&self, at: u32, key: Key);
    /// Gives a place back that was taken.
    fn give_back(&self, at: u32);
    /// The entry was used.
    fn touch(&self, at: u32);
}

#[derive(Clone, Copy)]
struct Links {
    key: Key,
    before: u32,
    after: u32,
    is_listed: bool,
}

/// The list of recency; the first place is its end and beginning.
struct List {
    links: Vec<Links>,
    free: Vec<u32>,
}

impl List {
    fn unlist(&mut self, at: u32) {
        let Links { before, after, .. } = self.links[at as usize];
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.links[at as usize].is_listed = false;
    }

    fn list(&mut self, at: u32) {
        let first = self.links[0].after;
        let links = &mut self.links[at as usize];
        (links.before, links.after, links.is_listed) = (0, first, true);
        self.links[first as usize].before = at;
        self.links[0].after = at;
    }
}

/// One list of recency behind a mutex.
pub(super) struct Recency(CachePadded<Mutex<List>>);

impl Policy for Recency {
    fn new(capacity: usize) -> Self {
        let empty = Links { key: [0; 16], before: 0, after: 0, is_listed: false };
        let links = vec![empty; capacity + 1];
        let free = (1..=capacity as u32).rev().collect();
        Self(CachePadded::new(Mutex::new(List { links, free })))
    }

    fn take(&self) -> Option<Room> {
        self.0.with(|list| {
            if let Some(at) = list.free.pop() {
                return Some(Room { at, victim: None });
            }
            let at = list.links[0].before;
            if at == 0 {
                return None;
            }
            list.unlist(at);
            Some(Room { at, victim: Some(list.links[at as usize].key) })
        })
    }

    fn fill(&self, at: u32, key: Key) {
        self.0.with(|list| {
            list.links[at as usize].key = key;
            list.list(at);
        });
    }

    fn give_back(&self, at: u32) {
        self.0.with(|list| list.free.push(at));
    }

    #[inline]
    fn touch(&self, at: u32) {
        self.0.with(|list| {
            // It may have been evicted since it was found.
            if list.links[at as usize].is_listed {
                list.unlist(at);
                list.list(at);
            }
        });
    }
}

/// A place is empty, or taken.
const EMPTY: u8 = 0;
/// Not used since the hand came by.
const COLD: u8 = 1;
const HOT: u8 = 2;

struct Hand {
    keys: Vec<Key>,
    free: Vec<u32>,
    at: usize,
}

/// A CLOCK behind an MCS lock.
pub(super) struct Clock {
    hand: CachePadded<McsLock<Hand>>,
    states: Vec<AtomicU8>,
}

impl Policy for Clock {
    fn new(capacity: usize) -> Self {
        let free = (0..capacity as u32).rev().collect();
        let hand = Hand { keys: vec![[0; 16]; capacity], free, at: 0 };
        let states = (0..capacity).map(|_| AtomicU8::new(EMPTY)).collect();
        Self { hand: CachePadded::new(McsLock::new(hand)), states }
    }

    fn take(&self) -> Option<Room> {
        self.hand.with(|hand| {
            if let Some(at) = hand.free.pop() {
                return Some(Room { at, victim: None });
            }
            // Twice around finds one, unless all are concurrently taken or used.
            for _ in 0..2 * self.states.len() {
                let at = hand.at;
                hand.at = (at + 1) % self.states.len();
                let state = &self.states[at];
                // ORDER: Relaxed; a hint, but for EMPTY, which comes and goes under the lock.
                match state.load(Ordering::Relaxed) {
                    HOT => state.store(COLD, Ordering::Relaxed),
                    EMPTY => {}
                    _ => {
                        state.store(EMPTY, Ordering::Relaxed);
                        return Some(Room { at: at as u32, victim: Some(hand.keys[at]) });
                    }
                }
            }
            None
        })
    }

    fn fill(&self, at: u32, key: Key) {
        self.hand.with(|hand| {
            hand.keys[at as usize] = key;
            // ORDER: Relaxed; under the lock.
            self.states[at as usize].store(COLD, Ordering::Relaxed);
        });
    }

    fn give_back(&self, at: u32) {
        self.hand.with(|hand| hand.free.push(at));
    }

    #[inline]
    fn touch(&self, at: u32) {
        let state = &self.states[at as usize];
        // ORDER: Relaxed; a hint. An exchange, because the place may have been emptied just now.
        if state.load(Ordering::Relaxed) == COLD {
            let _ = state.compare_exchange(COLD, HOT, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

pub(super) struct Item {
    key: Key,
    value: Value,
    at: u32,
}

/// A table of chains with a lock each, and a policy beside it.
pub(super) struct Locked<L, P> {
    chains: Vec<L>,
    policy: P,
    hasher: RandomState,
}

/// Mutexes and a list of recency.
pub(super) type Stock = Locked<Mutex<Vec<Item>>, Recency>;
/// MCS locks and a CLOCK.
pub(super) type Modified = Locked<McsLock<Vec<Item>>, Clock>;

impl<L: Lock<Vec<Item>>, P: Policy> Locked<L, P> {
    fn chain(&self, hash: u64) -> &L {
        &self.chains[hash as usize & (self.chains.len() - 1)]
    }

    #[inline]
    fn find(&self, key: &Key) -> Option<u64> {
        let found = self.chain(self.hasher.hash_one(key)).with(|chain| {
            let item = chain.iter().find(|item| item.key == *key)?;
            Some((word_of(&item.value), item.at))
        });
        let (word, at) = found?;
        self.policy.touch(at);
        Some(word)
    }

    /// Replaces the value if the key is there: the place of its entry.
    fn replace(chain: &mut [Item], key: &Key, value: Value) -> Option<u32> {
        let item = chain.iter_mut().find(|item| item.key == *key)?;
        item.value = value;
        Some(item.at)
    }

    fn put(&self, key: Key, value: Value) {
        let hash = self.hasher.hash_one(key);
        let chain = self.chain(hash);
        if let Some(at) = chain.with(|chain| Self::replace(chain, &key, value)) {
            self.policy.touch(at);
            return;
        }
        let room = loop {
            match self.policy.take() {
                Some(room) => break room,
                None => std::thread::yield_now(),
            }
        };
        if let Some(victim) = room.victim {
            self.chain(self.hasher.hash_one(victim)).with(|chain| {
                let found = chain.iter().position(|item| item.at == room.at);
                chain.swap_remove(found.expect("what is in a list is in its chain"));
            });
        }
        let other = chain.with(|chain| {
            let other = Self::replace(chain, &key, value);
            if other.is_none() {
                chain.push(Item { key, value, at: room.at });
            }
            other
        });
        match other {
            Some(_) => self.policy.give_back(room.at), // another thread was faster
            None => self.policy.fill(room.at, key),
        }
    }
}

impl<L: Lock<Vec<Item>> + 'static, P: Policy + 'static> KvImpl for Locked<L, P> {
    type Handle<'a> = &'a Self;

    fn new(capacity: usize, keys: usize) -> Self {
        let chains = capacity.min(keys).next_power_of_two();
        let chains = (0..chains).map(|_| L::new(Vec::new())).collect();
        assert!(u32::try_from(capacity).is_ok(), "places are numbers of 32 bits");
        Self { chains, policy: P::new(capacity), hasher: RandomState::default() }
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl<L: Lock<Vec<Item>> + 'static, P: Policy + 'static> KvHandle for &Locked<L, P> {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.find(key)
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        self.put(key, value);
    }
}

/// A map on sections, which forgets nothing.
pub(super) struct Unreplaced(HashMap<Key, Value, RandomState>);

impl KvImpl for Unreplaced {
    type Handle<'a> = &'a Self;

    fn new(_: usize, keys: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(keys, RandomState::default()))
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl KvHandle for &Unreplaced {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        self.0.enter().get(key).map(word_of)
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        self.0.enter().insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::key_of, super::value_of, *};

    fn holds_what_it_may<L: Lock<Vec<Item>> + 'static, P: Policy + 'static>() {
        const CAPACITY: usize = 50;
        let cache = <Locked<L, P> as KvImpl>::new(CAPACITY, 1_000);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for step in 0..20_000_u64 {
                        let mixed = (step * 3 + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        let number = (mixed >> 40) as u32 % 400;
                        match cache.find(&key_of(number)) {
                            Some(word) => assert_eq!(word, u64::from(number)),
                            None => cache.put(key_of(number), value_of(u64::from(number))),
                        }
                    }
                });
            }
        });
        let all: Vec<u32> = cache
            .chains
            .iter()
            .flat_map(|chain| chain.with(|chain| chain.iter().map(|i| i.at).collect::<Vec<_>>()))
            .collect();
        let mut places = all.clone();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), all.len(), "two entries have one place");
        // Places of those that found another thread's entry are free again.
        assert!((CAPACITY - 3..=CAPACITY).contains(&all.len()), "{}", all.len());
        cache.put(key_of(1_000), value_of(7));
        assert_eq!(cache.find(&key_of(1_000)), Some(7));
    }

    #[test]
    fn caches_with_locks_evict_and_never_lie() {
        holds_what_it_may::<Mutex<Vec<Item>>, Recency>();
        holds_what_it_may::<McsLock<Vec<Item>>, Clock>();
    }

    #[test]
    fn who_was_used_stays() {
        for is_used in [false, true] {
            let recency = Recency::new(2);
            for key in [[1; 16], [2; 16]] {
                let room = recency.take().unwrap();
                recency.fill(room.at, key);
            }
            if is_used {
                recency.touch(1);
            }
            let victim = recency.take().unwrap().victim;
            assert_eq!(victim, Some(if is_used { [2; 16] } else { [1; 16] }));
        }
    }
}
