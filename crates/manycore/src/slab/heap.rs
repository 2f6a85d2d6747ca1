//! The heap of one slot: chunks, free lists, and remote frees.
//!
//! Laws slab.B1 to slab.B5 of the parent module. Owns: the fast paths. Everything except `remote`
//! belongs to the slot's owner.

mod away;
mod parcels;

use super::chunk::{self, Owner};
use super::layout::{Block, ChunkLayout};
use super::system::Reserve;
use crate::config::SMALL;
use crate::sync::{self, AtomicPtr, AtomicUsize, Ordering, UnsafeCell};
pub(super) use parcels::PARCEL_BLOCKS;
use parcels::Parcel;
use std::ptr;

/// A chunk of a heap.
pub(super) type Chunk = chunk::Chunk<Heap>;

/// Empty chunks that a heap keeps at first.
pub(super) const EMPTIES_MIN: usize = if SMALL { 1 } else { 16 };
/// Empty chunks that a heap keeps if it needs them again and again.
const EMPTIES_MAX: usize = if SMALL { 1 } else { 256 };
/// Blocks that a heap gathers for all other heaps.
const PACKED_MAX: usize = if SMALL { 4 } else { 512 };
/// Bytes from which a heap takes chunks from a reserve, of which at most 2 MiB lie idle.
const LARGE_BYTES: usize = 8 << 20;
/// A slot's part of a slab.
#[repr(C, align(128))]
pub(super) struct Heap {
    /// Number of blocks that this slot has allocated minus those that it has freed, of any slot.
    /// Wraps. (Like the next two fields, it is atomic only for `stats`: the owner loads and stores
    /// it.)
    live: AtomicUsize,
    chunks: AtomicUsize,
    /// Blocks in all chunks.
    blocks: AtomicUsize,
    local: UnsafeCell<Local>,
    remote: Remote,
}

/// Parcels that other slots sent, linked by their first blocks.
#[repr(align(128))]
struct Remote {
    list: AtomicPtr<Block>,
    /// Slot that the heap belongs to. Never changes.
    slot: usize,
}

#[repr(C)]
struct Local {
    /// Free blocks at hand, from any of the heap's chunks.
    free: *mut Block,
    /// When `live` has fallen to this, too many blocks are at hand.
    limit: usize,
    /// Chunks with free or fresh blocks.
    available: *mut Chunk,
    /// Chunks without a taken block.
    empties: *mut Chunk,
    empties_len: usize,
    /// Number of empty chunks to keep.
    empties_max: usize,
    /// Chunks that were given back and not fetched again.
    given_back: usize,
    /// All chunks.
    all: *mut Chunk,
    /// Memory for a large heap's next chunks.
    reserve: Reserve,
    /// Parcels that came home and are not at hand yet, linked by their first blocks.
    incoming: *mut Block,
    /// Blocks of other slots: no parcels until there is such a block, and a power of two from then
    /// on.
    parcels: Vec<Parcel>,
    /// Number of blocks in the parcels.
    packed: usize,
}

impl From<usize> for Heap {
    fn from(slot: usize) -> Self {
        Self {
            live: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            blocks: AtomicUsize::new(0),
            local: UnsafeCell::new(Local {
                free: ptr::null_mut(),
                limit: 0,
                available: ptr::null_mut(),
                empties: ptr::null_mut(),
                empties_len: 0,
                empties_max: EMPTIES_MIN,
                given_back: 0,
                all: ptr::null_mut(),
                reserve: Reserve::EMPTY,
                incoming: ptr::null_mut(),
                parcels: Vec::new(),
                packed: 0,
            }),
            remote: Remote { list: AtomicPtr::new(ptr::null_mut()), slot },
        }
    }
}

// SAFETY: slab.B1 - the pointers are used by the slot's owner alone, which changes by Release and
// Acquire (percpu.P2); `remote` is atomic.
unsafe impl Send for Heap {}
// SAFETY: slab.B1 - of a shared heap, `local` is touched by the slot's owner alone; other threads
// reach only `remote` and the counts, which are atomic.
unsafe impl Sync for Heap {}

