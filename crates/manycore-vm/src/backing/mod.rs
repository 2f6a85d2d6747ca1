//! Backings: what is behind the mappings of a database. Nothing, a memory file, or pages made on
//! demand.
//!
//! This module owns [`Backing`] and the shipped backings. It does not own which page is mapped
//! where ([`MappingDb`](crate::MappingDb) does).
//!
//! Laws:
//! - backing.G1 A backing that does not support an operation says so ([`Backing::supports`]) before
//!   anything has changed. If it refuses a `map` half-way, the mapped part is unmapped before its
//!   pages are used again.
//! - backing.G2 An unmapped address of a reserved window faults. It belongs to the window until the
//!   window is released: no other mapping of the process gets it.
//! - backing.G3 `unmap` gets what one flush of the gate collected, with adjacent pages joined, and
//!   makes one system call for each span. It may be called again for the same pages. If it refuses
//!   all of them, it gets them one by one and takes back what it can.
//! - backing.G4 `flush` comes after the `unmap` of all mappings of its frames, and clears them: the
//!   next owner of a frame reads zeros.

mod null;
pub use null::Null;

#[cfg(all(test, target_os = "linux", not(manycore_loom)))]
mod fault_tests;
#[cfg(target_os = "linux")]
mod memfd;
#[cfg(target_os = "linux")]
pub use memfd::{FrameFile, Memfd, View};

#[cfg(target_os = "linux")]
mod spare;
#[cfg(target_os = "linux")]
mod userfault;
#[cfg(target_os = "linux")]
pub use userfault::Userfault;

use crate::{Error, Rights};

/// Consecutive pages mapped to consecutive frames.
///
/// See [`Backing`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The address of the first page.
    pub address: usize,
    /// The frame of the first page.
    pub frame: u32,
    /// The number of pages.
    pub pages: u32,
    /// The rights of the mapping.
    pub rights: Rights,
}

/// Consecutive pages.
///
/// See [`Backing`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The address of the first page.
    pub address: usize,
    /// The number of pages.
    pub pages: u32,
}

impl Run {
    /// Returns its addresses.
    pub(crate) fn span(&self) -> Span {
        Span { address: self.address, pages: self.pages }
    }
}

/// Consecutive frames.
///
/// See [`Backing`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frames {
    /// The first frame.
    pub first: u32,
    /// The number of frames.
    pub count: u32,
}

/// An operation that not every backing supports.
///
/// See [`Backing`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// One frame at several addresses.
    Alias,
    /// Fewer rights for mapped pages.
    Protect,
}

/// The memory behind the mappings of a [`MappingDb`](crate::MappingDb).
///
/// [`Null`] has no memory, [`Memfd`] maps frames of a memory file, and [`Userfault`] makes pages
/// when they are touched. A backing of your own can drive a device's page tables, or register
/// memory with a device.
///
/// Any thread may call the methods, several at once, for windows and pages that do not overlap.
/// Only one thread at a time calls `unmap` and `flush`. No lock is held that a mapping or a look-up
/// of the database needs. `map` is called within a section, so it should not block for long.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{Backing, Error, Frames, MappingDb, Null, Operation, Rights, Run, Span};
/// use std::sync::{Arc, atomic::{AtomicU32, Ordering::Relaxed}};
///
/// /// A device that is told which of its pages may be used. It cannot change rights.
/// struct Device {
///     books: Null,
///     registered: Arc<AtomicU32>,
/// }
///
/// impl Backing for Device {
///     fn frames(&self) -> u32 {
///         self.books.frames()
///     }
///     fn supports(&self, operation: Operation) -> Result<(), &'static str> {
///         match operation {
///             Operation::Alias => Ok(()),
///             _ => Err("the device registers pages with all rights"),
///         }
///     }
///     fn reserve(&self, pages: usize) -> Result<usize, Error> {
///         self.books.reserve(pages)
///     }
///     fn release(&self, address: usize, pages: usize) {
///         self.books.release(address, pages);
///     }
///     fn map(&self, runs: &[Run]) -> Result<(), Error> {
///         runs.iter().for_each(|run| drop(self.registered.fetch_add(run.pages, Relaxed)));
///         Ok(())
///     }
///     fn unmap(&self, spans: &[Span]) -> Result<(), Error> {
///         spans.iter().for_each(|span| drop(self.registered.fetch_sub(span.pages, Relaxed)));
///         Ok(())
///     }
///     fn protect(&self, span: Span, _: Rights) -> Result<(), Error> {
///         Err(Error::unsupported("rights", span.address, span.pages as usize))
///     }
///     fn flush(&self, _: &[Frames]) -> Result<(), Error> {
///         Ok(()) // a device that clears its pages itself
///     }
/// }
///
/// let registered = Arc::new(AtomicU32::new(0));
/// let device = Device { books: Null::new(100), registered: registered.clone() };
/// let db = MappingDb::new(device, section::global());
/// let space = db.space(100)?;
/// let pages = db.grant(space, 10, Rights::WRITE)?;
/// assert_eq!(registered.load(Relaxed), 10);
/// db.unmap(space, pages, 10)?;
/// db.flush()?;
/// assert_eq!(registered.load(Relaxed), 0);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
pub trait Backing: Send + Sync {
    /// Returns the number of frames. Frames are numbered from 0.
    fn frames(&self) -> u32;

    /// Says whether the backing supports `operation`. Called before anything has changed.
    ///
    /// # Errors
    /// What it does not support, as a sentence for users.
    fn supports(&self, operation: Operation) -> Result<(), &'static str> {
        let _ = operation;
        Ok(())
    }

    /// Reserves addresses for a space and returns the first. None of them is mapped yet.
    ///
    /// # Errors
    /// If the system refuses.
    fn reserve(&self, pages: usize) -> Result<usize, Error>;

    /// Gives back what [`reserve`](Self::reserve) returned.
    fn release(&self, address: usize, pages: usize);

    /// Maps the runs.
    ///
    /// # Errors
    /// If the system refuses. Some runs may be mapped then. The database calls
    /// [`unmap`](Self::unmap) for all of them before their pages or frames are used again.
    fn map(&self, runs: &[Run]) -> Result<(), Error>;

    /// Unmaps the spans: afterwards an access faults on every core. A page of a span may be
    /// unmapped already.
    ///
    /// # Errors
    /// If the system refuses. Some spans may be unmapped then. The database calls again for each
    /// span alone. What can be unmapped is then free, and the rest waits for the next flush.
    fn unmap(&self, spans: &[Span]) -> Result<(), Error>;

    /// Changes the rights of a span's mappings.
    ///
    /// # Errors
    /// If the system refuses. Then everything stays as it was.
    fn protect(&self, span: Span, rights: Rights) -> Result<(), Error>;

    /// Clears frames that are not mapped any more, before they are used again.
    ///
    /// # Errors
    /// If the system refuses. The database calls again.
    fn flush(&self, frames: &[Frames]) -> Result<(), Error>;
}
