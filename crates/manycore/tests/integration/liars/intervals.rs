//! Intervals with ends that have no order, in both forms of the registry.

use super::liar::{Ledger, Lie, Probe, Soul, Subject, attempt, lies, panics};
use crate::common::rng::Rng;
use manycore::collections::{Interval, IntervalRegistry};
use manycore::ldu::Queue;
use manycore::oplog::Logs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Registry = IntervalRegistry<Probe, Soul>;

fn made(form: usize) -> Registry {
    let builder = Registry::builder();
    let builder = match form {
        0 => builder.logs(Logs::Never),
        1 => builder.logs(Logs::Always).max_entries(16),
        2 => builder.marks(Queue::PerThread).max_entries(16),
        _ => builder.marks(Queue::Global),
    };
    builder.build().expect("settings that can work")
}

fn range(rng: &mut Rng, ledger: &Arc<Ledger>) -> Range<Probe> {
    let start = rng.below(40) as u64;
    Probe::new(start, ledger)..Probe::new(start + 1 + rng.below(9) as u64, ledger)
}

struct Intervals(Registry);

impl Intervals {
    /// `add` refuses a range whose start is not before its end, as a liar may say.
    fn add(&self, range: Range<Probe>, value: Soul) -> Option<Interval<'_, Probe, Soul>> {
        if attempt(|| range.start < range.end)? {
            // Asked again there, it may say something else.
            return catch_unwind(AssertUnwindSafe(|| attempt(|| self.0.add(range, value))))
                .unwrap_or_else(|panic| {
                    let said = panic.downcast::<&str>().expect("a sentence");
                    assert!(said.contains("an empty range"), "{said}");
                    None
                });
        }
        None
    }

    fn read(&self, ledger: &Arc<Ledger>, rng: &mut Rng) {
        let look = |range: &Range<Probe>, value: &Soul| {
            range.start.look();
            range.end.look();
            value.look();
            ledger.call();
        };
        let asked = range(rng, ledger);
        attempt(|| self.0.for_overlapping(asked, look));
    }
}

impl Subject for Intervals {
    const FORMS: usize = 4;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        Self(made(form))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut held: Vec<Interval<'_, Probe, Soul>> = Vec::new();
        for _ in 0..steps {
            match rng.below(8) {
                0..=3 => {
                    let range = range(rng, ledger);
                    held.extend(self.add(range, Soul::new(ledger)));
                }
                4 | 5 if !held.is_empty() => {
                    let interval = held.swap_remove(rng.below(held.len()));
                    interval.look();
                    attempt(|| drop(interval));
                }
                6 => _ = attempt(|| self.0.len()),
                _ => self.read(ledger, rng),
            }
            held.iter().for_each(|interval| {
                interval.look();
                interval.range().start.look();
                interval.range().end.look();
            });
        }
        held.into_iter().for_each(|interval| _ = attempt(|| drop(interval)));
    }

    fn check(self, ledger: &Arc<Ledger>) {
        attempt(|| self.0.len()); // may hand a panic on that no reader has seen yet
        assert_eq!(self.0.len(), 0, "every interval has gone");
        self.0.for_overlapping(Probe::new(0, ledger)..Probe::new(99, ledger), |_, _| {
            panic!("an interval that has gone")
        });
    }
}

#[test]
fn intervals_among_liars() {
    lies::<Intervals>("IntervalRegistry");
}

#[test]
fn intervals_and_panics_at_every_call() {
    panics::<Intervals>("IntervalRegistry");
}

/// A panic of `Ord` in a merge loses no interval: intervals still held are found afterwards.
#[test]
fn interval_is_there_after_a_panic_of_its_order() {
    for form in 0..4 {
        for n in 0..400 {
            let ledger = Ledger::new(Lie::None, 7);
            let registry = made(form);
            let mut rng = Rng::new(7);
            ledger.panic_at(n);
            let mut held = Vec::new();
            for _ in 0..40 {
                let range = range(&mut rng, &ledger);
                held.extend(attempt(|| registry.add(range, Soul::new(&ledger))));
            }
            let _ = attempt(|| registry.len());
            ledger.panic_at(u64::MAX);
            let _ = attempt(|| registry.len());
            let mut seen = 0;
            let all = Probe::new(0, &ledger)..Probe::new(99, &ledger);
            registry.for_overlapping(all, |_, value| {
                value.look();
                seen += 1;
            });
            assert_eq!((seen, registry.len()), (held.len(), held.len()), "form {form}, call {n}");
        }
    }
}
