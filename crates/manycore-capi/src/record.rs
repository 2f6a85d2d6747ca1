//! The record of each thread that the header's inline functions use (capi.A2), and this library
//! where a thread-local variable of Rust, which a shared library finds by a call, would cost more.

use crate::handle::Domain;
use crate::late;
use manycore::section::Section;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

// The record of each thread. Thread-local variables of Rust have no name for other languages.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
std::arch::global_asm!(
    ".pushsection .tbss.mc_thread_,\"awT\",@nobits",
    ".globl mc_thread_",
    ".type mc_thread_, @object",
    ".size mc_thread_, {size}",
    ".p2align 4",
    "mc_thread_:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Record>(),
);

/// `struct mc_thread_record_`: the domain that the thread entered last, and its word there. All
/// zero in a new thread, and after it has given its slot up. The thread's own, except that a thread
/// that frees the domain takes it out.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// The domain, or null.
    pub domain: AtomicPtr<Domain>,
    /// The word that the thread announces its section by; valid if there is a domain.
    pub announced: Cell<*mut u64>,
    /// The thread's slot, and one; zero if that is not known.
    pub slot: Cell<u32>,
    /// The call-backs that the thread is running, one inside of another; see `running`.
    pub running: Cell<u32>,
}

impl Record {
    /// The calling thread's, where there is one.
    #[inline(always)]
    pub(crate) fn own() -> Option<*const Self> {
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let own: *const Self;
            // SAFETY: reads the offset of the variable above, which the loader has fixed, as the
            // header's `initial-exec` says, and adds it to the thread's pointer.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::asm!(
                    "mov {own}, qword ptr [rip + mc_thread_@GOTTPOFF]",
                    "add {own}, qword ptr fs:[0]",
                    own = out(reg) own,
                    options(pure, readonly, nostack),
                );
            }
            // SAFETY: as above, in another machine's words.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                std::arch::asm!(
                    "mrs {own}, tpidr_el0",
                    "adrp {offset}, :gottprel:mc_thread_",
                    "ldr {offset}, [{offset}, :gottprel_lo12:mc_thread_]",
                    "add {own}, {own}, {offset}",
                    own = out(reg) own,
                    offset = out(reg) _,
                    options(pure, readonly, nostack),
                );
            }
            Some(own)
        }
        #[cfg(not(all(
            target_os = "linux",
            any(target_arch = "x86_64", target_arch = "aarch64")
        )))]
        None
    }

    /// What the thread announces its sections of this domain by, if it entered that last.
    pub(crate) fn announced_in(&self, domain: *const Domain) -> Option<*mut u64> {
        // ORDER: Relaxed; only the thread itself stores a domain that it uses.
        let is_known = ptr::eq(self.domain.load(Ordering::Relaxed), domain);
        is_known.then(|| self.announced.get())
    }

    /// Keeps the domain that the thread has entered; null for none.
    pub(crate) fn set(&self, domain: *const Domain, announced: *mut u64) {
        // A signal handler between these stores finds no domain (capi.A2).
        // ORDER: Relaxed, both; of the thread's own.
        self.domain.store(ptr::null_mut(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.announced.set(announced);
        compiler_fence(Ordering::SeqCst);
        self.domain.store(domain.cast_mut(), Ordering::Relaxed);
    }

    /// Takes out a domain that is about to be freed; called by any thread.
    pub(crate) fn forget(&self, domain: *const Domain) {
        let (change, keep) = (Ordering::Relaxed, Ordering::Relaxed);
        // ORDER: Relaxed; a thread that is given another domain of the same address hears of it
        // after this. A failure: the thread has entered another one, or does so now.
        let null = ptr::null_mut();
        let _ = self.domain.compare_exchange(domain.cast_mut(), null, change, keep);
    }
}

/// The section of `domain` that the calling thread has open, if the record has it; it stays open.
///
/// # Safety
/// `record` is null or the calling thread's.
#[inline(always)]
pub(crate) unsafe fn entered(
    domain: &Domain,
    record: *const Record,
) -> Option<ManuallyDrop<Section<'_>>> {
    // SAFETY: the caller promises that it is null or the calling thread's.
    let announced = unsafe { record.as_ref() }?.announced_in(domain)?;
    // SAFETY: the record has the word as long as the thread has its slot (capi.A2). If it is not
    // zero, a section is open; and as the guard is not dropped, it stays so.
    unsafe { (*announced != 0).then(|| ManuallyDrop::new(domain.sections.resume(announced))) }
}

/// The same, or if the domain is bounded and the thread has ended, the section that it has opened
/// since: one that is opened for a call would protect what is loaded in it alone.
///
/// # Safety
/// `record` is null or the calling thread's.
#[inline]
pub(crate) unsafe fn opened(
    domain: &Domain,
    record: *const Record,
) -> Option<ManuallyDrop<Section<'_>>> {
    // SAFETY: what the caller promises.
    let known = unsafe { entered(domain, record) };
    if known.is_some() || !domain.is_bounded {
        return known;
    }
    // SAFETY: a section of this thread's, which stays open, because the guard is not dropped.
    late::last(domain).map(|word| ManuallyDrop::new(unsafe { domain.sections.resume(word) }))
}

/// Runs `f` in the section of `domain` that the calling thread has open, or in one of its own.
///
/// # Safety
/// `record` is null or the calling thread's.
pub(crate) unsafe fn within<R>(
    domain: &Domain,
    record: *const Record,
    f: impl FnOnce(&Section<'_>) -> R,
) -> R {
    // SAFETY: the caller promises that it is null or the calling thread's.
    match unsafe { opened(domain, record) } {
        Some(section) => f(&section),
        None => f(&domain.sections.enter()),
    }
}
