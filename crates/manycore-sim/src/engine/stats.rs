//! Statistics: totals, and the costs of each line and each place in the program.

use super::{Access, Engine, hash::Map, thread::Core};

/// Counts since the start. Subtract two of them with [`Totals::since`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Accesses: reads, writes, locked instructions.
    pub accesses: [u64; 3],
    /// Requests for lines: accesses that the core's own cache did not answer.
    pub misses: u64,
    /// Misses that found the line busy.
    pub queued: u64,
    /// Cycles from request to line, over all misses.
    pub waited: u64,
    /// Reads that another core's cache answered.
    pub remote_reads: u64,
    /// Writes that took a line, or copies of it, from other cores.
    pub shared_writes: u64,
    /// Lines that came from memory.
    pub memory_fetches: u64,
    /// Full fences.
    pub fences: u64,
    /// Cycles in which cores had no thread, over all cores.
    pub idle: u64,
    /// Waits at a futex.
    pub futex_waits: u64,
    /// Threads that a futex woke.
    pub futex_wakes: u64,
    /// Changes of the running thread. They measure the simulation, not the program.
    pub switches: u64,
}

impl Totals {
    /// Returns the number of accesses of all kinds.
    pub fn all_accesses(&self) -> u64 {
        self.accesses.iter().sum()
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Totals) -> Totals {
        let accesses = [0, 1, 2].map(|kind| self.accesses[kind] - earlier.accesses[kind]);
        Totals {
            accesses,
            misses: self.misses - earlier.misses,
            queued: self.queued - earlier.queued,
            waited: self.waited - earlier.waited,
            remote_reads: self.remote_reads - earlier.remote_reads,
            shared_writes: self.shared_writes - earlier.shared_writes,
            memory_fetches: self.memory_fetches - earlier.memory_fetches,
            fences: self.fences - earlier.fences,
            // One thread's clock may be ahead of another thread that ends its core's idle time.
            idle: self.idle.saturating_sub(earlier.idle),
            futex_waits: self.futex_waits - earlier.futex_waits,
            futex_wakes: self.futex_wakes - earlier.futex_wakes,
            switches: self.switches - earlier.switches,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SiteKey {
    pub(super) line: u32,
    pub(super) pc: usize,
    pub(super) kind: Access,
}

/// The misses of one site.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) misses: u64,
    pub(super) cycles: u64,
    /// Cycles of the misses that are false sharing, and of those that are true sharing.
    pub(super) false_sharing: u64,
    pub(super) true_sharing: u64,
    /// The bytes of the line, one bit for each of the first 128.
    pub(super) bytes: u128,
    /// When the last miss was served.
    pub(super) last: u64,
    core: Option<u16>,
    has_several_cores: bool,
}

impl Tally {
    /// Notes the core that made the miss.
    pub(super) fn by(&mut self, core: u16) {
        self.has_several_cores |= *self.core.get_or_insert(core) != core;
    }
}

/// A place in the program that misses a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Site {
    /// The `pc` that the caller gave with the access.
    pub pc: usize,
    /// The kind of access.
    pub kind: Access,
}

/// The cost of one line at one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SiteCost {
    /// The place.
    pub site: Site,
    /// The number of times that the place had to wait.
    pub misses: u64,
    /// The cycles that it waited.
    pub cycles: u64,
    /// Cycles of false sharing: no other core touched these bytes since this core last had the
    /// line. With a line for each byte they would have been hits.
    pub false_sharing: u64,
    /// Cycles of true sharing: other cores wrote these bytes, or read them before this core wrote
    /// them. All other misses are first uses, or lines that a cache had no room for.
    pub true_sharing: u64,
    /// The bytes of the line, one bit for each of the first 128.
    pub bytes: u128,
    /// The core, if all misses came from the same one.
    pub core: Option<u32>,
}

/// The cost of one line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LineCost {
    /// The first byte of the line.
    pub address: usize,
    /// Misses of all places.
    pub misses: u64,
    /// Cycles that all places waited for the line.
    pub cycles: u64,
    /// Cycles that are false sharing.
    pub false_sharing: u64,
    /// Cycles that are true sharing.
    pub true_sharing: u64,
    /// When the last miss was served.
    pub last: u64,
    /// The places that access it, the most expensive first.
    pub sites: Vec<SiteCost>,
}

impl Engine {
    /// Returns the counts since the start.
    pub fn totals(&self) -> Totals {
        let idle = self.cores.iter().map(|core| self.idle_of(core)).sum();
        Totals { idle, ..self.totals }
    }

    /// Returns the cycles in which each core had no thread, since the start.
    pub fn idle(&self) -> Vec<u64> {
        self.cores.iter().map(|core| self.idle_of(core)).collect()
    }

    fn idle_of(&self, core: &Core) -> u64 {
        let since = if core.thread.is_none() { self.clock.saturating_sub(core.free_at) } else { 0 };
        core.idle + since
    }

    /// Returns the number of cache lines touched so far.
    pub fn lines_touched(&self) -> usize {
        self.lines.len()
    }

    /// Returns up to `most` lines with their places, the most expensive first.
    pub fn dearest_lines(&self, most: usize) -> Vec<LineCost> {
        let mut by_line: Map<u32, LineCost> = Map::default();
        for (key, tally) in &self.sites {
            let address = (self.lines.number(key.line) << self.shift) as usize;
            let line = by_line.entry(key.line).or_insert_with(|| LineCost {
                address,
                misses: 0,
                cycles: 0,
                false_sharing: 0,
                true_sharing: 0,
                last: 0,
                sites: Vec::new(),
            });
            line.misses += tally.misses;
            line.cycles += tally.cycles;
            line.false_sharing += tally.false_sharing;
            line.true_sharing += tally.true_sharing;
            line.last = line.last.max(tally.last);
            line.sites.push(SiteCost {
                site: Site { pc: key.pc, kind: key.kind },
                misses: tally.misses,
                cycles: tally.cycles,
                false_sharing: tally.false_sharing,
                true_sharing: tally.true_sharing,
                bytes: tally.bytes,
                core: tally.core.filter(|_| !tally.has_several_cores).map(u32::from),
            });
        }
        let mut lines: Vec<LineCost> = by_line.into_values().collect();
        lines.sort_by_key(|line| (u64::MAX - line.cycles, line.address));
        lines.truncate(most);
        for line in &mut lines {
            line.sites.sort_by_key(|cost| (u64::MAX - cost.cycles, cost.site));
        }
        lines
    }

    /// Forgets the costs of lines and places so far. The state of the lines stays.
    ///
    /// Call this after a warm-up, so that its costs do not mix with the rest.
    pub fn forget_costs(&mut self) {
        self.sites.clear();
    }
}
