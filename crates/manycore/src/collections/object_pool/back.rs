//! The part of a pool that all threads share: idle objects beyond the shelves, the count, and the
//! queue of waiters.

use crate::sync::thread;
use std::collections::VecDeque;
use std::task::Waker;

/// A way to wake a thread or task that waits for an object.
pub(super) enum Wakeup {
    Thread(thread::Thread),
    Task(Waker),
}

impl Wakeup {
    /// Wakes the waiter. May run user code, and panic.
    pub(super) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// The result for a caller.
pub(super) enum Found<T> {
    Idle(T),
    /// The right to create an object, which is counted as created already.
    Room,
}

/// See the module header. The pool's lock guards it.
pub(super) struct Back<T> {
    pub(super) idle: Vec<T>,
    pub(super) created: usize,
    /// Turns here until the pool opens; zero while it is open (object_pool.P3).
    pub(super) turns: usize,
    /// Waiters with their tickets, in the order in which they came (object_pool.P6).
    waiters: VecDeque<(u64, Wakeup)>,
    /// Objects handed to waiters that have left the queue, but have not fetched them yet.
    handed: Vec<(u64, Found<T>)>,
    tickets: u64,
}

impl<T> Back<T> {
    pub(super) fn new() -> Self {
        let (waiters, handed) = (VecDeque::new(), Vec::new());
        Self { idle: Vec::new(), created: 0, turns: 0, waiters, handed, tickets: 0 }
    }

    /// Enters the queue of waiters; returns the ticket.
    pub(super) fn enter(&mut self, wakeup: Wakeup) -> u64 {
        self.tickets += 1;
        self.waiters.push_back((self.tickets, wakeup));
        self.tickets
    }

    /// Hands `found` to the first waiter, which the caller wakes without the lock. Returns `Err` if
    /// there is no waiter.
    pub(super) fn hand(&mut self, found: Found<T>) -> Result<Wakeup, Found<T>> {
        let Some((ticket, wakeup)) = self.waiters.pop_front() else { return Err(found) };
        self.handed.push((ticket, found));
        Ok(wakeup)
    }

    /// Returns what was handed to the ticket.
    pub(super) fn claim(&mut self, ticket: u64) -> Option<Found<T>> {
        let at = self.handed.iter().position(|(owner, _)| *owner == ticket)?;
        Some(self.handed.swap_remove(at).1)
    }

    /// Replaces how the ticket's waiter is woken. Returns the old wakeup.
    pub(super) fn replace(&mut self, ticket: u64, wakeup: Wakeup) -> Option<Wakeup> {
        let waiter = self.waiters.iter_mut().find(|(owner, _)| *owner == ticket)?;
        Some(std::mem::replace(&mut waiter.1, wakeup))
    }

    /// Takes the ticket out of the queue.
    pub(super) fn leave(&mut self, ticket: u64) -> Option<Wakeup> {
        let at = self.waiters.iter().position(|(owner, _)| *owner == ticket)?;
        Some(self.waiters.remove(at)?.1)
    }

    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }
}
