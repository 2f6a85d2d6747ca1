//! Runs of consecutive free numbers, such as the pages of a pool or the frames of a memory file.
//! Single numbers wait on a shelf near each thread.
//!
//! This module owns which numbers below a limit are free. It does not own what a number stands for.
//!
//! ```text
//! caller <--one--> shelf of the slot <--magazine--> central lock: magazines, warm and cold extents
//! caller <--several, aligned---------------------->
//! ```
//!
//! Laws:
//! - runs.R1 A number is in one place: with the caller, on a shelf, in a magazine, or in an extent.
//!   It moves between shelf, magazine and extent only under the central lock. So an allocation that
//!   holds the lock finds every idle number. (Beside threads that free and allocate, it may miss
//!   the last of them.)
//! - runs.R2 A thread allocates and frees single numbers on the shelf of its slot. The shelf's lock
//!   has a line of its own, and no shared line is written. An empty shelf takes a magazine, then a
//!   part of an extent, then half of another shelf (work stealing). So no thread starves beside
//!   idle numbers.
//! - runs.R3 The central lock is taken before a shelf's, and no thread holds two shelves.
//! - runs.R4 Adjacent extents are joined. If an allocation of several numbers finds no room, it
//!   takes all shelves and magazines apart before it fails.
//! - runs.R5 *Warm* numbers have been used. *Cold* numbers are unused, or had their memory taken
//!   back. Warm numbers are used first.
//! - runs.R6 Each time that a shelf is empty, it takes twice as many numbers, up to a limit. After
//!   each time that it was full, it takes half as many. So a thread whose numbers are freed
//!   elsewhere (by a gate, or by other threads) takes the central lock once in hundreds of
//!   allocations.
//!
//! Source: K42's page manager, section 4.2 of the paper, with a balance between threads, which it
//! lacks. Magazines: J. Bonwick and J. Adams, *Magazines and Vmem*, 2001.

#[cfg(all(test, manycore_loom))]
mod loom_tests;

use crate::sync::{Line, Mutex, MutexGuard, lock, parts, seeded_bug};
use manycore::percpu::current_slot;
use std::collections::{BTreeMap, BTreeSet};

/// How many single numbers a shelf first takes from the central store, or gives back in a magazine;
/// and the maximum. A shelf holds fewer than twice its batch.
const MAGAZINE: usize = if cfg!(manycore_loom) { 2 } else { 64 };
const MAGAZINE_MAX: usize = if cfg!(manycore_loom) { 2 } else { 512 };

/// The single numbers of a slot's threads.
struct Shelf {
    numbers: Vec<u32>,
    /// The number of numbers that are moved at once (runs.R6).
    batch: usize,
}

/// The first number of a run, and its length.
pub(crate) type Run = (u32, u32);

/// Free runs. No two of them are adjacent.
#[derive(Default)]
struct Extents {
    by_start: BTreeMap<u32, u32>,
    by_length: BTreeSet<(u32, u32)>,
    numbers: usize,
}

impl Extents {
    fn add(&mut self, (mut start, mut length): Run) {
        self.numbers += length as usize;
        if let Some((&before, &its)) = self.by_start.range(..start).next_back() {
            debug_assert!(before + its <= start, "runs.R1: freed twice");
            if before + its == start {
                self.forget((before, its));
                (start, length) = (before, its + length);
            }
        }
        if let Some((&after, &its)) = self.by_start.range(start + length..).next() {
            if start + length == after {
                self.forget((after, its));
                length += its;
            }
        }
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }

