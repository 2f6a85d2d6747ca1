//! An address space of files: which file's pages are at which address.
//!
//! This module owns the regions: [`AddressSpace`] and [`SpaceView`]. It does not own the files'
//! pages.
//!
//! Laws:
//! - address_space.A1 An address has at most one region at any time: the entry of a range map
//!   (range_map.R3) whose keys are pages of 4,096 bytes. A touch finds the region without a lock
//!   and without a write.
//! - address_space.A2 A region keeps its file. The range map keeps a region that a view found until
//!   the view is closed (range_map.R6). So a touch beside an unmap ends on the file with which it
//!   began.
//!
//! Source: K42's process object, which caches its list of regions for each processor (section 4.1
//! of the paper). A table that is read without a lock needs no caches, so unmapping has none to
//! invalidate.

use crate::file_cache::{FileCache, FilePage};
use crate::{Error, ErrorKind, PAGE_BYTES};
use manycore::collections::{RangeError, RangeMap, RangeMapView};
use std::fmt;
use std::sync::Arc;

/// A range of a file at a range of addresses.
struct Region {
    file: Arc<FileCache>,
    /// Added to an address, wrapping around, it gives the offset in the file. So it stays right for
    /// the parts that an unmap leaves.
    shift: u64,
}

/// Addresses, and the [files](FileCache) whose pages are there: `mmap` of files in user space.
///
/// What for: one range of numbers for data from many files, such as the segments of a store, a heap
/// in files, the memory of an emulated machine. The caller chooses the addresses, which are not
/// those of the processor. When not: a single file needs no addresses. For memory that the
/// processor reads at its address, use [`MappingDb`](crate::MappingDb).
///
/// All operations go through a view ([`enter`](Self::enter)). An open view keeps the memory of
/// unmapped regions, so close it now and then.
///
/// ```
/// use manycore_vm::{AddressSpace, ErrorKind, FileCache, MemoryFile};
///
/// let space = AddressSpace::new();
/// let file = FileCache::new(MemoryFile::new(vec![3; 64 << 10]))?;
/// std::thread::scope(|s| {
///     for thread in 0..4 {
///         let (space, file) = (&space, &file);
///         s.spawn(move || {
///             let view = space.enter();
///             let at = 0x10_0000 + thread * 0x1_0000;
///             view.map(at, 8, file, 0x4000).unwrap();
///             view.write(at, &[thread as u8]).unwrap();
///             assert_eq!(view.unmap(at, 8).unwrap(), 8);
///         });
///     }
/// });
/// let view = space.enter();
/// let mut byte = [0];
/// assert_eq!(view.read(0x10_0000, &mut byte).unwrap_err().kind(), ErrorKind::NotMapped);
/// file.read(0x4001, &mut byte)?;
/// assert_eq!(byte, [3]);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - *Consistency*: linearizable for each page of addresses. Mapping and unmapping a range becomes
///   visible page by page, as in [`RangeMap`].
/// - *Progress*: a look-up of a region is wait-free. Mapping and unmapping wait for other such
///   operations on the same addresses.
/// - *Cost*: that of [`RangeMap`], plus that of the file. A look-up takes some 5 ns and writes no
///   shared line. Mapping and unmapping take 0.1 us, and different ranges share nothing.
///   Neighbouring regions have their lock bits on the same line of the table, so give each thread
///   its own addresses, some MiB apart. Then 24 virtual cores that map, touch and unmap 64 pages
///   each are 21 times as fast as one core; with a list under a lock they are 0.4 times as fast
///   (`manycore-bench bench faults`).
/// - *Private mappings*: none. A page that is copied on write would belong to the space. It would
///   need a charge, an eviction and a place to be written to, and no file has these.
///   [`PrivatePages`](manycore::collections::PrivatePages) has such views of one cache of pages.
/// - *Memory*: 1.3 KB, and some 70 bytes for each region with the table's branches. A region keeps
///   its file.
/// - *Errors*: [`Error`], which names the addresses. A failed operation leaves nothing half done.
/// - *Source*: K42's process object and regions.
#[derive(Default)]
pub struct AddressSpace {
    regions: RangeMap<Region>,
}

/// A thread's view of an [`AddressSpace`].
///
/// ```
/// use manycore_vm::{AddressSpace, FileCache, MemoryFile};
///
/// let space = AddressSpace::new();
/// let view = space.enter();
/// let file = FileCache::new(MemoryFile::new((0..8192).map(|at| at as u8).collect()))?;
/// view.map(0x7000, 1, &file, 4096)?; // the second page
/// let word = view.touch(0x7008, |page, at| {
///     let mut bytes = [0; 4];
///     page.read(at, &mut bytes);
///     bytes
/// })?;
/// assert_eq!(word, [8, 9, 10, 11]);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
pub struct SpaceView<'s> {
    regions: RangeMapView<'s, Region>,
}

/// Returns the first and the last page of a range of addresses.
fn pages_of(at: usize, pages: usize) -> Result<(u64, u64), Error> {
    let refused = |kind| Err(Error::new(kind, at, pages));
    if pages == 0 {
        return refused(ErrorKind::ZeroPages);
    }
    if at % PAGE_BYTES != 0 {
        return refused(ErrorKind::Unaligned);
    }
    let first = at / PAGE_BYTES;
    match first.checked_add(pages - 1).filter(|last| *last <= usize::MAX / PAGE_BYTES) {
        Some(last) => Ok((first as u64, last as u64)),
        None => refused(ErrorKind::Wraps),
    }
}

