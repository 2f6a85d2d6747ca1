//! A worker of the reverse map's loads: it creates and ends processes, and truncates files.
//!
//! Owns: what a process maps, how it is created and ended, and how often mappings are read.
//!
//! Laws:
//!
//! 1. A process adds [`MAPPINGS`] mappings one at a time and removes the same ones again.
//! 2. Mappings that exist at the same time differ in their ids, on all threads.
//! 3. A truncate follows after a number k of the worker's own updates: of k + 1 operations on
//!    reverse maps, k are updates. The thesis sets the share in the same way (LDU, 2.6.5): reads
//!    are added in proportion to updates.

use std::{hint::black_box, ops::Range};

use super::ReverseMap;
use crate::{ticks::spin, workload::Shape};

/// Files that processes share.
pub(super) const FILES: usize = 16;

/// Mappings of one process.
pub(super) const MAPPINGS: usize = 8;

/// Pages of a file.
pub(super) const PAGES: u64 = 1024;

/// What a process maps, by a linear congruence: every run maps the same.
pub(super) struct Choices {
    random: u32,
    /// The sums of 1/n, scaled to 2^16.
    sums: [u32; FILES],
}

impl Choices {
    pub(super) fn new(thread: usize) -> Self {
        let mut sum = 0.0;
        let parts: f64 = (1..=FILES).map(|n| 1.0 / n as f64).sum();
        let sums = std::array::from_fn(|file| {
            sum += 1.0 / (file + 1) as f64;
            (sum / parts * 65_536.0) as u32
        });
        Self { random: 0x9E37_79B9_u32.wrapping_mul(thread as u32 + 1), sums }
    }

    fn next(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random >> 16
    }

    fn file(&mut self) -> usize {
        let at = self.next();
        self.sums.iter().position(|sum| at < *sum).unwrap_or(FILES - 1)
    }

    /// Something from half of this to one and a half of it.
    fn about(&mut self, ticks: u64) -> u64 {
        ticks / 2 + ((ticks * u64::from(self.next())) >> 16)
    }

    pub(super) fn pages(&mut self) -> Range<u64> {
        let start = u64::from(self.next()) % (PAGES - 64);
        start..start + 1 + u64::from(self.next()) % 64
    }
}

/// A process: where it is mapped.
pub(super) struct Process<'a, R: ReverseMap>(Vec<(&'a R, R::Mapping<'a>)>);

/// One thread of the benchmark.
pub(super) struct Worker<'a, R> {
    files: &'a [R],
    shape: Shape,
    choices: Choices,
    until_read: u64,
    /// Below the ids of its mappings.
    first: usize,
}

impl<'a, R: ReverseMap> Worker<'a, R> {
    /// Worker `index`, which has at most `processes` at a time, as every worker of the run.
    pub(super) fn new(files: &'a [R], shape: Shape, index: usize, processes: usize) -> Self {
        Self {
            files,
            shape,
            choices: Choices::new(index),
            until_read: shape.read_every.countdown(),
            first: index * processes * MAPPINGS,
        }
    }

    /// Makes its process number `slot`, with `ticks` of other work after each mapping.
    #[inline]
    pub(super) fn create(&mut self, slot: usize, ticks: u64) -> Process<'a, R> {
        let mut mappings = Vec::with_capacity(MAPPINGS);
        let first = self.first + slot * MAPPINGS;
        for id in first..first + MAPPINGS {
            let file = &self.files[self.choices.file()];
            mappings.push((file, file.add(self.choices.pages(), id as u32)));
            self.updated(ticks);
        }
        Process(mappings)
    }

    /// Ends a process, with `ticks` of other work after each mapping.
    #[inline]
    pub(super) fn exit(&mut self, process: Process<'a, R>, ticks: u64) {
        for (file, mapping) in process.0 {
            file.remove(mapping);
            self.updated(ticks);
        }
    }

    #[inline]
    fn updated(&mut self, ticks: u64) {
        spin(self.shape.spin);
        if ticks != 0 {
            spin(self.choices.about(ticks));
        }
        self.until_read -= 1;
        if self.until_read == 0 {
            self.truncate();
            self.until_read = self.shape.read_every.countdown();
        }
    }

    fn truncate(&mut self) {
        let (file, pages) = (self.choices.file(), self.choices.pages());
        let mut digest = 0_u64;
        let add = |id| digest = digest.wrapping_add((1 << 32) | u64::from(id));
        self.files[file].for_overlapping(pages, add);
        black_box(digest);
    }
}
