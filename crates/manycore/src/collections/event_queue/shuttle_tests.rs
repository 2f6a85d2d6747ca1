//! Random schedules of whole conversations: senders, sleeping receivers, closing, a small bound.

use super::{EventQueue, EventQueueBuilder};
use crate::oplog::{Logs, Publish};
use crate::sync::{AtomicUsize, Ordering, thread};
use std::sync::Arc;

/// Schedules of each kind of queue by each scheduler; a quarter where `MANYCORE_MODELS` is `short`.
fn schedules() -> usize {
    let short = std::env::var("MANYCORE_MODELS").is_ok_and(|form| form == "short");
    if short { 750 } else { 3_000 }
}

type Queue = EventQueue<(usize, usize)>;

/// Runs `body` with a queue of each kind, in random schedules.
fn explore(body: fn(Arc<Queue>)) {
    let kinds = [
        (Logs::Always, Publish::Locked),
        (Logs::Always, Publish::Biased),
        (Logs::Auto, Publish::Auto),
        (Logs::Never, Publish::Auto),
    ];
    for (logs, publish) in kinds {
        let schedule = move || {
            let builder: EventQueueBuilder<_> = Queue::builder().logs(logs).publish(publish);
            body(Arc::new(builder.max_events(4).build().unwrap()));
        };
        shuttle::check_random(schedule, schedules());
        shuttle::check_pct(schedule, schedules(), 3);
    }
}

/// Two senders fill a queue of four events; a receiver sleeps in between, and learns of the end.
#[test]
fn shuttle_event_queue_delivers_all_and_then_the_end() {
    explore(|queue| {
        const EVENTS: usize = 5;
        let send = |me| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (0..EVENTS).for_each(|i| queue.send((me, i)).unwrap()))
        };
        let senders = [send(0), send(1)];
        let receiver = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let mut next = [0, 0];
                while let Some((me, number)) = queue.recv() {
                    assert_eq!(number, next[me]);
                    next[me] += 1;
                }
                next
            })
        };
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        queue.close();
        assert_eq!(receiver.join().unwrap(), [EVENTS, EVENTS]);
    });
}

/// Senders go on until the queue is closed: as many events are accepted as received.
#[test]
fn shuttle_event_queue_counts_agree_after_a_close() {
    explore(|queue| {
        let send = |me| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (0..4).take_while(|i| queue.send((me, *i)).is_ok()).count())
        };
        let senders = [send(0), send(1)];
        let closer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.close())
        };
        let mut received = [0, 0];
        while let Some((me, _)) = queue.recv() {
            received[me] += 1;
        }
        assert!(closer.join().unwrap());
        assert_eq!(senders.map(|sender| sender.join().unwrap()), received);
    });
}

/// Alternating threads send each event after the one before it, while a receiver drains.
#[test]
fn shuttle_event_queue_keeps_the_order_across_threads() {
    explore(|queue| {
        const EVENTS: usize = 6;
        let turn = Arc::new(AtomicUsize::new(0));
        let relay = |me: usize| {
            let (queue, turn) = (Arc::clone(&queue), Arc::clone(&turn));
            thread::spawn(move || {
                // The first sends its half alone, then they take turns.
                let own = (0..EVENTS).filter(|i| if *i < 2 { me == 0 } else { i % 2 == me });
                for number in own {
                    // ORDER: Acquire and Release; one send happens before the next.
                    while turn.load(Ordering::Acquire) != number {
                        thread::yield_now();
                    }
                    queue.send((me, number)).unwrap();
                    turn.store(number + 1, Ordering::Release);
                }
            })
        };
        let senders = [relay(0), relay(1)];
        for expected in 0..EVENTS {
            assert_eq!(queue.recv().map(|(_, number)| number), Some(expected));
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}
