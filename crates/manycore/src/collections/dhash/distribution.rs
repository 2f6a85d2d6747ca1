//! Whether a table is centralized or has a part in each place, and why.
//!
//! Owns: the form's flag, the decision about it, and what [`DHash::stats`](super::DHash::stats)
//! reports. [`Window`] has no atomics and no clock: the same counts give the same answers.
//!
//! In detail (dhash.M8): a centralized table is distributed after `patience` windows of one shard
//! in a row in which at least `waits` hits had to wait. Each folding doubles the patience, up to
//! 256 times. So the table does not flap if a caller folds it under load.

use super::super::reentrancy_lock::ReentrancyLock;
use crate::config;
use crate::policy::{Doubling, Streak};
use crate::sync::{AtomicBool, Ordering};
use std::fmt;

/// Doublings of the patience, at most.
const FOLDS_MAX: u32 = 8;

/// When the elements of a [`DHash`](super::DHash) get a part in each place that uses them.
///
/// ```
/// use manycore::collections::{DHashBuilder, Distribution};
///
/// let table = DHashBuilder::new().distribution(Distribution::Always).build::<u64, String, bool>();
/// assert!(table.stats().is_distributed);
/// let table = DHashBuilder::new().distribution(Distribution::Never).build::<u64, String, bool>();
/// assert!(!table.stats().is_distributed && !table.distribute());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// When threads wait for each other. Until then all threads use one part of each element.
    Contended(Contention),
    /// From the start.
    Always,
    /// Never: the table stays centralized, with a lock for each of its shards.
    Never,
}

impl Default for Distribution {
    fn default() -> Self {
        Self::Contended(Contention::default())
    }
}

/// How much waiting makes a table [distributed](Distribution::Contended).
///
/// ```
/// use manycore::collections::{Contention, DHashBuilder, Distribution};
///
/// // Sooner than by default: as many waits, but in one window of 1024 hits, not several.
/// let usual = Contention::default();
/// let soon = Contention::new(usual.waits(), 1);
/// assert!(soon.patience() < usual.patience());
/// let table = DHashBuilder::new()
///     .distribution(Distribution::Contended(soon))
///     .build::<u64, String, bool>();
/// assert!(!table.stats().is_distributed); // one thread does not wait
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contention {
    pub(super) waits: u32,
    pub(super) patience: u32,
}

impl Contention {
    /// Makes a setting: see [`waits`](Self::waits) and [`patience`](Self::patience).
    #[must_use]
    pub const fn new(waits: u32, patience: u32) -> Self {
        Self { waits, patience }
    }

    /// Returns how many of 1024 hits of a shard must have waited for its lock. (A shard is a
    /// sixteenth of the table by default.)
    #[must_use]
    pub fn waits(&self) -> u32 {
        self.waits
    }

    /// Returns how many windows of 1024 hits in a row must have had that many waits.
    #[must_use]
    pub fn patience(&self) -> u32 {
        self.patience
    }
}

impl Default for Contention {
    fn default() -> Self {
        Self { waits: config::DISTRIBUTION_WAITS, patience: config::PATIENCE }
    }
}

/// Why a table has the form that it has.
///
/// See [`DHash::stats`](super::DHash::stats) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistributionReason {
    /// The table was built so.
    Built,
    /// Threads waited for each other.
    Contended,
    /// The user called [`distribute`](super::DHash::distribute) or [`fold`](super::DHash::fold).
    Asked,
}

/// The form of a [`DHash`](super::DHash), and how it came to have it.
///
/// See [`DHash::stats`](super::DHash::stats) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DHashStats {
    /// True if each place has parts of its own.
    pub is_distributed: bool,
    /// Why the table has this form.
    pub reason: DistributionReason,
    /// How often the table was distributed since it was built.
    pub distributions: u64,
    /// How often the table was folded.
    pub folds: u64,
    /// Hits in the window that decided last, or zero.
    pub hits: u32,
    /// How many of these hits had to wait.
    pub waits: u32,
}

impl fmt::Display for DHashStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.is_distributed { "distributed" } else { "centralized" };
        let Self { reason, distributions, folds, hits, waits, .. } = self;
        write!(
            f,
            "{form} ({reason:?}), distributed {distributions} times and folded {folds} times"
        )?;
        if *hits > 0 {
            write!(f, "; {waits} of {hits} hits had waited")?;
        }
        Ok(())
    }
}

/// Hits of one shard while the table is centralized. Guarded by the shard's lock.
#[derive(Debug, Default)]
pub(super) struct Window {
    hits: u32,
    waits: u32,
    /// Windows in a row with enough waits.
    contended: Streak,
}

impl Window {
    /// Counts a hit. Returns true if the window is full.
    #[inline(always)]
    pub(super) fn count(&mut self, waited: bool) -> bool {
        self.hits += 1;
        self.waits += u32::from(waited);
        self.hits >= config::HITS_PER_LOOK
    }

