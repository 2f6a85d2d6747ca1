//! Whether a table is in one, or has a part in each place, and why.
//!
//! Owns: the form's flag, what decides about it, and what [`DHash::stats`](super::DHash::stats)
//! tells. [`Window`] has no atomics and no clock: the same counts give the same answers.
//!
//! In detail (dhash.M8): a table in one spreads when so many windows in a row, of one shard, had so
//! many hits that waited. After each folding it takes twice as many, up to 256 times as many: so a
//! caller that folds under load does not make it flap.

use super::super::reentrancy_lock::ReentrancyLock;
use crate::config;
use crate::policy::{Doubling, Streak};
use crate::sync::{AtomicBool, Ordering};
use std::fmt;

/// Doublings of the patience.
const FOLDS_MAX: u32 = 8;

/// When the elements of a [`DHash`](super::DHash) get a part in each place that uses them.
///
/// ```
/// use manycore::collections::{DHashBuilder, Spread};
///
/// let table = DHashBuilder::new().spread(Spread::Always).build::<u64, String, bool>();
/// assert!(table.stats().is_spread);
/// let table = DHashBuilder::new().spread(Spread::Never).build::<u64, String, bool>();
/// assert!(!table.stats().is_spread && !table.spread());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Once threads wait for each other. Until then all use one part of each element.
    Contended(Contention),
    /// From the start.
    Always,
    /// Never: one table, with a lock for each sixteenth of it.
    Never,
}

impl Default for Spread {
    fn default() -> Self {
        Self::Contended(Contention::default())
    }
}

/// How much waiting makes a table [spread](Spread::Contended).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contention {
    /// Of 1024 hits of a sixteenth of the table, so many at least had to wait for its lock.
    pub waits: u32,
    /// And so in so many windows of 1024 hits, one after the other.
    pub patience: u32,
}

impl Default for Contention {
    fn default() -> Self {
        Self { waits: config::SPREAD_WAITS, patience: config::PATIENCE }
    }
}

/// Why a table has the form that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpreadReason {
    /// It was made so.
    Built,
    /// Threads waited for each other.
    Contended,
    /// The user called [`spread`](super::DHash::spread) or [`fold`](super::DHash::fold).
    Asked,
}

/// What form a [`DHash`](super::DHash) has, and how it came to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DHashStats {
    /// Whether each place has parts of its own.
    pub is_spread: bool,
    /// Why it has this form.
    pub reason: SpreadReason,
    /// How often it was spread since it was made.
    pub spreads: u64,
    /// How often it was folded.
    pub folds: u64,
    /// Hits in the window that decided last, if one did.
    pub hits: u32,
    /// How many of these had to wait.
    pub waits: u32,
}

impl fmt::Display for DHashStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = if self.is_spread { "spread" } else { "in one" };
        let Self { reason, spreads, folds, hits, waits, .. } = self;
        write!(f, "{form} ({reason:?}), after {spreads} spreads and {folds} folds")?;
        if *hits > 0 {
            write!(f, "; {waits} of {hits} hits had waited")?;
        }
        Ok(())
    }
}

/// Hits of one shard while the table is in one. Guarded by the shard's lock.
#[derive(Debug, Default)]
pub(super) struct Window {
    hits: u32,
    waits: u32,
    /// Windows with enough waits.
    contended: Streak,
}

impl Window {
    /// Counts a hit. Says whether it is time to look.
    #[inline(always)]
    pub(super) fn count(&mut self, waited: bool) -> bool {
        self.hits += 1;
        self.waits += u32::from(waited);
        self.hits >= config::HITS_PER_LOOK
    }

    /// Begins a new window; says what the old one counted if it is time to spread (dhash.M8).
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
    is_spread: AtomicBool,
    chosen: Spread,
    told: ReentrancyLock<DHashStats>,
}

