//! The error type of this crate: the reason, and the pages that it concerns.

use std::{error, fmt, io};

/// The pages that an error concerns.
///
/// See [`ErrorKind`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageRange {
    /// The address of the first page as the caller gave it, or the byte in the file. 0 if the call
    /// has no address.
    pub at: usize,
    /// The number of pages.
    pub pages: usize,
}

/// Why an operation was refused. A refused operation has changed nothing.
///
/// See [`ErrorKind`] for an example.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    range: PageRange,
    /// The system's own reason.
    system: Option<io::Error>,
}

/// The reason of an [`Error`].
///
/// ```
/// use manycore::section;
/// use manycore_vm::{ErrorKind, MappingDb, Null, Rights};
///
/// let db = MappingDb::new(Null::new(2), section::global());
/// let space = db.space(16)?;
/// let error = db.grant(space, 3, Rights::READ).unwrap_err();
/// assert_eq!((error.kind(), error.range().pages), (ErrorKind::NoFrames, 3));
/// assert!(db.grant(space, 2, Rights::READ).is_ok()); // the refusal took none
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The range has no pages.
    ZeroPages,
    /// The address or an alignment is not a multiple of what it must be.
    Unaligned,
    /// The range goes past the end of all addresses.
    Wraps,
    /// The range is not all within its space.
    OutsideSpace,
    /// A page of the range is mapped, or was mapped and waits for its gate.
    Overlaps,
    /// A page of the range is not mapped.
    NotMapped,
    /// There is no such space, or it has ended.
    SpaceEnded,
    /// A derived mapping would have rights that its parent does not have.
    RightsGrow,
    /// The range is not all within the file.
    OutsideFile,
    /// The budget is used up, or all permitted pages are in use, and no file gives a page back.
    NoMemory,
    /// There are not enough free frames. A flush frees those that wait for their gate.
    NoFrames,
    /// No gap of the space is large enough. A flush frees the addresses that wait for their gate.
    NoAddresses,
    /// The backing or this system cannot do that at all. The text says what it cannot do.
    Unsupported(&'static str),
    /// The system refused the named call.
    System(&'static str),
}

impl Error {
    pub(crate) const fn new(kind: ErrorKind, at: usize, pages: usize) -> Self {
        Self { kind, range: PageRange { at, pages }, system: None }
    }

    /// Creates an error with the system's own reason, for a [`Backing`](crate::Backing) of the
    /// caller's.
    pub fn system(call: &'static str, at: usize, pages: usize, reason: io::Error) -> Self {
        Self { system: Some(reason), ..Self::new(ErrorKind::System(call), at, pages) }
    }

    /// Creates the error of a backing that does not support an operation.
    pub const fn unsupported(what: &'static str, at: usize, pages: usize) -> Self {
        Self::new(ErrorKind::Unsupported(what), at, pages)
    }

    /// Returns true if the system had no memory, or no entries for mappings, left.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_shortage(&self) -> bool {
        self.system.as_ref().is_some_and(|error| error.raw_os_error() == Some(libc::ENOMEM))
    }

    /// Returns the same error for these pages.
    #[cfg(target_os = "linux")]
    pub(crate) fn about(self, at: usize, pages: usize) -> Self {
        Self { range: PageRange { at, pages }, ..self }
    }

    /// Returns the reason.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the pages that the error concerns.
    pub fn range(&self) -> PageRange {
        self.range
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages at {:#x}: ", self.range.pages, self.range.at)?;
        match self.kind {
            ErrorKind::ZeroPages => f.write_str("a range must have pages"),
            ErrorKind::Unaligned => f.write_str("the address or alignment is not one of pages"),
            ErrorKind::Wraps => f.write_str("the range goes past the last address"),
            ErrorKind::OutsideSpace => f.write_str("the range is not within the space"),
            ErrorKind::Overlaps => {
                f.write_str("a page of the range is mapped, or waits to be unmapped")
            }
            ErrorKind::NotMapped => f.write_str("a page of the range is not mapped"),
            ErrorKind::SpaceEnded => f.write_str("the space has ended"),
            ErrorKind::RightsGrow => f.write_str("a derived mapping cannot have more rights"),
            ErrorKind::OutsideFile => f.write_str("the range is not within the file"),
            ErrorKind::NoMemory => {
                f.write_str("the budget or the limit of pages is used up, and no file gives a page")
            }
            ErrorKind::NoFrames => f.write_str("not as many frames are free"),
            ErrorKind::NoAddresses => f.write_str("no gap of the space has room"),
            ErrorKind::Unsupported(what) => f.write_str(what),
            ErrorKind::System(call) => write!(f, "the system refused {call}"),
        }?;
        match &self.system {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.system.as_ref().map(|reason| reason as _)
    }
}
