//! Tests of the cache through its public interface.
//!
//! Each file of tests is a module of this one program, so that shared code is compiled once:
//!
//!     cargo test -p manycore-cache --test integration FILE::
//!
//! Tests that measure the memory of their process are programs of their own, in the folder above.

#[path = "../../../manycore/tests/common/canary.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod canary;
#[path = "../../../manycore/tests/common/env.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod env;
#[path = "../common/fuse.rs"]
mod fuse;
#[path = "../../../manycore/tests/common/process.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod process;
#[path = "../../../manycore/tests/common/rng.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod rng;
#[path = "../common/tasks.rs"]
mod tasks;

mod budgeted;
mod causes;
mod computed;
mod corners;
mod deadlocks;
mod expiry;
mod failures;
mod faults;
mod hit_ratio;
mod in_place;
mod liars;
mod loads;
mod newer;
mod pins;
mod reentrancy;
mod refresh;
mod relocate;
mod sequential;
mod threads;
mod traits;
mod weights;
