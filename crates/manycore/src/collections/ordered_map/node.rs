//! Nodes of the tree: leaves have values, and inner nodes have links to nodes.

use super::order::{Order, SLOTS};
use super::value::{Word, value_of};
use crate::lock::{self, Refused};
use crate::percpu::thread_token;
use crate::profile::Of;
use crate::sync::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, UnsafeCell, drop_each, fence,
    model_failed, prefetch,
};
use std::cmp;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// A node (ordered_map.T1, ordered_map.T2). The map's domain reclaims it.
#[repr(C)]
pub(super) struct Node<K, V> {
    /// An [`Order`].
    order: AtomicU64,
    /// The word of a lock. `HOT` once another node has replaced this one.
    lock: AtomicUsize,
    /// Number of slots that were ever filled. Changes under the lock.
    used: AtomicU32,
    /// Zero for a leaf.
    level: u32,
    keys: [UnsafeCell<MaybeUninit<K>>; SLOTS],
    /// One [`Word`] each.
    words: [AtomicPtr<()>; SLOTS],
    _values: PhantomData<NonNull<V>>,
}

/// A node whose lock is held. Dropping this releases the lock.
pub(super) struct Locked<'s, K, V> {
    node: &'s Node<K, V>,
    /// The lock's word after the release.
    unlocked: usize,
}

impl<K, V> Node<K, V> {
    /// Makes an empty node.
    pub(super) fn new(level: u32) -> Box<Self> {
        Box::new(Self {
            order: AtomicU64::new(Order::in_turn(0).bits()),
            lock: AtomicUsize::new(0),
            used: AtomicU32::new(0),
            level,
            keys: std::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
            words: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            _values: PhantomData,
        })
    }

