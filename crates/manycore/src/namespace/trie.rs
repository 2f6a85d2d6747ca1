//! The radix trie: from an index to its slot. Laws namespace.N1 and namespace.N2 of the parent
//! module.

use crate::config::{ID_CHUNK_BITS, ID_FAN_BITS, ID_LEAF_BITS, ID_LEAF_BYTES, SMALL};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, LoadToChange, Ordering};
use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr;

const FAN: usize = 1 << ID_FAN_BITS;
/// Levels of inner nodes, at most.
const HEIGHT: usize = 7;
/// The low bits of a root say how many bits of an index are decided above the leaves (`ID_FAN_BITS`
/// for each level). So a look-up does not multiply a height.
const ABOVE: usize = 127;
const _: () = assert!(HEIGHT * ID_FAN_BITS as usize <= ABOVE && ABOVE < align_of::<Inner>());
/// log2 of the number of indices.
pub(super) const INDEX_BITS: u32 = {
    let reach = ID_LEAF_BITS + HEIGHT as u32 * ID_FAN_BITS;
    if reach < 32 { reach } else { 32 }
};
/// Chunks that a leaf has, at most.
const CHUNKS: usize = 1 << (ID_LEAF_BITS - ID_CHUNK_BITS);

/// A place for a node. `value` is touched through raw pointers only.
#[repr(C)]
pub(super) struct NodeSlot<T> {
    /// The id's bits while it is live, else a dead word; zero if it has never been used.
    pub(super) word: AtomicU64,
    pub(super) value: MaybeUninit<T>,
}

/// The head of an array of slots, and what belongs to all of them. [`LEN`](Leaf::LEN) slots follow
/// it, in one allocation, from its next line on. So a chunk, which belongs to one thread, begins
/// with a line (64 slots are whole lines). `S` is the state of the namespace; this module does not
/// look into it.
#[repr(C, align(128))]
pub(super) struct Leaf<T, S> {
    pub(super) state: *const S,
    /// The leaf with the next indices, if an extent goes on there.
    pub(super) next: AtomicPtr<Leaf<T, S>>,
    /// For each chunk, one more than the class of the blocks that begin in it, or zero.
    classes: [AtomicU32; CHUNKS],
    slots: OnNewLine<[NodeSlot<T>; 0]>,
}

#[repr(C, align(128))]
struct OnNewLine<A>(A);

#[repr(C, align(128))]
struct Inner {
    children: [AtomicPtr<()>; FAN],
}

fn alloc_zeroed(layout: Layout) -> *mut u8 {
    // SAFETY: neither a leaf nor an inner node has size zero.
    let raw = unsafe { alloc::alloc_zeroed(layout) };
    if raw.is_null() {
        alloc::handle_alloc_error(layout);
    }
    raw
}

impl<T, S> Leaf<T, S> {
    /// log2 of its slots: as many as fit `ID_LEAF_BYTES`, so that few large nodes do not cost the
    /// memory of many; at least one. (Models have leaves of one size.)
    pub(super) const BITS: u32 = {
        let fits = ID_LEAF_BYTES / size_of::<NodeSlot<T>>();
        let log = if fits == 0 { 0 } else { fits.ilog2() };
        if SMALL || log > ID_LEAF_BITS { ID_LEAF_BITS } else { log }
    };

    /// Number of its slots.
    pub(super) const LEN: usize = 1 << Self::BITS;

    /// log2 of the ids of a chunk.
    pub(super) const CHUNK_BITS: u32 =
        if ID_CHUNK_BITS < Self::BITS { ID_CHUNK_BITS } else { Self::BITS };

    fn layout() -> Layout {
        let slots = Layout::array::<NodeSlot<T>>(Self::LEN).expect("a leaf is smaller than memory");
        let (both, _) = Layout::new::<Self>().extend(slots).expect("as above");
        both.pad_to_align()
    }

