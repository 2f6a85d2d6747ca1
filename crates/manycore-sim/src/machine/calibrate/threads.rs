//! Measures threads: waking a thread, creating one, and switching a processor between two.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use super::{affinity, distribution::Distribution};

const ROUNDS: u64 = 40;
const SAMPLES: usize = 9;

/// Nanoseconds from the call that wakes the other thread to the other thread's own wake call. The
/// two threads block in turn, each on its own processor.
pub(super) fn wake(here: usize, there: usize) -> Option<Distribution> {
    let turn = AtomicU64::new(0);
    // Blocks until the other thread has made its step.
    let wait_for = |step: u64| {
        // ORDER: Acquire, with the Release below; `park` may return early.
        while turn.load(Ordering::Acquire) < step {
            thread::park();
        }
    };
    let main = thread::current();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            affinity::pin(there);
            for round in 0..ROUNDS * SAMPLES as u64 {
                wait_for(2 * round + 1);
                turn.store(2 * round + 2, Ordering::Release);
                main.unpark();
            }
        });
        affinity::pin(here);
        let mut times = Vec::new();
        for sample in 0..SAMPLES as u64 {
            let start = Instant::now();
            for round in sample * ROUNDS..(sample + 1) * ROUNDS {
                turn.store(2 * round + 1, Ordering::Release);
                other.thread().unpark();
                wait_for(2 * round + 2);
            }
            times.push(start.elapsed().as_nanos() as f64 / (2 * ROUNDS) as f64);
        }
        Distribution::of(times)
    })
}

/// Nanoseconds that creating a thread takes its creator.
pub(super) fn spawn() -> Option<Distribution> {
    let once = || {
        let start = Instant::now();
        let thread = thread::spawn(|| {});
        let took = start.elapsed();
        let _ = thread.join();
        took.as_nanos() as f64
    };
    Distribution::of((0..5 * SAMPLES).map(|_| once()).collect())
}

/// Nanoseconds of a yield that gives the processor to the other of two threads.
pub(super) fn switch(cpu: usize) -> Option<Distribution> {
    let (together, stop) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin(cpu);
            together.wait();
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        let timed = scope.spawn(|| {
            affinity::pin(cpu);
            together.wait();
            let mut times = Vec::new();
            for _ in 0..SAMPLES {
                let start = Instant::now();
                (0..10 * ROUNDS).for_each(|_| thread::yield_now());
                times.push(start.elapsed().as_nanos() as f64 / (20 * ROUNDS) as f64);
            }
            stop.store(true, Ordering::Relaxed);
            times
        });
        Distribution::of(timed.join().ok()?)
    })
}
