//! Random histories of the collections that claim linearizability, checked against sequential
//! collections.
//!
//! Each test prints its seed and the number of histories. `MANYCORE_SOAK=60` runs each test for 60
//! seconds. `MANYCORE_SEED=0x12ab` makes the calls of an earlier run again (the threads may still
//! meet differently). The last tests feed wrong answers to each specification.

use crate::common::calls_history::{Call, Subject, check, explains};
use crate::common::env;
use crate::common::rng::Rng;
use manycore::collections::{
    Active, ActiveSet, EventQueue, Interval, IntervalRegistry, Lru, OwnedEntry, RecvError, Registry,
};
use manycore::ldu::Queue;
use manycore::oplog::{Logs, Publish};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The calls of each collection, with their answers.
mod calls {
    use manycore::collections::RecvError;
    use std::collections::BTreeSet;
    use std::ops::Range;

    #[derive(Debug, Clone)]
    pub enum LruCall {
        Touch(u8),
        Remove(u8),
        Evict(usize, Vec<u8>),
        Contains(u8, bool),
        Len(usize),
        Snapshot(Vec<u8>),
    }

    #[derive(Debug, Clone)]
    pub enum SetCall {
        Entered(u32),
        Left(u32),
        Oldest(Option<u32>),
        Len(usize),
        Snapshot(BTreeSet<u32>),
    }

    #[derive(Debug, Clone)]
    pub enum IntervalCall {
        Added(u32, Range<u32>),
        Removed(u32),
        Overlapping(Range<u32>, BTreeSet<u32>),
        Len(usize),
    }

    #[derive(Debug, Clone)]
    pub enum QueueCall {
        Sent(u32),
        Refused,
        Received(Result<u32, RecvError>),
        Drained(Vec<u32>),
        DrainedSome(usize, Vec<u32>),
        Len(usize),
        Closed(bool),
    }
}

use calls::{IntervalCall, LruCall, QueueCall, SetCall};

const SHARE: Duration = Duration::from_millis(700);

fn histories<S: Subject>(name: &str) {
    let _alone = env::alone();
    let seed = env::seed();
    println!("{name}: MANYCORE_SEED={seed:#x}");
    let histories = check::<S>(name, seed, env::soak(SHARE));
    println!("{name}: {histories} histories");
}

fn logs(rng: &mut Rng) -> Logs {
    *rng.pick(&[Logs::Always, Logs::Always, Logs::Auto, Logs::Never])
}

fn publish(rng: &mut Rng) -> Publish {
    *rng.pick(&[Publish::Auto, Publish::Locked, Publish::Biased])
}

fn queue(rng: &mut Rng) -> Queue {
    *rng.pick(&[Queue::PerThread, Queue::Global])
}

/// Takes a handle to end it, if there is one and the random choice says so.
fn some_end<H>(handles: &mut Vec<H>, rng: &mut Rng) -> Option<H> {
    (!handles.is_empty() && rng.once_in(3)).then(|| handles.swap_remove(rng.below(handles.len())))
}

// ---- Lru ----

impl Subject for Lru<u8> {
    type Done = LruCall;
    /// The least recently touched one first.
    type State = Vec<u8>;
    type Kept<'a> = ();

    fn new(rng: &mut Rng) -> Self {
        let builder = Lru::builder().logs(logs(rng)).publish(publish(rng));
        if rng.once_in(3) { builder.max_entries(1) } else { builder }.build().unwrap()
    }

    fn call(&self, (): &mut (), _: u32, rng: &mut Rng) -> LruCall {
        let key = rng.below(4) as u8;
        match rng.below(12) {
            0..5 => {
                self.touch(key);
                LruCall::Touch(key)
            }
            5..7 => {
                self.remove(key);
                LruCall::Remove(key)
            }
            7..9 => {
                let count = 1 + rng.below(2);
                LruCall::Evict(count, self.evict(count))
            }
            9 => LruCall::Contains(key, self.contains(&key)),
            10 => LruCall::Len(self.len()),
            _ => LruCall::Snapshot(self.snapshot()),
        }
    }

    fn last(&self) -> LruCall {
        LruCall::Snapshot(self.snapshot())
    }

