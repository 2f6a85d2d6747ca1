//! A registered entry, and the kind of log through which entries come and go.
//!
//! Owns: the way of a [`Node`] from log to list and out. The laws are in the parent module (R
//! numbers).

use super::bag::{Arrival, Bag, Departure, Node};
use crate::clock::Stamp;
use crate::collections::deferred_drops::DeferredDrops;
use crate::oplog::Log;
use std::ptr::NonNull;
use std::sync::Arc;

/// An entry comes, or goes. Two words, which travel in registers.
pub(super) struct Change<T> {
    /// The node that goes. From now on only the registry uses it.
    node: Option<NonNull<Node<T>>>,
    /// The [`Departure`] of the node that goes. If no node goes, an [`Arrival`], which gets a node;
    /// the node belongs to the registry from here on (registry.R1).
    frame: NonNull<()>,
}

impl<T> Change<T> {
    #[inline(always)]
    pub(super) fn enter(frame: NonNull<Arrival<T>>) -> Self {
        Self { node: None, frame: frame.cast() }
    }

    #[inline(always)]
    pub(super) fn leave(node: NonNull<Node<T>>, frame: NonNull<Departure<T>>) -> Self {
        Self { node: Some(node), frame: frame.cast() }
    }
}

// SAFETY: nodes are reached by shared reference from any thread (`Sync`) and freed on any (`Send`);
// the frames are used during `append` alone, on the appending thread (registry.R2).
unsafe impl<T: Send + Sync> Send for Change<T> {}

/// Changes of one slot since the last merge, without what came and went on this slot.
pub(super) struct Churn<T> {
    entered: Bag<T>,
    left: Vec<NonNull<Node<T>>>,
}

impl<T> Default for Churn<T> {
    fn default() -> Self {
        Self { entered: Bag::new(), left: Vec::new() }
    }
}

// SAFETY: nodes are reached by shared reference from any thread (`Sync`) and freed on any (`Send`);
// a log has no frames, only nodes, which are the registry's (registry.R1).
unsafe impl<T: Send + Sync> Send for Churn<T> {}

/// The underlying list of what is registered.
pub(super) struct Members<T> {
    nodes: Bag<T>,
    deferred_drops: Arc<DeferredDrops<Box<Node<T>>>>,
}

// SAFETY: nodes are reached by shared reference from any thread (`Sync`) and freed on any (`Send`),
// and so is the garbage; no part belongs to a thread.
unsafe impl<T: Send + Sync> Send for Members<T> {}

impl<T> Members<T> {
    pub(super) fn new(deferred_drops: Arc<DeferredDrops<Box<Node<T>>>>) -> Self {
        Self { nodes: Bag::new(), deferred_drops }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.nodes.values()
    }

    /// Returns the list, for what comes and goes while there are no logs.
    #[inline(always)]
    pub(super) fn nodes(&mut self) -> &mut Bag<T> {
        &mut self.nodes
    }
}

impl<T: Send + Sync + 'static> Log<Members<T>> for Churn<T> {
    type Op = Change<T>;
    /// An entry enters once and leaves once, later. All other changes commute.
    const ORDERED: bool = false;

    #[inline(always)]
    fn apply(change: Change<T>, members: &mut Members<T>) {
        // SAFETY: registry.R1 and registry.R2, for each of the calls.
        unsafe {
            match change.node {
                None => members.nodes.enter(change.frame.cast()),
                Some(node) => {
                    assert!(members.nodes.leave(node, change.frame.cast()), "{LEFT_EARLY}");
                }
            }
        }
    }

    #[inline(always)]
    fn push(&mut self, change: Change<T>, _: Stamp) {
        // SAFETY: registry.R1 and registry.R2, for each of the calls.
        unsafe {
            match change.node {
                None => self.entered.enter(change.frame.cast()),
                Some(node) => {
                    if !self.entered.leave(node, change.frame.cast()) {
                        self.left.push(node);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entered.len() + self.left.len()
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        Log::<Members<T>>::len(self) * size_of::<NonNull<Node<T>>>()
    }

    fn merge(logs: &mut [Self], members: &mut Members<T>) -> usize {
        let before: usize = logs.iter().map(Log::<Members<T>>::len).sum();
        // All insertions first: the insertion of a removed node may be in another log
        // (registry.R4).
        for log in logs.iter_mut() {
            log.entered.empty_into(&mut members.nodes);
        }
        let mut deferred_drops = members.deferred_drops.lock();
        for log in logs.iter_mut() {
            for node in log.left.drain(..) {
                // SAFETY: registry.R1 - the entry is gone.
                let removed = unsafe { members.nodes.remove(node) };
                deferred_drops.push(removed.expect(LEFT_EARLY));
            }
        }
        members.deferred_drops.note(!deferred_drops.is_empty());
        before
    }
}

const LEFT_EARLY: &str = "manycore: an entry is removed that was not inserted";
