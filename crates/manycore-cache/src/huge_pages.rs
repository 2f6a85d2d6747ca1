//! Zeroed memory for tables, in whole cache lines, and in huge pages if the table is large. A
//! look-up in a large table also needs an entry of the TLB, and a huge page (2 MB) covers 512 times
//! as much memory.
//!
//! ```text
//! memory   first
//! v        v
//! +--------+------------------------------+--------------------------+
//! | align  | requested lines              | spare lines, half as many |
//! +--------+------------------------------+--------------------------+
//!          |<-- the hot ones: huge pages
//! ```
//!
//! Laws:
//! - huge_pages.L1 Memory of 4 KiB and more comes from the system and goes back there at once. So
//!   the tables that a growing cache leaves behind do not stay with the allocator.
//! - huge_pages.L2 Behind the requested lines are spare lines. Each spare line is handed out once.
//!   Untouched pages of spare lines cost nothing.
//! - huge_pages.L3 The allocation has room for all lines from `first` on, which is aligned to a
//!   line.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// From this size on, memory comes from the system and not from the allocator.
const MAPPED_MIN: usize = 4 << 10;

/// Zeroed lines. Dropping this frees them.
pub(crate) struct ZeroedLines {
    memory: NonNull<u8>,
    layout: Layout,
    first: NonNull<u8>,
    /// Lines that were requested, without the spare ones.
    lines: usize,
    /// Requests for spare lines.
    spares: AtomicUsize,
    /// All lines, with the spare ones.
    all: usize,
    is_mapped: bool,
}

// SAFETY: this is a piece of memory, which belongs to no thread.
unsafe impl Send for ZeroedLines {}
// SAFETY: shared `ZeroedLines` only hand out addresses, and count spare lines in an atomic. They do
// not access the memory.
unsafe impl Sync for ZeroedLines {}

impl ZeroedLines {
    /// Allocates `lines` lines, at least one, and half as many spare lines if the memory comes from
    /// the system. The first `hot` lines are accessed all the time, and get huge pages.
    pub(crate) fn zeroed(lines: usize, hot: usize) -> Self {
        // huge_pages.L1: a mapping of its own goes back to the system when the table is freed.
        let is_mapped = cfg!(all(unix, not(miri))) && lines >= MAPPED_MIN / LINE;
        let all = if is_mapped { lines + lines / 2 } else { lines };
        let bytes = all.checked_mul(LINE).expect("manycore: capacity overflow");
        let align = if hot * LINE >= HUGE { HUGE } else { LINE };
        let layout = Layout::from_size_align(bytes.saturating_add(align), align_of::<u64>())
            .expect("manycore: capacity overflow");
        let memory = if is_mapped { system::take(layout) } else { heap::take(layout) };
        let memory = memory.unwrap_or_else(|| alloc::handle_alloc_error(layout));
        let skipped = memory.addr().get().next_multiple_of(align) - memory.addr().get();
        debug_assert!(
            skipped < align && skipped + bytes <= layout.size(),
            "huge_pages.L3: {skipped} bytes before {bytes} bytes of lines exceed the allocation"
        );
        // SAFETY: huge_pages.L3 - `skipped` is less than `align`, and `align` bytes were requested
        // in addition to the lines.
        let first = unsafe { memory.add(skipped) };
        if hot * LINE >= HUGE {
            // Not for the last lines if they fill no huge page: that page would take in spare
            // lines.
            system::want_huge_pages(first, (hot * LINE) & !(HUGE - 1));
        }
        Self { memory, layout, first, lines, spares: AtomicUsize::new(0), all, is_mapped }
    }

    /// Returns the line of this number, or the end of the lines.
    ///
    /// # Panics
    /// If there are fewer lines.
    pub(crate) fn line(&self, number: usize) -> NonNull<u8> {
        assert!(number <= self.all, "manycore: line {number} of {}", self.all);
        // SAFETY: huge_pages.L3 - the memory has `all` lines from `first` on, and `number` was
        // compared with that just now. So the result is in the allocation, or is its end.
        unsafe { self.first.add(number * LINE) }
    }

    /// Returns an unused spare line (huge_pages.L2), while there is one.
    pub(crate) fn spare(&self) -> Option<NonNull<u8>> {
        // ORDER: Relaxed; the numbers only have to differ.
        let number = self.lines + self.spares.fetch_add(1, Ordering::Relaxed);
        (number < self.all).then(|| self.line(number))
    }

