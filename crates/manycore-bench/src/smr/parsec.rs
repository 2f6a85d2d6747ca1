//! ParSec's reclamation as published: the plain form, and its four optimisations added one after
//! the other.
//!
//! This is a port of the algorithm (Wang, Stamler and Parmer, EuroSys 2016, sections 3.2 and 3.3).
//! It shows the gain of each optimisation beside the library's sections, which read no clock. It
//! differs from the text in three points. The fence of a free stands before its clock read and not
//! after it; otherwise a node is freed too early. Nodes come from the allocator, like those of all
//! schemes here, not from slabs. The clock is [`Clock`], with its skew.
//!
//! The optimisations, of which `LEVEL` gives the number that are on:
//!
//! 1. A section's end is its beginning plus one: it does not read the clock.
//! 2. Each thread publishes the time for which it last found all others quiescent. Other threads
//!    take that time over, and it serves for everything freed before.
//! 3. Each thread remembers the time for which it found each other thread quiescent, and looks
//!    again only if that is not enough.
//! 4. Each thread begins its looks with the thread after itself.
//!
//! Laws (time is the clock's, less its skew):
//!
//! 1. A thread whose `exit` is above its `enter` is outside sections. It is quiescent for each time
//!    before the start of the look that found this. A thread in a section is quiescent for each
//!    time before its `enter`.
//! 2. A node may be dropped once all other threads are quiescent for the time of its free: a
//!    section that could have found it has ended.
//! 3. Each number that is remembered or published obeys law 1 forever.

use std::{
    collections::VecDeque,
    hint::black_box,
    iter,
    sync::{
        Mutex,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
};

use crossbeam_utils::CachePadded;
use manycore::clock::{Clock, Mode};

use super::{
    Payload, Scheme, SchemeHandle, Setup,
    slots::{Slots, Taken},
};

/// The frees between two attempts to drop, and the most nodes of one attempt, as in the code that
/// the authors published.
const BATCH: usize = 128;

/// What a thread publishes.
#[derive(Default)]
struct Record {
    enter: AtomicU64,
    exit: AtomicU64,
    /// All others were quiescent for this time (optimisation 2).
    quiescent: AtomicU64,
}

/// A table, and the threads' records.
pub(super) struct Parsec<const LEVEL: u32> {
    table: Slots,
    records: Box<[CachePadded<Record>]>,
    /// What threads had not dropped when they ended.
    left: Mutex<Vec<Freed>>,
    clock: &'static Clock,
    skew: u64,
}

/// A node that was replaced, and when. `reclaim` drops it, by law 2, or the scheme's end, when
/// there are no sections.
struct Freed {
    time: u64,
    _node: Taken,
}

/// A thread's way to it.
pub(super) struct ParsecHandle<'a, const LEVEL: u32> {
    scheme: &'a Parsec<LEVEL>,
    thread: usize,
    freed: VecDeque<Freed>,
    /// The frees until the next attempt.
    wait: usize,
    /// For which time each thread was found quiescent (optimisation 3).
    known: Box<[u64]>,
}

impl<const LEVEL: u32> Parsec<LEVEL> {
    /// For which time that thread is quiescent, by a look at it that begins after `now`.
    fn quiescent(&self, thread: usize, now: u64) -> u64 {
        let record = &self.records[thread];
        // ORDER: Acquire pairs with the store of `exit`: the section's reads are done. That no
        // section that is not seen here can find the node is a matter of the clock (law 1) and of
        // the fences in `enter` and `update`.
        let enter = record.enter.load(Acquire);
        let outside = record.exit.load(Acquire) > enter;
        let before = if outside { now } else { enter };
        before.saturating_sub(self.skew + 1)
    }
}

impl<const LEVEL: u32> Scheme for Parsec<LEVEL> {
    type Handle<'a> = ParsecHandle<'a, LEVEL>;

    fn new(setup: Setup) -> Self {
        let clock = Clock::system();
        let record = || CachePadded::new(Record { exit: AtomicU64::new(1), ..Record::default() });
        Self {
            table: Slots::new(setup),
            records: iter::repeat_with(record).take(setup.threads).collect(),
            left: Mutex::default(),
            clock,
            skew: match clock.mode() {
                Mode::Bounded { skew_ticks } => skew_ticks,
                _ => 0,
            },
        }
    }

