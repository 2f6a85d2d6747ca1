//! What a histogram has counted lately.
//!
//! Owns: the snapshots that a histogram is compared with. Nothing is reset, so several scrapers do
//! not take values from each other.

use manycore::collections::HistogramSnapshot;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A snapshot is kept each time that this part of a window is over.
const PARTS: u32 = 4;

/// Earlier snapshots, the oldest first.
pub(crate) struct Window {
    earlier: VecDeque<(Instant, HistogramSnapshot)>,
}

impl Window {
    pub(crate) const fn new() -> Self {
        Self { earlier: VecDeque::new() }
    }

    /// What was counted in the last `window`, and a little longer: since the newest snapshot of
    /// that age, or since the beginning. Keeps this one, `seen`, if the last one kept is old
    /// enough.
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
