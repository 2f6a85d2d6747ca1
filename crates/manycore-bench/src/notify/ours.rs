//! The library's event queue.

use manycore::{collections::EventQueue, oplog::Logs};

use super::{Event, EventDrainer, EventSender, QueueImpl};

/// With the defaults: one locked queue until senders contend.
pub(super) struct Auto(EventQueue<Event>);

impl QueueImpl for Auto {
    type Sender<'a> = &'a EventQueue<Event>;
    type Drainer<'a> = Draining<'a>;

    fn new(_: usize) -> Self {
        Self(EventQueue::new())
    }

    fn sender(&self, _: usize) -> &EventQueue<Event> {
        &self.0
    }

    fn drainer(&self) -> Draining<'_> {
        Draining { queue: &self.0, events: Vec::new(), passed: 0 }
    }
}

/// Told from the start to keep a log for each sender.
pub(super) struct Logged(EventQueue<Event>);

impl QueueImpl for Logged {
    type Sender<'a> = &'a EventQueue<Event>;
    type Drainer<'a> = Draining<'a>;

    fn new(_: usize) -> Self {
        let queue = EventQueue::builder().logs(Logs::Always).build();
        Self(queue.expect("the bounds are the defaults"))
    }

    fn sender(&self, _: usize) -> &EventQueue<Event> {
        &self.0
    }

    fn drainer(&self) -> Draining<'_> {
        Draining { queue: &self.0, events: Vec::new(), passed: 0 }
    }
}

impl EventSender for &EventQueue<Event> {
    #[inline]
    fn send(&mut self, event: Event) {
        EventQueue::send(self, event).expect("nobody closes the queue");
    }
}

/// The drainer's end, with the buffer that it exchanges for the queue's.
pub(super) struct Draining<'a> {
    queue: &'a EventQueue<Event>,
    events: Vec<Event>,
    /// How many of them have been passed on.
    passed: usize,
}

impl EventDrainer for Draining<'_> {
    fn drain(&mut self, max: usize, f: impl FnMut(Event)) {
        if self.passed == self.events.len() {
            self.events.clear();
            self.passed = 0;
            self.queue.drain_into(&mut self.events);
        }
        let rest = &self.events[self.passed..];
        let round = &rest[..rest.len().min(max)];
        round.iter().copied().for_each(f);
        self.passed += round.len();
    }
}
