//! Pages of memory that are handed out and taken back without a system call.
//!
//! Owns: [`PagePool`] and [`Pages`].
//!
//! Laws:
//! - page_pool.P1 The pool's addresses are one mapping, made once. A page is with one owner, or
//!   free: which, is said by `Runs` (law runs.R1).
//! - page_pool.P2 A page that may hold old contents has its flag in `used`. It is set before the
//!   page is handed out, and cleared after its memory has been given back, while no shelf has it.
//!   So a page without the flag holds zeros. A flag is a byte, of which 64 pages fill a line: as
//!   many as a shelf takes at once of pages that were never used, so threads that take new pages
//!   share no line of flags.
//! - page_pool.P3 Memory beyond what the pool keeps goes back to the system in batches, with one
//!   call for each run of adjacent pages, and no lock is held during the calls.
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

/// What a pool gives back at once, at least, in pages: a call costs as much as some hundred pages
/// that stay.
const BATCH: usize = 256;

/// Pages of memory for buffers, without `mmap` and `munmap` for each.
///
/// What for: buffer managers of databases, instances of a virtual machine, network buffers:
/// page-sized memory that many threads take and give back all the time. When not: for memory that
/// is shared at several addresses and revoked, a [`MappingDb`](crate::MappingDb); for small
/// objects, [`Slab`](manycore::slab::Slab).
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
///   [`alloc_zeroed`](Self::alloc_zeroed) clears them, except those that hold zeros anyway. Use a
///   pool for each party that must not see the others' contents, or allocate zeroed.
/// - *Progress*: single pages take the lock of a shelf of the thread's own; several pages, and a
///   shelf that is empty or full, take the pool's lock for some hundred nanoseconds. A thread whose
///   shelf is empty takes from the others' (no thread starves beside free pages).
/// - *Cost*: a single page takes some tens of nanoseconds and writes no shared line; pages that
///   pass from thread to thread go through the pool's lock, 64 at a time. In a recorded trace, on
///   an EPYC with one and two threads, a page taken, touched and given back costs 0.25 and 0.1
///   microseconds, by `mmap` and `munmap` 11 and 41 (`manycore bench metis`). The first touch costs
///   the system's page fault.
/// - *Memory*: the bound is hard. Idle pages keep their memory up to [`Builder::keep`]; what is
///   beyond goes back in batches of at least 256 pages. A byte for each page, and 1 KiB for each
///   thread.
/// - *NUMA*: by default a page is on the node of the thread that first touches it, and stays there
///   when it passes to another thread; [`Builder::node`] binds all of a pool to a node.
/// - *Fork*: the child has a copy of the pages, as of all private memory.
/// - *Errors*: no room names the range. *Panics*: never.
pub struct PagePool {
    base: *mut u8,
    /// The mapping: from before `base`, which is aligned, to after the last page.
    mapping: (usize, usize),
    runs: Runs,
    used: Box<[AtomicBool]>,
    keep: usize,
}

// SAFETY: page_pool.P1 - the addresses are the pool's alone, and each page is with one owner; all
// else is made for being shared.
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

/// The number of huge pages' pages: 2 MiB.
const HUGE: usize = 512;

impl Builder {
    /// Idle pages that keep their memory. By default a quarter of the pool.
    #[must_use]
    pub fn keep(mut self, pages: usize) -> Self {
        self.keep = pages;
        self
    }

    /// Asks the system for huge pages (2 MiB), where it has some: fewer faults and TLB misses for
    /// large runs, but a touch may take 2 MiB.
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
    /// If the pool has no pages, if the system's pages are not of 4,096 bytes, or the system
    /// refuses the mapping, huge pages or the node.
    pub fn build(self) -> Result<PagePool, Error> {
        let pages = self.pages as usize;
        if pages == 0 {
            return Err(Error::new(ErrorKind::ZeroPages, 0, 0));
        }
        sys::check_page_size()?;
        let slack = if self.huge { HUGE } else { 0 };
        let mapped = sys::anonymous(pages + slack)?;
        let aligned = mapped.align_offset(if self.huge { HUGE * PAGE_BYTES } else { PAGE_BYTES });
        // The pool releases the mapping if what follows fails.
        let pool = PagePool {
            // SAFETY: the slack is as long as the alignment, so this is within the mapping.
            base: unsafe { mapped.add(aligned) },
            mapping: (mapped.expose_provenance(), pages + slack),
            runs: Runs::new(self.pages),
            used: (0..pages).map(|_| AtomicBool::new(false)).collect(),
            keep: self.keep.min(pages), // more can't be idle, and twice as much is no overflow
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
        let bits: libc::c_ulong = 1025; // the kernel takes one off
        libc::syscall(libc::SYS_mbind, at, pages * PAGE_BYTES, BIND, mask.as_ptr(), bits, 0)
    };
    if bound == 0 { Ok(()) } else { Err(sys::last_error("mbind", at.addr(), pages)) }
}

impl PagePool {
    /// A pool of this many pages, without memory yet.
    ///
    /// # Errors
    /// As for [`Builder::build`].
    pub fn new(pages: u32) -> Result<Self, Error> {
        Self::builder(pages).build()
    }

