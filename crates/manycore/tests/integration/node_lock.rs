//! Locks on nodes that other threads may free.

use manycore::section::{Atomic, Domain, NodeLock, Owned, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

#[test]
fn node_lock_refuses_once_the_node_is_freed() {
    let domain = Domain::new();
    let link = Atomic::new(NodeLock::new());
    let section = domain.enter();
    let lock = link.load(&section).as_ref().unwrap();
    let guard = lock.try_lock(&section).unwrap();
    assert_eq!(lock.try_lock(&section).unwrap_err(), TryLockError::Busy);
    thread::scope(|s| {
        let (domain, link) = (&domain, &link);
        let waiting = s.spawn(move || {
            let section = domain.enter();
            let lock = link.load(&section).as_ref().unwrap();
            lock.lock(&section).is_none()
        });
        thread::sleep(Duration::from_millis(20));
        let node = link.load(&section);
        // SAFETY: no thread loads the link after the other thread has; it has no links.
        unsafe { guard.retire(node, &section) };
        assert!(waiting.join().unwrap(), "the lock of a freed node was taken");
    });
    assert!(lock.is_freed());
    assert_eq!(lock.try_lock(&section).unwrap_err(), TryLockError::Freed);
}

#[test]
#[should_panic(expected = "holds the lock of the node already")]
fn node_lock_taken_twice_panics() {
    let section = manycore::section::enter();
    let lock = NodeLock::new();
    let _guard = lock.lock(&section);
    let _again = lock.lock(&section);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "freed while its lock was held")]
fn freeing_a_locked_node_panics_in_a_debug_build() {
    let section = manycore::section::enter();
    let node = Owned::new(NodeLock::new());
    std::mem::forget(node.lock(&section));
    drop(node);
}

#[test]
fn panic_under_a_node_lock_releases_it() {
    let section = manycore::section::enter();
    let lock = NodeLock::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.lock(&section);
        panic!("planned");
    }));
    assert!(panicked.is_err());
    assert!(lock.lock(&section).is_some());
}