    fn step(done: &LruCall, keys: &mut Vec<u8>) -> bool {
        match done {
            LruCall::Touch(key) => {
                keys.retain(|other| other != key);
                keys.push(*key);
                true
            }
            LruCall::Remove(key) => {
                keys.retain(|other| other != key);
                true
            }
            LruCall::Evict(count, evicted) => {
                let count = (*count).min(keys.len());
                keys.drain(..count).eq(evicted.iter().copied())
            }
            LruCall::Contains(key, there) => keys.contains(key) == *there,
            LruCall::Len(len) => keys.len() == *len,
            LruCall::Snapshot(seen) => keys == seen,
        }
    }
}

#[test]
fn lru_histories_are_linearizable() {
    histories::<Lru<u8>>("lru");
}

// ---- Registry ----

fn step_of_set(done: &SetCall, members: &mut BTreeSet<u32>) -> bool {
    match done {
        SetCall::Entered(member) => members.insert(*member),
        SetCall::Left(member) => members.remove(member),
        SetCall::Oldest(oldest) => members.first() == oldest.as_ref(),
        SetCall::Len(len) => members.len() == *len,
        SetCall::Snapshot(seen) => members == seen,
    }
}

impl Subject for Registry<u32> {
    type Done = SetCall;
    type State = BTreeSet<u32>;
    type Kept<'a> = Vec<(u32, OwnedEntry<u32>)>;

    fn new(rng: &mut Rng) -> Self {
        let builder = Registry::builder().publish(publish(rng));
        let builder = match rng.below(3) {
            0 => builder.marks(queue(rng)),
            _ => builder.logs(logs(rng)),
        };
        if rng.once_in(3) { builder.max_entries(1) } else { builder }.build().unwrap()
    }

    fn call<'a>(&'a self, kept: &mut Self::Kept<'a>, unique: u32, rng: &mut Rng) -> SetCall {
        if let Some((member, entry)) = some_end(kept, rng) {
            drop(entry);
            return SetCall::Left(member);
        }
        match rng.below(8) {
            0..5 => {
                kept.push((unique, self.register_owned(unique)));
                SetCall::Entered(unique)
            }
            5 => SetCall::Len(self.len()),
            _ => self.last(),
        }
    }

    fn last(&self) -> SetCall {
        let all = self.snapshot();
        let members: BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), members.len(), "one was seen twice");
        SetCall::Snapshot(members)
    }

    fn step(done: &SetCall, members: &mut BTreeSet<u32>) -> bool {
        step_of_set(done, members)
    }
}

#[test]
fn registry_histories_are_linearizable() {
    histories::<Registry<u32>>("registry");
}

// ---- ActiveSet ----

impl Subject for ActiveSet<u32> {
    type Done = SetCall;
    type State = BTreeSet<u32>;
    type Kept<'a> = Vec<(u32, Active<'a, u32>)>;

    fn new(rng: &mut Rng) -> Self {
        ActiveSet::with_queue(queue(rng))
    }

    fn call<'a>(&'a self, kept: &mut Self::Kept<'a>, unique: u32, rng: &mut Rng) -> SetCall {
        if let Some((member, active)) = some_end(kept, rng) {
            active.leave();
            return SetCall::Left(member);
        }
        match rng.below(8) {
            0..4 => {
                kept.push((unique, self.register(unique)));
                SetCall::Entered(unique)
            }
            4 => SetCall::Len(self.len()),
            5..7 => SetCall::Oldest(self.oldest()),
            _ => self.last(),
        }
    }

    fn last(&self) -> SetCall {
        SetCall::Snapshot(self.snapshot().into_iter().collect())
    }

    fn step(done: &SetCall, members: &mut BTreeSet<u32>) -> bool {
        step_of_set(done, members)
    }
}

#[test]
fn active_set_histories_are_linearizable() {
    histories::<ActiveSet<u32>>("active set");
}

// ---- IntervalRegistry ----

