//! What all threads share of a pool: idle objects beyond the shelves, the count, and the queue of
//! those that wait.

use crate::sync::thread;
use std::collections::VecDeque;
use std::task::Waker;

/// How a thread or task that waits for an object is woken.
pub(super) enum Wakeup {
    Thread(thread::Thread),
    Task(Waker),
}

impl Wakeup {
    /// May run user code, and panic.
    pub(super) fn wake(self) {
        match self {
            Self::Thread(thread) => thread.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}

/// What a caller gets.
pub(super) enum Found<T> {
    Idle(T),
    /// The right to create one more, which is counted as created already.
    Room,
}

/// See the module header. The pool's lock is around it.
pub(super) struct Back<T> {
    pub(super) idle: Vec<T>,
    pub(super) created: usize,
    /// Turns here until the pool opens; zero while it is open (object_pool.P3).
    pub(super) turns: usize,
    /// In the order of their coming, by their tickets (object_pool.P6).
    waiters: VecDeque<(u64, Wakeup)>,
    /// What those got that are no longer in the queue, and have not come for it.
    handed: Vec<(u64, Found<T>)>,
    tickets: u64,
}

impl<T> Back<T> {
    pub(super) fn new() -> Self {
        let (waiters, handed) = (VecDeque::new(), Vec::new());
        Self { idle: Vec::new(), created: 0, turns: 0, waiters, handed, tickets: 0 }
    }

    /// Enters the queue of those that wait; returns the ticket.
    pub(super) fn enter(&mut self, wakeup: Wakeup) -> u64 {
        self.tickets += 1;
        self.waiters.push_back((self.tickets, wakeup));
        self.tickets
    }

    /// Hands it to the first that waits, which is to be woken without the lock; `Err` if none does.
    pub(super) fn hand(&mut self, found: Found<T>) -> Result<Wakeup, Found<T>> {
        let Some((ticket, wakeup)) = self.waiters.pop_front() else { return Err(found) };
        self.handed.push((ticket, found));
        Ok(wakeup)
    }

    /// What was handed to the ticket.
    pub(super) fn claim(&mut self, ticket: u64) -> Option<Found<T>> {
        let at = self.handed.iter().position(|(owner, _)| *owner == ticket)?;
        Some(self.handed.swap_remove(at).1)
    }

    /// Has the ticket's waiter woken by `wakeup` from now on; the one before comes back.
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
