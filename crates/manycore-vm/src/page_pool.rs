//! A pool of pages that threads take and give back without a system call.
//!
//! This module owns [`PagePool`] and [`Pages`].
//!
//! ```text
//!               alloc                              drop
//!  shelf, one for each slot     --->  Pages  --->  shelf
//!    ^  v  64 at a time, central lock                       used[page]
//!  central: warm runs (may hold old contents)                true
//!           cold runs (hold zeros)  <-- madvise, batches --  false
//! ```
//!
//! Laws:
//! - page_pool.P1 The pool's addresses are one mapping, made once. A page has one owner or is free;
//!   `Runs` decides which (law runs.R1).
//! - page_pool.P2 A page that may hold old contents has its flag in `used`. The flag is set before
//!   the page is handed out. It is cleared after the page's memory was given back, while no shelf
//!   has the page. So a page without the flag holds zeros. A flag is a byte, and a line holds the
//!   flags of 64 pages: as many new pages as a shelf takes at once. So threads that take new pages
//!   share no line of flags.
//! - page_pool.P3 Memory beyond what the pool keeps goes back to the system in batches, with one
//!   call for each run of adjacent pages. No lock is held during the calls.
//!
//! Source: K42's page manager (section 4.2 of the paper) and the trace of the ParSec paper (section
//! 5.3), whose pages pass through `mmap` and `munmap`.

use crate::runs::Runs;
use crate::sync::{AtomicBool, Ordering};
use crate::{Error, ErrorKind, PAGE_BYTES, sys};
use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

/// Minimal pages that a pool gives back to the system at once. A call costs as much as some hundred
/// pages that stay.
const BATCH: usize = 256;

/// A pool of pages for buffers, without `mmap` and `munmap` for each buffer.
///
/// What for: page-sized memory that many threads take and give back all the time, such as a
/// database's buffers, instances of a virtual machine, network buffers. When not: use a
/// [`MappingDb`](crate::MappingDb) for memory that is shared at several addresses and revoked, and
/// a [`Slab`](manycore::slab::Slab) for small objects.
///
/// ```
/// use manycore_vm::PagePool;
///
/// let pool = PagePool::new(1024)?; // 4 MiB
/// let mut page = pool.alloc_zeroed(1)?;
/// page[..5].copy_from_slice(b"hello");
/// let many = pool.alloc(100)?;
/// assert_eq!((many.len(), pool.idle()), (100 * 4096, 1024 - 101));
/// std::thread::scope(|s| {
///     s.spawn(move || drop((page, many))); // freed over there
/// });
/// assert_eq!(pool.idle(), 1024);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - *Contents*: [`alloc`](Self::alloc) returns pages as they are: zeros if they are new, or what
///   an earlier owner *of this pool* left. They never hold what another pool or process wrote.
///   [`alloc_zeroed`](Self::alloc_zeroed) clears them, unless they hold zeros already. If parties
///   must not see each other's contents, use a pool for each, or allocate zeroed.
/// - *Progress*: single pages take the lock of a shelf of the thread's own. Several pages, and a
///   shelf that is empty or full, take the pool's lock for some hundred nanoseconds. A thread whose
///   shelf is empty takes pages from the shelves of others, so no thread starves beside free pages.
/// - *Cost*: a single page takes some tens of nanoseconds and writes no shared line. Pages that
///   pass from thread to thread go through the pool's lock, 64 at a time. In a recorded trace, on
///   an EPYC with one and two threads, to take, touch and give back a page costs 0.25 and 0.1
///   microseconds; with `mmap` and `munmap` it costs 11 and 41 (`manycore-bench bench metis`). The
///   first touch costs the system's page fault.
/// - *Memory*: the bound is hard. Idle pages keep their memory up to [`Builder::keep`]. Memory
///   beyond that goes back in batches of at least 256 pages. The pool takes a byte for each page,
///   and 1 KiB for each thread.
/// - *NUMA*: by default a page is on the node of the thread that first touches it, and stays there
///   when it passes to another thread. [`Builder::node`] binds the whole pool to a node.
/// - *Fork*: the child has a copy of the pages, as of all private memory.
/// - *Errors*: if there is no room, the error names the range. *Panics*: never.
pub struct PagePool {
    base: *mut u8,
    /// The whole mapping: it begins before `base`, which is aligned, and ends after the last page.
    mapping: (usize, usize),
    runs: Runs,
    used: Box<[AtomicBool]>,
    keep: usize,
}

