//! Memory for nodes of 64 bytes, which every thread allocates and frees all the time.
//!
//! Owns: the traits that every allocator implements, the loops, and the table of implementations.
//!
//! There are four patterns, each a group. *pair* frees what it has just allocated. *bulk* allocates
//! 10,000 nodes and then frees them all. *churn* keeps 10,000 nodes and replaces one at random.
//! *handoff* allocates 64 nodes, writes them, and leaves them to the next thread, which frees them.
//! One operation is one allocation and one free. Allocators are called as a program with 64-byte
//! nodes would call them, not as the global allocator.
//!
//! The library's slab is slower in two cases (two cores of a Xeon, November 2026). In *bulk* it
//! takes 1.0 to 1.2 times the time of mimalloc: what exceeds 64 KiB at hand goes back to its chunk,
//! and comes from there again. In *handoff* on two threads it takes 1.5 times the time of jemalloc,
//! which keeps what it frees instead of sending it home.

mod ours;
mod rivals;

use std::{
    hint::black_box,
    mem,
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use crossbeam_utils::CachePadded;

use crate::{
    counter::nanos_per_op,
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, groups_of},
};

/// Operations between two looks at the stop flag.
const BATCH: usize = 64;

/// Nodes that a thread has at a time in the patterns *bulk* and *churn*.
const KEPT: usize = 10_000;

/// What is allocated.
#[derive(Debug)]
pub struct Node([u64; 8]);

/// A node's memory, on its way to another thread.
#[derive(Debug)]
struct Sent(NonNull<Node>);

// SAFETY: plain memory, which one thread has at a time.
unsafe impl Send for Sent {}

/// A source of memory.
pub trait Source: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: SourceHandle;

    /// A source without memory yet.
    fn new() -> Self;

    /// The handle of a thread, made by that thread; one at a time.
    fn handle(&self) -> Self::Handle<'_>;
}

/// One thread's way to the memory.
pub trait SourceHandle {
    /// Memory for a node.
    fn alloc(&mut self) -> NonNull<Node>;

    /// Takes it back.
    ///
    /// # Safety
    /// `node` comes from `alloc` of a handle of the same source, and it is not used any more.
    unsafe fn free(&mut self, node: NonNull<Node>);
}

/// What threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Pair,
    Bulk,
    Churn,
    Handoff,
}

impl Pattern {
    const ALL: [Self; 4] = [Self::Pair, Self::Bulk, Self::Churn, Self::Handoff];

    fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Bulk => "bulk",
            Self::Churn => "churn",
            Self::Handoff => "handoff",
        }
    }
}

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    pattern: Pattern,
}

struct SlabSubject<S: Source> {
    source: S,
    shape: Shape,
    /// What each thread is to free next.
    mail: Vec<CachePadded<Mutex<Vec<Sent>>>>,
}

impl<S: Source> SlabSubject<S> {
    fn new(shape: Shape) -> Self {
        let mail = (0..shape.threads).map(|_| CachePadded::default()).collect();
        Self { source: S::new(), shape, mail }
    }

    /// Leaves `nodes` to a thread, and takes what was there.
    fn swap_mail(&self, thread: usize, nodes: &mut Vec<Sent>) {
        let mail = &self.mail[thread % self.mail.len()];
        mem::swap(&mut *mail.lock().unwrap_or_else(PoisonError::into_inner), nodes);
    }
}

/// Memory for a node, written.
fn made(handle: &mut impl SourceHandle, number: u64) -> NonNull<Node> {
    let node = handle.alloc();
    // SAFETY: fresh memory for a node.
    unsafe { node.write(black_box(Node([number; 8]))) };
    node
}

fn free_all(handle: &mut impl SourceHandle, nodes: &mut Vec<Sent>) {
    for Sent(node) in nodes.drain(..) {
        // SAFETY: allocated from the same source, and taken out of where it was.
        unsafe { handle.free(node) };
    }
}

fn pairs(handle: &mut impl SourceHandle, control: &Control) -> Tally {
    let mut number = 0;
    control.drive(|| {
        for _ in 0..BATCH {
            number += 1;
            let node = made(handle, number);
            // SAFETY: allocated just now.
            unsafe { handle.free(black_box(node)) };
        }
        BATCH as u64
    })
}

