//! Histories of calls that return answers: random programs of a few threads on one object. The
//! answers must fit one order of the calls. The objects of [`super::history`] answer only reads.

use super::history::State;
use super::place::on_side;
use super::rng::Rng;
use super::run::{Gate, Recorder};
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::thread;
use std::time::Instant;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

/// A sequential type; the tests derive everything else from it.
pub trait Model: State {
    type Call: Clone + Debug + Send + Sync;
    type Answer: Clone + Eq + Hash + Debug + Send;
    /// A call at random.
    fn call(rng: &mut Rng) -> Self::Call;
    /// Does it.
    fn answer(&mut self, call: &Self::Call) -> Self::Answer;
}

/// An object that claims to behave like `M`.
pub trait Subject<M: Model>: Sync {
    fn answer(&self, call: &M::Call) -> M::Answer;
}

struct Spec<M>(PhantomData<M>);

impl<M: Model> Specification for Spec<M> {
    type State = M;
    type Operation = (M::Call, M::Answer);

    fn init() -> M {
        M::default()
    }

    fn apply((call, answer): &Self::Operation, state: &M) -> (bool, M) {
        let mut next = state.clone();
        (next.answer(call) == *answer, next)
    }
}

/// A call and its answer, with the times of both.
#[derive(Debug, Clone)]
struct Event<M: Model> {
    thread: usize,
    call: u64,
    ret: u64,
    done: (M::Call, M::Answer),
}

struct Round<M: Model, O> {
    threads: Vec<Vec<M::Call>>,
    recorder: Recorder,
    object: O,
}

const ROUNDS: usize = 100;

/// Runs random programs until the deadline. Returns how many histories were fine.
///
/// # Errors
/// The first history that no order explains.
pub fn check<M: Model, O: Subject<M>>(
    seed: u64,
    until: Instant,
    mut make: impl FnMut(&mut Rng) -> O,
) -> Result<usize, String> {
    let mut checked = 0;
    loop {
        let mut rng = Rng::part(seed, checked as u64);
        let (threads, steps) = (2 + rng.below(3), 3 + rng.below(5));
        let program = |rng: &mut Rng| (0..steps).map(|_| M::call(rng)).collect();
        let rounds = (0..ROUNDS).map(|_| Round::<M, O> {
            threads: (0..threads).map(|_| program(&mut rng)).collect(),
            recorder: Recorder::random(&mut rng),
            object: make(&mut rng),
        });
        let rounds: Vec<_> = rounds.collect();
        for (round, events) in rounds.iter().zip(run(&rounds, threads)) {
            if !is_linearizable(&events) {
                let recorder = round.recorder;
                return Err(format!(
                    "a history after {checked} others is not linearizable. MANYCORE_SEED={seed:#x} \
                     generates the same programs; moments by {recorder:?}\n{}",
                    pretty(events)
                ));
            }
        }
        checked += ROUNDS;
        if Instant::now() >= until {
            return Ok(checked);
        }
    }
}

fn run<M: Model, O: Subject<M>>(rounds: &[Round<M, O>], threads: usize) -> Vec<Vec<Event<M>>> {
    let gate = Gate::default();
    let work = |thread: usize| {
        if threads == 2 {
            on_side(thread); // else let them crowd and preempt each other
        }
        let mut histories = Vec::with_capacity(rounds.len());
        for (number, round) in rounds.iter().enumerate() {
            gate.arrive(number, threads);
            let mut last = 0;
            let event = |call: &M::Call| {
                let called = later_than(last, || round.recorder.call());
                let answer = round.object.answer(call);
                last = later_than(called, || round.recorder.ret());
                Event { thread, call: called, ret: last, done: (call.clone(), answer) }
            };
            histories.push(round.threads[thread].iter().map(event).collect::<Vec<_>>());
        }
        histories
    };
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let mut all: Vec<Vec<_>> = rounds.iter().map(|_| Vec::new()).collect();
        for thread in threads {
            let histories = thread.join().expect("a thread of the history panicked");
            all.iter_mut().zip(histories).for_each(|(events, more)| events.extend(more));
        }
        all
    })
}

fn later_than(last: u64, mut now: impl FnMut() -> u64) -> u64 {
    loop {
        let moment = now();
        if moment > last {
            return moment;
        }
    }
}

fn is_linearizable<M: Model>(events: &[Event<M>]) -> bool {
    let mut moments: Vec<_> =
        events.iter().flat_map(|e| [(e.call, false, e), (e.ret, true, e)]).collect();
    // At equal times calls come first: such events overlap.
    moments.sort_by_key(|(time, returns, event)| (*time, *returns, event.thread));
    let action = |(_, returns, event): (u64, bool, &Event<M>)| {
        let done = event.done.clone();
        (event.thread, if returns { Action::Response(done) } else { Action::Call(done) })
    };
    let history = History::from_actions(moments.into_iter().map(action).collect());
    WGLChecker::<Spec<M>>::is_linearizable(history)
}

fn pretty<M: Model>(mut events: Vec<Event<M>>) -> String {
    events.sort_by_key(|event| event.call);
    let start = events.first().map_or(0, |event| event.call);
    let line = |Event { thread, call, ret, done }: &Event<M>| {
        format!("  thread {thread} {:>8}..{:<8} {done:?}", call - start, ret - start)
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}
