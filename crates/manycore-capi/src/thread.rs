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
    has_ended: Cell<bool>,
}

impl Thread {
    fn new() -> Self {
        // The slot first: so this is dropped before the thread gives its slot up (capi.A2).
        let slot = percpu::current_slot();
        #[cfg(unix)]
        key::set();
        keep_slot(u32::try_from(slot).map_or(0, |slot| slot.wrapping_add(1)));
        Self { record: Cell::new(ptr::null()), slot, has_ended: Cell::new(false) }
    }

    fn end(&self) {
        if self.has_ended.replace(true) {
            return;
        }
        keep_slot(0);
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

impl Drop for Thread {
    fn drop(&mut self) {
        self.end();
    }
}

thread_local! {
    static THREAD: Thread = Thread::new();
}

/// A thread that comes here first in the destructor of a pthread key is ended by that of another
/// key: the C library has run the destructors of thread-local variables then, and runs no more.
#[cfg(unix)]
mod key {
    use super::{THREAD, Thread};
    use libc::pthread_key_t;
    use manycore::percpu;
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::OnceLock;

    extern "C" fn end(_: *mut c_void) {
        // An error, and no effect, in a thread whose thread-local destructors have run.
        let _ = THREAD.try_with(Thread::end);
        // SAFETY: the C library calls this at the thread's end, after it has left every function;
        // what the thread kept by its number, `Thread::end` has closed.
        unsafe { percpu::end_thread() };
    }

    /// Has the calling thread ended after the destructors of its thread-local variables.
    pub(super) fn set() {
        static KEY: OnceLock<Option<pthread_key_t>> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: the variable is written; the function lives as long as the process.
            let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(end)) };
            (failed == 0).then_some(key)
        });
        let set = key.map(|key| {
            // SAFETY: a key that is never deleted; the value is not followed.
            unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) }
        });
        assert!(set == Some(0), "manycore: the system has no key for what a thread's end needs");
    }
}

/// Keeps the slot, and one, where it is found again at little cost; zero for none.
fn keep_slot(slot: u32) {
    if let Some(record) = Record::own() {
        // SAFETY: the calling thread's own variable, which lives as long as it.
        unsafe { &*record }.slot.set(slot);
    }
}

/// The calling thread's slot, unless it has ended.
#[inline(always)]
pub(crate) fn slot() -> Option<usize> {
    // SAFETY: the calling thread's own variable, which lives as long as it.
    let kept = Record::own().map_or(0, |record| unsafe { &*record }.slot.get());
    if kept == 0 { look_up_slot() } else { Some(kept as usize - 1) }
}

/// The same, in a thread that comes here first, or has ended.
#[cold]
#[inline(never)]
fn look_up_slot() -> Option<usize> {
    let slot = |thread: &Thread| (!thread.has_ended.get()).then_some(thread.slot);
    THREAD.try_with(slot).ok().flatten()
}

/// Keeps for the inline functions that the thread has entered `domain`. Says whether the thread is
/// still to be ended, so that the section is found again without help.
///
/// # Safety
/// `record` is null or the calling thread's, and the section is one of `domain`.
pub(crate) unsafe fn remember(
    domain: &Domain,
    record: *const Record,
    open: &OpenSection<'_>,
) -> bool {
    let kept = THREAD.try_with(|thread| {
        if thread.has_ended.get() {
            return false;
        }
        // SAFETY: the caller promises that it is null or the calling thread's.
        if let Some(own) = unsafe { record.as_ref() }.filter(|_| open.is_inlinable()) {
            if thread.record.replace(record).is_null() {
                list::add_record(thread.slot, record);
            }
            own.set(domain, open.announced());
        }
        true
    });
    kept.unwrap_or(false)
}
