//! A table of pointers by slot, for parts that are allocated one by one.
//!
//! Owns: the pointers. What they lead to, and when it is freed, is the table's owner's affair.

use super::segmented::Lazy;
use crate::config;
use crate::sync::AtomicPtr;
use std::ptr;

/// The number of slots whose parts are reached without a load of a segment.
pub(crate) const NEAR: usize = 1 << config::SEGMENT_BITS;

/// A pointer to a slot's part of something; null until the slot's first use of it.
pub(crate) struct SlotPtr<P>(pub(crate) AtomicPtr<P>);

impl<P> From<usize> for SlotPtr<P> {
    fn from(_: usize) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }
}

/// The parts of all slots. The first `N`, which are nearly all in use, are one load away.
pub(crate) struct SlotTable<P, const N: usize = NEAR> {
    pub(crate) near: [SlotPtr<P>; N],
    far: Lazy<SlotPtr<P>>,
}

impl<P, const N: usize> SlotTable<P, N> {
    pub(crate) fn new() -> Self {
        Self { near: std::array::from_fn(SlotPtr::from), far: Lazy::new() }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> Option<&SlotPtr<P>> {
        self.near.get(index).or_else(|| self.far.get(index))
    }

    pub(crate) fn get_or_init(&self, index: usize) -> &SlotPtr<P> {
        self.near.get(index).unwrap_or_else(|| self.far.get_or_init(index))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &SlotPtr<P>)> {
        self.near.iter().enumerate().chain(self.far.iter())
    }
}
