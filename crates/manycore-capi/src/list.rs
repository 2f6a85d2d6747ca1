//! The domains that exist, by which a handle that is freed twice is refused, and a thread that ends
//! finds the sections that it left open; and the records of threads, from which a domain is taken
//! that is freed.

use crate::handle::Domain;
use crate::record::Record;
use std::cell::Cell;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// The slot under which the calling thread's record is listed.
    static LISTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Addresses that are compared, and followed only as long as they are here.
pub(crate) struct Handles {
    domains: Vec<*const Domain>,
    /// Taken out of the list, but not freed yet: call-backs still wait there.
    leaving: Vec<*const Domain>,
    /// By slot: of the threads that have entered a domain by the header's functions.
    records: Vec<*const Record>,
}

// SAFETY: the addresses have no ties to a thread.
unsafe impl Send for Handles {}

static HANDLES: Mutex<Handles> =
    Mutex::new(Handles { domains: Vec::new(), leaving: Vec::new(), records: Vec::new() });

/// The lists. No user code runs while they are held; a fork holds them.
pub(crate) fn hold() -> MutexGuard<'static, Handles> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists a domain, after `fork::prepare`.
pub(crate) fn add(domain: *const Domain) {
    hold().domains.push(domain);
}

/// Takes a domain out of the list; says whether it was there. It is freed after [`forget`], or
/// listed again by [`put_back`].
pub(crate) fn remove(domain: *const Domain) -> bool {
    let handles = &mut *hold();
    let found = take_out(&mut handles.domains, domain);
    handles.leaving.extend(found.then_some(domain));
    found
}

/// Lists a domain again that was removed.
pub(crate) fn put_back(domain: *const Domain) {
    let handles = &mut *hold();
    take_out(&mut handles.leaving, domain);
    handles.domains.push(domain);
}

fn take_out(domains: &mut Vec<*const Domain>, domain: *const Domain) -> bool {
    let found = domains.iter().position(|listed| *listed == domain);
    found.map(|at| domains.swap_remove(at)).is_some()
}

/// Lists the record of the thread that has the slot.
pub(crate) fn add_record(slot: usize, record: *const Record) {
    let mut handles = hold();
    if handles.records.len() <= slot {
        handles.records.resize(slot + 1, ptr::null());
    }
    handles.records[slot] = record;
    drop(handles);
    LISTED.with(|listed| listed.set(Some(slot)));
}

/// Takes the record of the thread out of the list that has the slot, and ends.
pub(crate) fn remove_record(slot: usize) {
    LISTED.with(|listed| listed.set(None));
    hold().records[slot] = ptr::null();
}

/// Takes a domain that is about to be freed out of all records: its address is used again
/// (capi.A2).
pub(crate) fn forget(domain: *const Domain) {
    let handles = &mut *hold();
    take_out(&mut handles.leaving, domain);
    for record in &handles.records {
        // SAFETY: null, or of a thread that takes it out before it ends, under the lock.
        if let Some(record) = unsafe { record.as_ref() } {
            record.forget(domain);
        }
    }
}

/// A domain in which the calling thread has a section open.
pub(crate) fn entered() -> Option<*const Domain> {
    // SAFETY: in the list, hence not freed, and `mc_domain_free` waits for the lock.
    hold().domains.iter().copied().find(|domain| unsafe { &**domain }.sections.is_inside())
}

/// In the child of a fork: takes out the records of threads that it does not have, and calls `f`
/// with each domain.
pub(crate) fn in_child(f: impl Fn(&Domain)) {
    let own = LISTED.with(Cell::get);
    let handles = &mut *hold();
    let others = handles.records.iter_mut().enumerate().filter(|(slot, _)| Some(*slot) != own);
    others.for_each(|(_, record)| *record = ptr::null());
    for domain in handles.domains.iter().chain(&handles.leaving) {
        // SAFETY: in a list, hence not freed.
        f(unsafe { &**domain });
    }
}
