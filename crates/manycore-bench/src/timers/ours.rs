//! The library's queue of timers.

use manycore::{
    collections::{Timer, TimerQueue},
    ldu::Queue,
};

use super::{TimersHandle, TimersImpl};

/// With the defaults.
pub(super) struct PerThread(TimerQueue<u64>);

impl TimersImpl for PerThread {
    type Handle<'a> = &'a TimerQueue<u64>;

    fn new() -> Self {
        Self(TimerQueue::new())
    }

    fn handle(&self) -> &TimerQueue<u64> {
        &self.0
    }
}

/// With one queue of changes for all.
pub(super) struct Global(TimerQueue<u64>);

impl TimersImpl for Global {
    type Handle<'a> = &'a TimerQueue<u64>;

    fn new() -> Self {
        Self(TimerQueue::with_queue(Queue::Global))
    }

    fn handle(&self) -> &TimerQueue<u64> {
        &self.0
    }
}

impl<'a> TimersHandle for &'a TimerQueue<u64> {
    type Timer = Timer<'a, u64>;

    #[inline]
    fn insert(&mut self, deadline: u64, number: u64) -> Timer<'a, u64> {
        TimerQueue::insert(self, deadline, number)
    }

    #[inline]
    fn cancel(&mut self, timer: Timer<'a, u64>) -> bool {
        timer.cancel().is_some()
    }

    fn advance(&mut self, now: u64, mut f: impl FnMut(u64)) {
        TimerQueue::advance(self, now).into_iter().for_each(|(_, number)| f(number));
    }
}
