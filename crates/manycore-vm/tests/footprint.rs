//! The bytes of file caches, page managers and address spaces, as they are documented.

use manycore::collections::BudgetTree;
use manycore_vm::{AddressSpace, FileCache, FileForm, FileSource, PAGE_BYTES, PageManager};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts what is allocated and not freed.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work, and gets what its own rules want.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: from `alloc`, with its layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A file of zeros, which has no memory of its own.
struct Zeros;

impl FileSource for Zeros {
    fn length(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }

    fn read(&self, _: u64, into: &mut [u8]) -> io::Result<usize> {
        Ok(into.len())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// How many bytes `make` leaves allocated, in the mean of so many.
fn each<T>(count: usize, make: impl FnMut(usize) -> T) -> (f64, Vec<T>) {
    let mut made = Vec::with_capacity(count);
    let before = BYTES.load(Relaxed);
    made.extend((0..count).map(make));
    ((BYTES.load(Relaxed) - before) as f64 / count as f64, made)
}

#[test]
fn files_spaces_and_managers_are_as_small_as_documented() {
    let file = |_| FileCache::new(Zeros).unwrap();
    drop(file(0)); // what the library makes once
    let (empty, files) = each(100, file);
    println!("an empty file: {empty} bytes");
    let touch = |file: &FileCache, pages: u64| {
        (0..pages).for_each(|page| file.with_page(page, |_| ()).unwrap());
    };
    let (four, _) = each(100, |at| touch(&files[at], 4));
    let four = four - 4.0 * PAGE_BYTES as f64;
    println!("a small file of four pages: {} bytes beside them", empty + four);
    let (large, _) = each(10, |at| touch(&files[at], 4096));
    let large = (large + four) / 4096.0 - PAGE_BYTES as f64;
    println!("a page of a large file: {large} bytes beside it");
    assert!(files[..10].iter().all(|file| file.form() == FileForm::Large));
    let memory = PageManager::new(BudgetTree::new(1 << 40));
    let (managed, within) = each(100, |_| FileCache::builder(Zeros).within(&memory).build());
    println!("a file more for its manager: {} bytes", managed - empty);
    let (manager, managers) = each(100, |_| PageManager::new(BudgetTree::new(1 << 40)));
    println!("a manager: {manager} bytes");
    let (space, spaces) = each(100, |_| AddressSpace::new());
    println!("an address space: {space} bytes");
    let view = spaces[0].enter();
    let pages = 64 * PAGE_BYTES;
    // Makes the tables of the slabs of the process, once.
    (0..8).for_each(|at| spaces[1].enter().map(at * pages, 64, &files[20], 0).unwrap());
    let (region, _) = each(1000, |at| view.map(at * pages, 64, &files[20], 0).unwrap());
    // The table's entry, 48 bytes, is in a slab, whose chunks are mapped.
    let region = region + 48.0;
    println!("a region: {region} bytes");
    drop((within, managers));
    assert!(empty <= 1400.0 && empty + four <= 2600.0 && large <= 270.0);
    assert!(managed - empty <= 30.0 && manager <= 1200.0 && space <= 1400.0 && region <= 80.0);
}
