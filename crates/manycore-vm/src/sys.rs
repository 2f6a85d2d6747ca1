//! The system calls for mappings, each with its error.

use crate::backing::Span;
use crate::{Error, PAGE_BYTES, Rights};
use std::io;
use std::ptr;

/// Flags for memory that only takes addresses until it is touched.
const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

pub(crate) fn protection(rights: Rights) -> i32 {
    match rights {
        Rights::NONE => libc::PROT_NONE,
        Rights::READ => libc::PROT_READ,
        _ => libc::PROT_READ | libc::PROT_WRITE,
    }
}

/// Returns the error that the last call left.
pub(crate) fn last_error(call: &'static str, at: usize, pages: usize) -> Error {
    Error::system(call, at, pages, io::Error::last_os_error())
}

/// Checks that the system's pages have the size of this crate's pages.
pub(crate) fn check_page_size() -> Result<(), Error> {
    // SAFETY: takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if usize::try_from(bytes) == Ok(PAGE_BYTES) {
        return Ok(());
    }
    Err(Error::unsupported("the system's pages are not of 4096 bytes", 0, 0))
}

/// Returns the number of bytes of `pages` pages.
fn bytes(pages: usize) -> Result<usize, Error> {
    pages.checked_mul(PAGE_BYTES).ok_or(Error::new(crate::ErrorKind::Wraps, 0, pages))
}

/// Maps new memory (`fd` is -1) or a part of a file, anywhere or at `at`. Replaces what is mapped
/// at `at`.
///
/// # Safety
/// `at` is null, or the caller owns the mappings of the whole range and no reference leads to it.
unsafe fn mmap(
    at: *mut libc::c_void,
    pages: usize,
    protection: i32,
    flags: i32,
    (fd, offset): (i32, usize),
) -> Result<*mut u8, Error> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let bytes = bytes(pages)?;
    faults::refuse("mmap", at.addr(), pages)?;
    // SAFETY: the caller owns what is replaced, if anything is (# Safety).
    let mapped =
        unsafe { libc::mmap(at, bytes, protection, flags | fixed, fd, offset as libc::off_t) };
    match mapped {
        libc::MAP_FAILED => Err(last_error("mmap", at.addr(), pages)),
        mapped => Ok(mapped.cast()),
    }
}

/// Reserves addresses; an access to them faults.
pub(crate) fn reserve(pages: usize) -> Result<*mut u8, Error> {
    // SAFETY: null: nothing is replaced.
    unsafe { mmap(ptr::null_mut(), pages, libc::PROT_NONE, RESERVED, (-1, 0)) }
}

/// Maps new memory with all rights. The system gives memory when it is touched.
pub(crate) fn anonymous(pages: usize) -> Result<*mut u8, Error> {
    let rights = protection(Rights::WRITE);
    // SAFETY: null: nothing is replaced.
    unsafe { mmap(ptr::null_mut(), pages, rights, RESERVED, (-1, 0)) }
}

/// Like [`anonymous`], at reserved addresses and with the given rights.
///
/// # Safety
/// The range is reserved by the caller, and no reference leads to it.
pub(crate) unsafe fn anonymous_at(at: usize, pages: usize, rights: Rights) -> Result<(), Error> {
    let at = ptr::with_exposed_provenance_mut(at);
    // SAFETY: the caller owns the range (# Safety).
    unsafe { mmap(at, pages, protection(rights), RESERVED, (-1, 0)) }.map(|_| ())
}

/// Makes a range fault again, and keeps its addresses.
///
/// # Safety
/// The range is reserved by the caller, and no reference leads to it.
pub(crate) unsafe fn reserve_again(at: usize, pages: usize) -> Result<(), Error> {
    let at = ptr::with_exposed_provenance_mut(at);
    // SAFETY: the caller owns the range (# Safety).
    unsafe { mmap(at, pages, libc::PROT_NONE, RESERVED, (-1, 0)) }.map(|_| ())
}

