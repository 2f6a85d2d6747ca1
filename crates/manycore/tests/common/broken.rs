//! A small deferred object that can be broken on purpose: the test of the tests.
//!
//! Each thread has a ring of stamped entries. An update takes a stamp, stores the entry and moves
//! the ring's tail. A read takes a cut, collects the entries up to it, sorts them by (stamp, ring,
//! place) and applies them. Without a bug the object is linearizable, and the checks must accept
//! it. With a bug, they must reject it.

use super::kinds::{Add, List, Push};
use super::manycore::clock::Clock;
use super::manycore::percpu::current_slot;
use super::plan::Shared;
use super::run::spin_until;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    None,
    /// A read takes whatever is there, ring after ring: law oplog.D2 broken.
    NoCut,
    /// The stamp is read with plain `rdtsc`, which may run before earlier loads: clock.C1 broken.
    UnfencedStamp,
    /// The tail moves by a plain store, and no reader makes up for it: oplog.D1 broken.
    PlainStore,
}

const RINGS: usize = 16;
const PLACES: usize = 64;

/// One thread's entries.
#[repr(align(128))]
struct Ring {
    /// Entries written; by the owner.
    tail: AtomicUsize,
    /// Entries taken; by the reader, under the object's lock.
    head: AtomicUsize,
    last: AtomicU64,
    entries: [(AtomicU64, AtomicU64); PLACES],
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            tail: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            entries: std::array::from_fn(|_| Default::default()),
        }
    }
}

/// A deferred `S`. Updates are numbers, and `apply` gives them their meaning.
pub struct Broken<S> {
    bug: Bug,
    rings: [Ring; RINGS],
    state: Mutex<S>,
    apply: fn(&mut S, u64),
    /// Called by a reader between two rings: slow readers show more.
    between: fn(),
}

impl<S> Broken<S> {
    pub fn new(bug: Bug, state: S, apply: fn(&mut S, u64), between: fn()) -> Self {
        let state = Mutex::new(state);
        Self { bug, rings: Default::default(), state, apply, between }
    }

    pub fn append(&self, number: u64) {
        let now = self.stamp();
        let ring = &self.rings[current_slot()];
        let tail = ring.tail.load(Ordering::Relaxed);
        spin_until(|| tail - ring.head.load(Ordering::Acquire) < PLACES);
        let stamp = now.max(ring.last.load(Ordering::Relaxed) + 1);
        ring.last.store(stamp, Ordering::Relaxed);
        let (at, value) = &ring.entries[tail % PLACES];
        at.store(stamp, Ordering::Relaxed);
        value.store(number, Ordering::Relaxed);
        if self.bug == Bug::PlainStore {
            ring.tail.store(tail + 1, Ordering::Release);
        } else {
            ring.tail.swap(tail + 1, Ordering::SeqCst);
            fence(Ordering::SeqCst); // on x86 the swap would do
        }
    }

    fn stamp(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.bug == Bug::UnfencedStamp {
            // SAFETY: every x86-64 processor has a time stamp counter.
            return unsafe { core::arch::x86_64::_rdtsc() };
        }
        Clock::system().stamp().ticks()
    }

    /// Brings the state up to date and shows it.
    pub fn with<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        let mut state = self.state.lock().expect("no reader panics");
        let cut = if self.bug == Bug::NoCut { u64::MAX } else { Clock::system().cut().ticks() };
        fence(Ordering::SeqCst);
        let mut batch = Vec::new();
        for (number, ring) in self.rings.iter().enumerate() {
            let tail = ring.tail.load(Ordering::Acquire);
            let mut head = ring.head.load(Ordering::Relaxed);
            while head < tail {
                let (at, value) = &ring.entries[head % PLACES];
                let stamp = at.load(Ordering::Relaxed);
                if stamp > cut {
                    break;
                }
                batch.push((stamp, number, head, value.load(Ordering::Relaxed)));
                head += 1;
            }
            ring.head.store(head, Ordering::Release);
            (self.between)();
        }
        batch.sort_unstable();
        batch.iter().for_each(|(.., number)| (self.apply)(&mut state, *number));
        look(&state)
    }
}

impl Broken<List> {
    pub fn list(bug: Bug) -> Self {
        // A reader that sleeps lets others run between two rings, also where they have one core.
        let rest = || std::thread::sleep(std::time::Duration::from_micros(20));
        let between = if bug == Bug::NoCut { rest } else { || {} };
        Self::new(bug, List::new(), |list, number| list.push(number as u8), between)
    }
}

impl Shared<List, Push> for Broken<List> {
    fn update(&self, update: Push) {
        self.append(u64::from(update.0));
    }

    fn read(&self) -> List {
        self.with(Clone::clone)
    }
}

/// A counter with one cell per slot, without any lock: an update is one store to its own cell.
///
/// It is sound if the store is ordered before the updater's later loads. A plain store waits in the
/// store buffer, so it is not. (If a read takes a lock, the locked instruction empties the reader's
/// own buffer, which hides the bug on x86. Here nothing hides it.)
#[derive(Debug, Default)]
pub struct Tally {
    plain: bool,
    cells: [Cell; RINGS],
}

#[repr(align(128))]
#[derive(Debug, Default)]
struct Cell(AtomicU64);

impl Tally {
    pub fn new(plain: bool) -> Self {
        Self { plain, cells: Default::default() }
    }

    pub fn add(&self, number: u64) {
        let cell = &self.cells[current_slot()].0;
        let sum = cell.load(Ordering::Relaxed) + number;
        if self.plain {
            cell.store(sum, Ordering::Release);
        } else {
            cell.swap(sum, Ordering::SeqCst);
            fence(Ordering::SeqCst); // on x86 the swap would do
        }
    }

    pub fn sum(&self) -> u64 {
        self.cells.iter().map(|cell| cell.0.load(Ordering::Acquire)).sum()
    }
}

impl Shared<u64, Add> for Tally {
    fn update(&self, add: Add) {
        self.add(add.0);
    }

    fn read(&self) -> u64 {
        self.sum()
    }
}
