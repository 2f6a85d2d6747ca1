//! Nodes in no order, each findable by its own hint, and memory for further nodes.
//!
//! Owns: [`Node`], [`Bag`], and the frames of entries that come or go. The laws of the registry are
//! in the parent module (R numbers).
//! - **bag.G1** The first `live` nodes of a bag have a value. The others are free memory, at
//!   most [`SPARE`] after an entry has left.

use crate::config::SMALL;
use crate::sync::{AtomicUsize, Ordering, run_each};
use std::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use std::ptr::NonNull;

/// Bytes of a value up to which it is moved out of its node when its entry goes, so that the memory
/// can be reused. Moving a larger value under a lock takes longer than the allocator.
const MOVED_BYTES: usize = 256;
/// Free nodes that a bag keeps for the next `Enter` (registry.R6).
const SPARE: usize = if SMALL { 1 } else { 64 };

/// A registered value.
pub(super) struct Node<T> {
    /// Position in the bag that has the node (registry.R3). A hint: its users check it.
    place: AtomicUsize,
    pub(super) value: T,
}

/// A new entry, in the stack frame of the appending thread (registry.R2).
pub(super) struct Arrival<T> {
    value: ManuallyDrop<T>,
    node: Option<NonNull<Node<T>>>,
}

impl<T> Arrival<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), node: None }
    }

    /// Returns the node, which exists after the append.
    pub(super) fn node(&self) -> Option<NonNull<Node<T>>> {
        self.node
    }
}

/// The work left for an entry that has gone.
enum Rest {
    /// Nothing: the node waits for a merge, or was kept without a value that needs to be dropped.
    Nothing,
    /// The value was moved here, and the node was kept.
    Value,
    /// The node belongs to the entry.
    Node,
}

/// The fate of an entry's node, in the stack frame of the appending thread (registry.R2).
pub(super) struct Departure<T> {
    rest: Rest,
    value: MaybeUninit<T>,
}

impl<T> Departure<T> {
    pub(super) fn new() -> Self {
        Self { rest: Rest::Nothing, value: MaybeUninit::uninit() }
    }

    /// Drops what belongs to the entry. Runs user code, so the caller holds no lock.
    ///
    /// # Safety
    /// `node` is the node that left with this departure.
    #[inline(always)]
    pub(super) unsafe fn finish(self, node: NonNull<Node<T>>) {
        match self.rest {
            Rest::Nothing => {}
            // SAFETY: `Bag::leave` moved it here.
            Rest::Value => drop(unsafe { self.value.assume_init() }),
            // SAFETY: `Bag::leave` gave the node up, which came from a box; no reference to it is
            // left.
            Rest::Node => drop(unsafe { Box::from_raw(node.as_ptr()) }),
        }
    }
}

/// See the module header.
pub(super) struct Bag<T> {
    nodes: Vec<NonNull<Node<T>>>,
    live: usize,
}

