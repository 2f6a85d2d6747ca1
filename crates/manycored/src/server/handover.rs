//! Hand-over of connections from the worker that accepted them to the worker that serves them.

use super::listen::Queue;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// An accepted connection that no worker serves yet.
pub(super) struct Accepted {
    pub(super) socket: OwnedFd,
    /// The queue that it was accepted from.
    pub(super) queue: Queue,
}

/// A worker as the other workers see it: its number of connections, and its inbox of further
/// connections.
#[repr(align(128))]
pub(super) struct Inbox {
    wake: OwnedFd,
    /// Connections of the worker, including those in its inbox.
    connections: AtomicUsize,
    /// `None` once the worker has ended.
    waiting: Mutex<Option<Vec<Accepted>>>,
}

impl Inbox {
    pub(super) fn new() -> Result<Self, Errno> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiting = Mutex::new(Some(Vec::new()));
        Ok(Self { wake, connections: AtomicUsize::new(0), waiting })
    }

    /// Returns the eventfd that the worker's epoll watches.
    pub(super) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Wakes the worker.
    pub(super) fn call(&self) {
        // The eventfd's count cannot overflow: the worker resets it, and each call adds one.
        let _ = write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Returns the number of the worker's connections.
    pub(super) fn connections(&self) -> usize {
        // ORDER: Relaxed; a count.
        self.connections.load(Ordering::Relaxed)
    }

    /// Counts one more connection.
    pub(super) fn count(&self) {
        // ORDER: Relaxed; a count.
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one connection less.
    pub(super) fn forget(&self) {
        // ORDER: Relaxed; a count.
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "server.V1: a worker has closed more connections than it had");
    }

    /// Hands a connection to the worker. Returns the connection if the worker has ended.
    pub(super) fn hand_over(&self, accepted: Accepted) -> Option<Accepted> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = &mut *waiting else { return Some(accepted) };
        self.count();
        waiting.push(accepted);
        if waiting.len() == 1 {
            self.call();
        }
        None
    }

    /// Takes the connections that were handed over. Only the worker itself calls this.
    pub(super) fn take(&self) -> Vec<Accepted> {
        let _ = read(&self.wake, &mut [0; 8]);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = waiting.as_mut().map_or(Vec::new(), std::mem::take);
        debug_assert!(
            taken.len() <= self.connections(),
            "server.V1: a connection in the inbox is not counted"
        );
        taken
    }

    /// Closes the inbox. Returns false and changes nothing if connections wait in it.
    pub(super) fn close(&self) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = waiting.as_ref().is_none_or(Vec::is_empty);
        if is_empty {
            *waiting = None;
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn accepted() -> Accepted {
        let any = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        Accepted { socket: any(), queue: Queue::shared(any().into(), true) }
    }

    fn is_called(inbox: &Inbox) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(inbox.wake(), PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn connections_are_handed_over_until_the_worker_ends() {
        let inbox = Inbox::new().unwrap();
        assert!(!is_called(&inbox));
        assert!(inbox.hand_over(accepted()).is_none() && inbox.hand_over(accepted()).is_none());
        assert!(is_called(&inbox) && !inbox.close());
        assert_eq!((inbox.take().len(), inbox.connections()), (2, 2));
        assert!(!is_called(&inbox) && inbox.close());
        assert!(inbox.hand_over(accepted()).is_some() && inbox.take().is_empty());
    }
}
