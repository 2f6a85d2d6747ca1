//! Threads and tasks that wait for an object.
//!
//! Owns: laws object_pool.P5 and object_pool.P6 of the parent module.

use super::back::{Found, Wakeup};
use super::{ObjectPool, Pooled};
use crate::sync::{self, seeded_bug, thread};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

impl<T: Send + 'static> ObjectPool<T> {
    /// Borrows an object, waiting for one if the pool is at its bound and all are lent. Waiters are
    /// served in the order in which they came.
    ///
    /// It waits forever if no object is given back: if the calling thread has them all, or the
    /// bound is zero. A task uses [`get_async`](Self::get_async).
    #[doc(alias = "acquire")]
    pub fn get(&self) -> Pooled<'_, T> {
        self.get_until(None).expect("it waits without a limit")
    }

    /// Borrows an object, waiting at most `timeout`. Returns `None` if none came in time.
    ///
    /// ```
    /// use manycore::collections::ObjectPool;
    /// use std::time::Duration;
    ///
    /// let pool = ObjectPool::new(1, String::new);
    /// let lent = pool.get();
    /// assert!(pool.get_timeout(Duration::from_millis(1)).is_none());
    /// drop(lent);
    /// assert!(pool.get_timeout(Duration::from_millis(1)).is_some());
    /// ```
    pub fn get_timeout(&self, timeout: Duration) -> Option<Pooled<'_, T>> {
        // A deadline beyond the clock's range is no limit.
        self.get_until(Instant::now().checked_add(timeout))
    }

    /// Same as [`get_timeout`](Self::get_timeout), until `deadline`.
    pub fn get_deadline(&self, deadline: Instant) -> Option<Pooled<'_, T>> {
        self.get_until(Some(deadline))
    }

    fn get_until(&self, deadline: Option<Instant>) -> Option<Pooled<'_, T>> {
        if let Some(taken) = self.take() {
            return Some(taken);
        }
        let ticket = match self.find_or_wait(Wakeup::Thread(thread::current())) {
            Ok(found) => return Some(self.lend(found)),
            Err(ticket) => ticket,
        };
        loop {
            // Claims before and after each wait; the last claim takes the ticket back.
            if let Some(found) = self.back(|back| back.claim(ticket)) {
                return Some(self.lend(found));
            }
            if !sync::park_until(deadline) {
                return self.leave(ticket).map(|found| self.lend(found));
            }
        }
    }

    /// Borrows an object in async code. The future waits its turn, and blocks no thread. The task
    /// that gets a new object makes it, within its poll.
    ///
    /// A future that is dropped leaves the queue. If it was its turn, the next waiter is served.
    ///
    /// ```
    /// use manycore::collections::ObjectPool;
    ///
    /// async fn greet(pool: &ObjectPool<String>) -> usize {
    ///     let mut text = pool.get_async().await;
    ///     text.push_str("hello");
    ///     text.len()
    /// }
    /// # let pool = ObjectPool::new(1, String::new);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let mut future = std::pin::pin!(greet(&pool));
    /// # use std::{future::Future, task::Poll};
    /// # assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(5));
    /// ```
    pub fn get_async(&self) -> PoolFuture<'_, T> {
        PoolFuture { pool: self, ticket: None }
    }

    /// Looks everywhere once more, and enters the queue if there is nothing (object_pool.P5).
    fn find_or_wait(&self, wakeup: Wakeup) -> Result<Found<T>, u64> {
        let mut wakeup = Some(wakeup);
        let waits = self.back(|back| {
            if let Some(found) = self.search(back) {
                return Ok(found);
            }
            // BUG: a waiter leaves the pool open (object_pool.P5).
            if !seeded_bug!("unseen-waiter") {
                self.close(back);
            }
            match back.idle.pop() {
                Some(thing) => Ok(Found::Idle(thing)),
                None => Err(back.enter(wakeup.take().expect("it enters once"))),
            }
        });
        sync::contain(|| drop(wakeup)); // user code, so without a lock
        waits
    }

    /// Ends a wait. Returns what was handed over at the same moment.
    fn leave(&self, ticket: u64) -> Option<Found<T>> {
        let (found, wakeup) = self.back(|back| (back.claim(ticket), back.leave(ticket)));
        sync::contain(|| drop(wakeup));
        found
    }
}

/// The future of [`ObjectPool::get_async`].
///
/// See [`ObjectPool::get_async`] for an example.
#[must_use = "futures do nothing unless they are awaited"]
pub struct PoolFuture<'a, T: Send + 'static> {
    pool: &'a ObjectPool<T>,
    /// Ticket, while the future waits.
    ticket: Option<u64>,
}

impl<'a, T: Send + 'static> Future for PoolFuture<'a, T> {
    type Output = Pooled<'a, T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Pooled<'a, T>> {
        let this = &mut *self;
        let pool = this.pool;
        let Some(ticket) = this.ticket else {
            if let Some(taken) = pool.take() {
                return Poll::Ready(taken);
            }
            return match pool.find_or_wait(Wakeup::Task(context.waker().clone())) {
                Ok(found) => Poll::Ready(pool.lend(found)),
                Err(ticket) => {
                    this.ticket = Some(ticket);
                    Poll::Pending
                }
            };
        };
        let wakeup = Wakeup::Task(context.waker().clone());
        let (found, before) = pool.back(|back| match back.claim(ticket) {
            Some(found) => (Some(found), Some(wakeup)),
            None => (None, back.replace(ticket, wakeup)),
        });
        sync::contain(|| drop(before)); // user code, so without a lock
        let Some(found) = found else { return Poll::Pending };
        this.ticket = None;
        Poll::Ready(pool.lend(found))
    }
}

impl<T: Send + 'static> Drop for PoolFuture<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let Some(found) = self.pool.leave(ticket) else { return };
        // BUG: what was handed to a future that is dropped serves no other (object_pool.P6).
        if !seeded_bug!("dropped-turn") {
            self.pool.pass_on(found);
        }
    }
}

impl<T: Send + 'static> fmt::Debug for PoolFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolFuture").field("waits", &self.ticket.is_some()).finish_non_exhaustive()
    }
}
