//! Rings written by hand: one per thread, and one for all threads.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crossbeam_utils::CachePadded;

use super::{Kept, TraceHandle, TraceImpl, ring_bytes};
use crate::ticks;

/// A thread's ring: the time and a word of each record.
pub(super) struct Words {
    words: Box<[u64]>,
    next: usize,
}

impl Words {
    pub(super) fn new() -> Self {
        Self { words: vec![0; ring_bytes() / 8].into(), next: 0 }
    }

    /// Stores two words.
    #[inline(always)]
    pub(super) fn put(&mut self, first: u64, second: u64) {
        let at = self.next & (self.words.len() - 2);
        self.words[at] = first;
        self.words[at + 1] = second;
        self.next += 2;
    }

    fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        for pair in self.words[..self.next.min(self.words.len())].chunks_exact(2) {
            // The end of a span has no fields.
            if pair[1] != END {
                kept.add(pair[1]);
            }
        }
        kept
    }
}

/// What stands for the fields at the end of a span.
const END: u64 = u64::MAX;

/// The least that a recorder can do.
pub(super) struct Floor {
    kept: Mutex<Kept>,
}

/// A thread's ring.
pub(super) struct FloorHandle<'a> {
    ring: Words,
    kept: &'a Mutex<Kept>,
}

impl Drop for FloorHandle<'_> {
    fn drop(&mut self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).merge(self.ring.kept());
    }
}

impl TraceImpl for Floor {
    type Handle<'a> = FloorHandle<'a>;

    fn new(_keeps: bool) -> Self {
        Self { kept: Mutex::default() }
    }

    fn handle(&self) -> FloorHandle<'_> {
        FloorHandle { ring: Words::new(), kept: &self.kept }
    }

    fn kept(self) -> Kept {
        self.kept.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceHandle for FloorHandle<'_> {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        self.ring.put(ticks::now(), a + b);
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        self.ring.put(ticks::now(), a + b);
        self.ring.put(ticks::now(), END);
    }

    #[inline(always)]
    fn off(&mut self, _a: u64, _b: u64) {}
}

/// A ring of all threads.
trait SharedRing {
    /// Keeps the time and a word.
    fn put(&self, word: u64);
}

impl<R: SharedRing> TraceHandle for &R {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        self.put(a + b);
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        self.put(a + b);
        self.put(END);
    }

    #[inline(always)]
    fn off(&mut self, _a: u64, _b: u64) {}
}

/// A ring of all threads, behind a lock.
pub(super) struct Locked(Mutex<Words>);

impl TraceImpl for Locked {
    type Handle<'a> = &'a Self;

    fn new(_keeps: bool) -> Self {
        Self(Mutex::new(Words::new()))
    }

    fn handle(&self) -> &Self {
        self
    }

    fn kept(self) -> Kept {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).kept()
    }
}

impl SharedRing for Locked {
    #[inline(always)]
    fn put(&self, word: u64) {
        let now = ticks::now();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(now, word);
    }
}

/// A ring of all threads, whose places are claimed one by one.
pub(super) struct Claimed {
    next: CachePadded<AtomicU64>,
    words: Box<[AtomicU64]>,
}

impl SharedRing for Claimed {
    #[inline(always)]
    fn put(&self, word: u64) {
        let now = ticks::now();
        // ORDER: Relaxed, here and below; the threads' join publishes the words.
        let at = self.next.fetch_add(2, Ordering::Relaxed) as usize & (self.words.len() - 2);
        self.words[at].store(now, Ordering::Relaxed);
        self.words[at + 1].store(word, Ordering::Relaxed);
    }
}

impl TraceImpl for Claimed {
    type Handle<'a> = &'a Self;

    fn new(_keeps: bool) -> Self {
        let words = (0..ring_bytes() / 8).map(|_| AtomicU64::new(0)).collect();
        Self { next: CachePadded::default(), words }
    }

    fn handle(&self) -> &Self {
        self
    }

    fn kept(self) -> Kept {
        let words = self.words.into_iter().map(AtomicU64::into_inner).collect();
        Words { words, next: self.next.load(Ordering::Relaxed) as usize }.kept()
    }
}
