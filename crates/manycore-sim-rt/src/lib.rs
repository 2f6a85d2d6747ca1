//! The runtime of `manycore sim`: receives what instrumented code reports, and adopts its threads.
//!
//! The command builds a program with LLVM's ThreadSanitizer and coverage passes. They turn every
//! load, store, atomic operation and basic block into a call, and the program links this library
//! instead of the sanitizer's. The runtime charges each call to a virtual core of the engine
//! (`manycore-sim`), and may let other virtual threads run first. It also replaces libc's functions
//! for threads, time and cores. The program itself is not changed, not even by a `cfg`.
//!
//! ```text
//! instrumented program --loads, stores, blocks--> callbacks --+
//!         |    --libc's functions--> calls, threads ----------+--> simulation --> Engine
//!         |    --replaced instructions--> instruction_stubs --+        |
//!         +<-------- switch (the next virtual thread) <----------------+
//! ```
//!
//! Parts, from the top:
//!
//! - The way in: `start`, `arguments`, `facade`; and `watchdog`.
//! - Calls from the program: `callbacks` (from instrumented code), `calls` (functions in front of
//!   libc's), `threads` (adoption), `instruction_stubs` (from replaced instructions).
//! - `simulation`: the engine, the runtime's state, and the result of a run.
//! - A virtual thread: `thread`, `switch`, `rseq`.
//! - The program's instructions: `blocks`, `patch`, `code`; `pipeline` is their time on a core that
//!   runs them out of order.
//! - For reports: `frames` (call stacks), `placement` (where a check's data lie), `allocations`
//!   (what was allocated where), `uninstrumented` (code without callbacks).
//! - Also `mappings` (files that are mapped twice) and `random`.
//! - The system below: `interpose`, `diagnostics`, `host`, `heap`, `hash`.
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
mod mappings;
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
