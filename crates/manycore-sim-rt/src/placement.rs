//! Placements: a heap whose first block begins a given number of bytes into a cache line.
//!
//! This module owns the memory of one virtual thread's allocations while a check asks for a
//! placement (`manycore_sim::ConflictCheck`). Normally the data that share a line depend on earlier
//! allocations; here they depend only on the placement. Blocks follow each other as glibc's do in
//! fresh memory: multiples of 16 bytes, with a word for the size of each.
//!
//! Law placement.P2: a block of the region never reaches libc, and its memory is not reused.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{host, simulation};

/// Address space for all placements of a process. Unused pages take no memory.
const REGION: usize = 256 << 20;
const PAGE: usize = 4096;
/// Means that no thread's allocations come from the region.
const NONE: usize = usize::MAX;

// One kernel thread runs while a simulation is active (threads.S1), so no ordering is needed.
static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicUsize = AtomicUsize::new(NONE);

/// Lets the running thread allocate from a new page, beginning `shift` bytes into a line.
pub(crate) fn begin(shift: usize) {
    if START.load(Relaxed) == 0 {
        START.store(host::map(0, REGION) as usize, Relaxed);
        NEXT.store(START.load(Relaxed), Relaxed);
    }
    if START.load(Relaxed) != 0 {
        let page = NEXT.load(Relaxed).next_multiple_of(PAGE);
        // A line's worth of room for the first block's size word.
        NEXT.store(page + 256 + shift.next_multiple_of(16), Relaxed);
        THREAD.store(simulation::with(|sim| sim.current), Relaxed);
    }
}

/// Lets allocations come from libc again.
pub(crate) fn end() {
    THREAD.store(NONE, Relaxed);
}

/// Returns a block of the region, if the running thread allocates from there and there is room.
#[inline]
pub(crate) fn take(alignment: usize, bytes: usize) -> Option<*mut u8> {
    let thread = THREAD.load(Relaxed);
    if thread == NONE || !simulation::active() || simulation::with(|sim| sim.current) != thread {
        return None;
    }
    let block = NEXT.load(Relaxed).checked_next_multiple_of(alignment.max(16))?;
    let size = (bytes.checked_add(8)?.checked_next_multiple_of(16)?).max(32);
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

/// Returns the bytes that a block of the region has room for, or `None` for a foreign block.
#[inline]
pub(crate) fn room(block: *mut u8) -> Option<usize> {
    let start = START.load(Relaxed);
    let is_ours = start != 0 && (start..start + REGION).contains(&(block as usize));
    // SAFETY: placement.P2 - a block in the region came from `take`, which wrote this word.
    is_ours.then(|| unsafe { *((block as usize - 8) as *const usize) } - 1 - 8)
}
