//! The list as OpLog's authors describe theirs (MIT-CSAIL-TR-2014-019, sections 5 and 7.3). The
//! simulator is compared with it.
//!
//! Owns: [`PaperList`], a singly linked list with logs. A heap with the head of each log yields the
//! updates in the order of their stamps. A flag in the element cancels updates across all logs
//! (global absorption). The library's own kinds of log differ in all three: they sort where logs
//! are many, and absorb before anything is in order.
//!
//! Some details are chosen here, because the paper does not give them. These are the heap, the
//! allocation of a node for each addition, and the length to which a log may grow ([`LENGTH`]).

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

use manycore::{
    clock::Stamp,
    oplog::{Deferred, Log, Logs},
};

use super::{Element, ListHandle, ListImpl, ListOp, first_element};

/// Updates in a log before its owner must merge.
const LENGTH: usize = 512;

struct Node {
    element: Element,
    next: Option<Box<Node>>,
}

/// An element's flag, on a line of its own: whether an addition waits for the end of the merge.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Waits(bool);

/// A singly linked list.
struct Chain {
    first: Option<Box<Node>>,
    waits: Vec<Waits>,
}

impl Chain {
    fn add(&mut self, element: Element) {
        let next = self.first.take();
        self.first = Some(Box::new(Node { element, next }));
    }

    fn remove(&mut self, element: Element) {
        let mut link = &mut self.first;
        while link.as_ref().is_some_and(|node| node.element != element) {
            link = &mut link.as_mut().expect("it was looked at").next;
        }
        if let Some(node) = link.take() {
            *link = node.next;
        }
    }

    fn apply(&mut self, op: ListOp) {
        match op {
            ListOp::Add(element) => self.add(element),
            ListOp::Remove(element) => self.remove(element),
        }
    }

    /// One update of a merge with absorption: an addition only waits, and a removal of an element
    /// that waits drops both.
    fn absorb(&mut self, op: ListOp, added: &mut Vec<Element>) {
        let (ListOp::Add(element) | ListOp::Remove(element)) = op;
        let waits = &mut self.waits[element as usize].0;
        match op {
            ListOp::Add(_) => added.push(element),
            ListOp::Remove(_) if *waits => {
                added.pop_if(|last| *last == element);
            }
            ListOp::Remove(_) => return self.remove(element),
        }
        *waits = !*waits;
    }

    /// Adds what still waits.
    fn finish(&mut self, added: Vec<Element>) {
        for element in added {
            if std::mem::take(&mut self.waits[element as usize].0) {
                self.add(element);
            }
        }
    }
}

/// Updates with their stamps. With absorption, a removal drops an addition of the same merge.
#[derive(Default)]
struct PaperLog<const ABSORBS: bool>(Vec<(Stamp, ListOp)>);

impl<const ABSORBS: bool> Log<Chain> for PaperLog<ABSORBS> {
    type Op = ListOp;
    const ORDERED: bool = true;

    fn apply(op: ListOp, list: &mut Chain) {
        list.apply(op);
    }

    #[inline(always)]
    fn push(&mut self, op: ListOp, stamp: Stamp) {
        self.0.push((stamp, op));
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        collect(&mut self.0, cut, &mut into.0);
    }

    fn merge(logs: &mut [Self], list: &mut Chain) -> usize {
        let mut added = Vec::new();
        let merged =
            in_order(logs, |op| if ABSORBS { list.absorb(op, &mut added) } else { list.apply(op) });
        list.finish(added);
        merged
    }
}

/// Moves the updates of a log up to `cut` to an empty one.
pub(super) fn collect(log: &mut Vec<(Stamp, ListOp)>, cut: Stamp, into: &mut Vec<(Stamp, ListOp)>) {
    if log.last().is_none_or(|(last, _)| *last <= cut) {
        std::mem::swap(log, into);
    } else {
        let count = log.partition_point(|(stamp, _)| *stamp <= cut);
        into.extend(log.drain(..count));
    }
}

/// Calls `visit` with every update in the order of the stamps, and empties the logs.
fn in_order<const ABSORBS: bool>(
    logs: &mut [PaperLog<ABSORBS>],
    mut visit: impl FnMut(ListOp),
) -> usize {
    let total = logs.iter().map(|log| log.0.len()).sum();
    let head = |logs: &[PaperLog<ABSORBS>], log: usize, next: usize| {
        logs[log].0.get(next).map(|(stamp, _)| Reverse((*stamp, log, next)))
    };
    let mut heads: BinaryHeap<_> = (0..logs.len()).filter_map(|log| head(logs, log, 0)).collect();
    while let Some(mut oldest) = heads.peek_mut() {
        let Reverse((_, log, next)) = *oldest;
        visit(logs[log].0[next].1);
        match head(logs, log, next + 1) {
            Some(head) => *oldest = head,
            None => drop(PeekMut::pop(oldest)),
        }
    }
    logs.iter_mut().for_each(|log| log.0.clear());
    total
}

/// The list behind the paper's logs.
pub(super) struct PaperList<const ABSORBS: bool>(Deferred<Chain, PaperLog<ABSORBS>>);

impl<const ABSORBS: bool> ListImpl for PaperList<ABSORBS> {
    type Handle<'a> = &'a Self;

    fn new(threads: usize) -> Self {
        let waits = vec![Waits::default(); first_element(threads) as usize];
        let builder = Deferred::builder().logs(Logs::Always).max_entries(LENGTH);
        Self(builder.build(Chain { first: None, waits }).expect("the bounds are good"))
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl<const ABSORBS: bool> ListHandle for &PaperList<ABSORBS> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.0.append(ListOp::Add(element));
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.0.append(ListOp::Remove(element));
    }

    fn for_each(&mut self, mut f: impl FnMut(Element) + Send) {
        let list = self.0.read();
        let mut next = &list.first;
        while let Some(node) = next {
            f(node.element);
            next = &node.next;
        }
    }
}
