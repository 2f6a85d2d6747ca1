//! The one place that runs threads against an implementation.
//!
//! Owns: starting, timing and stopping of threads; the order of runs; the samples. Does not own:
//! the work of a thread, which a [`Subject`] defines.
//!
//! Laws:
//!
//! 1. Threads set up first, and then wait at one gate. A thread's time runs from the gate's opening
//!    to its own last operation. A thread that wakes late, or is delayed at the end, lowers its own
//!    rate and no other's. No rate is too high.
//! 2. A thread counts in its own stack frame, and reads the stop flag once per batch. The flag's
//!    line is written twice per run, and otherwise only read.
//! 3. Each repeat builds its subject anew. Repeats go round-robin over the implementations of a
//!    group. Each round starts one further, so that no implementation always runs after the same
//!    rival.
//! 4. A thread that cannot start, or that panics, ends the run with an error; no thread is left.

use std::{
    fmt,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;

use crate::{
    limits,
    row::{Kind, Params, Row, Summary},
    ticks,
};

/// Enough for every loop here; small, so that thousands of threads fit.
const STACK_BYTES: usize = 512 * 1024;

/// What threads run against: built for one repeat, dropped after it.
pub trait Subject: Sync {
    /// How many threads to start for a case of so many.
    fn workers(&self, threads: usize) -> usize {
        threads
    }

    /// The life of thread `index`: set up, then [`Control::drive`] with a batch of operations.
    fn work(&self, index: usize, control: &Control) -> Tally;

    /// The longest this run may take, if the runner's own time for it does not fit.
    fn duration(&self) -> Option<Duration> {
        None
    }

    /// What kept the run from having a result.
    fn problem(&self) -> Option<String> {
        None
    }

    /// A figure that the threads' tallies do not hold, asked for when they have ended.
    fn figure(&self, _metric: &str, _tallies: &[Tally]) -> Option<f64> {
        None
    }
}

/// What one thread did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations completed.
    pub ops: u64,
    /// From the opening of the gate to the last operation.
    pub elapsed: Duration,
    /// From the first operation to the last, in ticks of the processor's clock.
    pub ticks: u64,
}

impl Tally {
    /// Operations per second of this thread.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Operations per second of all threads together.
pub fn total_rate(tallies: &[Tally]) -> f64 {
    tallies.iter().map(Tally::rate).sum()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Gathering,
    Running { since: Instant },
    Over,
}

struct Gate {
    arrived: usize,
    phase: Phase,
}

/// Starts and stops the threads of one run.
pub struct Control {
    gate: Mutex<Gate>,
    changed: Condvar,
    running: CachePadded<AtomicBool>,
}

impl Control {
    fn new() -> Self {
        Self {
            gate: Mutex::new(Gate { arrived: 0, phase: Phase::Gathering }),
            changed: Condvar::new(),
            running: CachePadded::new(AtomicBool::new(false)),
        }
    }

    /// False as soon as the run is over. For loops that wait for another thread.
    #[inline(always)]
    pub fn running(&self) -> bool {
        // ORDER: Relaxed; the flag carries no data, results travel through the threads' join.
        self.running.load(Ordering::Relaxed)
    }

    /// Waits for the other threads, then runs batches until the run is over. A batch returns how
    /// many operations it did.
    #[inline(always)]
    pub fn drive(&self, mut batch: impl FnMut() -> u64) -> Tally {
        let start = self.wait_for_start();
        let start_ticks = ticks::now();
        let mut ops = 0;
        while self.running() {
            ops += batch();
        }
        Tally { ops, ticks: ticks::now().wrapping_sub(start_ticks), elapsed: start.elapsed() }
    }

