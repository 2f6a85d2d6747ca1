//! Planned faults: of all calls of user code in a scenario, the n-th panics, for every n.
//!
//! The process has one fuse, because callbacks may run on any thread. [`every_fault`] holds it for
//! as long as it runs.

use super::env;
use super::watchdog::ends;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicIsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Calls left until one panics. Negative while there is no fuse, or after it has blown.
static LEFT: AtomicIsize = AtomicIsize::new(-1);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Number of values that exist.
static ALIVE: AtomicIsize = AtomicIsize::new(0);

/// Marks a call of user code; panics if it is the planned one.
pub fn tick() {
    if LEFT.load(SeqCst) >= 0 && LEFT.fetch_sub(1, SeqCst) == 0 {
        resume_unwind(Box::new("planned")); // says nothing, and so costs little
    }
}

/// Runs a step of a scenario and catches its panic. Returns whether there was a panic: the planned
/// one, or one caused by it.
pub fn step(f: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Makes sure that nothing panics from here on. Returns whether the fuse has blown.
pub fn disarm() -> bool {
    LEFT.swap(-1, SeqCst) < 0
}

/// Runs `scenario` with a panic at its first call of user code, then at its second, and so on. Ends
/// when a run has no panic.
///
/// The scenario calls [`disarm`] before it checks. Afterwards, every [`Value`] has been dropped
/// once.
pub fn every_fault(name: &'static str, scenario: impl Fn() + Send + Sync + Copy + 'static) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ALIVE.store(0, SeqCst); // a test that failed may have left some
    for calls in 0.. {
        let blown = ends(name, move || {
            LEFT.store(calls, SeqCst);
            BLOWN.set(false);
            scenario();
            BLOWN.get()
        });
        assert_eq!(ALIVE.load(SeqCst), 0, "{name}: made but not freed, with a panic at {calls}");
        if !blown {
            assert!(calls > 3, "{name}: hardly a call of user code");
            return;
        }
    }
}

/// Runs `operation` on what `make` makes, with a panic at its first call of user code, then at its
/// second, and so on. Ends when a run has no panic.
///
/// Nothing else panics: neither `make`, nor `check`, which looks at what is left and goes on using
/// it. Afterwards, every [`Value`] has been dropped once. If an operation has many calls of user
/// code, some of the later ones are skipped, unless `MANYCORE_SOAK` is set.
pub fn every_fault_in<C: 'static>(
    name: &str,
    make: fn() -> C,
    operation: fn(&mut Option<C>),
    check: impl Fn(C) + Clone + Send + 'static,
) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ALIVE.store(0, SeqCst); // a test that failed may have left some
    let all = env::number("MANYCORE_SOAK").is_some();
    let mut calls = 0;
    loop {
        let (check, what) = (check.clone(), format!("{name}, call {calls}"));
        let blown = ends(&what, move || {
            let mut collection = Some(make());
            let (panicked, blown) = interrupted(calls, || operation(&mut collection));
            assert!(blown || !panicked, "a panic that was not planned");
            collection.into_iter().for_each(check);
            blown
        });
        wait_for_garbage();
        assert_eq!(ALIVE.load(SeqCst), 0, "{what}: made but not freed, or freed twice");
        if !blown {
            return;
        }
        calls += if all { 1 } else { 1 + calls / 2 };
    }
}

/// Runs `f`, which makes and drops values, while no other thread runs [`every_fault_in`]. That
/// function counts the values.
pub fn alone<R>(f: impl FnOnce() -> R) -> R {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let result = f();
    wait_for_garbage();
    result
}

/// Waits until the values retired in the process's domain are freed. Another test may have a
/// section open there.
fn wait_for_garbage() {
    let end = Instant::now() + Duration::from_secs(20);
    while ALIVE.load(SeqCst) != 0 && Instant::now() < end {
        #[cfg(feature = "section")]
        manycore::section::global().collect();
        thread::yield_now();
    }
}

/// Runs `f` with a panic at one call of user code. Returns whether `f` panicked, and whether there
/// was such a call.
pub fn interrupted(calls: isize, f: impl FnOnce()) -> (bool, bool) {
    LEFT.store(calls, SeqCst);
    let panicked = step(f);
    (panicked, disarm())
}

thread_local! {
    static BLOWN: Cell<bool> = const { Cell::new(false) };
}

/// Calls [`disarm`], and notes the result so that [`every_fault`] knows whether to go on.
pub fn over() -> bool {
    let blown = disarm();
    BLOWN.set(blown);
    blown
}

/// A counted value. Each of its operations is a call of user code.
#[derive(Debug)]
pub struct Value(pub u32, Alive);

#[derive(Debug)]
struct Alive;

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, SeqCst);
    }
}

impl Value {
    pub fn new(number: u32) -> Self {
        ALIVE.fetch_add(1, SeqCst);
        Self(number, Alive)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        tick(); // the field is dropped also if this panics
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        tick();
        Self::new(self.0)
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        tick();
        self.0 == other.0
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        tick();
        self.0.cmp(&other.0)
    }
}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        tick();
        self.0.hash(hasher);
    }
}
