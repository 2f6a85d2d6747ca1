//! What several test files share. Each of them uses a part.
#![allow(dead_code, reason = "every test file compiles its own copy and uses a part")]

pub mod broken;
pub mod calls;
pub mod calls_history;
pub mod canary;
pub mod counted;
pub mod domains;
pub mod env;
pub mod family;
pub mod fuse;
pub mod history;
pub mod kinds;
pub mod place;
pub mod plan;
pub mod private;
pub mod process;
pub mod race;
pub mod rng;
pub mod run;
pub mod steps;
pub mod watchdog;

// `history`, `kinds` and `plan` are also used inside the library, where its name is `crate`.
use ::manycore;
