//! The fast path's own small caches: what each core may do without asking.
//!
//! An entry says that a core holds a line, and that nothing about the line can make an access wait
//! (a store on its way, a previous holder). Any such change removes the entry first. So the filter
//! never changes a result, only the time that the engine needs.

const BITS: u32 = 9;
const SLOTS: usize = 1 << BITS;
const MASK: u64 = SLOTS as u64 - 1;
const NONE: u64 = u64::MAX;

/// One direct-mapped table for each core. An entry is the line number times two, plus one if the
/// core may write.
pub(super) struct Filter {
    entries: Vec<u64>,
}

#[inline]
fn slot(core: u16, line: u64) -> usize {
    usize::from(core) << BITS | (line & MASK) as usize
}

impl Filter {
    pub(super) fn new(cores: u32) -> Filter {
        Filter { entries: vec![NONE; (cores as usize) << BITS] }
    }

    /// Returns true if the core may read the line, or write it, without asking.
    #[inline(always)]
    pub(super) fn allows(&self, core: u16, line: u64, write: bool) -> bool {
        let entry = self.entries[slot(core, line)];
        if write { entry == line << 1 | 1 } else { entry >> 1 == line }
    }

    pub(super) fn put(&mut self, core: u16, line: u64, write: bool) {
        self.entries[slot(core, line)] = line << 1 | u64::from(write);
    }

    pub(super) fn take(&mut self, core: u16, line: u64) {
        let entry = &mut self.entries[slot(core, line)];
        if *entry >> 1 == line {
            *entry = NONE;
        }
    }
}
