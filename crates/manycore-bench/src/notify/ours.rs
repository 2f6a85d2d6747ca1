//! The library's event queue.

use manycore::{collections::EventQueue, oplog::Logs};

use super::{Event, EventDrainer, EventSender, QueueImpl};

/// With the defaults: one locked queue, or logs where they pay.
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
        Draining { queue: &self.0, events: Vec::new() }
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
        Draining { queue: &self.0, events: Vec::new() }
    }
}

impl EventSender for &EventQueue<Event> {
    #[inline]
    fn send(&mut self, event: Event) {
        EventQueue::send(self, event).expect("the queue is not closed");
    }
}

/// The drainer's end, with its buffer.
pub(super) struct Draining<'a> {
    queue: &'a EventQueue<Event>,
    events: Vec<Event>,
}

impl EventDrainer for Draining<'_> {
    fn drain(&mut self, max: usize, f: impl FnMut(Event)) {
        self.queue.drain_at_most(max, &mut self.events);
        self.events.drain(..).for_each(f);
    }

    fn take(&mut self) -> Option<Event> {
        self.queue.try_recv().ok()
    }
}
