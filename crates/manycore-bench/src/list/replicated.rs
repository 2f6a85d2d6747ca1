//! Rivals that keep copies of the sequential list, and a log of updates between the copies.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use left_right::{Absorb, ReadHandle, ReadHandleFactory, WriteHandle};
use node_replication::{Dispatch, Log, Replica, ReplicaToken};

use super::{Element, ElementList, ListHandle, ListImpl, ListOp, fold, locks::sequential};

/// Updates of one thread between two publications, without reads. left-right keeps every update
/// until both copies have it.
const OWN_APPENDS_MAX: u32 = 1024;

/// left-right has one writer: it sits behind a lock, as its own documentation advises.
pub(super) struct LeftRight {
    writer: CachePadded<Mutex<WriteHandle<ElementList, ListOp>>>,
    readers: ReadHandleFactory<ElementList>,
}

impl Absorb<ListOp> for ElementList {
    fn absorb_first(&mut self, op: &mut ListOp, _: &Self) {
        self.apply(*op);
    }

    fn sync_with(&mut self, first: &Self) {
        self.clone_from(first);
    }
}

impl ListImpl for LeftRight {
    type Handle<'a> = LeftRightHandle<'a>;

    fn new(threads: usize) -> Self {
        let (writer, reader) = left_right::new_from_empty(sequential(threads));
        Self { writer: CachePadded::new(Mutex::new(writer)), readers: reader.factory() }
    }

    fn handle(&self, _: usize) -> LeftRightHandle<'_> {
        LeftRightHandle { writer: &self.writer, reader: self.readers.handle(), appends: 0 }
    }
}

/// A thread's reader, and the way to the writer.
pub(super) struct LeftRightHandle<'a> {
    writer: &'a Mutex<WriteHandle<ElementList, ListOp>>,
    reader: ReadHandle<ElementList>,
    appends: u32,
}

impl LeftRightHandle<'_> {
    fn publish(&mut self) {
        self.appends = 0;
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).publish();
    }

    #[inline]
    fn append(&mut self, op: ListOp) {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).append(op);
        self.appends += 1;
        if self.appends == OWN_APPENDS_MAX {
            self.publish();
        }
    }
}

impl ListHandle for LeftRightHandle<'_> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.append(ListOp::Add(element));
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.append(ListOp::Remove(element));
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.publish();
        self.reader.enter().expect("the writer lives as long as the list").for_each(f);
    }
}

/// How many threads one replica serves. More would take a second replica, and a replica that
/// is idle for a while blocks the log of the others: the known stalls of this crate.
pub(super) const NODE_REPLICATION_THREADS_MAX: usize = node_replication::MAX_THREADS_PER_REPLICA;

/// Room in the shared log, in bytes.
const LOG_BYTES: usize = 2 * 1024 * 1024;

/// node-replication with one replica, which is one per node on a machine with one node.
pub(super) struct NodeReplication(Arc<Replica<'static, Replicated>>);

/// The list as node-replication wants it.
#[derive(Clone)]
pub(super) struct Replicated(ElementList);

impl Default for Replicated {
    fn default() -> Self {
        Self(ElementList::with_limit(0))
    }
}

/// A read of the replicated list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Look {
    /// Fold all elements into a digest.
    Digest,
    /// Return all elements.
    Elements,
}

/// The answer to an operation.
#[derive(Clone)]
pub(super) enum Answer {
    Done,
    Digest(u64),
    Elements(Vec<Element>),
}

impl Dispatch for Replicated {
    type ReadOperation = Look;
    type WriteOperation = ListOp;
    type Response = Answer;

    fn dispatch(&self, look: Look) -> Answer {
        match look {
            Look::Digest => {
                let mut digest = 0;
                self.0.for_each(|element| digest = fold(digest, element));
                Answer::Digest(digest)
            }
            Look::Elements => {
                let mut elements = Vec::new();
                self.0.for_each(|element| elements.push(element));
                Answer::Elements(elements)
            }
        }
    }

    fn dispatch_mut(&mut self, op: ListOp) -> Answer {
        self.0.apply(op);
        Answer::Done
    }
}

impl ListImpl for NodeReplication {
    type Handle<'a> = ReplicaHandle<'a>;

    fn new(_: usize) -> Self {
        Self(Replica::new(&Arc::new(Log::new(LOG_BYTES))))
    }

    fn handle(&self, _: usize) -> ReplicaHandle<'_> {
        let token = self.0.register().expect("the thread count was checked against the maximum");
        ReplicaHandle { replica: &self.0, token }
    }
}

/// A thread registered with the replica.
pub(super) struct ReplicaHandle<'a> {
    replica: &'a Replica<'static, Replicated>,
    token: ReplicaToken,
}

impl ListHandle for ReplicaHandle<'_> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.replica.execute_mut(ListOp::Add(element), self.token);
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.replica.execute_mut(ListOp::Remove(element), self.token);
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        if let Answer::Elements(elements) = self.replica.execute(Look::Elements, self.token) {
            elements.into_iter().for_each(f);
        }
    }

    fn read(&mut self) -> u64 {
        match self.replica.execute(Look::Digest, self.token) {
            Answer::Digest(digest) => digest,
            Answer::Done | Answer::Elements(_) => 0,
        }
    }
}
