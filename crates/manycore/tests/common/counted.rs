//! Nodes that count themselves when they are dropped.

use manycore::section::{Atomic, Domain, Owned, Section};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Counts itself when it is dropped.
pub struct Counted(pub Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Puts a new node into the link and retires the old node.
pub fn replace(link: &Atomic<Counted>, freed: &Arc<AtomicUsize>, section: &Section<'_>) {
    let old = link.swap(Owned::new(Counted(Arc::clone(freed))), section);
    // SAFETY: unlinked by the swap; no links; one domain a test.
    unsafe { section.retire(old) };
}

/// Calls `collect` until nothing waits: at most a few rounds when no section is open.
pub fn drain(domain: &Domain) {
    for _ in 0..4 {
        domain.collect();
    }
    assert_eq!(domain.backlog(Duration::ZERO).nodes, 0, "{domain:?}");
}

/// Drops the link's node.
pub fn forget<T>(link: Atomic<T>) {
    // SAFETY: the test is over; no other thread has the link.
    drop(unsafe { link.into_owned() });
}
