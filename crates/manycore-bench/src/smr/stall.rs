//! A reader that stays in its section while other threads update at full rate.
//!
//! Owns: the run of `--stall SECONDS`. `--threads` counts the updaters. The reader is one more
//! thread, and sleeps most of the time. The updaters never pause. The reader
//!
//! 1. watches them for as long as it will stall, but for [`USUAL`] at most. This gives the rate
//!    *before*, and the usual maximum of nodes not reclaimed;
//! 2. enters a section with a slot's node, stays for the time asked, and leaves. This gives the
//!    rate while *stalled*, and the maximum of nodes not reclaimed;
//! 3. watches until no more than twice the usual, or [`FEW`], are not reclaimed. This gives the
//!    time to *drain*, under full load. A scheme that takes longer than [`PATIENCE`] is shown with
//!    that time.
//!
//! It looks once a millisecond, and at each look outside the section it tries to free what it can.
//! With a lock, the reader holds it: no thread updates until the reader leaves.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{Counts, NODE_BYTES, SLOTS, Scheme, SchemeHandle, Setup, value_of};
use crate::runner::{Control, Subject, Tally};

/// What a run measures.
pub(super) const METRICS: [(&str, &str); 6] = [
    ("rate-before", "Mops/s"),
    ("rate-stalled", "Mops/s"),
    ("rate-kept", "%"),
    ("usual-kb", "kB"),
    ("peak-kb", "kB"),
    ("drain", "ms"),
];

/// So many nodes are no backlog.
const FEW: u64 = 1_000;

/// The longest watch before the stall.
const USUAL: Duration = Duration::from_secs(1);

/// The longest that a drain is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often the reader looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Updates between two looks at the stop flag.
const BATCH: u64 = 64;

/// What the reader saw of one phase.
#[derive(Clone, Copy, Default)]
struct Phase {
    /// Updates a second.
    rate: f64,
    /// The most nodes not reclaimed.
    most: u64,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    before: Phase,
    stalled: Phase,
    drain: Duration,
}

/// A table, its updaters, and the reader.
pub(super) struct Stall<S> {
    scheme: S,
    counts: &'static Counts,
    updaters: usize,
    length: Duration,
    seen: Mutex<Seen>,
}

impl<S: Scheme> Stall<S> {
    pub(super) fn new(updaters: usize, length: Duration) -> Self {
        let counts = Counts::leak(updaters + 1);
        let scheme = S::new(Setup { threads: updaters + 1, counts });
        Self { scheme, counts, updaters, length, seen: Mutex::default() }
    }

    fn watch(&self, length: Duration, control: &Control) -> Phase {
        let (start, made) = (Instant::now(), self.counts.made());
        let mut most = 0;
        while start.elapsed() < length && control.running() {
            thread::sleep(LOOK_EVERY);
            most = most.max(self.counts.unreclaimed());
        }
        let updates = self.counts.made() - made;
        Phase { rate: updates as f64 / start.elapsed().as_secs_f64(), most }
    }

    fn read(&self, handle: &mut S::Handle<'_>, control: &Control) {
        let mut seen = Seen::default();
        let usual = self.length.min(USUAL);
        handle.idle(&mut || seen.before = self.watch(usual, control));
        let mut start = Instant::now();
        handle.hold(0, &mut |_| {
            seen.stalled = self.watch(self.length, control);
            // Some schemes make the leaving thread free what it held back: that is part of it.
            start = Instant::now();
        });
        let enough = FEW.max(2 * seen.before.most);
        loop {
            handle.rest();
            handle.flush();
            seen.drain = start.elapsed();
            let drained = self.counts.unreclaimed() <= enough;
            if drained || seen.drain > PATIENCE || !control.running() {
                break;
            }
            handle.idle(&mut || thread::sleep(LOOK_EVERY));
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

impl<S: Scheme> Subject for Stall<S> {
    fn workers(&self, _: usize) -> usize {
        self.updaters + 1
    }

    fn duration(&self) -> Option<Duration> {
        Some(self.length * 2 + PATIENCE * 4)
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        let _lane = self.counts.enlist(index);
        let mut handle = self.scheme.handle(index);
        if index == self.updaters {
            return control.drive(|| {
                self.read(&mut handle, control);
                control.finish();
                0
            });
        }
        let mut number = 0_u64;
        // Through the table in steps that share no factor with its size.
        let mut slot = index * 97;
        control.drive(|| {
            for _ in 0..BATCH {
                number += 1;
                slot = (slot + 389) % SLOTS;
                handle.update(slot, value_of(slot, number));
            }
            handle.rest();
            BATCH
        })
    }

    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let kilobytes = |nodes: u64| (nodes * NODE_BYTES as u64) as f64 / 1e3;
        match metric {
            "rate-before" => Some(seen.before.rate / 1e6),
            "rate-stalled" => Some(seen.stalled.rate / 1e6),
            "rate-kept" => Some(100.0 * seen.stalled.rate / seen.before.rate.max(1.0)),
            "usual-kb" => Some(kilobytes(seen.before.most)),
            "peak-kb" => Some(kilobytes(seen.stalled.most)),
            "drain" => Some(seen.drain.as_secs_f64() * 1e3),
            _ => None,
        }
    }
}
