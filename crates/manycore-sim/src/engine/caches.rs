//! Caches of limited size: which lines fit into each core's own caches and into the shared ones.
//!
//! Each level is a table of sets. A set replaces its lines in the order in which they came, so a
//! hit changes nothing. The fast path needs that: it answers hits of the first level without a call
//! here. A line that another core takes away keeps its place until it is replaced. Whether the core
//! may use the line depends on the line's state, not on the cache.

use super::{Engine, cores::NO_CORE};
use crate::machine::Machine;

/// Ways of a set: of a core's own caches, and of a shared cache.
pub(crate) const OWN_WAYS: usize = 8;
pub(crate) const SHARED_WAYS: usize = 16;

/// One level of all cores, or of all complexes.
struct Level {
    /// Sets of one cache; 0: the level has no limit.
    sets: usize,
    ways: usize,
    /// For each cache, set and way: the line's index plus one, or 0.
    places: Vec<u32>,
    /// For each set: the way that is filled next.
    next: Vec<u8>,
}

/// Returns the number of sets of a cache of `kib` KiB, or 0 if there is no limit.
pub(crate) fn sets(kib: u32, ways: usize, line_shift: u32) -> usize {
    let lines = (kib as usize * 1024) >> line_shift;
    if kib == 0 { 0 } else { (lines / ways).max(1) }
}

impl Level {
    fn new(caches: usize, kib: u32, ways: usize, machine: &Machine) -> Level {
        let sets = sets(kib, ways, machine.line_shift);
        Level { sets, ways, places: vec![0; caches * sets * ways], next: vec![0; caches * sets] }
    }

    fn set(&self, cache: u16, number: u64) -> usize {
        usize::from(cache) * self.sets + (number % self.sets as u64) as usize
    }

    fn has(&self, cache: u16, number: u64, line: u32) -> bool {
        let first = self.set(cache, number) * self.ways;
        self.places[first..first + self.ways].contains(&(line + 1))
    }

    /// Gives the line a place if it has none. Returns the line that it replaced.
    fn put(&mut self, cache: u16, number: u64, line: u32) -> Option<u32> {
        if self.has(cache, number, line) {
            return None;
        }
        let set = self.set(cache, number);
        let place = &mut self.places[set * self.ways + usize::from(self.next[set])];
        self.next[set] = (self.next[set] + 1) % self.ways as u8;
        std::mem::replace(place, line + 1).checked_sub(1)
    }
}

/// The caches of all cores.
pub(super) struct Caches {
    first: Level,
    second: Level,
    shared: Level,
    is_limited: bool,
}

impl Caches {
    pub(super) fn new(machine: &Machine, units: usize) -> Caches {
        Caches {
            first: Level::new(units, machine.l1_kib, OWN_WAYS, machine),
            second: Level::new(units, machine.l2_kib, OWN_WAYS, machine),
            shared: Level::new(machine.complexes() as usize, machine.l3_kib, SHARED_WAYS, machine),
            is_limited: machine.l1_kib > 0 || machine.l2_kib > 0,
        }
    }

    /// Returns true if the core's first level has the line.
    #[cfg(test)]
    pub(super) fn is_first(&self, core: u16, number: u64, line: u32) -> bool {
        self.first.sets == 0 || self.first.has(core, number, line)
    }
}

impl Engine {
    /// Returns what a line costs above a first-level hit. The running thread's core holds the line.
    #[inline]
    pub(super) fn level(&mut self, at: u32, number: u64) -> u64 {
        if !self.caches.is_limited { 0 } else { self.second_level(at, number) }
    }

    fn second_level(&mut self, at: u32, number: u64) -> u64 {
        let core = self.unit;
        let held = self.lines[at].holds(core, false);
        if self.caches.first.sets == 0 || !held || self.caches.first.has(core, number, at) {
            return 0;
        }
        self.enter_first(core, number, at);
        u64::from(self.machine.l2_hit.saturating_sub(self.machine.hit))
    }

    fn enter_first(&mut self, core: u16, number: u64, at: u32) {
        if let Some(old) = self.caches.first.put(core, number, at) {
            self.filter.take(core, self.lines.number(old));
        }
    }

    /// Puts a line that came to a core into the core's caches, which may evict others.
    #[inline]
    pub(super) fn line_came(&mut self, at: u32, core: u16) {
        if self.caches.is_limited {
            self.make_room(at, core);
        }
    }

    fn make_room(&mut self, at: u32, core: u16) {
        let number = self.lines.number(at);
        if self.caches.second.sets > 0
            && let Some(old) = self.caches.second.put(core, number, at)
        {
            self.leave_core(old, core);
        }
        if self.caches.first.sets > 0 {
            self.enter_first(core, number, at);
        }
    }

    /// Drops a line from a core. If no other core has it, the complex's shared cache takes it.
    fn leave_core(&mut self, at: u32, core: u16) {
        let number = self.lines.number(at);
        self.filter.take(core, number);
        if !self.lines[at].drop_by(core) || self.caches.shared.sets == 0 {
            return;
        }
        let complex = self.complex_of[usize::from(core)];
        if let Some(old) = self.caches.shared.put(complex, number, at)
            && self.lines[old].shared_in == complex
        {
            self.lines[old].shared_in = NO_CORE;
        }
        self.lines[at].shared_in = complex;
    }

    /// Takes a line that no core has from a shared cache. Returns the cycles, or `None` if no cache
    /// has it.
    pub(super) fn take_from_shared(&mut self, at: u32, core: u16) -> Option<u64> {
        let complex = std::mem::replace(&mut self.lines[at].shared_in, NO_CORE);
        let own = self.complex_of[usize::from(core)];
        let far = || self.distance[usize::from(own) * self.complexes + usize::from(complex)];
        let cost = match complex {
            NO_CORE => return None,
            near if near == own => self.machine.l3_hit,
            _ => far(),
        };
        Some(u64::from(cost))
    }
}
