//! Placements: a heap whose first block begins a given number of bytes into a cache line.
//!
//! This module owns the memory of one virtual thread's allocations while a check asks for a
//! placement (`manycore_sim::ConflictCheck`). Normally the data that share a line depend on earlier
//! allocations; here they depend only on the placement. Blocks follow each other as glibc's do in
//! fresh memory: multiples of 16 bytes, with a word for the size of each. If the placement says so,
//! blocks that are freed are allocated again as glibc's small blocks are: by size, the last one
//! first.
//!
//! Law placement.P2: a block of the region never reaches libc. Its memory is reused only within the
//! placement in which it was allocated, and only if the placing thread has freed it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{host, simulation};

/// Address space for all placements of a process. Unused pages take no memory.
const REGION: usize = 256 << 20;
const PAGE: usize = 4096;
/// Added to a shift: freed blocks are allocated again.
pub(crate) const REUSE: usize = 1 << 16;
/// Blocks up to this size are allocated again, as those of glibc's small bins.
const SMALL: usize = 1024;
/// Means that no thread's allocations come from the region.
const NONE: usize = usize::MAX;

// One kernel thread runs while a simulation is active (threads.S1), so no ordering is needed.
static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicUsize = AtomicUsize::new(NONE);
/// Where the present placement begins, if it reuses blocks.
static REUSED_FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
/// By size in units of 16 bytes: the block that was freed last; each has the address of the next.
static FREE: [AtomicUsize; SMALL / 16 + 1] = [const { AtomicUsize::new(0) }; SMALL / 16 + 1];

/// Lets the running thread allocate from a new page. `shift` is how many bytes into a line the
/// first block begins, with [`REUSE`] or without.
pub(crate) fn begin(shift: usize) {
    let (reuses, shift) = (shift & REUSE != 0, shift & !REUSE);
    if START.load(Relaxed) == 0 {
        START.store(host::map(0, REGION) as usize, Relaxed);
        NEXT.store(START.load(Relaxed), Relaxed);
    }
    if START.load(Relaxed) != 0 {
        let page = NEXT.load(Relaxed).next_multiple_of(PAGE);
        // A line's worth of room for the first block's size word.
        NEXT.store(page + 256 + shift.next_multiple_of(16), Relaxed);
        REUSED_FROM.store(if reuses { page } else { usize::MAX }, Relaxed);
        // placement.P2: nothing of an earlier placement.
        FREE.iter().for_each(|first| first.store(0, Relaxed));
        THREAD.store(simulation::with(|sim| sim.current), Relaxed);
    }
}

/// Returns true if the running thread's allocations are placed now.
fn is_placing() -> bool {
    let thread = THREAD.load(Relaxed);
    thread != NONE && simulation::active() && simulation::with(|sim| sim.current) == thread
}

/// Lets allocations come from libc again.
pub(crate) fn end() {
    THREAD.store(NONE, Relaxed);
}

/// Returns a block of the region, if the running thread allocates from there and there is room.
#[inline]
pub(crate) fn take(alignment: usize, bytes: usize) -> Option<*mut u8> {
    if !is_placing() {
        return None;
    }
    let size = (bytes.checked_add(8)?.checked_next_multiple_of(16)?).max(32);
    if let Some(first) = FREE.get(size / 16) {
        let block = first.load(Relaxed);
        if block != 0 && block % alignment == 0 {
            // SAFETY: placement.P2 - a free block of this size; `free` wrote its first word.
            first.store(unsafe { *(block as *const usize) }, Relaxed);
            return Some(block as *mut u8);
        }
    }
    let block = NEXT.load(Relaxed).checked_next_multiple_of(alignment.max(16))?;
    let end = block.checked_add(size)?;
    if end > START.load(Relaxed) + REGION {
        return None;
    }
    NEXT.store(end, Relaxed);
    // SAFETY: placement.P2 - the word before the block belongs to the region and to no other block:
    // blocks begin 256 bytes into it, and each ends at least 8 bytes before its `end`.
    unsafe { *((block - 8) as *mut usize) = size | 1 };
    Some(block as *mut u8)
}

/// Takes back a block of the region. Returns false for a foreign block.
pub(crate) fn free(block: *mut u8) -> bool {
    let Some(room) = room(block) else { return false };
    if block as usize >= REUSED_FROM.load(Relaxed)
        && is_placing()
        && let Some(first) = FREE.get((room + 8) / 16)
    {
        // SAFETY: placement.P2 - the block has at least 24 bytes, and nobody uses it any more.
        unsafe { *block.cast::<usize>() = first.load(Relaxed) };
        first.store(block as usize, Relaxed);
    }
    true
}

/// Returns the bytes that a block of the region has room for, or `None` for a foreign block.
#[inline]
pub(crate) fn room(block: *mut u8) -> Option<usize> {
    let start = START.load(Relaxed);
    let is_ours = start != 0 && (start..start + REGION).contains(&(block as usize));
    // SAFETY: placement.P2 - a block in the region came from `take`, which wrote this word.
    is_ours.then(|| unsafe { *((block as usize - 8) as *const usize) } - 1 - 8)
}
