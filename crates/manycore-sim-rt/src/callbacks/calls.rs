//! Entry to and exit from functions: the shadow call stack.
//!
//! Most accesses of a program stand in the standard library's code. What people look for is their
//! own line, some frames further out. So the runtime keeps, for each virtual thread, its place in
//! the tree of calls ([`crate::frames`]); where an access is charged, the place goes with it.

use std::arch::naked_asm;

use crate::{calls, simulation};

/// `caller` is the address in the calling function to which this one returns.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_func_entry(caller: usize) {
    if simulation::active() {
        simulation::enter(caller);
    }
}

/// The counterpart of `__tsan_func_entry`; instrumented code calls it when it unwinds, too.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_func_exit() {
    if simulation::active() {
        simulation::leave();
    }
}

/// LLVM calls this once per module that it instrumented.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_init() {}

/// Part of the interface; LLVM uses it where it may not instrument.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_ignore_thread_begin() {}

/// The end of what `__tsan_ignore_thread_begin` begins.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_ignore_thread_end() {}

extern "C" fn block(pc: usize, stack: usize) {
    if simulation::active() {
        simulation::block(pc, stack);
        if simulation::is_reminded() {
            look_outside();
        }
    }
}

/// Signals have come, or other processes may have done what a virtual thread waits for.
#[cold]
fn look_outside() {
    simulation::files_changed();
    calls::deliver();
}

/// At the beginning of every basic block.
///
/// # Safety
/// Called by instrumented code only.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn __sanitizer_cov_trace_pc() {
    naked_asm!("mov rdi, [rsp]", "lea rsi, [rsp + 8]", "jmp {}", sym block)
}

/// The address of [`__sanitizer_cov_trace_pc`].
pub(crate) fn block_callback() -> usize {
    __sanitizer_cov_trace_pc as *const () as usize
}
