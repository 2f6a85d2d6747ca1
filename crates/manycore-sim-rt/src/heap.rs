//! The simulator's own memory.
//!
//! This module owns the global allocator of this library. The program's heap must look as it does
//! without the simulator: one allocation of ours between two of the program's would move its data
//! to other cache lines. So nothing here touches libc's heap.
//!
//! Law heap.H1: sizes are powers of two. A free block goes to the list of its size and comes back
//! from there. Memory is never returned to the system. An engine's tables double, so they leave
//! behind at most as much again as they use.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that are fetched from the system at a time.
const CHUNK: usize = 4 << 20;
/// Blocks from this size on are mapped one by one, and kept in the lists like the others.
const LARGE: usize = 1 << 20;
/// One list per power of two.
const LISTS: usize = 48;

struct Lists {
    free: [*mut u8; LISTS],
    next: usize,
    end: usize,
}

/// The allocator. It has a lock of its own, because two kinds of threads may get here at the same
/// time: kernel threads that are about to park, and threads of a program that is not simulated.
pub(crate) struct Private {
    busy: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: `lists` is only touched between `lock` and `unlock`.
unsafe impl Sync for Private {}

fn class(layout: Layout) -> (usize, usize) {
    let bytes = layout.size().max(layout.align()).max(16).next_power_of_two();
    (bytes, bytes.trailing_zeros() as usize)
}

impl Private {
    pub(crate) const fn new() -> Self {
        let lists = Lists { free: [std::ptr::null_mut(); LISTS], next: 0, end: 0 };
        Self { busy: AtomicBool::new(false), lists: UnsafeCell::new(lists) }
    }

    fn locked<R>(&self, act: impl FnOnce(&mut Lists) -> R) -> R {
        // ORDER: Acquire; pairs with the Release below: the lists as the last holder left them.
        while self.busy.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: this thread holds `busy`, so no other thread is in here.
        let result = act(unsafe { &mut *self.lists.get() });
        self.busy.store(false, Ordering::Release);
        result
    }
}

impl Lists {
    fn take(&mut self, bytes: usize, list: usize) -> *mut u8 {
        let head = self.free[list];
        if !head.is_null() {
            // SAFETY: heap.H1 - a free block begins with the address of the next free block.
            self.free[list] = unsafe { *head.cast::<*mut u8>() };
            return head;
        }
        if bytes >= LARGE {
            return crate::host::map(0, bytes);
        }
        let mut start = self.next.next_multiple_of(bytes);
        if start + bytes > self.end {
            start = crate::host::map(0, CHUNK) as usize;
            if start == 0 {
                return std::ptr::null_mut();
            }
            self.end = start + CHUNK;
            start = start.next_multiple_of(bytes);
        }
        self.next = start + bytes;
        start as *mut u8
    }
}

// SAFETY: `take` gives each block to one caller at a time (heap.H1), aligned to its power of two,
// which is at least the layout's alignment (mapped blocks have a page's; this library needs no
// more).
unsafe impl GlobalAlloc for Private {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, list) = class(layout);
        self.locked(|lists| lists.take(bytes, list))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let (_, list) = class(layout);
        self.locked(|lists| {
            // SAFETY: the block has at least 16 bytes, and the caller has no more pointers to it.
            unsafe { *block.cast::<*mut u8>() = lists.free[list] };
            lists.free[list] = block;
        });
    }
}
