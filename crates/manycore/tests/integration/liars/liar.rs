//! The liar: a key with every trait that a collection may call, and the records kept about it.

use crate::common::env;
use crate::common::rng::Rng;
use std::any::Any;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long each lie is tested on each form of a collection.
const SHARE: Duration = Duration::from_millis(30);

/// A time limit longer than any test here takes, even under a sanitizer on a busy machine.
const HANGS: Duration = Duration::from_secs(240);

/// Number of different keys: few, so that they meet.
pub const KEYS: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    None,
    /// Another hash at every call.
    Hash,
    /// A key is equal to nothing, as a NaN is.
    EqNever,
    EqAlways,
    /// Says no to what follows it in number, yes to the rest.
    EqLopsided,
    /// yes, no, yes, no: a look-up that is repeated never agrees with the one before.
    EqAlternates,
    EqRandom,
    /// The clone is the next key.
    Clone,
    /// The borrowed form is the next key.
    Borrow,
    /// Random answers, which no order gives.
    OrdRandom,
    /// A key is greater than itself.
    OrdGreater,
    /// All of them, now and then.
    All,
}

pub const LIES: [Lie; 12] = [
    Lie::None,
    Lie::Hash,
    Lie::EqNever,
    Lie::EqAlways,
    Lie::EqLopsided,
    Lie::EqAlternates,
    Lie::EqRandom,
    Lie::Clone,
    Lie::Borrow,
    Lie::OrdRandom,
    Lie::OrdGreater,
    Lie::All,
];

/// The payload of a planned panic.
pub struct Planned;

/// Records how many values live, which lie is told, and when a call panics.
pub struct Ledger {
    lie: Lie,
    living: AtomicI64,
    /// Uses after the drop, and second drops.
    crimes: AtomicU64,
    calls: AtomicU64,
    panic_at: AtomicU64,
    random: AtomicU64,
}

impl Ledger {
    pub fn new(lie: Lie, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            lie,
            living: AtomicI64::new(0),
            crimes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            panic_at: AtomicU64::new(u64::MAX),
            random: AtomicU64::new(seed),
        })
    }

    fn random(&self) -> u64 {
        Rng::part(self.random.fetch_add(1, SeqCst), 1).next()
    }

    /// Whether to tell this lie now.
    fn lies(&self, lie: Lie) -> bool {
        self.lie == lie || self.lie == Lie::All && self.random() % 8 == 0
    }

    /// A call of user code: the planned one panics.
    pub fn call(&self) {
        let number = self.calls.fetch_add(1, SeqCst);
        if number == self.panic_at.load(SeqCst) {
            resume_unwind(Box::new(Planned)); // without a message
        }
    }

    /// Has that call panic.
    pub fn panic_at(&self, call: u64) {
        self.panic_at.store(call, SeqCst);
    }

    pub fn living(&self) -> i64 {
        self.living.load(SeqCst)
    }

    /// After the collection has gone.
    fn close(&self, what: &str) {
        assert_eq!(self.crimes.load(SeqCst), 0, "{what}: used or dropped after the end");
        assert_eq!(self.living(), 0, "{what}: not dropped");
    }
}

const ALIVE: u64 = 0x5afe_5afe_5afe_5afe;
const POISON: u64 = 0xdead_dead_dead_dead;

/// A counted value that notices when it is used after it was dropped. It is on the heap, so that a
/// sanitizer sees a second drop, too.
pub struct Soul {
    life: Box<AtomicU64>,
    pub ledger: Arc<Ledger>,
}

impl Soul {
    pub fn new(ledger: &Arc<Ledger>) -> Self {
        ledger.living.fetch_add(1, SeqCst);
        Self { life: Box::new(AtomicU64::new(ALIVE)), ledger: Arc::clone(ledger) }
    }

    /// Looks whether it lives.
    pub fn look(&self) {
        if self.life.load(SeqCst) != ALIVE {
            self.ledger.crimes.fetch_add(1, SeqCst);
        }
    }
}

impl Drop for Soul {
    fn drop(&mut self) {
        if self.life.swap(POISON, SeqCst) != ALIVE {
            self.ledger.crimes.fetch_add(1, SeqCst);
        }
        self.ledger.living.fetch_sub(1, SeqCst);
    }
}

impl Clone for Soul {
    fn clone(&self) -> Self {
        self.look();
        self.ledger.call();
        Self::new(&self.ledger)
    }
}

/// The borrowed form of a key.
pub struct Probe {
    pub number: u64,
    soul: Soul,
}

impl Probe {
    pub fn new(number: u64, ledger: &Arc<Ledger>) -> Self {
        Self { number, soul: Soul::new(ledger) }
    }

    /// One of the keys there are.
    pub fn any(rng: &mut Rng, ledger: &Arc<Ledger>) -> Self {
        Self::new(rng.below(KEYS) as u64, ledger)
    }

    pub fn look(&self) {
        self.soul.look();
    }

    fn called(&self) -> &Ledger {
        self.soul.look();
        self.soul.ledger.call();
        &self.soul.ledger
    }
}

impl Hash for Probe {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ledger = self.called();
        let number = if ledger.lies(Lie::Hash) { ledger.random() } else { self.number };
        (number % 5).hash(state); // some keys share theirs, so that `Eq` is asked
    }
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        let ledger = self.called();
        other.look();
        match () {
            () if ledger.lies(Lie::EqNever) => false,
            () if ledger.lies(Lie::EqAlways) => true,
            () if ledger.lies(Lie::EqLopsided) => self.number <= other.number,
            () if ledger.lies(Lie::EqAlternates) => ledger.calls.load(SeqCst) % 2 == 0,
            () if ledger.lies(Lie::EqRandom) => ledger.random() % 2 == 0,
            () => self.number == other.number,
        }
    }
}
impl Eq for Probe {}

