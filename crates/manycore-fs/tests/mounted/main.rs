//! The command, mounted: what programs see through the kernel.
//!
//!     cargo test -p manycore-fs --test mounted FILE::
//!
//! A test is skipped, and says so, if `/dev/fuse` can't be opened or the system lets nobody mount.
//! No test hangs: each mount has a watchdog that kills its daemon, after which the kernel gives
//! errors to all that wait.

#[path = "../../../manycore/tests/common/env.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod env;
#[path = "../../../manycore/tests/common/rng.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod rng;

mod base;
mod branches;
mod commits;
mod compare;
mod control;
mod ends;
mod files;
mod harness;
mod kept;
mod programs;
mod refused;
mod running;
