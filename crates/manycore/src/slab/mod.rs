//! A slab allocator: memory for objects of one type, from thread-local chunks.
//!
//! [`Slab<T>`](Slab) allocates and frees memory for `T`. Allocation and free on one thread access
//! no line that another thread writes; a remote free returns the memory to its owner.
//!
//! ```
//! use manycore::slab::Slab;
//!
//! struct Node {
//!     key: u64,
//! }
//! static NODES: Slab<Node> = Slab::new();
//!
//! let node = NODES.alloc(Node { key: 7 });
//! std::thread::spawn(move || assert_eq!(node.key, 7)).join().unwrap(); // freed over there
//! assert_eq!(NODES.stats().live, 0);
//! ```
//!
//! [`Slab`] states its costs, memory and limits. Its [`stats`](Slab::stats) say what is in use, and
//! [`Slab::trim`] gives back what a thread keeps for later.
//!
//! ```text
//! slot's heap:   blocks at hand  <-- refill --  chunk's own list, or fresh blocks
//!                     |                              ^
//!                     '------- put away -------------'
//! other slots:   parcel of 32 blocks --one CAS--> heap's list of blocks that came home
//! system:        empty chunks beyond 16 (up to 256) go back
//! ```
//!
//! # Laws
//!
//! Owns: chunks, and which slot has which block. Does not own: safe reclamation under readers
//! (read-side sections do: they take nodes from `slab::classes`, and free them after the grace
//! period).
//!
//! - slab.B1 A chunk, and the lists of a slot's heap, belong to the slot: only its owner looks into
//!   them. They stay with the slot when its thread ends, and the slot's next owner continues them
//!   (Release and Acquire, law percpu.P2). No other thread takes them.
//! - slab.B2 A block is in one place: with a user, at hand in its heap, on its chunk's list, in a
//!   parcel of another slot, on its heap's list of blocks that came home, or never used yet.
//! - slab.B3 Blocks of another slot are gathered, and sent home in parcels by one CAS. The owner of
//!   the list that they are sent to only ever takes it whole, so there is no ABA. A parcel's blocks
//!   are a list of their own; the owner touches only the first before it needs them. If the slot
//!   has no owner, the sender takes the slot (percpu.P2), and puts away what came home. So threads
//!   that free what an ended thread left behind also give it back.
//! - slab.B4 A chunk goes back to the system when all of its blocks are on its own list or fresh. A
//!   slot keeps 16 such chunks, and up to 256 if it turns out to fetch again what it gave back.
//!   Blocks at hand (64 KiB, at most 1,024 and at least 4), in a parcel or on their way home hold
//!   their chunk. What a large slot has in reserve for further chunks belongs to its owner, too.
//! - slab.B5 Chunks are aligned to their size, which is 64 KiB or more, and belong to one slot. So
//!   two objects that two slots allocated never share a line, nor a pair of lines.
//!
//! Source: J. Bonwick, *The slab allocator*, 1994; [ParSec](crate#sources), section 3.4 (slabs of a
//! thread's own, remote frees); D. Leijen, B. Zorn, L. de Moura, *Mimalloc: free list sharding in
//! action*, 2019 (a list for each chunk).

mod boxed;
mod check;
mod chunk;
pub(crate) mod classes;
mod heap;
pub(crate) mod large_array;
mod layout;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod system;
#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests;

pub use boxed::SlabBox;
pub use classes::{allocate, free};

