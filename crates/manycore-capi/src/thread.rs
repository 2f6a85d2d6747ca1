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
    use std::sync::atomic::{AtomicU64, Ordering};

    extern "C" fn end(_: *mut c_void) {
        // An error, and no effect, in a thread whose thread-local destructors have run.
        let _ = THREAD.try_with(Thread::end);
        // SAFETY: the C library calls this at the thread's end, after it has left every function;
        // what the thread kept by its number, `Thread::end` has closed.
        unsafe { percpu::end_thread() };
    }

    /// Has the calling thread ended after the destructors of its thread-local variables.
    pub(super) fn set() {
        // SAFETY: a key that is not deleted; the value is not followed.
        let set = |key| unsafe { libc::pthread_setspecific(key, ptr::without_provenance(1)) };
        let is_set = key().is_some_and(|key| set(key) == 0);
        assert!(is_set, "manycore: the system has no key for what a thread's end needs");
    }

    /// The key, made at the first call. (Not a `OnceLock`: a child of a fork would wait for ever
    /// for a thread that was making it.)
    fn key() -> Option<pthread_key_t> {
        /// The key, and one; zero as long as there is none.
        static KEY: AtomicU64 = AtomicU64::new(0);
        // ORDER: Relaxed, both; the number is all there is.
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
