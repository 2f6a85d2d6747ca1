//! Single events: how long one takes from its producer to the drainer.
//!
//! A producer rests, sends an event, and repeats this. The drainer takes one event at a time, by
//! the queue's call for that, and looks again at once if there is none. With more threads than
//! cores it yields first, for all queues alike. With a long rest each event is alone; with a short
//! rest the sender is busy.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    thread,
};

use crossbeam_utils::CachePadded;

use super::{Delays, Event, EventDrainer, EventSender, QueueImpl, Sides, WINDOW, stamp};
use crate::{
    latency::Latencies,
    limits,
    runner::{Control, Tally},
    ticks::spin,
};

/// See the module header.
pub(super) struct Single<Q> {
    queue: Q,
    /// For each producer, how many of its events have arrived, now and then; as in `Windowed`.
    arrived: Box<[CachePadded<AtomicU64>]>,
    gap: u64,
    delays: Delays,
}

impl<Q: QueueImpl> Single<Q> {
    pub(super) fn new(producers: usize, gap: u64) -> Self {
        let arrived = (0..producers).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { queue: Q::new(producers), arrived, gap, delays: Delays::default() }
    }
}

impl<Q: QueueImpl> Sides for Single<Q> {
    fn producers(&self) -> usize {
        self.arrived.len()
    }

    fn delays(&self) -> Option<&Delays> {
        Some(&self.delays)
    }

    fn produce(&self, producer: usize, control: &Control) -> Tally {
        let mut sender = self.queue.sender(producer);
        let (mut number, mut room_until) = (0, WINDOW);
        let tally = control.drive(|| {
            spin(self.gap);
            if number == room_until {
                // ORDER: Acquire; pairs with the drainer's Release, as in `Windowed`.
                room_until = self.arrived[producer].load(Acquire) + WINDOW;
                if number == room_until {
                    thread::yield_now();
                    return 0;
                }
            }
            sender.send(Event { producer: producer as u32, stamp: stamp(), number });
            number += 1;
            1
        });
        Tally { ops: 0, ..tally }
    }

    fn consume(&self, control: &Control) -> Tally {
        let mut drainer = self.queue.drainer();
        let yields = self.arrived.len() >= limits::cores();
        let mut next = vec![0_u64; self.arrived.len()];
        let mut delays = Latencies::new();
        let tally = control.drive(|| {
            let Some(event) = drainer.take() else {
                if yields {
                    thread::yield_now();
                }
                return 0;
            };
            delays.record(u64::from(stamp().wrapping_sub(event.stamp)));
            let producer = event.producer as usize;
            assert_eq!(event.number, next[producer], "an event was lost or overtaken");
            next[producer] += 1;
            if next[producer].is_multiple_of(WINDOW / 4) {
                // ORDER: Release; pairs with the producer's Acquire.
                self.arrived[producer].store(next[producer], Release);
            }
            1
        });
        self.delays.add(&delays);
        tally
    }
}