    /// Ends the run before its time: the work is done.
    pub fn finish(&self) {
        self.end();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gate> {
        // The gate is two plain fields, valid at every step.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the gate opens and says when that was.
    fn wait_for_start(&self) -> Instant {
        let mut gate = self.lock();
        gate.arrived += 1;
        self.changed.notify_all();
        loop {
            match gate.phase {
                Phase::Gathering => {
                    gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
                }
                Phase::Running { since } => return since,
                // Over before it came here: nothing will be counted.
                Phase::Over => return Instant::now(),
            }
        }
    }

    /// Once `workers` have arrived, lets them run for `duration`, or until one gives up.
    fn conduct(&self, workers: usize, duration: Duration) {
        let mut gate = self.lock();
        while gate.arrived < workers && gate.phase == Phase::Gathering {
            gate = self.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        if gate.phase == Phase::Gathering {
            gate.phase = Phase::Running { since: Instant::now() };
            self.running.store(true, Ordering::Relaxed);
            self.changed.notify_all();
            let still_running = |gate: &mut Gate| matches!(gate.phase, Phase::Running { .. });
            // On virtual cores, costs are those of this part.
            gate = manycore_sim::measured(|| {
                self.changed
                    .wait_timeout_while(gate, duration, still_running)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            });
        }
        drop(gate);
        self.end();
    }

    /// Ends the run, whatever its phase.
    fn end(&self) {
        self.running.store(false, Ordering::Relaxed);
        self.lock().phase = Phase::Over;
        self.changed.notify_all();
    }
}

/// Ends the run if its thread panics, so that the others do not wait for it.
struct EndOnPanic<'a>(&'a Control);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

/// One implementation under one set of parameters.
pub struct Case {
    /// The implementation.
    pub impl_name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// How many threads, as the row will say.
    pub threads: usize,
    /// Builds the subject of one repeat.
    pub build: Box<dyn Fn() -> Box<dyn Subject>>,
}

/// A figure computed from the threads' tallies.
#[derive(Clone, Copy)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// How to compute it.
    pub of: fn(&[Tally]) -> f64,
}

impl Metric {
    /// A figure that the subject itself knows.
    pub const fn of_subject(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, of: |_| unreachable!("the subject knows its own figures") }
    }
}

/// Cases that belong in one table: same parameters, different implementations.
pub struct Group {
    /// The workload.
    pub bench: &'static str,
    /// What is special about the group, for a heading: "2 threads, no reads".
    pub title: String,
    /// The parameters that all rows of the group share.
    pub params: Params,
    /// What to compute.
    pub metrics: Vec<Metric>,
    /// The implementations that take part.
    pub cases: Vec<Case>,
    /// Requested implementations that do not support so many threads.
    pub left_out: Vec<&'static str>,
}

/// How long and how often to run.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    /// Of one repeat of one case.
    pub duration: Duration,
    /// How many repeats.
    pub repeats: usize,
    /// Whether each thread stays on one core (only where there are cores enough).
    pub pin: bool,
}

/// Why there is no result.
#[derive(Debug)]
pub enum RunError {
    /// The system refused a thread.
    CannotStart {
        /// How many were asked for.
        wanted: usize,
        /// How many had been started.
        started: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// More threads than the system's own limit.
    TooMany(limits::TooManyThreads),
    /// An implementation panicked.
    Panicked(&'static str),
    /// An implementation could not run, for this reason.
    Failed(&'static str, String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::CannotStart { wanted, started, source } => write!(
                f,
                "cannot start {wanted} threads: the system refused number {} ({source})",
                started + 1
            ),
            RunError::TooMany(error) => error.fmt(f),
            RunError::Failed(name, problem) => write!(f, "implementation '{name}': {problem}"),
            RunError::Panicked(name) => write!(f, "implementation '{name}' panicked"),
        }
    }
}

impl std::error::Error for RunError {}

impl Runner {
    /// Runs every case of the group and returns its rows; `before_each` hears what runs next.
    ///
    /// # Errors
    /// If threads cannot be started, or an implementation panics.
    pub fn run(
        &self,
        group: &Group,
        mut before_each: impl FnMut(&Case),
    ) -> Result<Vec<Row>, RunError> {
        let cases = group.cases.len();
        let mut samples = vec![vec![Vec::with_capacity(self.repeats); group.metrics.len()]; cases];
        for repeat in 0..self.repeats {
            for turn in 0..cases {
                let index = (turn + repeat) % cases;
                let case = &group.cases[index];
                before_each(case);
                let figures = self.run_once(case, &group.metrics)?;
                for (figure, values) in figures.into_iter().zip(&mut samples[index]) {
                    values.push(figure);
                }
            }
        }
        let mut rows = Vec::with_capacity(cases * group.metrics.len());
        for (case, samples) in group.cases.iter().zip(&samples) {
            for (metric, values) in group.metrics.iter().zip(samples) {
                rows.push(self.row(group, case, *metric, values));
            }
        }
        Ok(rows)
    }