// SAFETY: page_pool.P1 - the addresses are the pool's alone, and each page has one owner;
// everything else is `Sync`.
unsafe impl Send for PagePool {}
// SAFETY: page_pool.P1 - `Runs` and the bits are made for sharing, and no two threads get one page.
unsafe impl Sync for PagePool {}

/// Builder for [`PagePool`].
///
/// ```
/// use manycore_vm::PagePool;
///
/// let pool = PagePool::builder(1024).keep(0).build()?; // idle pages go back to the system
/// let mut page = pool.alloc(1)?;
/// page[0] = 1; // the system's page fault
/// assert!(pool.resident() >= 1);
/// drop(page);
/// pool.trim();
/// assert_eq!(pool.idle(), pool.pages());
///
/// assert!(PagePool::builder(0).build().is_err());
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    pages: u32,
    keep: usize,
    huge: bool,
    node: Option<u32>,
}

/// Consecutive pages of a [`PagePool`]. Dropping it, on any thread, gives them back.
///
/// See [`PagePool`] for an example.
pub struct Pages<'p> {
    pool: &'p PagePool,
    first: u32,
    count: u32,
}

/// The number of pages of a huge page (2 MiB).
const HUGE: usize = 512;

impl Builder {
    /// Sets how many idle pages keep their memory. By default a quarter of the pool.
    #[must_use]
    pub fn keep(mut self, pages: usize) -> Self {
        self.keep = pages;
        self
    }

    /// Asks the system for huge pages (2 MiB), if it has some. Large runs then have fewer faults
    /// and TLB misses, but a touch may take 2 MiB.
    #[must_use]
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge = yes;
        self
    }

    /// Binds the pool to a NUMA node, by its number.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// Reserves the pool's addresses. No memory is taken yet.
    ///
    /// # Errors
    /// If the pool has no pages, the system's pages do not have 4,096 bytes, or the system refuses
    /// the mapping, huge pages or the node.
    pub fn build(self) -> Result<PagePool, Error> {
        let pages = self.pages as usize;
        if pages == 0 {
            return Err(Error::new(ErrorKind::ZeroPages, 0, 0));
        }
        sys::check_page_size()?;
        let slack = if self.huge { HUGE } else { 0 };
        let mapped = sys::anonymous(pages + slack)?;
        let aligned = mapped.align_offset(if self.huge { HUGE * PAGE_BYTES } else { PAGE_BYTES });
        // If a later step fails, the pool releases the mapping.
        let pool = PagePool {
            // SAFETY: the slack is as long as the alignment, so this is within the mapping.
            base: unsafe { mapped.add(aligned) },
            mapping: (mapped.expose_provenance(), pages + slack),
            runs: Runs::new(self.pages),
            used: (0..pages).map(|_| AtomicBool::new(false)).collect(),
            // More pages cannot be idle, and twice as many do not overflow.
            keep: self.keep.min(pages),
        };
        if self.huge {
            // SAFETY: page_pool.P1 - the pool's own mapping; this advice changes no contents.
            unsafe { sys::advise(pool.base.addr(), pages, libc::MADV_HUGEPAGE) }?;
        }
        if let Some(node) = self.node {
            bind(pool.base, pages, node)?;
        }
        Ok(pool)
    }
}

/// Binds a mapping of the caller's to a node.
fn bind(at: *mut u8, pages: usize, node: u32) -> Result<(), Error> {
    const BIND: libc::c_ulong = 2; // MPOL_BIND
    let mut mask = [0_u64; 16];
    let Some(word) = mask.get_mut(node as usize / 64) else {
        return Err(Error::unsupported("nodes have numbers below 1024", at.addr(), pages));
    };
    *word = 1 << (node % 64);
    // SAFETY: the mask has 1,024 bits; a policy changes no contents.
    let bound = unsafe {
        let bits: libc::c_ulong = 1025; // the kernel subtracts one
        libc::syscall(libc::SYS_mbind, at, pages * PAGE_BYTES, BIND, mask.as_ptr(), bits, 0)
    };
    if bound == 0 { Ok(()) } else { Err(sys::last_error("mbind", at.addr(), pages)) }
}

