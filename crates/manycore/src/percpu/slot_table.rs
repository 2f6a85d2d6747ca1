//! Tables of pointers by slot, for parts that are allocated one by one.
//!
//! Owns: the pointers, and the parts of [`SlotBoxes`]. What a [`SlotTable`] leads to, and when that
//! is freed, is up to the table's owner.

use super::segmented::Lazy;
use crate::config;
use crate::sync::{AtomicPtr, Ordering, const_fn, model_failed, run_each};
use std::ptr;

/// Number of slots with parts that are reached without a load of a segment.
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
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(crate) const fn new() -> Self {
        Self { near: [const { SlotPtr(AtomicPtr::new(ptr::null_mut())) }; N], far: Lazy::new() }
    }

    #[cfg(any(manycore_loom, manycore_shuttle))]
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

/// Parts that are boxed when their slots first use them, and dropped with the table. So an object
/// that one thread uses has one part, while a `Segmented` has as many as a segment.
pub(crate) struct SlotBoxes<P>(SlotTable<P, BOXES_NEAR>);

/// (All, in a model: each further load would be a step.)
const BOXES_NEAR: usize = if cfg!(manycore_loom) { 8 } else { NEAR };

impl<P: From<usize>> SlotBoxes<P> {
    const_fn! {
        pub(crate) const fn new() -> Self {
            Self(SlotTable::new())
        }
    }

    /// # Safety
    /// The pointer is one of a table like this, which outlives the part.
    #[inline(always)]
    unsafe fn part<'t>(place: &SlotPtr<P>) -> Option<&'t P> {
        // ORDER: Acquire; pairs with the CAS in `init`: the part before its address.
        // SAFETY: null, or from a box that is freed with the table alone; the caller promises that
        // it outlives the part (# Safety).
        unsafe { place.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the slot's part, if it exists.
    #[inline(always)]
    pub(crate) fn get(&self, slot: usize) -> Option<&P> {
        let place = self.0.get(slot)?;
        // SAFETY: the part is borrowed from the table.
        unsafe { Self::part(place) }
    }

    /// Returns the part, if it exists and the slot is among the first. For a caller that counts
    /// instructions, and otherwise falls back to `get_or_init`.
    #[inline(always)]
    pub(crate) fn get_near(&self, slot: usize) -> Option<&P> {
        let place = self.0.near.get(slot)?;
        // SAFETY: the part is borrowed from the table, which has this place.
        unsafe { Self::part(place) }
    }

    /// Returns the slot's part; makes it if it does not exist.
    #[inline]
    pub(crate) fn get_or_init(&self, slot: usize) -> &P {
        self.get(slot).unwrap_or_else(|| self.init(slot))
    }

    #[cold]
    #[inline(never)]
    fn init(&self, slot: usize) -> &P {
        let made = Box::into_raw(Box::new(P::from(slot)));
        let place = &self.0.get_or_init(slot).0;
        // ORDER: Release publishes the part; Acquire on failure reads the winner's.
        let raced =
            place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        if raced.is_err() {
            // SAFETY: made above, and shared with no other thread.
            drop(unsafe { Box::from_raw(made) });
        }
        self.get(slot).expect("the part was just published")
    }

    /// Iterates over every part that exists, with its slot, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &P)> {
        // SAFETY: the places are this table's, and the parts are borrowed from it.
        self.0.iter().filter_map(|(slot, place)| Some((slot, unsafe { Self::part(place) }?)))
    }
}

impl<P> Drop for SlotBoxes<P> {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        // ORDER: Relaxed; `&mut self` proves that every publisher is done.
        run_each(self.0.iter().map(|(_, place)| place.0.load(Ordering::Relaxed)), |part| {
            if !part.is_null() {
                // SAFETY: from a box of `init`, and used by no other thread any more.
                drop(unsafe { Box::from_raw(part) });
            }
        });
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicUsize, thread};
    use std::sync::Barrier;

    #[test]
    fn each_slot_has_one_part_whoever_comes_first_and_all_are_dropped() {
        static ALIVE: AtomicUsize = AtomicUsize::new(0);
        struct Part(usize);
        impl From<usize> for Part {
            fn from(slot: usize) -> Self {
                ALIVE.fetch_add(1, Ordering::SeqCst);
                Self(slot)
            }
        }
        impl Drop for Part {
            fn drop(&mut self) {
                ALIVE.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let slots = [0, 1, NEAR - 1, NEAR, 3 * NEAR + 1];
        let boxes = SlotBoxes::<Part>::new();
        assert!(slots.iter().all(|slot| boxes.get(*slot).is_none()));
        let both = Barrier::new(2);
        let found = || {
            both.wait();
            slots.map(|slot| ptr::from_ref(boxes.get_or_init(slot)).addr())
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(found);
            (found(), other.join().unwrap())
        });
        assert_eq!(one, other, "two threads have found different parts of a slot");
        let all: Vec<_> = boxes.iter().map(|(slot, part)| (slot, part.0)).collect();
        assert_eq!(all, slots.map(|slot| (slot, slot)));
        assert!(boxes.get_near(NEAR).is_none() && boxes.get(NEAR).is_some());
        assert_eq!(ALIVE.load(Ordering::SeqCst), slots.len());
        drop(boxes);
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0);
    }
}