impl<T> Bag<T> {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), live: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        // SAFETY: bag.G1, and a node of a bag stays as it is until the bag changes
        // (registry.R1).
        self.nodes[..self.live].iter().map(|node| unsafe { &(*node.as_ptr()).value })
    }

    /// Makes an arrival's node.
    ///
    /// # Safety
    /// registry.R2: the frame is alive and the calling thread's, and this is called once for it.
    #[inline(always)]
    pub(super) unsafe fn enter(&mut self, frame: NonNull<Arrival<T>>) {
        // SAFETY: registry.R2 - the caller promises that the frame is alive and this thread's, and
        // that this is called once for it. So the value is read once, and `ManuallyDrop` keeps its
        // frame from dropping it.
        unsafe {
            debug_assert!((*frame.as_ptr()).node.is_none(), "registry.R2: an arrival enters twice");
            let value = std::ptr::read(&raw const (*frame.as_ptr()).value);
            let node = self.make(ManuallyDrop::into_inner(value));
            (*frame.as_ptr()).node = Some(node);
        }
    }

    #[inline(always)]
    fn make(&mut self, value: T) -> NonNull<Node<T>> {
        let value = ManuallyDrop::new(value);
        // SAFETY: the value is here, and is read once: by this call, or below.
        match unsafe { self.enter_free(&value) } {
            Some(node) => node,
            None => self.make_new(ManuallyDrop::into_inner(value)),
        }
    }

    /// Moves a value into a free node, if there is one.
    ///
    /// # Safety
    /// The value is not used afterwards, if this returns a node.
    #[inline(always)]
    pub(super) unsafe fn enter_free(
        &mut self,
        value: &ManuallyDrop<T>,
    ) -> Option<NonNull<Node<T>>> {
        let node = self.nodes.get(self.live).copied()?;
        // SAFETY: bag.G1 - memory of a node, without a value, and not shared. The caller
        // promises that the value is read here for the last time.
        unsafe {
            (&raw mut (*node.as_ptr()).value).write(std::ptr::read(&raw const **value));
            // ORDER: Relaxed; a hint. (On the value's line, so it costs nothing to store it again.)
            (*node.as_ptr()).place.store(self.live, Ordering::Relaxed);
        }
        self.live += 1;
        Some(node)
    }

    #[inline(never)]
    fn make_new(&mut self, value: T) -> NonNull<Node<T>> {
        let node = Box::new(Node { place: AtomicUsize::new(self.live), value });
        let node = NonNull::from(Box::leak(node));
        self.nodes.push(node);
        self.live += 1;
        node
    }

    /// Adds a node of another bag.
    ///
    /// # Safety
    /// The node has a value, and from here on it is in no bag but this (registry.R1).
    pub(super) unsafe fn add(&mut self, node: NonNull<Node<T>>) {
        // SAFETY: the caller promises that the node has a value (registry.R1), so its memory is
        // alive.
        unsafe { self.settle(node, self.live) };
        match self.nodes.get(self.live).copied() {
            None => self.nodes.push(node),
            Some(free) => {
                self.nodes.push(free);
                self.nodes[self.live] = node;
            }
        }
        self.live += 1;
    }

    /// Moves the live nodes to another bag.
    pub(super) fn empty_into(&mut self, other: &mut Self) {
        debug_assert!(self.live <= self.nodes.len(), "registry.R1: more entries than nodes");
        let live = std::mem::take(&mut self.live);
        for node in self.nodes.drain(..live) {
            // SAFETY: bag.G1, and it leaves this bag.
            unsafe { other.add(node) };
        }
    }

    /// Stores in a node where it is.
    ///
    /// # Safety
    /// The node's memory is alive.
    #[inline(always)]
    unsafe fn settle(&self, node: NonNull<Node<T>>, place: usize) {
        // SAFETY: the caller promises that the node's memory is alive; `place` has been set since
        // the memory became a node.
        let hint = unsafe { &(*node.as_ptr()).place };
        // ORDER: Relaxed (both); a hint.
        if hint.load(Ordering::Relaxed) != place {
            hint.store(place, Ordering::Relaxed);
        }
    }

    /// Moves a node after the live ones, if this bag has it. Its value is still there.
    ///
    /// # Safety
    /// The node has a value (in whatever bag it is).
    #[inline(always)]
    unsafe fn take(&mut self, node: NonNull<Node<T>>) -> bool {
        // ORDER: Relaxed; a hint.
        // SAFETY: the caller promises that the node has a value, so its memory is alive and no bag
        // has given it up (bag.G1).
        let place = unsafe { (*node.as_ptr()).place.load(Ordering::Relaxed) };
        // A node with a value is not among the free ones of any bag (bag.G1).
        if self.nodes.get(place) != Some(&node) {
            return false;
        }
        debug_assert!(place < self.live, "registry.R1: a node leaves that is free");
        self.live -= 1;
        if place != self.live {
            self.nodes.swap(place, self.live);
            // SAFETY: bag.G1, for both.
            unsafe {
                self.settle(self.nodes[place], place);
                self.settle(node, self.live);
            }
        }
        true
    }

    /// Ends a node's stay, if this bag has it and keeps its memory. Returns the value, if it needs
    /// to be dropped.
    ///
    /// # Safety
    /// The node is its entry's, which does not use it any more if this returns something
    /// (registry.R1).
    #[inline(always)]
    pub(super) unsafe fn leave_free(&mut self, node: NonNull<Node<T>>) -> Option<MaybeUninit<T>> {
        if !Self::KEEPS || self.nodes.len() - self.live >= SPARE {
            return None;
        }
        // SAFETY: registry.R1 - the caller promises that the node is its entry's, so it has a value
        // still.
        if !unsafe { self.take(node) } {
            return None;
        }
        // SAFETY: bag.G1 - no reference to the value is left, and the node counts as free.
        Some(unsafe { Self::taken_out(node) })
    }

    /// True if the memory of a node that goes is kept: its value is moved out, or needs no drop.
    const KEEPS: bool = !needs_drop::<T>() || size_of::<T>() <= MOVED_BYTES;

    /// Takes out the value of a node that has gone, if it needs to be dropped.
    ///
    /// # Safety
    /// The node is free, and was not when this was called last.
    #[inline(always)]
    unsafe fn taken_out(node: NonNull<Node<T>>) -> MaybeUninit<T> {
        if !needs_drop::<T>() {
            return MaybeUninit::uninit();
        }
        // SAFETY: the caller promises that the node has just become free, so the value is there,
        // and is read once.
        MaybeUninit::new(unsafe { std::ptr::read(&raw const (*node.as_ptr()).value) })
    }

    /// Ends a node's stay, if this bag has it, and stores in the frame what is left to do.
    ///
    /// # Safety
    /// registry.R2 for the frame, and the node is its entry's, which does not use it any more
    /// (registry.R1).
    #[inline(always)]
    pub(super) unsafe fn leave(
        &mut self,
        node: NonNull<Node<T>>,
        frame: NonNull<Departure<T>>,
    ) -> bool {
        // SAFETY: registry.R1 - the caller promises that the node is its entry's, so it has a value
        // still.
        if !unsafe { self.take(node) } {
            return false;
        }
        // SAFETY: registry.R2 - the caller promises that the frame is alive and used by this thread
        // alone.
        let frame = unsafe { &mut *frame.as_ptr() };
        debug_assert!(matches!(frame.rest, Rest::Nothing), "registry.R2: a departure leaves twice");
        if !Self::KEEPS || self.nodes.len() - self.live > SPARE {
            self.nodes.swap_remove(self.live);
            frame.rest = Rest::Node;
        } else if needs_drop::<T>() {
            // SAFETY: bag.G1 - no reference to the value is left, and the node counts as free.
            frame.value = unsafe { Self::taken_out(node) };
            frame.rest = Rest::Value;
        }
        true
    }

    /// Takes a node out with its memory, if this bag has it.
    ///
    /// # Safety
    /// The node has a value, and is not used any more (registry.R1).
    pub(super) unsafe fn remove(&mut self, node: NonNull<Node<T>>) -> Option<Box<Node<T>>> {
        // SAFETY: registry.R1 - the caller promises that the node has a value and is not used any
        // more. It came from a box (`make_new`), and after `swap_remove` this bag does not have it.
        unsafe {
            self.take(node).then(|| {
                self.nodes.swap_remove(self.live);
                Box::from_raw(node.as_ptr())
            })
        }
    }
}

