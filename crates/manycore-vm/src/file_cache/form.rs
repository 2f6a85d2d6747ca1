//! The forms of a file's cache. They replace each other while threads use them (file_cache.F2).

use super::File;
use super::page::Frame;
use super::store::{PageHasher, Pin, Store};
use super::view::FilePage;
use crate::sync::seeded_bug;
use crate::{Error, ErrorKind};
use manycore::cluster::Family;
use manycore::collections::{DHashBuilder, Distribution, PageCache, PinError};
use std::fmt;
use std::sync::Arc;

/// The form in which a [`FileCache`](super::FileCache) keeps its pages.
///
/// ```
/// use manycore_vm::{FileCache, FileForm, MemoryFile};
///
/// let file = FileCache::new(MemoryFile::new(vec![0; 1 << 20]))?;
/// file.with_page(0, |_| ())?;
/// assert_eq!(file.form(), FileForm::Small);
/// (0..100).try_for_each(|page| file.with_page(page, |_| ()))?;
/// assert_eq!((file.form(), file.swaps()), (FileForm::Large, 1));
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    /// One table under one lock, for files with few pages in memory and few threads.
    Small,
    /// Sixteen locks, and a table for each thread once threads wait for each other.
    Large,
}

/// The table that finds a file's pages in memory.
pub(super) struct Table {
    pub(super) form: FileForm,
    pub(super) cache: PageCache<Store, PageHasher>,
}

impl Table {
    /// `is_shared`: threads wait for each other, so each thread gets its own table at once.
    pub(super) fn new(file: &Arc<File>, form: FileForm, is_shared: bool) -> Self {
        let store = Store::new(file);
        let table = DHashBuilder::new().hasher(PageHasher::new());
        let table = match form {
            FileForm::Small => table.shards(1),
            FileForm::Large if is_shared => table.distribution(Distribution::Always),
            FileForm::Large => table,
        };
        Self { form, cache: PageCache::with_builder(store, file.pages_max, table) }
    }

    /// Runs `f` on a page. Also returns true if the page had to be read.
    #[inline]
    pub(super) fn with_page<R>(
        &self,
        number: u64,
        f: impl FnOnce(&FilePage<'_>) -> R,
    ) -> Result<(R, bool), Error> {
        let (pin, was_read) = match self.cache.pin_if_cached(&number) {
            Some(pin) => (pin, false),
            None => (self.pin(number)?, true),
        };
        Ok((f(&FilePage { frame: &pin, pin: &pin }), was_read))
    }

    #[cold]
    fn pin(&self, number: u64) -> Result<Pin<'_>, Error> {
        let file = &self.cache.store().file;
        self.cache.pin(&number).map_err(|refused| match refused {
            PinError::Store(error) => error,
            _ => file.error(ErrorKind::NoMemory, number * file.page_bytes as u64, None),
        })
    }

    /// Gives up to `pages` pages back, and skips some that the source does not take.
    pub(super) fn give(&self, pages: usize) -> usize {
        const FAILURES: usize = 8;
        let (mut given, mut failures) = (0, 0);
        while given < pages && failures < FAILURES {
            match self.cache.reclaim_unpinned(1) {
                Ok(0) => break,
                Ok(_) => given += 1,
                Err(_) => failures += 1,
            }
        }
        given
    }
}

/// The pages that move. No thread uses them meanwhile (swap.W1).
pub(super) type Moved = Vec<(u64, Arc<Frame>)>;

impl Family for Table {
    type Part = Moved;

    fn export(&self, _part: usize) -> Moved {
        let mut moved = Vec::new();
        self.cache.for_each(|number, frame| moved.push((*number, Arc::clone(frame))));
        moved
    }

    fn import(&self, pages: Moved) {
        self.cache.store().move_in(&pages, || {
            for (number, frame) in &pages {
                let Ok(pin) = self.cache.pin(number) else {
                    unreachable!("both forms have room for the same pages")
                };
                // BUG: a page that was changed moves as if it were clean (file_cache.F2).
                if frame.is_dirty() && !seeded_bug!("clean-move") {
                    pin.mark_dirty();
                }
            }
        });
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("form", &self.form).finish_non_exhaustive()
    }
}
