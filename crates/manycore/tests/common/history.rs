//! A history of calls and returns, and a check whether it is linearizable.
//!
//! The checker is from the crate `todc-utils`: Wing and Gong's search with Lowe's memory.

use super::manycore::oplog::Op;
use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

/// The state of a sequential type: a read returns it.
pub trait State: Clone + Eq + Hash + Debug + Default + Send + Sync + 'static {}
impl<S: Clone + Eq + Hash + Debug + Default + Send + Sync + 'static> State for S {}

/// An update of that type.
pub trait Update<S>: Op<S> + Clone + Debug + Send + Sync + 'static {}
impl<S, U: Op<S> + Clone + Debug + Send + Sync + 'static> Update<S> for U {}

/// A call on one object, from its start to its return.
#[derive(Debug, Clone)]
pub struct Event<S, U> {
    pub object: usize,
    pub thread: usize,
    pub call: u64,
    pub ret: u64,
    pub done: Done<S, U>,
}

#[derive(Debug, Clone)]
pub enum Done<S, U> {
    Updated(U),
    Saw(S),
}

/// An object that begins with the state's default, described as the checker needs it.
struct Sequential<S, U>(PhantomData<(S, U)>);

impl<S: State, U: Update<S>> Specification for Sequential<S, U> {
    type State = S;
    type Operation = Done<S, U>;

    fn init() -> S {
        S::default()
    }

    fn apply(operation: &Done<S, U>, state: &S) -> (bool, S) {
        match operation {
            Done::Updated(update) => {
                let mut next = state.clone();
                update.clone().apply(&mut next);
                (true, next)
            }
            Done::Saw(seen) => (seen == state, state.clone()),
        }
    }
}

/// Returns whether the events of each object have an order that the sequential type explains. The
/// order must keep every "returned before called". Linearizability is local (Herlihy and Wing,
/// 1990), so each object is checked on its own.
pub fn is_linearizable<S: State, U: Update<S>>(events: &[Event<S, U>]) -> bool {
    let objects = events.iter().map(|event| event.object + 1).max().unwrap_or(0);
    (0..objects).all(|object| {
        let mut moments = Vec::new();
        for event in events.iter().filter(|event| event.object == object) {
            assert!(event.call < event.ret, "the recorder's time stands still: {event:?}");
            moments.push((event.call, false, event));
            moments.push((event.ret, true, event));
        }
        if moments.is_empty() {
            return true;
        }
        // At equal times calls come first: such events overlap.
        moments.sort_by_key(|(time, returns, event)| (*time, *returns, event.thread));
        let action = |(_, returns, event): (u64, bool, &Event<S, U>)| {
            let done = event.done.clone();
            (event.thread, if returns { Action::Response(done) } else { Action::Call(done) })
        };
        let history = History::from_actions(moments.into_iter().map(action).collect());
        WGLChecker::<Sequential<S, U>>::is_linearizable(history)
    })
}

/// Returns the events in a form that people can read.
pub fn pretty<S: State, U: Update<S>>(events: &[Event<S, U>]) -> String {
    let mut sorted: Vec<_> = events.iter().collect();
    sorted.sort_by_key(|event| event.call);
    let start = sorted.first().map_or(0, |event| event.call);
    let line = |event: &&Event<S, U>| {
        let Event { object, thread, call, ret, done } = event;
        format!(
            "  thread {thread} object {object} {:>8}..{:<8} {done:?}",
            call - start,
            ret - start
        )
    };
    sorted.iter().map(line).collect::<Vec<_>>().join("\n")
}
