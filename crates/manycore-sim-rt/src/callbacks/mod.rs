//! The functions that instrumented code calls: one for each kind of access, atomic operation and
//! block.
//!
//! This module owns the symbols `__tsan_*` and `__sanitizer_cov_trace_pc`, in LLVM's C convention.
//! Each is a few instructions that pass on the return address, which identifies the access, to the
//! part in Rust. That part charges the access (and may run other virtual threads first), and then
//! does the program's operation.
//!
//! Law callbacks.B1: without a simulation, each callback does its operation exactly as the hardware
//! would, so an instrumented program works without the simulator.

mod atomics;
mod calls;
mod plain;

#[cfg(test)]
pub(crate) use self::calls::__sanitizer_cov_trace_pc;
pub(crate) use self::calls::block_callback;
