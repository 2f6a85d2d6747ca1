//! Histories of collections whose calls return something. A few threads make random calls on many
//! short-lived objects. Each history is checked for linearizability against a sequential
//! specification.
//!
//! `history` and `run` do the same for deferred objects, which have only updates and reads. Here
//! each collection has its own specification.

use super::rng::Rng;
use super::run::{Gate, Recorder};
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

/// A collection under test, with what its sequential form would do.
pub trait Subject: Sync + Sized {
    /// A call with its answer.
    type Done: Clone + Debug + Send;
    /// The sequential collection.
    type State: Clone + Eq + Hash + Debug + Default;
    /// Values that a thread keeps between its calls, for example handles.
    type Kept<'a>: Default
    where
        Self: 'a;

    /// Makes a collection in a random configuration.
    fn new(rng: &mut Rng) -> Self;

    /// Makes a call. `unique` is a number that no other call of this history has.
    fn call<'a>(&'a self, kept: &mut Self::Kept<'a>, unique: u32, rng: &mut Rng) -> Self::Done;

    /// Makes a last call that reads everything.
    fn last(&self) -> Self::Done;

    /// Makes the call on the sequential collection, and returns whether it has the same answer
    /// there.
    fn step(done: &Self::Done, state: &mut Self::State) -> bool;
}

/// A call with the times of its start and return.
#[derive(Debug, Clone)]
pub struct Call<D> {
    pub thread: usize,
    pub from: u64,
    pub to: u64,
    pub done: D,
}

struct Sequential<S>(PhantomData<S>);

impl<S: Subject> Specification for Sequential<S> {
    type State = S::State;
    type Operation = S::Done;

    fn init() -> S::State {
        S::State::default()
    }

    fn apply(done: &S::Done, state: &S::State) -> (bool, S::State) {
        let mut next = state.clone();
        let fits = S::step(done, &mut next);
        (fits, next)
    }
}

/// Returns whether the specification explains some order of the calls. The order must keep every
/// "returned before called".
pub fn explains<S: Subject>(calls: &[Call<S::Done>]) -> bool {
    let mut moments: Vec<_> =
        calls.iter().flat_map(|call| [(call.from, false, call), (call.to, true, call)]).collect();
    moments.sort_by_key(|(time, returns, call)| (*time, *returns, call.thread));
    let action = |(_, returns, call): (u64, bool, &Call<S::Done>)| {
        let done = call.done.clone();
        (call.thread, if returns { Action::Response(done) } else { Action::Call(done) })
    };
    let history = History::from_actions(moments.into_iter().map(action).collect());
    WGLChecker::<Sequential<S>>::is_linearizable(history)
}

/// How many objects the same threads work through, one after the other.
const ROUNDS: usize = 50;

/// Runs random histories until `until`, and returns how many there were.
///
/// # Panics
/// If no order explains one of the histories.
pub fn check<S: Subject>(name: &str, seed: u64, until: Instant) -> u64 {
    let mut histories = 0;
    while histories == 0 || Instant::now() < until {
        let mut rng = Rng::part(seed, histories);
        let (threads, steps) = (2 + rng.below(3), 3 + rng.below(3));
        let recorder = Recorder::random(&mut rng);
        let objects: Vec<S> = (0..ROUNDS).map(|_| S::new(&mut rng)).collect();
        let calls: Vec<Mutex<Vec<_>>> = (0..ROUNDS).map(|_| Mutex::default()).collect();
        let (gate, end) = (Gate::default(), Barrier::new(threads + 1));
        thread::scope(|scope| {
            for thread in 0..threads {
                let (objects, calls, gate, end) = (&objects, &calls, &gate, &end);
                let part = seed ^ (histories << 8) ^ thread as u64;
                scope.spawn(move || {
                    let mut rng = Rng::part(part, 1);
                    // Handles end after the last round: their ends are no calls of a history.
                    let mut kept: Vec<S::Kept<'_>> = Vec::new();
                    for (round, object) in objects.iter().enumerate() {
                        kept.push(S::Kept::default());
                        gate.arrive(round, threads);
                        let part =
                            work(object, &mut kept[round], thread, steps, recorder, &mut rng);
                        calls[round].lock().unwrap().extend(part);
                    }
                    end.wait();
                    end.wait();
                });
            }
            // Between the two meetings no thread changes anything.
            end.wait();
            for (object, calls) in objects.iter().zip(&calls) {
                let from = recorder.call();
                let done = object.last();
                let to = recorder.ret().max(from + 1);
                calls.lock().unwrap().push(Call { thread: threads, from, to, done });
            }
            end.wait();
        });
        for (round, calls) in calls.into_iter().enumerate() {
            let mut calls = calls.into_inner().unwrap();
            let fits = explains::<S>(&calls);
            calls.sort_by_key(|call| call.from);
            assert!(
                fits,
                "{name}: no order explains history {histories}, object {round}, of \
                 MANYCORE_SEED={seed:#x}:\n{calls:#?}"
            );
        }
        histories += 1;
    }
    histories * ROUNDS as u64
}

fn work<'a, S: Subject>(
    object: &'a S,
    kept: &mut S::Kept<'a>,
    thread: usize,
    steps: usize,
    recorder: Recorder,
    rng: &mut Rng,
) -> Vec<Call<S::Done>> {
    let mut calls: Vec<Call<S::Done>> = Vec::new();
    for step in 0..steps {
        (0..rng.below(40)).for_each(|_| std::hint::spin_loop());
        let before = calls.last().map_or(0, |last| last.to);
        let mut from = recorder.call();
        while from <= before {
            from = recorder.call();
        }
        let done = object.call(kept, (thread * steps + step) as u32 + 1, rng);
        let mut to = recorder.ret();
        while to <= from {
            to = recorder.ret();
        }
        calls.push(Call { thread, from, to, done });
    }
    calls
}
