//! `EventQueue` from outside: receivers that poll for single events, mixed with batches.

use crate::allocations::in_large_blocks;
use crate::common::process::in_own_process;
use crate::event_queue::queues;
use manycore::collections::{EventQueue, RecvError, SendError};
use manycore::oplog::Logs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The receiver alternates between single events and batches. Single events come by the ring while
/// the queue is cold; batches come while the queue gets logs and loses them.
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

/// A receiver has found nothing, so the next events come by the ring. They count as all others do.
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

/// Events in the ring count towards the length, the bound and the end.
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

/// Receives all events, until the queue says that there are none.
type Receive<E> = fn(&EventQueue<E>) -> usize;

#[test]
fn memory_of_a_peak_goes_when_the_queue_is_received_empty() {
    const EACH: usize = 20_000;
    type Event = [u64; 32];
    let by_polls: Receive<Event> = |queue| queue.try_iter().count();
    let by_batches: Receive<Event> = |queue| {
        let (mut all, mut batch) = (0, Vec::new());
        while queue.drain_at_most(1000, &mut batch) > 0 {
            all += batch.len();
            batch.clear();
        }
        all
    };
    let by_waits: Receive<Event> =
        |queue| std::iter::from_fn(|| queue.recv_timeout(Duration::ZERO).ok()).count();
    in_own_process("memory_of_a_peak_goes_when_the_queue_is_received_empty", || {
        for receive in [by_polls, by_batches, by_waits] {
            for queue in queues::<Event>() {
                let before = in_large_blocks();
                let burst = |threads| {
                    thread::scope(|s| {
                        for _ in 0..threads {
                            s.spawn(|| (0..EACH).for_each(|_| queue.send([1; 32]).unwrap()));
                        }
                    });
                };
                burst(3);
                let first: Vec<_> = std::iter::from_fn(|| queue.try_recv().ok()).take(10).collect();
                burst(1); // the other of two buffers
                let full = in_large_blocks() - before;
                assert!(full > 4 * EACH * size_of::<Event>());
                assert_eq!(receive(&queue), 4 * EACH - first.len());
                // Logs stay, of up to 4,096 events each.
                let left = in_large_blocks() - before;
                assert!(left < full / 3, "{left} bytes of {full} stay with {queue:?}");
                queue.send([2; 32]).unwrap();
                assert_eq!(queue.try_recv(), Ok([2; 32]));
            }
        }
    });
}

#[test]
fn memory_of_a_peak_of_few_large_events_goes_too() {
    in_own_process("memory_of_a_peak_of_few_large_events_goes_too", || {
        type Event = [u64; 8192];
        let receive: [Receive<Event>; 3] = [
            |queue| queue.try_iter().count(),
            |queue| queue.drain_at_most(20, &mut Vec::new()) + queue.drain_at_most(9, &mut vec![]),
            |queue| queue.try_recv().iter().count() + queue.drain().len() + queue.drain().len(),
        ];
        for receive in receive {
            let (queue, before) = (EventQueue::new(), in_large_blocks());
            (0..20).for_each(|_| queue.send([1; 8192]).unwrap());
            assert!(in_large_blocks() - before >= 20 * size_of::<Event>());
            assert_eq!(receive(&queue), 20);
            assert!(in_large_blocks() - before <= 1 << 20);
        }
    });
}
