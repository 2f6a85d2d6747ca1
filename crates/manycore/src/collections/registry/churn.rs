//! What is registered, and the kind of log that entries come and go through.
//!
//! Owns: the life of a [`Node`]. The laws are in the parent module (R numbers).

use crate::clock::Stamp;
use crate::oplog::Log;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

/// A registered value.
pub(super) struct Node<T> {
    /// Where the node is in whatever list it is in (R3). A hint: whoever uses it checks.
    place: AtomicUsize,
    pub(super) value: T,
}

impl<T> Node<T> {
    pub(super) fn new(value: T) -> Box<Self> {
        Box::new(Self { place: AtomicUsize::new(0), value })
    }

    fn place(&self) -> usize {
        // ORDER: Relaxed; a hint.
        self.place.load(Ordering::Relaxed)
    }

    fn set_place(&self, place: usize) {
        // ORDER: Relaxed; a hint.
        self.place.store(place, Ordering::Relaxed);
    }
}

/// Nodes in no order, each findable by its own hint (R3).
struct Bag<T>(Vec<NonNull<Node<T>>>);

impl<T> Bag<T> {
    /// # Safety
    /// `node` is alive for as long as the bag has it.
    #[inline(always)]
    unsafe fn add(&mut self, node: NonNull<Node<T>>) {
        // SAFETY: the caller's duty.
        unsafe { node.as_ref() }.set_place(self.0.len());
        self.0.push(node);
    }

    /// Takes `node` out, if this bag has it.
    ///
    /// # Safety
    /// `node` is alive, and so is every node of this bag.
    #[inline(always)]
    unsafe fn take(&mut self, node: NonNull<Node<T>>) -> bool {
        // SAFETY: the caller's duty.
        let place = unsafe { node.as_ref() }.place();
        if self.0.get(place) != Some(&node) {
            return false;
        }
        self.0.swap_remove(place);
        if let Some(moved) = self.0.get(place) {
            // SAFETY: the caller's duty.
            unsafe { moved.as_ref() }.set_place(place);
        }
        true
    }
}

/// An entry comes, or goes.
pub(super) enum Change<T> {
    /// The node is the registry's from here on (R1).
    Enter(NonNull<Node<T>>),
    /// Nobody but the registry uses the node any more. The flag, in the frame of whoever appends,
    /// is set if the node is free at once, and then belongs to the appender.
    Leave(NonNull<Node<T>>, NonNull<Cell<bool>>),
}

// SAFETY: nodes are reached by shared reference from any thread (`Sync`) and freed on any (`Send`);
// the flag is used during `append` alone, on the appending thread (R2).
unsafe impl<T: Send + Sync> Send for Change<T> {}

/// One slot's changes since the last merge, less what came and went on this slot.
pub(super) struct Churn<T> {
    entered: Bag<T>,
    left: Vec<NonNull<Node<T>>>,
}

impl<T> Default for Churn<T> {
    fn default() -> Self {
        Self { entered: Bag(Vec::new()), left: Vec::new() }
    }
}

// SAFETY: as for `Change`.
unsafe impl<T: Send + Sync> Send for Churn<T> {}

/// The underlying list of what is registered.
pub(super) struct Members<T> {
    nodes: Bag<T>,
    garbage: Arc<Garbage<T>>,
}

// SAFETY: as for `Change`.
unsafe impl<T: Send + Sync> Send for Members<T> {}

impl<T> Members<T> {
    pub(super) fn new(garbage: Arc<Garbage<T>>) -> Self {
        Self { nodes: Bag(Vec::new()), garbage }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.0.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        // SAFETY: R1 - a node in the list is alive until it leaves, which changes the list.
        self.nodes.0.iter().map(|node| unsafe { &node.as_ref().value })
    }
}

impl<T> Drop for Members<T> {
    /// Frees what leaked entries have left behind.
    fn drop(&mut self) {
        for node in self.nodes.0.drain(..) {
            // SAFETY: R1 - the node is the registry's, and no entry that could use it is left: they
            // borrow the registry or keep it alive.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

impl<T: Send + Sync + 'static> Log<Members<T>> for Churn<T> {
    type Op = Change<T>;
    /// An entry enters once and leaves once, later; the rest commutes.
    const ORDERED: bool = false;

    fn apply(change: Change<T>, members: &mut Members<T>) {
        // SAFETY: R1 and R2, for each of the calls.
        unsafe {
            match change {
                Change::Enter(node) => members.nodes.add(node),
                Change::Leave(node, free) if members.nodes.take(node) => free.as_ref().set(true),
                Change::Leave(..) => unreachable!("{LEFT_EARLY}"),
            }
        }
    }

    #[inline(always)]
    fn push(&mut self, change: Change<T>, _: Stamp) {
        // SAFETY: R1 and R2, for each of the calls.
        unsafe {
            match change {
                Change::Enter(node) => self.entered.add(node),
                Change::Leave(node, free) if self.entered.take(node) => free.as_ref().set(true),
                Change::Leave(node, _) => self.left.push(node),
            }
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entered.0.len() + self.left.len()
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        Log::<Members<T>>::len(self) * size_of::<NonNull<Node<T>>>()
    }

    fn merge(logs: &mut [Self], members: &mut Members<T>) -> usize {
        let before: usize = logs.iter().map(Log::<Members<T>>::len).sum();
        // All that enter first: who leaves has entered, but maybe in another log (R4).
        for log in logs.iter_mut() {
            for node in log.entered.0.drain(..) {
                // SAFETY: R1.
                unsafe { members.nodes.add(node) };
            }
        }
        let mut garbage = members.garbage.lock();
        for log in logs.iter_mut() {
            for node in log.left.drain(..) {
                // SAFETY: R1.
                let found = unsafe { members.nodes.take(node) };
                assert!(found, "{LEFT_EARLY}");
                // SAFETY: R1 - made by `Box::into_raw`, out of the list, and its entry is gone.
                garbage.push(unsafe { Box::from_raw(node.as_ptr()) });
            }
        }
        members.garbage.note(!garbage.is_empty());
        before
    }
}

const LEFT_EARLY: &str = "manycore: an entry left before it entered";

/// Nodes that have left, whose values are to be dropped outside of locks (R5).
pub(super) struct Garbage<T> {
    any: AtomicBool,
    nodes: Mutex<Vec<Box<Node<T>>>>,
}

impl<T> Garbage<T> {
    pub(super) fn new() -> Self {
        Self { any: AtomicBool::new(false), nodes: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Vec<Box<Node<T>>>> + '_ {
        // Nothing of the user's runs under it.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, any: bool) {
        // ORDER: Relaxed; a hint, and the lock orders the nodes.
        if self.any.load(Ordering::Relaxed) != any {
            self.any.store(any, Ordering::Relaxed);
        }
    }

    /// Drops what is there. Runs user code: no lock may be held.
    #[inline(always)]
    pub(super) fn sweep(&self) {
        // ORDER: Relaxed; a hint. Whatever is missed now is found by the next call.
        if self.any.load(Ordering::Relaxed) {
            self.sweep_all();
        }
    }

    #[cold]
    fn sweep_all(&self) {
        let nodes = {
            let mut nodes = self.lock();
            self.note(false);
            std::mem::take(&mut *nodes)
        };
        drop(nodes);
    }
}
