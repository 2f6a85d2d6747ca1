//! The runtime of `manycore sim`: receives what instrumented code reports, and adopts its threads.
//!
//! The command builds a program with LLVM's ThreadSanitizer and coverage passes, which turn every
//! load, store, atomic operation and basic block into a call, and links this library instead of the
//! sanitizer's. Each call is charged to a virtual core of the engine (`manycore-sim`), and may let
//! other virtual threads run first. The functions of libc that know about threads, time and cores
//! are ours as well. The program itself is not changed, not even by a `cfg`.
//!
//! Parts, from the top: `start`, `arguments` and `facade` (the way in), `watchdog`, `callbacks`
//! (what instrumented code calls), `calls` (the functions that stand before libc's), `threads`
//! (adoption) and `instruction_stubs` (what replaced instructions lead to); `simulation` (the
//! engine and the runtime's state, and the result of a run); `thread`, `switch` and `rseq` (a
//! virtual thread), `blocks`, `patch` and `code` (the program's instructions), `pipeline` (what
//! these take on a core that runs them out of order), `frames` (call stacks), `placement` (where a
//! check's data lie), `allocations` (what was allocated where), `uninstrumented` (what makes no
//! callbacks) and `random`; `interpose`, `diagnostics`, `host`, `heap` and `hash` (the system
//! below).
//!
//! x86-64 Linux with glibc only. Elsewhere this crate is empty.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
#![cfg_attr(test, allow(dead_code))] // the symbols are exported only where they replace libc's

mod allocations;
mod arguments;
mod blocks;
mod callbacks;
mod calls;
mod code;
mod diagnostics;
mod facade;
mod frames;
mod hash;
mod heap;
mod host;
mod instruction_stubs;
mod interpose;
mod patch;
mod pipeline;
mod placement;
mod random;
mod rseq;
mod simulation;
mod start;
mod switch;
mod thread;
mod threads;
mod uninstrumented;
mod watchdog;

#[cfg(not(test))]
#[global_allocator]
static HEAP: heap::Private = heap::Private::new();
