//! Logs that search by key, and the recency list, which has such a log.

use super::liar::{Key, Ledger, Probe, Soul, Subject, attempt, lies, panics};
use crate::common::rng::Rng;
use manycore::collections::Lru;
use manycore::oplog::{Cancel, Cancelling, Combine, Combining, Deferred, Log, Logs, Op};
use std::sync::Arc;

/// An update that adds a value, or takes a value with its number out.
struct Change {
    key: Probe,
    value: Option<Soul>,
}

impl Op<Vec<Change>> for Change {
    fn apply(self, list: &mut Vec<Change>) {
        self.key.look();
        self.value.iter().for_each(Soul::look);
        if self.value.is_some() {
            list.push(self);
        } else if let Some(at) = list.iter().position(|own| own.key.number == self.key.number) {
            list.swap_remove(at);
        }
    }
}

impl Cancel for Change {
    type Key = Probe;

    fn key(&self) -> Probe {
        self.key.clone()
    }

    fn inserts(&self) -> bool {
        self.value.is_some()
    }
}

impl Combine for Change {
    type Key = Probe;

    fn key(&self) -> Probe {
        self.key.clone()
    }

    fn combine(&mut self, other: Self) {
        self.key.look();
        other.key.look();
        self.value = other.value;
    }
}

trait Kind: Log<Vec<Change>, Op = Change> + Send + 'static {}
impl<L: Log<Vec<Change>, Op = Change> + Send + 'static> Kind for L {}

struct Logged<L: Kind>(Deferred<Vec<Change>, L>);

impl<L: Kind> Logged<L> {
    fn read(&self) {
        let look = |list: &Vec<Change>| {
            for change in list {
                change.key.look();
                change.value.iter().for_each(Soul::look);
            }
        };
        attempt(|| look(&self.0.read_poisoned()));
        self.0.clear_poison();
    }
}

impl<L: Kind> Subject for Logged<L>
where
    Deferred<Vec<Change>, L>: Sync,
{
    const FORMS: usize = 2;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        let logs = if form == 0 { Logs::Always } else { Logs::Never };
        let builder = Deferred::builder().logs(logs).max_entries(64);
        Self(builder.build(Vec::new()).expect("settings that can work"))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        for _ in 0..steps {
            // Enough different keys for an index.
            let key = Probe::new(rng.below(60) as u64, ledger);
            let value = (rng.below(3) > 0).then(|| Soul::new(ledger));
            if rng.once_in(30) {
                self.read();
            }
            attempt(|| self.0.append(Change { key, value }));
        }
        self.read(); // some kinds call the key in merges alone
    }

    fn check(self, _: &Arc<Ledger>) {
        self.read();
        self.read();
        assert!(!self.0.is_poisoned());
    }
}

#[test]
fn cancelling_log_among_liars() {
    lies::<Logged<Cancelling<Change>>>("Cancelling");
}

#[test]
fn cancelling_log_and_panics_at_every_call() {
    panics::<Logged<Cancelling<Change>>>("Cancelling");
}

#[test]
fn combining_log_among_liars() {
    lies::<Logged<Combining<Change>>>("Combining");
}

#[test]
fn combining_log_and_panics_at_every_call() {
    panics::<Logged<Combining<Change>>>("Combining");
}

struct Recent(Lru<Key>);

impl Subject for Recent {
    const FORMS: usize = 2;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        let logs = if form == 0 { Logs::Always } else { Logs::Never };
        let builder = Lru::builder().logs(logs).max_entries(32);
        Self(builder.build().expect("settings that can work"))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        for _ in 0..steps {
            let key = Key::any(rng, ledger);
            match rng.below(12) {
                0..=6 => _ = attempt(|| self.0.touch(key)),
                7 | 8 => _ = attempt(|| self.0.remove(key)),
                9 => _ = attempt(|| self.0.contains(&key)),
                10 => {
                    let seen = attempt(|| self.0.snapshot()).unwrap_or_default();
                    seen.iter().for_each(Key::look);
                }
                _ => {
                    let evicted = attempt(|| self.0.evict(2)).unwrap_or_default();
                    assert!(evicted.len() <= 2);
                    evicted.iter().for_each(Key::look);
                }
            }
        }
    }

    fn check(self, ledger: &Arc<Ledger>) {
        // Twice: a panic that is still to come loses the update in hand.
        attempt(|| self.0.len());
        let len = self.0.len();
        assert_eq!(ledger.living(), 2 * len as i64, "a key that is in no list");
        assert_eq!(self.0.evict(usize::MAX).len(), len);
    }
}

#[test]
fn lru_among_liars() {
    lies::<Recent>("Lru");
}

#[test]
fn lru_and_panics_at_every_call() {
    panics::<Recent>("Lru");
}