/// Maps a part of a file, anywhere if `at` is 0.
///
/// # Safety
/// `at` is 0, or the range is reserved by the caller, and no reference leads to it.
pub(crate) unsafe fn map_file(
    at: usize,
    pages: usize,
    rights: Rights,
    file: (i32, usize),
) -> Result<*mut u8, Error> {
    let at = ptr::with_exposed_provenance_mut(at);
    // SAFETY: the caller owns the range, if there is one (# Safety).
    unsafe { mmap(at, pages, protection(rights), libc::MAP_SHARED, file) }
}

/// Changes the rights of a range.
///
/// # Safety
/// The range belongs to a mapping of the caller's.
pub(crate) unsafe fn protect(at: usize, pages: usize, rights: Rights) -> Result<(), Error> {
    let address = ptr::with_exposed_provenance_mut(at);
    faults::refuse("mprotect", at, pages)?;
    // SAFETY: the caller owns the range (# Safety).
    let done = unsafe { libc::mprotect(address, bytes(pages)?, protection(rights)) };
    if done == 0 { Ok(()) } else { Err(last_error("mprotect", at, pages)) }
}

/// Removes what is mapped in the spans and keeps their addresses.
///
/// # Safety
/// The spans lie in reserved ranges of the caller's.
pub(crate) unsafe fn unmap(spans: &[Span]) -> Result<(), Error> {
    // SAFETY: the caller owns the ranges (# Safety).
    spans.iter().try_for_each(|span| unsafe { reserve_again(span.address, span.pages as usize) })
}

/// Gives addresses back, and what is mapped there.
///
/// The system refuses this if it has merged the mapping with both neighbours and has no entry left
/// to split it (spare.E1). Then the addresses stay reserved, but their memory is freed.
///
/// # Safety
/// The range belongs to the caller, who does not use it any more.
pub(crate) unsafe fn release(at: usize, pages: usize) -> Result<(), Error> {
    let address = ptr::with_exposed_provenance_mut(at);
    let released = faults::refuse("munmap", at, pages).and_then(|()| {
        // SAFETY: the caller owns the range (# Safety).
        let done = unsafe { libc::munmap(address, bytes(pages)?) };
        if done == 0 { Ok(()) } else { Err(last_error("munmap", at, pages)) }
    });
    if released.is_err() {
        // SAFETY: the caller owns the range and does not use it any more (# Safety).
        unsafe { libc::madvise(address, pages * PAGE_BYTES, libc::MADV_DONTNEED) };
    }
    released
}

/// Advises the system about a range.
///
/// # Safety
/// The range belongs to the caller, and may lose its contents if the advice says so.
pub(crate) unsafe fn advise(at: usize, pages: usize, advice: i32) -> Result<(), Error> {
    let address = ptr::with_exposed_provenance_mut(at);
    faults::refuse("madvise", at, pages)?;
    // SAFETY: the caller owns the range (# Safety).
    let done = unsafe { libc::madvise(address, bytes(pages)?, advice) };
    if done == 0 { Ok(()) } else { Err(last_error("madvise", at, pages)) }
}

/// Makes calls fail in tests, as at the system's limit of mappings.
#[cfg(all(test, not(manycore_loom)))]
pub(crate) mod faults {
    use crate::Error;
    use std::cell::Cell;
    use std::io;

    std::thread_local! {
        /// How many calls of this thread pass until one fails, and how many then fail.
        static NEXT: Cell<(usize, usize)> = const { Cell::new((usize::MAX, 0)) };
    }

    /// Lets the calling thread's next `skipped` calls pass and the `count` calls after these fail.
    /// Returns how many failures of an earlier order are left.
    pub(crate) fn order(skipped: usize, count: usize) -> usize {
        NEXT.replace((skipped, count)).1
    }

    pub(super) fn refuse(call: &'static str, at: usize, pages: usize) -> Result<(), Error> {
        let (skipped, count) = NEXT.get();
        if skipped > 0 || count == 0 {
            NEXT.set((skipped.saturating_sub(1), count));
            return Ok(());
        }
        NEXT.set((0, count - 1));
        Err(Error::system(call, at, pages, io::Error::from_raw_os_error(libc::ENOMEM)))
    }
}
#[cfg(not(all(test, not(manycore_loom))))]
mod faults {
    #[inline(always)]
    pub(super) fn refuse(_: &'static str, _: usize, _: usize) -> Result<(), crate::Error> {
        Ok(())
    }
}
