//! The file that a run leaves. `manycore-sim-rt` writes it; each line is a word and its values.

use std::collections::BTreeMap;

use manycore_sim::symbols::Module;

use crate::failure::Failure;

/// The version of the format that this module reads.
const FIRST_LINE: &str = "manycore-sim 2";

/// The outcome of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Run {
    /// The exit code of the program.
    pub(crate) exit_code: i32,
    pub(super) counts: BTreeMap<String, u64>,
    pub(crate) modules: Vec<Module>,
    /// The cache lines that cost most, the most expensive first.
    pub(crate) lines: Vec<Line>,
    /// The wait-for graph of a deadlock.
    pub(crate) blocked: Vec<Blocked>,
    /// The program's addresses when the runtime looked.
    pub(crate) seen: Vec<Seen>,
    /// The waits of all threads, if they were kept.
    pub(crate) waits: Vec<Wait>,
}

/// An address of the program at which the runtime found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) address: u64,
    pub(crate) count: u64,
    /// The addresses of the nearest blocks that made a callback; 0 for none.
    pub(crate) blocks: [u64; 2],
}

/// A finished wait of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) thread: u64,
    pub(crate) core: u64,
    /// The beginning, in cycles.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// `futex`, `join`, `line`, `sleep`, `call:` and the call's name, or another word.
    pub(crate) kind: String,
    /// The address of the futex or the line, or the thread that is joined.
    pub(crate) of: u64,
    pub(crate) addresses: Vec<u64>,
}

/// A cache line and the places that waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) address: u64,
    /// Its length.
    pub(crate) bytes: u64,
    pub(crate) misses: u64,
    pub(crate) cycles: u64,
    /// Cycles of these.
    pub(crate) false_sharing: u64,
    pub(crate) true_sharing: u64,
    /// The most expensive first.
    pub(crate) sites: Vec<Site>,
    /// The blocks of the heap that have bytes of it.
    pub(crate) blocks: Vec<Block>,
    /// The thread that has it on its stack, and the distance below its thread pointer.
    pub(crate) stack: Option<(u64, u64)>,
}

/// A block of the program's heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The thread that allocated it.
    pub(crate) thread: u64,
    /// The place that allocated it.
    pub(crate) addresses: Vec<u64>,
}

/// A place in the program that waited for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// `reads`, `writes` or `locks`.
    pub(crate) kind: String,
    pub(crate) misses: u64,
    pub(crate) cycles: u64,
    /// Cycles of these.
    pub(crate) false_sharing: u64,
    pub(crate) true_sharing: u64,
    /// The bytes of the line that it used, with a bit for each of the first 128.
    pub(crate) bytes: u128,
    /// The core, if it was always the same.
    pub(crate) core: Option<u32>,
    /// The instruction, and the return addresses of the functions around it.
    pub(crate) addresses: Vec<u64>,
}

/// A thread that waits for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) thread: u64,
    pub(crate) core: u64,
    pub(crate) addresses: Vec<u64>,
}

impl Site {
    /// Adds the counts of the same place on another call path.
    pub(crate) fn add(&mut self, other: &Site) {
        self.misses += other.misses;
        self.cycles += other.cycles;
        self.false_sharing += other.false_sharing;
        self.true_sharing += other.true_sharing;
        self.bytes |= other.bytes;
        self.core = self.core.filter(|core| other.core == Some(*core));
    }
}

impl Run {
    /// Reads the file's text.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(Failure::run("the run left no result that this version can read"));
        }
        let mut run = Self::default();
        for line in lines {
            let damaged = || Failure::run(format_args!("damaged line in a run's result: {line}"));
            run.take(line).ok_or_else(damaged)?;
        }
        Ok(run)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "module" => self.modules.extend(Module::parse(rest)),
            "line" => {
                let [address, counts @ ..] = values::<6>(rest)?;
                let [bytes, misses, cycles, false_sharing, true_sharing] = numbers(counts)?;
                self.lines.push(Line {
                    address: hexadecimal(address)?,
                    bytes,
                    misses,
                    cycles,
                    false_sharing,
                    true_sharing,
                    sites: Vec::new(),
                    blocks: Vec::new(),
                    stack: None,
                });
            }
            "site" => self.lines.last_mut()?.sites.push(site(rest)?),
            "block" => {
                let [start, bytes, thread, addresses] = values(rest)?;
                let [bytes, thread] = numbers([bytes, thread])?;
                let (start, addresses) = (hexadecimal(start)?, list(addresses)?);
                self.lines.last_mut()?.blocks.push(Block { start, bytes, thread, addresses });
            }
            "stack" => {
                let [thread, below] = numbers(values(rest)?)?;
                self.lines.last_mut()?.stack = Some((thread, below));
            }
            "wait" => {
                let [thread, core, begin, end, kind, of, addresses] = values(rest)?;
                self.waits.push(Wait {
                    thread: thread.parse().ok()?,
                    core: core.parse().ok()?,
                    begin: begin.parse().ok()?,
                    end: end.parse().ok()?,
                    kind: kind.to_owned(),
                    of: hexadecimal(of)?,
                    addresses: list(addresses)?,
                });
            }
            "seen" => {
                let [address, count, before, behind] = values(rest)?;
                self.seen.push(Seen {
                    address: hexadecimal(address)?,
                    count: count.parse().ok()?,
                    blocks: [hexadecimal(before)?, hexadecimal(behind)?],
                });
            }
            "blocked" => {
                let [thread, core, addresses] = values(rest)?;
                self.blocked.push(Blocked {
                    thread: thread.parse().ok()?,
                    core: core.parse().ok()?,
                    addresses: list(addresses)?,
                });
            }
            _ => {
                self.counts.insert(word.to_owned(), rest.parse().ok()?);
            }
        }
        Some(())
    }

    /// Returns a failure with the program's exit code, if that is not 0.
    pub(crate) fn failure(&self, cores: u32) -> Option<Failure> {
        let code = self.exit_code;
        (code != 0).then(|| Failure {
            message: format!("on {cores} cores the program ended with exit code {code}"),
            // As in a shell: the low byte, which is not 0 for a failure.
            code: u8::try_from(code & 0xff).unwrap_or(1).max(1),
        })
    }

    /// Returns a count by its name, or 0 if the run has no such count.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Returns a count for each operation, or of the whole run if the program counted no
    /// operations.
    pub(crate) fn each(&self, name: &str) -> f64 {
        self.count(name) as f64 / self.count("operations").max(1) as f64
    }
}

