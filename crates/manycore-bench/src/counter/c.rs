//! The library's counter as C programs use it.

use std::cell::UnsafeCell;

use crossbeam_utils::CachePadded;
// The functions behind the headers that `c/objects.c` includes.
use manycore_capi as _;

use super::{CounterHandle, CounterImpl};

/// `struct mc_counter`, all zero at first.
type Raw = UnsafeCell<[u64; 2]>;

unsafe extern "C" {
    fn manycore_c_counter_add(counter: *mut [u64; 2], n: i64);
    fn manycore_c_counter_sum(counter: *mut [u64; 2]) -> i64;
    fn mc_counter_destroy(counter: *mut [u64; 2]);
}

/// `mc_counter`, by a function of C's for each operation.
pub(super) struct FromC(CachePadded<Raw>);

// SAFETY: the words are changed by the functions of C alone, which any thread may call at a time.
unsafe impl Sync for FromC {}

impl CounterImpl for FromC {
    type Handle<'a> = &'a Self;

    fn new(_: usize) -> Self {
        Self(CachePadded::new(UnsafeCell::new([0; 2])))
    }

    fn handle(&self, _: usize) -> &Self {
        self
    }
}

impl Drop for FromC {
    fn drop(&mut self) {
        // SAFETY: initialized by zeros, and no other thread has access.
        unsafe { mc_counter_destroy(self.0.get()) };
    }
}

impl CounterHandle for &FromC {
    #[inline]
    fn add(&mut self, n: u64) {
        // SAFETY: initialized by zeros, and destroyed with `self`.
        unsafe { manycore_c_counter_add(self.0.get(), n.cast_signed()) };
    }

    fn read(&mut self) -> u64 {
        // SAFETY: initialized by zeros, and destroyed with `self`.
        unsafe { manycore_c_counter_sum(self.0.get()) }.cast_unsigned()
    }
}
