//! The record of each thread, for the header's inline functions (capi.A2). This library also uses
//! it where a thread-local variable of Rust would cost more: a shared library accesses these by a
//! call.

use crate::handle::Domain;
use crate::late;
use manycore::section::Section;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering, compiler_fence};

// The record of each thread. Other languages cannot name thread-local variables of Rust.
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

/// `struct mc_thread_record_`: the domain that the thread entered last, and the thread's word
/// there.
///
/// All zero in a new thread, and after the thread has given its slot up. Only the thread itself
/// writes it, except that a thread that frees the domain removes it.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// The domain, or null.
    pub domain: AtomicPtr<Domain>,
    /// The word with which the thread announces its section. Valid if there is a domain.
    pub announced: Cell<*mut u64>,
    /// The thread's slot plus one, or zero if unknown.
    pub slot: Cell<u32>,
    /// The nested call-backs that the thread is running; see `running`.
    pub running: Cell<u32>,
}

impl Record {
    /// Returns the calling thread's record, if this platform has records.
    #[inline(always)]
    pub(crate) fn own() -> Option<*const Self> {
        #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            let own: *const Self;
            // SAFETY: reads the offset of the variable above, which the loader has fixed (the
            // header's `initial-exec`), and adds it to the thread's pointer.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::asm!(
                    "mov {own}, qword ptr [rip + mc_thread_@GOTTPOFF]",
                    "add {own}, qword ptr fs:[0]",
                    own = out(reg) own,
                    options(pure, readonly, nostack),
                );
            }
            // SAFETY: as above, with the other machine's instructions.
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

    /// Returns the thread's word in this domain, if the thread entered this domain last.
    pub(crate) fn announced_in(&self, domain: *const Domain) -> Option<*mut u64> {
        // ORDER: Relaxed; only the thread itself stores a domain that it uses.
        let is_known = ptr::eq(self.domain.load(Ordering::Relaxed), domain);
        is_known.then(|| self.announced.get())
    }

    /// Stores the domain that the thread has entered, or null.
    pub(crate) fn set(&self, domain: *const Domain, announced: *mut u64) {
        // A signal handler between these stores finds no domain (capi.A2).
        // ORDER: Relaxed, both; the thread's own.
        self.domain.store(ptr::null_mut(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.announced.set(announced);
        compiler_fence(Ordering::SeqCst);
        self.domain.store(domain.cast_mut(), Ordering::Relaxed);
    }

    /// Removes a domain that is about to be freed. Any thread may call this.
    pub(crate) fn forget(&self, domain: *const Domain) {
        let (change, keep) = (Ordering::Relaxed, Ordering::Relaxed);
        // ORDER: Relaxed; if a thread gets another domain with the same address, it learns of it
        // after this. On failure, the thread has entered another domain, or does so now.
        let null = ptr::null_mut();
        let _ = self.domain.compare_exchange(domain.cast_mut(), null, change, keep);
    }
}

/// Returns the section of `domain` that the calling thread has open, if the record has it. It stays
/// open.
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
    // SAFETY: the record has the word as long as the thread has its slot (capi.A2). If the word is
    // not zero, a section is open. It stays open, because the guard is not dropped.
    unsafe { (*announced != 0).then(|| ManuallyDrop::new(domain.sections.resume(announced))) }
}

/// Like [`entered`]. In a bounded domain it also finds a section of a thread that has ended: a
/// section opened for one call would protect only what is loaded in that call.
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
    // SAFETY: a section of this thread. It stays open, because the guard is not dropped.
    late::last(domain).map(|word| ManuallyDrop::new(unsafe { domain.sections.resume(word) }))
}

/// Runs `f` in the section of `domain` that the calling thread has open, or in a new one.
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
