//! Helpers that several test files share. Each file uses only some of them.
#![allow(dead_code, reason = "every test file compiles its own copy and uses a part")]

#[cfg(feature = "oplog")]
pub mod broken;
#[cfg(feature = "oplog")]
pub mod calls;
#[cfg(feature = "oplog")]
pub mod calls_history;
pub mod canary;
#[cfg(feature = "section")]
pub mod counted;
#[cfg(feature = "section")]
pub mod domains;
pub mod env;
#[cfg(feature = "cluster")]
pub mod family;
pub mod fuse;
#[cfg(feature = "oplog")]
pub mod history;
#[cfg(feature = "oplog")]
pub mod kinds;
pub mod place;
#[cfg(feature = "oplog")]
pub mod plan;
#[cfg(feature = "collections")]
pub mod private;
pub mod process;
#[cfg(feature = "oplog")]
pub mod race;
pub mod rng;
#[cfg(feature = "oplog")]
pub mod run;
pub mod steps;
pub mod tasks;
pub mod watchdog;

// `history`, `kinds` and `plan` are also used inside the library, where its name is `crate`.
use ::manycore;