    /// Returns true if fewer than half as many spare lines were requested as there are other lines.
    pub(crate) fn has_spare(&self) -> bool {
        2 * self.spares() < self.lines
    }

    /// Returns the number of calls of [`spare`](Self::spare).
    pub(crate) fn spares(&self) -> usize {
        // ORDER: Relaxed; a count.
        self.spares.load(Ordering::Relaxed)
    }

    /// Returns true if `line` is one of these lines.
    pub(crate) fn has(&self, line: NonNull<u8>) -> bool {
        (self.first..self.line(self.all)).contains(&line)
    }
}

impl Drop for ZeroedLines {
    fn drop(&mut self) {
        // SAFETY: `zeroed` took the memory with this layout, in the way that `is_mapped` says.
        unsafe {
            if self.is_mapped {
                system::give_back(self.memory, self.layout);
            } else {
                alloc::dealloc(self.memory.as_ptr(), self.layout);
            }
        }
    }
}

mod heap {
    use super::{Layout, NonNull, alloc};

    pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc::alloc_zeroed(layout) })
    }
}

#[cfg(all(unix, not(miri)))]
mod system {
    use super::{Layout, NonNull};
    use std::ptr;

    pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new mapping touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), layout.size(), access, kind, -1, 0) };
        if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
    }

    /// # Safety
    /// `take` returned the memory for this layout, and nothing uses it any more.
    pub(super) unsafe fn give_back(memory: NonNull<u8>, layout: Layout) {
        let start = memory.as_ptr().cast();
        // SAFETY: the caller promises that `take` mapped the memory with this layout, so with this
        // size, and that nothing uses it any more.
        unsafe {
            // At its limit of mappings, the system refuses to unmap the middle of a mapping. Then
            // the addresses stay reserved, and only the memory is given back.
            if libc::munmap(start, layout.size()) != 0 {
                libc::madvise(start, layout.size(), libc::MADV_DONTNEED);
            }
        }
    }

    /// Asks for huge pages. If there are none, the memory stays as it is.
    pub(super) fn want_huge_pages(start: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: these are whole pages of memory that is ours, and the advice changes no content.
        unsafe {
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        }
        let _ = (start, bytes);
    }
}

#[cfg(not(all(unix, not(miri))))]
mod system {
    use super::{Layout, NonNull};

    pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
        super::heap::take(layout)
    }

    pub(super) unsafe fn give_back(memory: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises that `take` took the memory from the allocator, with this
        // layout, and that nothing uses it any more.
        unsafe { super::alloc::dealloc(memory.as_ptr(), layout) };
    }

    pub(super) fn want_huge_pages(_: NonNull<u8>, _: usize) {}
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn lines_are_zeroed_and_aligned_and_all_usable() {
        let many = MAPPED_MIN / LINE;
        for count in [1, 3, 100, many - 1, many, HUGE / LINE - 1, HUGE / LINE, 3 * HUGE / LINE + 5]
        {
            let lines = ZeroedLines::zeroed(count, count);
            let spare = std::iter::from_fn(|| lines.spare());
            let all: Vec<_> = (0..count).map(|number| lines.line(number)).chain(spare).collect();
            let mapped = cfg!(all(unix, not(miri))) && count >= many;
            assert_eq!(all.len(), if mapped { count + count / 2 } else { count });
            // The last request found no spare line.
            assert_eq!(lines.spares(), all.len() - count + 1);
            let align = if count * LINE >= HUGE { HUGE } else { LINE };
            assert_eq!(lines.line(0).addr().get() % align, 0);
            for line in all {
                assert!(line.addr().get() % LINE == 0 && lines.has(line));
                let line = line.cast::<[u64; 8]>();
                // SAFETY: the line is one of `lines`.
                unsafe {
                    assert_eq!(line.read(), [0; 8]);
                    line.write([u64::MAX; 8]);
                }
            }
            assert!(!lines.has(NonNull::dangling()));
        }
    }

    #[test]
    fn there_are_spare_lines_until_half_as_many_were_requested() {
        for count in [1, 2, 3, 100, MAPPED_MIN / LINE + 1] {
            let lines = ZeroedLines::zeroed(count, 0);
            for requested in 0..2 * count {
                assert_eq!(lines.has_spare(), requested < count.div_ceil(2), "of {count}");
                lines.spare();
            }
        }
    }
}
