//! What a check of two operations has found.

use std::fmt;
use std::ops::Range;

use crate::bytes::{Held, byte_ranges, bytes_text};

/// Where the memory of a check begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// How many bytes into a cache line heap and stack begin.
    pub shift: usize,
    /// True if the heap's blocks were used and freed before, by a first object that was dropped:
    /// the block that was freed last comes first.
    pub is_reused: bool,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.shift, if self.is_reused { " (reused)" } else { "" })
    }
}

/// A line on which the operations conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConflictLine {
    /// The state and the order of the operations.
    pub when: String,
    /// The first byte of the line.
    pub address: u64,
    /// True if they use different bytes of the line. Padding would help.
    pub is_false_sharing: bool,
    /// The placements that conflict.
    pub placements: Vec<Placement>,
    /// The cores that access the line, and where.
    pub touchers: Vec<Toucher>,
    /// What lies on the line: heap blocks, or a stack. Statics have no name here.
    pub held: Vec<Held>,
}

/// One core's reads, or one core's writes, of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Toucher {
    /// The core.
    pub core: u32,
    /// True if the core writes the line, false if it reads it.
    pub writes: bool,
    /// The number of accesses, in all calls of the operation.
    pub count: u64,
    /// The source location of the first such access, such as `src/main.rs:8 (serve)`.
    pub place: String,
    /// The bytes of the line, one bit each.
    pub(super) bytes: u128,
}

impl Toucher {
    /// Returns the bytes of the line that the core accesses.
    pub fn bytes(&self) -> Vec<Range<u32>> {
        byte_ranges(self.bytes)
    }
}

/// The conflicts of two operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConflictReport {
    /// The lines on which the operations conflict.
    pub lines: Vec<ConflictLine>,
    /// The number of conflicts that [`ConflictCheck::allow`](super::ConflictCheck::allow) excused.
    pub allowed: usize,
    /// The placements tried.
    pub placements: Vec<Placement>,
    /// How often each operation was called, each time.
    pub calls: u32,
}

impl ConflictReport {
    /// Returns true if the operations conflict nowhere, except where that is allowed.
    pub fn is_conflict_free(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds a line. Merges it with a known line that has the same locations in another placement.
    pub(super) fn add(&mut self, line: ConflictLine) {
        let placement = line.placements[0];
        let is_same = |known: &&mut ConflictLine| {
            let same = |(a, b): (&Toucher, &Toucher)| {
                (a.core, a.writes, &a.place) == (b.core, b.writes, &b.place)
            };
            known.when == line.when
                && known.is_false_sharing == line.is_false_sharing
                && !known.placements.contains(&placement)
                && known.touchers.len() == line.touchers.len()
                && known.touchers.iter().zip(&line.touchers).all(same)
        };
        match self.lines.iter_mut().find(is_same) {
            Some(known) => known.placements.push(placement),
            None => self.lines.push(line),
        }
    }
}

impl fmt::Display for ConflictReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "no conflict ({} allowed)", self.allowed);
        }
        let list = |placements: &[Placement]| {
            placements.iter().map(Placement::to_string).collect::<Vec<_>>().join(", ")
        };
        for line in &self.lines {
            let how = if line.is_false_sharing { "share" } else { "meet on" };
            writeln!(f, "{}: the operations {how} the line at {:#x}", line.when, line.address)?;
            for held in &line.held {
                let bytes = bytes_text(std::slice::from_ref(&held.bytes));
                writeln!(f, "    bytes {bytes}: {}", held.what)?;
            }
            for toucher in &line.touchers {
                let verb = if toucher.writes { "writes" } else { "reads" };
                let Toucher { core, count, place, .. } = toucher;
                let bytes = bytes_text(&toucher.bytes());
                writeln!(f, "    core {core} {verb:<6} bytes {bytes}, {count} x, at {place}")?;
            }
            let (failed, tried) = (list(&line.placements), list(&self.placements));
            writeln!(f, "    where heap and stack begin {failed} bytes into a line (of {tried})")?;
        }
        writeln!(f, "(in {} calls of each operation, each time)", self.calls)
    }
}

/// What the runtime has recorded.
#[derive(Default)]
pub(super) struct Recording {
    /// By the line's address.
    pub(super) touches: Vec<(u64, Toucher)>,
    pub(super) held: Vec<(u64, Held)>,
}

