//! The program's heap: libc's own, at a flat price per call.
//!
//! libc's allocator is not instrumented and its calls do not switch threads, so its cost is a
//! number of the machine model. Each thread gets an arena of its own, as on a large machine, so
//! that what two threads allocate does not share lines by accident of the host's few cores.

use std::ffi::c_int;

use crate::{placement, simulation};

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut u8;
    fn __libc_free(block: *mut u8);
    fn __libc_calloc(count: usize, bytes: usize) -> *mut u8;
    fn __libc_realloc(block: *mut u8, bytes: usize) -> *mut u8;
    fn __libc_memalign(alignment: usize, bytes: usize) -> *mut u8;
}

/// From so many bytes on, libc takes a block from the system, which has filled it.
const FROM_SYSTEM: usize = 128 << 10;

fn charge() {
    if simulation::active() {
        simulation::with(simulation::Simulation::charge_malloc);
    }
}

/// Notes a block, and returns it.
fn noted(block: *mut u8, bytes: usize) -> *mut u8 {
    if simulation::active() {
        simulation::with(|sim| sim.allocated(block as usize, bytes));
    }
    block
}

/// Notes that a block is given back.
fn noted_gone(block: *mut u8) {
    if simulation::active() {
        simulation::with(|sim| sim.freed(block as usize));
    }
}

/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut u8 {
    charge();
    let placed = placement::take(16, bytes);
    // SAFETY: passed on.
    noted(placed.unwrap_or_else(|| unsafe { __libc_malloc(bytes) }), bytes)
}

/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut u8) {
    charge();
    noted_gone(block);
    if placement::room(block).is_some() {
        return; // sim_rt.P2
    }
    // SAFETY: passed on.
    unsafe { __libc_free(block) }
}

/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut u8 {
    charge();
    let all = count.saturating_mul(bytes);
    if simulation::active() && all < FROM_SYSTEM {
        simulation::with(|sim| sim.charge_fill(all));
    }
    // Fresh pages are zero, and sim_rt.P2: no block is used again.
    let placed = count.checked_mul(bytes).and_then(|all| placement::take(16, all));
    // SAFETY: passed on.
    let block = placed.unwrap_or_else(|| unsafe { __libc_calloc(count, bytes) });
    noted(block, all)
}

/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut u8, bytes: usize) -> *mut u8 {
    charge();
    let room = placement::room(block);
    if room.is_none() && !block.is_null() {
        // SAFETY: passed on.
        let new = unsafe { __libc_realloc(block, bytes) };
        // Null for no bytes, or for no memory: then the block is still there.
        if !new.is_null() || bytes == 0 {
            noted_gone(block);
        }
        return noted(new, bytes);
    }
    let new = placement::take(16, bytes);
    // SAFETY: passed on; both blocks are good for the bytes that are copied: the new one's size
    // and the old one's room are no less.
    unsafe {
        let new = new.unwrap_or_else(|| __libc_malloc(bytes));
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(block, new, room.unwrap_or(0).min(bytes));
        }
        noted_gone(block);
        noted(new, bytes)
    }
}

/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut u8,
    alignment: usize,
    bytes: usize,
) -> c_int {
    const ENOMEM: c_int = 12;
    charge();
    let placed = placement::take(alignment, bytes);
    // SAFETY: passed on; the caller's pointer is good for a word.
    unsafe {
        let block = placed.unwrap_or_else(|| __libc_memalign(alignment, bytes));
        if block.is_null() {
            return ENOMEM;
        }
        *out = noted(block, bytes);
    }
    0
}

/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut u8 {
    charge();
    let placed = placement::take(alignment, bytes);
    // SAFETY: passed on.
    noted(placed.unwrap_or_else(|| unsafe { __libc_memalign(alignment, bytes) }), bytes)
}
