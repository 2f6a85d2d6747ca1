//! Two tenants with files within one limit: the one whose pages are used keeps them, and a scan of
//! the other's file does not take them.
//!
//!     cargo run --release -p manycore-vm --example shared_files

use manycore::collections::BudgetTree;
use manycore_vm::{AddressSpace, Error, FileCache, MemoryFile, PAGE_BYTES, PageManager};

/// Pages of memory for all.
const MEMORY: u64 = 1_000;
/// Pages that the first tenant's program uses all the time.
const WORKING_SET: usize = 600;
/// Pages of the second tenant's file, which is read once.
const SCANNED: usize = 10_000;

fn main() -> Result<(), Error> {
    let page = PAGE_BYTES as u64;
    let all = BudgetTree::with_batch(MEMORY * page, 8 * page);
    let tenants = [(); 2].map(|()| PageManager::new(all.child_with_batch(u64::MAX, 0)));
    let file = |tenant: usize, pages| {
        let source = MemoryFile::new(vec![tenant as u8; pages * PAGE_BYTES]);
        FileCache::builder(source).within(&tenants[tenant]).build()
    };
    let (busy, scanned) = (file(0, WORKING_SET)?, file(1, SCANNED)?);
    let space = AddressSpace::new();
    let view = space.enter();
    let (busy_at, scanned_at) = (1 << 30, 2 << 30);
    view.map(busy_at, WORKING_SET, &busy, 0)?;
    view.map(scanned_at, SCANNED, &scanned, 0)?;

    let mut byte = [9];
    let mut reread = 0;
    for number in 0..SCANNED {
        view.read(scanned_at + number * PAGE_BYTES, &mut byte)?;
        // Between two of them, the busy tenant touches 20 pages of its own, in turn.
        for step in 0..20 {
            let own = (number * 20 + step) % WORKING_SET;
            let before = busy.pages();
            view.read(busy_at + own * PAGE_BYTES, &mut byte)?;
            reread += usize::from(number > WORKING_SET && busy.pages() > before);
        }
    }
    println!("{} pages of memory for a file in use and a scan of {SCANNED} pages", MEMORY);
    println!("in use: {} of {WORKING_SET} pages in memory, {reread} read again", busy.pages());
    println!("scanned: {} pages in memory, form {:?}", scanned.pages(), scanned.form());
    assert!(all.used() <= MEMORY * page);
    assert!(busy.pages() > WORKING_SET * 9 / 10, "the scan took the working set");
    Ok(())
}
