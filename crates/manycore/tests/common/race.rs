//! Two small races, run very often: `litmus.rs` says what each must show.

use super::broken::{Broken, Tally};
use super::manycore::clock::Stamp;
use super::manycore::oplog::{Deferred, Log, Logs, Op};
use super::place::{SlowPath, on_side};
use super::rng::Rng;
use super::run::{Gate, spin_until};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// An update with its thread and its round (1, 2, 3, ...).
#[derive(Debug, Clone, Copy)]
pub enum Mark {
    A(u64),
    B(u64),
}

/// Effects that updates have left behind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// The last round of A.
    pub a: u64,
    /// The last round of B.
    pub b: u64,
    /// How often B of a round was applied before its A.
    pub inversions: u64,
}

impl Op<Marks> for Mark {
    fn apply(self, marks: &mut Marks) {
        match self {
            Mark::A(round) => marks.a = marks.a.max(round),
            Mark::B(round) => {
                marks.inversions += u64::from(marks.a < round);
                marks.b = marks.b.max(round);
            }
        }
    }
}

/// An object that races are run on.
pub trait Racer: Sync {
    fn update(&self, mark: Mark);
    fn look(&self) -> Marks;
}

impl<L: Log<Marks, Op = Mark>> Racer for Deferred<Marks, L> {
    fn update(&self, mark: Mark) {
        self.append(mark);
    }
    fn look(&self) -> Marks {
        *self.read()
    }
}

impl Racer for Broken<Marks> {
    fn update(&self, mark: Mark) {
        self.append(match mark {
            Mark::A(round) => round * 2,
            Mark::B(round) => round * 2 + 1,
        });
    }
    fn look(&self) -> Marks {
        self.with(|marks| *marks)
    }
}

/// Applies a number of [`Broken`], by its meaning in these races.
pub fn apply_number(marks: &mut Marks, number: u64) {
    let mark = if number % 2 == 0 { Mark::A } else { Mark::B };
    mark(number / 2).apply(marks);
}

impl Racer for Tally {
    fn update(&self, _: Mark) {
        self.add(1);
    }
    fn look(&self) -> Marks {
        Marks { a: self.sum(), ..Marks::default() }
    }
}

/// The outcome of races.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    pub rounds: u64,
    pub violations: u64,
    /// Rounds, or reads, that show that the two sides did meet.
    pub meetings: u64,
}

impl Outcome {
    /// Runs races of `at_once` rounds, each with objects of its own, until `rounds` are done or
    /// `until` is past, and sums them up.
    pub fn of(
        rounds: u64,
        at_once: u64,
        until: Option<Instant>,
        mut run: impl FnMut(u64) -> Self,
    ) -> Self {
        let mut sum = Self::default();
        while sum.rounds < rounds && until.is_none_or(|until| Instant::now() < until) {
            let one = run((rounds - sum.rounds).min(at_once));
            sum.rounds += one.rounds;
            sum.violations += one.violations;
            sum.meetings += one.meetings;
        }
        sum
    }
}

/// Runs two threads: in each round, each updates its own object, with its store buffer full, and
/// then reads the other's.
///
/// A violation is a round in which neither saw the other's update. A meeting is a round in which
/// both did.
pub fn store_buffering<O: Racer>(left: &O, right: &O, rounds: u64) -> Outcome {
    let gate = Gate::default();
    let run = |mine: &O, others: &O, seed: u64| {
        on_side(seed as usize);
        let mut rng = Rng::new(seed);
        let path = SlowPath::new();
        let mut saw = Vec::with_capacity(rounds as usize);
        for round in 1..=rounds {
            path.forget();
            gate.arrive(round as usize - 1, 2);
            (0..rng.below(4)).for_each(|_| std::hint::spin_loop());
            path.clog();
            mine.update(Mark::A(round));
            saw.push(others.look().a >= round);
        }
        saw
    };
    let (left_saw, right_saw) = thread::scope(|scope| {
        let sides = [scope.spawn(|| run(left, right, 0)), scope.spawn(|| run(right, left, 1))];
        let [left, right] = sides.map(|side| side.join().expect("a side panicked"));
        (left, right)
    });
    let mut outcome = Outcome { rounds, ..Outcome::default() };
    for saw in left_saw.into_iter().zip(right_saw) {
        match saw {
            (false, false) => outcome.violations += 1,
            (true, true) => outcome.meetings += 1,
            _ => {}
        }
    }
    outcome
}

