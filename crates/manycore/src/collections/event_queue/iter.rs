//! Iterators over events.

use super::{EventQueue, Receiver};
use std::fmt;
use std::iter::FusedIterator;

/// Iterator over events as they come, until the queue is closed and empty: [`EventQueue::iter`].
///
/// See [`EventQueue::iter`] for an example.
pub struct EventQueueIter<'a, E: Send + 'static>(&'a EventQueue<E>);

/// Iterator over the events that are there: [`EventQueue::try_iter`].
///
/// ```
/// let queue = manycore::collections::EventQueue::new();
/// queue.send(1).unwrap();
/// queue.send(2).unwrap();
/// assert_eq!(queue.try_iter().collect::<Vec<_>>(), [1, 2]); // and does not wait for a third
/// ```
pub struct EventQueueTryIter<'a, E: Send + 'static>(&'a EventQueue<E>);

/// Iterator over events as they come, until all senders of a [`Receiver`] are gone and none is
/// left.
///
/// ```
/// let (sender, receiver) = manycore::collections::EventQueue::channel();
/// std::thread::spawn(move || (0..3).for_each(|event| sender.send(event).unwrap()));
/// assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
/// ```
#[derive(Debug)]
pub struct EventQueueIntoIter<E: Send + 'static>(Receiver<E>);

impl<E: Send + 'static> EventQueue<E> {
    /// Receives events as they come, waiting for each, until the queue is closed and empty.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    ///
    /// let queue = EventQueue::new();
    /// std::thread::scope(|s| {
    ///     s.spawn(|| {
    ///         (0..3).for_each(|event| queue.send(event).unwrap());
    ///         queue.close();
    ///     });
    ///     assert!(queue.iter().eq(0..3));
    /// });
    /// ```
    pub fn iter(&self) -> EventQueueIter<'_, E> {
        EventQueueIter(self)
    }

    /// Receives the events that are there, without waiting. The iterator ends when it finds none,
    /// and may find some again later. See [`drain`](Self::drain) for all of them at once.
    pub fn try_iter(&self) -> EventQueueTryIter<'_, E> {
        EventQueueTryIter(self)
    }
}

impl<E: Send + 'static> Iterator for EventQueueIter<'_, E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        self.0.recv()
    }
}

/// A closed queue stays closed.
impl<E: Send + 'static> FusedIterator for EventQueueIter<'_, E> {}

impl<E: Send + 'static> Iterator for EventQueueTryIter<'_, E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        self.0.try_recv().ok()
    }
}

impl<E: Send + 'static> Iterator for EventQueueIntoIter<E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        self.0.recv()
    }
}

/// A closed queue stays closed.
impl<E: Send + 'static> FusedIterator for EventQueueIntoIter<E> {}

impl<'a, E: Send + 'static> IntoIterator for &'a EventQueue<E> {
    type Item = E;
    type IntoIter = EventQueueIter<'a, E>;

    fn into_iter(self) -> EventQueueIter<'a, E> {
        self.iter()
    }
}

impl<'a, E: Send + 'static> IntoIterator for &'a Receiver<E> {
    type Item = E;
    type IntoIter = EventQueueIter<'a, E>;

    fn into_iter(self) -> EventQueueIter<'a, E> {
        self.iter()
    }
}

impl<E: Send + 'static> IntoIterator for Receiver<E> {
    type Item = E;
    type IntoIter = EventQueueIntoIter<E>;

    fn into_iter(self) -> EventQueueIntoIter<E> {
        EventQueueIntoIter(self)
    }
}

impl<E: Send + 'static> fmt::Debug for EventQueueIter<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventQueueIter").field(self.0).finish()
    }
}

impl<E: Send + 'static> fmt::Debug for EventQueueTryIter<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventQueueTryIter").field(self.0).finish()
    }
}