impl AddressSpace {
    /// Creates a space without regions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a view of the space for this thread.
    #[inline]
    pub fn enter(&self) -> SpaceView<'_> {
        SpaceView { regions: self.regions.enter() }
    }
}

impl SpaceView<'_> {
    /// Maps `pages` pages of 4,096 bytes of `file`, from the byte `offset` on, to the addresses
    /// from `at` on. Reads nothing yet.
    ///
    /// # Errors
    /// If there are no pages, the address or the offset is not a multiple of 4,096, the range is
    /// not within the present length of the file (its last page may be partial), or an address has
    /// a region already.
    pub fn map(
        &self,
        at: usize,
        pages: usize,
        file: &Arc<FileCache>,
        offset: u64,
    ) -> Result<(), Error> {
        let refused = |kind| Error::new(kind, at, pages);
        let (first, last) = pages_of(at, pages)?;
        if offset % PAGE_BYTES as u64 != 0 {
            return Err(refused(ErrorKind::Unaligned));
        }
        let bytes = (last - first).checked_mul(PAGE_BYTES as u64);
        let last_byte = bytes.and_then(|bytes| offset.checked_add(bytes));
        if last_byte.is_none_or(|last| last >= file.length()) {
            return Err(refused(ErrorKind::OutsideFile));
        }
        let region = Region { file: Arc::clone(file), shift: offset.wrapping_sub(at as u64) };
        match self.regions.insert(first..=last, region) {
            Ok(_) => Ok(()),
            Err(RangeError::Overlap { .. }) => Err(refused(ErrorKind::Overlaps)),
            Err(error) => unreachable!("a view holds no range: {error}"),
        }
    }

    /// Unmaps the mapped pages of a range of addresses, and returns how many these were. The files
    /// keep their pages.
    ///
    /// # Errors
    /// If there are no pages, the address is not a multiple of 4,096, or no page of the range is
    /// mapped.
    pub fn unmap(&self, at: usize, pages: usize) -> Result<usize, Error> {
        let (first, last) = pages_of(at, pages)?;
        let removed = match self.regions.remove(first..=last) {
            Ok(removed) => removed,
            Err(error) => unreachable!("a view holds no range: {error}"),
        };
        let count = removed.map(|(keys, _)| (keys.end() - keys.start() + 1) as usize).sum();
        if count == 0 { Err(Error::new(ErrorKind::NotMapped, at, pages)) } else { Ok(count) }
    }

    /// Runs `f` on the file's page at this address, and on the position of the address in the page.
    /// Reads the page if it is not in memory.
    ///
    /// # Errors
    /// If nothing is mapped there. Otherwise those of [`FileCache::with_page`], which name the
    /// offset in the file.
    ///
    /// # Panics
    /// Those of [`FileCache::with_page`].
    #[inline]
    pub fn touch<R>(
        &self,
        at: usize,
        f: impl FnOnce(&FilePage<'_>, usize) -> R,
    ) -> Result<R, Error> {
        let Some(region) = self.regions.get((at / PAGE_BYTES) as u64) else {
            return Err(Error::new(ErrorKind::NotMapped, at, 1));
        };
        let offset = (at as u64).wrapping_add(region.shift);
        let bytes = region.file.page_bytes() as u64;
        region.file.with_page(offset / bytes, |page| f(page, (offset % bytes) as usize))
    }

    /// Copies the bytes at these addresses.
    ///
    /// # Errors
    /// Those of [`touch`](Self::touch): bytes before the address that failed stay copied. If the
    /// range goes past the last address, it fails before it copies.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        self.each(at, into.len(), |page, from, at, count| page.read(from, &mut into[at..][..count]))
    }

    /// Changes the bytes at these addresses.
    ///
    /// # Errors
    /// Those of [`touch`](Self::touch): bytes before the address that failed stay changed. If the
    /// range goes past the last address, it fails before it changes anything.
    pub fn write(&self, at: usize, from: &[u8]) -> Result<(), Error> {
        self.each(at, from.len(), |page, to, at, count| page.write(to, &from[at..][..count]))
    }

    fn each(
        &self,
        at: usize,
        bytes: usize,
        mut f: impl FnMut(&FilePage<'_>, usize, usize, usize),
    ) -> Result<(), Error> {
        if at.checked_add(bytes).is_none() {
            return Err(Error::new(ErrorKind::Wraps, at, bytes.div_ceil(PAGE_BYTES)));
        }
        let mut done = 0;
        while done < bytes {
            let address = at + done;
            // A region may end with any page of 4,096 bytes.
            let count = (PAGE_BYTES - address % PAGE_BYTES).min(bytes - done);
            self.touch(address, |page, within| f(page, within, done, count))?;
            done += count;
        }
        Ok(())
    }

    /// Returns the file at this address, and the offset in the file.
    pub fn file(&self, at: usize) -> Option<(Arc<FileCache>, u64)> {
        let region = self.regions.get((at / PAGE_BYTES) as u64)?;
        Some((Arc::clone(&region.file), (at as u64).wrapping_add(region.shift)))
    }
}

impl fmt::Debug for AddressSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regions = self.regions.enter().iter().count();
        f.debug_struct("AddressSpace").field("regions", &regions).finish()
    }
}

impl fmt::Debug for SpaceView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceView").finish_non_exhaustive()
    }
}
