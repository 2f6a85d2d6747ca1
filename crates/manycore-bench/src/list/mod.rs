//! The list of OpLog, section 7.3: each thread adds an element of its own to one shared list,
//! spins, removes it, and spins. One such pair is one operation.
//!
//! Owns: the traits that every list implements, the loop, and the table of implementations.
//!
//! Every thread cycles through [`OWN_ELEMENTS`] elements that no other thread uses. With
//! `--read-every k`, a thread reads after every k of its own pairs. A read walks the whole list and
//! folds every element that it finds into a digest. It must include every update that was complete
//! when the read began, the reader's own among them. Where a rival's walk promises less than that,
//! its description says so.

mod absorbing;
mod conform;
mod element_list;
pub(crate) mod harris;
mod locks;
mod marks;
mod ours;
mod paper;
mod queues;
mod replicated;
mod sets;

use std::hint::black_box;

pub use element_list::{Element, ElementList, ListOp};

use self::ours::DeferredList;
use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    ticks::spin,
    workload::{Entry, Options, ReadEvery, Shape, UnknownImpl, groups_by_reads},
};

/// How many elements a thread cycles through.
pub const OWN_ELEMENTS: u32 = 16;

/// Pairs between two looks at the stop flag.
const BATCH: u64 = 16;

/// A shared list of elements.
pub trait ListImpl: Sync + Sized + 'static {
    /// What one thread works through.
    type Handle<'a>: ListHandle;

    /// An empty list for this many threads.
    fn new(threads: usize) -> Self;

    /// The handle of a thread, made by that thread.
    fn handle(&self, thread: usize) -> Self::Handle<'_>;
}

/// One thread's way to the list.
pub trait ListHandle {
    /// Adds an element that is not in the list.
    fn add(&mut self, element: Element);

    /// Removes an element that is in the list.
    fn remove(&mut self, element: Element);

    /// Calls `f` with every element.
    fn for_each(&mut self, f: impl FnMut(Element) + Send);

    /// Walks the whole list and folds what it sees: the read of the workload.
    fn read(&mut self) -> u64 {
        let mut digest = 0;
        self.for_each(|element| digest = fold(digest, element));
        digest
    }
}

/// One step of a read: depends on the element and counts it; the order does not matter.
#[inline(always)]
fn fold(digest: u64, element: Element) -> u64 {
    digest.wrapping_add((1 << 32) | u64::from(element))
}

struct ListSubject<L> {
    list: L,
    shape: Shape,
}

impl<L: ListImpl> Subject for ListSubject<L> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let Shape { read_every, spin: ticks, .. } = self.shape;
        let mut handle = self.list.handle(index);
        let (first, mut turn) = (first_element(index), 0);
        let mut until_read = read_every.countdown();
        control.drive(|| {
            for _ in 0..BATCH {
                let element = black_box(first + turn % OWN_ELEMENTS);
                turn = turn.wrapping_add(1);
                handle.add(element);
                spin(ticks);
                handle.remove(element);
                spin(ticks);
                until_read -= 1;
                if until_read == 0 {
                    black_box(handle.read());
                    until_read = read_every.countdown();
                }
            }
            BATCH
        })
    }
}

fn first_element(thread: usize) -> Element {
    u32::try_from(thread).expect("a thread count fits 28 bits") * OWN_ELEMENTS
}

