//! Sources: where a cache reads a file's bytes, and where it writes them back.

use crate::sync::{Mutex, lock};
use std::io;

/// A file that a [`FileCache`](super::FileCache) reads and writes: a file of the system, an object
/// in a remote store, the decompressed form of another file.
///
/// The thread that touches a page calls these functions, with no lock of the cache held. They may
/// block, and may use other caches. [`read`](Self::read) must not touch the page that is being
/// read, and [`write`](Self::write) must not flush the cache.
///
/// ```
/// use manycore_vm::{FileCache, FileSource};
/// use std::io;
///
/// /// Squares, as if they had been stored.
/// struct Squares;
///
/// impl FileSource for Squares {
///     fn length(&self) -> io::Result<u64> {
///         Ok(8 << 20)
///     }
///     fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
///         for (number, word) in (offset / 8..).zip(into.chunks_exact_mut(8)) {
///             word.copy_from_slice(&number.wrapping_mul(number).to_le_bytes());
///         }
///         Ok(into.len())
///     }
///     fn write(&self, _offset: u64, _from: &[u8]) -> io::Result<()> {
///         Err(io::ErrorKind::ReadOnlyFilesystem.into())
///     }
/// }
///
/// let squares = FileCache::new(Squares)?;
/// let mut bytes = [0; 8];
/// squares.read(8 * 12, &mut bytes)?;
/// assert_eq!(u64::from_le_bytes(bytes), 144);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
pub trait FileSource: Send + Sync + 'static {
    /// Returns the length in bytes. Called once, when the cache is made.
    ///
    /// # Errors
    /// Those of the source.
    fn length(&self) -> io::Result<u64>;

    /// Reads from `offset` on and returns the number of bytes, which is smaller than `into` only at
    /// the end of the file. The rest of `into` holds zeros and stays as it is.
    ///
    /// # Errors
    /// Those of the source. The page is then not in memory, and its next touch reads again.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `from` at `offset`.
    ///
    /// # Errors
    /// Those of the source. The page stays in memory, and stays dirty.
    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()>;

    /// Announces bytes that will probably be read soon. A source that can fetch in the background
    /// begins to. The default does nothing.
    fn will_need(&self, offset: u64, bytes: u64) {
        let _ = (offset, bytes);
    }
}

/// A file of the system, with `pread` and `pwrite`. Announced bytes are passed to the kernel, which
/// reads ahead in the background.
#[cfg(unix)]
impl FileSource for std::fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let mut filled = 0;
        while filled < into.len() {
            match self.read_at(&mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, from, offset)
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, offset: u64, bytes: u64) {
        use std::os::fd::AsRawFd;
        let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
            return;
        };
        // SAFETY: advice about a descriptor that `self` keeps open; it touches no memory.
        unsafe { libc::posix_fadvise(self.as_raw_fd(), offset, bytes, libc::POSIX_FADV_WILLNEED) };
    }
}

/// A file in memory, for tests and for data that was received and not stored.
///
/// ```
/// use manycore_vm::{FileCache, MemoryFile};
/// use std::sync::Arc;
///
/// let file = Arc::new(MemoryFile::new(vec![1; 10_000]));
/// let cache = FileCache::new(Arc::clone(&file))?;
/// cache.write(9_999, &[7])?;
/// assert_eq!(file.bytes()[9_999], 1);
/// cache.flush()?;
/// assert_eq!(file.bytes()[9_999], 7);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct MemoryFile(Mutex<Vec<u8>>);

impl MemoryFile {
    /// Creates a file with these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Mutex::new(bytes))
    }

    /// Returns a copy of all bytes.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.0).clone()
    }
}

impl FileSource for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = lock(&self.0);
        let from = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
        let from = from.unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::from(io::ErrorKind::FileTooLarge);
        let first = usize::try_from(offset).map_err(|_| too_long())?;
        let end = first.checked_add(from.len()).ok_or_else(too_long)?;
        let mut bytes = lock(&self.0);
        if bytes.len() < end {
            let more = end - bytes.len();
            bytes.try_reserve(more).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            bytes.resize(end, 0);
        }
        bytes[first..end].copy_from_slice(from);
        Ok(())
    }
}

impl<T: FileSource + ?Sized> FileSource for std::sync::Arc<T> {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        (**self).read(offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        (**self).write(offset, from)
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        (**self).will_need(offset, bytes);
    }
}
