//! Why a call was refused.

use std::fmt;
use std::ops::{Bound, RangeBounds, RangeInclusive};

use super::trie::LAST_KEY;

/// Why a call of a [`RangeMap`](super::RangeMap) did nothing. Each names the range that was asked
/// for, by its first and last key.
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
    /// The range has no key: it is empty, ends before it starts, or wraps. Its bounds as they were
    /// given, without a bound being the first or the last key.
    Empty {
        /// Where it starts.
        start: u64,
        /// Where it ends.
        end: u64,
    },
    /// Some of its keys have a value.
    Overlap {
        /// What was asked for.
        range: RangeInclusive<u64>,
        /// The first of its keys that have a value.
        taken: RangeInclusive<u64>,
    },
    /// The calling thread holds a range of the same map: a change by way of the view would wait for
    /// it, or could deadlock with another thread. Use the guard.
    Nested {
        /// What was asked for.
        range: RangeInclusive<u64>,
        /// What the thread holds.
        held: RangeInclusive<u64>,
    },
    /// The call would wait for ever: the thread that holds the range waits for something that the
    /// calling thread holds.
    Deadlock {
        /// What was asked for.
        range: RangeInclusive<u64>,
    },
    /// The range is not within the range of the guard.
    OutOfGuard {
        /// What was asked for.
        range: RangeInclusive<u64>,
        /// What the guard holds.
        held: RangeInclusive<u64>,
    },
    /// No gap is large enough.
    NoGap {
        /// Where it was looked for.
        range: RangeInclusive<u64>,
        /// How many keys were wanted.
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

/// First and last key of a range.
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