/// The threads that make A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// Two threads, B's waiting for A's flag, which it reads as late as it can: after a slow path.
    TwoThreads,
    /// One thread through two slots: A or B from within an update of another object, which works
    /// on a second slot (law percpu.P3). So two cores are enough for both sides to run at
    /// once.
    TwoSlots,
}

/// Runs A, then B after it, round after round, while another thread reads all the time.
///
/// Violations are reads that see B without A, B applied before A (if `ordered`), and updates that
/// the last read does not see. Meetings are reads that see something new since the read before.
pub fn two_cores<O: Racer + Send + 'static>(
    object: &Arc<O>,
    rounds: u64,
    writers: Writers,
    ordered: bool,
) -> Outcome {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rng = Rng::new(3);
            match writers {
                // Without a rest between reads, updates would hardly get in.
                Writers::TwoSlots => {
                    on_side(0);
                    read_until(&**object, &done, || {
                        (0..rng.below(100)).for_each(|_| std::hint::spin_loop());
                    })
                }
                // The writers have a core each, if there are two, and need both of them.
                Writers::TwoThreads => read_until(&**object, &done, || {
                    thread::sleep(Duration::from_micros(rng.below(50) as u64));
                }),
            }
        });
        match writers {
            Writers::TwoThreads => write_with_two_threads(&**object, rounds),
            Writers::TwoSlots => {
                let writer = scope.spawn(|| write_through_two_slots(object, rounds));
                writer.join().expect("the writer panicked");
            }
        }
        done.store(true, Ordering::Release);
        let mut outcome = reader.join().expect("the reader panicked");
        let end = object.look();
        outcome.rounds = rounds;
        outcome.violations += u64::from((end.a, end.b) != (rounds, rounds));
        outcome.violations += if ordered { end.inversions } else { 0 };
        outcome
    })
}

fn read_until<O: Racer>(object: &O, done: &AtomicBool, mut rest: impl FnMut()) -> Outcome {
    let mut outcome = Outcome::default();
    let mut before = Marks::default();
    while !done.load(Ordering::Acquire) {
        let now = object.look();
        outcome.violations += u64::from(now.b > now.a);
        outcome.meetings += u64::from(now != before);
        before = now;
        rest();
    }
    outcome
}

fn write_with_two_threads<O: Racer>(object: &O, rounds: u64) {
    let a_is_done = [AtomicU64::new(0)];
    let b_is_ready = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            on_side(0);
            let path = SlowPath::new();
            for round in 1..=rounds {
                path.forget();
                b_is_ready.store(round, Ordering::Release);
                while path.follow(&a_is_done).load(Ordering::Acquire) < round {
                    thread::yield_now();
                    path.forget();
                }
                object.update(Mark::B(round));
            }
        });
        scope.spawn(|| {
            on_side(1);
            for round in 1..=rounds {
                spin_until(|| b_is_ready.load(Ordering::Acquire) >= round);
                object.update(Mark::A(round));
                a_is_done[0].store(round, Ordering::Release);
            }
        });
    });
}

fn write_through_two_slots<O: Racer + Send + 'static>(object: &Arc<O>, rounds: u64) {
    on_side(1);
    let builder = Deferred::<(), Relay<O>>::builder().logs(Logs::Always);
    let outer = builder.build(()).expect("the default bounds");
    for round in 1..=rounds {
        if round % 2 == 0 {
            outer.append((Arc::clone(object), Mark::A(round)));
            object.update(Mark::B(round));
        } else {
            object.update(Mark::A(round));
            outer.append((Arc::clone(object), Mark::B(round)));
        }
    }
}

/// A log that keeps nothing: pushing an update updates another object.
struct Relay<O>(PhantomData<O>);

impl<O> Default for Relay<O> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<O: Racer + Send + 'static> Log<()> for Relay<O> {
    type Op = (Arc<O>, Mark);
    const ORDERED: bool = false;

    fn apply((object, mark): Self::Op, (): &mut ()) {
        object.update(mark);
    }
    fn push(&mut self, (object, mark): Self::Op, _: Stamp) {
        object.update(mark);
    }
    fn len(&self) -> usize {
        0
    }
    fn merge(_: &mut [Self], (): &mut ()) -> usize {
        0
    }
}
