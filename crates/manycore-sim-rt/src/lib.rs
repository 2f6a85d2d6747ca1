//! The runtime of `manycore sim`: receives what instrumented code reports, and adopts its threads.
//!
//! The command builds a program with LLVM's ThreadSanitizer and coverage passes, which turn every
//! load, store, atomic operation and basic block into a call, and links this library instead of the
//! sanitizer's. Each call is charged to a virtual core of the engine (`manycore-sim`), and may let
//! other virtual threads run first. The functions of libc that know about threads, time and cores
//! are ours as well. The program itself is not changed, not even by a `cfg`.
//!
//! Parts: `callbacks` (what instrumented code calls), `calls` (what stands before libc), `threads`,
//! `switch` and `rseq` (adoption), `blocks`, `code`, `patch` and `entries` (the program's
//! instructions), `frames` (call stacks), `world` (the simulation), `start`, `result` and `facade`
//! (the way in and out), `host`, `heap`, `hash` and `say` (the system below).
//!
//! x86-64 Linux with glibc only. Elsewhere this crate is empty.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
#![cfg_attr(test, allow(dead_code))] // the symbols are exported only where they replace libc's

mod blocks;
mod callbacks;
mod calls;
mod code;
mod entries;
mod facade;
mod frames;
mod hash;
mod heap;
mod host;
mod patch;
mod result;
mod rseq;
mod say;
mod start;
mod switch;
mod threads;
mod world;

#[cfg(not(test))]
#[global_allocator]
static HEAP: heap::Private = heap::Private::new();
