//! The result of a run: a text file that the command reads.
//!
//! A line is a word and its values, separated by spaces, with paths last. `site`, `block` and
//! `stack` lines belong to the `line` above them; `block` and `stack` say what lies on the cache
//! line. Addresses are those of the process, and `module` lines map them to files.

use std::fmt::Write;

use manycore_sim::{Access, LineCost, Totals, WaitFor};

use super::{Simulation, stop, with};
use crate::{diagnostics, frames, host, uninstrumented};

/// The version of the file. The command refuses other versions.
const FORM: u32 = 2;
/// Maximal cache lines that are reported.
const LINES: usize = 60;
/// Maximal frames of a place that are reported.
const FRAMES: usize = 24;

/// Writes the result at the end of the program.
pub(crate) extern "C" fn at_exit() {
    if stop() {
        write(None);
    }
}

/// Writes the result and ends the process, because no thread can run.
pub(crate) fn deadlock() -> ! {
    stop();
    let blocked = with(|sim| sim.engine.deadlock());
    write(Some(&blocked));
    diagnostics::exit(diagnostics::EXIT_GIVEN_UP)
}

fn write(deadlock: Option<&manycore_sim::Deadlock>) {
    let (text, out) = with(|sim| (render(sim, deadlock), sim.out.clone()));
    if let Err(error) = std::fs::write(&out, text) {
        diagnostics::fatal(format_args!("cannot write the result to {out}: {error}"));
    }
}

fn render(sim: &mut Simulation, deadlock: Option<&manycore_sim::Deadlock>) -> String {
    let mut text = format!("manycore-sim {FORM}\n");
    let run = sim.finish_measurement();
    // Writing to a string cannot fail.
    let _ = header(&mut text, sim, &run);
    let _ = modules(&mut text);
    let measured = std::mem::take(&mut sim.measured.lines);
    let whole = sim.measured.parts.is_empty();
    let lines = if whole { sim.engine.dearest_lines(LINES) } else { measured };
    for line in lines {
        let _ = write_line(&mut text, sim, &line);
    }
    for blocked in deadlock.iter().flat_map(|deadlock| &deadlock.threads) {
        let _ = write!(text, "blocked {} {} ", blocked.thread.0, blocked.core);
        let _ = addresses(&mut text, sim, blocked.pc as u64);
    }
    waits(&mut text, sim);
    seen(&mut text, sim);
    text
}

/// Writes a cache line, its places, and what lies on it.
fn write_line(text: &mut String, sim: &Simulation, line: &LineCost) -> std::fmt::Result {
    let LineCost { address, misses, cycles, false_sharing, true_sharing, last, .. } = *line;
    let bytes = 1 << sim.engine.machine().line_shift;
    writeln!(text, "line {address:x} {bytes} {misses} {cycles} {false_sharing} {true_sharing}")?;
    for cost in &line.sites {
        let kind = kind(cost.site.kind);
        let (misses, cycles) = (cost.misses, cost.cycles);
        let sharing = (cost.false_sharing, cost.true_sharing);
        write!(
            text,
            "site {kind} {misses} {cycles} {} {} {:x} ",
            sharing.0, sharing.1, cost.bytes
        )?;
        match cost.core {
            Some(core) => write!(text, "{core} ")?,
            None => text.push_str("- "),
        }
        addresses(text, sim, cost.site.pc as u64)?;
    }
    for block in sim.allocations.at(address, address + bytes, last) {
        write!(text, "block {:x} {} {} ", block.start, block.bytes, block.thread)?;
        addresses(text, sim, block.site)?;
    }
    if let Some((thread, below)) = sim.stack_of(address) {
        writeln!(text, "stack {thread} {below}")?;
    }
    Ok(())
}

/// Writes where the program was at the samples, with the blocks before and after.
fn seen(text: &mut String, sim: &Simulation) {
    let blocks = sim.costs.addresses();
    for (pc, count) in uninstrumented::seen() {
        let before = blocks.range(..=pc).next_back().copied().unwrap_or(0);
        let behind = blocks.range(pc..).next().copied().unwrap_or(0);
        let _ = writeln!(text, "seen {pc:x} {count} {before:x} {behind:x}");
    }
}

