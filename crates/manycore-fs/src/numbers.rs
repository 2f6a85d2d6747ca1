//! Hands out the numbers of inodes. Threads take them from different chunks of 64, so that the
//! inodes which two threads make lie in different nodes of the table.
//!
//! - numbers.N1 A number is handed out once in the life of a file system, over all branches. So a
//!   branch's file keeps its number when it moves to the parent, and a dead number stays dead.

use crate::{Error, Ino, Result};
use manycore::percpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of a chunk: those of one node.
const CHUNK: u64 = 64;

/// The next chunk of a file system.
pub(crate) struct Chunks(AtomicU64);

impl Chunks {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(1)) // the root is in chunk 0
    }

    /// The chunk that is handed out next.
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Does not hand out this number, nor any before it.
    pub(crate) fn pass(&self, ino: Ino) {
        self.0.fetch_max(ino.0 / CHUNK + 1, Ordering::Relaxed);
    }

    fn next(&self) -> Result<u64> {
        let next = |chunk: u64| (chunk < 1 << 34).then_some(chunk + 1);
        let chunk = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        chunk.map(|chunk| chunk * CHUNK).map_err(|_| Error::NoSpace)
    }
}

/// A line with the next number of some threads.
#[repr(align(128))]
struct Stripe(AtomicU64);

/// The numbers of a branch, or of the base.
pub(crate) struct Numbers {
    stripes: Box<[Stripe]>,
    chunks: std::sync::Arc<Chunks>,
}

impl Numbers {
    pub(crate) fn new(chunks: std::sync::Arc<Chunks>, stripes: usize) -> Self {
        let stripes = (0..stripes.max(1)).map(|_| Stripe(AtomicU64::new(0))).collect();
        Self { stripes, chunks }
    }

    /// Returns a number that was not handed out before. No shared line is written, if there are
    /// as many stripes as threads, but for one number in 64.
    ///
    /// # Errors
    /// `NoSpace` after 2^40 files.
    pub(crate) fn next(&self) -> Result<Ino> {
        let stripe = &self.stripes[percpu::current_slot() % self.stripes.len()].0;
        let mut next = stripe.load(Ordering::Relaxed);
        let mut chunk = None;
        loop {
            // A multiple of 64: the chunk is used up. (The first number of a chunk is taken at
            // once, so it never stands here.)
            let number = if next % CHUNK == 0 {
                match chunk {
                    Some(number) => number,
                    None => *chunk.insert(self.chunks.next()?),
                }
            } else {
                next
            };
            // ORDER: Relaxed; only the number itself is taken.
            let order = Ordering::Relaxed;
            match stripe.compare_exchange_weak(next, number + 1, order, order) {
                Ok(_) => return Ok(Ino(number)),
                Err(now) => next = now,
            }
        }
    }
}
