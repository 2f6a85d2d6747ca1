//! The library's address space, file caches and page manager.

use std::{io, sync::Arc};

use manycore::collections::BudgetTree;
use manycore_vm::{AddressSpace, FileCache, FilePage, FileSource, PageManager};

use super::{PAGE, PAGES, Process, word};

/// A file whose pages begin with their words.
pub(super) struct Numbered(pub(super) u64);

impl FileSource for Numbered {
    fn length(&self) -> io::Result<u64> {
        Ok((PAGES * PAGE) as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let page = offset as usize / PAGE;
        into[..8].copy_from_slice(&word(self.0, page).to_ne_bytes());
        Ok(into.len())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// The first word.
pub(super) fn first(page: &FilePage<'_>) -> u64 {
    page.words()[0].load(std::sync::atomic::Ordering::Relaxed)
}

/// A manager of so many pages.
pub(super) fn manager(pages: usize) -> PageManager {
    PageManager::new(BudgetTree::new((pages * PAGE) as u64))
}

/// A file within it.
pub(super) fn open(manager: &PageManager, number: u64) -> Arc<FileCache> {
    let file = FileCache::builder(Numbered(number)).within(manager).build();
    file.expect("the source knows its length")
}

pub(super) struct Space {
    space: AddressSpace,
    manager: PageManager,
}

/// Maps all of a file.
pub(super) fn map(space: &AddressSpace, at: usize, file: &Arc<FileCache>) {
    space.enter().map(at, PAGES, file, 0).expect("the thread's own addresses");
}

/// The first word of a page.
pub(super) fn touch(space: &AddressSpace, at: usize) -> Option<u64> {
    space.enter().touch(at, |page, _| first(page)).ok()
}

impl Process for Space {
    type File = Arc<FileCache>;
    type Region = usize;

    fn new(pages_max: usize) -> Self {
        Self { space: AddressSpace::new(), manager: manager(pages_max) }
    }

    fn open(&self, number: u64) -> Arc<FileCache> {
        open(&self.manager, number)
    }

    fn map(&self, at: usize, file: &Arc<FileCache>) -> usize {
        map(&self.space, at, file);
        at
    }

    #[inline]
    fn touch(&self, at: &usize, page: usize) -> Option<u64> {
        touch(&self.space, at + page * PAGE)
    }

    fn unmap(&self, at: &usize) {
        self.space.enter().unmap(*at, PAGES).expect("the thread's own region");
    }
}
