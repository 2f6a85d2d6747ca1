//! The program's heap: libc's own, at a fixed price per call.
//!
//! libc's allocator is not instrumented, and its calls do not switch threads. The price of a call
//! is therefore a number of the machine model. Each thread gets an arena of its own, as on a large
//! machine. Otherwise blocks of different threads would share lines only because the host has few
//! cores.

use std::ffi::c_int;

use crate::{placement, simulation};

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut u8;
    fn __libc_free(block: *mut u8);
    fn __libc_calloc(count: usize, bytes: usize) -> *mut u8;
    fn __libc_realloc(block: *mut u8, bytes: usize) -> *mut u8;
    fn __libc_memalign(alignment: usize, bytes: usize) -> *mut u8;
}

/// From this size on, libc takes a block from the system, which has already filled it with zeros.
const FROM_SYSTEM: usize = 128 << 10;

fn charge() {
    if simulation::active() {
        simulation::with(simulation::Simulation::charge_malloc);
    }
}

/// Notes a new block, and returns it.
fn noted(block: *mut u8, bytes: usize) -> *mut u8 {
    if simulation::active() {
        simulation::with(|sim| sim.allocated(block as usize, bytes));
    }
    block
}

/// Notes that a block is freed.
fn noted_gone(block: *mut u8) {
    if simulation::active() {
        simulation::with(|sim| sim.freed(block as usize));
    }
}

/// Allocates `bytes` bytes.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc(bytes: usize) -> *mut u8 {
    charge();
    let placed = placement::take(16, bytes);
    // SAFETY: the call is passed on as it came.
    noted(placed.unwrap_or_else(|| unsafe { __libc_malloc(bytes) }), bytes)
}

/// Frees a block.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(block: *mut u8) {
    charge();
    noted_gone(block);
    if placement::free(block) {
        return; // placement.P2
    }
    // SAFETY: the call is passed on as it came.
    unsafe { __libc_free(block) }
}

/// Allocates `count` elements of `bytes` bytes, all zero.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut u8 {
    charge();
    let all = count.saturating_mul(bytes);
    if simulation::active() && all < FROM_SYSTEM {
        simulation::with(|sim| sim.charge_fill(all));
    }
    let placed = count.checked_mul(bytes).and_then(|all| placement::take(16, all));
    if let Some(block) = placed {
        // SAFETY: placement.P2 - a block of at least so many bytes, which may have been used.
        unsafe { block.write_bytes(0, all) };
    }
    // SAFETY: the call is passed on as it came.
    let block = placed.unwrap_or_else(|| unsafe { __libc_calloc(count, bytes) });
    noted(block, all)
}

/// Changes a block's size, and may move the block.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(block: *mut u8, bytes: usize) -> *mut u8 {
    charge();
    let room = placement::room(block);
    if room.is_none() && !block.is_null() {
        // SAFETY: the call is passed on as it came.
        let new = unsafe { __libc_realloc(block, bytes) };
        // Null means no bytes, or no memory; without memory the old block stays.
        if !new.is_null() || bytes == 0 {
            noted_gone(block);
        }
        return noted(new, bytes);
    }
    let new = placement::take(16, bytes);
    // SAFETY: the call is passed on as it came. Both blocks are valid for the bytes copied: neither
    // the new block's size nor the old block's room is smaller.
    unsafe {
        let new = new.unwrap_or_else(|| __libc_malloc(bytes));
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(block, new, room.unwrap_or(0).min(bytes));
        }
        noted_gone(block);
        noted(new, bytes)
    }
}

/// Allocates an aligned block, and writes its address to `out`.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut u8,
    alignment: usize,
    bytes: usize,
) -> c_int {
    const ENOMEM: c_int = 12;
    charge();
    let placed = placement::take(alignment, bytes);
    // SAFETY: the call is passed on as it came; the caller's pointer is valid for a word.
    unsafe {
        let block = placed.unwrap_or_else(|| __libc_memalign(alignment, bytes));
        if block.is_null() {
            return ENOMEM;
        }
        *out = noted(block, bytes);
    }
    0
}

/// Allocates an aligned block.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut u8 {
    charge();
    let placed = placement::take(alignment, bytes);
    // SAFETY: the call is passed on as it came.
    noted(placed.unwrap_or_else(|| unsafe { __libc_memalign(alignment, bytes) }), bytes)
}
