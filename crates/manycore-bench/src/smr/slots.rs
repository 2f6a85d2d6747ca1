//! A table of plain pointers, for the schemes that are ports: it owns the nodes in it.

use std::{
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{AcqRel, Acquire},
    },
};

use super::{Counts, Node, Payload, Setup};

/// The table. No slot is ever null.
pub(super) struct Slots {
    nodes: Box<[AtomicPtr<Node>]>,
    counts: &'static Counts,
}

/// A node that no slot has any more, and that is dropped with this.
pub(super) struct Taken(*mut Node);

// SAFETY: it owns its node as a box would, and a node may go to another thread.
unsafe impl Send for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: `Slots::replace` gave the node to this alone, and its caller drops it when no
        // section can have it any more (# Safety of `get`).
        drop(unsafe { Box::from_raw(self.0) });
    }
}

fn boxed(value: u64, counts: &'static Counts) -> *mut Node {
    Box::into_raw(Box::new(Node::new(value, counts)))
}

impl Slots {
    pub(super) fn new(setup: Setup) -> Self {
        let nodes = setup.table(|value, counts| AtomicPtr::new(boxed(value, counts)));
        Self { nodes, counts: setup.counts }
    }

    /// The node of a slot.
    ///
    /// # Safety
    ///
    /// The caller is in a section, and stays there for as long as it uses the node; what
    /// [`replace`](Self::replace) has returned is dropped after the sections that could have
    /// found it.
    #[inline(always)]
    pub(super) unsafe fn get(&self, slot: usize) -> &Payload {
        // ORDER: pairs with the swap of `replace`, which publishes the node.
        let node = self.nodes[slot].load(Acquire);
        // SAFETY: a slot is never null, and the caller promises that the node stays (# Safety).
        unsafe { &*node }.payload()
    }

    /// Puts a new node into a slot; returns the one that was there.
    #[inline(always)]
    pub(super) fn replace(&self, slot: usize, value: u64) -> Taken {
        // ORDER: AcqRel publishes the new node, and takes over the old one.
        Taken(self.nodes[slot].swap(boxed(value, self.counts), AcqRel))
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        for slot in &mut self.nodes {
            let node = std::mem::replace(slot.get_mut(), ptr::null_mut());
            // SAFETY: the slot owns its node, and with `&mut self` no other thread has access.
            drop(unsafe { Box::from_raw(node) });
        }
    }
}