    fn alloc(state: *const S) -> *mut Self {
        let leaf = alloc_zeroed(Self::layout()).cast::<Self>();
        // SAFETY: fresh memory of this layout, not shared. All zeros are valid atomics of std;
        // a checker's are made one by one.
        unsafe {
            (&raw mut (*leaf).state).write(state);
            if SMALL {
                (&raw mut (*leaf).next).write(AtomicPtr::new(ptr::null_mut()));
                for class in 0..CHUNKS {
                    (&raw mut (*leaf).classes[class]).write(AtomicU32::new(0));
                }
                for offset in 0..Self::LEN {
                    (&raw mut (*Self::slot(leaf, offset)).word).write(AtomicU64::new(0));
                }
            }
        }
        leaf
    }

    /// # Safety
    /// `leaf` came from `alloc`, and no other thread has it.
    unsafe fn free(leaf: *mut Self) {
        // SAFETY: the caller promises that `alloc` made the leaf, of this layout, and that no other
        // thread has it (# Safety). Values are not dropped here (see `NodeSlot`), atomics need not
        // be.
        unsafe { alloc::dealloc(leaf.cast(), Self::layout()) }
    }

    /// Returns the slot at `offset`.
    ///
    /// # Safety
    /// `leaf` is a leaf, and `offset` below `LEN`.
    #[inline(always)]
    pub(super) unsafe fn slot(leaf: *mut Self, offset: usize) -> *mut NodeSlot<T> {
        debug_assert!(offset < Self::LEN, "namespace.N2: a leaf has no slot {offset}");
        // Not through the field: its type ends where the first slot begins.
        let slots = std::mem::offset_of!(Self, slots);
        // SAFETY: within the leaf's allocation (`layout`), says the caller.
        unsafe { leaf.cast::<u8>().add(slots).cast::<NodeSlot<T>>().add(offset) }
    }

    /// Returns the leaf of a slot with this index.
    ///
    /// # Safety
    /// `slot` came from [`slot`](Self::slot), and its index is `index`.
    pub(super) unsafe fn of(slot: *mut NodeSlot<T>, index: u32) -> *mut Self {
        let offset = index as usize % Self::LEN;
        // SAFETY: back to the first slot, and from there to the leaf around it: one allocation,
        // from which the pointer was derived.
        unsafe {
            let first = slot.sub(offset);
            first.cast::<u8>().sub(std::mem::offset_of!(Self, slots)).cast()
        }
    }

    /// Returns the class of the block that begins at `index` and is in use.
    ///
    /// # Panics
    /// If there is no such block.
    pub(super) fn class_of(&self, index: u32) -> usize {
        // ORDER: Relaxed; see `Trie::set_class`.
        let entry = self.class_at(index as usize % Self::LEN).load(Ordering::Relaxed);
        entry.checked_sub(1).expect("the block's taker has set its class") as usize
    }

    fn class_at(&self, offset: usize) -> &AtomicU32 {
        &self.classes[offset >> Self::CHUNK_BITS]
    }
}

impl Inner {
    fn alloc() -> *mut Self {
        let inner = alloc_zeroed(Layout::new::<Self>()).cast::<Self>();
        if SMALL {
            for child in 0..FAN {
                // SAFETY: fresh memory of this layout, not shared.
                unsafe {
                    (&raw mut (*inner).children[child]).write(AtomicPtr::new(ptr::null_mut()));
                }
            }
        }
        inner
    }
}

/// The trie of a namespace with a state that is an `S`.
pub(super) struct Trie<T, S> {
    /// Null, or the topmost node with [`ABOVE`] in the low bits.
    root: AtomicPtr<()>,
    _leaves: std::marker::PhantomData<*mut Leaf<T, S>>,
}

/// Splits a root into the node and the number of index bits that are decided above the leaves.
#[inline(always)]
fn split(root: *mut ()) -> (*mut (), u32) {
    (root.map_addr(|bits| bits & !ABOVE), (root.addr() & ABOVE) as u32)
}

/// Returns true if a trie that decides `above` bits above the leaves has `index`.
#[inline(always)]
fn reaches<T, S>(above: u32, index: u32) -> bool {
    u64::from(index) >> Leaf::<T, S>::BITS >> above == 0
}

