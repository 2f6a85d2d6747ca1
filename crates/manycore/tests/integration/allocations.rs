//! The system's allocator with a count of allocations for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations of the calling thread until now.
pub fn of_this_thread() -> usize {
    ALLOCATIONS.get()
}

/// The allocations of the calling thread while it runs `f`.
pub fn within(f: impl FnOnce()) -> usize {
    let before = of_this_thread();
    f();
    of_this_thread() - before
}
