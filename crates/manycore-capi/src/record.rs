//! The record that the header's inline functions have of each thread (capi.A2).

use crate::handle::Domain;
use manycore::section::Section;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{Ordering, compiler_fence};

// The record of each thread. Thread-local variables of Rust have no name for other languages.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
std::arch::global_asm!(
    ".pushsection .tbss.mc_thread_,\"awT\",@nobits",
    ".globl mc_thread_",
    ".type mc_thread_, @object",
    ".size mc_thread_, 16",
    ".p2align 4",
    "mc_thread_:",
    ".zero 16",
    ".popsection",
);

/// `struct mc_thread_record_`: the domain that the thread entered last, and its word there. All
/// zero in a new thread, and after it has given its slot up.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// The domain's number, or zero.
    pub number: Cell<u64>,
    /// The word that the thread announces its section by; valid if the number is not zero.
    pub announced: Cell<*mut u64>,
}

impl Record {
    /// What the thread announces its sections of this domain by, if it entered that last.
    pub(crate) fn announced_in(&self, domain_number: u64) -> Option<*mut u64> {
        (self.number.get() == domain_number).then(|| self.announced.get())
    }

    /// Keeps the domain that the thread has entered; zero for none.
    pub(crate) fn set(&self, number: u64, announced: *mut u64) {
        // A signal handler between these stores finds no domain (capi.A2).
        self.number.set(0);
        compiler_fence(Ordering::SeqCst);
        self.announced.set(announced);
        compiler_fence(Ordering::SeqCst);
        self.number.set(number);
    }
}

/// The section of `domain` that the calling thread has open, if the record has it; it stays open.
///
/// # Safety
/// `record` is null or the calling thread's.
#[inline]
pub(crate) unsafe fn opened(
    domain: &Domain,
    record: *const Record,
) -> Option<ManuallyDrop<Section<'_>>> {
    // SAFETY: the caller promises that it is null or the calling thread's.
    let announced = unsafe { record.as_ref() }?.announced_in(domain.number)?;
    // SAFETY: the record has the word as long as the thread has its slot (capi.A2). If it is not
    // zero, a section is open; and as the guard is not dropped, it stays so.
    unsafe { (*announced != 0).then(|| ManuallyDrop::new(domain.sections.resume(announced))) }
}
