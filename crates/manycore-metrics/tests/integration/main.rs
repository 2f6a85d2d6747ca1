//! What is reported, by each of the ways, is what was counted.

mod metric_vec;
mod otel;
mod prometheus;
mod recorder;
mod registry;

use std::collections::{HashMap, HashSet};
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

/// Checks what a scraper rejects a report for, beside its syntax: a family or a series that comes
/// twice, a sample that belongs to two families, a label that a series has twice.
fn assert_scrapable(text: &str) {
    let (mut families, mut series) = (HashSet::new(), HashSet::new());
    let (mut owners, mut family) = (HashMap::new(), "");
    for line in text.lines() {
        if let Some(named) = line.strip_prefix("# TYPE ") {
            family = named.split_once(' ').expect("a kind").0;
            assert!(families.insert(family), "two families {family}:\n{text}");
        } else if !line.starts_with('#') {
            let (found, _) = line.rsplit_once(' ').expect("a value");
            assert!(series.insert(found), "two series {found}:\n{text}");
            let name = found.split('{').next().expect("a name");
            assert!(name.starts_with(family), "{name} is not of {family}:\n{text}");
            let owner = *owners.entry(name).or_insert(family);
            assert_eq!(owner, family, "{name} is of two families:\n{text}");
            let labels = found.split(['{', ',']).filter_map(|label| label.split_once("=\""));
            let mut labels: Vec<&str> = labels.map(|(label, _)| label).collect();
            assert!(!labels.contains(&"__name__"), "{found}");
            labels.sort_unstable();
            assert!(labels.windows(2).all(|pair| pair[0] != pair[1]), "a label twice: {found}");
        }
    }
}
