//! A topic: threads subscribe and unsubscribe, and one operation in [`RENAMES`] renames it.
//!
//! Subscriptions commute, names do not: the last one stays. A read returns both as they are at one
//! moment.

use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::{Mutex, MutexGuard, PoisonError},
};

use manycore::{
    clock::{Clock, Stamp},
    oplog::{Cancel, Cancelling, Deferred, Log, Op, Ordered},
};

use super::{Handle, Pairs};

/// One operation of so many renames the topic.
const RENAMES: u64 = 16;

/// What reads see.
#[derive(Default)]
pub(super) struct Topic {
    subscribers: BTreeSet<u64>,
    name: u64,
}

impl Topic {
    fn digest(&self) -> u64 {
        self.name.wrapping_add(self.subscribers.len() as u64)
    }
}

fn renames(random: u64) -> bool {
    random.is_multiple_of(RENAMES)
}

/// What a read says after so many pairs of a conformance test: the last name.
pub(super) fn last_name(pairs: u64) -> u64 {
    (1..=pairs).rev().map(super::test_value).find(|value| renames(*value)).unwrap_or(0)
}

/// The baseline: locked once by the only thread that uses it.
pub(super) struct Unshared(Mutex<Topic>);

/// One lock for all.
pub(super) struct Mutexed(Mutex<Topic>);

fn locked(topic: &Mutex<Topic>) -> MutexGuard<'_, Topic> {
    topic.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pairs for Unshared {
    type Handle<'a> = MutexGuard<'a, Topic>;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> MutexGuard<'_, Topic> {
        locked(&self.0)
    }
}

impl Handle for MutexGuard<'_, Topic> {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.subscribers.insert(random);
        if renames(random) {
            self.name = random;
        }
        self.subscribers.remove(&black_box(random));
    }

    fn read(&mut self) -> u64 {
        self.digest()
    }
}

impl Pairs for Mutexed {
    type Handle<'a> = &'a Self;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> &Self {
        self
    }
}

impl Handle for &Mutexed {
    #[inline]
    fn pair(&mut self, random: u64) {
        locked(&self.0).subscribers.insert(random);
        if renames(random) {
            locked(&self.0).name = random;
        }
        locked(&self.0).subscribers.remove(&black_box(random));
    }

    fn read(&mut self) -> u64 {
        locked(&self.0).digest()
    }
}

/// Every update in a log, with its stamp.
pub(super) enum Update {
    Subscribe(u64),
    Unsubscribe(u64),
    Rename(Rename),
}

impl Op<Topic> for Update {
    fn apply(self, topic: &mut Topic) {
        match self {
            Self::Subscribe(id) => drop(topic.subscribers.insert(id)),
            Self::Unsubscribe(id) => drop(topic.subscribers.remove(&id)),
            Self::Rename(rename) => rename.apply(topic),
        }
    }
}

/// The new name.
pub(super) struct Rename(u64);

impl Op<Topic> for Rename {
    fn apply(self, topic: &mut Topic) {
        topic.name = self.0;
    }
}

type Logged = Deferred<Topic, Ordered<Update>>;

/// Every update deferred, in order.
pub(super) struct Stamped(Logged);

impl Pairs for Stamped {
    type Handle<'a> = &'a Logged;

    fn new() -> Self {
        Self(Deferred::new(Topic::default()))
    }

    fn handle(&self, _index: usize) -> &Logged {
        &self.0
    }
}

impl Handle for &Logged {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.append(Update::Subscribe(random));
        if renames(random) {
            self.append(Update::Rename(Rename(random)));
        }
        self.append(Update::Unsubscribe(random));
    }

    fn read(&mut self) -> u64 {
        Deferred::read(self).digest()
    }
}

/// A subscription, which cancels, or the new name, in its order.
pub(super) enum Either {
    Subscriber(Subscriber),
    Name(Stamp, Rename),
}

/// A subscriber comes or goes.
pub(super) struct Subscriber {
    id: u64,
    comes: bool,
}

impl Op<Topic> for Subscriber {
    fn apply(self, topic: &mut Topic) {
        if self.comes {
            topic.subscribers.insert(self.id);
        } else {
            topic.subscribers.remove(&self.id);
        }
    }
}

impl Cancel for Subscriber {
    type Key = u64;

    fn key(&self) -> u64 {
        self.id
    }

    fn inserts(&self) -> bool {
        self.comes
    }
}

/// A part for each kind, as in the library's example `room`.
#[derive(Default)]
pub(super) struct TwoKinds {
    subscribers: Cancelling<Subscriber>,
    names: Ordered<Rename>,
}

impl Log<Topic> for TwoKinds {
    type Op = Either;
    const ORDERED: bool = false;

    fn apply(update: Either, topic: &mut Topic) {
        match update {
            Either::Subscriber(update) => update.apply(topic),
            Either::Name(_, update) => update.apply(topic),
        }
    }

    #[inline]
    fn push(&mut self, update: Either, unused: Stamp) {
        match update {
            Either::Subscriber(update) => {
                Log::<Topic>::push(&mut self.subscribers, update, unused);
            }
            Either::Name(stamp, update) => self.names.add(update, stamp),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        Log::<Topic>::len(&self.subscribers) + Log::<Topic>::len(&self.names)
    }

    fn merge(logs: &mut [Self], topic: &mut Topic) -> usize {
        let taken = logs.iter_mut().map(std::mem::take).map(|log| (log.subscribers, log.names));
        let (mut subscribers, mut names): (Vec<_>, Vec<_>) = taken.unzip();
        Log::merge(&mut subscribers, topic) + Log::merge(&mut names, topic)
    }
}

type Mixed = Deferred<Topic, TwoKinds>;

/// Subscribers cancel in the log, names keep their order.
pub(super) struct Combined(Mixed);

impl Pairs for Combined {
    type Handle<'a> = &'a Mixed;

    fn new() -> Self {
        Self(Mixed::new(Topic::default()))
    }

    fn handle(&self, _index: usize) -> &Mixed {
        &self.0
    }
}

impl Handle for &Mixed {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.append(Either::Subscriber(Subscriber { id: random, comes: true }));
        if renames(random) {
            let clock = Clock::system();
            let stamp = clock.stamp();
            self.append(Either::Name(stamp, Rename(random)));
            clock.commit_wait(stamp);
        }
        self.append(Either::Subscriber(Subscriber { id: black_box(random), comes: false }));
    }

    fn read(&mut self) -> u64 {
        Deferred::read(self).digest()
    }
}
