//! A cache line that cores waited for: why they waited, where, and which data lie on the line.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::bytes::{Held, byte_ranges, bytes_text};
use crate::engine::{
    Access,
    stats::{LineCost, SiteCost},
};

/// If the smaller kind of sharing has at least this part of both, the report names both kinds.
const BOTH: f64 = 0.1;

/// The cost of one cache line.
///
/// ```
/// use manycore_sim::{Access, Engine, Machine, drive, report::{HotLine, Sharing}};
///
/// // Two cores write to words of their own, in one line.
/// let mut engine = Engine::new(Machine::named("opteron-8x6").unwrap(), 2, 1).unwrap();
/// let actor = |word: usize| -> drive::Actor<'static> {
///     let mut left = 100;
///     Box::new(move |engine| {
///         left -= 1;
///         match left {
///             0 => engine.exit(),
///             even if even % 2 == 0 => engine.work(300),
///             _ => engine.access(64 + 8 * word, 8, Access::Rmw, word),
///         }
///     })
/// };
/// drive::run(&mut engine, vec![actor(0), actor(1)], 0).unwrap();
/// let all = engine.totals().waited;
/// let line = HotLine::new(&engine.dearest_lines(1)[0], all, &mut |word| format!("word {word}"));
/// assert_eq!(line.sharing, Sharing::False);
/// assert_eq!(line.sites[0].bytes.len(), 1);
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HotLine {
    /// The address of its first byte.
    pub address: u64,
    /// Its share of all cycles waited for lines, from 0 to 1.
    pub share: f64,
    /// Misses.
    pub misses: u64,
    /// Cycles waited.
    pub cycles: u64,
    /// Why cores waited for it.
    pub sharing: Sharing,
    /// Cycles that are false sharing.
    pub false_sharing: u64,
    /// Cycles that are true sharing.
    pub true_sharing: u64,
    /// The data that lie on it, as far as known.
    pub holds: Vec<Held>,
    /// The places that waited, the most expensive first.
    pub sites: Vec<HotSite>,
}

/// Why cores wait for a line. See [`HotLine`] for an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Sharing {
    /// Others use other bytes of the line.
    #[serde(rename = "false sharing")]
    False,
    /// Others write the same bytes, or read what is written.
    #[serde(rename = "true sharing")]
    True,
    /// Both, for different bytes.
    #[serde(rename = "true and false sharing")]
    Both,
    /// First uses, and lines that a cache had no room for.
    #[serde(rename = "not shared")]
    None,
}

/// A place in the source that waits for a line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HotSite {
    /// `reads`, `writes` or `locks`.
    pub kind: String,
    /// File and line, or whatever else is known.
    pub place: String,
    /// Misses.
    pub misses: u64,
    /// Cycles waited.
    pub cycles: u64,
    /// Cycles that are false sharing.
    pub false_sharing: u64,
    /// Cycles that are true sharing.
    pub true_sharing: u64,
    /// The bytes of the line that it accesses.
    pub bytes: Vec<Range<u32>>,
    /// The core, if it is always the same.
    pub core: Option<u32>,
}

impl Sharing {
    /// Names the kind of sharing from the cycles of both kinds.
    pub fn of(false_sharing: u64, true_sharing: u64) -> Sharing {
        let both = (false_sharing + true_sharing) as f64;
        let part = false_sharing as f64 / both;
        match part {
            _ if both == 0.0 => Sharing::None,
            part if part > 1.0 - BOTH => Sharing::False,
            part if part < BOTH => Sharing::True,
            _ => Sharing::Both,
        }
    }
}

impl HotLine {
    /// Makes a line of the report from the engine's costs. `place` turns a `pc` into a location.
    pub fn new(
        line: &LineCost,
        all_cycles: u64,
        place: &mut dyn FnMut(usize) -> String,
    ) -> HotLine {
        let site = |cost: &SiteCost| HotSite {
            kind: kind_word(cost.site.kind).to_string(),
            place: place(cost.site.pc),
            misses: cost.misses,
            cycles: cost.cycles,
            false_sharing: cost.false_sharing,
            true_sharing: cost.true_sharing,
            bytes: byte_ranges(cost.bytes),
            core: cost.core,
        };
        HotLine {
            address: line.address as u64,
            share: line.cycles as f64 / all_cycles.max(1) as f64,
            misses: line.misses,
            cycles: line.cycles,
            sharing: Sharing::of(line.false_sharing, line.true_sharing),
            false_sharing: line.false_sharing,
            true_sharing: line.true_sharing,
            holds: Vec::new(),
            sites: line.sites.iter().map(site).collect(),
        }
    }

    /// Returns why cores waited for the line, in words.
    pub(super) fn why(&self) -> String {
        let both = (self.false_sharing + self.true_sharing).max(1) as f64;
        let part = 100.0 * self.false_sharing as f64 / both;
        match self.sharing {
            Sharing::False => "false sharing".to_string(),
            Sharing::True => "true sharing".to_string(),
            Sharing::Both => format!("true and false sharing ({part:.0} % is false)"),
            Sharing::None => "not shared".to_string(),
        }
    }
}

impl Held {
    pub(super) fn bytes_text(&self) -> String {
        bytes_text(std::slice::from_ref(&self.bytes))
    }
}

impl HotSite {
    pub(super) fn bytes_text(&self) -> String {
        bytes_text(&self.bytes)
    }

    /// Returns the core, or that there were several.
    pub(super) fn cores_text(&self) -> String {
        self.core.map_or_else(|| "several cores".to_string(), |core| format!("core {core}"))
    }
}

fn kind_word(kind: Access) -> &'static str {
    match kind {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Rmw => "locks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_is_named_by_what_most_cycles_are() {
        let of = |pairs: [(u64, u64); 5]| pairs.map(|(no, yes)| Sharing::of(no, yes));
        let expected = [Sharing::None, Sharing::False, Sharing::True, Sharing::Both, Sharing::True];
        assert_eq!(of([(0, 0), (95, 5), (0, 3), (40, 60), (9, 91)]), expected);
    }
}
