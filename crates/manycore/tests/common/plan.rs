//! Random programs of a few threads on a few objects, and how one thread runs its part.

use super::history::{Done, Event, State, Update};
use super::kinds::{Add, Push, Toggle};
use super::manycore::oplog::{Deferred, Log};
use super::rng::Rng;

/// An object under test.
pub trait Shared<S, U>: Send + Sync {
    fn update(&self, update: U);
    fn read(&self) -> S;
    /// Something that must not show. Returns what it happened to see.
    fn disturb(&self, _how: Disturb) -> Option<S> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturb {
    Promote,
    Demote,
    Synchronize,
    TryRead,
}

impl<S: State, U: Update<S>, L: Log<S, Op = U>> Shared<S, U> for Deferred<S, L> {
    fn update(&self, update: U) {
        self.append(update);
    }

    fn read(&self) -> S {
        Deferred::read(self).clone()
    }

    fn disturb(&self, how: Disturb) -> Option<S> {
        match how {
            Disturb::Promote => {
                self.promote();
            }
            Disturb::Demote => self.demote(),
            Disturb::Synchronize => self.synchronize(),
            Disturb::TryRead => return self.try_read().ok().map(|guard| guard.clone()),
        }
        None
    }
}

#[derive(Debug, Clone)]
pub enum Step<U> {
    Update {
        object: usize,
        update: U,
    },
    Read {
        object: usize,
    },
    Disturb {
        object: usize,
        how: Disturb,
    },
    /// Tells other threads that everything up to here is done.
    Raise(usize),
    /// Waits until another thread has raised this flag.
    Await(usize),
}

/// A program: the steps of each thread, each after a pause of the given number of units.
#[derive(Debug, Clone)]
pub struct Plan<U> {
    pub threads: Vec<Vec<(u16, Step<U>)>>,
    pub flags: usize,
    pub objects: usize,
}

/// Generates updates that keep the contract of a kind of log.
pub trait Script: Default {
    type Update: Clone;
    /// The next update of this thread on this object.
    fn next(&mut self, thread: usize, object: usize, rng: &mut Rng) -> Self::Update;
    /// Returns two updates. Another thread makes the second after the first is done.
    fn handover(&mut self, object: usize) -> (Self::Update, Self::Update);
}

#[derive(Debug, Default)]
pub struct Pushes(u8);

impl Script for Pushes {
    type Update = Push;
    fn next(&mut self, _: usize, _: usize, _: &mut Rng) -> Push {
        self.0 += 1;
        Push(self.0)
    }
    fn handover(&mut self, _: usize) -> (Push, Push) {
        self.0 += 2;
        (Push(self.0 - 1), Push(self.0))
    }
}

#[derive(Debug, Default)]
pub struct Adds(u32);

impl Script for Adds {
    type Update = Add;
    fn next(&mut self, _: usize, _: usize, _: &mut Rng) -> Add {
        self.0 += 1;
        Add(1 << self.0)
    }
    fn handover(&mut self, _: usize) -> (Add, Add) {
        self.0 += 2;
        (Add(1 << (self.0 - 1)), Add(1 << self.0))
    }
}

/// A script in which inserts and removes of one element alternate. Each thread has two elements of
/// its own, and a handover has one.
#[derive(Debug, Default)]
pub struct Toggles {
    present: [bool; 32],
    handed_over: u8,
}

impl Script for Toggles {
    type Update = Toggle;
    fn next(&mut self, thread: usize, object: usize, rng: &mut Rng) -> Toggle {
        let key = thread * 4 + object * 2 + rng.below(2);
        self.present[key] = !self.present[key];
        Toggle { key: key as u8, insert: self.present[key] }
    }
    fn handover(&mut self, _: usize) -> (Toggle, Toggle) {
        self.handed_over += 1;
        let key = 100 + self.handed_over;
        (Toggle { key, insert: true }, Toggle { key, insert: false })
    }
}

/// How large plans are.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub threads: usize,
    pub steps: usize,
    pub objects: usize,
}