/// Changes a number that only the calling thread writes. Returns the new value.
#[inline(always)]
fn add(counter: &AtomicUsize, change: isize) -> usize {
    // ORDER: Relaxed; others read it as a statistic.
    let new = counter.load(Ordering::Relaxed).wrapping_add_signed(change);
    counter.store(new, Ordering::Relaxed);
    new
}

impl Heap {
    /// Takes a block from those at hand.
    ///
    /// # Safety
    /// The calling thread owns the slot; `layout` is the slab's. The same goes for every method
    /// that requires nothing else.
    #[inline(always)]
    pub(super) unsafe fn pop(&self, layout: ChunkLayout) -> Option<*mut Block> {
        let block = self.local.with_mut(|local| {
            // SAFETY: slab.B1 - the caller owns the slot.
            let local = unsafe { &mut *local };
            let block = local.free;
            if !block.is_null() {
                // SAFETY: slab.B2 - what is on the list is owned by this slot.
                local.free = unsafe { (*block).next };
                // The next block may lie in the cache of another core, which freed it.
                sync::prefetch_for_write(local.free);
            }
            block
        });
        if block.is_null() {
            return None;
        }
        add(&self.live, 1);
        // SAFETY: slab.B2 - the block was on this heap's list, so it is a block of a live chunk of
        // this layout, and from here on the caller's alone.
        unsafe { Chunk::check_allocated(block, layout) };
        Some(block)
    }

    /// Takes a block, from wherever there is one.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`].
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn pop_slow(&self, layout: ChunkLayout, owner: Owner) -> *mut Block {
        loop {
            // SAFETY: slab.B1 - the caller promises that it owns the slot, and that `layout` is the
            // slab's (# Safety).
            if let Some(block) = unsafe { self.pop(layout) } {
                return block;
            }
            self.local.with_mut(|local| {
                // SAFETY: slab.B1 - the caller owns the slot.
                let local = unsafe { &mut *local };
                // SAFETY: slab.B1 - the caller promises that it owns the slot, and with it every
                // chunk here; `layout` and `owner` are the slab's (# Safety).
                unsafe { self.refill(local, layout, owner) };
            });
        }
    }

    /// Gets blocks to hand when none are: what came home, a chunk's free ones, or fresh ones. If
    /// nothing came home, sends other slots' blocks home, because these slots may wait for theirs
    /// as well.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`]; `local` is this heap's.
    unsafe fn refill(&self, local: &mut Local, layout: ChunkLayout, owner: Owner) {
        debug_assert!(local.free.is_null(), "slab.B2: blocks at hand are dropped");
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        let (list, len) = unsafe {
            let parcel = self.arrival(local);
            if !parcel.is_null() {
                (parcel, PARCEL_BLOCKS) // at most
            } else {
                local.send_all(layout);
                let chunk = self.chunk_with_blocks(local, layout, owner);
                let taken = Chunk::take(chunk, layout);
                if !Chunk::has_more(chunk) {
                    local.unlist(chunk);
                }
                taken
            }
        };
        debug_assert!(!list.is_null(), "slab.B4: a chunk on the list has no blocks");
        local.free = list;
        // ORDER: Relaxed; see `add`.
        let live = self.live.load(Ordering::Relaxed);
        local.limit = live.wrapping_sub(layout.ready.saturating_sub(len).max(layout.ready / 2));
    }