impl Subject for IntervalRegistry<u32, u32> {
    type Done = IntervalCall;
    type State = BTreeMap<u32, (u32, u32)>;
    type Kept<'a> = Vec<(u32, Interval<'a, u32, u32>)>;

    fn new(rng: &mut Rng) -> Self {
        let builder = IntervalRegistry::builder();
        let builder = match rng.below(2) {
            0 => builder.marks(queue(rng)),
            _ => builder.logs(logs(rng)),
        };
        if rng.once_in(3) { builder.max_entries(1) } else { builder }.build().unwrap()
    }

    fn call<'a>(&'a self, kept: &mut Self::Kept<'a>, unique: u32, rng: &mut Rng) -> IntervalCall {
        if let Some((number, interval)) = some_end(kept, rng) {
            interval.remove();
            return IntervalCall::Removed(number);
        }
        let start = rng.below(6) as u32;
        let range = start..start + 1 + rng.below(4) as u32;
        match rng.below(8) {
            0..4 => {
                kept.push((unique, self.add(range.clone(), unique)));
                IntervalCall::Added(unique, range)
            }
            4 => IntervalCall::Len(self.len()),
            _ => {
                let seen = self.overlapping(range.clone()).into_iter().collect();
                IntervalCall::Overlapping(range, seen)
            }
        }
    }

    fn last(&self) -> IntervalCall {
        IntervalCall::Overlapping(0..100, self.overlapping(0..100).into_iter().collect())
    }

    fn step(done: &IntervalCall, all: &mut BTreeMap<u32, (u32, u32)>) -> bool {
        match done {
            IntervalCall::Added(number, range) => {
                all.insert(*number, (range.start, range.end)).is_none()
            }
            IntervalCall::Removed(number) => all.remove(number).is_some(),
            IntervalCall::Overlapping(asked, seen) => {
                let meets = |(start, end): &(u32, u32)| *start < asked.end && asked.start < *end;
                let there = all.iter().filter(|(_, range)| meets(range));
                there.map(|(number, _)| *number).eq(seen.iter().copied())
            }
            IntervalCall::Len(len) => all.len() == *len,
        }
    }
}

#[test]
fn interval_registry_histories_are_linearizable() {
    histories::<IntervalRegistry<u32, u32>>("interval registry");
}

// ---- EventQueue ----

impl Subject for EventQueue<u32> {
    type Done = QueueCall;
    type State = (VecDeque<u32>, bool);
    type Kept<'a> = ();

    fn new(rng: &mut Rng) -> Self {
        EventQueue::builder().logs(logs(rng)).publish(publish(rng)).build().unwrap()
    }

    fn call(&self, (): &mut (), unique: u32, rng: &mut Rng) -> QueueCall {
        match rng.below(20) {
            0..11 => match self.send(unique) {
                Ok(()) => QueueCall::Sent(unique),
                Err(_) => QueueCall::Refused,
            },
            11..15 => QueueCall::Received(self.try_recv()),
            15 => self.last(),
            16..18 => {
                let mut some = Vec::new();
                let most = 1 + rng.below(2);
                self.drain_at_most(most, &mut some);
                QueueCall::DrainedSome(most, some)
            }
            18 => QueueCall::Len(self.len()),
            _ => QueueCall::Closed(self.close()),
        }
    }

    fn last(&self) -> QueueCall {
        QueueCall::Drained(self.drain())
    }

    fn step(done: &QueueCall, (events, closed): &mut (VecDeque<u32>, bool)) -> bool {
        match done {
            QueueCall::Sent(event) => {
                events.push_back(*event);
                !*closed
            }
            QueueCall::Refused => *closed,
            QueueCall::Received(Ok(event)) => events.pop_front() == Some(*event),
            QueueCall::Received(Err(RecvError::Empty)) => events.is_empty(),
            QueueCall::Received(Err(_)) => events.is_empty() && *closed,
            QueueCall::Drained(all) => events.drain(..).eq(all.iter().copied()),
            QueueCall::DrainedSome(most, some) => {
                let are_some = some.len() <= *most && (!some.is_empty() || events.is_empty());
                are_some
                    && some.len() <= events.len()
                    && events.drain(..some.len()).eq(some.iter().copied())
            }
            QueueCall::Len(len) => events.len() == *len,
            QueueCall::Closed(was_open) => std::mem::replace(closed, true) != *was_open,
        }
    }
}

#[test]
fn event_queue_histories_are_linearizable() {
    histories::<EventQueue<u32>>("event queue");
}

// ---- tests of the test ----

/// Makes a history of calls one after the other, by three threads in turn.
fn sequence<D>(calls: impl IntoIterator<Item = D>) -> Vec<Call<D>> {
    let call =
        |(at, done)| Call { thread: at % 3, from: 2 * at as u64, to: 2 * at as u64 + 1, done };
    calls.into_iter().enumerate().map(call).collect()
}

