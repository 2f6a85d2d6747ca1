//! `mc_ids`: an id space with pointers as nodes.

use crate::domain::mc_domain_default;
use crate::handle::Domain;
use crate::record::{Record, opened};
use crate::tracked::Tracked;
use libc::c_int;
use manycore::namespace::{Id, IdSpace};
use manycore::section::Section;
use std::ffi::c_void;
use std::sync::Arc;

/// `mc_free_node`: called with a removed node after its grace period.
pub type FreeNode = unsafe extern "C-unwind" fn(*mut c_void);

struct Node {
    value: *mut c_void,
    free: Option<FreeNode>,
    tracked: Tracked,
}

// SAFETY: the header says that any thread may look a node up and free it.
unsafe impl Send for Node {}
// SAFETY: the shared pointer does not change, and `tracked` is made for sharing.
unsafe impl Sync for Node {}

impl Drop for Node {
    fn drop(&mut self) {
        let (value, free) = (self.value, self.free);
        self.tracked.finish(|| {
            if let Some(free) = free {
                // SAFETY: the grace period is over, and the program promised that any thread may
                // call it.
                unsafe { free(value) };
            }
        });
    }
}

/// `mc_ids`.
#[derive(Debug)]
pub struct Ids {
    /// Keeps the domain from being freed.
    space: IdSpace<'static, Node>,
    domain: *const Domain,
    free: Option<FreeNode>,
}

impl Ids {
    fn domain(&self) -> &Domain {
        // SAFETY: not null, and a domain with a space in it is not freed (`mc_domain_free`).
        unsafe { &*self.domain }
    }

    /// Runs `f` in the section that the thread has open, or in a new one.
    ///
    /// # Safety
    /// `record` is null or the calling thread's.
    unsafe fn within<R>(&self, record: *const Record, f: impl FnOnce(&Section<'_>) -> R) -> R {
        let domain = self.domain();
        // SAFETY: the caller promises that it is null or the calling thread's.
        match unsafe { opened(domain, record) } {
            Some(section) => f(&section),
            None => f(&domain.sections.enter()),
        }
    }
}

/// Makes a new id space in a domain, or in the default domain.
///
/// # Safety
/// `out` is null or may be written; `domain` is null or not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_new(
    out: *mut *mut Ids,
    domain: *const Domain,
    free: Option<FreeNode>,
) -> c_int {
    if out.is_null() {
        return -libc::EINVAL;
    }
    let domain = if domain.is_null() { mc_domain_default() } else { domain };
    // SAFETY: not null, and the caller promises that it is not freed. It is not freed while the
    // space has its sections either, since these count their users.
    let sections = unsafe { &(*domain).sections };
    let ids = Ids { space: IdSpace::with_domain(Arc::clone(sections)), domain, free };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(ids))) };
    0
}

/// Frees an id space and the nodes in it.
///
/// # Safety
/// Null, or from `mc_ids_new`, freed once, and no thread uses it or its nodes any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_free(ids: *mut Ids) {
    if !ids.is_null() {
        // SAFETY: from the box of `mc_ids_new`; the caller promises that it comes back once.
        drop(unsafe { Box::from_raw(ids) });
    }
}

/// Adds a node. Returns its id, or zero if no ids are left or the node is null.
///
/// # Safety
/// The space is not freed; `record` is null or the calling thread's; any thread may use the node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_insert_(
    ids: *const Ids,
    record: *const Record,
    value: *mut c_void,
) -> u64 {
    if value.is_null() {
        return 0;
    }
    // SAFETY: the caller promises a space that has not been freed.
    let ids = unsafe { &*ids };
    let node = |_| Node { value, free: ids.free, tracked: Tracked::new(ids.domain) };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe { ids.within(record, |section| ids.space.try_insert_with(node, section)) }
        .map_or(0, Id::to_bits)
}

/// Returns the node of an id, or null.
///
/// # Safety
/// The space is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_get_(
    ids: *const Ids,
    record: *const Record,
    id: u64,
) -> *mut c_void {
    // SAFETY: the caller promises a space that has not been freed.
    let ids = unsafe { &*ids };
    let Some(id) = ids.space.check(id) else { return std::ptr::null_mut() };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe {
        ids.within(record, |section| {
            ids.space.get(id, section).map_or(std::ptr::null_mut(), |node| node.value)
        })
    }
}

/// Removes a node. It is freed after its grace period.
///
/// # Safety
/// The space is not freed; `record` is null or the calling thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_remove_(ids: *const Ids, record: *const Record, id: u64) -> c_int {
    // SAFETY: the caller promises a space that has not been freed.
    let ids = unsafe { &*ids };
    let Some(id) = ids.space.check(id) else { return -libc::ENOENT };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe {
        ids.within(record, |section| {
            // Looked up first: a number that the space never gave out may be an extent's.
            let found = ids.space.get(id, section).and_then(|_| ids.space.remove(id, section));
            let Some(node) = found else { return -libc::ENOENT };
            node.tracked.count(ids.domain());
            0
        })
    }
}

/// Returns how many nodes there are.
///
/// # Safety
/// The space is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_length(ids: *const Ids) -> usize {
    // SAFETY: the caller promises a space that has not been freed.
    unsafe { &*ids }.space.len()
}

/// Calls `visit` with every node until it returns a value other than zero. Returns its last value.
///
/// # Safety
/// The space is not freed; `record` is null or the calling thread's; `visit` may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_ids_for_each_(
    ids: *const Ids,
    record: *const Record,
    visit: Option<unsafe extern "C-unwind" fn(u64, *mut c_void, *mut c_void) -> c_int>,
    argument: *mut c_void,
) -> c_int {
    let Some(visit) = visit else { return -libc::EINVAL };
    // SAFETY: the caller promises a space that has not been freed.
    let ids = unsafe { &*ids };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe {
        ids.within(record, |section| {
            let nodes = ids.space.iter(section);
            nodes
                // SAFETY: the caller promises that it may be called; the section keeps the node.
                .map(|(id, node)| visit(id.to_bits(), node.value, argument))
                .find(|stop| *stop != 0)
                .unwrap_or(0)
        })
    }
}
