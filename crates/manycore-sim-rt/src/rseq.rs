//! The kernel's per-thread record of where a thread runs (`rseq`).
//!
//! Owns: what a program reads in that record. Libraries read the CPU or the concurrency id from it
//! by one load. All virtual threads run on one kernel thread. The kernel would write a wrong value
//! in one of the records, and nothing in the others. So each thread's record is taken from the
//! kernel when the thread is adopted, and this module writes it from then on. The CPU is the
//! virtual core. The core is also the concurrency id, because one running thread holds it at a
//! time.
//!
//! Source: rseq(2); glibc's `__rseq_offset`.

use std::sync::atomic::{AtomicIsize, Ordering};

use crate::{host, interpose};

/// The first words of the record.
#[repr(C)]
struct Record {
    cpu_start: u32,
    cpu: u32,
    section: u64,
    flags: u32,
    node: u32,
    concurrency_id: u32,
}

/// The offset is not known yet.
const UNKNOWN: isize = isize::MIN;
/// libc registers no records.
const NONE: isize = isize::MAX;

static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// Returns the record's offset from the thread pointer.
fn offset() -> Option<isize> {
    // ORDER: Relaxed; the number is all there is.
    let mut offset = OFFSET.load(Ordering::Relaxed);
    if offset == UNKNOWN {
        let (place, size) =
            (interpose::symbol(c"__rseq_offset"), interpose::symbol(c"__rseq_size"));
        offset = NONE;
        if !place.is_null() && !size.is_null() {
            // SAFETY: glibc documents them as a ptrdiff_t and an unsigned int.
            let (found, bytes) = unsafe { (*place.cast::<isize>(), *size.cast::<u32>()) };
            offset = if bytes == 0 { NONE } else { found };
        }
        OFFSET.store(offset, Ordering::Relaxed);
    }
    (offset != NONE).then_some(offset)
}

fn record(pointer: usize) -> Option<*mut Record> {
    Some(pointer.wrapping_add_signed(offset()?) as *mut Record)
}

/// Takes the calling thread's record, whose thread pointer is `pointer`, from the kernel.
pub(crate) fn release(pointer: usize) {
    const UNREGISTER: usize = 1;
    const SIGNATURE: usize = 0x5305_3053;
    let Some(record) = record(pointer) else { return };
    // The length must be the one that libc registered with: 32 for many years, more on newer
    // kernels.
    for length in [32, 64, 28, 20, 96, 128] {
        let arguments = [record as usize, length, UNREGISTER, SIGNATURE, 0, 0];
        // SAFETY: the kernel gives up this thread's record, or refuses.
        if unsafe { host::call(host::SYS_RSEQ, arguments) } == 0 {
            return;
        }
    }
}

/// Writes that the thread runs on `core` of `socket`.
pub(crate) fn write(pointer: usize, core: u32, socket: u32) {
    let Some(record) = record(pointer) else { return };
    // SAFETY: threads.S1 - the record belongs to a live adopted thread, and the kernel has given it
    // up. The record has at least 32 bytes in every libc that has one.
    unsafe {
        (*record).cpu_start = core;
        (*record).cpu = core;
        (*record).node = socket;
        (*record).concurrency_id = core;
    }
}
