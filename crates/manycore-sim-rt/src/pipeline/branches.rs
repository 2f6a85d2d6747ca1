//! The branch predictor: which directions of branches are predicted.
//!
//! It has tables of directions that branches took. A table looks up a case: the branch, and the
//! directions of the last branches before it; each table looks farther back than the one before.
//! The table that looks farthest back and knows the case predicts the direction. A case enters a
//! table when the table before it was wrong. This is the structure of current predictors (TAGE:
//! Seznec and Michaud, JILP 2006), but smaller, and with whole targets: it predicts indirect calls
//! like branches.

/// The number of branches that each table looks back.
const LENGTHS: [u32; 4] = [0, 6, 20, 60];

/// Entries of each table.
const ENTRIES: usize = 1 << 12;

/// Bits of the history for each branch.
const BITS: u32 = 2;

/// The directions of a thread's last branches.
#[derive(Clone, Copy, Default)]
pub(super) struct History(u128);

/// The prediction for a case: a branch after other branches.
#[derive(Clone, Copy, Default)]
struct Entry {
    case: u64,
    /// The target.
    next: usize,
    /// Right predictions less wrong ones; at most 3.
    trust: u8,
}

/// The tables.
pub(super) struct Branches([Vec<Entry>; LENGTHS.len()]);

fn mix(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl History {
    /// Hashes the last `length` branches.
    fn last(self, length: u32) -> u64 {
        let bits = self.0 & ((1 << (length * BITS)) - 1);
        mix(bits as u64) ^ mix(mix((bits >> 64) as u64))
    }

    fn add(&mut self, next: usize) {
        let bits = u128::from(mix(next as u64) >> 50) & ((1 << BITS) - 1);
        self.0 = self.0 << BITS | bits;
    }
}

impl Branches {
    pub(super) fn new() -> Self {
        Self(LENGTHS.map(|_| vec![Entry::default(); ENTRIES]))
    }

    fn entry(&mut self, table: usize, case: u64) -> &mut Entry {
        &mut self.0[table][(case >> 40) as usize % ENTRIES]
    }

    /// Returns true if the branch at `place` was predicted to go to `next`, as it does now. The
    /// first execution of a branch counts as predicted.
    pub(super) fn is_foreseen(&mut self, place: usize, next: usize, history: &mut History) -> bool {
        // Odd, so that no case equals an empty entry.
        let cases = LENGTHS.map(|length| mix(place as u64 ^ history.last(length) >> 3) | 1);
        history.add(next);
        let known = |table: &usize| self.entry(*table, cases[*table]).case == cases[*table];
        let Some(table) = (0..LENGTHS.len()).rev().find(known) else {
            *self.entry(0, cases[0]) = Entry { case: cases[0], next, trust: 1 };
            return true;
        };
        let entry = self.entry(table, cases[table]);
        let is_right = entry.next == next;
        match entry.trust {
            trust if is_right => entry.trust = (trust + 1).min(3),
            0 => (entry.next, entry.trust) = (next, 1),
            trust => entry.trust = trust - 1,
        }
        if let (false, Some(&case)) = (is_right, cases.get(table + 1)) {
            let entry = self.entry(table + 1, case);
            match entry.trust {
                0 | 1 => *entry = Entry { case, next, trust: 1 },
                trust => entry.trust = trust - 1,
            }
        }
        is_right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the share of a branch's ways that was not predicted, after an equal number that is
    /// not counted.
    fn wrong(way: impl Fn(u64) -> bool) -> f64 {
        const TIMES: u64 = 20_000;
        let (mut branches, mut history) = (Branches::new(), History::default());
        let mut go = |step| {
            let next = if way(step) { 0x2000 } else { 0x3000 };
            !branches.is_foreseen(0x1000, next, &mut history)
        };
        (0..TIMES).for_each(|step| _ = go(step));
        (TIMES..2 * TIMES).filter(|step| go(*step)).count() as f64 / TIMES as f64
    }

    #[test]
    fn what_repeats_is_foreseen_and_chance_is_not() {
        assert!(wrong(|_| true) < 0.001);
        assert!(wrong(|step| step % 2 == 0) < 0.001);
        assert!(wrong(|step| step % 17 == 0) < 0.001);
        let chance = |step: u64| mix(mix(step) ^ step >> 7) >> 60 & 1 == 0;
        let wrong = wrong(chance);
        assert!((0.4..0.6).contains(&wrong), "{wrong}");
    }

    #[test]
    fn rare_way_costs_one_mistake() {
        // The rare way comes once in 100, at random. Always predicting the other way is wrong once
        // in 100.
        let wrong = wrong(|step| mix(mix(step) ^ step >> 9) >> 32 & 0xffff < 655);
        assert!(wrong < 0.025, "{wrong}");
    }
}
