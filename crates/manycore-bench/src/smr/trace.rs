//! The operations of the threads, worked out before the clock runs.
//!
//! Owns: the form of an operation, and traces. A trace is uniform: each operation is an update with
//! the given probability, and every slot is equally likely. The same length, share and seed give
//! the same trace, for every implementation and every repeat.

use std::sync::{Arc, Mutex, PoisonError};

/// Pointers in the shared table, eight to a line of 64 bytes.
pub const SLOTS: usize = 1024;

/// What every trace is made from.
pub const SEED: u64 = 0x5EED_0F5E_C710_4541;

/// The bit of an operation that says it is an update; the others say which slot.
const UPDATE: u16 = 1 << 15;

/// One operation of a trace. C code knows the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Op(u16);

impl Op {
    /// A read of a slot.
    pub fn read(slot: usize) -> Self {
        Self((slot % SLOTS) as u16)
    }

    /// An update of a slot.
    pub fn update(slot: usize) -> Self {
        Self((slot % SLOTS) as u16 | UPDATE)
    }

    /// Whether it is an update.
    #[inline(always)]
    pub fn is_update(self) -> bool {
        self.0 & UPDATE != 0
    }

    /// Which slot it is about.
    #[inline(always)]
    pub fn slot(self) -> usize {
        usize::from(self.0 & !UPDATE)
    }
}

/// Operations, and which share of them are updates.
#[derive(Debug)]
pub struct Trace {
    ops: Vec<Op>,
    updates: usize,
}

impl Trace {
    /// A trace of `ops` operations, of which about `percent` in a hundred are updates.
    pub fn new(ops: usize, percent: u8) -> Self {
        let mut random = SplitMix(SEED ^ u64::from(percent));
        let op = |_| {
            let word = random.next();
            let slot = word as usize % SLOTS;
            let chance = ((word >> 32) * 100) >> 32;
            if chance < u64::from(percent) { Op::update(slot) } else { Op::read(slot) }
        };
        let ops: Vec<_> = (0..ops).map(op).collect();
        let updates = ops.iter().filter(|op| op.is_update()).count();
        Self { ops, updates }
    }

    /// The same trace as the last caller's if it is of that form, otherwise a new one: the runs of
    /// one group share theirs, and never two are in memory for long.
    pub fn shared(ops: usize, percent: u8) -> Arc<Self> {
        type Form = (usize, u8);
        static LAST: Mutex<Option<(Form, Arc<Trace>)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((form, trace)) if *form == (ops, percent) => Arc::clone(trace),
            _ => {
                *last = None;
                let trace = Arc::new(Self::new(ops, percent));
                *last = Some(((ops, percent), Arc::clone(&trace)));
                trace
            }
        }
    }

    /// The part of thread `index` of `threads`.
    pub fn part(&self, index: usize, threads: usize) -> &[Op] {
        let at = |index: usize| self.ops.len() * index / threads;
        &self.ops[at(index)..at(index + 1)]
    }

    /// The share of updates, from 0 to 1.
    pub fn update_share(&self) -> f64 {
        self.updates as f64 / self.ops.len().max(1) as f64
    }
}

/// Steele, Lea and Flood's generator: small, fast, good enough to choose slots.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, Trace};

    #[test]
    fn a_trace_has_the_share_of_updates_and_touches_every_slot_alike() {
        for percent in [0, 10, 50, 100] {
            let trace = Trace::new(200_000, percent);
            let share = f64::from(percent) / 100.0;
            assert!((trace.update_share() - share).abs() < 0.01, "{}", trace.update_share());
            let mut uses = [0_u32; SLOTS];
            trace.part(0, 1).iter().for_each(|op| uses[op.slot()] += 1);
            let mean = 200_000 / SLOTS as u32;
            assert!(uses.iter().all(|count| (mean / 2..mean * 2).contains(count)));
        }
    }

    #[test]
    fn the_parts_are_the_trace_whatever_its_length() {
        let trace = Trace::new(1_000, 50);
        for threads in [1, 3, 7, 2_000] {
            let parts = (0..threads).flat_map(|index| trace.part(index, threads));
            assert!(parts.eq(trace.part(0, 1)), "{threads}");
        }
    }

    #[test]
    fn the_same_form_gives_the_same_trace() {
        let whole = |trace: &Trace| trace.part(0, 1).to_vec();
        assert_eq!(whole(&Trace::new(100, 10)), whole(&Trace::new(100, 10)));
        assert_ne!(whole(&Trace::new(100, 50)), whole(&Trace::new(100, 10)));
    }
}
