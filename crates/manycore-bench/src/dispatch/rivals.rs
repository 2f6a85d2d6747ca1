//! The usual ways to reach an object.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError, RwLock},
};

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;

use super::{Adder, Step, WayImpl, any};

/// The baseline: the implementation is known.
pub(super) struct Direct(Adder);

impl WayImpl for Direct {
    fn new(add: u64) -> Self {
        Self(Adder(black_box(add)))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.step(number)
    }
}

/// Through its table of methods.
pub(super) struct Virtual(Box<dyn Step>);

impl WayImpl for Virtual {
    fn new(add: u64) -> Self {
        Self(any(add))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.step(number)
    }
}

/// arc-swap.
pub(super) struct Swapped(ArcSwap<Box<dyn Step>>);

impl WayImpl for Swapped {
    fn new(add: u64) -> Self {
        Self(ArcSwap::from_pointee(any(add)))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.load().step(number)
    }
}

/// std's read-write lock.
pub(super) struct StdRwLock(CachePadded<RwLock<Box<dyn Step>>>);

impl WayImpl for StdRwLock {
    fn new(add: u64) -> Self {
        Self(CachePadded::new(RwLock::new(any(add))))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).step(number)
    }
}

/// std's mutex.
pub(super) struct StdMutex(CachePadded<Mutex<Box<dyn Step>>>);

impl WayImpl for StdMutex {
    fn new(add: u64) -> Self {
        Self(CachePadded::new(Mutex::new(any(add))))
    }

    #[inline]
    fn step(&self, number: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).step(number)
    }
}
