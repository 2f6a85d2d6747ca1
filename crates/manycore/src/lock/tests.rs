//! Tests that must be inside the module: the order of arrival.

use super::{McsLock, TicketLock};
use crate::sync::thread;
use std::time::Duration;

const COMERS: usize = 12;

/// Lets `COMERS` threads arrive one after the other at a held lock, and returns the order in which
/// they were served. With `linger`, they all park first.
fn served<L: Sync>(
    lock: &L,
    arrivals: impl Fn(&L) -> usize,
    visit: impl Fn(&L, usize) + Sync,
    release: impl FnOnce(),
    linger: bool,
) {
    thread::scope(|scope| {
        let visit = &visit;
        for number in 0..COMERS {
            let before = arrivals(lock);
            scope.spawn(move || visit(lock, number));
            while arrivals(lock) == before {
                thread::yield_now();
            }
        }
        if linger {
            thread::sleep(Duration::from_millis(20));
        }
        release();
    });
}

#[test]
fn ticket_serves_in_the_order_of_arrival_awake_or_asleep() {
    for linger in [false, true] {
        let lock = TicketLock::new(Vec::new());
        let held = lock.lock();
        served(&lock, TicketLock::arrivals, |l, n| l.lock().push(n), || drop(held), linger);
        assert_eq!(lock.into_inner(), (0..COMERS).collect::<Vec<_>>(), "linger: {linger}");
    }
}

#[test]
fn mcs_serves_in_the_order_of_arrival_awake_or_asleep() {
    for linger in [false, true] {
        let lock = McsLock::new(Vec::new());
        let held = lock.lock();
        served(&lock, McsLock::tail, |l, n| l.lock().push(n), || drop(held), linger);
        assert_eq!(lock.into_inner(), (0..COMERS).collect::<Vec<_>>(), "linger: {linger}");
    }
}

/// A test of the test: it notices a lock that serves in no order.
#[test]
fn unfair_order_would_be_noticed() {
    let (lock, arrived) = (std::sync::Mutex::new(Vec::new()), crate::sync::AtomicUsize::new(0));
    let both = (&lock, &arrived);
    let held = lock.lock().unwrap();
    let order = crate::sync::Ordering::SeqCst;
    served(
        &both,
        |both| both.1.load(order),
        |both, number| {
            both.1.fetch_add(1, order);
            // The first to arrive pretends to be overtaken.
            while number == 0 && both.0.lock().unwrap().is_empty() {
                thread::yield_now();
            }
            both.0.lock().unwrap().push(number);
        },
        || drop(held),
        false,
    );
    assert_ne!(lock.into_inner().unwrap(), (0..COMERS).collect::<Vec<_>>());
}
