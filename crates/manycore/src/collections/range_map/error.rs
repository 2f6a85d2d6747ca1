//! [`RangeError`], and the conversion of Rust's ranges to first and last keys.

use std::fmt;
use std::ops::{Bound, RangeBounds, RangeInclusive};

use super::trie::LAST_KEY;

/// The reason why a call of a [`RangeMap`](super::RangeMap) did nothing. Each variant names the
/// requested range by its first and last key.
///
/// ```
/// use manycore::collections::{RangeError, RangeMap};
///
/// let map = RangeMap::new();
/// let view = map.enter();
/// view.insert(0..100, "code").unwrap();
/// let refused = view.insert(50..150, "data").unwrap_err();
/// assert_eq!(refused, RangeError::Overlap { range: 50..=149, taken: 50..=99 });
/// assert_eq!(view.get(120), None); // nothing half done
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeError {
    /// The range has no key: it is empty, ends before it starts, or wraps. The fields are the
    /// bounds as given, not converted to the first and the last key.
    Empty {
        /// The start bound.
        start: u64,
        /// The end bound.
        end: u64,
    },
    /// Some keys of the range have a value.
    Overlap {
        /// The requested range.
        range: RangeInclusive<u64>,
        /// The first keys of it that have a value.
        taken: RangeInclusive<u64>,
    },
    /// The calling thread holds a range of the same map. A change through the view would wait for
    /// that thread itself, or could deadlock with another thread. Use the guard.
    Nested {
        /// The requested range.
        range: RangeInclusive<u64>,
        /// The range that the thread holds.
        held: RangeInclusive<u64>,
    },
    /// The call would wait for ever: the thread that holds the range waits for something that the
    /// calling thread holds.
    Deadlock {
        /// The requested range.
        range: RangeInclusive<u64>,
    },
    /// The range is not within the range of the guard.
    OutOfGuard {
        /// The requested range.
        range: RangeInclusive<u64>,
        /// The range of the guard.
        held: RangeInclusive<u64>,
    },
    /// No gap is large enough.
    NoGap {
        /// The range that was searched.
        range: RangeInclusive<u64>,
        /// The requested number of keys.
        len: u64,
    },
}

/// Displays a range in hexadecimal.
struct Hex<'a>(&'a RangeInclusive<u64>);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..={:#x}", self.0.start(), self.0.end())
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { start, end } => {
                write!(f, "the range from {start:#x} to {end:#x} has no key")
            }
            Self::Overlap { range, taken } => {
                write!(f, "the range {} overlaps {}", Hex(range), Hex(taken))
            }
            Self::Nested { range, held } => write!(
                f,
                "the range {} is changed by a thread that holds {} of the same map",
                Hex(range),
                Hex(held)
            ),
            Self::Deadlock { range } => write!(
                f,
                "the range {} is held by a thread that waits for the calling thread",
                Hex(range)
            ),
            Self::OutOfGuard { range, held } => {
                write!(f, "the range {} is not within the guard's, {}", Hex(range), Hex(held))
            }
            Self::NoGap { range, len } => {
                write!(f, "the range {} has no gap of {len:#x} keys", Hex(range))
            }
        }
    }
}

impl std::error::Error for RangeError {}

/// Returns the first and last key of a range.
#[inline]
pub(super) fn keys_of(range: &impl RangeBounds<u64>) -> Result<(u64, u64), RangeError> {
    let (mut is_empty, mut first, mut last) = (false, 0, LAST_KEY);
    match range.start_bound() {
        Bound::Included(start) => first = *start,
        Bound::Excluded(start) => {
            is_empty = *start == LAST_KEY;
            first = start.wrapping_add(1);
        }
        Bound::Unbounded => {}
    }
    match range.end_bound() {
        Bound::Included(end) => last = *end,
        Bound::Excluded(end) => {
            is_empty |= *end == 0;
            last = end.wrapping_sub(1);
        }
        Bound::Unbounded => {}
    }
    if is_empty || first > last {
        let given = |bound: Bound<&u64>, other| match bound {
            Bound::Included(key) | Bound::Excluded(key) => *key,
            Bound::Unbounded => other,
        };
        let (start, end) = (given(range.start_bound(), 0), given(range.end_bound(), LAST_KEY));
        return Err(RangeError::Empty { start, end });
    }
    Ok((first, last))
}
