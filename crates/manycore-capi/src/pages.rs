//! `mc_page_pool`: pages of memory, passed by their addresses.

use crate::versioned::{self, Versioned};
use libc::c_int;
use manycore_vm::{Error, ErrorKind, PAGE_BYTES, PagePool, Pages};
use std::error::Error as _;
use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

/// `struct mc_page_pool_options`. Zero is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PagePoolOptions {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Bit 0: huge pages. Bit 1: bound to the node. Bit 2: idle pages keep no memory.
    pub flags: u64,
    /// Idle pages that keep their memory.
    pub keep: usize,
    /// The NUMA node, with bit 1.
    pub node: u32,
}

const HUGE: u64 = 1;
const NODE: u64 = 2;
const KEEP_NONE: u64 = 4;

// SAFETY: `repr(C)`, the size first; then numbers.
unsafe impl Versioned for PagePoolOptions {}

/// Converts a refusal to an errno for C: the system's own number, if there is one.
pub(crate) fn refused(error: &Error) -> c_int {
    let reason = error.source().and_then(|reason| reason.downcast_ref::<io::Error>());
    if let Some(number) = reason.and_then(io::Error::raw_os_error) {
        return -number;
    }
    -match error.kind() {
        ErrorKind::Overlaps => libc::EEXIST,
        ErrorKind::NotMapped => libc::ENOENT,
        ErrorKind::SpaceEnded => libc::ESRCH,
        ErrorKind::RightsGrow => libc::EACCES,
        ErrorKind::NoMemory | ErrorKind::NoFrames => libc::ENOMEM,
        ErrorKind::NoAddresses => libc::ENOSPC,
        ErrorKind::Unsupported(_) => libc::EOPNOTSUPP,
        ErrorKind::System(_) => libc::EIO,
        _ => libc::EINVAL,
    }
}

/// Makes a new pool.
///
/// # Safety
/// `out` is null or may be written. `options` is null, or has as many bytes as its first field
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_page_pool_new(
    out: *mut *mut PagePool,
    pages: u32,
    options: *const PagePoolOptions,
) -> c_int {
    let size = size_of::<PagePoolOptions>();
    let none = PagePoolOptions { size, flags: 0, keep: 0, node: 0 };
    // SAFETY: the caller promises that it is null, or as long as it says.
    let options = unsafe { versioned::read(options, none) };
    let known = |options: &PagePoolOptions| options.flags & !(HUGE | NODE | KEEP_NONE) == 0;
    let Some(options) = options.filter(known).filter(|_| !out.is_null()) else {
        return -libc::EINVAL;
    };
    let mut builder = PagePool::builder(pages).huge_pages(options.flags & HUGE != 0);
    if options.keep != 0 || options.flags & KEEP_NONE != 0 {
        builder = builder.keep(options.keep);
    }
    if options.flags & NODE != 0 {
        builder = builder.node(options.node);
    }
    match builder.build() {
        Ok(pool) => {
            // SAFETY: not null, and the caller promises that it may be written.
            unsafe { out.write(Box::into_raw(Box::new(pool))) };
            0
        }
        Err(error) => refused(&error),
    }
}

/// Frees a pool, if no page of it is in use.
///
/// # Safety
/// Null, or from `mc_page_pool_new`, freed once, and used by no thread any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_page_pool_free(pool: *mut PagePool) -> c_int {
    if pool.is_null() {
        return 0;
    }
    // SAFETY: the caller promises a pool that has not been freed.
    let all = unsafe { &*pool };
    if all.idle() != all.pages() {
        return -libc::EBUSY;
    }
    // SAFETY: from the box of `mc_page_pool_new`; the caller promises that it comes back once, and
    // that no thread uses it.
    drop(unsafe { Box::from_raw(pool) });
    0
}

/// Returns the address of pages, which the caller owns from here on, or null.
fn given(pages: Result<Pages<'_>, Error>) -> *mut c_void {
    pages.map_or(ptr::null_mut(), |pages| pages.into_raw().as_ptr().cast())
}

/// Returns `pages` pages in a row with their old contents, or null.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_pages_alloc(pool: *const PagePool, pages: usize) -> *mut c_void {
    // SAFETY: the caller promises a pool that has not been freed.
    given(unsafe { &*pool }.alloc(pages))
}

/// Returns `pages` pages of zeros in a row, or null.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_pages_alloc_zeroed(pool: *const PagePool, pages: usize) -> *mut c_void {
    // SAFETY: the caller promises a pool that has not been freed.
    given(unsafe { &*pool }.alloc_zeroed(pages))
}

/// Like `mc_pages_alloc`, at a multiple of `alignment` pages.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_pages_alloc_aligned(
    pool: *const PagePool,
    pages: usize,
    alignment: usize,
) -> *mut c_void {
    // SAFETY: the caller promises a pool that has not been freed.
    given(unsafe { &*pool }.alloc_aligned(pages, alignment))
}

/// Gives pages back.
///
/// # Safety
/// The pool is not freed; the pages are null or in use, and used by no thread any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_pages_free(
    pool: *const PagePool,
    first: *mut c_void,
    pages: usize,
) -> c_int {
    let Some(start) = NonNull::new(first.cast::<u8>()) else { return 0 };
    // SAFETY: the caller promises a pool that has not been freed.
    let pool = unsafe { &*pool };
    let fits = |index| pages != 0 && pages <= pool.pages() - index;
    if first.addr() % PAGE_BYTES != 0 || !pool.index_of(start.as_ptr()).is_some_and(fits) {
        return -libc::EINVAL;
    }
    let bytes = NonNull::slice_from_raw_parts(start, pages * PAGE_BYTES);
    // SAFETY: checked above to be of this pool; `given` gave them up, and the caller promises that
    // they come back once.
    drop(unsafe { Pages::from_raw(pool, bytes) });
    0
}

/// Returns the position of a page in the pool, or `-EINVAL`.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_page_pool_index(
    pool: *const PagePool,
    address: *const c_void,
) -> isize {
    // SAFETY: the caller promises a pool that has not been freed.
    let index = unsafe { &*pool }.index_of(address.cast());
    index.map_or(-(libc::EINVAL as isize), |index| index as isize)
}

/// Returns how many pages are free.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_page_pool_idle(pool: *const PagePool) -> usize {
    // SAFETY: the caller promises a pool that has not been freed.
    unsafe { &*pool }.idle()
}

/// Returns how many pages may have memory.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_page_pool_resident(pool: *const PagePool) -> usize {
    // SAFETY: the caller promises a pool that has not been freed.
    unsafe { &*pool }.resident()
}

/// Gives the memory of idle pages to the system. Returns how many pages lost it.
///
/// # Safety
/// The pool is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_page_pool_trim(pool: *const PagePool) -> usize {
    // SAFETY: the caller promises a pool that has not been freed.
    unsafe { &*pool }.trim()
}
