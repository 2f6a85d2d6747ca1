//! The number of the CPU that the calling thread runs on, from the record that the kernel keeps for
//! each thread (rseq).
//!
//! Owns: finding that record. It exists if libc registered it (glibc 2.35).

/// Returns the CPU that the calling thread runs on, or `None` if kernel or libc does not provide it
/// cheaply. A hint: the thread may migrate right after the read.
///
/// Cost: one load at an offset from the thread pointer.
#[inline]
pub(crate) fn cpu() -> Option<usize> {
    imp::cpu()
}

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(any(manycore_loom, manycore_shuttle, miri))
))]
mod imp {
    use crate::sync::Raced;

    const CPU_ID_OFFSET: isize = 4;

    /// Returns the offset of the calling thread's rseq area from its thread pointer, the same for
    /// all threads.
    fn area_offset() -> Option<isize> {
        static OFFSET: Raced<Option<isize>> = Raced::new(|| {
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
    pub(super) fn cpu() -> Option<usize> {
        let area = area_offset()?;
        let cpu: u32;
        // SAFETY: the area at this offset from fs is registered for every thread of the process
        // (checked in `area_offset`). The kernel keeps its first 20 bytes, this field among them,
        // up to date.
        unsafe {
            std::arch::asm!(
                "mov {cpu:e}, dword ptr fs:[{at}]",
                cpu = out(reg) cpu,
                at = in(reg) area + CPU_ID_OFFSET,
                options(nostack, preserves_flags, readonly)
            );
        }
        // A thread whose area is not registered has a negative number there.
        (cpu < 1 << 31).then_some(cpu as usize)
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(any(manycore_loom, manycore_shuttle, miri))
)))]
mod imp {
    #[inline]
    pub(super) fn cpu() -> Option<usize> {
        None
    }
}