impl PagePool {
    /// Creates a pool of this many pages, without memory yet.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn new(pages: u32) -> Result<Self, Error> {
        Self::builder(pages).build()
    }

    /// Creates a builder of a pool of this many pages.
    pub fn builder(pages: u32) -> Builder {
        Builder { pages, keep: pages as usize / 4, huge: false, node: None }
    }

    /// Takes `n` consecutive pages, with the contents that they have (see the type).
    ///
    /// # Errors
    /// If `n` is zero, or there is no run of `n` free pages.
    #[inline]
    pub fn alloc(&self, n: usize) -> Result<Pages<'_>, Error> {
        self.alloc_aligned(n, 1)
    }

    /// Takes `n` consecutive pages of zeros.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&self, n: usize) -> Result<Pages<'_>, Error> {
        let (first, n) = self.take(n, 1)?;
        let mut pages = Pages { pool: self, first, count: n };
        for page in 0..n {
            // page_pool.P2
            if self.set_used(first + page) {
                pages[page as usize * PAGE_BYTES..][..PAGE_BYTES].fill(0);
            }
        }
        Ok(pages)
    }

    /// Like [`alloc`](Self::alloc), at an address that is a multiple of `align` pages.
    ///
    /// # Errors
    /// Those of [`alloc`](Self::alloc). Also if `align` is not a power of two, or is larger than
    /// the alignment of the pool: 1 page, or 512 with [huge pages](Builder::huge_pages).
    #[inline]
    pub fn alloc_aligned(&self, n: usize, align: usize) -> Result<Pages<'_>, Error> {
        let (first, count) = self.take(n, align)?;
        (first..first + count).for_each(|page| {
            self.set_used(page);
        });
        Ok(Pages { pool: self, first, count })
    }

    #[inline]
    fn take(&self, n: usize, align: usize) -> Result<(u32, u32), Error> {
        let refused = |kind| Err(Error::new(kind, 0, n));
        if n == 0 {
            return refused(ErrorKind::ZeroPages);
        }
        // If the index is a multiple, so is the address, up to the alignment of the base.
        let has = 1 << self.base.addr().trailing_zeros();
        let fits = align.checked_mul(PAGE_BYTES).is_some_and(|bytes| bytes <= has);
        if !align.is_power_of_two() || !fits {
            return refused(ErrorKind::Unaligned);
        }
        let found = u32::try_from(n).ok().filter(|n| *n <= self.runs.limit());
        let found = found.and_then(|n| Some((self.runs.alloc(n, align as u32)?, n)));
        found.map_or_else(|| refused(ErrorKind::NoFrames), Ok)
    }

    /// Marks a page as used. Returns true if it was marked already.
    #[inline]
    fn set_used(&self, page: u32) -> bool {
        let flag = &self.used[page as usize];
        // Only a first use stores, so a page that passes from owner to owner writes no shared line.
        // ORDER: Relaxed, both; whoever has the page changes its flag, and the page passes on under
        // locks.
        let was_used = flag.load(Ordering::Relaxed);
        if !was_used {
            flag.store(true, Ordering::Relaxed);
        }
        was_used
    }

    /// Gives pages back to the pool, and memory to the system if too much is idle.
    #[inline]
    fn give_back(&self, first: u32, count: u32) {
        if self.runs.free((first, count), self.keep + self.keep / 4 + BATCH) {
            self.give_to_system(self.keep);
        }
    }

    /// Gives the system the memory of idle pages, except for some hundred near the threads.
    ///
    /// Returns how many pages lost their memory. Call it when the program expects to be idle.
    pub fn trim(&self) -> usize {
        self.runs.clear_shelves();
        self.give_to_system(0)
    }

    #[cold]
    fn give_to_system(&self, keep: usize) -> usize {
        let runs = self.runs.take_warm(keep);
        let mut given = 0;
        for &(first, count) in &runs {
            let address = self.base.addr() + first as usize * PAGE_BYTES;
            // SAFETY: page_pool.P1 - free pages that `take_warm` took out of `runs` for this call.
            if unsafe { sys::advise(address, count as usize, libc::MADV_DONTNEED) }.is_ok() {
                // page_pool.P2: the page holds zeros from here on.
                let flags = &self.used[first as usize..][..count as usize];
                // ORDER: Relaxed; as in `set_used`.
                flags.iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
                given += count as usize;
            }
        }
        self.runs.put_cold(runs);
        given
    }

    /// Returns how many pages are free. Approximate while other threads run.
    pub fn idle(&self) -> usize {
        self.runs.idle()
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.runs.limit() as usize
    }

    /// Returns the position in the pool of the page with this address, or `None` for a foreign
    /// address.
    ///
    /// ```
    /// let pool = manycore_vm::PagePool::new(8)?;
    /// let pages = pool.alloc(2)?;
    /// let last = pages.as_ptr().wrapping_add(2 * 4096 - 1);
    /// assert_eq!(pool.index_of(last), Some(pages.index() + 1));
    /// assert_eq!(pool.index_of(std::ptr::null()), None);
    /// # Ok::<(), manycore_vm::Error>(())
    /// ```
    pub fn index_of(&self, address: *const u8) -> Option<usize> {
        let index = address.addr().checked_sub(self.base.addr())? / PAGE_BYTES;
        (index < self.pages()).then_some(index)
    }

    /// Returns how many free or used pages may have memory of the system.
    pub fn resident(&self) -> usize {
        // ORDER: Relaxed; a statistic.
        self.used.iter().filter(|flag| flag.load(Ordering::Relaxed)).count()
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        // SAFETY: page_pool.P1 - the pool's own mapping, and all `Pages` are gone with `&mut self`.
        let _ = unsafe { sys::release(self.mapping.0, self.mapping.1) };
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePool")
            .field("pages", &self.pages())
            .field("idle", &self.idle())
            .finish_non_exhaustive()
    }
}

