//! Classes of events, and the switches that turn them on and off.

use crate::sync::{AtomicU64, Ordering};

/// Read by all events, so it has a line of its own that is seldom written.
#[repr(align(128))]
struct Switches {
    mask: AtomicU64,
    generation: AtomicU64,
    /// The sampled classes (`sampling`): not all their events are recorded.
    sampled: AtomicU64,
}

static SWITCHES: Switches =
    Switches { mask: AtomicU64::new(0), generation: AtomicU64::new(1), sampled: AtomicU64::new(0) };

/// Returns the number of the running recording. The time between two recordings has its own number.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    // ORDER: Relaxed; a thread that sees an old number records into a ring that it keeps alive
    // itself.
    SWITCHES.generation.load(Ordering::Relaxed)
}

/// Starts a new generation. The caller holds the lock of the recorder's state.
pub(crate) fn next_generation() -> u64 {
    // ORDER: Relaxed; as in `generation`.
    SWITCHES.generation.fetch_add(1, Ordering::Relaxed) + 1
}

pub(crate) fn set_sampled(classes: u64) {
    // ORDER: Relaxed; a hint.
    SWITCHES.sampled.store(classes, Ordering::Relaxed);
}

pub(crate) fn set_mask(mask: Classes) {
    // ORDER: Relaxed; a hint.
    SWITCHES.mask.store(mask.0, Ordering::Relaxed);
}

/// A class of events, which can be switched on and off while the program runs.
///
/// There are 64 classes, numbered from 0. A program and its libraries share them. So a library lets
/// its users choose the number, or documents it.
///
/// ```
/// use manycore_trace::{Class, Classes, Recorder, event};
///
/// const REQUESTS: Class = Class::new(1, "requests");
/// const INTERNALS: Class = Class::new(2, "internals");
///
/// let recording = Recorder::new().classes(Classes::of(&[REQUESTS])).start()?;
/// assert!(REQUESTS.is_on() && !INTERNALS.is_on());
/// event!(REQUESTS, Accepted { port: u16 = 80 }); // recorded
/// event!(INTERNALS, Grown {}); // one branch
/// recording.stop()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Class {
    number: u8,
    name: &'static str,
}

impl Class {
    /// Creates the class with this number.
    ///
    /// # Panics
    /// If the number is 64 or more. In a constant that is a compile error.
    #[must_use]
    pub const fn new(number: u8, name: &'static str) -> Self {
        assert!(number < 64, "a class has a number below 64");
        Self { number, name }
    }

    /// Returns its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns true if its events are recorded now, all of them or a sample. Costs one load of a
    /// line that is seldom written.
    #[inline(always)]
    #[must_use]
    pub fn is_on(self) -> bool {
        // ORDER: Relaxed; a hint.
        SWITCHES.mask.load(Ordering::Relaxed) & 1 << self.number != 0
    }

    /// Returns true if only a sample of its events is recorded.
    #[inline(always)]
    pub(crate) fn is_sampled(self) -> bool {
        // ORDER: Relaxed; a hint.
        SWITCHES.sampled.load(Ordering::Relaxed) & 1 << self.number != 0
    }
}

/// A set of classes.
///
/// See [`Class`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Classes(pub(crate) u64);

impl Classes {
    /// All 64 classes.
    pub const ALL: Self = Self(u64::MAX);
    /// No class.
    pub const NONE: Self = Self(0);

    /// Creates the set of these classes.
    #[must_use]
    pub const fn of(classes: &[Class]) -> Self {
        let (mut mask, mut at) = (0, 0);
        while at < classes.len() {
            mask |= 1 << classes[at].number;
            at += 1;
        }
        Self(mask)
    }

    /// Returns true if the set contains this class.
    #[must_use]
    pub const fn contains(self, class: Class) -> bool {
        self.0 & 1 << class.number != 0
    }

    /// Creates the set from bits: bit `n` stands for class `n`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl Default for Classes {
    fn default() -> Self {
        Self::ALL
    }
}