impl<T> Drop for Bag<T> {
    fn drop(&mut self) {
        let live = self.live;
        run_each(self.nodes.drain(..).enumerate(), |(place, node)| {
            // SAFETY: all came from boxes, and no other reference is left: entries borrow the
            // registry or keep it alive. bag.G1 says which have a value.
            unsafe {
                if place < live {
                    drop(Box::from_raw(node.as_ptr()));
                } else {
                    drop(Box::from_raw(node.as_ptr().cast::<MaybeUninit<Node<T>>>()));
                }
            }
        });
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Value = (usize, Arc<()>);

    fn enter<T>(bag: &mut Bag<T>, value: T) -> NonNull<Node<T>> {
        let mut arrival = Arrival::new(value);
        // SAFETY: the frame is here.
        unsafe { bag.enter(NonNull::from(&mut arrival)) };
        arrival.node().unwrap()
    }

    /// Returns true if the bag had the node.
    fn leave<T>(bag: &mut Bag<T>, node: NonNull<Node<T>>) -> bool {
        let mut departure = Departure::new();
        // SAFETY: the tests let each node go once, and the frame is here.
        unsafe {
            let found = bag.leave(node, NonNull::from(&mut departure));
            departure.finish(node);
            found
        }
    }

    /// Random arrivals, departures, moves between bags and removals, compared with a list of them.
    #[test]
    fn bag_has_what_entered_and_drops_each_value_once() {
        let shared = Arc::new(());
        let (mut log, mut list) = (Bag::<Value>::new(), Bag::<Value>::new());
        let mut alive = Vec::new();
        let mut random = 0x9E37_79B9_u32;
        for step in 0..if SMALL { 400 } else { 20_000 } {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let grows = step / if SMALL { 50 } else { 500 } % 2 == 0;
            match random >> 29 {
                0 if random >> 20 & 15 == 0 => log.empty_into(&mut list),
                0..=2 if grows => alive.push((step, enter(&mut log, (step, Arc::clone(&shared))))),
                _ if alive.is_empty() => {}
                side => {
                    let (_, node) = alive.swap_remove((random >> 8) as usize % alive.len());
                    if !leave(&mut log, node) {
                        // SAFETY: it has not left yet, and is not used.
                        let removed = side % 2 == 0 && unsafe { list.remove(node) }.is_some();
                        assert!(removed || leave(&mut list, node), "the node was in no bag");
                    }
                }
            }
            assert_eq!((log.len() + list.len(), Arc::strong_count(&shared)), {
                (alive.len(), alive.len() + 1)
            });
        }
        let mut seen: Vec<_> = log.values().chain(list.values()).map(|(step, _)| *step).collect();
        let mut expected: Vec<_> = alive.iter().map(|(step, _)| *step).collect();
        seen.sort_unstable();
        expected.sort_unstable();
        assert!(!seen.is_empty() || expected.is_empty());
        assert_eq!(seen, expected);
        drop((log, list));
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn memory_is_used_again_up_to_a_bound() {
        let mut bag = Bag::new();
        let first = enter(&mut bag, 1_u64);
        assert!(leave(&mut bag, first));
        assert_eq!(enter(&mut bag, 2), first);
        let many: Vec<_> = (0..1000).map(|number| enter(&mut bag, number)).collect();
        many.into_iter().for_each(|node| assert!(leave(&mut bag, node)));
        assert_eq!((bag.len(), bag.nodes.len()), (1, 1 + SPARE));
    }

    #[test]
    fn large_values_are_not_moved() {
        let shared = Arc::new(());
        let mut bag = Bag::new();
        let node = enter(&mut bag, (Arc::clone(&shared), [0_u8; MOVED_BYTES]));
        assert!(leave(&mut bag, node));
        assert_eq!((bag.nodes.len(), Arc::strong_count(&shared)), (0, 1));
    }
}