    /// Takes a parcel that came home, if there is one. Looks only at its first block: the others
    /// lie in the cache of the core that freed them.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`]; `local` is this heap's.
    unsafe fn arrival(&self, local: &mut Local) -> *mut Block {
        // ORDER: Relaxed; only whether it is worth a swap. (Always in a model: loom does not try
        // the orders of a load here and a load and CAS there, but those of a swap and the two.)
        let has_some = || !self.remote.list.load(Ordering::Relaxed).is_null();
        if local.incoming.is_null() && (cfg!(manycore_loom) || has_some()) {
            // ORDER: Acquire; pairs with Release in `Parcel::send`: the links, and what the last
            // users did with the blocks.
            local.incoming = self.remote.list.swap(ptr::null_mut(), Ordering::Acquire);
        }
        let first = local.incoming;
        if !first.is_null() {
            // SAFETY: slab.B3 - what came home is this slot's.
            local.incoming = unsafe { (*first).below };
            sync::prefetch(local.incoming);
        }
        first
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`]; and the block is in use, of this slab, and the caller's to free.
    #[inline(always)]
    pub(super) unsafe fn push(&self, block: *mut Block, layout: ChunkLayout) {
        // SAFETY: slab.B2 - the caller promises a block of this slab that is in use (# Safety), so
        // its chunk is live and has the slab's layout.
        unsafe { Chunk::check_freed(block, layout) };
        // SAFETY: a block that is in use keeps its chunk; `heap` never changes.
        let home = unsafe { (*Chunk::of(block, layout)).heap };
        let live = add(&self.live, -1);
        if !ptr::eq(home, self) {
            // SAFETY: slab.B1, slab.B2 - the caller promises that it owns the slot, and gives the
            // block up (# Safety). `home` is the block's heap, as its chunk says.
            unsafe { self.pack(block, home, layout) };
            return;
        }
        let limit = self.local.with_mut(|local| {
            // SAFETY: slab.B1 - the caller owns the slot.
            let local = unsafe { &mut *local };
            // SAFETY: slab.B2 - the caller gives the block up.
            unsafe { (*block).next = local.free };
            local.free = block;
            local.limit
        });
        if live == limit {
            // SAFETY: slab.B1 - the caller promises that it owns the slot (# Safety); the reference
            // to `local` has ended.
            unsafe { self.put_away(layout) };
        }
    }

    /// Returns a chunk with free or fresh blocks, which is on the list of such chunks.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`]; `local` is this heap's.
    unsafe fn chunk_with_blocks(
        &self,
        local: &mut Local,
        layout: ChunkLayout,
        owner: Owner,
    ) -> *mut Chunk {
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        unsafe {
            if !local.available.is_null() {
                return local.available;
            }
            let chunk = if local.empties.is_null() {
                self.fetch(local, layout, owner)
            } else {
                let empty = local.empties;
                local.empties = (*empty).own.next;
                local.empties_len -= 1;
                debug_assert!(
                    (*empty).own.taken == 0 && local.empties.is_null() == (local.empties_len == 0),
                    "slab.B4: the list of empty chunks has another length, or one in use"
                );
                empty
            };
            local.list(chunk);
            chunk
        }
    }

    /// Fetches a chunk from the system.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`]; `local` is this heap's.
    unsafe fn fetch(&self, local: &mut Local, layout: ChunkLayout, owner: Owner) -> *mut Chunk {
        if local.given_back > 0 {
            // Keeping that chunk would have been better.
            local.given_back -= 1;
            local.empties_max = EMPTIES_MAX.min(local.empties_max + 1);
        }
        // ORDER: Relaxed; see `add`.
        let is_large = self.chunks.load(Ordering::Relaxed) * layout.chunk >= LARGE_BYTES;
        let chunk = Chunk::make(self, layout, owner, is_large.then_some(&mut local.reserve));
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        unsafe {
            (*chunk).own.all_next = local.all;
            if !local.all.is_null() {
                (*local.all).own.all_previous = chunk;
            }
            add(&self.blocks, (*chunk).blocks as isize);
        }
        local.all = chunk;
        add(&self.chunks, 1);
        chunk
    }

    /// Gathers a block of another slot, and sends the gathered blocks if there are enough.
    ///
    /// # Safety
    /// Same as for [`Heap::pop`], and no reference to `local` is in use. The caller gives the block
    /// up, which belongs to `home`.
    #[inline(never)]
    unsafe fn pack(&self, block: *mut Block, home: *const Heap, layout: ChunkLayout) {
        self.local.with_mut(|local| {
            // SAFETY: slab.B1 - the caller owns the slot.
            let local = unsafe { &mut *local };
            // `live` fell although no more blocks are at hand.
            local.limit = local.limit.wrapping_sub(1);
            if local.parcel_for(home).heap != home {
                local.begin_parcel(home, layout);
            }
            let parcel = local.parcel_for(home);
            // SAFETY: slab.B2 - the caller gives the block up.
            unsafe { (*block).next = parcel.first };
            parcel.first = block;
            parcel.len += 1;
            if parcel.len >= PARCEL_BLOCKS {
                let sent = parcel.send(layout);
                local.packed -= sent - 1;
                return;
            }
            local.packed += 1;
            if local.packed >= PACKED_MAX {
                local.send_all(layout);
            }
        });
    }

