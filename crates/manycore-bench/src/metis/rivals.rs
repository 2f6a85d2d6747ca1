//! The kernel, allocators, and page managers with one lock.

use std::{
    alloc::{self, Layout},
    cell::RefCell,
    collections::BTreeMap,
    ptr::{self, NonNull},
    sync::{Mutex, PoisonError},
};

use super::{BLOCK, Manager, PAGE};

/// A mapping of so many pages, without memory yet.
fn map(pages: usize) -> NonNull<u8> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which replaces none.
    let start = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, access, kind, -1, 0) };
    assert!(start != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    NonNull::new(start.cast()).expect("no mapping is at zero")
}

/// Removes it.
///
/// # Safety
/// `start` is what `map` returned for so many pages, and they are not used any more.
unsafe fn unmap(start: NonNull<u8>, pages: usize) {
    // SAFETY: the caller's mapping, which is not used any more (# Safety).
    let result = unsafe { libc::munmap(start.as_ptr().cast(), pages * PAGE) };
    assert_eq!(result, 0, "munmap: {}", std::io::Error::last_os_error());
}

/// Pages at an address.
pub(super) struct At(NonNull<u8>, usize);

/// The kernel's own.
pub(super) struct Kernel;

impl Manager for Kernel {
    type Pages<'m> = At;

    fn new(_pages_max: usize) -> Self {
        Self
    }

    fn take(&self, pages: usize) -> At {
        At(map(pages), pages)
    }

    fn address(pages: &At) -> NonNull<u8> {
        pages.0
    }

    fn give(&self, At(start, pages): At) {
        // SAFETY: from `map`, and taken by value.
        unsafe { unmap(start, pages) };
    }
}

/// The C library's allocator, which keeps small runs and maps large ones.
pub(super) struct SystemMalloc;

fn layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE, PAGE).expect("a page is aligned to its size")
}

impl Manager for SystemMalloc {
    type Pages<'m> = At;

    fn new(_pages_max: usize) -> Self {
        Self
    }

    fn take(&self, pages: usize) -> At {
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc(layout(pages)) };
        At(NonNull::new(start).expect("there is memory enough"), pages)
    }

    fn address(pages: &At) -> NonNull<u8> {
        pages.0
    }

    fn give(&self, At(start, pages): At) {
        // SAFETY: allocated so by `take`, and taken by value.
        unsafe { alloc::dealloc(start.as_ptr(), layout(pages)) };
    }
}

/// One mapping, cut into runs of pages.
struct Window {
    start: NonNull<u8>,
    pages: usize,
}

impl Window {
    fn new(pages: usize) -> Self {
        Self { start: map(pages), pages }
    }

    fn at(&self, page: usize) -> NonNull<u8> {
        // SAFETY: the runs that are taken lie within the mapping.
        unsafe { self.start.add(page * PAGE) }
    }

    fn page(&self, at: NonNull<u8>) -> usize {
        (at.addr().get() - self.start.addr().get()) / PAGE
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: from `map`; all runs are gone with the manager.
        unsafe { unmap(self.start, self.pages) };
    }
}

// SAFETY: addresses, of which each is with one owner at a time.
unsafe impl Send for Window {}
// SAFETY: nothing in it changes.
unsafe impl Sync for Window {}

/// Room beyond the trace: free single pages lie between blocks.
fn with_room(pages_max: usize) -> usize {
    pages_max + pages_max / 8 + 4 * BLOCK
}

/// Free runs by their first page, under one lock.
pub(super) struct Locked {
    window: Window,
    free: Mutex<BTreeMap<usize, usize>>,
}

impl Manager for Locked {
    type Pages<'m> = At;

    fn new(pages_max: usize) -> Self {
        let window = Window::new(with_room(pages_max));
        let free = Mutex::new(BTreeMap::from([(0, window.pages)]));
        Self { window, free }
    }

    fn take(&self, pages: usize) -> At {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = free.iter().find(|(_, length)| **length >= pages);
        let (&first, &length) = fits.expect("there is room for the whole trace");
        free.remove(&first);
        if length > pages {
            free.insert(first + pages, length - pages);
        }
        At(self.window.at(first), pages)
    }

    fn address(pages: &At) -> NonNull<u8> {
        pages.0
    }

    fn give(&self, At(start, mut pages): At) {
        let mut first = self.window.page(start);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = free.remove(&(first + pages)) {
            pages += next;
        }
        if let Some((&before, &length)) = free.range(..first).next_back()
            && before + length == first
        {
            (first, pages) = (before, pages + length);
        }
        free.insert(first, pages);
    }
}

/// Lists of free pages and of free blocks, of one thread.
pub(super) struct Unshared {
    window: Window,
    lists: RefCell<Lists>,
}

#[derive(Default)]
struct Lists {
    fresh: usize,
    singles: Vec<NonNull<u8>>,
    blocks: Vec<NonNull<u8>>,
}

// SAFETY: the baseline runs on one thread at a time (`SHARED`).
unsafe impl Sync for Unshared {}

impl Manager for Unshared {
    const SHARED: bool = false;

    type Pages<'m> = At;

    fn new(pages_max: usize) -> Self {
        Self { window: Window::new(with_room(pages_max)), lists: RefCell::default() }
    }

    fn take(&self, pages: usize) -> At {
        let mut lists = self.lists.borrow_mut();
        let list = if pages == 1 { &mut lists.singles } else { &mut lists.blocks };
        let start = list.pop().unwrap_or_else(|| {
            lists.fresh += pages;
            self.window.at(lists.fresh - pages)
        });
        At(start, pages)
    }

    fn address(pages: &At) -> NonNull<u8> {
        pages.0
    }

    fn give(&self, At(start, pages): At) {
        let mut lists = self.lists.borrow_mut();
        let list = if pages == 1 { &mut lists.singles } else { &mut lists.blocks };
        list.push(start);
    }
}
