//! The observer of `profile::observe`. It has its own test program, because a process has only one
//! observer.

use manycore::collections::Counter;
use manycore::lock::TicketLock;
use manycore::oplog::{Commuting, Deferred, Op};
use manycore::profile::{self, Event, EventKind};
use manycore::section::Domain;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

static SEEN: Mutex<Vec<(EventKind, &'static str)>> = Mutex::new(Vec::new());

/// An observer that promotes an object itself, and panics.
fn hostile(event: &Event) {
    SEEN.lock().unwrap().push((event.what, event.kind));
    let own = Counter::new(0);
    own.promote();
    own.demote();
    panic!("as a hostile observer may");
}

struct Add;

impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
    }
}

#[test]
fn hostile_observer_sees_each_kind_and_harms_no_object() {
    std::panic::set_hook(Box::new(|_| ()));
    assert!(profile::observe(hostile));
    assert!(!profile::observe(hostile), "the first one stays");

    let counter = Counter::new(0);
    counter.add(1);
    assert!(counter.promote());
    counter.add(1);
    counter.demote();
    assert_eq!(counter.sum(), 2);

    let sum = Deferred::<u64, Commuting<Add>>::new(0);
    assert!(sum.promote());
    sum.append(Add);
    assert_eq!(*sum.read(), 1);
    sum.demote();
    sum.append(Add);
    assert_eq!(*sum.read(), 2);

    let lock = TicketLock::new(0);
    thread::scope(|scope| {
        let held = lock.lock();
        let waiter = scope.spawn(|| *lock.lock() += 1);
        thread::sleep(Duration::from_millis(30));
        drop(held);
        waiter.join().expect("the panic ended in the library");
    });
    assert_eq!(*lock.lock(), 1);

    Domain::new().synchronize();

    let _ = std::panic::take_hook();
    let seen = SEEN.lock().unwrap().clone();
    let expected = [
        (EventKind::Promoted, "Counter"),
        (EventKind::Demoted, "Counter"),
        (EventKind::Promoted, "Deferred"),
        (EventKind::Merged, "Deferred"),
        (EventKind::Demoted, "Deferred"),
        (EventKind::Waited, "TicketLock"),
        (EventKind::GracePeriod, "Domain"),
    ];
    for event in expected {
        assert!(seen.contains(&event), "{event:?} in {seen:?}");
    }
    // What the observer itself did is not among them (profile.F5).
    let promotions =
        seen.iter().filter(|found| **found == (EventKind::Promoted, "Counter")).count();
    assert_eq!(promotions, 1, "{seen:?}");
}
