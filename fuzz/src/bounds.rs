//! What a call takes: memory, and steps as far as they allocate. The bounds of what parses bytes
//! from outside.
//!
//! A program that measures has [`Counting`] as its allocator. Each thread counts its own, so that
//! tests beside each other do not disturb each other.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts.
pub struct Counting;

thread_local! {
    /// Bytes that are allocated now, the most of them, and all that were ever.
    static COUNTS: Cell<(isize, isize, usize)> = const { Cell::new((0, 0, 0)) };
}

fn count(more: usize, less: usize) {
    // A thread that ends has no counts any more.
    let _ = COUNTS.try_with(|counts| {
        let (now, peak, total) = counts.get();
        let now = now + more as isize - less as isize;
        counts.set((now, peak.max(now), total.saturating_add(more)));
    });
}

// SAFETY: each method passes its arguments on to the system's allocator, which keeps the contract;
// the counts are cells of the thread's own, and reaching them does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's contract for `alloc`, with the same layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's contract for `alloc_zeroed`, with the same layout.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: `pointer` is of this allocator and so of the system's, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: `pointer` is of this allocator and so of the system's, with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Bytes that a call allocated: the most at one time, and all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    pub peak: usize,
    pub total: usize,
}

/// Runs `f`, and says what it took of what [`Counting`] counts.
pub fn used<R>(f: impl FnOnce() -> R) -> (R, Used) {
    let (before, _, total_before) = COUNTS.get();
    COUNTS.set((before, before, total_before));
    let result = f();
    let (_, peak, total) = COUNTS.get();
    (result, Used { peak: (peak - before) as usize, total: total - total_before })
}

/// What a parser may take: so many bytes for each byte of its input, and so many besides.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub each: usize,
    pub besides: usize,
}

impl Bound {
    /// Runs `f` on an input of this length. Demands that its memory keeps to the bound, and that it
    /// allocates at most 16 times that in all: a loop that does not end with the input does not.
    #[track_caller]
    pub fn hold<R>(self, length: usize, f: impl FnOnce() -> R) -> R {
        let (_, one) = used(|| std::hint::black_box(Box::new(1_u8)));
        assert_eq!(one.total, 1, "the program's allocator does not count");
        let (result, used) = used(f);
        let most = self.each * length + self.besides;
        assert!(used.peak <= most, "{used:?} for {length} bytes, of which {most} are right");
        assert!(used.total <= 16 * most, "{used:?} in all for {length} bytes");
        result
    }
}
