//! The slow model's caches: a queue for each set.

use super::Model;
use crate::engine::caches::{OWN_WAYS, SHARED_WAYS, sets};

impl Model<'_> {
    /// Gives a line a place in a cache. Returns whether it had a place, and which line was
    /// replaced.
    fn put(&mut self, level: u32, cache: u32, number: u64) -> (bool, Option<u64>) {
        let (kib, ways) = match level {
            1 => (self.machine.l1_kib, OWN_WAYS),
            2 => (self.machine.l2_kib, OWN_WAYS),
            _ => (self.machine.l3_kib, SHARED_WAYS),
        };
        if kib == 0 {
            return (true, None);
        }
        let set = number % sets(kib, ways, self.machine.line_shift) as u64;
        let lines = self.caches.entry((level, cache, set)).or_default();
        if lines.contains(&number) {
            return (true, None);
        }
        lines.push_back(number);
        (false, if lines.len() > ways { lines.pop_front() } else { None })
    }

    /// Returns what a line that the core holds costs above a hit of the first cache.
    pub(super) fn level(&mut self, number: u64, core: u32) -> u64 {
        let line = &self.lines[&number];
        if line.owner != Some(core) && !line.copies.contains(&core) {
            return 0;
        }
        let (had, _) = self.put(1, core, number);
        if had { 0 } else { u64::from(self.machine.l2_hit - self.machine.hit) }
    }

    pub(super) fn line_came(&mut self, number: u64, core: u32) {
        if let (_, Some(old)) = self.put(2, core, number) {
            let line = self.lines.get_mut(&old).expect("it came once");
            let had = line.owner == Some(core) || line.copies.contains(&core);
            line.owner = line.owner.filter(|owner| *owner != core);
            line.copies.remove(&core);
            let complex = self.machine.complex(core);
            if had && line.owner.is_none() && line.copies.is_empty() && self.machine.l3_kib > 0 {
                line.shared_in = Some(complex);
                if let (_, Some(older)) = self.put(3, complex, old) {
                    let line = self.lines.get_mut(&older).expect("it came once");
                    line.shared_in = line.shared_in.filter(|there| *there != complex);
                }
            }
        }
        self.put(1, core, number);
    }
}
