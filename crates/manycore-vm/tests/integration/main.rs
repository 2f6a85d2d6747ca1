//! The mapping database, the backings and the page pool, through the public interface.
//!
//!     cargo test -p manycore-vm --test integration FILE::

#[path = "../../../manycore/tests/common/env.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod env;
#[path = "../../../manycore/tests/common/process.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod process;
#[path = "../../../manycore/tests/common/rng.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod rng;

mod errors;
mod files;
mod gate;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod pool;
mod recording;
mod sequential;
mod sources;
mod spaces;
mod threads;
