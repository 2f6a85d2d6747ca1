//! A page of a file as the file's users see it.

use super::page::Frame;
use super::store::Pin;
use crate::sync::Word;
use std::fmt;

/// A page of a file, as a closure of [`FileCache::with_page`](super::FileCache::with_page) sees it:
/// memory that all threads share, like a mapped file.
///
/// Bytes are read and written without a lock. A read beside another thread's write may see a part
/// of it, in units of aligned words of at most eight bytes. Threads that must not interfere in a
/// page need their own lock.
///
/// ```
/// use manycore_vm::{FileCache, MemoryFile};
/// use std::sync::atomic::Ordering::Relaxed;
///
/// let cache = FileCache::new(MemoryFile::new(vec![0; 8192]))?;
/// cache.with_page(1, |page| {
///     page.write(3, b"abc");
///     page.words()[1].fetch_add(1, Relaxed); // a counter that threads share
///     page.mark_dirty(); // `write` does that by itself
/// })?;
/// let mut bytes = [0; 3];
/// cache.read(4096 + 3, &mut bytes)?;
/// assert_eq!(&bytes, b"abc");
/// # Ok::<(), manycore_vm::Error>(())
/// ```
pub struct FilePage<'p> {
    pub(super) frame: &'p Frame,
    pub(super) pin: &'p Pin<'p>,
}

impl FilePage<'_> {
    /// Returns the number of the page in its file, counted from 0 in units of the file's page size.
    pub fn number(&self) -> u64 {
        *self.pin.key()
    }

    /// Returns the file's page size in bytes. After the file's end, the last page holds zeros.
    #[expect(clippy::len_without_is_empty, reason = "a page has bytes")]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Copies bytes out, from `at` on.
    ///
    /// # Panics
    /// If that goes past the page's end.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.check(at, into.len());
        self.frame.read(at, into);
    }

    /// Copies bytes in, at `at`, and marks the page dirty.
    ///
    /// # Panics
    /// If that goes past the page's end.
    pub fn write(&self, at: usize, from: &[u8]) {
        self.check(at, from.len());
        self.frame.write(at, from);
        self.mark_dirty();
    }

    /// Returns the page as words in memory order. After a change, call
    /// [`mark_dirty`](Self::mark_dirty).
    pub fn words(&self) -> &[Word] {
        self.frame.words()
    }

    /// Marks the page as changed. Call it *after* the change.
    pub fn mark_dirty(&self) {
        self.frame.mark();
        self.pin.mark_dirty();
    }

    fn check(&self, at: usize, bytes: usize) {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.len());
        assert!(fits, "{bytes} bytes at {at} are not within a page of {}", self.len());
    }
}

impl fmt::Debug for FilePage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePage").field("number", &self.number()).finish_non_exhaustive()
    }
}