#[cfg(not(any(manycore_loom, manycore_shuttle, miri, manycore_sanitized)))]
use crate::percpu::Slot;
use crate::percpu::slot_table::SlotBoxes;
use crate::percpu::{own_slot, with_own_slot};
use crate::sync::{const_fn, model_failed};
use chunk::{HEADER_BYTES, Owner};
use heap::{Chunk, Heap};
use layout::{Block, ChunkLayout};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Memory for objects of type `T`, from the calling thread's own chunks.
///
/// What for: objects that many threads make and free all the time, often on another thread than the
/// one that made them. A slab has its own figures ([`stats`](Self::stats)), and its memory goes
/// back with it. When not: for a few objects, because a thread that uses a slab has a chunk of it.
/// Nor for the nodes of read-side sections, which are in such memory already.
///
/// ```
/// let slab = manycore::slab::Slab::new();
/// let boxes: Vec<_> = (0..1000_u64).map(|number| slab.alloc(number)).collect();
/// assert_eq!(boxes.iter().map(|number| **number).sum::<u64>(), 499_500);
/// assert_eq!(slab.stats().live, 1000);
/// drop(boxes);
/// assert_eq!(slab.stats().live, 0);
/// ```
///
/// - *Cost*: allocation and free on one thread are some plain loads and stores each, together a few
///   nanoseconds. A free on another thread adds one atomic instruction for 32 objects. Now and then
///   an operation does more. It moves 32 KiB of objects to or from their chunks, or fetches a chunk
///   from the system (a system call, then a page fault for each page used).
/// - *Progress*: no lock. A free never waits, and an allocation waits only for the system.
/// - *Memory, chunks*: chunks of 64 KiB (for large objects, of a power of two above twelve
///   objects), with a header of 256 bytes. An object takes its size, 16 bytes at least, rounded up
///   to its alignment. The slab itself takes 272 bytes, and 384 for each slot that used it.
/// - *Memory, kept*: a slot keeps about 64 KiB of free objects at hand (1,024 at most), and 16
///   empty chunks, or up to 256 if it had to fetch again what it gave back. Other empty chunks go
///   back to the system. A slot that frees other slots' objects holds up to 512 of them until it
///   has 32 for one owner, or has none at hand and none came home. A slot with 8 MiB takes further
///   chunks in huge pages, if Linux has some (`madvise`), of which at most 2 MiB lie idle.
///   [`Slab::trim`] gives all that back.
/// - *Threads that end* leave their chunks to the thread that gets their slot next. Other threads
///   put away what they free meanwhile, so empty chunks go back. If others free objects of a live
///   thread, the memory waits until that thread allocates, or calls [`Slab::trim`]. In a thread's
///   last destructors a slab works as always.
/// - *NUMA*: a page belongs to the node of the core that touches it first, which is that of the
///   allocating thread. A slot that passes to a thread on another node takes its chunks along.
/// - *Fork*: the child has a copy and goes on. The chunks of threads that did not survive are not
///   used again; their objects can be freed.
/// - *Errors*: out of memory ends the process, as for `Box`.
/// - *Panics*: never, but debug builds check that memory is freed once and not written afterwards.
/// - *Limits*: `T` has at most 64 KiB and an alignment of at most 4,096, checked when it is
///   compiled. Types without size work, and take 16 bytes.
///
/// An object cannot outlive its slab:
///
/// ```compile_fail,E0597
/// let object = {
///     let slab = manycore::slab::Slab::new();
///     slab.alloc(1)
/// };
/// ```
///
/// Too large an object does not compile:
///
/// ```compile_fail,E0080
/// let slab = manycore::slab::Slab::<[u8; 100_000]>::new();
/// ```
#[doc(alias = "free list")]
#[doc(alias = "object cache")]
pub struct Slab<T> {
    heaps: SlotBoxes<Heap>,
    owner: Owner,
    /// Holds no `T`: values left in a slab are not dropped.
    object: PhantomData<fn() -> T>,
}

impl<T> Slab<T> {
    const LAYOUT: ChunkLayout = ChunkLayout::of::<T>(HEADER_BYTES);

    const_fn! {
        /// Makes a slab without memory yet.
        #[must_use]
        pub const fn new() -> Self {
            Self::with_owner(ptr::null())
        }
    }

