//! A burst: producers send a number of events together, as fast as they can, while the drainer
//! takes them.
//!
//! Nothing bounds the number of events under way. The memory that a queue takes, and how it grows,
//! are therefore part of the time. The time ends when the drainer has the last event. Every queue
//! is new.

use std::{thread, time::Duration};

use super::{Delays, Event, EventDrainer, EventSender, QueueImpl, ROUND, Sides};
use crate::runner::{Control, Tally};

/// See the module header.
pub(super) struct Burst<Q> {
    queue: Q,
    producers: usize,
    /// Of each producer.
    events: u64,
}

impl<Q: QueueImpl> Burst<Q> {
    pub(super) fn new(producers: usize, events: u64) -> Self {
        Self { queue: Q::new(producers), producers, events: events.div_ceil(producers as u64) }
    }
}

impl<Q: QueueImpl> Sides for Burst<Q> {
    fn producers(&self) -> usize {
        self.producers
    }

    fn delays(&self) -> Option<&Delays> {
        None
    }

    fn duration(&self) -> Option<Duration> {
        Some(Duration::from_secs(60)) // until all have arrived
    }

    fn produce(&self, producer: usize, control: &Control) -> Tally {
        let mut sender = self.queue.sender(producer);
        let mut left = 0..self.events;
        let tally = control.drive(|| {
            for number in &mut left {
                sender.send(Event { producer: producer as u32, stamp: 0, number });
            }
            thread::sleep(Duration::from_micros(100)); // leaves its core to the drainer
            0
        });
        Tally { ops: 0, ..tally }
    }

    fn consume(&self, control: &Control) -> Tally {
        let mut drainer = self.queue.drainer();
        let mut next = vec![0_u64; self.producers];
        let all = self.events * self.producers as u64;
        let mut arrived = 0;
        control.drive(|| {
            let mut taken = 0;
            drainer.drain(ROUND, |event| {
                let expected = &mut next[event.producer as usize];
                assert_eq!(event.number, *expected, "an event was lost or overtaken");
                *expected += 1;
                taken += 1;
            });
            if taken == 0 {
                thread::yield_now();
            }
            arrived += taken;
            if arrived == all {
                control.finish();
            }
            taken
        })
    }
}
