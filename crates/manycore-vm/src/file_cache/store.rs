//! How a table gets a page, and how it gives back a changed page.

use super::File;
use super::page::Frame;
use crate::Error;
use crate::sync::{AtomicUsize, Mutex, Ordering, lock};
use manycore::collections::{PageStore, Pinned};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

pub(super) type Pin<'p> = Pinned<'p, Store, PageHasher>;

/// Where a file's table gets pages: from the source, or from the previous form.
pub(super) struct Store {
    pub(super) file: Arc<File>,
    /// Pages of the previous form. Filled only while they are moved.
    moved: Mutex<HashMap<u64, Arc<Frame>>>,
    is_moving: AtomicUsize,
}

impl Store {
    pub(super) fn new(file: &Arc<File>) -> Self {
        let (moved, is_moving) = (Mutex::default(), AtomicUsize::new(0));
        Self { file: Arc::clone(file), moved, is_moving }
    }

    /// Runs `f`. Loads of these pages within `f` find them.
    pub(super) fn move_in(&self, pages: &[(u64, Arc<Frame>)], f: impl FnOnce()) {
        *lock(&self.moved) = pages.iter().cloned().collect();
        // ORDER: Relaxed, here and below; as in `load`.
        self.is_moving.store(1, Ordering::Relaxed);
        f();
        self.is_moving.store(0, Ordering::Relaxed);
    }
}

impl PageStore for Store {
    type Key = u64;
    type Page = Arc<Frame>;
    type Error = Error;

    fn load(&self, number: &u64) -> Result<Arc<Frame>, Error> {
        // ORDER: Relaxed; only the thread that moves pages sets it, and the same thread loads them.
        if self.is_moving.load(Ordering::Relaxed) > 0 {
            if let Some(frame) = lock(&self.moved).remove(number) {
                return Ok(frame);
            }
        }
        let offset = number * self.file.page_bytes as u64;
        self.file.charge(offset)?;
        // Its drop releases the charge if a later step fails.
        let mut frame = Frame::charged(&self.file);
        self.file.read_ahead(*number);
        frame.fill(offset)?;
        Ok(Arc::new(frame))
    }

    fn write_back(&self, number: &u64, frame: &Arc<Frame>) -> Result<(), Error> {
        frame.write_back(number * self.file.page_bytes as u64)
    }
}

/// Hashes page numbers: a multiplication with a secret of the file, and its folded halves.
#[derive(Debug, Clone)]
pub(super) struct PageHasher(u64);

impl PageHasher {
    pub(super) fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for PageHasher {
    type Hasher = Folded;

    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded(self.0)
    }
}

pub(super) struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15_u128;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}