    fn handle(&self, thread: usize) -> ParsecHandle<'_, LEVEL> {
        let known = vec![0; self.records.len()].into();
        ParsecHandle { scheme: self, thread, freed: VecDeque::new(), wait: BATCH, known }
    }
}

impl<const LEVEL: u32> ParsecHandle<'_, LEVEL> {
    fn own(&self) -> &Record {
        &self.scheme.records[self.thread]
    }

    #[inline]
    fn enter(&self) {
        self.own().enter.store(self.scheme.clock.stamp().ticks(), Relaxed);
        // ORDER: pairs with the fence of `update`.
        fence(SeqCst);
    }

    #[inline]
    fn exit(&self) {
        let time = match LEVEL {
            0 => self.scheme.clock.stamp().ticks(),
            _ => self.own().enter.load(Relaxed) + 1,
        };
        // ORDER: Release pairs with the loads of `quiescent`.
        self.own().exit.store(time, Release);
    }

    /// Whether all others are quiescent for that time (law 2).
    fn all_quiescent(&mut self, time: u64) -> bool {
        let scheme = self.scheme;
        let shares = LEVEL >= 2;
        if shares && self.own().quiescent.load(Relaxed) >= time {
            return true;
        }
        let (threads, mut all) = (scheme.records.len(), u64::MAX);
        let now = scheme.clock.cut().ticks();
        let first = if LEVEL >= 4 { self.thread + 1 } else { 0 };
        for thread in (first..first + threads).map(|place| place % threads) {
            if thread == self.thread {
                continue;
            }
            if LEVEL < 3 || self.known[thread] < time {
                // ORDER: Acquire pairs with the store below: what the publisher saw of sections
                // that ended is seen here too.
                let of_it = scheme.records[thread].quiescent.load(Acquire);
                // It says nothing of the thread itself, which as a publisher was outside.
                if shares && of_it >= time {
                    self.own().quiescent.store(of_it, Release);
                    return true;
                }
                self.known[thread] = scheme.quiescent(thread, now);
            }
            if self.known[thread] < time {
                return false;
            }
            all = all.min(self.known[thread]);
        }
        if shares {
            // ORDER: Release pairs with the load above.
            self.own().quiescent.store(all.min(now), Release);
        }
        true
    }

    /// Drops what may be dropped, at most a batch.
    #[cold]
    fn reclaim(&mut self) {
        for _ in 0..BATCH {
            match self.freed.front().map(|freed| freed.time) {
                Some(time) if self.all_quiescent(time) => drop(self.freed.pop_front()),
                _ => break,
            }
        }
        self.wait = BATCH;
    }
}

impl<const LEVEL: u32> SchemeHandle for ParsecHandle<'_, LEVEL> {
    #[inline]
    fn empty(&mut self, _: usize) {
        self.enter();
        black_box(());
        self.exit();
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        self.enter();
        // SAFETY: a node is dropped once this thread is quiescent for the time at which it was
        // replaced, which by law 2 is not before this section's end.
        let value = unsafe { self.scheme.table.get(slot) }.value();
        self.exit();
        value
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let node = self.scheme.table.replace(slot, value);
        // ORDER: pairs with the fence of `enter`: a section that begins after the time below finds
        // the new node.
        fence(SeqCst);
        let time = self.scheme.clock.stamp().ticks();
        self.freed.push_back(Freed { time, _node: node });
        self.wait -= 1;
        if self.wait == 0 {
            self.reclaim();
        }
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        self.enter();
        // SAFETY: the section is open until `inside` has returned, and by law 2 no node that it
        // could have found is dropped before.
        inside(unsafe { self.scheme.table.get(slot) });
        self.exit();
    }

    fn flush(&mut self) {
        self.reclaim();
    }
}

impl<const LEVEL: u32> Drop for ParsecHandle<'_, LEVEL> {
    fn drop(&mut self) {
        let mut left = self.scheme.left.lock().expect("a thread panicked while it ended");
        left.extend(self.freed.drain(..));
    }
}
