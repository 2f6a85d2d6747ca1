//! The library's counter.

use crossbeam_utils::CachePadded;
use manycore::collections::Counter;

use super::{CounterHandle, CounterImpl};

/// With the defaults: one word until threads contend for it.
pub(super) struct Auto(CachePadded<Counter>);

impl CounterImpl for Auto {
    type Handle<'a> = &'a Counter;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(Counter::new(0)))
    }

    fn handle(&self, _: usize) -> &Counter {
        &self.0
    }
}

/// Told from the start to count per thread.
pub(super) struct Promoted(CachePadded<Counter>);

impl CounterImpl for Promoted {
    type Handle<'a> = &'a Counter;

    fn new(_: usize) -> Self {
        let counter = Counter::new(0);
        counter.promote();
        Self(CachePadded::new(counter))
    }

    fn handle(&self, _: usize) -> &Counter {
        &self.0
    }
}

impl CounterHandle for &Counter {
    #[inline]
    fn add(&mut self, n: u64) {
        Counter::add(self, n.cast_signed());
    }

    fn read(&mut self) -> u64 {
        self.sum().cast_unsigned()
    }
}