/// Writes the timeline, if waits are kept.
fn waits(text: &mut String, sim: &mut Simulation) {
    let (waits, left_out) = sim.engine.take_waits();
    if left_out > 0 {
        let _ = writeln!(text, "waits-left-out {left_out}");
    }
    for wait in waits {
        let call = sim.calls.get(&(wait.thread.0 as usize, wait.begin));
        let (kind, of) = match wait.waits_for {
            // A word of the runtime stands for a wait for files or child processes.
            WaitFor::Futex { .. } if call.is_some() => ("call", 0),
            WaitFor::Futex { address } => ("futex", address),
            WaitFor::Join { thread } => ("join", thread.0 as usize),
            WaitFor::Line { address } => ("line", address),
            WaitFor::Sleep => ("sleep", 0),
            WaitFor::Stores => ("stores", 0),
            WaitFor::Core => ("core", 0),
            _ => ("other", 0),
        };
        let (thread, core, begin, end) = (wait.thread.0, wait.core, wait.begin, wait.end);
        let _ = match call.filter(|_| kind == "call") {
            Some(call) => write!(text, "wait {thread} {core} {begin} {end} {kind}:{call} 0 "),
            None => write!(text, "wait {thread} {core} {begin} {end} {kind} {of:x} "),
        };
        let _ = addresses(text, sim, wait.pc as u64);
    }
}

/// Returns the word for a kind of access.
fn kind(kind: Access) -> &'static str {
    match kind {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Rmw => "locks",
    }
}

/// Writes the addresses of a site, innermost first, separated by commas, and ends the line.
fn addresses(text: &mut String, sim: &Simulation, site: u64) -> std::fmt::Result {
    write!(text, "{:x}", frames::pc(site))?;
    for caller in sim.frames.stack(site).iter().take(FRAMES) {
        write!(text, ",{caller:x}")?;
    }
    writeln!(text)
}

struct Run {
    operations: u64,
    cycles: u64,
    totals: Totals,
}

fn header(text: &mut String, sim: &Simulation, run: &Run) -> std::fmt::Result {
    let totals = &run.totals;
    let counts = [
        ("cores", u64::from(sim.engine.cores())),
        ("threads", sim.threads.len() as u64),
        ("cycles", run.cycles),
        ("end", sim.engine.now()),
        ("operations", run.operations),
        ("reads", totals.accesses[0]),
        ("writes", totals.accesses[1]),
        ("rmws", totals.accesses[2]),
        ("misses", totals.misses),
        ("queued", totals.queued),
        ("waited", totals.waited),
        ("remote-reads", totals.remote_reads),
        ("shared-writes", totals.shared_writes),
        ("memory-fetches", totals.memory_fetches),
        ("fences", totals.fences),
        ("idle", totals.idle),
        ("futex-waits", totals.futex_waits),
        ("futex-wakes", totals.futex_wakes),
        ("switches", totals.switches),
        ("lines-touched", sim.engine.lines_touched() as u64),
        ("left", sim.patches.left.len() as u64),
        ("host-ns", host::nanoseconds() - sim.began),
    ];
    counts.iter().try_for_each(|(name, value)| writeln!(text, "{name} {value}"))
}

/// Writes the mappings of files as the kernel lists them, each after the word `module`.
fn modules(text: &mut String) -> std::fmt::Result {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut files = maps.lines().filter(|map| map.contains('/'));
    files.try_for_each(|map| writeln!(text, "module {map}"))
}

impl Simulation {
    /// Returns the measured part: what the program marked, or everything.
    fn finish_measurement(&mut self) -> Run {
        self.end_part();
        let measured = &self.measured;
        if measured.parts.is_empty() {
            let operations = measured.operations;
            return Run { operations, cycles: self.engine.now(), totals: self.engine.totals() };
        }
        let totals = measured.parts.iter().fold(Totals::default(), |sum, part| add(&sum, part));
        Run { operations: measured.operations, cycles: measured.cycles, totals }
    }

    /// Begins a measured part. From here on the costs of lines count for it.
    pub(crate) fn begin_part(&mut self) {
        if self.measured.parts.is_empty() && self.measured.since.is_none() {
            self.engine.forget_costs();
            self.measured.operations = 0;
        }
        self.measured.since = Some((self.engine.now(), self.engine.totals()));
    }

    /// Ends a measured part.
    pub(crate) fn end_part(&mut self) {
        if let Some((time, totals)) = self.measured.since.take() {
            self.measured.cycles += self.engine.now().saturating_sub(time);
            self.measured.parts.push(self.engine.totals().since(&totals));
            self.measured.lines = self.engine.dearest_lines(LINES);
        }
    }
}

fn add(a: &Totals, b: &Totals) -> Totals {
    let accesses = [0, 1, 2].map(|kind| a.accesses[kind] + b.accesses[kind]);
    Totals {
        accesses,
        misses: a.misses + b.misses,
        queued: a.queued + b.queued,
        waited: a.waited + b.waited,
        remote_reads: a.remote_reads + b.remote_reads,
        shared_writes: a.shared_writes + b.shared_writes,
        memory_fetches: a.memory_fetches + b.memory_fetches,
        fences: a.fences + b.fences,
        idle: a.idle + b.idle,
        futex_waits: a.futex_waits + b.futex_waits,
        futex_wakes: a.futex_wakes + b.futex_wakes,
        switches: a.switches + b.switches,
    }
}
