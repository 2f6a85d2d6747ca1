//! `EventQueue` from outside: receivers that poll for single events, among batches.

use crate::event_queue::queues;
use manycore::collections::{EventQueue, RecvError, SendError};
use manycore::oplog::Logs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The receiver changes between single events, which come by the ring while the queue is cold, and
/// batches, while the queue gets logs and loses them.
#[test]
fn order_holds_while_single_events_and_batches_alternate() {
    const EVENTS: usize = 4_000;
    for queue in queues() {
        let turn = AtomicUsize::new(0);
        thread::scope(|s| {
            for me in 0..2 {
                let (queue, turn) = (&queue, &turn);
                s.spawn(move || {
                    for number in (0..EVENTS).filter(|number| number / 5 % 2 == me) {
                        while turn.load(Ordering::Acquire) != number {
                            thread::yield_now();
                        }
                        queue.send(number).unwrap();
                        turn.store(number + 1, Ordering::Release);
                    }
                });
            }
            let mut batch = Vec::new();
            let mut next = 0;
            for look in 0.. {
                match look / 64 % 3 {
                    0 | 1 => batch.extend(queue.try_recv().ok()),
                    _ if look % 2 == 0 => _ = queue.drain_at_most(7, &mut batch),
                    _ => _ = queue.drain_into(&mut batch),
                }
                for event in batch.drain(..) {
                    assert_eq!(event, next, "an event overtook one that was sent before it");
                    next += 1;
                }
                if next == EVENTS {
                    break;
                }
                if look % 16 == 0 {
                    thread::yield_now();
                }
            }
        });
        assert!(queue.is_empty());
    }
}

/// A receiver has found nothing, so the next events come by the ring, and count as all others do.
#[test]
fn events_in_the_ring_count_for_the_bound() {
    for bound in [8, 70, 100, 1000] {
        let queue = EventQueue::builder().max_events(bound).logs(Logs::Never).build().unwrap();
        assert_eq!(queue.try_recv(), Err(RecvError::Empty));
        let mut sent = 0;
        while queue.try_send(sent).is_ok() {
            sent += 1;
            assert!(sent <= bound, "{sent} events in a queue of {bound}");
        }
        assert_eq!((sent, queue.len()), (bound, bound));
        let mut received = 0;
        while queue.try_send(sent).is_err() {
            assert_eq!(queue.try_recv(), Ok(received));
            received += 1;
        }
        assert_eq!(received, bound - bound / 2, "of {bound}");
        assert!(queue.drain().into_iter().eq(received..=sent));
    }
}

/// The ring counts for the length, for the bound and for the end.
#[test]
fn events_that_wait_for_a_polling_receiver_are_in_the_queue() {
    let queue = EventQueue::builder().max_events(70).logs(Logs::Never).build().unwrap();
    assert_eq!(queue.try_recv(), Err(RecvError::Empty)); // asks for single events
    (0..70).for_each(|event| queue.try_send(event).unwrap());
    assert!(queue.is_full());
    assert_eq!((queue.len(), queue.try_send(70)), (70, Err(SendError::Full(70))));
    assert!((0..35).all(|event| queue.try_recv() == Ok(event)));
    queue.try_send(70).unwrap();
    queue.close();
    assert!(queue.drain().into_iter().eq(35..=70));
    assert_eq!(queue.try_recv(), Err(RecvError::Closed));
}
