//! The list of existing domains. It is used to refuse a handle that is freed twice, and to find the
//! sections that an ending thread left open. Also the records of threads, from which a freed domain
//! is removed.

use crate::handle::Domain;
use crate::record::Record;
use std::cell::Cell;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

thread_local! {
    /// The slot under which the calling thread's record is listed.
    static LISTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Addresses that are compared, and followed only while they are listed here.
pub(crate) struct Handles {
    domains: Vec<*const Domain>,
    /// Removed from the list but not freed yet: call-backs still wait there.
    leaving: Vec<*const Domain>,
    /// By slot: the records of threads that have entered a domain with the header's functions.
    records: Vec<*const Record>,
}

// SAFETY: the addresses are not tied to a thread.
unsafe impl Send for Handles {}

static HANDLES: Mutex<Handles> =
    Mutex::new(Handles { domains: Vec::new(), leaving: Vec::new(), records: Vec::new() });

/// Locks the lists. No user code runs while they are locked. A fork holds the lock.
pub(crate) fn hold() -> MutexGuard<'static, Handles> {
    HANDLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists a domain. Called after `fork::prepare`.
pub(crate) fn add(domain: *const Domain) {
    hold().domains.push(domain);
}

/// Removes a domain from the list. Returns true if it was listed. It is then freed after
/// [`forget`], or listed again by [`put_back`].
pub(crate) fn remove(domain: *const Domain) -> bool {
    let handles = &mut *hold();
    let found = take_out(&mut handles.domains, domain);
    handles.leaving.extend(found.then_some(domain));
    found
}

/// Lists a removed domain again.
pub(crate) fn put_back(domain: *const Domain) {
    let handles = &mut *hold();
    take_out(&mut handles.leaving, domain);
    handles.domains.push(domain);
}

fn take_out(domains: &mut Vec<*const Domain>, domain: *const Domain) -> bool {
    let found = domains.iter().position(|listed| *listed == domain);
    found.map(|at| domains.swap_remove(at)).is_some()
}

/// Lists the record of the thread in this slot.
pub(crate) fn add_record(slot: usize, record: *const Record) {
    let mut handles = hold();
    if handles.records.len() <= slot {
        handles.records.resize(slot + 1, ptr::null());
    }
    handles.records[slot] = record;
    drop(handles);
    LISTED.with(|listed| listed.set(Some(slot)));
}

/// Removes the record of an ending thread in this slot.
pub(crate) fn remove_record(slot: usize) {
    LISTED.with(|listed| listed.set(None));
    hold().records[slot] = ptr::null();
}

/// Removes a domain that is about to be freed from all records, because its address may be reused
/// (capi.A2).
pub(crate) fn forget(domain: *const Domain) {
    let handles = &mut *hold();
    take_out(&mut handles.leaving, domain);
    for record in &handles.records {
        // SAFETY: null, or of a thread that removes it under the lock before the thread ends.
        if let Some(record) = unsafe { record.as_ref() } {
            record.forget(domain);
        }
    }
}

/// Returns a domain in which the calling thread has a section open.
pub(crate) fn entered() -> Option<*const Domain> {
    // SAFETY: it is in the list, hence not freed, and `mc_domain_free` waits for the lock.
    hold().domains.iter().copied().find(|domain| unsafe { &**domain }.sections.is_inside())
}

/// Runs in the child of a fork: removes the records of threads that the child does not have, and
/// calls `f` with each domain.
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
