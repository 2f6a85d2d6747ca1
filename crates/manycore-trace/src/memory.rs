//! Where words lie: on the heap, or in a mapped part of a file.
//!
//! This module owns the mappings, and replaces them in a child of `fork`.
//!
//! - memory.M1 In a child of `fork`, private memory replaces each mapping of a file before any code
//!   of the program runs. So the child can't write into its parent's rings, even in an event that
//!   the fork interrupted.

use crate::sync::AtomicU64;
use std::ops::Deref;

/// Words that are 0 at first and that threads share.
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

    /// Locks the list of mappings. A leaf lock: no other lock is taken under it.
    pub(crate) fn list() -> MutexGuard<'static, List> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of a file that stays mapped as long as this lives.
    pub(crate) struct Mapping {
        start: NonNull<AtomicU64>,
        words: usize,
    }

    // SAFETY: the memory belongs to no thread, and the words are atomics.
    unsafe impl Send for Mapping {}
    // SAFETY: the words are atomics.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Appends `bytes` bytes to a file that ends at `at`, and maps them.
        ///
        /// `bytes` is a multiple of [`crate::format::ALIGN`]. The disk space is allocated, so no
        /// store to it can fail.
        pub(crate) fn append(file: &File, at: u64, bytes: usize) -> io::Result<Self> {
            let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
            let offset = libc::off_t::try_from(at).map_err(too_large)?;
            let length = libc::off_t::try_from(bytes).map_err(too_large)?;
            allocate(file, offset, length)?;
            let mut list = list();
            // SAFETY: the address is null, so nothing is replaced; the file is open.
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
            // SAFETY: the mapping has that many words and stays until this is dropped. The file is
            // allocated up to its end, and its bytes, 0 at first, are valid atomics.
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

    /// Allocates these bytes of the file, on the disk as well.
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
        // Write the bytes if the system has no call for it.
        let zeros = vec![0_u8; bytes as usize];
        std::os::unix::fs::FileExt::write_all_at(file, &zeros, offset as u64)
    }

    /// Replaces all mappings by private memory. Called in a child that holds the list (memory.M1).
    pub(crate) fn detach(list: &List) {
        for (address, bytes) in list {
            // SAFETY: the range is a mapping of this crate's, and stays a mapping of that size. Its
            // contents become 0, which is valid for words of atomics.
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
                // Better no child than a child that writes into its parent's file.
                std::process::abort();
            }
        }
    }
}
