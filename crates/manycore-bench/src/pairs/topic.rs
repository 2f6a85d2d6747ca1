//! A topic: threads subscribe and unsubscribe, and one operation of [`RENAMES`] renames it.
//!
//! Subscribers commute, names do not: the last one stays. A read looks at both at one moment.

use std::{
    collections::BTreeSet,
    hint::black_box,
    sync::{Mutex, MutexGuard, PoisonError},
};

use manycore::{
    ldu::{self, Element, Structure},
    oplog::{Deferred, Op, Ordered},
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

impl Structure<Element<u64>> for Topic {
    fn insert(&mut self, member: &Element<u64>) {
        self.subscribers.insert(**member);
    }

    fn remove(&mut self, member: &Element<u64>) {
        self.subscribers.remove(&**member);
    }
}

type Marked = ldu::Combined<Topic, Element<u64>, Rename>;

/// Subscribers by marks, names in order.
pub(super) struct Combined(Marked);

impl Pairs for Combined {
    type Handle<'a> = &'a Marked;

    fn new() -> Self {
        Self(Marked::new(Topic::default()))
    }

    fn handle(&self, _index: usize) -> &Marked {
        &self.0
    }
}

impl Handle for &Marked {
    #[inline]
    fn pair(&mut self, random: u64) {
        let subscriber = self.add(random);
        if renames(random) {
            self.append(Rename(random));
        }
        drop(subscriber);
    }

    fn read(&mut self) -> u64 {
        Marked::read(self).digest()
    }
}