impl<'p> Pages<'p> {
    /// Gives the pages to code that keeps only their address: another language, or a structure that
    /// stores a pointer. The pages stay in use until [`from_raw`](Self::from_raw) takes them back.
    ///
    /// ```
    /// use manycore_vm::{PagePool, Pages};
    ///
    /// let pool = PagePool::new(8)?;
    /// let kept = pool.alloc(2)?.into_raw();
    /// assert_eq!(pool.idle(), 6);
    /// // SAFETY: of this pool, given up above, and taken back once.
    /// drop(unsafe { Pages::from_raw(&pool, kept) });
    /// assert_eq!(pool.idle(), 8);
    /// # Ok::<(), manycore_vm::Error>(())
    /// ```
    #[must_use = "the pages are in use until they are taken back"]
    pub fn into_raw(self) -> NonNull<[u8]> {
        let pages = mem::ManuallyDrop::new(self);
        let bytes = pages.count as usize * PAGE_BYTES;
        // SAFETY: page_pool.P1 - an address within the pool's mapping, which is not at zero.
        unsafe { NonNull::new_unchecked(ptr::slice_from_raw_parts_mut(pages.as_ptr(), bytes)) }
    }

    /// Takes back pages that [`into_raw`](Self::into_raw) gave up, or some of them.
    ///
    /// # Safety
    /// The pages are of this pool and were given up, and no page is taken back twice.
    pub unsafe fn from_raw(pool: &'p PagePool, pages: NonNull<[u8]>) -> Self {
        let first = pages.as_ptr().cast::<u8>().addr() - pool.base.addr();
        let (first, count) = (first / PAGE_BYTES, pages.len() / PAGE_BYTES);
        debug_assert!(first + count <= pool.pages(), "page_pool.P1: pages of another pool");
        // Both are at most the pool's length, which is a `u32`.
        Self { pool, first: first as u32, count: count as u32 }
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: page_pool.P1 - the index is below the pool's length.
        unsafe { self.pool.base.add(self.first as usize * PAGE_BYTES) }
    }

    /// Returns the position of the first page in the pool, for tables with an entry for each page.
    pub fn index(&self) -> usize {
        self.first as usize
    }
}

impl Deref for Pages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: page_pool.P1 - the pages are mapped, the system initialized them, and they are
        // this value's alone.
        unsafe { slice::from_raw_parts(self.as_ptr(), self.count as usize * PAGE_BYTES) }
    }
}

impl DerefMut for Pages<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = ptr::slice_from_raw_parts_mut(self.as_ptr(), self.count as usize * PAGE_BYTES);
        // SAFETY: page_pool.P1 - mapped, and this value's alone, which is mutably borrowed.
        unsafe { &mut *bytes }
    }
}

impl Drop for Pages<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pool.give_back(self.first, self.count);
    }
}

impl fmt::Debug for Pages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("at", &self.as_ptr()).field("pages", &self.count).finish()
    }
}
