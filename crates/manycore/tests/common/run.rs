//! Runs plans on real threads and checks their histories.

use super::history::{Event, State, Update, is_linearizable, pretty};
use super::manycore::clock::{Clock, Mode};
use super::place::on_side;
use super::plan::{Machine, Plan, Script, Shared, Size, run};
use super::rng::Rng;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Lets a number of threads start each round together.
#[derive(Debug, Default)]
pub struct Gate(AtomicUsize);

impl Gate {
    /// Waits until `threads` threads have arrived at `round` (0, 1, 2, ...).
    pub fn arrive(&self, round: usize, threads: usize) {
        self.0.fetch_add(1, Ordering::AcqRel);
        spin_until(|| self.0.load(Ordering::Acquire) >= (round + 1) * threads);
    }
}

/// Spins for a moment, then yields.
pub fn spin_until(done: impl Fn() -> bool) {
    let mut spins = 0_u32;
    while !done() {
        spins += 1;
        if spins < 100 { spin_loop() } else { thread::yield_now() }
    }
}

/// How times are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorder {
    /// One shared counter. Knows nothing of clocks, but its locked instructions are fences, which
    /// hide what waits in a store buffer.
    Counter,
    /// The processor's time stamp, which is no fence for stores. Only where cores agree on it.
    Tick,
}

impl Recorder {
    pub fn random(rng: &mut Rng) -> Self {
        let ticks = Clock::system().mode() == Mode::Synchronized;
        if ticks && !rng.once_in(3) { Self::Tick } else { Self::Counter }
    }

    /// A moment before the operation that is about to be called.
    pub fn call(self) -> u64 {
        match self {
            Self::Counter => MOMENT.fetch_add(1, Ordering::SeqCst),
            Self::Tick => Clock::system().cut().ticks(),
        }
    }

    /// A moment after the operation that has returned.
    pub fn ret(self) -> u64 {
        match self {
            Self::Counter => MOMENT.fetch_add(1, Ordering::SeqCst),
            Self::Tick => Clock::system().stamp().ticks(),
        }
    }
}

/// One run of one plan.
struct Round<U, O> {
    plan: Plan<U>,
    objects: Vec<O>,
    flags: Vec<AtomicBool>,
    recorder: Recorder,
    seed: u64,
}

/// The counter of every history; it only has to grow.
static MOMENT: AtomicU64 = AtomicU64::new(1);

impl<U, O> Machine for Round<U, O> {
    fn call(&self) -> u64 {
        self.recorder.call()
    }

    fn ret(&self) -> u64 {
        self.recorder.ret()
    }

    fn pause(&self, units: u16) {
        (0..units).for_each(|_| spin_loop());
    }

    fn raise(&self, flag: usize) {
        self.flags[flag].store(true, Ordering::Release);
    }

    fn wait(&self, flag: usize) {
        spin_until(|| self.flags[flag].load(Ordering::Acquire));
    }
}

/// A history that no order explains.
#[derive(Debug)]
pub struct Violation {
    /// Which history it was, from 0.
    pub number: u64,
    pub report: String,
}

const ROUNDS: usize = 100;

/// Runs random plans until the deadline, or until a history is not linearizable. `make` makes an
/// object for a plan. Returns how many histories passed.
pub fn check<S: State, P: Script<Update: Update<S>>, O: Shared<S, P::Update>>(
    seed: u64,
    until: Instant,
    make: impl FnMut(&mut Rng) -> O,
) -> Result<u64, Violation> {
    let size = |rng: &mut Rng| Size {
        threads: 2 + rng.below(3),
        steps: 3 + rng.below(4),
        objects: 1 + rng.below(2),
    };
    check_plans(seed, until, size, Plan::random::<P>, make)
}

/// Does the same as [`check`], with plans made by `plan`. All plans of one batch have the same
/// size.
pub fn check_plans<S: State, U: Update<S>, O: Shared<S, U>>(
    seed: u64,
    until: Instant,
    size: impl Fn(&mut Rng) -> Size,
    plan: impl Fn(Size, &mut Rng) -> Plan<U>,
    mut make: impl FnMut(&mut Rng) -> O,
) -> Result<u64, Violation> {
    let mut checked = 0;
    loop {
        let size = size(&mut Rng::part(seed, checked));
        let rounds: Vec<Round<U, O>> = (checked..checked + ROUNDS as u64)
            .map(|number| {
                let mut rng = Rng::part(seed, number);
                let recorder = Recorder::random(&mut rng);
                let plan = plan(size, &mut rng);
                let objects = (0..plan.objects).map(|_| make(&mut rng)).collect();
                let flags = (0..plan.flags).map(|_| AtomicBool::new(false)).collect();
                Round { plan, objects, flags, recorder, seed }
            })
            .collect();
        for (index, events) in run_rounds(&rounds, size.threads).into_iter().enumerate() {
            if !is_linearizable(&events) {
                let number = checked + index as u64;
                return Err(Violation { number, report: report(&rounds[index], number, &events) });
            }
        }
        checked += ROUNDS as u64;
        if Instant::now() >= until {
            return Ok(checked);
        }
    }
}

fn run_rounds<S: State, U: Update<S>, O: Shared<S, U>>(
    rounds: &[Round<U, O>],
    threads: usize,
) -> Vec<Vec<Event<S, U>>> {
    let gate = Gate::default();
    let work = |thread: usize| {
        if threads == 2 {
            on_side(thread); // else let them crowd and preempt each other
        }
        let mut histories = Vec::with_capacity(rounds.len());
        for (number, round) in rounds.iter().enumerate() {
            gate.arrive(number, threads);
            histories.push(run(round, thread, &round.plan.threads[thread], &round.objects));
        }
        histories
    };
    let mut all: Vec<Vec<Event<S, U>>> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let mut all: Vec<Vec<_>> = rounds.iter().map(|_| Vec::new()).collect();
        for thread in threads {
            let histories = thread.join().expect("a thread of the history panicked");
            all.iter_mut().zip(histories).for_each(|(events, more)| events.extend(more));
        }
        all
    });
    // In the end everything must be there.
    for (round, events) in rounds.iter().zip(&mut all) {
        for object in 0..round.objects.len() {
            let end = [(0, super::plan::Step::Read { object })];
            events.extend(run(round, threads, &end, &round.objects));
        }
    }
    all
}

fn report<S: State, U: Update<S>, O>(
    round: &Round<U, O>,
    number: u64,
    events: &[Event<S, U>],
) -> String {
    format!(
        "history {number} is not linearizable. MANYCORE_SEED={:#x} generates the same programs; \
         moments by {:?}\n{}",
        round.seed,
        round.recorder,
        pretty(events)
    )
}