    /// Returns what the slot allocated minus what it freed (wrapping), its chunks, and the blocks
    /// in them.
    pub(super) fn numbers(&self) -> (usize, usize, usize) {
        // ORDER: Relaxed; statistics.
        let number = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        (number(&self.live), number(&self.chunks), number(&self.blocks))
    }

    /// Gives everything back, in use or not.
    ///
    /// # Safety
    /// The slab is not used any more.
    pub(super) unsafe fn destroy(&self, layout: ChunkLayout) {
        self.local.with_mut(|local| {
            // SAFETY: the caller promises that the slab is not used any more (# Safety). So no
            // thread is in a heap or has a block, and no list of this heap is looked at again.
            unsafe {
                (*local).reserve.give_back();
                let mut chunk = (*local).all;
                while !chunk.is_null() {
                    let next = (*chunk).own.all_next;
                    Chunk::give_back(chunk, layout);
                    chunk = next;
                }
            }
        });
    }
}

impl Local {
    /// Puts a chunk on the list of chunks with free or fresh blocks.
    ///
    /// # Safety
    /// The caller owns the slot, and the chunk is one of its own that is not on the list.
    unsafe fn list(&mut self, chunk: *mut Chunk) {
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        unsafe {
            debug_assert!(!(*chunk).own.is_listed, "slab.B4: a chunk is listed twice");
            (*chunk).own.is_listed = true;
            (*chunk).own.previous = ptr::null_mut();
            (*chunk).own.next = self.available;
            if !self.available.is_null() {
                (*self.available).own.previous = chunk;
            }
        }
        self.available = chunk;
    }

    /// Takes a chunk from that list.
    ///
    /// # Safety
    /// The caller owns the slot, and the chunk is one of its own that is on the list.
    unsafe fn unlist(&mut self, chunk: *mut Chunk) {
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        unsafe {
            debug_assert!(
                (*chunk).own.is_listed,
                "slab.B4: a chunk is unlisted that is not listed"
            );
            (*chunk).own.is_listed = false;
            let (previous, next) = ((*chunk).own.previous, (*chunk).own.next);
            debug_assert!(
                previous.is_null() == ptr::eq(self.available, chunk)
                    && (previous.is_null() || ptr::eq((*previous).own.next, chunk))
                    && (next.is_null() || ptr::eq((*next).own.previous, chunk)),
                "slab.B1: the list of chunks with blocks is broken"
            );
            if previous.is_null() {
                self.available = next;
            } else {
                (*previous).own.next = next;
            }
            if !next.is_null() {
                (*next).own.previous = previous;
            }
        }
    }

    /// Takes a chunk from the list of all chunks.
    ///
    /// # Safety
    /// The caller owns the slot, and the chunk is one of its own.
    unsafe fn forget(&mut self, chunk: *mut Chunk) {
        // SAFETY: slab.B1 - the caller owns the slot, and with it every chunk here.
        unsafe {
            let (previous, next) = ((*chunk).own.all_previous, (*chunk).own.all_next);
            debug_assert!(
                previous.is_null() == ptr::eq(self.all, chunk)
                    && (previous.is_null() || ptr::eq((*previous).own.all_next, chunk))
                    && (next.is_null() || ptr::eq((*next).own.all_previous, chunk)),
                "slab.B1: the list of all chunks is broken"
            );
            if previous.is_null() {
                self.all = next;
            } else {
                (*previous).own.all_next = next;
            }
            if !next.is_null() {
                (*next).own.all_previous = previous;
            }
        }
    }
}
