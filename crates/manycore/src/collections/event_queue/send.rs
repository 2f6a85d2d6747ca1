//! Sends, and what senders do while the queue is full: wait as threads or tasks, or give up.
//!
//! Owns: the sends. Laws event_queue.Q1 and event_queue.Q7 of the parent module.

use super::full::Full;
use super::waiter::{Key, Waiter};
use super::{EventQueue, SendError};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<E: Send + 'static> EventQueue<E> {
    /// Sends an event. Waits while the queue is full.
    ///
    /// A full queue stays full until a receive. So a thread that both sends and receives should use
    /// [`try_send`](Self::try_send), and a task [`send_async`](Self::send_async).
    ///
    /// # Errors
    /// [`SendError::Closed`] with the event if the queue is closed, also while this waits.
    // Inlined into the code that makes the event: a function that gets a pointer to it would load
    // it before the stores to it are over, and wait for them. The same goes for the functions
    // below.
    #[inline(always)]
    pub fn send(&self, event: E) -> Result<(), SendError<E>> {
        self.send_small(event, Ok(()), Full::send)
    }

    /// Sends an event, unless the queue is full. Never waits for a receiver.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Closed`], with the event.
    #[inline(always)]
    pub fn try_send(&self, event: E) -> Result<(), SendError<E>> {
        self.send_small(event, Ok(()), Full::try_send)
    }

    /// Sends an event, waiting at most `timeout` while the queue is full.
    ///
    /// # Errors
    /// [`SendError::Full`] if there was no room in time, or [`SendError::Closed`], with the event.
    ///
    /// ```
    /// use manycore::collections::{EventQueue, SendError};
    /// use std::time::Duration;
    ///
    /// let queue = EventQueue::builder().max_events(1).build().unwrap();
    /// let soon = Duration::from_millis(1);
    /// assert_eq!(queue.send_timeout("one", soon), Ok(()));
    /// assert_eq!(queue.send_timeout("two", soon), Err(SendError::Full("two")));
    /// ```
    pub fn send_timeout(&self, event: E, timeout: Duration) -> Result<(), SendError<E>> {
        // A deadline beyond the clock's range is no limit.
        self.send_until(event, Instant::now().checked_add(timeout))
    }

    /// Same as [`send_timeout`](Self::send_timeout), until `deadline`.
    ///
    /// # Errors
    /// [`SendError::Full`] if there was no room in time, or [`SendError::Closed`], with the event.
    pub fn send_deadline(&self, event: E, deadline: Instant) -> Result<(), SendError<E>> {
        self.send_until(event, Some(deadline))
    }

    fn send_until(&self, event: E, deadline: Option<Instant>) -> Result<(), SendError<E>> {
        self.send_small(event, Ok(()), |full, event| {
            if full.signals().is_full() && !full.signals().wait_for_room(deadline) {
                return Err(SendError::Full(event));
            }
            full.put(event)
        })
    }

    /// Sends an event in async code. The future waits while the queue is full, and blocks no
    /// thread.
    ///
    /// Nothing is sent before the future is polled, nor if it is dropped before it is ready. The
    /// event is dropped with it then, unless [`into_inner`](SendFuture::into_inner) takes it back.
    /// Each waiting future keeps one waker in the queue, from its last poll.
    ///
    /// # Errors
    /// The future's result is [`SendError::Closed`] with the event if the queue is closed.
    ///
    /// ```
    /// use manycore::collections::{EventQueue, SendError};
    ///
    /// async fn relay(from: &EventQueue<u32>, to: &EventQueue<u32>) -> Result<(), SendError<u32>> {
    ///     while let Some(event) = from.recv_async().await {
    ///         to.send_async(event + 1).await?;
    ///     }
    ///     Ok(())
    /// }
    /// # let [from, to] = [EventQueue::new(), EventQueue::new()];
    /// # from.send(7).unwrap();
    /// # from.close();
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let mut future = std::pin::pin!(relay(&from, &to));
    /// # use std::{future::Future, task::Poll};
    /// # assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    /// # assert_eq!(to.try_recv(), Ok(8));
    /// ```
    pub fn send_async(&self, event: E) -> SendFuture<'_, E> {
        SendFuture { queue: self, event: Some(event), ticket: None }
    }
}

impl<E: Send + 'static> Full<E> {
    #[inline(always)]
    fn send(&self, event: E) -> Result<(), SendError<E>> {
        if self.signals().is_full() {
            self.signals().wait_for_room(None);
        }
        self.put(event)
    }

    #[inline(always)]
    fn try_send(&self, event: E) -> Result<(), SendError<E>> {
        if self.signals().is_full() && !self.signals().is_closed() {
            return Err(SendError::Full(event));
        }
        self.put(event)
    }
}

/// The future of [`EventQueue::send_async`].
///
/// # Panics
/// If it is polled again after it was ready.
///
/// See [`EventQueue::send_async`] for an example.
#[must_use = "futures do nothing unless they are awaited"]
pub struct SendFuture<'a, E: Send + 'static> {
    queue: &'a EventQueue<E>,
    /// The event, until it is sent.
    event: Option<E>,
    /// Ticket of the future, once it has waited.
    ticket: Option<u64>,
}

// The event is never pinned: it moves into the queue.
impl<E: Send + 'static> Unpin for SendFuture<'_, E> {}

impl<E: Send + 'static> SendFuture<'_, E> {
    /// Cancels the send. Returns the event, or `None` if it was sent or refused already.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    ///
    /// let queue = EventQueue::new();
    /// let future = queue.send_async("late");
    /// assert_eq!(future.into_inner(), Some("late"));
    /// assert!(queue.is_empty());
    /// ```
    pub fn into_inner(mut self) -> Option<E> {
        self.event.take()
    }
}

impl<E: Send + 'static> Future for SendFuture<'_, E> {
    type Output = Result<(), SendError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let event = this.event.take().expect("a future is polled after it was ready");
        this.queue.send_small(event, Poll::Ready(Ok(())), |full, event| {
            if full.signals().is_full() {
                let ticket = *this.ticket.get_or_insert_with(|| full.signals().ticket());
                if full.signals().await_room(Waiter::Task(ticket, context.waker().clone())) {
                    this.event = Some(event);
                    return Poll::Pending;
                }
            }
            this.ticket = None; // the queue had room, so it has no waker of this future
            Poll::Ready(full.put(event))
        })
    }
}

impl<E: Send + 'static> Drop for SendFuture<'_, E> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.queue.full().signals().forget_sender(&Key::Task(ticket));
        }
    }
}

impl<E: Send + 'static> fmt::Debug for SendFuture<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendFuture")
            .field("sent", &self.event.is_none())
            .field("waits", &self.ticket.is_some())
            .finish_non_exhaustive()
    }
}