    #[inline(always)]
    pub(super) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// Prefetches the lines that a search reads after the first line.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        self.prefetch_lines(1..3);
    }

    /// Prefetches the node, but no more than eight lines.
    #[inline]
    pub(super) fn prefetch_all(&self) {
        self.prefetch_lines(0..size_of::<Self>().div_ceil(64).min(8));
    }

    #[inline(always)]
    fn prefetch_lines(&self, lines: Range<usize>) {
        for line in lines {
            prefetch(ptr::from_ref(self).cast::<[u8; 64]>().wrapping_add(line));
        }
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    #[inline(always)]
    pub(super) fn order(&self) -> Order {
        // ORDER: Acquire; pairs with Release in `set_order`: the slots before the order that
        // contains them.
        Order::from_bits(self.order.load(Ordering::Acquire))
    }

    /// Returns the number of slots that were never filled. Unless the lock is held, there may be
    /// fewer by now.
    pub(super) fn unused(&self) -> usize {
        // ORDER: Relaxed; loaded again under the lock.
        SLOTS - self.used.load(Ordering::Relaxed) as usize
    }

    /// Returns the key in a slot.
    ///
    /// # Safety
    /// The slot is in an order that this thread has loaded from the node, or this thread has filled
    /// it.
    #[inline(always)]
    pub(super) unsafe fn key(&self, slot: usize) -> &K {
        // SAFETY: ordered_map.T1 - the slot was filled before it got into an order (# Safety), and
        // does not change again while the node exists.
        self.keys[slot].with(|key| unsafe { (*key).assume_init_ref() })
    }

    /// Returns the value in a slot of a leaf.
    ///
    /// # Safety
    /// As for [`key`](Self::key). The value lives for `'s`.
    #[inline(always)]
    pub(super) unsafe fn value<'s>(&self, slot: usize) -> &'s V {
        debug_assert!(self.is_leaf(), "ordered_map.T2: a value in an inner node");
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        let word = self.words[slot].as_ptr().cast_const().cast();
        #[cfg(any(manycore_loom, manycore_shuttle))]
        let word = &Word::new(self.link(slot));
        // SAFETY: ordered_map.T1 - as for a key. A leaf has values (ordered_map.T2).
        unsafe { value_of(word) }
    }

    /// Returns the word of a slot, with the provenance that it was stored with. A reference to the
    /// value would not have that.
    #[inline]
    pub(super) fn word(&self, slot: usize) -> Word {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        // SAFETY: ordered_map.T1 - a slot of an order, or of a node that no other thread has, so no
        // thread writes there. A word may have any bits.
        return unsafe { self.words[slot].as_ptr().cast::<Word>().read() };
        #[cfg(any(manycore_loom, manycore_shuttle))]
        return Word::new(self.link(slot));
    }

    /// Returns the link in a slot of an inner node.
    #[inline(always)]
    pub(super) fn link(&self, slot: usize) -> *mut () {
        // ORDER: Acquire; pairs with Release in `set_link` and `set_order`: the node that it leads
        // to.
        self.words[slot].load(Ordering::Acquire)
    }

    /// Writes a word into a slot.
    ///
    /// # Safety
    /// The slot is in no order, and no other thread writes to it.
    unsafe fn put_word(&self, slot: usize, word: Word) {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        // SAFETY: no other thread accesses the slot (# Safety).
        unsafe {
            self.words[slot].as_ptr().cast::<Word>().write(word);
        }
        #[cfg(any(manycore_loom, manycore_shuttle))]
        // ORDER: Relaxed; published by `set_order`, or with the node.
        // SAFETY: values are not inline here, so the word is an address.
        self.words[slot].store(unsafe { word.assume_init() }, Ordering::Relaxed);
    }

    /// Returns the first position from `from` on whose key is not less than the sought key, and
    /// whether it is equal. `compare` compares its argument with the sought key. Runs user code.
    #[inline(always)]
    pub(super) fn search(
        &self,
        order: Order,
        from: usize,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> (usize, bool) {
        let (mut low, mut high) = (from, order.len());
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: the position is less than the order's length.
            match compare(unsafe { self.key(order.slot(middle)) }) {
                cmp::Ordering::Less => low = middle + 1,
                cmp::Ordering::Greater => high = middle,
                cmp::Ordering::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Returns the position of the child of this inner node that covers the sought key.
    #[inline(always)]
    pub(super) fn search_child(
        &self,
        order: Order,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> usize {
        debug_assert!(order.len() > 0, "ordered_map.T2: an inner node without children");
        let (at, is_equal) = self.search(order, 1, compare);
        if is_equal { at } else { at - 1 }
    }

    /// Takes the lock. Returns `None` if another node has replaced this one.
    pub(super) fn lock(&self) -> Option<Locked<'_, K, V>> {
        match lock::lock(&self.lock, thread_token(), Of::new("OrderedMap", self), None) {
            Ok(_waited) => Some(Locked { node: self, unlocked: 0 }),
            Err(Refused::Hot) => {
                // ORDER: Acquire, after the load that found the word hot; pairs with Release in
                // `lock::unlock`: a thread that is refused here finds the node's replacement.
                fence(Ordering::Acquire);
                None
            }
            Err(refused) => unreachable!("ordered_map.T5: {refused:?}, but no user code runs here"),
        }
    }

    /// Appends an entry to a node that no other thread has.
    pub(super) fn push(&mut self, key: K, word: Word) {
        let slot = SLOTS - self.unused();
        // SAFETY: `&mut self`, and no order has the slot.
        unsafe {
            self.keys[slot].with_mut(|place| (*place).write(key));
            self.put_word(slot, word);
        }
        // ORDER: Relaxed; `&mut self`: published with the node.
        self.used.store(slot as u32 + 1, Ordering::Relaxed);
        self.order.store(Order::in_turn(slot + 1).bits(), Ordering::Relaxed);
    }

    /// Sets the link in a slot of a node that no other thread has.
    pub(super) fn put_link(&mut self, slot: usize, link: *mut ()) {
        // ORDER: Relaxed; `&mut self`: published with the node.
        self.words[slot].store(link, Ordering::Relaxed);
    }

    /// Takes the entries out of a node that no other thread has. Keys that were removed from the
    /// map stay, and are dropped with the node.
    pub(super) fn take_all(&mut self) -> Vec<(K, Word)> {
        let order = self.order();
        let take = |slot: usize| {
            // SAFETY: ordered_map.T1 - every slot below `used` has a key. Each key is taken once,
            // and `used` is set anew below.
            self.keys[slot].with(|key| unsafe { (*key).assume_init_read() })
        };
        let taken = order.slots(0..order.len()).map(|slot| (take(slot), self.word(slot)));
        let taken: Vec<_> = taken.collect();
        let removed = (0..SLOTS - self.unused()).filter(|slot| order.position(*slot).is_none());
        let removed: Vec<K> = removed.map(take).collect();
        // ORDER: Relaxed; `&mut self`.
        self.used.store(0, Ordering::Relaxed);
        removed.into_iter().for_each(|key| self.push(key, Word::new(ptr::null_mut())));
        self.order.store(Order::in_turn(0).bits(), Ordering::Relaxed);
        taken
    }
}

impl<K, V> Drop for Node<K, V> {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        let used = SLOTS - self.unused();
        drop_each((0..used).map(|slot| {
            // SAFETY: ordered_map.T1 - every slot below `used` has a key. `&mut self`, and each key
            // is taken once.
            self.keys[slot].with(|key| unsafe { (*key).assume_init_read() })
        }));
    }
}

/// Drops a retired node, with its keys.
///
/// # Safety
/// It comes from `Box::into_raw`, and no other thread has it.
pub(super) unsafe fn free<K, V>(node: NonNull<()>) {
    // SAFETY: the caller promises such a node (# Safety).
    drop(unsafe { Box::from_raw(node.cast::<Node<K, V>>().as_ptr()) });
}

impl<'s, K, V> Locked<'s, K, V> {
    pub(super) fn node(&self) -> &'s Node<K, V> {
        self.node
    }

    /// Fills the next slot, which is in no order yet. Returns the slot.
    pub(super) fn fill(&self, key: K, word: Word) -> usize {
        let slot = SLOTS - self.node.unused();
        // SAFETY: ordered_map.T1 - the slot was in no order, so no other thread accesses it, and
        // the lock is held.
        unsafe {
            self.node.keys[slot].with_mut(|place| (*place).write(key));
            self.node.put_word(slot, word);
        }
        // ORDER: Relaxed; the lock guards it.
        self.node.used.store(slot as u32 + 1, Ordering::Relaxed);
        slot
    }

    /// Replaces the order. This store is the linearization point of an insertion or removal.
    pub(super) fn set_order(&self, order: Order) {
        // ORDER: Release; pairs with Acquire in `order`.
        self.node.order.store(order.bits(), Ordering::Release);
    }

    /// Replaces the link in a slot of an inner node.
    pub(super) fn set_link(&self, slot: usize, link: *mut ()) {
        // ORDER: Release; pairs with Acquire in `link`.
        self.node.words[slot].store(link, Ordering::Release);
    }

    /// Marks the node as replaced by another. No writer can lock it from then on.
    pub(super) fn mark_replaced(mut self) {
        self.unlocked = lock::HOT;
    }
}

impl<K, V> Drop for Locked<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this holds the lock and borrows the node.
        unsafe { lock::unlock(&raw const self.node.lock, self.unlocked) };
    }
}
