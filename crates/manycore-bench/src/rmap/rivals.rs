//! Reverse maps as they are commonly built.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Mutex, PoisonError, RwLock},
};

use crossbeam_utils::CachePadded;

use super::ReverseMap;
use crate::list::{ListHandle, ListImpl, harris::HarrisList};

/// Mappings by their first page: the end, by (start, id).
pub(super) type Tree = BTreeMap<(u64, u32), u64>;

/// A lock around a tree.
pub(super) trait Lock: Sync + 'static {
    fn new() -> Self;
    fn write<R>(&self, f: impl FnOnce(&mut Tree) -> R) -> R;
    fn read<R>(&self, f: impl FnOnce(&Tree) -> R) -> R;
}

/// The standard library's lock for readers and writers.
pub(super) struct StdRwLock(CachePadded<RwLock<Tree>>);

impl Lock for StdRwLock {
    fn new() -> Self {
        Self(CachePadded::default())
    }

    fn write<R>(&self, f: impl FnOnce(&mut Tree) -> R) -> R {
        f(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<R>(&self, f: impl FnOnce(&Tree) -> R) -> R {
        f(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The standard library's lock.
pub(super) struct StdMutex(CachePadded<Mutex<Tree>>);

impl Lock for StdMutex {
    fn new() -> Self {
        Self(CachePadded::default())
    }

    fn write<R>(&self, f: impl FnOnce(&mut Tree) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<R>(&self, f: impl FnOnce(&Tree) -> R) -> R {
        f(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// parking_lot's lock for readers and writers.
pub(super) struct ParkingLot(CachePadded<parking_lot::RwLock<Tree>>);

impl Lock for ParkingLot {
    fn new() -> Self {
        Self(CachePadded::default())
    }

    fn write<R>(&self, f: impl FnOnce(&mut Tree) -> R) -> R {
        f(&mut self.0.write())
    }

    fn read<R>(&self, f: impl FnOnce(&Tree) -> R) -> R {
        f(&self.0.read())
    }
}

/// The tree behind a lock. Mappings are short, so a question looks no further back than their
/// greatest length.
pub(super) struct Locked<L>(L);

/// The most pages of a mapping.
const LONGEST: u64 = 64;

impl<L: Lock> ReverseMap for Locked<L> {
    type Mapping<'a> = (u64, u32);

    fn new() -> Self {
        Self(L::new())
    }

    #[inline]
    fn add(&self, pages: Range<u64>, id: u32) -> (u64, u32) {
        self.0.write(|tree| tree.insert((pages.start, id), pages.end));
        (pages.start, id)
    }

    #[inline]
    fn remove(&self, mapping: (u64, u32)) {
        self.0.write(|tree| tree.remove(&mapping));
    }

    fn for_overlapping(&self, pages: Range<u64>, mut f: impl FnMut(u32)) {
        self.0.read(|tree| overlapping(tree, pages, &mut f));
    }
}

/// Calls `f` with the id of each mapping in the tree that overlaps these pages.
pub(super) fn overlapping(tree: &Tree, pages: Range<u64>, mut f: impl FnMut(u32)) {
    let from = pages.start.saturating_sub(LONGEST);
    for (&(_, id), &end) in tree.range((from, 0)..(pages.end, 0)) {
        if end > pages.start {
            f(id);
        }
    }
}

/// A lock-free list of ids, as in the paper's comparison: a question walks all of it.
pub(super) struct Harris<const SORTED: bool>(HarrisList<SORTED>);

impl<const SORTED: bool> ReverseMap for Harris<SORTED> {
    type Mapping<'a> = u32;

    fn new() -> Self {
        Self(HarrisList::new(0))
    }

    #[inline]
    fn add(&self, _: Range<u64>, id: u32) -> u32 {
        self.0.handle(0).add(id);
        id
    }

    #[inline]
    fn remove(&self, id: u32) {
        self.0.handle(0).remove(id);
    }

    fn for_overlapping(&self, _: Range<u64>, mut f: impl FnMut(u32)) {
        let mut ids = Vec::new();
        self.0.handle(0).for_each(|id| ids.push(id));
        ids.into_iter().for_each(&mut f);
    }
}
