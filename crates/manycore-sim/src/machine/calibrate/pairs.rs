//! The transfer matrix: what it costs to fetch a line that another core has, by pair and state.

use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    thread,
    time::Instant,
};

use super::{affinity, distribution::Distribution};

/// Lines handed over in one round. Their indices form a chain in random order.
const LINES: usize = 128;
/// Rounds of each pair and state.
const ROUNDS: usize = 9;
/// The number of times that a thread polls before it yields the processor.
const LOOKS: u32 = 10_000;

/// The use of a line by another core, and the following use by this core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum LineState {
    /// Written there, and read here.
    WrittenRead,
    /// Written there, and written here.
    WrittenWritten,
    /// Read by both, and written here.
    SharedWritten,
}

/// All states.
pub(super) const STATES: [LineState; 3] =
    [LineState::WrittenRead, LineState::WrittenWritten, LineState::SharedWritten];

#[repr(align(128))]
struct Line(AtomicUsize);

/// The number of the step that is due. Two threads take turns.
struct Turn(AtomicU64);

impl Turn {
    fn wait(&self, number: u64) {
        let mut looks = 0;
        // ORDER: Acquire; pairs with `pass`. Shows the lines as the other thread left them.
        while self.0.load(Ordering::Acquire) != number {
            looks += 1;
            if looks > LOOKS { thread::yield_now() } else { spin_loop() }
        }
    }

    fn pass(&self, number: u64) {
        // ORDER: Release; pairs with `wait`.
        self.0.store(number, Ordering::Release);
    }
}

/// Returns a chain through all lines in random order. Each line holds the index of the next line.
fn chain() -> Vec<Line> {
    let mut order: Vec<usize> = (1..LINES).collect();
    let mut random = 88_172_645_463_325_252_u64;
    for at in (1..order.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, random as usize % (at + 1));
    }
    let mut lines: Vec<Line> = (0..LINES).map(|_| Line(AtomicUsize::new(0))).collect();
    let mut from = 0;
    for to in order {
        lines[from].0 = AtomicUsize::new(to);
        from = to;
    }
    lines
}

/// Walks the chain once. Each step depends on the step before.
fn walk(lines: &[Line], write: bool) {
    let mut at = 0;
    for _ in 0..LINES {
        // ORDER: Relaxed; `Turn` orders the threads. Adding 0 takes the line for writing, as long
        // as the compiler cannot see that it is 0.
        at = if write {
            lines[at].0.fetch_add(black_box(0), Ordering::Relaxed)
        } else {
            lines[at].0.load(Ordering::Relaxed)
        };
    }
}

/// Returns nanoseconds a line in each state, without the time of a walk through the core's own
/// lines. Returns `None` if a thread could not be pinned to its processor.
pub(super) fn transfer(here: usize, there: usize) -> Option<[Distribution; 3]> {
    let (lines, turn) = (chain(), Turn(AtomicU64::new(0)));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = affinity::pin(there);
            for round in 0..(STATES.len() * ROUNDS) as u64 {
                turn.wait(2 * round + 1);
                let written = STATES[round as usize % STATES.len()] != LineState::SharedWritten;
                walk(&lines, written);
                turn.pass(2 * round + 2);
            }
            pinned
        });
        let own = scope.spawn(|| {
            let pinned = affinity::pin(here);
            let mut times = [const { Vec::new() }; 3];
            for round in 0..(STATES.len() * ROUNDS) as u64 {
                let which = round as usize % STATES.len();
                turn.wait(2 * round);
                walk(&lines, false);
                turn.pass(2 * round + 1);
                turn.wait(2 * round + 2);
                let write = STATES[which] != LineState::WrittenRead;
                let start = Instant::now();
                walk(&lines, write);
                let first = start.elapsed();
                let start = Instant::now();
                walk(&lines, write);
                let foreign = first.saturating_sub(start.elapsed());
                times[which].push(foreign.as_nanos() as f64 / LINES as f64);
                turn.pass(2 * round + 2);
            }
            pinned.then_some(times)
        });
        let (Ok(pinned), Ok(times)) = (other.join(), own.join()) else { return None };
        let [a, b, c] = times.filter(|_| pinned)?;
        Some([Distribution::of(a)?, Distribution::of(b)?, Distribution::of(c)?])
    })
}