impl Ord for Probe {
    fn cmp(&self, other: &Self) -> Ordering {
        let ledger = self.called();
        other.look();
        match () {
            () if ledger.lies(Lie::OrdGreater) && self.number >= other.number => Ordering::Greater,
            () if ledger.lies(Lie::OrdRandom) => {
                [Ordering::Less, Ordering::Equal, Ordering::Greater][ledger.random() as usize % 3]
            }
            () => self.number.cmp(&other.number),
        }
    }
}
impl PartialOrd for Probe {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        let next = u64::from(self.called().lies(Lie::Clone));
        Self::new(self.number + next, &self.soul.ledger)
    }
}

/// A key that is borrowed as a [`Probe`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    own: Probe,
    other: Wrong,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.own.cmp(&other.own)
    }
}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A value that is equal to every other, so that it does not affect comparisons.
#[derive(Clone)]
struct Wrong(Probe);

impl PartialEq for Wrong {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Wrong {}
impl Hash for Wrong {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Key {
    pub fn new(number: u64, ledger: &Arc<Ledger>) -> Self {
        Self { own: Probe::new(number, ledger), other: Wrong(Probe::new(number + 1, ledger)) }
    }

    pub fn any(rng: &mut Rng, ledger: &Arc<Ledger>) -> Self {
        Self::new(rng.below(KEYS) as u64, ledger)
    }

    pub fn look(&self) {
        self.own.look();
        self.other.0.look();
    }
}

impl Borrow<Probe> for Key {
    fn borrow(&self) -> &Probe {
        if self.own.called().lies(Lie::Borrow) { &self.other.0 } else { &self.own }
    }
}

/// Calls `f`, which a planned panic of user code may end early.
pub fn attempt<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(unplanned).ok()
}

fn unplanned(panic: Box<dyn Any + Send>) {
    if !panic.is::<Planned>() {
        resume_unwind(panic); // the library's own, or a check's
    }
}

/// A collection that is tested with lying keys.
pub trait Subject: Sync + Sized {
    /// Number of ways to make it.
    const FORMS: usize;
    fn new(form: usize, ledger: &Arc<Ledger>) -> Self;
    /// Does `steps` random operations on it, each in an [`attempt`].
    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize);
    /// Looks at what must hold when the threads have gone.
    fn check(self, _ledger: &Arc<Ledger>) {}
}

/// Ends the process with a message if a call does not return.
struct Watch {
    _end: mpsc::Sender<()>,
}

impl Watch {
    fn start(what: &'static str, seed: u64) -> Self {
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            if ended.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{what} HANGS: MANYCORE_SEED={seed:#x}");
                std::process::abort();
            }
        });
        Self { _end: end }
    }
}

fn once<S: Subject>(what: &str, ledger: &Arc<Ledger>, form: usize, seed: u64, threads: usize) {
    let subject = S::new(form, ledger);
    thread::scope(|scope| {
        for thread in 1..threads {
            let subject = &subject;
            let mut rng = Rng::part(seed, thread as u64);
            scope.spawn(move || subject.run(ledger, &mut rng, 150));
        }
        subject.run(ledger, &mut Rng::part(seed, 0), 150);
    });
    subject.check(ledger);
    ledger.close(what);
}

/// Tests every lie on every form of the collection, with one thread and with three.
pub fn lies<S: Subject>(what: &'static str) {
    let seed = env::seed();
    println!("{what}: MANYCORE_SEED={seed:#x}");
    let watch = Watch::start(what, seed);
    for (number, lie) in LIES.into_iter().enumerate() {
        for form in 0..S::FORMS {
            let seed = seed.wrapping_add(number as u64);
            let end = env::soak(SHARE);
            for round in 0.. {
                let seed = seed.wrapping_add(round << 8);
                let what = format!("{what}, form {form}, {lie:?}, round {round}");
                once::<S>(&what, &Ledger::new(lie, seed), form, seed, 1 + 2 * (round as usize % 2));
                if Instant::now() >= end && round > 0 {
                    break;
                }
            }
        }
    }
    drop(watch);
}

/// Panics at each call in turn, with keys that otherwise tell the truth. The test goes on after the
/// panic, so that whatever the panic left behind is used.
pub fn panics<S: Subject>(what: &'static str) {
    const STEPS: usize = 60;
    let seed = env::seed();
    println!("{what}: MANYCORE_SEED={seed:#x}");
    let watch = Watch::start(what, seed);
    for form in 0..S::FORMS {
        for n in 0.. {
            let ledger = Ledger::new(Lie::None, seed);
            ledger.panic_at(n);
            let subject = S::new(form, &ledger);
            subject.run(&ledger, &mut Rng::new(seed), STEPS);
            let is_over = ledger.calls.load(SeqCst) <= n;
            ledger.panic_at(u64::MAX);
            subject.run(&ledger, &mut Rng::new(seed ^ 1), STEPS);
            subject.check(&ledger);
            ledger.close(&format!("{what}, form {form}, panic at call {n}"));
            if is_over {
                assert!(n > 0 || form > 0, "{what} calls no user code");
                break;
            }
        }
    }
    drop(watch);
}
