//! Where words lie: on the heap, or in a mapped part of a file.
//!
//! Owns: mappings, and what becomes of them in a child of `fork`.
//!
//! - memory.M1 In the child of a fork, each mapping of a file is replaced by private memory before
//!   any code of the program runs: the child can't write into its parent's rings, even from an
//!   event that the fork interrupted.

use crate::sync::AtomicU64;
use std::ops::Deref;

/// Words that are all 0 at first, shared by threads.
pub(crate) enum Words {
    Heap(Box<[AtomicU64]>),
    #[cfg(all(unix, not(manycore_loom)))]
    Mapped(mapped::Mapping),
}

impl Words {
    pub(crate) fn on_heap(words: usize) -> Self {
        Self::Heap((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Heap(words) => words,
            #[cfg(all(unix, not(manycore_loom)))]
            Self::Mapped(mapping) => mapping.words(),
        }
    }
}

#[cfg(all(unix, not(manycore_loom)))]
pub(crate) mod mapped {
    use super::AtomicU64;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::ptr::NonNull;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Address and bytes of each mapping.
    pub(crate) type List = Vec<(usize, usize)>;

    static LIST: Mutex<List> = Mutex::new(Vec::new());

    /// The list of mappings. A leaf: no other lock is taken under it.
    pub(crate) fn list() -> MutexGuard<'static, List> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of a file, mapped for as long as this lives.
    pub(crate) struct Mapping {
        start: NonNull<AtomicU64>,
        words: usize,
    }

    // SAFETY: it is memory that no thread owns, of atomics.
    unsafe impl Send for Mapping {}
    // SAFETY: the words are atomics.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Appends so many bytes, a multiple of [`crate::format::ALIGN`], to a file that ends at
        /// `at`, and maps them. They are allocated, so that no store to them can fail.
        pub(crate) fn append(file: &File, at: u64, bytes: usize) -> io::Result<Self> {
            let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
            let offset = libc::off_t::try_from(at).map_err(too_large)?;
            let length = libc::off_t::try_from(bytes).map_err(too_large)?;
            allocate(file, offset, length)?;
            let mut list = list();
            // SAFETY: null: nothing is replaced; the file is open.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    offset,
                )
            };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            list.push((start.addr(), bytes));
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
            Ok(Self { start, words: bytes / 8 })
        }

        #[inline]
        pub(crate) fn words(&self) -> &[AtomicU64] {
            // SAFETY: the mapping has so many words and stays until this is dropped; the file is
            // allocated so far, and its bytes, 0 at first, are valid atomics.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            let mut list = list();
            let start = self.start.as_ptr();
            list.retain(|(address, _)| *address != start.addr());
            // SAFETY: the range is this mapping's, and no reference to it outlives `self`.
            unsafe { libc::munmap(start.cast(), self.words * 8) };
        }
    }

    /// Lets the file have these bytes, on the disk as well.
    fn allocate(file: &File, offset: libc::off_t, bytes: libc::off_t) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the file is open; takes no pointer.
            match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, bytes) } {
                0 => return Ok(()),
                libc::EOPNOTSUPP | libc::EINVAL => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        // By writing, where the system has no call for it.
        let zeros = vec![0_u8; bytes as usize];
        std::os::unix::fs::FileExt::write_all_at(file, &zeros, offset as u64)
    }

    /// Replaces all mappings by private memory, in a child that holds the list (memory.M1).
    pub(crate) fn detach(list: &List) {
        for (address, bytes) in list {
            // SAFETY: the range is a mapping of this crate's, and stays one of as many bytes. What
            // it held becomes 0, and words of atomics may.
            let done = unsafe {
                libc::mmap(
                    std::ptr::with_exposed_provenance_mut(*address),
                    *bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if done == libc::MAP_FAILED {
                // Rather no child than one that writes into its parent's file.
                std::process::abort();
            }
        }
    }
}
