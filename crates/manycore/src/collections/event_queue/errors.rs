//! Errors of sending and receiving.

use std::fmt;

/// Reason why an event was not sent, with the event.
///
/// ```
/// use manycore::collections::{EventQueue, SendError};
///
/// let queue = EventQueue::builder().max_events(1).build()?;
/// queue.send("first").unwrap();
/// match queue.try_send("second") {
///     Ok(()) => unreachable!("it has room for one"),
///     Err(SendError::Full(event)) => assert_eq!(event, "second"), // drop it, or try again later
///     Err(SendError::Closed(_)) => unreachable!("nobody closed it"),
/// }
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
#[doc(alias = "TrySendError")]
#[doc(alias = "SendTimeoutError")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendError<E> {
    /// The queue is at its bound ([`try_send`](super::EventQueue::try_send)), or was so until the
    /// deadline ([`send_timeout`](super::EventQueue::send_timeout)). A send that waits without a
    /// limit never returns this.
    Full(E),
    /// The queue is closed: [`close`](super::EventQueue::close) was called, or there is no
    /// [`Receiver`](super::Receiver) any more.
    #[doc(alias = "Disconnected")]
    Closed(E),
}

impl<E> SendError<E> {
    /// Returns the event.
    pub fn into_inner(self) -> E {
        match self {
            Self::Full(event) | Self::Closed(event) => event,
        }
    }
}

impl<E> fmt::Display for SendError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the queue is full",
            Self::Closed(_) => "the queue is closed",
        })
    }
}

/// Omits the event, which need not implement `Debug`.
impl<E> fmt::Debug for SendError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<E> std::error::Error for SendError<E> {}

/// Reason why no event was received.
///
/// ```
/// use manycore::collections::{EventQueue, RecvError};
///
/// let queue = EventQueue::<u32>::new();
/// assert_eq!(queue.try_recv(), Err(RecvError::Empty));
/// queue.close();
/// assert_eq!(queue.try_recv(), Err(RecvError::Closed));
/// ```
#[doc(alias = "TryRecvError")]
#[doc(alias = "RecvTimeoutError")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// No event is there, or none came in time.
    Empty,
    /// The queue is closed, by [`close`](super::EventQueue::close) or because there is no
    /// [`Sender`](super::Sender) left, and every event has been received.
    #[doc(alias = "Disconnected")]
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the queue is empty",
            Self::Closed => "the queue is closed and empty",
        })
    }
}

impl std::error::Error for RecvError {}
