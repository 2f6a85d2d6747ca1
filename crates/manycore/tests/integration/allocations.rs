//! The system's allocator, with a count of allocations for each thread, and a count of the bytes in
//! large blocks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

/// Size from which a block is large, in bytes.
const LARGE: usize = 64 << 10;

/// Bytes in large blocks.
static IN_LARGE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        if layout.size() >= LARGE {
            IN_LARGE.fetch_add(layout.size(), Relaxed);
        }
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.size() >= LARGE {
            IN_LARGE.fetch_sub(layout.size(), Relaxed);
        }
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the allocations of the calling thread until now.
pub fn of_this_thread() -> usize {
    ALLOCATIONS.get()
}

/// Returns the bytes in large blocks of all threads, for tests in their own process.
#[cfg(feature = "collections")]
pub fn in_large_blocks() -> usize {
    IN_LARGE.load(Relaxed)
}

/// Returns the allocations of the calling thread while it runs `f`.
pub fn within(f: impl FnOnce()) -> usize {
    let before = of_this_thread();
    f();
    of_this_thread() - before
}
