//! Caches of limited size: which lines each core's own caches and the shared ones have room for.
//!
//! Each level is a table of sets, and a set replaces its lines in the order in which they came, so
//! that a hit changes nothing. That is what the fast path needs: it answers hits of the first level
//! without looking here. A line that is taken away from a core keeps its place in that core's sets
//! until it is replaced; whether the core may use it is the line's state, not the cache's.

use super::{Engine, cores::NO_CORE};
use crate::machine::Machine;

/// Places of a set: of the own caches, and of the shared one.
pub(crate) const OWN_WAYS: usize = 8;
pub(crate) const SHARED_WAYS: usize = 16;

/// One level of all cores, or of all complexes.
struct Level {
    /// Sets of one cache; 0: the level has no limit.
    sets: usize,
    ways: usize,
    /// For each cache, set and place, the line's index and one.
    places: Vec<u32>,
    /// For each set the place that is filled next.
    next: Vec<u8>,
}

/// Sets of a cache of so many KiB; 0 if there is no limit.
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

    /// Gives the line a place, if it has none; returns the line that had it.
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

    /// Whether a core's first level has the line.
    #[cfg(test)]
    pub(super) fn is_first(&self, core: u16, number: u64, line: u32) -> bool {
        self.first.sets == 0 || self.first.has(core, number, line)
    }
}

impl Engine {
    /// What a line that the running thread's core holds costs above a hit of the first level.
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

    /// A line has come to a core: what it replaces leaves.
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

    /// A core gives a line up; if no other has it, the shared cache of its complex takes it.
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

    /// Takes a line that no core has from a shared cache, if one has it: the cycles that it takes.
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