/// The table's row for an implementation.
const fn entry<L: ListImpl>(name: &'static str, kind: Kind, about: &'static str) -> Entry<Shape> {
    Entry::new(
        name,
        kind,
        about,
        |shape| Box::new(ListSubject { list: L::new(shape.threads), shape }),
        || conform::run::<L>(3),
    )
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        conform: || conform::run::<locks::Unshared>(1),
        ..entry::<locks::Unshared>(
            "unshared",
            Kind::Baseline,
            "the plain sequential list, owned by one thread",
        )
    },
    Entry {
        conform: || Ok(()),
        ..entry::<locks::SpinsOnly>(
            "spins-only",
            Kind::Floor,
            "no list at all: what the loop and its spins allow",
        )
    },
    entry::<locks::StdMutex>("mutex", Kind::Rival, "std Mutex around the sequential list"),
    entry::<locks::ParkingLot>(
        "parking_lot",
        Kind::Rival,
        "parking_lot Mutex around the sequential list",
    ),
    entry::<locks::FlatCombining>(
        "lamlock",
        Kind::Rival,
        "flat-combining lock (lamlock) around the sequential list",
    ),
    entry::<locks::HandSharded>(
        "hand-sharded",
        Kind::ByHand,
        "one padded Mutex and list per thread, by hand; a read locks all of them",
    ),
    Entry {
        threads_max: replicated::NODE_REPLICATION_THREADS_MAX,
        ..entry::<replicated::NodeReplication>(
            "node-replication",
            Kind::Rival,
            "one replica of node-replication; up to 256 threads; known to stall for 0.4 s at times",
        )
    },
    entry::<replicated::LeftRight>(
        "left-right",
        Kind::Rival,
        "left-right, its writer behind a Mutex; published on each read and when long",
    ),
    entry::<queues::ConcurrentQueueList>(
        "concurrent-queue",
        Kind::Rival,
        "concurrent-queue of updates, applied on each read and when long",
    ),
    entry::<queues::SegQueueList>(
        "segqueue",
        Kind::Rival,
        "crossbeam SegQueue of updates, applied on each read and when long",
    ),
    entry::<sets::Scc>("scc", Kind::Rival, "scc HashSet; a read is no snapshot"),
    entry::<sets::Papaya>("papaya", Kind::Rival, "papaya HashSet; a read is no snapshot"),
    entry::<sets::SkipList>(
        "skiplist",
        Kind::Rival,
        "crossbeam SkipSet (lock-free); a read is no snapshot",
    ),
    entry::<harris::HarrisList<true>>(
        "harris",
        Kind::Rival,
        "the lock-free list of Harris and Michael on crossbeam-epoch; a read is no snapshot",
    ),
    entry::<paper::PaperList<false>>(
        "paper-basic",
        Kind::ByHand,
        "as OpLog's authors describe it: a chain, and logs of 512 merged by a heap",
    ),
    entry::<paper::PaperList<true>>(
        "paper-global",
        Kind::ByHand,
        "the same, with absorption at the merge by a flag in the element",
    ),
    entry::<DeferredList<ours::Basic>>(
        "oplog-basic",
        Kind::Ours,
        "deferred, every update stamped: the paper's basic form",
    ),
    entry::<DeferredList<ours::Global>>(
        "oplog-global",
        Kind::Ours,
        "deferred, stamped, absorption at the merge: the paper's global absorption",
    ),
    entry::<DeferredList<ours::Local>>(
        "oplog-local",
        Kind::Ours,
        "deferred, absorption at append: the paper's local absorption",
    ),
    entry::<DeferredList<ours::LocalLocked>>(
        "oplog-local-locked",
        Kind::Ours,
        "the same, one locked instruction for each update",
    ),
    entry::<DeferredList<ours::LocalBiased>>(
        "oplog-local-biased",
        Kind::Ours,
        "the same, plain stores; each read waits for the updaters or calls membarrier",
    ),
    entry::<DeferredList<ours::LocalFlat>>(
        "oplog-local-flat",
        Kind::Ours,
        "oplog-local; a read fetches each thread's log by itself",
    ),
    entry::<DeferredList<ours::LocalTree>>(
        "oplog-local-tree",
        Kind::Ours,
        "oplog-local; the threads that wait for a read collect near them (OpLog, section 8)",
    ),
    entry::<DeferredList<ours::Auto>>(
        "oplog-auto",
        Kind::Ours,
        "absorption at append, all defaults: a plain locked list until logs pay",
    ),
    entry::<marks::MarkedList<false>>(
        "ldu-per-thread",
        Kind::Ours,
        "marks on the elements, a queue for each thread: LDU",
    ),
    entry::<marks::MarkedList<true>>(
        "ldu-global",
        Kind::Ours,
        "marks on the elements, one queue for all",
    ),
];

const METRIC: Metric =
    Metric { name: "throughput", unit: "pairs/ms", of: |tallies| total_rate(tallies) / 1e3 };

/// The groups for some options: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("list", ENTRIES, METRIC, options, |read_every| reads_word(read_every, "pairs"))
}

/// "no reads", "a read every 100 pairs".
pub(crate) fn reads_word(read_every: ReadEvery, updates: &str) -> String {
    match read_every {
        ReadEvery::Never => "no reads".to_owned(),
        ReadEvery::Updates(count) => format!("a read every {count} {updates}"),
    }
}
