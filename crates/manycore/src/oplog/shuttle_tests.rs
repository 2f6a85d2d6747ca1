//! Random histories under shuttle, checked for linearizability.
//!
//! shuttle runs the real code through the facade, one thread at a time, and chooses at every atomic
//! access which thread runs next. So a failure can be replayed: it prints the seed of the program
//! and its own schedule. It cannot show effects of weak memory, because it treats every access as
//! SeqCst. Errors in the publication by plain stores are left to loom and to the litmus tests on
//! the real machine.
//!
//! The programs, the sequential types and the checker are those of `tests/linearizability.rs`.
//! `MANYCORE_SEED` chooses other programs, `MANYCORE_SOAK=60` runs each test for 60 seconds.

use super::{
    Cancelling, Combining, Commuting, Deferred, Log, Logs, MergeStrategy, Ordered, Publish,
};
use crate as manycore;
use crate::sync::{AtomicBool, Ordering, thread};
use history::{Event, State, Update, is_linearizable, pretty};
use kinds::{Add, List, Push, Set, SumLog, Toggle};
use plan::{Adds, Machine, Plan, Pushes, Script, Size, Step, Toggles, run};
use rng::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[path = "../../tests/common/env.rs"]
#[allow(dead_code, reason = "shared with tests that use all of it")]
mod env;
#[path = "../../tests/common/history.rs"]
mod history;
#[path = "../../tests/common/kinds.rs"]
mod kinds;
#[path = "../../tests/common/plan.rs"]
mod plan;
#[path = "../../tests/common/rng.rs"]
#[allow(dead_code, reason = "as above")]
mod rng;

/// The number of schedules of one program, by each of two schedulers.
const SCHEDULES: usize = 20;

/// The clock of a history and the flags of its program.
struct Stage {
    /// Not an atomic of the facade, so that taking a time is no step of the program.
    moment: Mutex<u64>,
    flags: Vec<AtomicBool>,
}

impl Stage {
    fn moment(&self) -> u64 {
        let mut moment = self.moment.lock().expect("no panic under the lock");
        *moment += 1;
        *moment
    }
}

