//! The library's page managers.

use std::ptr::NonNull;

use manycore::section;
use manycore_vm::{MappingDb, Memfd, PagePool, Pages, Rights, SpaceId};

use super::{Manager, PAGE};

fn pages_of(count: usize) -> u32 {
    u32::try_from(count).expect("the trace has less than 16 TB")
}

fn first_byte(pages: &Pages<'_>) -> NonNull<u8> {
    NonNull::new(pages.as_ptr()).expect("no page is at zero")
}

/// A pool that keeps its memory.
fn pool(pages_max: usize, huge: bool) -> PagePool {
    // Free blocks are in pieces while the shelves hold single pages.
    let pages = pages_of((pages_max + pages_max / 8 + 4096).next_multiple_of(512));
    let pool = PagePool::builder(pages).keep(pages as usize).huge_pages(huge);
    pool.build().expect("there are addresses enough")
}

/// With the system's small pages, and with huge ones.
pub(super) struct Pool<const HUGE: bool>(PagePool);

impl<const HUGE: bool> Manager for Pool<HUGE> {
    type Pages<'m> = Pages<'m>;

    fn new(pages_max: usize) -> Self {
        Self(pool(pages_max, HUGE))
    }

    fn take(&self, pages: usize) -> Pages<'_> {
        self.0.alloc(pages).expect("the pool has room for the whole trace")
    }

    fn address(pages: &Pages<'_>) -> NonNull<u8> {
        first_byte(pages)
    }

    fn give<'m>(&'m self, pages: Pages<'m>) {
        drop(pages);
    }
}

/// Pages of zeros.
pub(super) struct ZeroedPool(PagePool);

impl Manager for ZeroedPool {
    type Pages<'m> = Pages<'m>;

    fn new(pages_max: usize) -> Self {
        Self(pool(pages_max, true))
    }

    fn take(&self, pages: usize) -> Pages<'_> {
        self.0.alloc_zeroed(pages).expect("the pool has room for the whole trace")
    }

    fn address(pages: &Pages<'_>) -> NonNull<u8> {
        first_byte(pages)
    }

    fn give<'m>(&'m self, pages: Pages<'m>) {
        drop(pages);
    }
}

/// One space of a mapping database, over a memory file.
pub(super) struct Mappings {
    db: MappingDb<'static, Memfd>,
    space: SpaceId,
}

impl Manager for Mappings {
    type Pages<'m> = (usize, usize);

    fn new(pages_max: usize) -> Self {
        // Frames and addresses rest for a tick before they are used again.
        let pages = 2 * pages_max + 4096;
        let memory = Memfd::new(pages_of(pages)).expect("the system has memory files");
        let db = MappingDb::new(memory, section::global());
        // Addresses cost nothing; blocks find a gap between single pages that rest.
        let space = db.space(4 * pages).expect("there are addresses enough");
        Self { db, space }
    }

    fn take(&self, pages: usize) -> (usize, usize) {
        let mut nothing_rests = false;
        loop {
            match self.db.grant(self.space, pages, Rights::WRITE) {
                Ok(address) => return (address, pages),
                Err(error) if nothing_rests => panic!("a grant of {pages} pages: {error}"),
                // All that is free rests, or another thread's tick has just ended that.
                Err(_) => {
                    nothing_rests = self.db.pending() == 0;
                    self.db.tick().expect("the system unmaps");
                    std::thread::yield_now();
                }
            }
        }
    }

    fn address(&(address, _): &(usize, usize)) -> NonNull<u8> {
        let start = std::ptr::with_exposed_provenance_mut(address);
        NonNull::new(start).expect("no page is at zero")
    }

    fn give(&self, (address, pages): (usize, usize)) {
        self.db.unmap(self.space, address, pages).expect("it was granted");
    }
}
const _: () = assert!(PAGE == manycore_vm::PAGE_BYTES);
