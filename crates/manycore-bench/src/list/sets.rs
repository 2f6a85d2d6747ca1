//! Concurrent sets used as a list: each update goes directly to a shared structure.
//!
//! Their walks return every element that is in the set during the whole walk. An element that is
//! inserted or removed meanwhile may be included or not, so a read is no snapshot. For a workload
//! that makes no difference; for a program it may.

//!
//! The hash sets get what suits them: a fast hash function, and room for all elements from the
//! start, so that an almost empty set does not shrink and grow.

use foldhash::fast::RandomState;

use super::{Element, ListHandle, ListImpl, first_element};

/// What a set holds without growing: enough to keep the threads' elements apart.
fn room(threads: usize) -> usize {
    first_element(threads).max(1024) as usize
}

type SccSet = scc::HashSet<Element, RandomState>;
type PapayaSet = papaya::HashSet<Element, RandomState>;

/// scc's hash set with locked buckets.
pub(super) struct Scc(SccSet);

impl ListImpl for Scc {
    type Handle<'a> = &'a SccSet;

    fn new(threads: usize) -> Self {
        Self(scc::HashSet::with_capacity_and_hasher(room(threads), RandomState::default()))
    }

    fn handle(&self, _: usize) -> &SccSet {
        &self.0
    }
}

impl ListHandle for &SccSet {
    #[inline]
    fn add(&mut self, element: Element) {
        let _already_there = self.insert_sync(element);
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.remove_sync(&element);
    }

    fn for_each(&mut self, mut f: impl FnMut(Element) + Send) {
        self.iter_sync(|element| {
            f(*element);
            true
        });
    }
}

/// papaya's lock-free hash set.
pub(super) struct Papaya(PapayaSet);

impl ListImpl for Papaya {
    type Handle<'a> = &'a PapayaSet;

    fn new(threads: usize) -> Self {
        Self(papaya::HashSet::with_capacity_and_hasher(room(threads), RandomState::default()))
    }

    fn handle(&self, _: usize) -> &PapayaSet {
        &self.0
    }
}

impl ListHandle for &PapayaSet {
    #[inline]
    fn add(&mut self, element: Element) {
        self.pin().insert(element);
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.pin().remove(&element);
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.pin().iter().copied().for_each(f);
    }
}

/// crossbeam's lock-free skip list.
pub(super) struct SkipList(crossbeam_skiplist::SkipSet<Element>);

impl ListImpl for SkipList {
    type Handle<'a> = &'a crossbeam_skiplist::SkipSet<Element>;

    fn new(_: usize) -> Self {
        Self(crossbeam_skiplist::SkipSet::new())
    }

    fn handle(&self, _: usize) -> &crossbeam_skiplist::SkipSet<Element> {
        &self.0
    }
}

impl ListHandle for &crossbeam_skiplist::SkipSet<Element> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.insert(element);
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        crossbeam_skiplist::SkipSet::remove(self, &element);
    }

    fn for_each(&mut self, mut f: impl FnMut(Element) + Send) {
        self.iter().for_each(|entry| f(*entry.value()));
    }
}