    /// Begins a new window. Returns the counts of the old one if it is time to distribute
    /// (dhash.M8).
    fn look(&mut self, contention: Contention, folds: u64) -> Option<(u32, u32)> {
        let seen = (self.hits, self.waits);
        (self.hits, self.waits) = (0, 0);
        let patience = Doubling::after(folds, FOLDS_MAX).of(contention.patience);
        let is_due = self.contended.observe(seen.1 >= contention.waits).take(patience);
        is_due.then_some(seen)
    }
}

/// A table's form.
pub(super) struct Form {
    is_distributed: AtomicBool,
    chosen: Distribution,
    told: ReentrancyLock<DHashStats>,
}

impl Form {
    pub(super) fn new(chosen: Distribution) -> Self {
        let is_distributed = chosen == Distribution::Always;
        let reason = DistributionReason::Built;
        let told =
            DHashStats { is_distributed, reason, distributions: 0, folds: 0, hits: 0, waits: 0 };
        Self {
            is_distributed: AtomicBool::new(is_distributed),
            chosen,
            told: ReentrancyLock::new(told),
        }
    }

    #[inline(always)]
    pub(super) fn is_distributed(&self) -> bool {
        // ORDER: Relaxed; it says where to look first, and any answer is right (dhash.M7).
        self.is_distributed.load(Ordering::Relaxed)
    }

    /// Looks at a shard's full window. The caller holds the shard's lock.
    #[cold]
    pub(super) fn look(&self, window: &mut Window) {
        let folds = self.told.with(|told| told.folds);
        let seen = match self.chosen {
            Distribution::Contended(contention) => window.look(contention, folds),
            Distribution::Always | Distribution::Never => {
                *window = Window::default();
                None
            }
        };
        if let Some((hits, waits)) = seen {
            self.change(true, DistributionReason::Contended, hits, waits);
        }
    }

    /// Changes the form, if it may be changed. Returns true if the table has the requested form
    /// then.
    pub(super) fn ask(&self, distributed: bool) -> bool {
        match self.chosen {
            Distribution::Contended(_) => self.change(distributed, DistributionReason::Asked, 0, 0),
            Distribution::Always => return distributed,
            Distribution::Never => return !distributed,
        }
        true
    }

    fn change(&self, distributed: bool, reason: DistributionReason, hits: u32, waits: u32) {
        self.told.with(|told| {
            debug_assert!(
                told.is_distributed == self.is_distributed(),
                "dhash.M8: the form and what is told of it differ"
            );
            if told.is_distributed == distributed {
                return;
            }
            told.is_distributed = distributed;
            told.distributions += u64::from(distributed);
            told.folds += u64::from(!distributed);
            (told.reason, told.hits, told.waits) = (reason, hits, waits);
            // ORDER: Relaxed; as in `is_distributed`.
            self.is_distributed.store(distributed, Ordering::Relaxed);
        });
    }

    pub(super) fn stats(&self) -> DHashStats {
        self.told.with(|told| *told)
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const SOME: Contention = Contention { waits: 10, patience: 2 };

    /// Fills a window with hits of which `waits` waited.
    fn after(window: &mut Window, waits: u32) {
        let hits = (0..config::HITS_PER_LOOK).map(|hit| window.count(hit < waits));
        assert_eq!(hits.filter(|is_full| *is_full).count(), 1);
    }

    #[test]
    fn enough_waits_in_windows_in_a_row_distribute() {
        let mut window = Window::default();
        let looks = [9, 10, 9, 10, 11].map(|waits| {
            after(&mut window, waits);
            window.look(SOME, 0)
        });
        assert_eq!(looks, [None, None, None, None, Some((config::HITS_PER_LOOK, 11))]);
    }

    #[test]
    fn table_that_is_folded_under_load_is_distributed_ever_later() {
        let form = Form::new(Distribution::Contended(SOME));
        let mut window = Window::default();
        let mut distributions = 0;
        for _ in 0..10_000 {
            after(&mut window, 500);
            form.look(&mut window);
            if form.is_distributed() {
                distributions += 1;
                assert!(form.ask(false));
            }
        }
        // 2, 4, ... 512 windows, and 512 from then on.
        assert_eq!(distributions, 8 + (10_000 - 510) / 512);
        let stats = form.stats();
        assert_eq!(
            (stats.distributions, stats.folds, stats.reason),
            (distributions, distributions, DistributionReason::Asked)
        );
        let text = stats.to_string();
        assert!(text.starts_with("centralized (Asked), distributed 26 times"), "{text}");
    }

    #[test]
    fn fixed_form_stays() {
        for (chosen, is_distributed) in [(Distribution::Always, true), (Distribution::Never, false)]
        {
            let form = Form::new(chosen);
            let mut window = Window::default();
            for _ in 0..100 {
                after(&mut window, config::HITS_PER_LOOK);
                form.look(&mut window);
            }
            assert!(form.ask(is_distributed) && !form.ask(!is_distributed));
            assert_eq!((form.is_distributed(), form.stats().distributions), (is_distributed, 0));
        }
    }
}
