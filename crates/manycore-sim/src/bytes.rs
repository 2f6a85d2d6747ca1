//! Bytes of a cache line: which are accessed, and what lies there.

use std::ops::Range;

/// Data that occupy some bytes of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "report", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// The bytes of the line that it occupies.
    pub bytes: Range<u32>,
    /// Its name, such as `static app::SLOTS` or `64 bytes allocated at src/main.rs:8 (new)`.
    pub what: String,
}

/// Returns the ranges of the bits that are set. Each bit stands for a byte.
///
/// ```
/// assert_eq!(manycore_sim::byte_ranges(0xff0f), [0..4, 8..16]);
/// ```
pub fn byte_ranges(bytes: u128) -> Vec<Range<u32>> {
    let mut found: Vec<Range<u32>> = Vec::new();
    for byte in (0..u128::BITS).filter(|byte| bytes >> byte & 1 == 1) {
        match found.last_mut() {
            Some(last) if last.end == byte => last.end = byte + 1,
            _ => found.push(byte..byte + 1),
        }
    }
    found
}

/// Formats byte ranges for a report: `0-7, 16-23`.
pub(crate) fn bytes_text(ranges: &[Range<u32>]) -> String {
    let one = |range: &Range<u32>| match range.len() {
        1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_said_as_ranges() {
        assert_eq!(byte_ranges(0xff00_00f1), [0..1, 4..8, 24..32]);
        assert_eq!(bytes_text(&byte_ranges(0xff00_00f1)), "0, 4-7, 24-31");
        assert_eq!(bytes_text(&byte_ranges(u128::MAX)), "0-127");
        assert!(byte_ranges(0).is_empty());
    }
}