/// Returns the link on the way to `index`, to a child below which `above` bits are decided above
/// the leaves.
///
/// # Safety
/// `node` is an inner node of the trie, which is not dropped as long as the result is used.
#[inline(always)]
unsafe fn link<'a, T, S>(node: *mut (), above: u32, index: u32) -> &'a AtomicPtr<()> {
    let child = index as usize >> Leaf::<T, S>::BITS >> above;
    // SAFETY: the caller promises an inner node of a trie that outlives the result (# Safety); the
    // remainder is below FAN.
    unsafe { &(*node.cast::<Inner>()).children[child % FAN] }
}

impl<T, S> Trie<T, S> {
    pub(super) fn new() -> Self {
        Self { root: AtomicPtr::new(ptr::null_mut()), _leaves: std::marker::PhantomData }
    }

    /// Returns the leaf with `index`, or null (namespace.N1): no store, and at most `HEIGHT` loads
    /// and one.
    #[inline(always)]
    pub(super) fn find(&self, index: u32) -> *mut Leaf<T, S> {
        // ORDER: Acquire here and below; pairs with Release in `grow` and `make_child`: a node's
        // contents before the link to it.
        let (mut node, mut above) = split(self.root.load(Ordering::Acquire));
        let leaf = index as usize >> Leaf::<T, S>::BITS;
        if above == 0 {
            return if leaf == 0 { node.cast() } else { ptr::null_mut() };
        }
        above -= ID_FAN_BITS;
        if leaf >> above >= FAN {
            return ptr::null_mut(); // no root of this height leads there
        }
        // SAFETY: namespace.N2 - the root is above the leaves, and lives as long as the trie.
        node = unsafe { link::<T, S>(node, above, index) }.load(Ordering::Acquire);
        while above != 0 && !node.is_null() {
            above -= ID_FAN_BITS;
            // SAFETY: namespace.N2 - `node` is above the leaves, and lives as long as the trie.
            node = unsafe { link::<T, S>(node, above, index) }.load(Ordering::Acquire);
        }
        node.cast()
    }

    /// Returns the leaf with `index`; makes it if need be.
    #[cold]
    pub(super) fn make(&self, index: u32, state: *const S) -> *mut Leaf<T, S> {
        let (mut node, mut above) = self.grow(index, state);
        while above != 0 {
            above -= ID_FAN_BITS;
            // SAFETY: namespace.N2 - `node` is above the leaves, and lives as long as the trie.
            node = make_child::<T, S>(unsafe { link::<T, S>(node, above, index) }, above, state);
        }
        node.cast()
    }

    /// Makes the trie high enough for `index`.
    fn grow(&self, index: u32, state: *const S) -> (*mut (), u32) {
        // ORDER: Acquire; as in `find`.
        let mut root = self.root.load_to_change(Ordering::Acquire);
        loop {
            let (node, above) = split(root);
            if node.is_null() {
                root = make_child::<T, S>(&self.root, 0, state); // a leaf
                continue;
            }
            if reaches::<T, S>(above, index) {
                return (node, above);
            }
            let higher = Inner::alloc();
            // SAFETY: just made, not shared.
            let first = unsafe { &(*higher).children[0] };
            // ORDER: Relaxed; published below.
            first.store(node, Ordering::Relaxed);
            let above = (above + ID_FAN_BITS) as usize;
            debug_assert!(
                above <= HEIGHT * ID_FAN_BITS as usize,
                "namespace.N2: {index} is beyond the highest trie"
            );
            let new = higher.cast::<()>().map_addr(|bits| bits | above);
            // ORDER: Release publishes the node; Acquire on failure reads the winner's.
            match self.root.compare_exchange(root, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => root = new,
                Err(now) => {
                    // SAFETY: from `Inner::alloc`, and linked nowhere.
                    unsafe { free_inner(higher) };
                    root = now;
                }
            }
        }
    }

