//! Zeroed memory for tables, in whole lines; in huge pages where there is enough of it.
//!
//! A look-up in a large table takes a page's address from the processor's list of pages, too, and
//! that is short: with pages of two megabytes it reaches 512 times further.

use std::alloc::{self, Layout};
use std::ptr::NonNull;

/// Bytes of a line.
pub(crate) const LINE: usize = 64;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// What an allocator aligns to by itself, so that it can take zeroed pages as the system gives them
/// (`alloc_zeroed` writes them all for more).
const NATURAL: usize = 16;

/// Zeroed lines; freed when this is dropped.
pub(crate) struct Lines {
    memory: NonNull<u8>,
    layout: Layout,
    first: NonNull<u8>,
}

// SAFETY: a piece of memory, which belongs to no thread.
unsafe impl Send for Lines {}
// SAFETY: as above; what is done in the lines is argued by who does it.
unsafe impl Sync for Lines {}

impl Lines {
    /// So many lines, not none. Pages that nobody has touched cost nothing.
    pub(crate) fn zeroed(lines: usize) -> Self {
        let bytes = lines.checked_mul(LINE).expect("manycore: capacity overflow");
        let align = if bytes >= HUGE { HUGE } else { LINE };
        let layout = Layout::from_size_align(bytes.saturating_add(align), NATURAL)
            .expect("manycore: capacity overflow");
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
            .unwrap_or_else(|| alloc::handle_alloc_error(layout));
        let skipped = memory.addr().get().next_multiple_of(align) - memory.addr().get();
        // SAFETY: less than `align` bytes on, which were asked for besides.
        let first = unsafe { memory.add(skipped) };
        if bytes >= HUGE {
            want_huge_pages(first, bytes);
        }
        Self { memory, layout, first }
    }

    /// Where the line of this number is, or would be.
    pub(crate) fn line(&self, number: usize) -> NonNull<u8> {
        debug_assert!(number * LINE <= self.layout.size());
        // SAFETY: the caller names a line of these, or the end.
        unsafe { self.first.add(number * LINE) }
    }
}

/// Asks for huge pages. If there are none, it stays as it is.
fn want_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const HUGE_PAGES: i32 = 14; // MADV_HUGEPAGE
        unsafe extern "C" {
            fn madvise(start: *mut u8, bytes: usize, advice: i32) -> i32;
        }
        // SAFETY: whole pages of memory that is ours; the advice changes no content.
        unsafe { madvise(start.as_ptr(), bytes & !(HUGE - 1), HUGE_PAGES) };
    }
    let _ = (start, bytes);
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_zeroed_and_aligned_and_all_usable() {
        for count in [1, 3, 100, HUGE / LINE - 1, HUGE / LINE, 3 * HUGE / LINE + 5] {
            let lines = Lines::zeroed(count);
            for number in 0..count {
                let line = lines.line(number).cast::<[u64; 8]>();
                assert_eq!(line.addr().get() % LINE, 0);
                // SAFETY: a line of ours.
                unsafe {
                    assert_eq!(line.read(), [0; 8]);
                    line.write([u64::MAX; 8]);
                }
            }
        }
    }
}
