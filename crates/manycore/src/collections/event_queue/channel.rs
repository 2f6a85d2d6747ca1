//! A queue as two halves. Each half notices when the other is gone.
//!
//! Owns: [`Sender`] and [`Receiver`] (law event_queue.Q8 of the parent module).

use super::{
    EventQueue, EventQueueIter, EventQueueTryIter, RecvError, RecvFuture, SendError, SendFuture,
};
use crate::sync;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<E: Send + 'static> EventQueue<E> {
    /// Makes a new queue as two halves, with the default bound. The queue closes itself when the
    /// last [`Sender`] or the [`Receiver`] is dropped.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    /// use std::thread;
    ///
    /// let (sender, receiver) = EventQueue::channel();
    /// for worker in 0..3 {
    ///     let sender = sender.clone();
    ///     thread::spawn(move || sender.send(worker).unwrap());
    /// }
    /// drop(sender);
    /// assert_eq!(receiver.iter().sum::<i32>(), 3); // ends with the last sender
    ///
    /// let (sender, receiver) = EventQueue::channel();
    /// drop(receiver);
    /// assert_eq!(sender.send(7).unwrap_err().into_inner(), 7);
    /// ```
    #[must_use]
    pub fn channel() -> (Sender<E>, Receiver<E>) {
        Self::new().into_channel()
    }

    /// Splits this queue, with its events, into two halves: for other bounds than those of
    /// [`channel`](Self::channel).
    ///
    /// ```
    /// use manycore::collections::{EventQueue, SendError};
    ///
    /// let (sender, _receiver) = EventQueue::builder().max_events(1).build()?.into_channel();
    /// sender.send("one").unwrap();
    /// assert_eq!(sender.try_send("two"), Err(SendError::Full("two")));
    /// # Ok::<(), manycore::oplog::BuildError>(())
    /// ```
    #[doc(alias = "split")]
    #[must_use]
    pub fn into_channel(self) -> (Sender<E>, Receiver<E>) {
        let queue = Arc::new(self);
        let senders = Arc::new(Senders(Arc::clone(&queue)));
        let sender = Sender { queue: Arc::clone(&queue), senders };
        (
            sender,
            Receiver {
                queue,
                #[cfg(feature = "futures-core")]
                ticket: None,
            },
        )
    }
}

/// State that all senders of a queue share. Dropping it, with the last sender, closes the queue.
struct Senders<E: Send + 'static>(Arc<EventQueue<E>>);

impl<E: Send + 'static> Drop for Senders<E> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The sending half of an [`EventQueue`]: [`EventQueue::channel`].
///
/// Clone it for each thread or task that sends. Dropping the last clone closes the queue: the
/// receiver gets what was sent, and then learns that it is closed. Methods, costs and panics are
/// those of the queue. A clone costs two updates of shared reference counts, so it is not for hot
/// paths.
///
/// See [`EventQueue::channel`] for an example.
pub struct Sender<E: Send + 'static> {
    /// Beside `senders`, so that a send follows one pointer only.
    queue: Arc<EventQueue<E>>,
    senders: Arc<Senders<E>>,
}

impl<E: Send + 'static> Sender<E> {
    /// Sends an event. Waits while the queue is full; a task uses [`send_async`](Self::send_async).
    ///
    /// # Errors
    /// [`SendError::Closed`] with the event if the receiver is gone or has closed the queue, also
    /// while this waits.
    #[inline(always)]
    pub fn send(&self, event: E) -> Result<(), SendError<E>> {
        self.queue.send(event)
    }

    /// Sends an event, unless the queue is full. Never waits for a receiver.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Closed`], with the event.
    #[inline(always)]
    pub fn try_send(&self, event: E) -> Result<(), SendError<E>> {
        self.queue.try_send(event)
    }

    /// Sends an event, waiting at most `timeout` while the queue is full.
    ///
    /// # Errors
    /// [`SendError::Full`] if there was no room in time, or [`SendError::Closed`], with the event.
    pub fn send_timeout(&self, event: E, timeout: Duration) -> Result<(), SendError<E>> {
        self.queue.send_timeout(event, timeout)
    }

    /// Same as [`send_timeout`](Self::send_timeout), until `deadline`.
    ///
    /// # Errors
    /// [`SendError::Full`] if there was no room in time, or [`SendError::Closed`], with the event.
    pub fn send_deadline(&self, event: E, deadline: Instant) -> Result<(), SendError<E>> {
        self.queue.send_deadline(event, deadline)
    }

    /// Sends an event in async code: see [`EventQueue::send_async`].
    ///
    /// # Errors
    /// The future's result is [`SendError::Closed`] with the event if the receiver is gone or has
    /// closed the queue.
    pub fn send_async(&self, event: E) -> SendFuture<'_, E> {
        self.queue.send_async(event)
    }

    /// Returns true if the receiver is gone or has closed the queue.
    #[doc(alias = "is_disconnected")]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Returns true if the queue is at its bound: see [`EventQueue::is_full`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Returns the number of events that are there. Gathers the logs, so not for hot paths.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if no event is there. Costs as much as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if both send to the same queue.
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }
}

