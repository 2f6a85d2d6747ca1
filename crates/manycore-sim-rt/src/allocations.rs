//! Where the program's blocks were allocated, so that a report can name the data on a cache line.
//!
//! This module owns the blocks in use and the last [`FREED`] freed ones: most of what a program
//! shares is freed before the run ends and the report is made. A block is identified by its
//! addresses and its time, so that a later block at the same place is not taken for it.
//!
//! Law allocations.A1: blocks in use don't overlap.

use std::collections::{BTreeMap, VecDeque};

/// Freed blocks that are remembered.
const FREED: usize = 1 << 18;

/// A block of the program's heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: usize,
    pub(crate) bytes: usize,
    /// The place of the allocation: an address of the program and the calls that led there.
    pub(crate) site: u64,
    pub(crate) thread: usize,
    /// Virtual time, in cycles.
    allocated: u64,
    freed: u64,
}

impl Block {
    fn meets(&self, from: usize, to: usize) -> bool {
        self.start < to && from < self.start + self.bytes
    }
}

#[derive(Debug, Default)]
pub(crate) struct Allocations {
    live: BTreeMap<usize, Block>,
    freed: VecDeque<Block>,
}

impl Allocations {
    /// Records that a thread has now allocated a block at that place of the program.
    pub(crate) fn add(
        &mut self,
        start: usize,
        bytes: usize,
        (site, thread, now): (u64, usize, u64),
    ) {
        if start != 0 {
            let block = Block { start, bytes, site, thread, allocated: now, freed: u64::MAX };
            self.live.insert(start, block);
        }
    }

    /// Records that a block is freed now.
    pub(crate) fn remove(&mut self, start: usize, now: u64) {
        if let Some(block) = self.live.remove(&start) {
            if self.freed.len() == FREED {
                self.freed.pop_front();
            }
            self.freed.push_back(Block { freed: now, ..block });
        }
    }

    /// Returns the blocks that had bytes in the range at that time, sorted by address.
    pub(crate) fn at(&self, from: usize, to: usize, time: u64) -> Vec<Block> {
        // allocations.A1: of the blocks that begin before, only the last can reach into the range.
        let first = self.live.range(..=from).next_back().map_or(from, |(start, _)| *start);
        let live = self.live.range(first..to).map(|(_, block)| block);
        let known = live.chain(&self.freed);
        let then = |block: &&Block| {
            block.meets(from, to) && block.allocated <= time && time <= block.freed
        };
        let mut found: Vec<Block> = known.filter(then).copied().collect();
        found.sort_by_key(|block| block.start);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_the_blocks_of_its_time() {
        let mut blocks = Allocations::default();
        blocks.add(0x1030, 0x30, (1, 0, 10));
        blocks.add(0x1068, 8, (2, 1, 20));
        blocks.add(0x1080, 8, (3, 1, 20));
        let sites = |blocks: &Allocations, time| {
            let found = blocks.at(0x1040, 0x1080, time);
            found.iter().map(|block| block.site).collect::<Vec<_>>()
        };
        assert_eq!(sites(&blocks, 15), [1]);
        assert_eq!(sites(&blocks, 25), [1, 2]);
        blocks.remove(0x1030, 30);
        blocks.add(0x1040, 0x10, (4, 0, 40));
        assert_eq!(sites(&blocks, 29), [1, 2], "freed since, and known");
        assert_eq!(sites(&blocks, 35), [2]);
        assert_eq!(sites(&blocks, 45), [4, 2]);
    }
}
