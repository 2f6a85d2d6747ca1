//! Entry to and exit from functions: the shadow call stack.
//!
//! Most accesses of a program are in the standard library's code, but people look for their own
//! line, some frames further out. So the runtime keeps each virtual thread's place in the tree of
//! calls ([`crate::frames`]), and adds the place to each charged access.

use std::arch::naked_asm;

use crate::{calls, simulation};

/// Enters a function. `caller` is the address to which it returns.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_func_entry(caller: usize) {
    if simulation::active() {
        simulation::enter(caller);
    }
}

/// Leaves a function. Instrumented code also calls it when it unwinds.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_func_exit() {
    if simulation::active() {
        simulation::leave();
    }
}

/// LLVM calls this once per module that it instrumented.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_init() {}

/// Part of the interface. LLVM uses it around code that it may not instrument.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn __tsan_ignore_thread_begin() {}

/// Ends what `__tsan_ignore_thread_begin` begins.
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

/// Handles signals that have come, and waits that other processes may have ended.
#[cold]
fn look_outside() {
    simulation::files_changed();
    calls::deliver();
}

/// Called at the beginning of every basic block.
///
/// # Safety
/// Called by instrumented code only.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn __sanitizer_cov_trace_pc() {
    naked_asm!("mov rdi, [rsp]", "lea rsi, [rsp + 8]", "jmp {}", sym block)
}

/// Returns the address of [`__sanitizer_cov_trace_pc`].
pub(crate) fn block_callback() -> usize {
    __sanitizer_cov_trace_pc as *const () as usize
}
