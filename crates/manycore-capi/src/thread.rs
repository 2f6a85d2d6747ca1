//! What a thread has beside its slot, and what happens at its end (capi.A2, capi.A3).

use crate::handle::Domain;
use crate::list;
use crate::record::Record;
use manycore::percpu;
use manycore::section::OpenSection;
use std::cell::Cell;
use std::ptr;

/// The part with a destructor.
struct Thread {
    record: Cell<*const Record>,
    slot: usize,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: null, or the variable of this thread, which lives as long as it.
        if let Some(record) = unsafe { self.record.get().as_ref() } {
            record.set(ptr::null(), ptr::null_mut());
            list::remove_record(self.slot);
        }
        // Closing one may run user code; so the list is looked at again for each.
        while let Some(domain) = list::entered() {
            // SAFETY: this thread is inside, and no thread may free a domain that one is inside of.
            unsafe { &*domain }.close_innermost();
        }
    }
}

thread_local! {
    // The slot first: so this is dropped before the thread gives its slot up (capi.A2).
    static THREAD: Thread = {
        let slot = percpu::current_slot();
        Thread { record: Cell::new(ptr::null()), slot }
    };
}

/// The calling thread's slot, unless its destructors have run.
pub(crate) fn slot() -> Option<usize> {
    THREAD.try_with(|thread| thread.slot).ok()
}

/// Keeps for the inline functions that the thread has entered `domain`. Says whether the thread's
/// destructors are still to run, so that the section is found again without help.
///
/// # Safety
/// `record` is null or the calling thread's, and the section is one of `domain`.
pub(crate) unsafe fn remember(
    domain: &Domain,
    record: *const Record,
    open: &OpenSection<'_>,
) -> bool {
    let kept = THREAD.try_with(|thread| {
        // SAFETY: the caller promises that it is null or the calling thread's.
        if let Some(own) = unsafe { record.as_ref() }.filter(|_| open.is_inlinable()) {
            if thread.record.replace(record).is_null() {
                list::add_record(thread.slot, record);
            }
            own.set(domain, open.announced());
        }
    });
    kept.is_ok()
}
