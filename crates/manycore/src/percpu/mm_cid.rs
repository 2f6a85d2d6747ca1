//! Concurrency ids: the kernel's dense number for the running thread, bounded by min(threads,
//! cpus).
//!
//! For tables with a cell for each CPU, in programs with many more threads than CPUs:
//! [`Slots::Cpu`](crate::oplog::Slots::Cpu) uses it. Needs Linux 6.3 (AT_RSEQ_FEATURE_SIZE of at
//! least 28) and a libc that registered the area (glibc 2.35).
//!
//! A cid is a *hint*: the thread may be preempted right after the read, and another thread then has
//! the same cid. So a caller that indexes by it must also lock what it finds.
//!
//! Owns: finding the rseq area of the calling thread.

/// The calling thread's concurrency id, or `None` where the kernel or libc provides none.
///
/// Cost: one load at an offset from the thread pointer.
///
/// ```
/// if let Some(cid) = manycore::percpu::mm_cid::current() {
///     assert!(cid < 1 << 20);
/// }
/// ```
#[inline]
pub fn current() -> Option<usize> {
    imp::current()
}

/// The CPU that the calling thread runs on, or `None` where kernel or libc does not provide it
/// cheaply; it needs what a cid needs. A hint, as a cid is.
#[inline]
pub(crate) fn cpu() -> Option<usize> {
    imp::cpu()
}

/// Whether [`current`] returns a number on this machine.
///
/// ```
/// use manycore::percpu::mm_cid;
///
/// assert_eq!(mm_cid::is_available(), mm_cid::current().is_some());
/// ```
pub fn is_available() -> bool {
    current().is_some()
}

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(any(manycore_loom, manycore_shuttle, miri))
))]
mod imp {
    use crate::sync::Raced;

    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    const CPU_ID_OFFSET: usize = 4;
    const MM_CID_OFFSET: usize = 24;
    const SIZE_WITH_MM_CID: libc::c_ulong = 28;

    /// Offset of the calling thread's rseq area from its thread pointer, the same for all threads.
    fn area_offset() -> Option<isize> {
        static OFFSET: Raced<Option<isize>> = Raced::new(|| {
            // SAFETY: getauxval takes an integer and returns one.
            if unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } < SIZE_WITH_MM_CID {
                return None;
            }
            let symbol = |name: &std::ffi::CStr| {
                // SAFETY: `name` is a C string; RTLD_DEFAULT searches the loaded objects.
                unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
            };
            let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
            if offset.is_null() || size.is_null() {
                return None;
            }
            // SAFETY: glibc documents both as read-only objects: ptrdiff_t and unsigned int.
            let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<libc::c_uint>()) };
            (size != 0).then_some(offset)
        });
        *OFFSET
    }

    #[inline]
    pub(super) fn current() -> Option<usize> {
        Some(field(area_offset()?, MM_CID_OFFSET) as usize)
    }

    #[inline]
    pub(super) fn cpu() -> Option<usize> {
        let cpu = field(area_offset()?, CPU_ID_OFFSET);
        // A thread whose area is not registered has a negative number there.
        (cpu < 1 << 31).then_some(cpu as usize)
    }

    /// A field of the calling thread's area, one of its first 28 bytes.
    #[inline(always)]
    fn field(area: isize, field: usize) -> u32 {
        let value: u32;
        // SAFETY: the area at this offset from fs is registered for every thread of the process,
        // and its first 28 bytes are kept up to date by the kernel (checked in `area_offset`).
        unsafe {
            std::arch::asm!(
                "mov {value:e}, dword ptr fs:[{at}]",
                value = out(reg) value,
                at = in(reg) area + field as isize,
                options(nostack, preserves_flags, readonly)
            );
        }
        value
    }
}

/// In a model, a thread runs on the CPU that the model chooses.
#[cfg(manycore_loom)]
mod imp {
    use crate::sync::thread_local;
    use std::cell::Cell;

    thread_local! {
        static RUNS_UNDER: Cell<Option<usize>> = Cell::new(None);
    }

    pub(super) fn current() -> Option<usize> {
        RUNS_UNDER.with(Cell::get)
    }

    pub(super) fn cpu() -> Option<usize> {
        None
    }

    #[cfg(test)]
    pub(in crate::percpu) fn run_under(cid: usize) {
        RUNS_UNDER.with(|own| own.set(Some(cid)));
    }
}

/// Moves the calling thread of a model to another CPU.
#[cfg(all(test, manycore_loom))]
pub(crate) fn run_under(cid: usize) {
    imp::run_under(cid);
}

#[cfg(not(any(
    manycore_loom,
    all(
        target_os = "linux",
        target_env = "gnu",
        target_arch = "x86_64",
        not(any(manycore_loom, manycore_shuttle, miri))
    )
)))]
mod imp {
    #[inline]
    pub(super) fn cpu() -> Option<usize> {
        None
    }

    #[inline]
    pub(super) fn current() -> Option<usize> {
        None
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn cids_are_dense_where_there_are_any() {
        if !is_available() {
            return;
        }
        let threads: Vec<_> =
            (0..64).map(|_| crate::sync::thread::spawn(|| current().unwrap())).collect();
        for thread in threads {
            assert!(thread.join().unwrap() < 65 + 64, "a cid is bounded by the threads alive");
        }
    }
}
