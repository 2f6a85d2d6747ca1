//! Memory from the system and back: whole chunks, aligned to their size.
//!
//! A slot with many chunks takes further ones from a [`Reserve`], a huge page at a time. Objects of
//! a large slab are accessed in no order, and with pages of two megabytes the TLB covers 512 times
//! as much. Chunks are returned one by one, wherever they came from.

use std::ptr::{self, NonNull};

/// Bytes of a huge page.
pub(super) const HUGE: usize = 2 << 20;

/// Unused chunks of one huge page. Give it back before it is dropped.
pub(super) struct Reserve {
    next: *mut u8,
    bytes: usize,
}

impl Reserve {
    pub(super) const EMPTY: Self = Self { next: ptr::null_mut(), bytes: 0 };

    /// Same as `take`, always with the same `bytes`. In huge pages, if the system has some and
    /// chunks fit into them.
    pub(super) fn take(&mut self, bytes: usize) -> NonNull<u8> {
        if bytes >= HUGE {
            return take(bytes);
        }
        if self.bytes == 0 {
            let Some(page) = imp::take_huge() else { return take(bytes) };
            *self = Self { next: page.as_ptr(), bytes: HUGE };
        }
        let chunk = self.next;
        self.next = chunk.wrapping_add(bytes);
        self.bytes -= bytes;
        NonNull::new(chunk).expect("a mapping does not begin at zero")
    }

    /// Returns the unused rest.
    pub(super) fn give_back(&mut self) {
        let rest = std::mem::replace(self, Self::EMPTY);
        if let Some(next) = NonNull::new(rest.next).filter(|_| rest.bytes > 0) {
            // SAFETY: the end of a huge page that `take` has not given out.
            unsafe { imp::give_back(next, rest.bytes) };
        }
    }
}

/// Takes `bytes` (a power of two, pages at least) of zeroed or unspecified memory, aligned to
/// `bytes`. Untouched pages cost nothing; a page is allocated on the NUMA node of its first
/// toucher.
pub(super) fn take(bytes: usize) -> NonNull<u8> {
    imp::take(bytes).unwrap_or_else(|| std::alloc::handle_alloc_error(layout(bytes)))
}

/// Takes zeroed memory for `bytes` bytes, aligned to huge pages, in huge pages if the system has
/// some. Untouched pages cost nothing. Returns `None` if there is no memory, or only the allocator
/// knows how.
pub(super) fn take_large(bytes: usize) -> Option<NonNull<u8>> {
    imp::take_large(bytes.checked_next_multiple_of(HUGE)?)
}

/// Gives back what `take_large` returned.
///
/// # Safety
/// `memory` came from `take_large(bytes)` with the same `bytes`, and is not used any more.
pub(super) unsafe fn give_large_back(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller promises the whole of what `take_large` gave (# Safety).
    unsafe { imp::give_back(memory, bytes.next_multiple_of(HUGE)) }
}

/// Gives back what `take` returned, here or from a [`Reserve`].
///
/// # Safety
/// `chunk` came from `take(bytes)` or [`Reserve::take`] with the same `bytes`, and is not used any
/// more.
pub(super) unsafe fn give_back(chunk: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller promises memory that a `take` of this file gave, and that is not used any
    // more (# Safety).
    unsafe { imp::give_back(chunk, bytes) }
}

fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, bytes).expect("chunks are small powers of two")
}

#[cfg(all(unix, not(any(manycore_loom, manycore_shuttle, miri))))]
mod imp {
    use super::HUGE;
    use std::ptr::{self, NonNull};

    fn map(bytes: usize) -> Option<*mut u8> {
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        (start != libc::MAP_FAILED).then_some(start.cast())
    }

    /// # Safety
    /// The range is mapped by `map`, and unused.
    unsafe fn unmap(start: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the caller promises that `map` made the range, and that it is unused (# Safety).
        unsafe {
            // The system joins neighbours. At its limit of mappings it unmaps nothing out of the
            // middle of a mapping: then the addresses stay, and the memory goes.
            if libc::munmap(start.cast(), bytes) != 0 {
                libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED);
            }
        }
    }

    pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
        take_aligned(bytes, bytes)
    }

    pub(super) fn take_large(bytes: usize) -> Option<NonNull<u8>> {
        let memory = take_aligned(bytes, HUGE)?;
        #[cfg(target_os = "linux")]
        // SAFETY: memory that is ours; the advice changes no content.
        unsafe {
            libc::madvise(memory.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        }
        Some(memory)
    }

    /// `bytes` is a multiple of `align`, which is a power of two and no less than a page.
    fn take_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        // Mappings come one below the other, so after the first most are aligned already.
        let start = map(bytes)?;
        if start.addr() % align == 0 {
            return NonNull::new(start);
        }
        // SAFETY: mapped just now.
        unsafe { unmap(start, bytes) };
        let start = map(bytes.checked_add(align)?)?;
        let skipped = start.addr().next_multiple_of(align) - start.addr();
        let chunk = start.wrapping_add(skipped);
        // SAFETY: both ends lie in the mapping, outside the chunk, and unused.
        unsafe {
            unmap(start, skipped);
            unmap(chunk.wrapping_add(bytes), align - skipped);
        }
        NonNull::new(chunk)
    }

    pub(super) unsafe fn give_back(chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: the callers, `super::give_back` and `Reserve::give_back`, promise whole pages of
        // a mapping of `map` that are not used any more.
        unsafe { unmap(chunk.as_ptr(), bytes) };
    }

    /// Takes memory for a huge page. If the system has none, it consists of small pages.
    pub(super) fn take_huge() -> Option<NonNull<u8>> {
        if cfg!(not(target_os = "linux")) {
            return None; // other systems ignore the advice
        }
        take_large(HUGE)
    }
}

#[cfg(not(all(unix, not(any(manycore_loom, manycore_shuttle, miri)))))]
mod imp {
    use super::layout;
    use std::ptr::NonNull;

    pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { std::alloc::alloc(layout(bytes)) })
    }

    /// There are none.
    pub(super) fn take_huge() -> Option<NonNull<u8>> {
        None
    }

    /// There is none.
    pub(super) fn take_large(_: usize) -> Option<NonNull<u8>> {
        None
    }

    pub(super) unsafe fn give_back(chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: without huge pages each chunk came from `take` above, with the same `bytes` and
        // so the same layout; `super::give_back`'s caller promises that it is not used any more.
        unsafe { std::alloc::dealloc(chunk.as_ptr(), layout(bytes)) };
    }
}

#[cfg(all(test, target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 10;

    /// Uses up the mappings of this process. Returns false if there are too many.
    fn fill_up() -> bool {
        const PAGE: usize = 4096;
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let pages = limit.trim().parse::<usize>().unwrap() + 2;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        // SAFETY: new memory that nothing else uses; a page of it is made readable, or refused.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), pages * PAGE, libc::PROT_NONE, flags, -1, 0);
            let unlike = |page: usize| {
                libc::mprotect(start.wrapping_byte_add(page * PAGE), PAGE, libc::PROT_READ) == 0
            };
            pages < 300_000 && !(1..pages).step_by(2).all(unlike)
        }
    }

    /// Returns true if a page of the chunk is in memory.
    fn is_resident(chunk: NonNull<u8>) -> bool {
        let mut pages = [0_u8; BYTES / 4096];
        // SAFETY: the array has an entry for each page of the range, mapped or not.
        let known = unsafe { libc::mincore(chunk.as_ptr().cast(), BYTES, pages.as_mut_ptr()) };
        known == 0 && pages.iter().any(|page| page & 1 != 0)
    }

    #[test]
    fn memory_goes_back_at_the_limit_of_mappings() {
        let chunks: Vec<NonNull<u8>> = (0..40).map(|_| take(BYTES)).collect();
        // SAFETY: each chunk is this test's, and has as many bytes.
        chunks.iter().for_each(|chunk| unsafe { chunk.as_ptr().write_bytes(1, BYTES) });
        // SAFETY: the child makes system calls, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let passed = std::panic::catch_unwind(|| {
                let is_full = fill_up();
                // Every second one, out of the middle of what the system has joined.
                for chunk in chunks.iter().skip(1).step_by(2).filter(|_| is_full) {
                    // SAFETY: taken above, and not used any more.
                    unsafe { give_back(*chunk, BYTES) };
                    assert!(!is_resident(*chunk));
                }
            });
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(i32::from(passed.is_err())) };
        }
        let mut status = 0;
        // SAFETY: this process's child, and a live integer.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the system refused memory");
        // SAFETY: taken above, and not used any more.
        chunks.into_iter().for_each(|chunk| unsafe { give_back(chunk, BYTES) });
    }
}
