//! The library's cache of pages.

use std::convert::Infallible;

use foldhash::fast::RandomState;
use manycore::{
    cluster::Placement,
    collections::{PageCache, PageStore, PinError},
};

use super::{Disk, Page, Pages};

impl PageStore for Disk {
    type Key = u64;
    type Page = Page;
    type Error = Infallible;

    fn load(&self, key: &u64) -> Result<Page, Infallible> {
        Ok(self.load(*key))
    }

    fn write_back(&self, _: &u64, page: &Page) -> Result<(), Infallible> {
        self.write_back(page);
        Ok(())
    }
}

/// With the tables at these places.
pub(super) struct Placed<const PER_CORE: bool>(PageCache<Disk, RandomState>);

pub(super) type PerCore = Placed<true>;
pub(super) type Shared = Placed<false>;

impl<const PER_CORE: bool> Pages for Placed<PER_CORE> {
    fn new(disk: Disk, room: usize) -> Self {
        let placement = if PER_CORE { Placement::PerCore } else { Placement::Shared };
        Self(PageCache::with_hasher(disk, room, placement, RandomState::default()))
    }

    #[inline]
    fn with(&self, key: u64, f: impl FnOnce(&Page) -> bool) {
        let page = loop {
            match self.0.pin(&key) {
                Ok(page) => break page,
                // Others look for victims at this moment.
                Err(PinError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        if f(&page) {
            page.mark_dirty();
        }
    }

    fn flush(&self) {
        let Ok(_) = self.0.flush();
    }

    fn disk(&self) -> &Disk {
        self.0.store()
    }
}
