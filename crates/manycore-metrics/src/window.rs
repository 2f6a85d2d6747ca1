//! The recent values of a histogram.
//!
//! This module owns the earlier snapshots with which a histogram is compared. Nothing is reset, so
//! several scrapers do not take values from each other.

use manycore::collections::HistogramSnapshot;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A snapshot is kept after each such part of a window.
const PARTS: u32 = 4;

/// Earlier snapshots, oldest first.
pub(crate) struct Window {
    earlier: VecDeque<(Instant, HistogramSnapshot)>,
}

impl Window {
    pub(crate) const fn new() -> Self {
        Self { earlier: VecDeque::new() }
    }

    /// Returns what was counted in the last `window` and a little longer: since the newest snapshot
    /// that is old enough, or since the beginning.
    ///
    /// Keeps `seen` as a snapshot if the last one kept is old enough.
    pub(crate) fn advance(
        &mut self,
        seen: HistogramSnapshot,
        now: Instant,
        window: Duration,
    ) -> HistogramSnapshot {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        while self.earlier.get(1).is_some_and(|(at, _)| age(at) >= window) {
            self.earlier.pop_front();
        }
        if self.earlier.is_empty() {
            self.earlier.push_back((now, HistogramSnapshot::new()));
        }
        let recent = seen.since(&self.earlier[0].1);
        if self.earlier.back().is_some_and(|(at, _)| age(at) >= window / PARTS) {
            self.earlier.push_back((now, seen));
        }
        recent
    }
}
