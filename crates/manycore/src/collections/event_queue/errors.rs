//! What sending and receiving can answer instead.

use std::fmt;

/// Why an event was not sent. The event is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<E> {
    /// The queue is at its bound (only from [`try_send`](super::EventQueue::try_send)).
    Full(E),
    /// The queue is closed.
    Closed(E),
}

impl<E> SendError<E> {
    /// The event.
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

impl<E: fmt::Debug> std::error::Error for SendError<E> {}

/// Why no event was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// No event is there, or came in time.
    Empty,
    /// The queue is closed and every event has been received.
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
