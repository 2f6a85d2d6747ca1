//! Every figure and table of the five papers, and its counterpart here.
//!
//! Laws:
//!
//! 1. No figure is left out: one that is not reproduced is listed with the reason.
//! 2. Every simulated figure is one of [`super::all`], and each of those is in the list. A command
//!    or a place that is named exists.

use std::fmt::Write;

/// A figure or a table of a paper.
pub struct Published {
    /// The paper.
    pub paper: &'static str,
    /// Its number there.
    pub number: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// What stands for it here.
    pub here: Standing,
}

/// What stands for a published figure.
pub enum Standing {
    /// Figures of the report: on virtual cores, and on this machine as far as it has cores.
    Both(&'static [&'static str]),
    /// Figures of the report that only the simulator can see.
    Simulated(&'static [&'static str]),
    /// A command, on a real machine.
    Measured(&'static str),
    /// It is a drawing or an algorithm: where it became code, or a test.
    Built(&'static str),
    /// Nothing, and why not.
    Nothing(&'static str),
}

use Standing::{Both, Built, Measured, Nothing, Simulated};

const OPLOG: &str = "OpLog (MIT-CSAIL-TR-2014-019)";
const THESIS: &str = "LDU, thesis";
const DRAFT: &str = "LDU, draft";
const PARSEC: &str = "ParSec";
const K42: &str = "K42";

const fn published(
    paper: &'static str,
    number: &'static str,
    shows: &'static str,
    here: Standing,
) -> Published {
    Published { paper, number, shows, here }
}

/// All of them, in the order of the papers.
pub const PUBLISHED: &[Published] = &[
    published(OPLOG, "1(a)", "fork and exit: the reverse map", Both(&["oplog-1"])),
    published(OPLOG, "1(b)", "... waiting for cache lines", Simulated(&["oplog-1b"])),
    published(OPLOG, "2", "inotify's queue", Both(&["oplog-2"])),
    published(OPLOG, "3(a)", "stat: references to one entry", Both(&["oplog-3"])),
    published(OPLOG, "3(b)", "... time in reference counting", Simulated(&["oplog-3b"])),
    published(OPLOG, "4", "cost of a contended write", Both(&["oplog-4"])),
    published(OPLOG, "5, table", "system calls", Measured("manycore-bench bench syscalls")),
    published(OPLOG, "6", "OpLog's interface", Built("crates/manycore/src/oplog/log.rs")),
    published(OPLOG, "7", "the reverse map in OpLog", Built("crates/manycore/examples/rmap.rs")),
    published(OPLOG, "8", "a counter in OpLog", Built("crates/manycore/examples/counter_log.rs")),
    published(OPLOG, "9", "Apache", Both(&["oplog-9"])),
    published(OPLOG, "10", "Exim", Both(&["oplog-10"])),
    published(OPLOG, "11", "fork with truncate", Both(&["oplog-11"])),
    published(OPLOG, "12", "a list: basic, absorption", Both(&["oplog-12"])),
    published(
        OPLOG,
        "13, table",
        "lines of code",
        Built("crates/manycore-bench/src/figures/lines_of_code.rs"),
    ),
    published(THESIS, "2.1(a)", "AIM7 on stock Linux", Both(&["ldu-aim"])),
    published(
        THESIS,
        "2.1(b)",
        "... waits for two semaphores",
        Nothing("the text has no numbers, and one lock stands for both semaphores here"),
    ),
    published(THESIS, "2.2", "seven updates", Built("crates/manycore/tests/integration/ldu.rs")),
    published(THESIS, "2.3", "insert", Built("crates/manycore/src/ldu")),
    published(THESIS, "2.4", "remove", Built("crates/manycore/src/ldu")),
    published(THESIS, "2.5", "applying the queue", Built("crates/manycore/src/ldu")),
    published(
        THESIS,
        "2.6",
        "the anonymous reverse map",
        Measured("manycore-bench bench fork-chain"),
    ),
    published(
        THESIS,
        "2.7",
        "the reverse map of files",
        Measured("manycore-bench bench rmap-fork"),
    ),
    published(THESIS, "2.8", "AIM7", Both(&["ldu-aim", "ldu-throughput"])),
    published(THESIS, "2.9", "... utilisation", Simulated(&["ldu-aim-idle"])),
    published(THESIS, "2.10", "Exim, utilisation", Simulated(&["ldu-mail-idle"])),
    published(THESIS, "2.11", "lmbench, utilisation", Simulated(&["ldu-spawn-idle"])),
    published(THESIS, "2.12", "Exim", Both(&["ldu-mail"])),
    published(THESIS, "2.13", "lmbench", Both(&["ldu-spawn"])),
    published(THESIS, "2.14", "AIM7 by share of updates", Both(&["ldu-aim-ratio", "ldu-ratio"])),
    published(THESIS, "2.15", "... at fixed shares", Both(&["ldu-aim-80", "ldu-aim-99"])),
    published(THESIS, "2.16", "Exim by share of updates", Both(&["ldu-mail-ratio"])),
    published(THESIS, "2.17", "... at a fixed share", Both(&["ldu-mail-90"])),
    published(THESIS, "2.18", "lmbench by share of updates", Both(&["ldu-spawn-ratio"])),
    published(THESIS, "2.19", "... at a fixed share", Both(&["ldu-spawn-90"])),
    published(THESIS, "none", "LDU beside OpLog, which it could not run", Both(&["ldu-oplog"])),
    published(DRAFT, "1", "AIM7 on stock Linux", Both(&["draft-aim"])),
    published(
        DRAFT,
        "2",
        "six updates; the thesis' 2.2 has replaced it",
        Built("crates/manycore/src/ldu"),
    ),
    published(DRAFT, "3, 4", "logical and physical update", Built("crates/manycore/src/ldu")),
    published(
        DRAFT,
        "5, 6",
        "the reverse map of files",
        Measured("manycore-bench bench rmap-fork"),
    ),
    published(DRAFT, "7", "AIM7", Both(&["draft-aim"])),
    published(DRAFT, "8", "Exim", Both(&["draft-mail"])),
    published(
        DRAFT,
        "9, 11",
        "by share of updates",
        Both(&["ldu-aim-ratio", "ldu-mail-ratio", "ldu-spawn-ratio"]),
    ),
    published(DRAFT, "10", "lmbench", Both(&["draft-spawn"])),
    published(DRAFT, "a table", "idle times", Simulated(&["draft-aim-idle"])),
    published(PARSEC, "1", "locks on nodes", Built("crates/manycore/src/section")),
    published(PARSEC, "2", "sections", Built("crates/manycore/src/section")),
    published(PARSEC, "3", "which nodes may be reclaimed", Both(&["parsec-optimisations"])),
    published(PARSEC, "4", "sections without updates", Both(&["parsec-4"])),
    published(
        PARSEC,
        "5",
        "reads and updates",
        Both(&["parsec-5", "parsec-5-updates-10", "parsec-5-updates", "parsec-5-updates-90"]),
    ),
    published(PARSEC, "6", "99th percentile", Both(&["parsec-6-10", "parsec-6"])),
    published(PARSEC, "7", "memcached", Both(&["parsec-7-gets", "parsec-7", "parsec-7-20"])),
    published(PARSEC, "8", "memcached, 99th percentile", Both(&["parsec-8"])),
    published(PARSEC, "9", "mapping pages", Both(&["parsec-9"])),
    published(PARSEC, "10", "mapping pages, 99th percentile", Both(&["parsec-10"])),
    published(K42, "1", "SDET", Both(&["k42-1"])),
    published(K42, "2", "PostMark", Both(&["k42-2"])),
    published(K42, "3", "parallel make", Both(&["k42-3"])),
    published(K42, "4", "a request that counts", Both(&["k42-4"])),
    published(K42, "5, 6", "objects of a kernel", Built("crates/manycore/src/cluster")),
    published(K42, "7", "the process object", Measured("manycore-bench bench faults")),
    published(K42, "8", "page faults of one process", Both(&["k42-8"])),
    published(K42, "9", "the page manager", Measured("manycore-bench bench file-open")),
    published(K42, "10", "SDET on the page manager", Both(&["k42-10"])),
    published(
        K42,
        "11",
        "the distributed hash table",
        Built("crates/manycore/src/collections/dhash"),
    ),
    published(K42, "12", "one file that all read", Both(&["k42-12"])),
];

/// The list in Markdown: a table, in which figures that `is_shown` below are links.
pub fn markdown(is_shown: impl Fn(&str) -> bool) -> String {
    let mut text = String::from("| Paper | Figure | What | Here |\n|---|---|---|---|\n");
    let mut last = "";
    for one in PUBLISHED {
        let paper = if one.paper == last { "" } else { one.paper };
        last = one.paper;
        let ids = |ids: &[&str]| {
            let link = |id: &&str| match is_shown(id) {
                true => format!("[{id}](#{id})"),
                false => format!("`{id}`"),
            };
            ids.iter().map(link).collect::<Vec<_>>().join(", ")
        };
        let here = match one.here {
            Both(figures) => format!("simulated and measured: {}", ids(figures)),
            Simulated(figures) => format!("simulated: {}", ids(figures)),
            Measured(command) => format!("measured: `{command}`"),
            Built(place) => format!("code: `{place}`"),
            Nothing(why) => format!("not here: {why}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {paper} | {} | {} | {here} |", one.number, one.shows);
    }
    text
}

/// The names of the figures that the list speaks of.
pub fn named() -> impl Iterator<Item = &'static str> {
    let ids = |one: &'static Published| match one.here {
        Both(ids) | Simulated(ids) => ids,
        _ => &[],
    };
    PUBLISHED.iter().flat_map(ids).copied()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;
    use crate::{catalogue, figures::all};

    #[test]
    fn list_and_figures_are_the_same() {
        let listed: BTreeSet<_> = named().collect();
        let run: BTreeSet<_> = all().map(|figure| figure.id).collect();
        assert_eq!(listed, run);
        let simulated = PUBLISHED.iter().filter_map(|one| match one.here {
            Simulated(ids) => Some(ids),
            _ => None,
        });
        let simulated: BTreeSet<_> = simulated.flatten().copied().collect();
        let seen = all().filter(|figure| figure.is_seen()).map(|figure| figure.id);
        assert_eq!(simulated, seen.collect());
    }

    #[test]
    fn commands_and_places_exist() {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for one in PUBLISHED {
            match one.here {
                Measured(command) => {
                    let workload = command.strip_prefix("manycore-bench bench ").expect(command);
                    assert!(catalogue::find(workload).is_some(), "{command}");
                }
                Built(place) => assert!(top.join(place).exists(), "{place}"),
                _ => {}
            }
        }
    }

    #[test]
    fn no_figure_of_a_paper_is_missing() {
        let of = |paper: &str| {
            let numbers = PUBLISHED.iter().filter(|one| one.paper == paper);
            numbers.flat_map(|one| one.number.split(", ")).collect::<Vec<_>>()
        };
        let all_of = |paper: &str, numbers: &[String]| {
            let listed = of(paper);
            for number in numbers {
                let has = |listed: &&str| {
                    listed
                        .strip_prefix(&**number)
                        .is_some_and(|rest| !rest.starts_with(char::is_numeric))
                };
                assert!(listed.iter().any(has), "{paper}: {number}");
            }
        };
        let to = |last: u32| (1..=last).map(|number| number.to_string()).collect::<Vec<_>>();
        all_of(OPLOG, &to(13));
        all_of(THESIS, &(1..=19).map(|number| format!("2.{number}")).collect::<Vec<_>>());
        all_of(DRAFT, &to(11));
        all_of(PARSEC, &to(10));
        all_of(K42, &to(12));
    }
}
