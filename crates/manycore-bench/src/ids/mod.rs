//! Ids that lead to nodes: looked up, given out and taken back by every thread.
//!
//! Owns: the traits that every table implements, the loops, and the table of implementations.
//!
//! Each thread keeps [`KEPT`] ids. There are four patterns, each a group. *get* looks up one of the
//! thread's own ids at random, *get-any* one of any thread's. *pair* inserts a node and removes it
//! at once. *churn* removes one of the thread's own at random and inserts another. One operation is
//! one look-up, or one removal and one insertion.

mod ours;
mod rivals;

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError},
};

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Operations between two looks at the stop flag.
const BATCH: u64 = 64;

/// Nodes of each thread.
pub const KEPT: usize = 10_000;

/// What an id leads to.
#[derive(Debug)]
pub struct Node([u64; 4]);

impl Node {
    fn new(number: u64) -> Self {
        Self([number; 4])
    }
}

/// A table of nodes by id.
pub trait Table: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: TableHandle;

    /// An empty table.
    fn new() -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self) -> Self::Handle<'_>;
}

/// One thread's way to the table.
pub trait TableHandle {
    /// Adds a node; its id.
    fn insert(&mut self, node: Node) -> u64;

    /// The first word of an id's node, if it is there.
    fn get(&mut self, id: u64) -> Option<u64>;

    /// Removes an id's node; whether it was there.
    fn remove(&mut self, id: u64) -> bool;
}

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Get,
    GetAny,
    Pair,
    Churn,
}

impl Pattern {
    const ALL: [Self; 4] = [Self::Get, Self::GetAny, Self::Pair, Self::Churn];

    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::GetAny => "get-any",
            Self::Pair => "pair",
            Self::Churn => "churn",
        }
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    pattern: Pattern,
}

struct Shared<S> {
    table: S,
    shape: Shape,
    /// The ids of each thread, for as long as it does not run.
    ids: Mutex<Vec<Vec<u64>>>,
}

impl<S: Table> Shared<S> {
    fn new(shape: Shape) -> Self {
        let table = S::new();
        let fill = |thread: u64| {
            let handle = &mut table.handle();
            let numbers = thread * KEPT as u64..(thread + 1) * KEPT as u64;
            numbers.map(|number| handle.insert(Node::new(number))).collect::<Vec<_>>()
        };
        // By threads of their own, as it would be.
        let ids = (0..shape.threads as u64).map(|thread| {
            std::thread::scope(|scope| scope.spawn(|| fill(thread)).join().expect("it fills"))
        });
        let ids = Mutex::new(ids.collect());
        Self { table, shape, ids }
    }

    fn ids_of(&self, index: usize) -> Vec<u64> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        match self.shape.pattern {
            Pattern::GetAny => ids.concat(),
            _ => ids[index].clone(),
        }
    }
}

impl<S: Table> Subject for Shared<S> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut ids = self.ids_of(index);
        let handle = &mut self.table.handle();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(index as u64 + 1);
        let mut place = |len: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as usize % len
        };
        control.drive(|| {
            for number in 0..BATCH {
                match self.shape.pattern {
                    Pattern::Get | Pattern::GetAny => {
                        black_box(handle.get(ids[place(ids.len())]));
                    }
                    Pattern::Pair => {
                        let id = handle.insert(Node::new(number));
                        handle.remove(black_box(id));
                    }
                    Pattern::Churn => {
                        let id = &mut ids[place(KEPT)];
                        handle.remove(*id);
                        *id = handle.insert(Node::new(number));
                    }
                }
            }
            BATCH
        })
    }
}

/// The table's row for an implementation.
const fn entry<S: Table>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(name, kind, about, |shape| Box::new(Shared::<S>::new(shape)), conform::<S>)
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    entry::<rivals::Unshared>(
        "unshared",
        Kind::Baseline,
        "slab: a Vec of one thread, no reuse check",
    ),
    entry::<ours::Space>("id-space", Kind::Ours, "IdSpace: a section for each call"),
    entry::<rivals::Sharded>("sharded-slab", Kind::Rival, "sharded-slab: a guard for each look-up"),
    entry::<rivals::Mutexed>("mutex", Kind::Rival, "slab behind std's Mutex"),
    entry::<rivals::RwLocked>("rwlock", Kind::Rival, "slab behind parking_lot's RwLock"),
];

const METRICS: [Metric; 2] = [
    Metric { name: "latency", unit: "ns/op", of: nanos_per_op },
    Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 },
];

/// The groups for some options: one for each thread count and pattern.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of(
        ("ids", ENTRIES, &METRICS),
        options,
        &Pattern::ALL,
        |pattern| {
            let params = [("nodes", KEPT.into()), ("pattern", pattern.name().into())];
            (format!(", {}", pattern.name()), params)
        },
        |threads, pattern| Shape { threads, pattern },
    )
}

/// An id leads to its own node until it is removed, once.
fn conform<S: Table>() -> Result<(), String> {
    let table = &S::new();
    let churn = |thread: u64| -> Result<(), String> {
        let (handle, mut own) = (&mut table.handle(), Vec::new());
        for step in 0..4_000 {
            let number = thread << 32 | step;
            own.push((handle.insert(Node::new(number)), number));
            let at = (step as usize * 7) % own.len();
            if let Some((id, number)) = own.iter().find(|(id, n)| handle.get(*id) != Some(*n)) {
                return Err(format!("{id:#x} does not lead to {number}"));
            }
            if step % 4 != 0 || own.len() > 32 {
                let (id, number) = own.swap_remove(at);
                if !handle.remove(id) {
                    return Err(format!("{id:#x}, which led to {number}, was not there"));
                }
            }
        }
        Ok(())
    };
    // (One after the other, because one of the tables is one thread's.)
    let run = |thread| std::thread::scope(|scope| scope.spawn(move || churn(thread)).join());
    (0..3).try_for_each(|thread| run(thread).map_err(|_| "a thread panicked".to_owned())?)
}
