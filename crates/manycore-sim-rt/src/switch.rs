//! The context switch from one virtual thread to another: stack, callee-saved registers, TLS.
//!
//! This module owns the few lines of assembly. Law switch.W1: a suspended thread's stack ends with
//! what `switch` pushed, lowest first: the x87 and SSE control words, r15 to r12, rbx, rbp, the
//! return address.

use std::arch::{asm, naked_asm};

/// Returns true if this processor and kernel let a program set its own thread pointer.
pub(crate) fn is_supported() -> bool {
    const AT_HWCAP2: usize = 26;
    const FSGSBASE: usize = 1 << 1;
    unsafe extern "C" {
        fn getauxval(kind: usize) -> usize;
    }
    // SAFETY: takes and returns a number.
    unsafe { getauxval(AT_HWCAP2) & FSGSBASE != 0 }
}

/// Returns the thread pointer of the calling thread.
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: `is_supported` was checked before any thread was adopted; reads one register.
    unsafe { asm!("rdfsbase {}", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Suspends the caller, saves its place in `save`, and resumes what was suspended at `to`. A thread
/// pointer of 0 is left unchanged.
///
/// # Safety
/// `to` is a place that this function saved or [`prepare`] made (switch.W1), and was not resumed
/// since; `save` is writable; `pointer` belongs to the resumed thread.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn switch(save: *mut usize, to: usize, pointer: usize) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "test rdx, rdx",
        "jz 2f",
        "wrfsbase rdx",
        "2:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Lays out the stack below `top` so that resuming it calls `entry`, which never returns.
///
/// # Safety
/// The 256 bytes below `top` are writable and unused.
pub(crate) unsafe fn prepare(top: *mut u8, entry: extern "C" fn() -> !) -> usize {
    const MXCSR_DEFAULT: u64 = 0x1f80;
    const X87_DEFAULT: u64 = 0x37f;
    let frame = [MXCSR_DEFAULT | X87_DEFAULT << 32, 0, 0, 0, 0, 0, 0, entry as usize as u64, 0];
    // At a function's first instruction, rsp is 8 below a multiple of 16.
    let start = (top as usize & !15) - 128 + 8;
    // SAFETY: the nine words from `start` lie within the 256 bytes below `top`.
    unsafe { (start as *mut [u64; 9]).write(frame) };
    start
}
