//! Extents: contiguous ids, allocated and freed as a whole.
//!
//! An extent's block is as large as the next power of two, and is reused only for extents of that
//! class: free blocks are neither split nor joined.

use super::id::{EXTENT, Extent, HELD, Id, dead, generation_in, index_in};
use super::local::Local;
use super::pool::CLASSES;
use super::space::{Back, Full, IdSpace, publish, retract};
use super::state::{Block, Leaf, State};
use super::trie::NodeSlot;
use super::{MAX_EXTENT, id};
use crate::section::{Section, Weight};
use crate::sync::{LoadToChange, Ordering, seeded_bug};
use std::mem;
use std::ptr::NonNull;

/// The slots of a block, in order.
struct Slots<T> {
    leaf: *mut Leaf<T>,
    offset: usize,
    left: usize,
}

impl<T> Slots<T> {
    /// # Safety
    /// `first` is a slot that lives as long as this is used, its index is `index`, and it is the
    /// first of a block of at least `len`.
    unsafe fn new(first: *mut NodeSlot<T>, index: u32, len: usize) -> Self {
        // SAFETY: namespace.N2 - the caller promises that `first` is a live slot with this index
        // (# Safety), and every slot is in a leaf, which lives as long.
        let leaf = unsafe { Leaf::of(first, index) };
        Self { leaf, offset: index as usize % Leaf::<T>::LEN, left: len }
    }
}

impl<T> Iterator for Slots<T> {
    type Item = *mut NodeSlot<T>;

    fn next(&mut self) -> Option<*mut NodeSlot<T>> {
        self.left = self.left.checked_sub(1)?;
        if self.offset == Leaf::<T>::LEN {
            // SAFETY: namespace.N2 - a leaf.
            // ORDER: Relaxed; see `State::make_slots`, which linked the leaves of this block before
            // it was handed out.
            self.leaf = unsafe { (*self.leaf).next.load(Ordering::Relaxed) };
            self.offset = 0;
        }
        // SAFETY: namespace.N2 - a leaf of the block, and the offset is below LEN.
        let slot = unsafe { Leaf::slot(self.leaf, self.offset) };
        self.offset += 1;
        Some(slot)
    }
}

impl<T: Send + Sync + 'static> IdSpace<'_, T> {
    /// Adds `len` nodes with contiguous ids, each made by `f` with its offset and its id.
    ///
    /// What for: nodes that are found by a base and an offset, such as pages of a region or parts
    /// of a file. Remove them as a whole by [`remove_extent`](Self::remove_extent).
    ///
    /// If `f` panics, the nodes made so far are dropped and the ids are free again. Consistency:
    /// before this returns, some of the ids may lead to their nodes. Cost: that of `len` inserts;
    /// memory for the next power of two, which is reused only for extents of that class.
    ///
    /// ```
    /// use manycore::{namespace::IdSpace, section};
    /// let frames = IdSpace::new();
    /// let section = section::enter();
    /// let region = frames.insert_extent(5, |offset, _id| offset as u64 * 4096, &section);
    /// assert_eq!(frames.get_in(region, 4, &section), Some(&16384));
    /// assert_eq!(frames.get_in(region, 5, &section), None);
    /// assert!(frames.remove_extent(region, &section));
    /// assert_eq!(frames.get_in(region, 4, &section), None);
    /// ```
    ///
    /// # Panics
    /// If `len` is zero or above [`MAX_EXTENT`], if the section is of another domain, or if there
    /// are no ids left; see [`try_insert_extent`](Self::try_insert_extent).
    pub fn insert_extent(
        &self,
        len: usize,
        f: impl FnMut(usize, Id) -> T,
        section: &Section<'_>,
    ) -> Extent {
        match self.try_insert_extent(len, f, section) {
            Ok(extent) => extent,
            Err(Full) => panic!("manycore: {Full}, for an extent of {len}"),
        }
    }

    /// Same as [`insert_extent`](Self::insert_extent), for callers that can do without the extent.
    ///
    /// # Errors
    /// If there are not that many contiguous ids left. `f` has not been called then.
    ///
    /// # Panics
    /// If `len` is zero or above [`MAX_EXTENT`], or if the section is of another domain.
    pub fn try_insert_extent(
        &self,
        len: usize,
        mut f: impl FnMut(usize, Id) -> T,
        section: &Section<'_>,
    ) -> Result<Extent, Full> {
        self.expect_section(section);
        assert!(len != 0, "manycore: an extent of zero ids; it needs at least one");
        assert!(len <= MAX_EXTENT, "manycore: an extent of {len} ids; the most is {MAX_EXTENT}");
        let class = id::class_of(len);
        let local = self.local(section);
        let block = self.state().take(local, class, &self.trie).ok_or(Full)?;
        let first = Id::new(self.tag, EXTENT, block.index, block.next_generation());
        let extent = Extent::new(first, len as u32);
        let mut making = Making { state: self.state(), local, block, class, made: 0 };
        for (offset, slot) in making.slots(len).enumerate() {
            let value = f(offset, extent.id(offset));
            // SAFETY: namespace.N3 - the block is ours alone until its ids are published.
            unsafe { (&raw mut (*slot).value).cast::<T>().write(value) };
            making.made += 1;
        }
        // SAFETY: namespace.N2 - a slot of this space.
        let show = |(slot, id): (*mut NodeSlot<T>, Id)| publish(unsafe { &(*slot).word }, id);
        let mut all = making.slots(len).zip(extent.ids());
        let mut head = all.next();
        // BUG: an extent's first id is published before the others (`namespace`'s extents).
        if seeded_bug!("head-first") {
            head.take().into_iter().for_each(show);
        }
        all.for_each(show);
        // The first id comes last: a removal of the extent begins there, and must find all.
        head.into_iter().for_each(show);
        mem::forget(making);
        local.count(len as u64);
        Ok(extent)
    }