    /// Marks the chunk of `index` as one with blocks of this class.
    pub(super) fn set_class(&self, index: u32, class: usize) {
        let leaf = self.find(index);
        // SAFETY: namespace.N2 - the chunk's taker has made the leaf.
        let entry = unsafe { (*leaf).class_at(index as usize % Leaf::<T, S>::LEN) };
        debug_assert!(
            cfg!(manycore_loom) || [0, class as u32 + 1].contains(&entry.load(Ordering::Relaxed)),
            "namespace.N6: the blocks of a chunk change their class"
        );
        // ORDER: Relaxed; read by holders of an id of the extent, which is published afterwards.
        entry.store(class as u32 + 1, Ordering::Relaxed);
    }

    /// Returns true if a block of this class begins at `index`.
    pub(super) fn begins(&self, index: u32, class: usize) -> bool {
        let leaf = self.find(index);
        let size = 1_u64 << class.min(Leaf::<T, S>::CHUNK_BITS as usize);
        // SAFETY: namespace.N2 - a leaf, if not null.
        u64::from(index) % size == 0
            && !leaf.is_null()
            && unsafe {
                // ORDER: Relaxed; see `set_class`. Another class means that the extent is forged.
                (*leaf).class_at(index as usize % Leaf::<T, S>::LEN).load(Ordering::Relaxed)
                    == class as u32 + 1
            }
    }

    /// Iterates over every leaf that has an index below `end`.
    pub(super) fn leaves(&self, end: u64) -> impl Iterator<Item = *mut Leaf<T, S>> {
        let starts = (0..end.min(1 << INDEX_BITS)).step_by(Leaf::<T, S>::LEN);
        starts.map(|start| self.find(start as u32)).filter(|leaf| !leaf.is_null())
    }

    /// Takes the nodes out.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }
}

/// Returns the node that `link` leads to. If there is none, makes a node that decides `above` bits
/// above the leaves.
fn make_child<T, S>(link: &AtomicPtr<()>, above: u32, state: *const S) -> *mut () {
    // ORDER: Acquire; as in `Trie::find`.
    let found = link.load_to_change(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let new: *mut () =
        if above == 0 { Leaf::<T, S>::alloc(state).cast() } else { Inner::alloc().cast() };
    // ORDER: Release publishes the node; Acquire on failure reads the winner's.
    match link.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(now) => {
            // SAFETY: just made, at this level, and linked nowhere.
            unsafe { free_nodes::<T, S>(new, above) };
            now
        }
    }
}

/// # Safety
/// `inner` came from `Inner::alloc`, and no other thread has it.
unsafe fn free_inner(inner: *mut Inner) {
    // SAFETY: the caller promises that `Inner::alloc` made the node, of this layout, and that no
    // other thread has it (# Safety); atomics need no drop.
    unsafe { alloc::dealloc(inner.cast(), Layout::new::<Inner>()) }
}

/// Frees a node that decides `above` bits above the leaves, and all nodes below it.
///
/// # Safety
/// It is such a node, and no other thread has it.
unsafe fn free_nodes<T, S>(node: *mut (), above: u32) {
    if node.is_null() {
        return;
    }
    if above == 0 {
        // SAFETY: namespace.N2 - the caller promises a node that decides nothing, which is a leaf,
        // and that no other thread has it (# Safety).
        return unsafe { Leaf::<T, S>::free(node.cast()) };
    }
    let inner = node.cast::<Inner>();
    for child in 0..FAN {
        // SAFETY: namespace.N2 - an inner node's children are one lower.
        // ORDER: Relaxed; not shared.
        let child = unsafe { (*inner).children[child].load(Ordering::Relaxed) };
        // SAFETY: a child of this node, one level lower, which no other thread has either.
        unsafe { free_nodes::<T, S>(child, above - ID_FAN_BITS) };
    }
    // SAFETY: namespace.N2 - the caller promises a node of this height that no other thread has
    // (# Safety); above the leaves it is an inner one, and its children are freed.
    unsafe { free_inner(inner) }
}

impl<T, S> Drop for Trie<T, S> {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        // ORDER: Relaxed; not shared.
        let (node, above) = split(self.root.load(Ordering::Relaxed));
        // SAFETY: the trie's own.
        unsafe { free_nodes::<T, S>(node, above) }
    }
}