impl<U: Clone> Plan<U> {
    pub fn random<P: Script<Update = U>>(size: Size, rng: &mut Rng) -> Self {
        let mut script = P::default();
        let mut plan = Self { threads: Vec::new(), flags: 0, objects: size.objects };
        for thread in 0..size.threads {
            let steps = (0..size.steps).map(|_| {
                let object = rng.below(size.objects);
                let step = match rng.below(20) {
                    0..10 => Step::Update { object, update: script.next(thread, object, rng) },
                    10..18 => Step::Read { object },
                    _ => Step::Disturb { object, how: *rng.pick(DISTURBANCES) },
                };
                (pause(rng), step)
            });
            plan.threads.push(steps.collect());
        }
        for _ in 0..rng.below(3).min(size.threads - 1) {
            plan.add_handover(&mut script, rng);
        }
        plan
    }

    /// "A is done, a flag, then B by another thread." Only later threads wait for earlier ones, so
    /// no thread waits forever.
    fn add_handover<P: Script<Update = U>>(&mut self, script: &mut P, rng: &mut Rng) {
        let later = 1 + rng.below(self.threads.len() - 1);
        let earlier = rng.below(later);
        let object = rng.below(self.objects);
        let (first, second) = script.handover(object);
        let flag = self.flags;
        self.flags += 1;
        let raise =
            vec![(pause(rng), Step::Update { object, update: first }), (0, Step::Raise(flag))];
        let wait = vec![(0, Step::Await(flag)), (0, Step::Update { object, update: second })];
        for (thread, steps) in [(earlier, raise), (later, wait)] {
            let place = rng.below(self.threads[thread].len() + 1);
            self.threads[thread].splice(place..place, steps);
        }
    }
}

const DISTURBANCES: &[Disturb] =
    &[Disturb::Promote, Disturb::Demote, Disturb::Synchronize, Disturb::TryRead];

/// Returns a pause: mostly none, sometimes about as long as an update, rarely as long as a read.
fn pause(rng: &mut Rng) -> u16 {
    match rng.below(8) {
        0..4 => 0,
        4..7 => rng.below(4) as u16,
        _ => rng.below(40) as u16,
    }
}

/// The functions that a thread needs from the machine, or from a model checker in its place.
pub trait Machine {
    /// A moment before the operation that is about to be called.
    fn call(&self) -> u64;
    /// A moment after the operation that has returned.
    fn ret(&self) -> u64;
    fn pause(&self, units: u16);
    fn raise(&self, flag: usize);
    fn wait(&self, flag: usize);
}

/// Runs one thread's part and returns what happened.
pub fn run<S, U: Clone, O: Shared<S, U>>(
    machine: &impl Machine,
    thread: usize,
    steps: &[(u16, Step<U>)],
    objects: &[O],
) -> Vec<Event<S, U>> {
    let mut events: Vec<Event<S, U>> = Vec::with_capacity(steps.len());
    for (units, step) in steps {
        machine.pause(*units);
        let mut call = machine.call();
        while events.last().is_some_and(|last| call <= last.ret) {
            call = machine.call();
        }
        let (object, done) = match step {
            Step::Update { object, update } => {
                objects[*object].update(update.clone());
                (*object, Some(Done::Updated(update.clone())))
            }
            Step::Read { object } => (*object, Some(Done::Saw(objects[*object].read()))),
            Step::Disturb { object, how } => {
                (*object, objects[*object].disturb(*how).map(Done::Saw))
            }
            Step::Raise(flag) => {
                machine.raise(*flag);
                continue;
            }
            Step::Await(flag) => {
                machine.wait(*flag);
                continue;
            }
        };
        let mut ret = machine.ret();
        while ret <= call {
            ret = machine.ret();
        }
        if let Some(done) = done {
            events.push(Event { object, thread, call, ret, done });
        }
    }
    events
}
