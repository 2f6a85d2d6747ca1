//! The server: sessions without a socket, and whole servers.
//!
//! Each file of tests is a module of this one program, so that what they share is compiled once:
//!
//!     cargo test -p manycored --test integration FILE::
//!
//! Programs of their own, in the folder above, are the tests that measure the memory of their
//! process.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../manycore/tests/common/env.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod env;
#[path = "../../../manycore/tests/common/rng.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod rng;

mod arbitrary;
mod binary;
mod buffers;
mod commands;
mod descriptors;
mod dist;
mod fragments;
mod fuzzed;
mod gathered;
mod hit_ratio;
mod linearizability;
mod logged;
mod meta_flags;
mod operator;
mod options;
mod recorded;
mod refused;
mod restart;
mod server;
mod soak;
mod threads;
mod tls;
mod traced;
mod udp;
mod warm;
mod watched;
