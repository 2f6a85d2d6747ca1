//! The domains that exist, by which a handle that is freed twice is refused, and a thread that ends
//! finds the sections that it left open; and the records of threads, from which a domain is taken
//! that is freed.

use crate::handle::Domain;
use crate::record::Record;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// The slot under which the calling thread's record is listed.
    static LISTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A lock that a fork can hold from one handler to another.
struct Locked<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed by the thread alone that has changed `is_held` to true.
unsafe impl<T> Sync for Locked<T> {}

/// Addresses that are compared, and followed only as long as they are here.
struct Handles {
    domains: Vec<*const Domain>,
    /// By slot: of the threads that have entered a domain by the header's functions.
    records: Vec<*const Record>,
}

static HANDLES: Locked<Handles> = Locked {
    is_held: AtomicBool::new(false),
    value: UnsafeCell::new(Handles { domains: Vec::new(), records: Vec::new() }),
};

fn lock() {
    // ORDER: Acquire; pairs with Release in `unlock`.
    while HANDLES.is_held.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

fn unlock() {
    // ORDER: Release; pairs with Acquire in `lock`.
    HANDLES.is_held.store(false, Ordering::Release);
}

/// Runs `f` with the lists; it must run no user code.
fn with<R>(f: impl FnOnce(&mut Handles) -> R) -> R {
    lock();
    // SAFETY: the lock is held, by this thread, and `f` does not come here again.
    let result = f(unsafe { &mut *HANDLES.value.get() });
    unlock();
    result
}

/// Lists a domain.
pub(crate) fn add(domain: *const Domain) {
    // After the domain was made, so that a fork takes this lock before those of the domains.
    #[cfg(unix)]
    at_fork();
    with(|handles| handles.domains.push(domain));
}

/// Takes a domain out of the list; says whether it was there.
pub(crate) fn remove(domain: *const Domain) -> bool {
    with(|handles| {
        let found = handles.domains.iter().position(|listed| *listed == domain);
        found.map(|at| handles.domains.swap_remove(at)).is_some()
    })
}

/// Lists the record of the thread that has the slot.
pub(crate) fn add_record(slot: usize, record: *const Record) {
    with(|handles| {
        if handles.records.len() <= slot {
            handles.records.resize(slot + 1, ptr::null());
        }
        handles.records[slot] = record;
    });
    LISTED.with(|listed| listed.set(Some(slot)));
}

/// Takes the record of the thread out of the list that has the slot, and ends.
pub(crate) fn remove_record(slot: usize) {
    LISTED.with(|listed| listed.set(None));
    with(|handles| handles.records[slot] = ptr::null());
}

/// Takes a domain that is about to be freed out of all records: its address is used again
/// (capi.A2).
pub(crate) fn forget(domain: *const Domain) {
    with(|handles| {
        for record in &handles.records {
            // SAFETY: null, or of a thread that takes it out before it ends, under the lock.
            if let Some(record) = unsafe { record.as_ref() } {
                record.forget(domain);
            }
        }
    });
}

/// A domain in which the calling thread has a section open.
pub(crate) fn entered() -> Option<*const Domain> {
    with(|handles| {
        // SAFETY: in the list, hence not freed, and `mc_domain_free` waits for the lock.
        handles.domains.iter().copied().find(|domain| unsafe { &**domain }.sections.is_inside())
    })
}

#[cfg(unix)]
fn at_fork() {
    extern "C" fn before() {
        lock();
    }
    extern "C" fn after() {
        unlock();
    }
    extern "C" fn in_child() {
        let own = LISTED.with(Cell::get);
        // SAFETY: the lock is held since `before`, by this thread, the only one.
        let records = unsafe { &mut (*HANDLES.value.get()).records };
        let others = records.iter_mut().enumerate().filter(|(slot, _)| Some(*slot) != own);
        others.for_each(|(_, record)| *record = ptr::null()); // of threads that are not here
        unlock();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions live as long as the process and do not unwind.
        let failed = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
        assert!(failed == 0, "manycore: no memory to register what a fork needs");
    });
}
