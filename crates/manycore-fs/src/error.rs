//! What can go wrong, each with the number that POSIX has for it.

use std::{fmt, io};

/// The result of an operation on a file system.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was refused. Nothing has changed then.
///
/// ```
/// use manycore_fs::{Error, FileSystem, Ino};
///
/// let main = FileSystem::new().main();
/// let error = main.lookup(Ino::ROOT, "missing".as_ref()).unwrap_err();
/// assert_eq!((error, error.errno()), (Error::NotFound, 2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No such file, directory, branch or attribute's owner (`ENOENT`).
    NotFound,
    /// The name is taken (`EEXIST`).
    Exists,
    /// Not a directory (`ENOTDIR`).
    NotDirectory,
    /// A directory (`EISDIR`).
    IsDirectory,
    /// A directory that has entries (`ENOTEMPTY`).
    NotEmpty,
    /// An argument that is wrong whatever the state, such as a directory moved below itself
    /// (`EINVAL`).
    Invalid,
    /// A name of more than 255 bytes (`ENAMETOOLONG`).
    NameTooLong,
    /// Too many symbolic links on the way (`ELOOP`).
    TooManyLinks,
    /// More links to a file than can be counted (`EMLINK`).
    LinkLimit,
    /// Past the largest size of a file (`EFBIG`).
    TooLarge,
    /// The memory limit is reached (`ENOSPC`).
    NoSpace,
    /// Not permitted on this kind of file (`EPERM`).
    NotPermitted,
    /// The extended attribute is not there (`ENODATA`).
    NoAttribute,
    /// A value that is too large (`E2BIG`).
    ValueTooLarge,
    /// No data or hole after this place (`ENXIO`).
    NoData,
    /// The branch has ended (`ESTALE`).
    Ended,
    /// The branch has branches of its own, or is the main one (`EBUSY`).
    Busy,
    /// Not supported (`EOPNOTSUPP`).
    NotSupported,
    /// The host refused to read the base directory; the number is the host's.
    Host(i32),
    /// The log of a file system that is [kept](crate::Builder::keep) can't be written; the number
    /// is the host's. `ENOSPC`: it goes on when there is space.
    Log(i32),
}

impl Error {
    /// Returns the number that the C library and the kernel have for it, on Linux.
    pub fn errno(self) -> i32 {
        match self {
            Error::NotPermitted => 1,
            Error::NotFound => 2,
            Error::ValueTooLarge => 7,
            Error::Busy => 16,
            Error::Exists => 17,
            Error::NotDirectory => 20,
            Error::IsDirectory => 21,
            Error::Invalid => 22,
            Error::TooLarge => 27,
            Error::NoSpace => 28,
            Error::LinkLimit => 31,
            Error::NoData => 6,
            Error::NameTooLong => 36,
            Error::NotEmpty => 39,
            Error::TooManyLinks => 40,
            Error::NoAttribute => 61,
            Error::NotSupported => 95,
            Error::Ended => 116,
            Error::Host(number) | Error::Log(number) => number,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Error::NotFound => "no such file, directory or branch",
            Error::Exists => "the name is taken",
            Error::NotDirectory => "not a directory",
            Error::IsDirectory => "is a directory",
            Error::NotEmpty => "the directory is not empty",
            Error::Invalid => "an argument is wrong",
            Error::NameTooLong => "the name is longer than 255 bytes",
            Error::TooManyLinks => "too many symbolic links on the way",
            Error::LinkLimit => "the file has as many links as can be counted",
            Error::TooLarge => "past the largest size of a file",
            Error::NoSpace => "the memory limit is reached",
            Error::NotPermitted => "not permitted on this kind of file",
            Error::NoAttribute => "the file has no such extended attribute",
            Error::ValueTooLarge => "the value is too large",
            Error::NoData => "no data or hole after this place",
            Error::Ended => "the branch has ended",
            Error::Busy => "the branch has branches of its own, or is the main one",
            Error::NotSupported => "not supported",
            Error::Host(number) => {
                let host = io::Error::from_raw_os_error(*number);
                return write!(out, "the base directory can't be read: {host}");
            }
            Error::Log(number) => {
                let host = io::Error::from_raw_os_error(*number);
                return write!(out, "the log can't be written: {host}");
            }
        };
        out.write_str(text)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::from_raw_os_error(error.errno())
    }
}