    fn forget(&mut self, (start, length): Run) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }

    /// Takes `length` numbers, the first a multiple of `align`, from the smallest extent that fits.
    fn take(&mut self, length: u32, align: u32) -> Option<u32> {
        let fits = |&&(its, start): &&(u32, u32)| {
            start.checked_next_multiple_of(align).is_some_and(|at| at - start <= its - length)
        };
        let &(its, start) = self.by_length.range((length, 0)..).find(fits)?;
        let at = start.next_multiple_of(align);
        self.forget((start, its));
        self.numbers -= its as usize;
        for rest in [(start, at - start), (at + length, start + its - at - length)] {
            if rest.1 != 0 {
                self.add(rest);
            }
        }
        Some(at)
    }

    /// Takes up to `most` numbers, from the front.
    fn take_some(&mut self, most: usize, to: &mut Vec<u32>) {
        while to.len() < most {
            let Some((&start, &length)) = self.by_start.first_key_value() else { break };
            let taken = length.min((most - to.len()) as u32);
            self.forget((start, length));
            self.numbers -= length as usize;
            if taken < length {
                self.add((start + taken, length - taken));
            }
            to.extend((start..start + taken).rev());
        }
    }

    fn take_all(&mut self) -> Vec<Run> {
        std::mem::take(self).by_start.into_iter().collect()
    }
}

/// Magazines: lists of single numbers that came from shelves. The count is kept, not summed up,
/// because it is read under the central lock.
#[derive(Default)]
struct Magazines {
    each: Vec<Vec<u32>>,
    numbers: usize,
}

impl Magazines {
    fn push(&mut self, magazine: Vec<u32>) {
        self.numbers += magazine.len();
        self.each.push(magazine);
    }

    fn pop(&mut self) -> Option<Vec<u32>> {
        let magazine = self.each.pop()?;
        self.numbers -= magazine.len();
        Some(magazine)
    }

    fn take_all(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(self).each.into_iter().flatten()
    }
}

#[derive(Default)]
struct Central {
    warm: Extents,
    cold: Extents,
    magazines: Magazines,
}

impl Shelf {
    fn is_full(&self) -> bool {
        self.numbers.len() >= 2 * self.batch
    }

    /// Returns how many numbers an empty shelf takes now, and doubles that for the next time.
    fn grow(&mut self, most: usize) -> usize {
        let batch = self.batch;
        self.batch = (2 * batch).min(most);
        batch
    }
}

/// Free numbers below a limit, as runs.
pub(crate) struct Runs {
    central: Line<Mutex<Central>>,
    shelves: Box<[Line<Mutex<Shelf>>]>,
    limit: u32,
    batch_max: usize,
}

impl Runs {
    /// Creates the runs of all numbers below `limit`, free and cold.
    pub(crate) fn new(limit: u32) -> Self {
        Self::with_shelves(limit, parts())
    }

