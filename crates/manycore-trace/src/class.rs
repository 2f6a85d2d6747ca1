//! Classes of events, and which of them are on.

use crate::sync::{AtomicU64, Ordering};

/// What all events look at, on a line that is seldom written.
#[repr(align(128))]
struct Switches {
    mask: AtomicU64,
    generation: AtomicU64,
    /// Classes of which not all events are recorded (`sampling`).
    sampled: AtomicU64,
}

static SWITCHES: Switches =
    Switches { mask: AtomicU64::new(0), generation: AtomicU64::new(1), sampled: AtomicU64::new(0) };

/// The recording that runs: another number for each, and for each time between two.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    // ORDER: Relaxed; a thread that sees an old one records into a ring that it keeps itself.
    SWITCHES.generation.load(Ordering::Relaxed)
}

/// Ends what has gone before. The caller holds the lock of the recorder's state.
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
/// There are 64, numbered from 0. A program and its libraries share them, so a library lets its
/// users choose the number, or documents it.
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
    /// The class with this number.
    ///
    /// # Panics
    /// If it is 64 or more; in a constant that is an error of compilation.
    #[must_use]
    pub const fn new(number: u8, name: &'static str) -> Self {
        assert!(number < 64, "a class has a number below 64");
        Self { number, name }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether its events are recorded now, or one in so many of them: one load of a line that is
    /// seldom written.
    #[inline(always)]
    #[must_use]
    pub fn is_on(self) -> bool {
        // ORDER: Relaxed; a hint.
        SWITCHES.mask.load(Ordering::Relaxed) & 1 << self.number != 0
    }

    /// Whether not all of its events are recorded.
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
    /// All 64.
    pub const ALL: Self = Self(u64::MAX);
    /// None.
    pub const NONE: Self = Self(0);

    /// These.
    #[must_use]
    pub const fn of(classes: &[Class]) -> Self {
        let (mut mask, mut at) = (0, 0);
        while at < classes.len() {
            mask |= 1 << classes[at].number;
            at += 1;
        }
        Self(mask)
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn contains(self, class: Class) -> bool {
        self.0 & 1 << class.number != 0
    }

    /// Those whose bits are set.
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