    /// Puts `value` into memory of the slab.
    #[inline]
    pub fn alloc(&self, value: T) -> SlabBox<'_, T> {
        SlabBox::new(self, value)
    }

    /// Returns memory for a `T`, without a `T` in it. For callers that free by [`Slab::free_raw`].
    /// Memory that is not freed goes with the slab.
    #[inline]
    pub fn alloc_raw(&self) -> NonNull<T> {
        // SAFETY: the heap is that of the calling thread's slot (slab.B1).
        let block = self.own_heap().and_then(|heap| unsafe { heap.pop(Self::LAYOUT) });
        let block = block.unwrap_or_else(|| self.alloc_slow());
        // SAFETY: blocks are not null.
        unsafe { NonNull::new_unchecked(block.cast()) }
    }

    /// Takes memory back. Does not drop what is in it.
    ///
    /// # Safety
    /// `object` is what [`Slab::alloc_raw`] (or [`SlabBox::into_raw`]) of this slab returned, and
    /// that memory is not used any more.
    #[inline]
    pub unsafe fn free_raw(&self, object: NonNull<T>) {
        let block = object.as_ptr().cast();
        match self.own_heap() {
            // SAFETY: slab.B1 - the heap is that of the calling thread's slot; the caller promises
            // an object of this slab that is not used any more (# Safety).
            Some(heap) => unsafe { heap.push(block, Self::LAYOUT) },
            // SAFETY: slab.B1 - `with_heap` gives the heap of a slot that is this thread's for the
            // call. The caller promises an object of this slab that is not used any more (#
            // Safety).
            None => self.with_heap(|heap| unsafe { heap.push(block, Self::LAYOUT) }),
        }
    }

    const_fn! {
        /// Same as [`new`](Self::new), with a pointer that [`owner_of`](Self::owner_of) returns for
        /// each object. The slab never follows it.
        #[must_use]
        pub const fn with_owner(owner: *const ()) -> Self {
            let _checked = Self::LAYOUT;
            Self { heaps: SlotBoxes::new(), owner: Owner(owner), object: PhantomData }
        }
    }

    /// Returns the pointer that the object's slab was made with: for code that frees objects of
    /// many slabs, and would otherwise store the owner in each.
    ///
    /// *Cost*: a line for each 64 KiB of objects, which is never written.
    ///
    /// # Safety
    /// `object` is what [`Slab::alloc_raw`] or [`SlabBox::into_raw`] of a slab of `T` returned, and
    /// was not freed.
    ///
    /// ```
    /// use manycore::slab::Slab;
    ///
    /// let name = "numbers";
    /// let slab = Slab::<u64>::with_owner((&raw const name).cast());
    /// let object = slab.alloc_raw();
    /// // SAFETY: allocated just now, and freed once; the owner is a name that still lives.
    /// unsafe {
    ///     assert_eq!(*Slab::owner_of(object).cast::<&str>(), "numbers");
    ///     slab.free_raw(object);
    /// }
    /// ```
    #[inline(always)]
    #[must_use]
    pub unsafe fn owner_of(object: NonNull<T>) -> *const () {
        // SAFETY: slab.B4 - the caller promises that the object was not freed (# Safety), and a
        // block in use keeps its chunk; `owner` never changes.
        unsafe { (*Chunk::of(object.as_ptr().cast(), Self::LAYOUT)).owner.0 }
    }

    /// Sends home what this thread has freed of other threads' objects, and gives the system what
    /// this thread keeps for later.
    ///
    /// *Cost*: in proportion to what there is to do.
    pub fn trim(&self) {
        self.with_heap(|heap| {
            // SAFETY: slab.B1 - the slot is the calling thread's for the length of the call.
            unsafe { heap.trim(Self::LAYOUT, 0) };
        });
    }

    /// Same as [`trim`](Self::trim) for a slot when its thread ends; keeps an empty chunk for the
    /// next owner.
    #[cfg(not(any(manycore_loom, manycore_shuttle, miri, manycore_sanitized)))]
    pub(crate) fn trim_before_exit(&self, slot: Slot) {
        if let Some(heap) = self.heaps.get(slot.index()) {
            // SAFETY: slab.B1 - the slot is still the calling thread's.
            unsafe { heap.trim(Self::LAYOUT, 1) };
        }
    }

    /// Returns how much memory there is, and how much is in use.
    ///
    /// *Consistency*: exact while no thread uses the slab; otherwise it may miss operations under
    /// way. *Cost*: a line for each slot.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (mut live, mut chunks, mut blocks) = (0_usize, 0, 0_usize);
        for (_, heap) in self.heaps.iter() {
            let numbers = heap.numbers();
            live = live.wrapping_add(numbers.0);
            chunks += numbers.1;
            blocks += numbers.2;
        }
        // While others are at work, a free may be seen and its allocation not.
        let live = if (live as isize) < 0 { 0 } else { live };
        Stats {
            live,
            cached: blocks.saturating_sub(live),
            chunks,
            bytes: chunks * Self::LAYOUT.chunk,
        }
    }

    #[inline(always)]
    fn own_heap(&self) -> Option<&Heap> {
        self.heaps.get(own_slot()?.index())
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self) -> *mut Block {
        // SAFETY: slab.B1 - the slot is the calling thread's for the length of the call.
        self.with_heap(|heap| unsafe { heap.pop_slow(Self::LAYOUT, self.owner) })
    }

    /// Runs `f` with the heap of a slot that belongs to the calling thread meanwhile.
    #[cold]
    #[inline(never)]
    fn with_heap<R>(&self, f: impl FnOnce(&Heap) -> R) -> R {
        with_own_slot(|slot| f(self.heaps.get_or_init(slot.index())))
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        for (_, heap) in self.heaps.iter() {
            // SAFETY: `&mut self` - no box is left but forgotten ones, and raw users are told.
            unsafe { heap.destroy(Self::LAYOUT) };
        }
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// Figures of a [`Slab`]'s memory.
///
/// ```
/// let slab = manycore::slab::Slab::new();
/// drop(slab.alloc(1_u64));
/// let stats = slab.stats();
/// assert_eq!((stats.live, stats.chunks), (0, 1)); // its chunk is kept for the next object
/// assert!(stats.cached > 1000 && stats.bytes >= 8 * stats.cached);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Objects in use.
    pub live: usize,
    /// Further objects that there is memory for.
    pub cached: usize,
    /// Chunks that the slab has from the system.
    pub chunks: usize,
    /// Bytes of the chunks. Pages that were never used are counted, and cost nothing.
    pub bytes: usize,
}