    fn with_shelves(limit: u32, shelves: usize) -> Self {
        let mut central = Central::default();
        if limit != 0 {
            central.cold.add((0, limit));
        }
        // All shelves together take at most a quarter.
        let batch_max = (limit as usize / (4 * shelves)).clamp(MAGAZINE, MAGAZINE_MAX);
        let shelf = |_| Line(Mutex::new(Shelf { numbers: Vec::new(), batch: MAGAZINE }));
        let shelves = (0..shelves).map(shelf).collect();
        Self { central: Line(Mutex::new(central)), shelves, limit, batch_max }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    fn shelf(&self) -> &Mutex<Shelf> {
        &self.shelves[current_slot() % self.shelves.len()].0
    }

    /// Allocates `length` consecutive numbers, the first a multiple of `align`. Neither is zero.
    #[inline]
    pub(crate) fn alloc(&self, length: u32, align: u32) -> Option<u32> {
        if length == 1 && align == 1 {
            // runs.R2
            let found = lock(self.shelf()).numbers.pop();
            return found.or_else(|| self.refill());
        }
        let mut central = lock(&self.central.0);
        let found = central.warm.take(length, align).or_else(|| central.cold.take(length, align));
        found.or_else(|| self.gather(&mut central, length, align))
    }

    /// Fills the thread's shelf and takes one number (runs.R2).
    #[cold]
    fn refill(&self) -> Option<u32> {
        let mut central = lock(&self.central.0);
        let batch = lock(self.shelf()).grow(self.batch_max);
        let mut found = central.magazines.pop().unwrap_or_default();
        while found.len() < batch {
            let Some(mut next) = central.magazines.pop() else { break };
            found.append(&mut next);
        }
        if found.is_empty() {
            central.warm.take_some(batch, &mut found);
        }
        if found.is_empty() {
            central.cold.take_some(batch, &mut found);
        }
        // runs.R3: one shelf at a time, under the central lock.
        for shelf in self.shelves.iter().take(if found.is_empty() { usize::MAX } else { 0 }) {
            let mut shelf = lock(&shelf.0);
            let half = shelf.numbers.len() / 2;
            found = shelf.numbers.split_off(half);
            if !found.is_empty() {
                break;
            }
        }
        let number = found.pop()?;
        // BUG: numbers go to a shelf without the central lock (runs.R1).
        let central = (!seeded_bug!("vm-refill-in-hand")).then_some(central);
        let mut shelf = lock(self.shelf());
        if shelf.numbers.is_empty() {
            // Swapped, so that the magazine's memory is not read under the central lock.
            std::mem::swap(&mut shelf.numbers, &mut found);
        } else {
            shelf.numbers.append(&mut found);
        }
        drop((shelf, central));
        Some(number) // the emptied list is freed after the locks are released
    }

    /// Takes shelves and magazines apart, joins adjacent numbers, and tries again (runs.R4).
    #[cold]
    fn gather(
        &self,
        central: &mut MutexGuard<'_, Central>,
        length: u32,
        align: u32,
    ) -> Option<u32> {
        let singles = central.magazines.take_all();
        singles.for_each(|number| central.warm.add((number, 1)));
        for shelf in &self.shelves {
            let singles = std::mem::take(&mut lock(&shelf.0).numbers);
            singles.into_iter().for_each(|number| central.warm.add((number, 1)));
        }
        let found = central.warm.take(length, align);
        found.or_else(|| {
            let warm = central.warm.take_all();
            warm.into_iter().for_each(|run| central.cold.add(run));
            central.cold.take(length, align)
        })
    }

    /// Frees a run that [`alloc`](Self::alloc) returned. Returns true if more than `keep` numbers
    /// are warm and idle: then some should go to the system.
    #[inline]
    pub(crate) fn free(&self, (start, length): Run, keep: usize) -> bool {
        if length == 1 {
            let mut shelf = lock(self.shelf());
            shelf.numbers.push(start);
            let is_full = shelf.is_full();
            drop(shelf);
            return is_full && self.overflow(keep);
        }
        let mut central = lock(&self.central.0);
        central.warm.add((start, length));
        central.idle() > keep
    }

    /// Frees many runs, in any order. Single numbers go to the thread's shelf.
    pub(crate) fn free_all(&self, runs: impl IntoIterator<Item = Run>) {
        for run in runs {
            self.free(run, usize::MAX);
        }
    }

    /// Moves a magazine from the thread's shelf to the central store.
    #[cold]
    fn overflow(&self, keep: usize) -> bool {
        // BUG: a magazine has left the shelf before the central lock is taken (runs.R1).
        if seeded_bug!("vm-magazine-in-hand") {
            let magazine = lock(self.shelf()).numbers.drain(..MAGAZINE).collect();
            lock(&self.central.0).magazines.push(magazine);
            return false;
        }
        // BUG: the shelf's lock is taken before the central one (runs.R3).
        let early = seeded_bug!("vm-shelf-before-central").then(|| lock(self.shelf()));
        let mut central = lock(&self.central.0);
        let mut shelf = early.unwrap_or_else(|| lock(self.shelf()));
        // Several threads may share the shelf, so it may not be full any more.
        // BUG: the shelf is taken to be as full as it was before the locks.
        if shelf.is_full() || seeded_bug!("vm-shelf-taken-for-full") {
            let batch = shelf.batch;
            // The front was freed first, so its lines are the coldest.
            central.magazines.push(shelf.numbers.drain(..batch).collect());
            shelf.batch = (batch / 2).max(MAGAZINE);
        }
        drop(shelf);
        central.idle() > keep
    }

    /// Takes all warm numbers beyond `keep` out of the central store, so that the caller can take
    /// their memory back. The caller then calls [`put_cold`](Self::put_cold).
    pub(crate) fn take_warm(&self, keep: usize) -> Vec<Run> {
        let mut central = lock(&self.central.0);
        while central.idle() > keep {
            let Some(magazine) = central.magazines.pop() else { break };
            magazine.into_iter().for_each(|number| central.warm.add((number, 1)));
        }
        let mut taken = Vec::new();
        while central.idle() > keep {
            // The largest extents first, for the fewest calls.
            let Some(&(length, start)) = central.warm.by_length.last() else { break };
            let beyond = (central.idle() - keep).min(length as usize) as u32;
            central.warm.forget((start, length));
            central.warm.numbers -= length as usize;
            if beyond < length {
                central.warm.add((start, length - beyond));
            }
            taken.push((start + length - beyond, beyond));
        }
        taken
    }

    /// Gives back what [`take_warm`](Self::take_warm) took.
    pub(crate) fn put_cold(&self, runs: Vec<Run>) {
        let mut central = lock(&self.central.0);
        runs.into_iter().for_each(|run| central.cold.add(run));
    }

    /// Moves all shelves to the extents, where [`take_warm`](Self::take_warm) finds their numbers.
    pub(crate) fn clear_shelves(&self) {
        let mut central = lock(&self.central.0);
        for shelf in &self.shelves {
            let singles = std::mem::take(&mut lock(&shelf.0).numbers);
            singles.into_iter().for_each(|number| central.warm.add((number, 1)));
        }
    }

    /// Returns how many numbers are free. Beside other threads the parts are counted at different
    /// times.
    pub(crate) fn idle(&self) -> usize {
        let central = lock(&self.central.0);
        let shelves: usize = self.shelves.iter().map(|shelf| lock(&shelf.0).numbers.len()).sum();
        central.idle() + central.cold.numbers + shelves
    }
}

impl Central {
    /// Returns the warm numbers outside the shelves.
    fn idle(&self) -> usize {
        self.warm.numbers + self.magazines.numbers
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_handed_out_once_and_all() {
        let runs = Runs::new(1000);
        let mut all: Vec<u32> = std::iter::from_fn(|| runs.alloc(1, 1)).collect();
        assert_eq!(runs.idle(), 0);
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        runs.free_all(all.into_iter().map(|number| (number, 1)));
        assert_eq!(runs.idle(), 1000);
    }

    #[test]
    fn run_that_needs_all_takes_shelves_apart() {
        let runs = Runs::new(500);
        let all: Vec<u32> = std::iter::from_fn(|| runs.alloc(1, 1)).collect();
        runs.free_all(all.into_iter().map(|number| (number, 1)));
        assert_eq!(runs.alloc(501, 1), None);
        assert_eq!(runs.alloc(500, 1), Some(0));
        assert_eq!(runs.alloc(1, 1), None);
        runs.free((0, 500), usize::MAX);
        assert_eq!(runs.idle(), 500);
    }

    #[test]
    fn aligned_run_starts_at_a_multiple_and_loses_nothing() {
        let runs = Runs::new(64);
        let first = runs.alloc(3, 1).unwrap();
        let aligned = runs.alloc(8, 16).unwrap();
        assert_eq!(aligned % 16, 0);
        assert_eq!(runs.idle(), 64 - 3 - 8);
        runs.free_all([(first, 3), (aligned, 8)]);
        assert_eq!(runs.alloc(64, 64), Some(0));
    }

    #[test]
    fn thread_finds_what_another_thread_freed() {
        let runs = Runs::new(4);
        let mine: Vec<u32> = std::iter::from_fn(|| runs.alloc(1, 1)).collect();
        std::thread::scope(|s| {
            s.spawn(|| runs.free_all(mine.iter().map(|number| (*number, 1))));
        });
        assert_eq!(std::iter::from_fn(|| runs.alloc(1, 1)).count(), 4);
    }

    #[test]
    fn warm_numbers_beyond_the_limit_are_taken_and_come_back_cold() {
        let runs = Runs::new(1000);
        let run = runs.alloc(900, 1).unwrap();
        assert!(runs.free((run, 900), 100));
        let taken = runs.take_warm(100);
        assert_eq!(taken.iter().map(|run| run.1).sum::<u32>(), 800);
        runs.put_cold(taken);
        assert_eq!(runs.idle(), 1000);
        assert_eq!(runs.alloc(1000, 1), Some(0));
    }
}