    /// Begins to build a pool of this many pages.
    pub fn builder(pages: u32) -> Builder {
        Builder { pages, keep: pages as usize / 4, huge: false, node: None }
    }

    /// `n` consecutive pages, with whatever contents they have (see the type).
    ///
    /// # Errors
    /// If `n` is zero, or no run of as many free pages is left.
    #[inline]
    pub fn alloc(&self, n: usize) -> Result<Pages<'_>, Error> {
        self.alloc_aligned(n, 1)
    }

    /// `n` consecutive pages of zeros.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
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

    /// As [`alloc`](Self::alloc), at an address that is a multiple of `align` pages.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc), and if `align` is no power of two or larger than what the pool
    /// itself is aligned to: 1 page, or 512 with [huge pages](Builder::huge_pages).
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
        // An index that is a multiple is an address that is one, as far as the base is aligned.
        let has = 1 << self.base.addr().trailing_zeros();
        let fits = align.checked_mul(PAGE_BYTES).is_some_and(|bytes| bytes <= has);
        if !align.is_power_of_two() || !fits {
            return refused(ErrorKind::Unaligned);
        }
        let found = u32::try_from(n).ok().filter(|n| *n <= self.runs.limit());
        let found = found.and_then(|n| Some((self.runs.alloc(n, align as u32)?, n)));
        found.map_or_else(|| refused(ErrorKind::NoFrames), Ok)
    }

    /// Marks a page as used; whether it was already.
    #[inline]
    fn set_used(&self, page: u32) -> bool {
        let flag = &self.used[page as usize];
        // A page that passes from owner to owner writes no shared line.
        // ORDER: Relaxed, both; the flag changes with the page in hand, which passes on under
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

    /// Gives the system the memory of idle pages, except some hundred that lie near the threads.
    /// Returns how many pages' memory went. Call it when the program expects to be idle.
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
            // SAFETY: page_pool.P1 - free pages, taken out of `runs` for the call.
            if unsafe { sys::advise(address, count as usize, libc::MADV_DONTNEED) }.is_ok() {
                // page_pool.P2: holds zeros from here on.
                let flags = &self.used[first as usize..][..count as usize];
                // ORDER: Relaxed; as in `set_used`.
                flags.iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
                given += count as usize;
            }
        }
        self.runs.put_cold(runs);
        given
    }

    /// How many pages are free. Beside other threads, approximate.
    pub fn idle(&self) -> usize {
        self.runs.idle()
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.runs.limit() as usize
    }

    /// The position in the pool of the page that has this address; `None` for addresses of others.
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

    /// How many free or used pages may have memory of the system.
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
    /// Gives the pages to code that keeps their address alone: another language, or a structure
    /// that stores a pointer. [`from_raw`](Self::from_raw) takes them back; until then they are in
    /// use.
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

    /// Takes pages back that [`into_raw`](Self::into_raw) gave up, or some of them.
    ///
    /// # Safety
    /// The pages are of this pool and were given up, and no page of them is taken back twice.
    pub unsafe fn from_raw(pool: &'p PagePool, pages: NonNull<[u8]>) -> Self {
        let first = pages.as_ptr().cast::<u8>().addr() - pool.base.addr();
        let (first, count) = (first / PAGE_BYTES, pages.len() / PAGE_BYTES);
        debug_assert!(first + count <= pool.pages(), "page_pool.P1: pages of another pool");
        // Both are at most the pool's length, which is a `u32`.
        Self { pool, first: first as u32, count: count as u32 }
    }

    /// Where the first byte is.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: page_pool.P1 - the index is below the pool's length.
        unsafe { self.pool.base.add(self.first as usize * PAGE_BYTES) }
    }

    /// Their position in the pool, in pages: for tables with an entry for each page.
    pub fn index(&self) -> usize {
        self.first as usize
    }
}

impl Deref for Pages<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: page_pool.P1 - mapped, written by the system if by no other, and this value's
        // alone.
        unsafe { slice::from_raw_parts(self.as_ptr(), self.count as usize * PAGE_BYTES) }
    }
}

impl DerefMut for Pages<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = ptr::slice_from_raw_parts_mut(self.as_ptr(), self.count as usize * PAGE_BYTES);
        // SAFETY: page_pool.P1 - mapped, and this value's alone, which is borrowed mutably.
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