/// Demands that the right sequences are accepted and the wrong sequences are rejected.
fn judges<S: Subject>(right: &[&[S::Done]], wrong: &[&[S::Done]]) {
    for calls in right {
        assert!(explains::<S>(&sequence(calls.iter().cloned())), "right, and rejected: {calls:?}");
    }
    for calls in wrong {
        assert!(!explains::<S>(&sequence(calls.iter().cloned())), "wrong, and accepted: {calls:?}");
    }
}

#[test]
fn checker_rejects_wrong_answers_of_an_lru() {
    use LruCall::*;
    judges::<Lru<u8>>(
        &[&[Touch(1), Touch(2), Touch(1), Evict(1, vec![2]), Contains(1, true), Len(1)]],
        &[
            &[Touch(1), Touch(2), Touch(1), Evict(1, vec![1])],
            &[Touch(1), Touch(2), Snapshot(vec![2, 1])],
            &[Touch(1), Remove(1), Contains(1, true)],
            &[Touch(1), Evict(2, vec![])],
            &[Touch(1), Len(0)],
        ],
    );
}

#[test]
fn checker_rejects_wrong_answers_of_sets() {
    use SetCall::*;
    let right: &[&[SetCall]] =
        &[&[Entered(1), Entered(2), Oldest(Some(1)), Left(1), Snapshot([2].into()), Len(1)]];
    let wrong: &[&[SetCall]] = &[
        &[Entered(1), Entered(2), Snapshot([2].into())],
        &[Entered(1), Left(1), Snapshot([1].into())],
        &[Entered(1), Entered(2), Left(1), Oldest(Some(1))],
        &[Entered(1), Oldest(None)],
        &[Entered(1), Left(1), Len(1)],
    ];
    judges::<Registry<u32>>(right, wrong);
    judges::<ActiveSet<u32>>(right, wrong);
}

#[test]
fn checker_rejects_wrong_answers_of_an_interval_registry() {
    use IntervalCall::*;
    judges::<IntervalRegistry<u32, u32>>(
        &[&[Added(1, 0..4), Overlapping(3..5, [1].into()), Overlapping(4..5, [].into()), Len(1)]],
        &[
            &[Added(1, 0..4), Overlapping(3..5, [].into())],
            &[Added(1, 0..4), Overlapping(4..5, [1].into())],
            &[Added(1, 0..4), Removed(1), Overlapping(0..9, [1].into())],
            &[Added(1, 0..4), Added(2, 0..4), Len(1)],
        ],
    );
}

#[test]
fn checker_rejects_wrong_answers_of_an_event_queue() {
    use QueueCall::*;
    judges::<EventQueue<u32>>(
        &[&[
            Sent(1),
            Sent(2),
            Sent(3),
            Received(Ok(1)),
            DrainedSome(1, vec![2]),
            Closed(true),
            Refused,
            Drained(vec![3]),
            Received(Err(RecvError::Closed)),
        ]],
        &[
            &[Sent(1), Sent(2), Received(Ok(2))],
            &[Sent(1), Received(Err(RecvError::Empty))],
            &[Sent(1), Received(Ok(1)), Received(Ok(1))],
            &[Closed(true), Sent(1)],
            &[Closed(true), Closed(true)],
            &[Refused],
            &[Received(Err(RecvError::Closed))],
            &[Sent(1), DrainedSome(2, vec![])],
            &[Sent(1), Sent(2), Drained(vec![2, 1])],
            &[Sent(1), Len(0)],
        ],
    );
}

/// Overlapping calls may come in any order; others may not.
#[test]
fn checker_lets_overlapping_calls_come_in_any_order() {
    use QueueCall::*;
    let call = |thread, from, to, done| Call { thread, from, to, done };
    let overlap =
        [call(0, 1, 4, Sent(1)), call(1, 2, 3, Sent(2)), call(2, 5, 6, Drained(vec![2, 1]))];
    assert!(explains::<EventQueue<u32>>(&overlap));
    let [first, mut second, drained] = overlap;
    (second.from, second.to) = (4, 5);
    let late = Call { from: 6, to: 7, ..drained };
    let early = Call { to: 3, ..first };
    assert!(!explains::<EventQueue<u32>>(&[early, second, late]));
}