impl Form {
    pub(super) fn new(chosen: Spread) -> Self {
        let is_spread = chosen == Spread::Always;
        let reason = SpreadReason::Built;
        let told = DHashStats { is_spread, reason, spreads: 0, folds: 0, hits: 0, waits: 0 };
        Self { is_spread: AtomicBool::new(is_spread), chosen, told: ReentrancyLock::new(told) }
    }

    #[inline(always)]
    pub(super) fn is_spread(&self) -> bool {
        // ORDER: Relaxed; it says where to look first, and any answer is right (dhash.M7).
        self.is_spread.load(Ordering::Relaxed)
    }

    /// Looks at a shard's window. For the holder of its lock.
    #[cold]
    pub(super) fn look(&self, window: &mut Window) {
        let folds = self.told.with(|told| told.folds);
        let seen = match self.chosen {
            Spread::Contended(contention) => window.look(contention, folds),
            Spread::Always | Spread::Never => {
                *window = Window::default();
                None
            }
        };
        if let Some((hits, waits)) = seen {
            self.change(true, SpreadReason::Contended, hits, waits);
        }
    }

    /// Changes the form, if it may be changed. Says whether it is as asked for then.
    pub(super) fn ask(&self, spread: bool) -> bool {
        match self.chosen {
            Spread::Contended(_) => self.change(spread, SpreadReason::Asked, 0, 0),
            Spread::Always => return spread,
            Spread::Never => return !spread,
        }
        true
    }

    fn change(&self, spread: bool, reason: SpreadReason, hits: u32, waits: u32) {
        self.told.with(|told| {
            debug_assert!(
                told.is_spread == self.is_spread(),
                "dhash.M8: the form and what is told of it differ"
            );
            if told.is_spread == spread {
                return;
            }
            told.is_spread = spread;
            told.spreads += u64::from(spread);
            told.folds += u64::from(!spread);
            (told.reason, told.hits, told.waits) = (reason, hits, waits);
            // ORDER: Relaxed; as in `is_spread`.
            self.is_spread.store(spread, Ordering::Relaxed);
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

    /// A window with so many waits, at its end.
    fn after(window: &mut Window, waits: u32) {
        let hits = (0..config::HITS_PER_LOOK).map(|hit| window.count(hit < waits));
        assert_eq!(hits.filter(|is_full| *is_full).count(), 1);
    }

    #[test]
    fn enough_waits_in_windows_in_a_row_spread() {
        let mut window = Window::default();
        let looks = [9, 10, 9, 10, 11].map(|waits| {
            after(&mut window, waits);
            window.look(SOME, 0)
        });
        assert_eq!(looks, [None, None, None, None, Some((config::HITS_PER_LOOK, 11))]);
    }

    #[test]
    fn table_that_is_folded_under_load_spreads_ever_later() {
        let form = Form::new(Spread::Contended(SOME));
        let mut window = Window::default();
        let mut spreads = 0;
        for _ in 0..10_000 {
            after(&mut window, 500);
            form.look(&mut window);
            if form.is_spread() {
                spreads += 1;
                assert!(form.ask(false));
            }
        }
        // 2, 4, ... 512 windows, and 512 from then on.
        assert_eq!(spreads, 8 + (10_000 - 510) / 512);
        let stats = form.stats();
        assert_eq!(
            (stats.spreads, stats.folds, stats.reason),
            (spreads, spreads, SpreadReason::Asked)
        );
        assert!(stats.to_string().starts_with("in one (Asked), after 26 spreads"), "{stats}");
    }

    #[test]
    fn fixed_form_stays() {
        for (chosen, is_spread) in [(Spread::Always, true), (Spread::Never, false)] {
            let form = Form::new(chosen);
            let mut window = Window::default();
            for _ in 0..100 {
                after(&mut window, config::HITS_PER_LOOK);
                form.look(&mut window);
            }
            assert!(form.ask(is_spread) && !form.ask(!is_spread));
            assert_eq!((form.is_spread(), form.stats().spreads), (is_spread, 0));
        }
    }
}
