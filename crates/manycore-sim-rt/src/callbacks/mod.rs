//! What instrumented code calls: one function per kind of access, atomic operation and block.
//!
//! Owns: the symbols `__tsan_*` and `__sanitizer_cov_trace_pc`, in LLVM's C convention. Each is a
//! few instructions that add the return address, which names the access, and go on to the part in
//! Rust. That charges the access (and may run other virtual threads first), then does what the
//! program asked for.
//!
//! Law sim_rt.B1: without a simulation, each callback does its operation exactly as the hardware
//! would, so that an instrumented program is right without us.

mod atomics;
mod calls;
mod plain;

#[cfg(test)]
pub(crate) use self::calls::__sanitizer_cov_trace_pc;
pub(crate) use self::calls::block_callback;
