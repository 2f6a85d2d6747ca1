//! The library's ways to reach an object.

use std::sync::Arc;

use manycore::cluster::{Clustered, Family, Placement, Rep, Swappable};

use super::{Adder, Step, Turner, WayImpl, any};

/// A representative: an implementation of its own.
struct Near(Box<dyn Step>);

impl Rep for Near {
    type Root = u64;

    fn create(add: &u64, _place: usize) -> Self {
        Self(any(*add))
    }
}

/// One for each thread.
pub(super) struct PerThread(Clustered<Near>);

impl WayImpl for PerThread {
    fn new(add: u64) -> Self {
        Self(Clustered::new(Placement::PerThread, add))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.with(|near| near.0.step(number))
    }
}

/// One for each last-level cache.
pub(super) struct PerLlc(Clustered<Near>);

impl WayImpl for PerLlc {
    fn new(add: u64) -> Self {
        Self(Clustered::new(Placement::PerLlc, add))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.with(|near| near.0.step(number))
    }
}

/// The interface, exchangeable.
trait Exchanged: Step + Family<Part = u64> {}
impl Exchanged for Adder {}
impl Exchanged for Turner {}

macro_rules! stateless {
    ($type:ty) => {
        impl Family for $type {
            type Part = u64;

            fn export(&self, _part: usize) -> u64 {
                0
            }

            fn import(&self, _nothing: u64) {}
        }
    };
}
stateless!(Adder);
stateless!(Turner);

/// May be exchanged.
pub(super) struct Exchangeable(Swappable<dyn Exchanged>);

impl WayImpl for Exchangeable {
    fn new(add: u64) -> Self {
        let first: Arc<dyn Exchanged> = if std::hint::black_box(add) > 0 {
            Arc::new(Adder(add))
        } else {
            Arc::new(Turner(add))
        };
        Self(Swappable::new(first))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.call(|object| object.step(number))
    }
}