    /// Returns the node at `offset` in `extent`, or `None` if the extent is not that long, or if
    /// the node is removed.
    ///
    /// Cost and panics: those of [`get`](Self::get).
    #[inline]
    pub fn get_in<'s>(
        &'s self,
        extent: Extent,
        offset: usize,
        section: &'s Section<'_>,
    ) -> Option<&'s T> {
        if offset >= extent.len() {
            return None;
        }
        self.get(extent.id(offset), section)
    }

    /// Removes the nodes of `extent`. Returns true if they were still there. If several calls
    /// remove it, exactly one returns true.
    ///
    /// Consistency: the first id is dead at the call's one moment, the others soon after it. The
    /// nodes are dropped, and the ids reused, as for [`remove`](Self::remove). Cost: a
    /// compare-and-exchange, and a store for each id.
    ///
    /// # Panics
    /// Same as [`remove`](Self::remove).
    pub fn remove_extent(&self, extent: Extent, section: &Section<'_>) -> bool {
        self.expect_section(section);
        let (first, class) = (extent.first(), extent.class());
        // A forged extent: its block would not be one of this space.
        if class >= CLASSES || !self.trie.begins(first.index(), class) {
            return self.miss::<()>(first).is_some();
        }
        let Some(slot) = self.slot(first) else {
            return self.miss::<()>(first).is_some();
        };
        // SAFETY: namespace.N2 - a slot of this space.
        if !retract(unsafe { &(*slot.as_ptr()).word }, first) {
            return self.miss::<()>(first).is_some();
        }
        // SAFETY: namespace.N2 - the block is of this class, and begins here.
        let slots = unsafe { Slots::new(slot.as_ptr(), first.index(), 1 << class) };
        // Its real length, whatever `extent` says, is the number of ids found here.
        let mut removed = 1;
        for (offset, slot) in slots.enumerate().skip(1) {
            // SAFETY: namespace.N2 - a slot of this space.
            if !retract(unsafe { &(*slot).word }, first.at(offset)) {
                break;
            }
            removed += 1;
        }
        let local = self.local(section);
        local.count((removed as u64).wrapping_neg());
        let weight = Weight::holding::<T>(removed * size_of::<NodeSlot<T>>());
        local.debit();
        // SAFETY: namespace.N4 - unlinked just now by us alone, since only the thread that retracts
        // the first id retracts the others; the rest as in `remove`.
        local.in_removal(|| unsafe { section.retire_raw(slot.cast(), weight, come_back::<T>) });
        true
    }
}

/// A block while its nodes are being made. Dropping this undoes it if user code panics.
struct Making<'a, T> {
    state: &'a State<T>,
    local: &'a Local,
    block: Block<T>,
    class: usize,
    made: usize,
}

impl<T> Making<'_, T> {
    fn slots(&self, len: usize) -> Slots<T> {
        // SAFETY: namespace.N2 - the block's first slot; `len` is of its class.
        unsafe { Slots::new(self.block.slot, self.block.index, len) }
    }
}

impl<T> Drop for Making<'_, T> {
    fn drop(&mut self) {
        for slot in self.slots(self.made) {
            // SAFETY: namespace.N3 - made, and not published.
            unsafe { (&raw mut (*slot).value).cast::<T>().drop_in_place() };
        }
        self.state.untake(self.local, self.class, &self.block);
    }
}

/// The nodes of a removed extent that have not been dropped yet.
struct Rest<T>(Slots<T>);

impl<T> Rest<T> {
    fn drop_nodes(&mut self) {
        for slot in &mut self.0 {
            // SAFETY: namespace.N2 - a slot of a block that no other thread has.
            let word = unsafe { &(*slot).word };
            // ORDER: Relaxed; ours alone, since the grace period is over.
            let bits = word.load_to_change(Ordering::Relaxed);
            if Id::in_word(bits).is_some() || bits & HELD == 0 {
                break; // behind the extent's end
            }
            word.store(dead(index_in(bits), generation_in(bits), 0), Ordering::Relaxed);
            // SAFETY: namespace.N4 - it is there, and no reader can hold it any more.
            unsafe { (&raw mut (*slot).value).cast::<T>().drop_in_place() };
        }
    }
}

impl<T> Drop for Rest<T> {
    /// Continues where a destructor panicked.
    fn drop(&mut self) {
        self.drop_nodes();
    }
}

/// Called when a removed extent's grace period is over.
///
/// # Safety
/// namespace.N4: `address` is a slot that `remove_extent` retired, and this is the only call for
/// it.
unsafe fn come_back<T>(address: NonNull<()>) {
    let slot = address.cast::<NodeSlot<T>>().as_ptr();
    // SAFETY: namespace.N7 - the slot and its leaf stay until the block has come back.
    // ORDER: Relaxed; the word is ours, since the grace period is over.
    let (state, index, class) = unsafe {
        let index = index_in((*slot).word.load(Ordering::Relaxed));
        let leaf = Leaf::of(slot, index);
        ((*leaf).state, index, (*leaf).class_of(index))
    };
    debug_assert!(class < CLASSES, "namespace.N6: no class is {class}");
    let _back = Back { state, slot, class };
    // SAFETY: namespace.N2 - a block of this class.
    let mut rest = Rest(unsafe { Slots::new(slot, index, 1 << class) });
    rest.drop_nodes();
}