    fn row(&self, group: &Group, case: &Case, metric: Metric, values: &[f64]) -> Row {
        let Summary { median, min, max } = Summary::of(values);
        let mut params = group.params.clone();
        params.insert("kind".into(), case.kind.word().into());
        Row {
            bench: group.bench,
            impl_name: case.impl_name,
            ours: case.kind == Kind::Ours,
            threads: case.threads,
            params,
            metric: metric.name,
            unit: metric.unit,
            median,
            min,
            max,
            repeats: values.len(),
        }
    }

    fn run_once(&self, case: &Case, metrics: &[Metric]) -> Result<Vec<f64>, RunError> {
        // Before the build: a subject may keep something for each thread.
        limits::check(case.threads).map_err(RunError::TooMany)?;
        let subject = (case.build)();
        let tallies = self.run_threads(case, &*subject)?;
        if let Some(problem) = subject.problem() {
            return Err(RunError::Failed(case.impl_name, problem));
        }
        let figure = |metric: &Metric| {
            subject.figure(metric.name, &tallies).unwrap_or_else(|| (metric.of)(&tallies))
        };
        Ok(metrics.iter().map(figure).collect())
    }

    fn run_threads(&self, case: &Case, subject: &dyn Subject) -> Result<Vec<Tally>, RunError> {
        let workers = subject.workers(case.threads);
        let pin = self.pin && workers <= limits::cores();
        let control = Control::new();
        thread::scope(|scope| {
            let mut handles = Vec::with_capacity(workers);
            for index in 0..workers {
                let control = &control;
                let body = move || {
                    let _end = EndOnPanic(control);
                    if pin {
                        limits::pin_to_nth_core(index);
                    }
                    subject.work(index, control)
                };
                let spawned = thread::Builder::new()
                    .name(format!("bench-{index}"))
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, body);
                match spawned {
                    Ok(handle) => handles.push(handle),
                    Err(source) => {
                        control.end();
                        let started = handles.len();
                        return Err(RunError::CannotStart { wanted: workers, started, source });
                    }
                }
            }
            control.conduct(workers, subject.duration().unwrap_or(self.duration));
            let joined = handles.into_iter().map(thread::ScopedJoinHandle::join);
            let tallies: Result<Vec<Tally>, _> = joined.collect();
            let tallies = tallies.map_err(|_| RunError::Panicked(case.impl_name))?;
            manycore_sim::operations(tallies.iter().map(|tally| tally.ops).sum());
            Ok(tallies)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Case, Control, Group, Metric, RunError, Runner, Subject, Tally};
    use crate::row::{Kind, Params};

    /// Thread 0 does one operation a millisecond; `broken` panics before or in its loop.
    struct Sleeper {
        broken: Option<usize>,
    }

    impl Subject for Sleeper {
        fn work(&self, index: usize, control: &Control) -> Tally {
            assert_ne!(self.broken, Some(index), "broken as asked for");
            control.drive(|| {
                std::thread::sleep(Duration::from_millis(1));
                1
            })
        }
    }

    fn group(threads: usize, broken: Option<usize>) -> Group {
        let case = |impl_name| Case {
            impl_name,
            kind: Kind::Rival,
            threads,
            build: Box::new(move || Box::new(Sleeper { broken })),
        };
        Group {
            bench: "sleep",
            title: String::new(),
            params: Params::new(),
            metrics: vec![Metric { name: "rate", unit: "1/s", of: super::total_rate }],
            cases: vec![case("a"), case("b"), case("c")],
            left_out: Vec::new(),
        }
    }

    fn runner() -> Runner {
        Runner { duration: Duration::from_millis(20), repeats: 2, pin: false }
    }

    #[test]
    fn rate_counts_all_threads_against_the_time_of_the_run() {
        let rows = runner().run(&group(3, None), |_| ()).unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            // At most 1000 a second and thread; sleeping takes longer than asked for.
            assert!(row.max > 0.0 && row.max <= 3000.0, "{row:?}");
            assert_eq!((row.repeats, row.threads), (2, 3));
        }
    }

    #[test]
    fn rounds_go_over_all_implementations_and_start_one_further_each_time() {
        let mut order = String::new();
        runner().run(&group(1, None), |case| order.push_str(case.impl_name)).unwrap();
        assert_eq!(order, "abcbca");
    }

    #[test]
    fn a_panic_in_one_thread_ends_the_run_for_all() {
        let error = runner().run(&group(3, Some(1)), |_| ()).unwrap_err();
        assert!(matches!(error, RunError::Panicked("a")), "{error}");
    }
}
