//! Models of the fair locks. The value is a cell: loom reports two holders at a time, and a holder
//! that does not see what the holder before it wrote.

use super::super::{McsLock, TicketLock};
use crate::percpu::loom_tests::model;
use crate::sync::thread;
use std::sync::Arc;

macro_rules! models {
    ($name:ident, $Lock:ident) => {
        mod $name {
            use super::*;

            fn visitors(lock: &Arc<$Lock<usize>>, threads: usize, visits: usize) {
                let threads: Vec<_> = (0..threads)
                    .map(|_| {
                        let lock = Arc::clone(lock);
                        thread::spawn(move || (0..visits).for_each(|_| *lock.lock() += 1))
                    })
                    .collect();
                (0..visits).for_each(|_| *lock.lock() += 1);
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }

            #[test]
            fn loom_two_lockers_exclude_each_other() {
                model(3, || {
                    let lock = Arc::new($Lock::new(0));
                    visitors(&lock, 1, 2);
                    assert_eq!(*lock.try_lock().expect("no thread is left"), 4);
                });
            }

            #[test]
            fn loom_three_lockers_are_all_woken() {
                model(2, || {
                    let lock = Arc::new($Lock::new(0));
                    visitors(&lock, 2, 1);
                    assert_eq!(*lock.lock(), 3);
                });
            }

            #[test]
            fn loom_try_lock_takes_or_refuses_beside_lockers() {
                model(3, || {
                    let lock = Arc::new($Lock::new(0));
                    let tries = {
                        let lock = Arc::clone(&lock);
                        thread::spawn(move || {
                            (0..2)
                                .filter(|_| lock.try_lock().map(|mut value| *value += 1).is_some())
                                .count()
                        })
                    };
                    *lock.lock() += 1;
                    *lock.lock() += 1;
                    let taken = tries.join().unwrap();
                    assert_eq!(*lock.lock(), 2 + taken);
                });
            }
        }
    };
}
models!(ticket, TicketLock);
models!(mcs, McsLock);

/// Two lockers, the second after the first, and a third thread that releases the lock at any time.
#[test]
fn loom_ticket_serves_in_the_order_of_arrival() {
    model(2, || {
        let lock = Arc::new(TicketLock::new(Vec::new()));
        let held = lock.lock();
        let comers: Vec<_> = (1..=2)
            .map(|number| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    while lock.arrivals() < number {
                        thread::yield_now();
                    }
                    lock.lock().push(number);
                })
            })
            .collect();
        drop(held);
        comers.into_iter().for_each(|comer| comer.join().unwrap());
        assert_eq!(*lock.lock(), [1, 2]);
    });
}

#[test]
fn loom_mcs_serves_in_the_order_of_arrival() {
    model(2, || {
        let lock = Arc::new(McsLock::new(Vec::new()));
        let held = lock.lock();
        let alone = lock.tail();
        let come = |number| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || lock.lock().push(number))
        };
        let first = come(1);
        while lock.tail() == alone {
            thread::yield_now();
        }
        let second = come(2);
        drop(held);
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(*lock.lock(), [1, 2]);
    });
}