fn bulk(handle: &mut impl SourceHandle, control: &Control) -> Tally {
    let mut nodes = Vec::with_capacity(KEPT);
    control.drive(|| {
        nodes.extend((0..KEPT as u64).map(|number| Sent(made(handle, number))));
        free_all(handle, &mut nodes);
        KEPT as u64
    })
}

fn churn(handle: &mut impl SourceHandle, control: &Control) -> Tally {
    let mut kept: Vec<_> = (0..KEPT as u64).map(|number| Sent(made(handle, number))).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let tally = control.drive(|| {
        for _ in 0..BATCH {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = &mut kept[random as usize % KEPT];
            // SAFETY: allocated above or below, and replaced at once.
            unsafe { handle.free(place.0) };
            place.0 = made(handle, random);
        }
        BATCH as u64
    });
    free_all(handle, &mut kept);
    tally
}

impl<S: Source> Subject for SlabSubject<S> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let handle = &mut self.source.handle();
        match self.shape.pattern {
            Pattern::Pair => pairs(handle, control),
            Pattern::Bulk => bulk(handle, control),
            Pattern::Churn => churn(handle, control),
            Pattern::Handoff => {
                let mut nodes = Vec::with_capacity(BATCH);
                control.drive(|| {
                    nodes.extend((0..BATCH as u64).map(|number| Sent(made(handle, number))));
                    self.swap_mail(index + 1, &mut nodes);
                    // If the next thread is behind, these are this thread's own.
                    free_all(handle, &mut nodes);
                    self.swap_mail(index, &mut nodes);
                    free_all(handle, &mut nodes);
                    BATCH as u64
                })
            }
        }
    }
}

impl<S: Source> Drop for SlabSubject<S> {
    fn drop(&mut self) {
        let mut nodes = Vec::new();
        for thread in 0..self.mail.len() {
            self.swap_mail(thread, &mut nodes);
            free_all(&mut self.source.handle(), &mut nodes);
        }
    }
}

/// The table's row for an implementation.
const fn entry<S: Source>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(name, kind, about, |shape| Box::new(SlabSubject::<S>::new(shape)), conform::<S>)
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    entry::<rivals::Unshared>("unshared", Kind::Baseline, "a list of boxes of one thread"),
    entry::<rivals::SystemMalloc>("malloc", Kind::Rival, "the allocator of the C library"),
    #[cfg(feature = "allocators")]
    entry::<rivals::MiMalloc>("mimalloc", Kind::Rival, "mimalloc: mi_malloc and mi_free"),
    #[cfg(feature = "allocators")]
    entry::<rivals::Jemalloc>("jemalloc", Kind::Rival, "jemalloc: malloc and sdallocx"),
    entry::<ours::Raw>("slab", Kind::Ours, "Slab: alloc_raw and free_raw"),
    entry::<ours::Boxed>("slab-box", Kind::Ours, "SlabBox: safe, made with its value and dropped"),
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
        ("slab", ENTRIES, &METRICS),
        options,
        &Pattern::ALL,
        |pattern| (format!(", {}", pattern.name()), [("pattern", pattern.name().into())]),
        |threads, pattern| Shape { threads, pattern },
    )
}

/// A node is not handed out twice before it is freed, on whichever thread.
fn conform<S: Source>() -> Result<(), String> {
    const NODES: u64 = 5_000;
    let source = S::new();
    let make = |thread: u64| {
        let handle = &mut source.handle();
        let numbers = thread * NODES..(thread + 1) * NODES;
        numbers.map(|number| Sent(made(handle, number))).collect::<Vec<_>>()
    };
    let check = |nodes: &[Sent], thread: u64| {
        let numbers = thread * NODES..(thread + 1) * NODES;
        nodes.iter().zip(numbers).all(|(node, number)| {
            // SAFETY: a live node, written by `made`.
            unsafe { node.0.as_ref() }.0 == [number; 8]
        })
    };
    let (mut own, mut others) = (make(0), Vec::new());
    for round in 1..4 {
        let made = std::thread::scope(|scope| scope.spawn(|| make(round)).join());
        let mut made = made.map_err(|_| "a thread panicked".to_owned())?;
        if !check(&own, 0) || !check(&made, round) {
            return Err(format!("a node was overwritten in round {round}"));
        }
        others.append(&mut made);
        free_all(&mut source.handle(), &mut others);
    }
    free_all(&mut source.handle(), &mut own);
    Ok(())
}
