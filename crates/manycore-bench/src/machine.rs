//! The machine that a result belongs to, and where everything that is measured allocates.

pub use manycore_cli::machine::{Machine, REVISION, VERSION};

/// With the feature `mimalloc`, of every program that this library is part of.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ALLOCATOR: &str = if cfg!(feature = "mimalloc") { "mimalloc" } else { "system" };

/// Returns this machine, now.
pub fn here() -> Machine {
    Machine::here(ALLOCATOR)
}
