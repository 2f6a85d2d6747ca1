//! Files that are kept although they may have no name: open files and what a kernel remembers.
//!
//! - kept.K1 A file's counts and its removal from the table are decided under the lock of its
//!   shard. So a file for which `keep` succeeded stays, and a removed file can't be kept.

use crate::Ino;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;

/// The kept files of a branch.
pub(crate) struct Kept(Box<[Mutex<Shard>]>);

/// How often each file of a shard is kept.
#[derive(Default)]
pub(crate) struct Shard(HashMap<u64, u64>);

impl Kept {
    pub(crate) fn new() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }

    pub(crate) fn lock(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        let hash = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        self.0[hash as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    pub(crate) fn is_kept(&self, ino: Ino) -> bool {
        self.0.contains_key(&ino.0)
    }

    pub(crate) fn keep(&mut self, ino: Ino) {
        *self.0.entry(ino.0).or_insert(0) += 1;
    }

    /// Gives up `count` calls of `keep`. Returns true if none is left now and there was one.
    pub(crate) fn forget(&mut self, ino: Ino, count: u64) -> bool {
        let Some(kept) = self.0.get_mut(&ino.0) else { return false };
        *kept = kept.saturating_sub(count);
        let is_last = *kept == 0;
        if is_last {
            self.0.remove(&ino.0);
        }
        is_last
    }
}
