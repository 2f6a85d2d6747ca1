//! Collections that compare nothing, but call other user code: closures, `Clone`, `Drop`, a
//! structure.

use super::liar::{Ledger, Soul, Subject, attempt, lies, panics};
use crate::common::rng::Rng;
use manycore::collections::{Entry, ObjectPool, Registry, Timer, TimerQueue};
use manycore::ldu::{Attached, DeferredSet, Element, Queue, Structure};
use manycore::namespace::{Id, IdSpace};
use manycore::section::Domain;
use std::sync::Arc;

struct Entries(Registry<Soul>);

impl Subject for Entries {
    const FORMS: usize = 2;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        let builder = Registry::builder();
        let builder = if form == 0 { builder } else { builder.marks(Queue::PerThread) };
        Self(builder.build().expect("settings that can work"))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut held: Vec<Entry<'_, Soul>> = Vec::new();
        for _ in 0..steps {
            match rng.below(6) {
                0..=2 => held.push(self.0.register(Soul::new(ledger))),
                3 if !held.is_empty() => drop(held.swap_remove(rng.below(held.len()))),
                4 => _ = attempt(|| self.0.snapshot()),
                _ => {
                    let look = |value: &Soul| (value.look(), ledger.call()).0;
                    attempt(|| self.0.for_each(look));
                }
            }
            held.iter().for_each(|entry| entry.look());
        }
    }

    fn check(self, _: &Arc<Ledger>) {
        assert_eq!(self.0.len(), 0);
    }
}

#[test]
fn registry_among_liars() {
    lies::<Entries>("Registry");
}

#[test]
fn registry_and_panics_at_every_call() {
    panics::<Entries>("Registry");
}

struct Timers(TimerQueue<Soul>);

impl Subject for Timers {
    const FORMS: usize = 1;

    fn new(_: usize, _: &Arc<Ledger>) -> Self {
        Self(TimerQueue::new())
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut held: Vec<Timer<'_, Soul>> = Vec::new();
        for _ in 0..steps {
            match rng.below(6) {
                0..=2 => held.push(self.0.insert(rng.below(1000) as u64, Soul::new(ledger))),
                3 if !held.is_empty() => {
                    let timer = held.swap_remove(rng.below(held.len()));
                    if rng.once_in(2) {
                        timer.detach();
                    } else if let Some(value) = timer.cancel() {
                        value.look();
                    }
                }
                4 => self.0.advance(rng.below(1000) as u64).iter().for_each(|(_, v)| v.look()),
                _ => _ = self.0.next_deadline(),
            }
        }
    }
}

#[test]
fn timers_are_dropped_once() {
    lies::<Timers>("TimerQueue");
}

struct Pool(ObjectPool<Soul>);

impl Subject for Pool {
    const FORMS: usize = 1;

    fn new(_: usize, ledger: &Arc<Ledger>) -> Self {
        let own = Arc::clone(ledger);
        let make = move || {
            own.call();
            Soul::new(&own)
        };
        Self(ObjectPool::new(8, make))
    }

    fn run(&self, _: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut held = Vec::new();
        for _ in 0..steps {
            match rng.below(6) {
                0..=2 => held.extend(attempt(|| self.0.take()).flatten()),
                3 if !held.is_empty() => drop(held.swap_remove(rng.below(held.len()))),
                4 if !held.is_empty() => drop(held.swap_remove(0).detach()),
                _ if rng.once_in(5) => _ = self.0.shrink(),
                _ => {}
            }
            held.iter().for_each(|thing| thing.look());
        }
    }

    fn check(self, ledger: &Arc<Ledger>) {
        let (created, idle) = (self.0.created(), self.0.idle());
        assert_eq!((created, ledger.living()), (idle, idle as i64), "all are back, or have gone");
    }
}

#[test]
fn object_pool_among_liars() {
    lies::<Pool>("ObjectPool");
}

#[test]
fn object_pool_and_panics_at_every_call() {
    panics::<Pool>("ObjectPool");
}

struct Ids(Domain);

impl Subject for Ids {
    const FORMS: usize = 1;

    fn new(_: usize, _: &Arc<Ledger>) -> Self {
        Self(Domain::new())
    }

    /// Each thread in a space of its own: the space borrows its domain.
    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let space: IdSpace<'_, Soul> = IdSpace::new_in(&self.0);
        let mut ids: Vec<Id> = Vec::new();
        for _ in 0..steps {
            let section = self.0.enter();
            let make = |_| {
                ledger.call();
                Soul::new(ledger)
            };
            match rng.below(6) {
                0..=2 => ids.extend(attempt(|| space.insert_with(make, &section))),
                3 if !ids.is_empty() => {
                    let id = ids.swap_remove(rng.below(ids.len()));
                    space.remove(id, &section).expect("removed once").look();
                    assert!(space.get(id, &section).is_none());
                }
                _ => ids.iter().for_each(|id| space.get(*id, &section).expect("there").look()),
            }
            assert_eq!(space.len(), ids.len());
        }
    }
}

#[test]
fn id_space_and_panics_at_every_call() {
    panics::<Ids>("IdSpace");
}

/// A structure that counts its members, and may panic when told of one.
#[derive(Default)]
struct Members(i64);

impl Structure<Element<Soul>> for Members {
    fn insert(&mut self, member: &Element<Soul>) {
        member.look();
        self.0 += 1;
        member.ledger.call();
    }

    fn remove(&mut self, member: &Element<Soul>) {
        member.look();
        self.0 -= 1;
        member.ledger.call();
    }
}

struct Set(DeferredSet<Members, Element<Soul>>);

impl Set {
    fn read(&self) -> Option<i64> {
        let seen = attempt(|| self.0.read_poisoned().0);
        self.0.clear_poison();
        seen
    }
}

impl Subject for Set {
    const FORMS: usize = 2;

    fn new(form: usize, _: &Arc<Ledger>) -> Self {
        let queue = if form == 0 { Queue::PerThread } else { Queue::Global };
        let builder = DeferredSet::builder().queue(queue).max_queued(16);
        Self(builder.build(Members::default()).expect("settings that can work"))
    }

    fn run(&self, ledger: &Arc<Ledger>, rng: &mut Rng, steps: usize) {
        let mut held: Vec<Attached<'_, Members, Element<Soul>>> = Vec::new();
        for _ in 0..steps {
            match rng.below(5) {
                0..=2 => held.extend(attempt(|| self.0.add(Soul::new(ledger)))),
                3 if !held.is_empty() => {
                    let member = held.swap_remove(rng.below(held.len()));
                    attempt(|| drop(member));
                }
                _ => _ = self.read(),
            }
            held.iter().for_each(|member| member.look());
        }
        held.into_iter().for_each(|member| _ = attempt(|| drop(member)));
    }

    fn check(self, _: &Arc<Ledger>) {
        self.read();
        // A change that panics counts as made.
        assert_eq!(self.read(), Some(0), "the structure was told of every change once");
    }
}

#[test]
fn set_with_marks_among_liars() {
    lies::<Set>("DeferredSet");
}

#[test]
fn set_with_marks_and_panics_at_every_call() {
    panics::<Set>("DeferredSet");
}