impl<E: Send + 'static> Clone for Sender<E> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), senders: Arc::clone(&self.senders) }
    }
}

impl<E: Send + 'static> fmt::Debug for Sender<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.queue).finish()
    }
}

/// The receiving half of an [`EventQueue`]: [`EventQueue::channel`].
///
/// There is one receiver; threads that share it take turns, as with the queue itself. Dropping it
/// closes the queue, and drops the events that are still inside (with the senders and replies that
/// may be in them). A later send returns its event. If an event's destructor panics, the drop
/// continues the panic after all events have been dropped.
///
/// With the feature `futures-core` it is a `Stream` that ends with the last sender. A cancelled
/// `next()` loses no event.
///
/// See [`EventQueue::channel`] for an example.
pub struct Receiver<E: Send + 'static> {
    queue: Arc<EventQueue<E>>,
    /// Ticket of the stream, once it has waited.
    #[cfg(feature = "futures-core")]
    ticket: Option<u64>,
}

impl<E: Send + 'static> Receiver<E> {
    /// Receives the next event, waiting for one. Returns `None` if all senders are gone and no
    /// event is left.
    pub fn recv(&self) -> Option<E> {
        self.queue.recv()
    }

    /// Receives the next event, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Empty`], or [`RecvError::Closed`] if no event can come any more.
    pub fn try_recv(&self) -> Result<E, RecvError> {
        self.queue.try_recv()
    }

    /// Receives the next event, waiting at most `timeout` for one.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if none came in time, [`RecvError::Closed`] if none can come any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<E, RecvError> {
        self.queue.recv_timeout(timeout)
    }

    /// Same as [`recv_timeout`](Self::recv_timeout), until `deadline`.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if none came in time, [`RecvError::Closed`] if none can come any more.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<E, RecvError> {
        self.queue.recv_deadline(deadline)
    }

    /// Receives the next event in async code: see [`EventQueue::recv_async`].
    pub fn recv_async(&self) -> RecvFuture<'_, E> {
        self.queue.recv_async()
    }

    /// Polls for the next event, for your own futures: see [`EventQueue::poll_recv`].
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<E>> {
        self.queue.poll_recv(context)
    }

    /// Receives events as they come, waiting for each, until all senders are gone and no event is
    /// left.
    pub fn iter(&self) -> EventQueueIter<'_, E> {
        self.queue.iter()
    }

    /// Receives the events that are there, without waiting.
    pub fn try_iter(&self) -> EventQueueTryIter<'_, E> {
        self.queue.try_iter()
    }

    /// Receives all events that are there, with one merge and one lock.
    pub fn drain(&self) -> Vec<E> {
        self.queue.drain()
    }

    /// Receives all events that are there and appends them to `events`: see
    /// [`EventQueue::drain_into`].
    pub fn drain_into(&self, events: &mut Vec<E>) -> usize {
        self.queue.drain_into(events)
    }

    /// Receives up to `most` events and appends them to `events`: see
    /// [`EventQueue::drain_at_most`].
    pub fn drain_at_most(&self, most: usize, events: &mut Vec<E>) -> usize {
        self.queue.drain_at_most(most, events)
    }

    /// Closes the queue, for an orderly end: events sent before can still be received. Returns true
    /// if the queue was open.
    pub fn close(&self) -> bool {
        self.queue.close()
    }

    /// Returns true if no event can come any more: all senders are gone, or the queue was closed.
    /// Some events may be left.
    #[doc(alias = "is_disconnected")]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Returns true if the queue is at its bound: see [`EventQueue::is_full`].
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// Returns the number of events that are there. Gathers the logs, so not for hot paths.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if no event is there. Costs as much as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

impl<E: Send + 'static> Drop for Receiver<E> {
    fn drop(&mut self) {
        // Wakers and destructors are user code. Each runs, without a lock, even if another panics.
        let closed = sync::caught(|| self.queue.close()).map(|_| ());
        // The flag was set before, so these are all events (event_queue.Q3).
        let events = self.queue.drain();
        sync::resume_first([closed, sync::caught(|| sync::drop_each(events))]);
    }
}

#[cfg(feature = "futures-core")]
impl<E: Send + 'static> futures_core::Stream for Receiver<E> {
    type Item = E;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<E>> {
        let this = &mut *self;
        this.queue.poll_for(&mut this.ticket, context)
    }
}

impl<E: Send + 'static> fmt::Debug for Receiver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.queue).finish()
    }
}
