//! What is reported, by each of the ways, is what was counted.

mod otel;
mod prometheus;
mod recorder;
mod registry;

use std::sync::Barrier;
use std::thread;

/// Of each threaded test.
const THREADS: usize = 4;

/// Runs `work` on [`THREADS`] threads, which begin together, and `beside` on this one until they
/// are done.
fn beside<B>(work: impl Fn(usize) + Sync, mut beside: impl FnMut() -> B) {
    let start = Barrier::new(THREADS);
    let run = |thread| {
        start.wait();
        work(thread);
    };
    let run = &run;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
            beside();
        }
    });
}

/// The value of a sample in Prometheus' text format: of the line that begins with `series`.
fn sample(text: &str, series: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned);
    let value = text.lines().find_map(value).unwrap_or_else(|| panic!("no {series} in:\n{text}"));
    value.parse().unwrap_or_else(|_| panic!("{series} {value}"))
}
