//! Waiting threads and tasks, for events or for room, and how they are found again.

use crate::sync::thread;
use std::task::Waker;

/// A thread or task that waits.
#[derive(Debug)]
pub(super) enum Waiter {
    Thread(thread::Thread),
    /// A future or stream with a ticket, by which it is known.
    Task(u64, Waker),
    /// A caller of `poll_recv`, known only by the waker.
    Polled(Waker),
}

/// Identifies a waiter.
#[derive(Debug)]
pub(super) enum Key<'a> {
    Thread(thread::ThreadId),
    Task(u64),
    Polled(&'a Waker),
}

impl Waiter {
    pub(super) fn key(&self) -> Key<'_> {
        match self {
            Self::Thread(thread) => Key::Thread(thread.id()),
            Self::Task(ticket, _) => Key::Task(*ticket),
            Self::Polled(waker) => Key::Polled(waker),
        }
    }

    pub(super) fn is(&self, key: &Key<'_>) -> bool {
        match (self.key(), key) {
            (Key::Thread(one), Key::Thread(other)) => one == *other,
            (Key::Task(one), Key::Task(other)) => one == *other,
            (Key::Polled(one), Key::Polled(other)) => one.will_wake(other),
            _ => false,
        }
    }

    pub(super) fn is_polled(&self) -> bool {
        matches!(self, Self::Polled(_))
    }

    /// Wakes the waiter. May run user code, and panic.
    pub(super) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(_, waker) | Self::Polled(waker) => waker.wake(),
        }
    }
}

/// Replaces the earlier entry of the same waiter, and returns it; or appends `waiter`.
pub(super) fn replace_or_push(waiters: &mut Vec<Waiter>, waiter: Waiter) -> Option<Waiter> {
    match waiters.iter_mut().find(|other| other.is(&waiter.key())) {
        Some(other) => Some(std::mem::replace(other, waiter)),
        None => {
            waiters.push(waiter);
            None
        }
    }
}
