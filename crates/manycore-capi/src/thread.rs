//! A thread's state beside its slot, and what happens at its end (capi.A2, capi.A3).

use crate::handle::Domain;
use crate::list;
use crate::record::Record;
use manycore::percpu;
use manycore::section::OpenSection;
use std::cell::Cell;
use std::ptr;

/// The state with a destructor.
struct Thread {
    record: Cell<*const Record>,
    slot: usize,
    has_ended: Cell<bool>,
}

impl Thread {
    fn new() -> Self {
        // The slot first, so that this is dropped before the thread gives its slot up (capi.A2).
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
        // SAFETY: null, or this thread's own variable, which lives as long as the thread.
        if let Some(record) = unsafe { self.record.get().as_ref() } {
            record.set(ptr::null(), ptr::null_mut());
            list::remove_record(self.slot);
        }
        // Closing a section may run user code, so the list is read again each time.
        while let Some(domain) = list::entered() {
            // SAFETY: this thread is inside, and no thread may free a domain while a thread is
            // inside.
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

/// A pthread key that ends threads which come here first in the destructor of another key. The C
/// library has then run the destructors of thread-local variables, and runs no more of them.
#[cfg(unix)]
mod key {
    use super::{THREAD, Thread};
    use libc::pthread_key_t;
    use manycore::percpu;
    use std::ffi::c_void;
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    extern "C" fn end(_: *mut c_void) {
        // In a thread whose thread-local destructors have run, this is an error without effect.
        let _ = THREAD.try_with(Thread::end);
        // SAFETY: the C library calls this at the thread's end, after all functions of the thread
        // have returned. `Thread::end` has closed what the thread kept by its slot.
        unsafe { percpu::end_thread() };
    }

    /// Makes the C library end the calling thread after the destructors of its thread-local
    /// variables.
    pub(super) fn set() {
        // SAFETY: the key is not deleted, and the value is not followed.
        let set = |key| unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
        let is_set = key().is_some_and(|key| set(key) == 0);
        assert!(is_set, "manycore: the system has no key for what a thread's end needs");
    }

    /// Returns the key, made at the first call. (Not a `OnceLock`: if a fork comes while a thread
    /// makes it, the child would wait forever.)
    fn key() -> Option<pthread_key_t> {
        /// The key plus one, or zero if there is none.
        static KEY: AtomicU64 = AtomicU64::new(0);
        // ORDER: Relaxed, both; only the number matters.
        if let Some(known) = KEY.load(Ordering::Relaxed).checked_sub(1) {
            return pthread_key_t::try_from(known).ok();
        }
        let mut key: pthread_key_t = 0;
        // SAFETY: the variable is written; the function lives as long as the process.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } != 0 {
            return None;
        }
        let made = u64::from(key) + 1;
        match KEY.compare_exchange(0, made, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(key),
            Err(found) => {
                // SAFETY: made above, and set in no thread.
                unsafe { libc::pthread_key_delete(key) };
                pthread_key_t::try_from(found - 1).ok()
            }
        }
    }
}

/// Stores the slot plus one (or zero for none) where it is found again quickly.
fn keep_slot(slot: u32) {
    if let Some(record) = Record::own() {
        // SAFETY: the calling thread's own variable, which lives as long as the thread.
        unsafe { &*record }.slot.set(slot);
    }
}

/// Returns the calling thread's slot, unless the thread has ended.
#[inline(always)]
pub(crate) fn slot() -> Option<usize> {
    // SAFETY: the calling thread's own variable, which lives as long as the thread.
    let kept = Record::own().map_or(0, |record| unsafe { &*record }.slot.get());
    if kept == 0 { look_up_slot() } else { Some(kept as usize - 1) }
}

/// Does the same in a thread that comes here first, or that has ended.
#[cold]
#[inline(never)]
fn look_up_slot() -> Option<usize> {
    let slot = |thread: &Thread| (!thread.has_ended.get()).then_some(thread.slot);
    THREAD.try_with(slot).ok().flatten()
}

/// Stores for the inline functions that the thread has entered `domain`. Returns false if the
/// thread has ended, so that its section must be remembered elsewhere.
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
