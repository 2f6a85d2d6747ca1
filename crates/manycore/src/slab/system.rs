//! Memory from the system and back: whole chunks, aligned to their size.
//!
//! A slot with many chunks takes further ones from a [`Reserve`], a huge page at a time: objects of
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

    /// As `take`, always with the same `bytes`; in huge pages, if the system has some and chunks
    /// fit into them.
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

/// Gives back what `take` returned, here or of a [`Reserve`].
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
        let failed = unsafe { libc::munmap(start.cast(), bytes) };
        debug_assert_eq!(failed, 0, "manycore: munmap refused");
    }

    pub(super) fn take(bytes: usize) -> Option<NonNull<u8>> {
        // Mappings come one below the other, so after the first most are aligned already.
        let start = map(bytes)?;
        if start.addr() % bytes == 0 {
            return NonNull::new(start);
        }
        // SAFETY: mapped just now.
        unsafe { unmap(start, bytes) };
        let start = map(2 * bytes)?;
        let skipped = start.addr().next_multiple_of(bytes) - start.addr();
        let chunk = start.wrapping_add(skipped);
        // SAFETY: both ends lie in the mapping, outside the chunk, and unused.
        unsafe {
            unmap(start, skipped);
            unmap(chunk.wrapping_add(bytes), bytes - skipped);
        }
        NonNull::new(chunk)
    }

    pub(super) unsafe fn give_back(chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: the callers, `super::give_back` and `Reserve::give_back`, promise whole pages of
        // a mapping of `map` that are not used any more.
        unsafe { unmap(chunk.as_ptr(), bytes) };
    }

    /// A place for a huge page. If the system has none, it is small ones.
    pub(super) fn take_huge() -> Option<NonNull<u8>> {
        if cfg!(not(target_os = "linux")) {
            return None; // other systems ignore the advice
        }
        let page = take(HUGE)?;
        #[cfg(target_os = "linux")]
        // SAFETY: memory that is ours; the advice changes no content.
        unsafe {
            libc::madvise(page.as_ptr().cast(), HUGE, libc::MADV_HUGEPAGE);
        }
        Some(page)
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

    pub(super) unsafe fn give_back(chunk: NonNull<u8>, bytes: usize) {
        // SAFETY: without huge pages each chunk came from `take` above, with the same `bytes` and
        // so the same layout; `super::give_back`'s caller promises that it is not used any more.
        unsafe { std::alloc::dealloc(chunk.as_ptr(), layout(bytes)) };
    }
}