fn site(text: &str) -> Option<Site> {
    let [kind, misses, cycles, false_sharing, true_sharing, bytes, core, addresses] = values(text)?;
    let [misses, cycles, false_sharing, true_sharing] =
        numbers([misses, cycles, false_sharing, true_sharing])?;
    Some(Site {
        kind: kind.to_owned(),
        misses,
        cycles,
        false_sharing,
        true_sharing,
        bytes: u128::from_str_radix(bytes, 16).ok()?,
        core: core.parse().ok(),
        addresses: list(addresses)?,
    })
}

fn numbers<const N: usize>(words: [&str; N]) -> Option<[u64; N]> {
    let all: Option<Vec<u64>> = words.into_iter().map(|word| word.parse().ok()).collect();
    all?.try_into().ok()
}

/// Parses addresses that are separated by commas.
fn list(text: &str) -> Option<Vec<u64>> {
    text.split(',').map(hexadecimal).collect()
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn values<const N: usize>(rest: &str) -> Option<[&str; N]> {
    rest.split(' ').collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "manycore-sim 2\ncores 6\noperations 10\nrmws 25\n\
        module 1000-2000 r-xp 0 0 /a b/prog\nline 40 64 7 900 100 800\n\
        site locks 7 900 100 800 ff 3 1010,1100\nsite reads 1 9 0 0 f0 - 1010\n\
        block 50 24 1 1010,1100\nstack 2 4096\n\
        blocked 3 2 1010\nwait 4 2 100 350 line 40 1010\nwaits-left-out 3\n\
        seen 1010 4 1000 0\n";

    #[test]
    fn result_is_read_as_it_was_written() {
        let run = Run::parse(TEXT).unwrap();
        assert_eq!((run.count("cores"), run.count("absent")), (6, 0));
        assert_eq!(run.count(super::super::timeline::LEFT_OUT), 3);
        assert_eq!(run.each("rmws"), 2.5);
        assert_eq!(run.modules[0].path, "/a b/prog");
        let line = &run.lines[0];
        assert_eq!(line.sites[0].addresses, [0x1010, 0x1100]);
        assert_eq!(
            (line.false_sharing, line.true_sharing, line.stack),
            (100, 800, Some((2, 4096)))
        );
        assert_eq!((line.sites[0].core, line.sites[1].core), (Some(3), None));
        assert_eq!((line.sites[1].bytes, line.blocks[0].start), (0xf0, 0x50));
        assert_eq!(run.blocked[0].core, 2);
        assert_eq!((run.seen[0].count, run.seen[0].blocks), (4, [0x1000, 0]));
        assert_eq!((run.waits[0].end, run.waits[0].of), (350, 0x40));
    }

    #[test]
    fn exit_code_of_the_program_is_the_command_s() {
        let run = Run { exit_code: 3, ..Run::default() };
        let failure = run.failure(6).unwrap();
        assert_eq!(
            (failure.code, &*failure.message),
            (3, "on 6 cores the program ended with exit code 3")
        );
        assert!(Run::default().failure(6).is_none());
    }

    #[test]
    fn other_form_and_damage_are_refused() {
        assert!(Run::parse("manycore-sim 1\n").is_err());
        let damaged = Run::parse("manycore-sim 2\nline 40 64 seven 900 0 0\n").unwrap_err();
        assert!(damaged.message.contains("seven"), "{}", damaged.message);
    }
}
