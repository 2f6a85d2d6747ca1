//! Queues and channels as they are commonly used, each drained in the best way that it offers.

use std::{
    collections::VecDeque,
    mem,
    sync::{Mutex, PoisonError, mpsc},
};

use crossbeam_utils::CachePadded;

use super::{Event, EventDrainer, EventSender, QueueImpl};

/// A lock around a VecDeque.
trait Exclusive: Sync + Default + 'static {
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<Event>) -> R) -> R;
}

/// std's lock.
#[derive(Default)]
pub(super) struct StdMutex(CachePadded<Mutex<VecDeque<Event>>>);

impl Exclusive for StdMutex {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<Event>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// parking_lot's lock.
#[derive(Default)]
pub(super) struct ParkingLot(CachePadded<parking_lot::Mutex<VecDeque<Event>>>);

impl Exclusive for ParkingLot {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut VecDeque<Event>) -> R) -> R {
        f(&mut self.0.lock())
    }
}

/// A producer's end: a reference to the queue.
pub(super) struct Shared<'a, Q>(&'a Q);

/// The drainer's end, with the queue that it swaps in.
pub(super) struct Swapping<'a, Q> {
    shared: &'a Q,
    spare: VecDeque<Event>,
}

impl<Q: Exclusive> EventSender for Shared<'_, Q> {
    #[inline]
    fn send(&mut self, event: Event) {
        self.0.with(|queue| queue.push_back(event));
    }
}

impl<Q: Exclusive> EventDrainer for Swapping<'_, Q> {
    fn drain(&mut self, max: usize, f: impl FnMut(Event)) {
        if self.spare.is_empty() {
            self.shared.with(|queue| mem::swap(queue, &mut self.spare));
        }
        let round = self.spare.len().min(max);
        self.spare.drain(..round).for_each(f);
    }

    fn take(&mut self) -> Option<Event> {
        self.spare.pop_front().or_else(|| self.shared.with(VecDeque::pop_front))
    }
}

macro_rules! queue_behind_a_lock {
    ($type:ty) => {
        impl QueueImpl for $type {
            type Sender<'a> = Shared<'a, Self>;
            type Drainer<'a> = Swapping<'a, Self>;

            fn new(_: usize) -> Self {
                Self::default()
            }

            fn sender(&self, _: usize) -> Shared<'_, Self> {
                Shared(self)
            }

            fn drainer(&self) -> Swapping<'_, Self> {
                Swapping { shared: self, spare: VecDeque::new() }
            }
        }
    };
}

queue_behind_a_lock!(StdMutex);
queue_behind_a_lock!(ParkingLot);

/// A queue that is popped one event at a time.
trait Popped: Sync + 'static {
    fn push(&self, event: Event);
    fn pop(&self) -> Option<Event>;
}

impl<Q: Popped> EventSender for &Q {
    #[inline]
    fn send(&mut self, event: Event) {
        self.push(event);
    }
}

impl<Q: Popped> EventDrainer for &Q {
    fn drain(&mut self, max: usize, f: impl FnMut(Event)) {
        std::iter::from_fn(|| self.pop()).take(max).for_each(f);
    }

    fn take(&mut self) -> Option<Event> {
        self.pop()
    }
}

macro_rules! popped_queue {
    ($type:ident, $inner:ty, $new:expr, $push:expr, $pop:expr) => {
        impl Popped for $type {
            #[inline]
            fn push(&self, event: Event) {
                let push: fn(&$inner, Event) = $push;
                push(&self.0, event);
            }

            #[inline]
            fn pop(&self) -> Option<Event> {
                let pop: fn(&$inner) -> Option<Event> = $pop;
                pop(&self.0)
            }
        }

        impl QueueImpl for $type {
            type Sender<'a> = &'a Self;
            type Drainer<'a> = &'a Self;

            fn new(_: usize) -> Self {
                Self($new)
            }

            fn sender(&self, _: usize) -> &Self {
                self
            }

            fn drainer(&self) -> &Self {
                self
            }
        }
    };
}

/// crossbeam's segmented queue.
pub(super) struct Seg(crossbeam_queue::SegQueue<Event>);

popped_queue!(
    Seg,
    crossbeam_queue::SegQueue<Event>,
    crossbeam_queue::SegQueue::new(),
    |queue, event| queue.push(event),
    |queue| queue.pop()
);

/// The queue of smol.
pub(super) struct Concurrent(concurrent_queue::ConcurrentQueue<Event>);

popped_queue!(
    Concurrent,
    concurrent_queue::ConcurrentQueue<Event>,
    concurrent_queue::ConcurrentQueue::unbounded(),
    |queue, event| queue.push(event).expect("unbounded and never closed"),
    |queue| queue.pop().ok()
);

/// std's channel.
pub(super) struct Mpsc {
    sender: mpsc::Sender<Event>,
    receiver: Mutex<mpsc::Receiver<Event>>,
}

impl QueueImpl for Mpsc {
    type Sender<'a> = mpsc::Sender<Event>;
    type Drainer<'a> = std::sync::MutexGuard<'a, mpsc::Receiver<Event>>;

    fn new(_: usize) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { sender, receiver: Mutex::new(receiver) }
    }

    fn sender(&self, _: usize) -> mpsc::Sender<Event> {
        self.sender.clone()
    }

    fn drainer(&self) -> Self::Drainer<'_> {
        // Held for the whole run: the receiver is one thread's, the lock only says so.
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSender for mpsc::Sender<Event> {
    #[inline]
    fn send(&mut self, event: Event) {
        mpsc::Sender::send(self, event).expect("the receiver lives as long as the queue");
    }
}

impl EventDrainer for std::sync::MutexGuard<'_, mpsc::Receiver<Event>> {
    fn drain(&mut self, max: usize, f: impl FnMut(Event)) {
        self.try_iter().take(max).for_each(f);
    }

    fn take(&mut self) -> Option<Event> {
        self.try_recv().ok()
    }
}

/// crossbeam's channel.
pub(super) struct Channel {
    sender: crossbeam_channel::Sender<Event>,
    receiver: crossbeam_channel::Receiver<Event>,
}

impl QueueImpl for Channel {
    type Sender<'a> = crossbeam_channel::Sender<Event>;
    type Drainer<'a> = &'a crossbeam_channel::Receiver<Event>;

    fn new(_: usize) -> Self {
        let (sender, receiver) = crossbeam_channel::unbounded();
        Self { sender, receiver }
    }

    fn sender(&self, _: usize) -> crossbeam_channel::Sender<Event> {
        self.sender.clone()
    }

    fn drainer(&self) -> &crossbeam_channel::Receiver<Event> {
        &self.receiver
    }
}

impl EventSender for crossbeam_channel::Sender<Event> {
    #[inline]
    fn send(&mut self, event: Event) {
        crossbeam_channel::Sender::send(self, event).expect("the queue owns the receiver");
    }
}

impl EventDrainer for &crossbeam_channel::Receiver<Event> {
    fn drain(&mut self, max: usize, f: impl FnMut(Event)) {
        self.try_iter().take(max).for_each(f);
    }

    fn take(&mut self) -> Option<Event> {
        self.try_recv().ok()
    }
}
