//! Counters as they are commonly built.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crossbeam_utils::CachePadded;
use manycore::lock::McsLock;

use super::{CounterHandle, CounterImpl};

/// The baseline: the counter lives in its only thread's handle.
pub(super) struct Unshared;

impl CounterImpl for Unshared {
    type Handle<'a> = Box<AtomicU64>;

    fn new(_: usize) -> Self {
        Self
    }

    fn handle(&self, _: usize) -> Box<AtomicU64> {
        Box::default()
    }
}

impl CounterHandle for Box<AtomicU64> {
    #[inline]
    fn add(&mut self, n: u64) {
        // A plain load and store, as an integer would have; only that it stays in memory, like
        // every counter that another thread may read.
        add_to_own(self, n);
    }

    fn read(&mut self) -> u64 {
        self.load(Relaxed)
    }
}

/// An integer behind a lock.
pub(super) struct StdMutex(CachePadded<Mutex<u64>>);

impl CounterImpl for StdMutex {
    type Handle<'a> = &'a Mutex<u64>;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(Mutex::new(0)))
    }

    fn handle(&self, _: usize) -> &Mutex<u64> {
        &self.0
    }
}

impl CounterHandle for &Mutex<u64> {
    #[inline]
    fn add(&mut self, n: u64) {
        *self.lock().unwrap_or_else(PoisonError::into_inner) += n;
    }

    fn read(&mut self) -> u64 {
        *self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An integer behind a queue lock.
pub(super) struct Mcs(CachePadded<McsLock<u64>>);

impl CounterImpl for Mcs {
    type Handle<'a> = &'a McsLock<u64>;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(McsLock::new(0)))
    }

    fn handle(&self, _: usize) -> &McsLock<u64> {
        &self.0
    }
}

impl CounterHandle for &McsLock<u64> {
    #[inline]
    fn add(&mut self, n: u64) {
        *self.lock() += n;
    }

    fn read(&mut self) -> u64 {
        *self.lock()
    }
}

/// One shared word.
pub(super) struct Atomic(CachePadded<AtomicU64>);

impl CounterImpl for Atomic {
    type Handle<'a> = &'a AtomicU64;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }

    fn handle(&self, _: usize) -> &AtomicU64 {
        &self.0
    }
}

impl CounterHandle for &AtomicU64 {
    #[inline]
    fn add(&mut self, n: u64) {
        // ORDER: Relaxed; a count orders nothing else.
        self.fetch_add(n, Relaxed);
    }

    fn read(&mut self) -> u64 {
        self.load(Relaxed)
    }
}

/// An array of words, one for each thread, so many to a line. It begins on a line: where in one it
/// would lie by chance decides how many threads fight over each, by a factor of two in the end.
pub(super) struct Array<const A_LINE: usize>(Box<[CachePadded<[AtomicU64; A_LINE]>]>);

/// Words that share lines.
pub(super) type Unpadded = Array<16>;
/// Words on lines of their own.
pub(super) type Padded = Array<1>;

impl<const A_LINE: usize> CounterImpl for Array<A_LINE> {
    type Handle<'a> = OwnWord<'a, A_LINE>;

    fn new(threads: usize) -> Self {
        let line = |_| CachePadded::new([const { AtomicU64::new(0) }; A_LINE]);
        Self((0..threads.div_ceil(A_LINE)).map(line).collect())
    }

    fn handle(&self, thread: usize) -> OwnWord<'_, A_LINE> {
        OwnWord { own: &self.0[thread / A_LINE][thread % A_LINE], all: &self.0 }
    }
}

/// A thread's word, and all words for reads.
pub(super) struct OwnWord<'a, const A_LINE: usize> {
    own: &'a AtomicU64,
    all: &'a [CachePadded<[AtomicU64; A_LINE]>],
}

impl<const A_LINE: usize> CounterHandle for OwnWord<'_, A_LINE> {
    #[inline]
    fn add(&mut self, n: u64) {
        add_to_own(self.own, n);
    }

    fn read(&mut self) -> u64 {
        self.all.iter().flat_map(|line| line.iter()).map(|word| word.load(Relaxed)).sum()
    }
}

/// Adds to a word that only this thread writes.
#[inline(always)]
fn add_to_own(word: &AtomicU64, n: u64) {
    // ORDER: Relaxed, and no read-modify-write: a single writer, and a count orders nothing else.
    word.store(word.load(Relaxed).wrapping_add(n), Relaxed);
}

thread_local! {
    static OWN: AtomicU64 = const { AtomicU64::new(0) };
}

/// A word that lives in some thread's local storage.
struct Remote(*const AtomicU64);

// SAFETY: the pointer is only followed under the registry's lock, and a thread takes its word out
// of the registry under that lock before it ends.
unsafe impl Send for Remote {}

struct Words {
    alive: Vec<Remote>,
    /// What threads that have left had counted.
    retired: u64,
}

/// A plain add to thread-local storage: the floor for any counter that finds its own word.
pub(super) struct ThreadLocal(Mutex<Words>);

impl CounterImpl for ThreadLocal {
    type Handle<'a> = LocalWord<'a>;

    fn new(_: usize) -> Self {
        Self(Mutex::new(Words { alive: Vec::new(), retired: 0 }))
    }

    fn handle(&self, _: usize) -> LocalWord<'_> {
        OWN.with(|own| {
            own.store(0, Relaxed);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).alive.push(Remote(own));
        });
        LocalWord(self)
    }
}

/// The right to count in this thread's word.
pub(super) struct LocalWord<'a>(&'a ThreadLocal);

impl CounterHandle for LocalWord<'_> {
    #[inline]
    fn add(&mut self, n: u64) {
        OWN.with(|own| add_to_own(own, n));
    }

    fn read(&mut self) -> u64 {
        let words = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: registered words belong to living threads, see `Remote`.
        let alive = words.alive.iter().map(|word| unsafe { &*word.0 }.load(Relaxed));
        alive.sum::<u64>() + words.retired
    }
}

impl Drop for LocalWord<'_> {
    fn drop(&mut self) {
        OWN.with(|own| {
            let mut words = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            words.alive.retain(|word| !std::ptr::eq(word.0, own));
            words.retired += own.load(Relaxed);
        });
    }
}
