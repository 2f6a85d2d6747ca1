//! Receivers that wait: threads, futures, streams, and callers of `poll_recv`.
//!
//! Owns: the order of announcing, looking and waiting that law event_queue.Q4 of the parent module
//! requires.

use super::waiter::{Key, Waiter};
use super::{EventQueue, RecvError};
use crate::sync::{self, thread};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<E: Send + 'static> EventQueue<E> {
    /// Receives the next event, waiting for one. Returns `None` if the queue is closed and empty.
    pub fn recv(&self) -> Option<E> {
        self.recv_until(None).ok()
    }

    /// Receives the next event, waiting at most `timeout` for one.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if none came in time, [`RecvError::Closed`] if none can come any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<E, RecvError> {
        // A deadline beyond the clock's range is no limit.
        self.recv_until(Instant::now().checked_add(timeout))
    }

    /// Same as [`recv_timeout`](Self::recv_timeout), until `deadline`.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if none came in time, [`RecvError::Closed`] if none can come any more.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<E, RecvError> {
        self.recv_until(Some(deadline))
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<E, RecvError> {
        let first = self.try_recv();
        if !matches!(first, Err(RecvError::Empty)) {
            return first;
        }
        let full = self.full();
        loop {
            full.signals().arm(Waiter::Thread(thread::current()));
            let received = full.receive(false); // after arming: event_queue.Q4
            if !matches!(received, Err(RecvError::Empty)) || !sync::park_until(deadline) {
                full.signals().disarm(&Key::Thread(thread::current().id()));
                return received;
            }
        }
    }

    /// Receives the next event in async code. The future's result is `None` if the queue is closed
    /// and empty.
    ///
    /// Any number of tasks may wait at a time. Each keeps one waker in the queue, from its last
    /// poll, until it has received or is dropped. Dropping the future loses no event.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    ///
    /// async fn sum(queue: &EventQueue<u32>) -> u32 {
    ///     let mut sum = 0;
    ///     while let Some(event) = queue.recv_async().await {
    ///         sum += event;
    ///     }
    ///     sum
    /// }
    /// # let queue = EventQueue::new();
    /// # queue.send(7).unwrap();
    /// # queue.close();
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let mut future = std::pin::pin!(sum(&queue));
    /// # use std::{future::Future, task::Poll};
    /// # assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(7));
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, E> {
        RecvFuture { queue: self, ticket: None }
    }

    /// Receives the next event, or arranges for `context`'s task to be woken when there is one: for
    /// a `Stream` or future of your own. Returns `Ready(None)` if the queue is closed and empty.
    ///
    /// The queue can't tell whether a caller still waits, nor which of its wakers is the last. So
    /// it keeps up to 32 different wakers of this method. A further waker wakes all of them, and
    /// takes their place: a task that still waits polls again. No wake-up is lost; if more than 32
    /// tasks wait at a time, some wake needlessly. [`recv_async`](Self::recv_async) has no such
    /// bound.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    /// use std::future::poll_fn;
    ///
    /// async fn next(queue: &EventQueue<u32>) -> Option<u32> {
    ///     poll_fn(|context| queue.poll_recv(context)).await
    /// }
    /// # let queue = EventQueue::new();
    /// # queue.send(7).unwrap();
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let mut future = std::pin::pin!(next(&queue));
    /// # use std::{future::Future, task::Poll};
    /// # assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(Some(7)));
    /// ```
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Option<E>> {
        let first = self.try_recv();
        if !matches!(first, Err(RecvError::Empty)) {
            return Poll::Ready(first.ok());
        }
        let full = self.full();
        full.signals().arm(Waiter::Polled(context.waker().clone()));
        match full.receive(false) {
            Err(RecvError::Empty) => Poll::Pending,
            received => {
                full.signals().disarm(&Key::Polled(context.waker()));
                Poll::Ready(received.ok())
            }
        }
    }
}

/// The future of [`EventQueue::recv_async`].
///
/// See [`EventQueue::recv_async`] for an example.
#[must_use = "futures do nothing unless they are awaited"]
pub struct RecvFuture<'a, E: Send + 'static> {
    queue: &'a EventQueue<E>,
    /// Ticket of the future, once it has waited.
    ticket: Option<u64>,
}

impl<E: Send + 'static> EventQueue<E> {
    /// Polls for a waiter with a ticket; it gets the ticket when it first waits.
    pub(super) fn poll_for(
        &self,
        ticket: &mut Option<u64>,
        context: &mut Context<'_>,
    ) -> Poll<Option<E>> {
        let mut received = self.try_recv();
        if matches!(received, Err(RecvError::Empty)) {
            let full = self.full();
            let ticket = *ticket.get_or_insert_with(|| full.signals().ticket());
            full.signals().arm(Waiter::Task(ticket, context.waker().clone()));
            received = full.receive(false); // after arming: event_queue.Q4
            if matches!(received, Err(RecvError::Empty)) {
                return Poll::Pending;
            }
        }
        self.forget_receiver(ticket);
        Poll::Ready(received.ok())
    }

    /// Removes the waker of this ticket from the queue.
    fn forget_receiver(&self, ticket: &mut Option<u64>) {
        if let Some(ticket) = ticket.take() {
            self.full().signals().disarm(&Key::Task(ticket));
        }
    }
}

impl<E: Send + 'static> Future for RecvFuture<'_, E> {
    type Output = Option<E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<E>> {
        let this = &mut *self;
        this.queue.poll_for(&mut this.ticket, context)
    }
}

impl<E: Send + 'static> Drop for RecvFuture<'_, E> {
    fn drop(&mut self) {
        self.queue.forget_receiver(&mut self.ticket);
    }
}

impl<E: Send + 'static> fmt::Debug for RecvFuture<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvFuture").field("waits", &self.ticket.is_some()).finish_non_exhaustive()
    }
}
