//! The library's cache of pages.

use std::{convert::Infallible, marker::PhantomData};

use foldhash::fast::RandomState;
use manycore::collections::{DHashBuilder, Distribution, PageCache, PageStore, PinError};

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

/// When the table of descriptors is distributed.
pub(super) trait Form: Send + Sync + 'static {
    fn distribution() -> Distribution;
}

macro_rules! form {
    ($type:ident, $distribution:expr) => {
        pub(super) struct $type;

        impl Form for $type {
            fn distribution() -> Distribution {
                $distribution
            }
        }
    };
}
form!(Contended, Distribution::default());
form!(Always, Distribution::Always);
form!(Never, Distribution::Never);

pub(super) struct Cached<F>(PageCache<Disk, RandomState>, PhantomData<F>);

impl<F: Form> Pages for Cached<F> {
    fn new(disk: Disk, room: usize) -> Self {
        let table =
            DHashBuilder::new().distribution(F::distribution()).hasher(RandomState::default());
        Self(PageCache::with_builder(disk, room, table), PhantomData)
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
