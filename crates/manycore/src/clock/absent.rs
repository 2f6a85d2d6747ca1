//! No hardware counter: another processor, a model checker or an interpreter.
//!
//! Owns: an `Instruction` that has no value, so that the compiler knows that code which would read
//! one is unreachable.

/// The kernel's clocksource that vouches for the counter.
pub(crate) const TRUSTED_CLOCKSOURCE: &str = "none";
/// True if the architecture itself promises one time on all cores.
pub(crate) const ARCHITECTED: bool = false;

/// The way to read the counter in order: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {}

impl Instruction {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn name(self) -> &'static str {
        match self {}
    }

    pub(crate) fn stamp(self) -> u64 {
        match self {}
    }

    pub(crate) fn cut(self) -> u64 {
        match self {}
    }

    pub(crate) fn ticks(self) -> u64 {
        match self {}
    }
}

pub(crate) fn invariant() -> bool {
    false
}

pub(crate) fn hypervisor() -> bool {
    false
}

pub(crate) fn readable() -> bool {
    false
}

pub(crate) fn nominal_hz() -> Option<u64> {
    None
}