/// Parses the runtime's text. A line is an address and, of an access: core, kind, count, bytes and
/// place; of what lies there: the word `held`, first byte, last byte and name.
pub(super) fn parse(text: &str) -> Recording {
    let touch = |words: &[&str], place: &str| {
        let [core, kind, count, bytes] = words else { return None };
        Some(Toucher {
            core: core.parse().ok()?,
            writes: *kind == "write",
            count: count.parse().ok()?,
            bytes: u128::from_str_radix(bytes, 16).ok()?,
            place: place.to_owned(),
        })
    };
    let held = |words: &[&str], what: &str| {
        let ["held", from, to] = words else { return None };
        let bytes = from.parse().ok()?..to.parse().ok()?;
        Some(Held { bytes, what: what.to_owned() })
    };
    let mut found = Recording::default();
    for line in text.lines() {
        let Some((address, rest)) = line.split_once(' ') else { continue };
        let Ok(address) = u64::from_str_radix(address, 16) else { continue };
        let is_held = rest.starts_with("held ");
        let mut words: Vec<&str> = rest.splitn(if is_held { 4 } else { 5 }, ' ').collect();
        let Some(last) = words.pop() else { continue };
        if is_held {
            found.held.extend(held(&words, last).map(|held| (address, held)));
        } else {
            found.touches.extend(touch(&words, last).map(|touch| (address, touch)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::ConflictCheck;
    use super::*;

    const FRESH: Placement = Placement { shift: 0, is_reused: false };

    fn judged(text: &str, allowed: &[&str]) -> ConflictReport {
        let check = allowed.iter().fold(ConflictCheck::new(|| ()), |check, text| check.allow(text));
        let mut report = ConflictReport::default();
        check.judge("now", FRESH, parse(text), &mut report);
        report
    }

    #[test]
    fn what_meets_in_some_placements_says_in_which() {
        let (check, mut report) = (ConflictCheck::new(|| ()), ConflictReport::default());
        let meets = "40 1 write 1 f a.rs:1\n40 2 write 1 f0 b.rs:2\n";
        let apart = "40 1 write 1 f a.rs:1\n80 2 write 1 f0 b.rs:2\n";
        for (shift, text) in [(0, meets), (16, meets), (32, apart), (48, apart)] {
            check.judge("now", Placement { shift, ..FRESH }, parse(text), &mut report);
        }
        let reused = Placement { shift: 16, is_reused: true };
        check.judge("now", reused, parse(meets), &mut report);
        assert_eq!(report.lines.len(), 1, "{report}");
        assert_eq!(report.lines[0].placements.len(), 3);
        let said = "begin 0, 16, 16 (reused) bytes into a line (of 0, 16, 32, 48, 16 (reused))";
        assert!(report.to_string().contains(said), "{report}");
    }

    #[test]
    fn write_and_read_of_one_word_by_two_cores_conflict() {
        let report = judged("40 1 write 1 f src/a.rs:1 (f)\n40 2 read 3 ff src/b.rs:2 (g)\n", &[]);
        assert_eq!(report.lines.len(), 1);
        assert!(!report.lines[0].is_false_sharing);
        let text = report.to_string();
        assert!(text.contains("core 1 writes bytes 0-3, 1 x, at src/a.rs:1"), "{text}");
        assert!(text.contains("core 2 reads  bytes 0-7, 3 x, at src/b.rs:2"), "{text}");
    }

    #[test]
    fn what_lies_on_the_line_is_named_and_on_others_not() {
        let text = "40 1 write 1 f a\n40 2 write 1 f0 b\n\
            40 held 0 8 8 bytes allocated at src/a.rs:1 (new)\n80 held 0 8 8 bytes, elsewhere\n";
        let report = judged(text, &[]);
        assert_eq!(report.lines[0].held.len(), 1);
        let text = report.to_string();
        assert!(text.contains("bytes 0-7: 8 bytes allocated at src/a.rs:1 (new)"), "{text}");
    }

    #[test]
    fn different_bytes_of_a_line_are_false_sharing() {
        let report = judged("40 1 write 1 f a\n40 2 write 1 f0 b\n", &[]);
        assert!(report.lines[0].is_false_sharing);
    }

    #[test]
    fn reads_of_all_and_writes_of_one_core_do_not_conflict() {
        let text = "40 1 read 1 f a\n40 2 read 1 f b\n80 1 write 1 f a\n80 1 read 1 f a\n";
        assert!(judged(text, &[]).is_conflict_free());
    }

    #[test]
    fn allowed_place_excuses_its_line_alone() {
        let text = "40 1 write 1 f a.rs:1\n40 2 read 1 f b.rs:2\n\
            80 1 write 1 f c.rs:3\n80 2 write 1 f c.rs:3\n";
        let report = judged(text, &["b.rs:2"]);
        assert_eq!((report.lines.len(), report.allowed), (1, 1));
        assert_eq!(report.lines[0].address, 0x80);
    }

    #[test]
    fn check_without_simulation_says_so() {
        let missing = ConflictCheck::new(|| ()).run(|_| {}, |_| {}).unwrap_err();
        assert!(missing.to_string().contains("NOT checked"), "{missing}");
    }
}
