//! What must hold whatever is in a table that a benchmark wrote (`manycore-bench compare`,
//! `manycore-bench plot`).
//!
//! An input is such a file. Demanded is:
//! - Memory and steps follow its length.
//! - A factor stands for a row.

use crate::bounds::Bound;
use crate::compare::{Better, by_threads, factors, figure_of};

/// A row has at least eleven bytes, and 110 in a comparison.
const BOUND: Bound = Bound { each: 64, besides: 64 << 10 };

/// A table.
pub fn table(data: &[u8]) {
    let Ok(csv) = std::str::from_utf8(data) else { return };
    for better in [Better::More, Better::Less] {
        let text = BOUND.hold(csv.len(), || factors("any", csv, "m", better));
        assert!(text.lines().count() <= csv.lines().count());
    }
    let points = BOUND.hold(csv.len(), || by_threads(csv, "m", "a"));
    assert!(points.len() <= csv.lines().count());
    let figure = BOUND.hold(csv.len(), || figure_of(csv, "m", "a"));
    assert!(points.is_empty() || figure.is_some(), "{points:?}");
}
