//! Events on their way to a receiver that polls for single events: it takes them without the
//! senders' lock.
//!
//! Owns: [`Ring`], a bounded queue between the holder of the cold object's lock and the holder of
//! the receivers' lock. Law event_queue.Q10 of the parent module.

use crate::collections::Line;
use crate::config::SMALL;
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, model_failed, seeded_bug};
use std::fmt;
use std::mem::MaybeUninit;

/// Bytes of a ring with small events.
const BYTES: usize = 2048;
/// Fewest and most places of a ring, whatever the size of its events. More places than events that
/// come while a receiver takes one are of no use.
const PLACES: (usize, usize) = if SMALL { (1, RING_MAX) } else { (4, RING_MAX) };
pub(super) const RING_MAX: usize = if SMALL { 1 } else { 64 };

/// See the module header.
pub(super) struct Ring<E> {
    /// Number of events taken so far. Written by receivers; a sender reads it when the ring seems
    /// full.
    taken: Line<AtomicUsize>,
    slots: Box<[Slot<E>]>,
}

/// A place. The number and a small event share a line, so a receiver that sees the number has the
/// event. (Without the alignment, every third place of events of 16 bytes would be in two lines.)
#[repr(align(32))]
struct Slot<E> {
    /// Number of its latest event, from 1.
    number: AtomicUsize,
    event: UnsafeCell<MaybeUninit<E>>,
}

/// The senders' end: guarded by the object's lock.
#[derive(Debug, Default)]
pub(super) struct RingTail {
    /// Number of events put in so far.
    put: usize,
    /// Value of `taken` when a sender looked last.
    seen: usize,
}

impl RingTail {
    /// Returns the number of events in the ring, at most.
    pub(super) fn len_most(&self) -> usize {
        self.put - self.seen
    }
}

// SAFETY: event_queue.Q10 - an event is reached by one thread at a time, which moves it (`Send`).
unsafe impl<E: Send> Sync for Ring<E> {}
// SAFETY: owned data.
unsafe impl<E: Send> Send for Ring<E> {}

impl<E> Ring<E> {
    pub(super) fn new() -> Self {
        let places = (BYTES / size_of::<Slot<E>>()).clamp(PLACES.0, PLACES.1);
        let slot =
            |_| Slot { number: AtomicUsize::new(0), event: UnsafeCell::new(MaybeUninit::uninit()) };
        let slots = (0..1_usize << places.ilog2()).map(slot).collect();
        Self { taken: Line(AtomicUsize::new(0)), slots }
    }

    fn slot(&self, place: usize) -> &Slot<E> {
        &self.slots[place & (self.slots.len() - 1)]
    }

    /// Returns the number of events taken so far.
    fn taken(&self) -> usize {
        // ORDER: Acquire; pairs with Release in `take`: those events have been moved.
        self.taken.0.load(Ordering::Acquire)
    }

    /// Puts an event in, or returns it if there is no place. The caller has the object's lock.
    #[inline]
    pub(super) fn put(&self, tail: &mut RingTail, event: E) -> Result<(), E> {
        if tail.len_most() == self.slots.len() {
            // BUG: an event is put over one that was not taken (event_queue.Q10).
            if self.len(tail) == self.slots.len() && !seeded_bug!("ring-overrun") {
                return Err(event);
            }
        }
        let slot = self.slot(tail.put);
        slot.event.with_mut(|place| {
            // SAFETY: event_queue.Q10 - the place's last event was taken, as `seen` says, and the
            // object's lock keeps other senders out.
            unsafe { (*place).write(event) };
        });
        tail.put += 1;
        // ORDER: Release; pairs with `take`: the event before its number.
        slot.number.store(tail.put, Ordering::Release);
        Ok(())
    }

    /// Returns the number of events in the ring, or more if some were taken since. The caller has
    /// the object's lock.
    pub(super) fn len(&self, tail: &mut RingTail) -> usize {
        tail.seen = self.taken();
        tail.len_most()
    }

    /// Returns the number of events taken, and whether the next event is here. The caller has the
    /// receivers' lock.
    fn next(&self) -> (usize, bool) {
        // ORDER: Relaxed; written under the lock that the caller holds.
        let taken = self.taken.0.load(Ordering::Relaxed);
        // ORDER: Acquire; pairs with Release in `put`.
        (taken, self.slot(taken).number.load(Ordering::Acquire) == taken + 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.next().1
    }

    /// Returns true if there are more than `than` events. The caller has the receivers' lock.
    #[cold]
    pub(super) fn has_more(&self, than: usize) -> bool {
        // ORDER: Relaxed; as in `next`.
        let at = self.taken.0.load(Ordering::Relaxed).wrapping_add(than);
        // ORDER: Acquire; as in `next`. They are put in one behind the other.
        than < self.slots.len() && self.slot(at).number.load(Ordering::Acquire) == at + 1
    }

    /// Takes the next event, if it is here. The caller has the receivers' lock.
    #[inline]
    pub(super) fn take(&self) -> Option<E> {
        let (taken, true) = self.next() else { return None };
        let event = self.slot(taken).event.with_mut(|place| {
            // SAFETY: event_queue.Q10 - its number says that the event is here. No sender writes to
            // the place before `taken` says that the event is gone. The receivers' lock keeps other
            // receivers out, so this is done once for each event.
            unsafe { (*place).assume_init_read() }
        });
        // ORDER: Release; pairs with `taken`: the move before the next event at this place.
        self.taken.0.store(taken + 1, Ordering::Release);
        Some(event)
    }
}

impl<E> Drop for Ring<E> {
    fn drop(&mut self) {
        if !model_failed() {
            std::iter::from_fn(|| self.take()).for_each(drop);
        }
    }
}

impl<E> fmt::Debug for Ring<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("places", &self.slots.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn full_ring_gives_the_event_back_and_the_rest_comes_in_order_once() {
        let (ring, mut tail) = (Ring::<(usize, Arc<()>)>::new(), RingTail::default());
        let shared = Arc::new(());
        let places = ring.slots.len();
        assert_eq!(places, 64);
        for round in 0..3 {
            for number in 0..places {
                assert!(ring.put(&mut tail, (number, Arc::clone(&shared))).is_ok());
            }
            assert!(ring.put(&mut tail, (places, Arc::clone(&shared))).is_err());
            assert_eq!((ring.len(&mut tail), Arc::strong_count(&shared)), (places, places + 1));
            let left = if round < 2 { 0 } else { 3 };
            assert!((0..places - left).all(|number| ring.take().unwrap().0 == number));
            assert_eq!(ring.is_empty(), left == 0);
        }
        drop(ring);
        assert_eq!(Arc::strong_count(&shared), 1, "a ring loses what is in it");
    }

    #[test]
    fn ring_of_large_events_is_short() {
        assert_eq!(Ring::<[u8; 4096]>::new().slots.len(), 4);
        assert_eq!(Ring::<[u8; 100]>::new().slots.len(), 16);
    }
}
