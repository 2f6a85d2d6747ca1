//! Which file's pages are at which address.
//!
//! Owns: [`AddressSpace`] and [`SpaceView`]: the regions. Does not own: the files' pages.
//!
//! Laws:
//! - address_space.A1 An address has one region at any time, or none: that of a range map
//!   (range_map.R3), whose keys are pages of 4,096 bytes. A touch finds it with no lock and no
//!   write.
//! - address_space.A2 A region has its file; the range map keeps a region that was found until the
//!   view is closed (range_map.R6). So a touch beside an unmap ends on the file that it began with.
//!
//! Source: K42's process object, whose list of regions is cached by processor (section 4.1 of the
//! paper). A table that is read without a lock needs no caches, so unmapping visits none.

use crate::file_cache::{FileCache, FilePage};
use crate::{Error, ErrorKind, PAGE_BYTES};
use manycore::collections::{RangeError, RangeMap, RangeMapView};
use std::fmt;
use std::sync::Arc;

/// A file's pages at a range of addresses.
struct Region {
    file: Arc<FileCache>,
    /// What is added to an address to get the offset in the file; it wraps around. So it is right
    /// for what an unmap leaves, too.
    shift: u64,
}

/// Addresses, and the [files](FileCache) whose pages are there: `mmap` of files, in user space.
///
/// What for: one range of numbers for data from many files: the segments of a store, a heap in
/// files, the memory of an emulated machine. Addresses are chosen by the caller and are not those
/// of the processor. When not: a single file needs no addresses; for memory that the processor
/// reads at its address, [`MappingDb`](crate::MappingDb).
///
/// Everything is done through a view, [`enter`](Self::enter): it holds back the memory of regions
/// that are unmapped, so close it now and then.
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
/// - *Progress*: a look-up of a region is wait-free. Mapping and unmapping wait for those of the
///   same addresses.
/// - *Cost*: that of [`RangeMap`]: a look-up some 5 ns, with no shared line written; mapping and
///   unmapping 0.1 us, and different ranges do not meet. Then that of the file. Regions that are
///   neighbours have their lock bits on the same line of the table: give each thread addresses of
///   its own, some MiB apart. On 24 virtual cores, threads that map, touch and unmap 64 pages each
///   are 21 times as fast as one then; with a list under a lock 0.4 times (`manycore bench
///   faults`).
/// - *Private mappings*: none. A page that is copied when it is written would be the space's, with
///   a charge, an eviction and a place to be written to that no file has;
///   [`PrivatePages`](manycore::collections::PrivatePages) has such views of one cache of pages.
/// - *Memory*: 1.3 KB, some 70 bytes for each region with the table's branches; a region keeps its
///   file.
/// - *Errors*: [`Error`], which names the addresses. Nothing is half done then.
/// - *Source*: K42's process object and regions.
#[derive(Default)]
pub struct AddressSpace {
    regions: RangeMap<Region>,
}

/// An [`AddressSpace`], as a thread uses it.
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

/// First and last page of a range of addresses.
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
    /// A space without regions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows the space to this thread.
    #[inline]
    pub fn enter(&self) -> SpaceView<'_> {
        SpaceView { regions: self.regions.enter() }
    }
}

impl SpaceView<'_> {
    /// Maps so many pages of 4,096 bytes of `file`, from the byte `offset` on, to the addresses
    /// from `at` on. Nothing is read yet.
    ///
    /// # Errors
    /// If there are no pages, address or offset are not multiples of 4,096, the range is not within
    /// the file as long as that is now (its last page may be a part of one), or an address has a
    /// region.
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

    /// Unmaps what is mapped of so many pages of addresses, and returns how many pages that were.
    /// The files keep their pages.
    ///
    /// # Errors
    /// If there are no pages, the address is not a multiple of 4,096, or none of them is mapped.
    pub fn unmap(&self, at: usize, pages: usize) -> Result<usize, Error> {
        let (first, last) = pages_of(at, pages)?;
        let removed = match self.regions.remove(first..=last) {
            Ok(removed) => removed,
            Err(error) => unreachable!("a view holds no range: {error}"),
        };
        let count = removed.map(|(keys, _)| (keys.end() - keys.start() + 1) as usize).sum();
        if count == 0 { Err(Error::new(ErrorKind::NotMapped, at, pages)) } else { Ok(count) }
    }

    /// Runs `f` on the page of the file that is at this address, and on where in it the address is.
    /// The page is read if it is not in memory.
    ///
    /// # Errors
    /// If nothing is mapped there, and as [`FileCache::with_page`]: that error names the offset in
    /// the file.
    ///
    /// # Panics
    /// As [`FileCache::with_page`].
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
    /// As [`touch`](Self::touch): what was copied before the address that failed stays copied. If
    /// the range goes past the last address, at once.
    pub fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        self.each(at, into.len(), |page, from, at, count| page.read(from, &mut into[at..][..count]))
    }

    /// Changes the bytes at these addresses.
    ///
    /// # Errors
    /// As [`touch`](Self::touch): what was changed before the address that failed stays changed. If
    /// the range goes past the last address, at once.
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

    /// The file that is at this address, and the offset in it.
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
