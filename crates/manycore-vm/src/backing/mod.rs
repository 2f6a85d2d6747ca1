//! What is behind the mappings of a database: nothing, a memory file, or pages made on demand.
//!
//! Owns: [`Backing`], and those that are shipped. Does not own: which page is mapped where
//! ([`MappingDb`](crate::MappingDb) does).
//!
//! Laws:
//! - backing.G1 A backing that cannot do something says so ([`Backing::supports`]) before anything
//!   has changed, and `map` does all or nothing.
//! - backing.G2 An address of a reserved window that is not mapped faults. It belongs to the window
//!   until that is released: no other mapping of the process gets it.
//! - backing.G3 `unmap` gets what one flush of the gate collected, adjacent pages joined, and makes
//!   one system call for each span. It may be called again for the same pages.
//! - backing.G4 `flush` comes after `unmap` of all mappings of its frames, and clears them: the
//!   next owner of a frame reads zeros.

mod null;
pub use null::Null;

#[cfg(target_os = "linux")]
mod memfd;
#[cfg(target_os = "linux")]
pub use memfd::{FrameFile, Memfd, View};

#[cfg(target_os = "linux")]
mod userfault;
#[cfg(target_os = "linux")]
pub use userfault::Userfault;

use crate::{Error, Rights};

/// Consecutive pages mapped to consecutive frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The address of the first page.
    pub address: usize,
    /// The frame of the first page.
    pub frame: u32,
    /// How many pages.
    pub pages: u32,
    /// What the mapping allows.
    pub rights: Rights,
}

/// Consecutive pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The address of the first page.
    pub address: usize,
    /// How many pages.
    pub pages: u32,
}

impl Run {
    /// Its addresses.
    #[cfg(target_os = "linux")]
    pub(crate) fn span(&self) -> Span {
        Span { address: self.address, pages: self.pages }
    }
}

/// Consecutive frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frames {
    /// The first frame.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What not every backing can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// One frame at several addresses.
    Alias,
    /// Fewer rights for what is mapped.
    Protect,
}

/// What is behind the mappings of a [`MappingDb`](crate::MappingDb).
///
/// [`Null`] keeps books only, [`Memfd`] has frames in a memory file and maps them, and
/// [`Userfault`] makes pages when they are touched. One of your own drives a device's page tables,
/// or registers memory with one.
///
/// Methods are called by any thread, several at once, for windows and pages that do not overlap;
/// `unmap` and `flush` by one thread at a time. They are called with no lock of the database held
/// that a mapping or a look-up needs, but `map` within a section: it should not block for long.
pub trait Backing: Send + Sync {
    /// How many frames there are: numbers below that.
    fn frames(&self) -> u32;

    /// Whether it can do `operation` at all (law backing.G1).
    ///
    /// # Errors
    /// What it cannot do, as a sentence for users.
    fn supports(&self, operation: Operation) -> Result<(), &'static str> {
        let _ = operation;
        Ok(())
    }

    /// Reserves addresses for a space, of which none is mapped yet. Returns the first.
    ///
    /// # Errors
    /// If the system refuses.
    fn reserve(&self, pages: usize) -> Result<usize, Error>;

    /// Gives back what [`reserve`](Self::reserve) returned.
    fn release(&self, address: usize, pages: usize);

    /// Maps the runs: all or none.
    ///
    /// # Errors
    /// If the system refuses; then none of them is mapped.
    fn map(&self, runs: &[Run]) -> Result<(), Error>;

    /// Unmaps the spans: afterwards an access faults, on every core. A page may not be mapped.
    ///
    /// # Errors
    /// If the system refuses. Some may be unmapped then; the call comes again with all of them.
    fn unmap(&self, spans: &[Span]) -> Result<(), Error>;

    /// Changes what the mappings of a span allow.
    ///
    /// # Errors
    /// If the system refuses; then all stays as it was.
    fn protect(&self, span: Span, rights: Rights) -> Result<(), Error>;

    /// Clears frames that are mapped nowhere any more, before they are used again.
    ///
    /// # Errors
    /// If the system refuses; the call comes again.
    fn flush(&self, frames: &[Frames]) -> Result<(), Error>;
}
