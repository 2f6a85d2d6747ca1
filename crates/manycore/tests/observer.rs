//! The observer of `profile::observe`. It has its own test program, because a process has only one
//! observer.

use manycore::collections::Counter;
use manycore::lock::TicketLock;
use manycore::oplog::{Commuting, Deferred, Op};
use manycore::profile::{self, Happening, What};
use manycore::section::Domain;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

static SEEN: Mutex<Vec<(What, &'static str)>> = Mutex::new(Vec::new());

/// An observer that promotes an object itself, and panics.
fn hostile(happening: &Happening) {
    SEEN.lock().unwrap().push((happening.what, happening.kind));
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
        (What::Promoted, "Counter"),
        (What::Demoted, "Counter"),
        (What::Promoted, "Deferred"),
        (What::Merged, "Deferred"),
        (What::Demoted, "Deferred"),
        (What::Waited, "TicketLock"),
        (What::GracePeriod, "Domain"),
    ];
    for happening in expected {
        assert!(seen.contains(&happening), "{happening:?} in {seen:?}");
    }
    // What the observer itself did is not among them (profile.F5).
    let promotions = seen.iter().filter(|found| **found == (What::Promoted, "Counter")).count();
    assert_eq!(promotions, 1, "{seen:?}");
}
