//! The system calls about mappings, each with its error.

use crate::backing::Span;
use crate::{Error, PAGE_BYTES, Rights};
use std::io;
use std::ptr;

/// Inaccessible memory that takes addresses and nothing else.
const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

pub(crate) fn protection(rights: Rights) -> i32 {
    match rights {
        Rights::NONE => libc::PROT_NONE,
        Rights::READ => libc::PROT_READ,
        _ => libc::PROT_READ | libc::PROT_WRITE,
    }
}

/// The error that the last call left.
pub(crate) fn last_error(call: &'static str, at: usize, pages: usize) -> Error {
    Error::system(call, at, pages, io::Error::last_os_error())
}

/// This crate's pages must be the system's.
pub(crate) fn check_page_size() -> Result<(), Error> {
    // SAFETY: takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if usize::try_from(bytes) == Ok(PAGE_BYTES) {
        return Ok(());
    }
    Err(Error::unsupported("the system's pages are not of 4096 bytes", 0, 0))
}

/// How many bytes `pages` have.
fn bytes(pages: usize) -> Result<usize, Error> {
    pages.checked_mul(PAGE_BYTES).ok_or(Error::new(crate::ErrorKind::Wraps, 0, pages))
}

/// Maps new memory (`fd` is -1) or a part of a file: anywhere, or at `at`, replacing what is there.
///
/// # Safety
/// `at` is null, or all the range is of a mapping that the caller owns and that no reference leads
/// to.
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

/// Reserves addresses that fault.
pub(crate) fn reserve(pages: usize) -> Result<*mut u8, Error> {
    // SAFETY: null: nothing is replaced.
    unsafe { mmap(ptr::null_mut(), pages, libc::PROT_NONE, RESERVED, (-1, 0)) }
}

/// New memory with these rights that is paid for when it is touched.
pub(crate) fn anonymous(pages: usize) -> Result<*mut u8, Error> {
    let rights = protection(Rights::WRITE);
    // SAFETY: null: nothing is replaced.
    unsafe { mmap(ptr::null_mut(), pages, rights, RESERVED, (-1, 0)) }
}

/// As [`anonymous`], at addresses that are reserved.
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

/// Changes what a range allows.
///
/// # Safety
/// The range is of a mapping of the caller's.
pub(crate) unsafe fn protect(at: usize, pages: usize, rights: Rights) -> Result<(), Error> {
    let address = ptr::with_exposed_provenance_mut(at);
    faults::refuse("mprotect", at, pages)?;
    // SAFETY: the caller owns the range (# Safety).
    let done = unsafe { libc::mprotect(address, bytes(pages)?, protection(rights)) };
    if done == 0 { Ok(()) } else { Err(last_error("mprotect", at, pages)) }
}

/// Removes what is mapped in the spans, and keeps their addresses.
///
/// # Safety
/// The spans are of reserved ranges of the caller's.
pub(crate) unsafe fn unmap(spans: &[Span]) -> Result<(), Error> {
    // SAFETY: the caller owns the ranges (# Safety).
    spans.iter().try_for_each(|span| unsafe { reserve_again(span.address, span.pages as usize) })
}

/// Gives addresses back, and what is mapped there.
///
/// The system refuses it if it has joined the mapping with its neighbours on both sides, and has no
/// entry to divide it (spare.E1). Then the addresses stay, and their memory goes all the same.
///
/// # Safety
/// The range is the caller's, and not used any more.
pub(crate) unsafe fn release(at: usize, pages: usize) -> Result<(), Error> {
    let address = ptr::with_exposed_provenance_mut(at);
    let released = faults::refuse("munmap", at, pages).and_then(|()| {
        // SAFETY: the caller owns the range (# Safety).
        let done = unsafe { libc::munmap(address, bytes(pages)?) };
        if done == 0 { Ok(()) } else { Err(last_error("munmap", at, pages)) }
    });
    if released.is_err() {
        // SAFETY: the caller owns the range, and does not use it any more (# Safety).
        unsafe { libc::madvise(address, pages * PAGE_BYTES, libc::MADV_DONTNEED) };
    }
    released
}

/// Advises the system about a range.
///
/// # Safety
/// The range is of the caller's, and may lose its contents if the advice says so.
pub(crate) unsafe fn advise(at: usize, pages: usize, advice: i32) -> Result<(), Error> {
    let address = ptr::with_exposed_provenance_mut(at);
    faults::refuse("madvise", at, pages)?;
    // SAFETY: the caller owns the range (# Safety).
    let done = unsafe { libc::madvise(address, bytes(pages)?, advice) };
    if done == 0 { Ok(()) } else { Err(last_error("madvise", at, pages)) }
}

/// Calls that fail in tests as at the system's limit of mappings.
#[cfg(all(test, not(manycore_loom)))]
pub(crate) mod faults {
    use crate::Error;
    use std::cell::Cell;
    use std::io;

    std::thread_local! {
        /// Calls of this thread until one fails, and how many fail then.
        static NEXT: Cell<(usize, usize)> = const { Cell::new((usize::MAX, 0)) };
    }

    /// Lets the calling thread's next `skipped` calls pass, and `count` fail after those. Returns
    /// how many of an earlier order are left.
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