impl Machine for Stage {
    fn call(&self) -> u64 {
        self.moment()
    }
    fn ret(&self) -> u64 {
        self.moment()
    }
    fn pause(&self, units: u16) {
        if units > 2 {
            thread::yield_now();
        }
    }
    fn raise(&self, flag: usize) {
        self.flags[flag].store(true, Ordering::SeqCst);
    }
    fn wait(&self, flag: usize) {
        while !self.flags[flag].load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

fn object<S: State, L: Log<S>>(rng: &mut Rng) -> Deferred<S, L> {
    let builder = Deferred::builder()
        .merge(*rng.pick(&[MergeStrategy::Flat, MergeStrategy::Tree]))
        .logs(*rng.pick(&[Logs::Always, Logs::Auto]))
        .publish(*rng.pick(&[Publish::Locked, Publish::Biased, Publish::Auto]))
        .max_entries(1 + rng.below(3))
        .growth(*rng.pick(&[1, 2]));
    builder.build(S::default()).expect("bounds that can work")
}

/// Runs one program once, on the threads of the model checker.
fn perform<S, U, L>(plan: &Plan<U>, mut rng: Rng) -> Vec<Event<S, U>>
where
    S: State,
    U: Update<S>,
    L: Log<S, Op = U>,
{
    let objects: Vec<Deferred<S, L>> = (0..plan.objects).map(|_| object(&mut rng)).collect();
    let flags = (0..plan.flags).map(|_| AtomicBool::new(false)).collect();
    let shared = Arc::new((objects, Stage { moment: Mutex::new(0), flags }));
    let start = |(number, steps): (usize, &Vec<(u16, Step<U>)>)| {
        let (shared, steps) = (Arc::clone(&shared), steps.clone());
        thread::spawn(move || run(&shared.1, number, &steps, &shared.0))
    };
    let threads: Vec<_> = plan.threads.iter().enumerate().map(start).collect();
    let mut events: Vec<_> =
        threads.into_iter().flat_map(|thread| thread.join().expect("no step panics")).collect();
    // At the end every update must be visible.
    let end: Vec<_> = (0..plan.objects).map(|object| (0, Step::Read { object })).collect();
    events.extend(run(&shared.1, plan.threads.len(), &end, &shared.0));
    events
}

fn explore<S, P, L>(scheduler: impl Scheduler + 'static, seed: u64, number: u64)
where
    S: State,
    P: Script<Update: Update<S>>,
    L: Log<S, Op = P::Update>,
{
    let mut rng = Rng::part(seed, number);
    let size =
        Size { threads: 2 + rng.below(3), steps: 2 + rng.below(3), objects: 1 + rng.below(2) };
    let plan = Plan::random::<P>(size, &mut rng);
    let mut config = Config::new();
    config.stack_size = 1 << 17;
    config.silence_warnings = true; // about weak memory: see above
    Runner::new(scheduler, config).run(move || {
        let events = perform::<S, P::Update, L>(&plan, rng.clone());
        assert!(
            is_linearizable(&events),
            "history is not linearizable. MANYCORE_SEED={seed:#x}, program {number}\n{}",
            pretty(&events)
        );
    });
}

/// Runs this many programs, or as many as fit into the time that the environment sets.
fn histories_are_linearizable<S, P, L>(programs: u64)
where
    S: State,
    P: Script<Update: Update<S>>,
    L: Log<S, Op = P::Update>,
{
    let seed = env::number("MANYCORE_SEED").unwrap_or(0x6d61_6e79);
    let soak = env::number("MANYCORE_SOAK").map(Duration::from_secs);
    let started = Instant::now();
    let mut number = 0;
    while soak.map_or(number < programs, |soak| started.elapsed() < soak) {
        let random = RandomScheduler::new_from_seed(seed ^ number, SCHEDULES);
        explore::<S, P, L>(random, seed, number);
        let pct = PctScheduler::new_from_seed(seed ^ number, 3, SCHEDULES);
        explore::<S, P, L>(pct, seed, number);
        number += 1;
    }
    println!("{} histories of {number} programs", number * 2 * SCHEDULES as u64);
}

#[test]
fn lists_with_ordered_logs_are_linearizable() {
    histories_are_linearizable::<List, Pushes, Ordered<Push>>(500);
}

#[test]
fn sets_with_cancelling_logs_are_linearizable() {
    histories_are_linearizable::<Set, Toggles, Cancelling<Toggle>>(500);
}

#[test]
fn sums_with_commuting_logs_are_linearizable() {
    histories_are_linearizable::<u64, Adds, Commuting<Add>>(500);
}

#[test]
fn sums_with_combining_logs_are_linearizable() {
    histories_are_linearizable::<u64, Adds, Combining<Add>>(500);
}

#[test]
fn sums_with_a_log_of_the_users_own_are_linearizable() {
    histories_are_linearizable::<u64, Adds, SumLog>(500);
}

// ---- tests of the tests ----

/// Runs `test` in a process with `bug` planted in the library, and asserts that the checker rejects
/// a history there.
fn must_reject(bug: &str, test: &str) {
    let test = format!("oplog::shuttle_tests::{test}");
    let run = Command::new(std::env::current_exe().expect("the test's own file"))
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env("MANYCORE_SEEDED_BUG", bug)
        .env("MANYCORE_SOAK", "60")
        .output()
        .expect("the test's own file runs");
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "{test} is no test:\n{said}");
    assert!(!run.status.success(), "{test} passes with the bug {bug} in place");
    assert!(said.contains("history is not linearizable"), "{test} fails otherwise:\n{said}");
}

#[test]
fn reads_without_a_cut_are_caught_in_lists() {
    must_reject("no-cut", "lists_with_ordered_logs_are_linearizable");
}

#[test]
fn reads_without_a_cut_are_caught_in_sums() {
    must_reject("no-cut", "sums_with_commuting_logs_are_linearizable");
}

#[test]
fn unfenced_stamps_are_caught_in_lists() {
    must_reject("unfenced-stamp", "lists_with_ordered_logs_are_linearizable");
}
