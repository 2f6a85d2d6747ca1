//! Bridges from other crates' events.
//!
//! This module owns the classes for levels, and fields whose types only a call knows. It does not
//! own rings.
//!
//! - bridge.B1 No code of the program runs while a thread's buffer is borrowed. The buffer is taken
//!   out of its place, so the formatting of a field may itself record events. Such an event finds
//!   no buffer and makes a new one.

#[cfg(feature = "tracing")]
mod layer;
#[cfg(feature = "log")]
mod log_bridge;
mod values;

#[cfg(feature = "tracing")]
pub use layer::TracingLayer;
#[cfg(feature = "log")]
pub use log_bridge::LogBridge;

use crate::class::Class;

/// The names of the levels, most severe first.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The default number of the first level's class.
const FIRST: u8 = 56;

/// Returns the five classes of the levels, numbered from `first`.
const fn classes(first: u8) -> [Class; 5] {
    assert!(first <= 59, "five classes have numbers below 64");
    [
        Class::new(first, LEVELS[0]),
        Class::new(first + 1, LEVELS[1]),
        Class::new(first + 2, LEVELS[2]),
        Class::new(first + 3, LEVELS[3]),
        Class::new(first + 4, LEVELS[4]),
    ]
}

/// A process has one recording, so the tests of bridges run one by one.
#[cfg(test)]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
