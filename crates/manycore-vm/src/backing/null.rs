//! A backing without memory.

use super::{Backing, Frames, Run, Span};
use crate::sync::{AtomicUsize, Ordering};
use crate::{Error, ErrorKind, PAGE_BYTES, Rights};

/// A backing without memory: frames are only numbers, and addresses lead nowhere.
///
/// What for: memory that this process does not map itself (a device's, another process's, blocks of
/// a cache on an accelerator), models, and measuring the bookkeeping alone. Addresses are handed
/// out upward and never reused.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{MappingDb, Null, Rights};
///
/// let db = MappingDb::new(Null::new(100), section::global());
/// let (one, other) = (db.space(16)?, db.space(16)?);
/// let page = db.grant(one, 1, Rights::WRITE)?;
/// let copy = db.base(other)?;
/// db.alias(one, page, other, copy, 1, Rights::READ)?;
/// let section = section::enter();
/// assert_eq!(
///     db.resolve(one, page, &section).unwrap().frame,
///     db.resolve(other, copy, &section).unwrap().frame,
/// );
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[derive(Debug)]
pub struct Null {
    frames: u32,
    next: AtomicUsize,
}

impl Null {
    /// Creates a backing with this many frames.
    pub fn new(frames: u32) -> Self {
        Self { frames, next: AtomicUsize::new(PAGE_BYTES) }
    }
}

impl Backing for Null {
    fn frames(&self) -> u32 {
        self.frames
    }

    fn reserve(&self, pages: usize) -> Result<usize, Error> {
        // An unused page separates two windows.
        let end = |start: usize| start.checked_add((pages + 1).checked_mul(PAGE_BYTES)?);
        // ORDER: Relaxed; only uniqueness matters.
        self.next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, end)
            .map_err(|start| Error::new(ErrorKind::Wraps, start, pages))
    }

    fn release(&self, _address: usize, _pages: usize) {}

    fn map(&self, _runs: &[Run]) -> Result<(), Error> {
        Ok(())
    }

    fn unmap(&self, _spans: &[Span]) -> Result<(), Error> {
        Ok(())
    }

    fn protect(&self, _span: Span, _rights: Rights) -> Result<(), Error> {
        Ok(())
    }

    fn flush(&self, _frames: &[Frames]) -> Result<(), Error> {
        Ok(())
    }
}
