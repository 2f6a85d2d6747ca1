//! The parts of the walk: updates that call back from each place where the library runs user code,
//! a log with those places, and a ledger of the updates appended.

use manycore::clock::Stamp;
use manycore::oplog::Log;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// The places where an object with logs runs user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callback {
    Apply,
    Push,
    Len,
    Collect,
    Merge,
    DropUpdate,
    DropLog,
}

pub const CALLBACKS: [Callback; 7] = [
    Callback::Apply,
    Callback::Push,
    Callback::Len,
    Callback::Collect,
    Callback::Merge,
    Callback::DropUpdate,
    Callback::DropLog,
];

/// The outcome of an operation that a callback called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    Works,
    /// The operation's own way to refuse, such as `Err(Busy)` or `false`.
    Refuses(&'static str),
    /// With the message.
    Panics(String),
}

pub type Hook = Box<dyn FnOnce() + Send>;

/// An update that adds one to the value, and on the way runs a hook once, at one place.
pub struct Update {
    at: Callback,
    hook: Mutex<Option<Hook>>,
}

impl Update {
    /// An update without a hook.
    pub fn plain(ledger: &Ledger) -> Self {
        Self::hooked(ledger, Callback::Apply, None)
    }

    pub fn hooked(ledger: &Ledger, at: Callback, hook: Option<Hook>) -> Self {
        ledger.appended.fetch_add(1, SeqCst);
        Self { at, hook: Mutex::new(hook) }
    }

    /// The hook is taken before it runs: what it calls may come here again.
    fn run_at(&self, at: Callback) {
        if self.at == at {
            let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(hook) = hook {
                hook();
            }
        }
    }
}

impl Drop for Update {
    fn drop(&mut self) {
        self.run_at(Callback::DropUpdate);
    }
}

/// Keeps updates in order, and runs their hooks at each place of a log.
#[derive(Default)]
pub struct Probe {
    updates: Vec<Update>,
    on_drop: Vec<Update>,
}

impl Probe {
    fn run_at(&self, at: Callback) {
        self.updates.iter().for_each(|update| update.run_at(at));
    }
}

impl Log<u64> for Probe {
    type Op = Update;
    const ORDERED: bool = false;

    fn apply(update: Update, sum: &mut u64) {
        update.run_at(Callback::Apply);
        *sum += 1;
    }
    fn push(&mut self, update: Update, _: Stamp) {
        update.run_at(Callback::Push);
        self.updates.push(update);
    }
    fn len(&self) -> usize {
        self.run_at(Callback::Len);
        self.updates.len()
    }
    fn collect(&mut self, _: Stamp, into: &mut Self) {
        self.run_at(Callback::Collect);
        std::mem::swap(&mut self.updates, &mut into.updates);
    }
    fn merge(logs: &mut [Self], sum: &mut u64) -> usize {
        let mut applied = 0;
        for log in logs {
            log.run_at(Callback::Merge);
            while let Some(update) = log.updates.pop() {
                if update.at == Callback::DropLog {
                    update.run_at(Callback::Apply);
                    *sum += 1;
                    log.on_drop.push(update);
                } else {
                    Self::apply(update, sum);
                }
                applied += 1;
            }
        }
        applied
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.on_drop.drain(..).for_each(|update| update.run_at(Callback::DropLog));
    }
}

/// Updates that were given to one object.
#[derive(Default)]
pub struct Ledger {
    appended: AtomicU64,
}

impl Ledger {
    pub fn appended(&self) -> u64 {
        self.appended.load(SeqCst)
    }
}

/// The answers that one case's callbacks got.
#[derive(Clone, Default)]
pub struct Answers(Arc<Mutex<Vec<Answer>>>);

impl Answers {
    /// Runs an operation from within a callback and notes what it came to.
    pub fn note(&self, operation: impl FnOnce() -> Answer) {
        let answer = catch_unwind(AssertUnwindSafe(operation))
            .unwrap_or_else(|panic| Answer::Panics(message(&*panic)));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }

    /// Each answer once, in a fixed order.
    pub fn distinct(&self) -> Vec<Answer> {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        answers.sort();
        answers.dedup();
        answers
    }
}

pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}
