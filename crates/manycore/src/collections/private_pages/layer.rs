//! A layer: the pages that a view has written between two forks. Laws private_pages.F1,
//! private_pages.F3 and private_pages.F5.
//!
//! Owns: [`Layer`], a table to which frames are only added. Readers take no lock. When an array is
//! full, an array of twice the size follows it, and the old one stays until the layer goes. All old
//! arrays together are less than half as large as the newest.

use super::super::reentrancy_lock::ReentrancyLock;
use super::frame::Frame;
use crate::config::{LAYER_SLOTS, SMALL};
use crate::percpu::barrier;
use crate::section::{Owned, Section, Weight};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, drop_each, seeded_bug};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Frames by key, with linear probing. In the newest array, each slot that is not null owns a
/// reference.
struct Array<K, P> {
    slots: Box<[AtomicPtr<Frame<K, P>>]>,
}

impl<K, P> Array<K, P> {
    /// Makes an array; `slots` is a power of two.
    fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect() }
    }

    /// Returns the slot of the frame for which `is_it` returns true, or else the slot for a new
    /// frame.
    #[inline]
    fn seek(&self, hash: u64, is_it: impl Fn(&Frame<K, P>) -> bool) -> (usize, *mut Frame<K, P>) {
        // Multiplication (Fibonacci hashing) spreads the bits, because the hasher may be a weak
        // one.
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut at = spread as usize & (self.slots.len() - 1);
        loop {
            // ORDER: Acquire; pairs with Release in `Layer::put`: the frame before its slot.
            let frame = self.slots[at].load(Ordering::Acquire);
            // SAFETY: null, or a frame that the caller's section or lock keeps (private_pages.F6).
            match unsafe { frame.as_ref() } {
                Some(other) if other.hash != hash || !is_it(other) => {}
                _ => return (at, frame),
            }
            at = (at + 1) & (self.slots.len() - 1); // half of the slots are free
        }
    }
}

/// A frame that another frame has replaced.
type Old<K, P> = Option<Arc<Frame<K, P>>>;

/// The pages that a view wrote between two forks, and the pages of layers joined with it.
pub(super) struct Layer<K, P> {
    /// The newest array; null before the first frame.
    array: AtomicPtr<Array<K, P>>,
    frames: AtomicUsize,
    /// Not zero once the layer is frozen.
    frozen: AtomicUsize,
    /// Number of views with this layer in their chain (private_pages.F5).
    views: AtomicUsize,
    /// All arrays, the newest last. Locked to add a frame.
    arrays: ReentrancyLock<Vec<NonNull<Array<K, P>>>>,
    _owns: PhantomData<Arc<Frame<K, P>>>,
}

// SAFETY: threads share frames, whose parts are `Send` and `Sync` then, and the last one drops
// them; arrays are changed by atomics, the list of them under its lock.
unsafe impl<K: Send + Sync, P: Send + Sync> Sync for Layer<K, P> {}
// SAFETY: any thread may drop a layer, and with it the last reference to a frame, whose parts are
// `Send` and `Sync` then; no field belongs to a thread.
unsafe impl<K: Send + Sync, P: Send + Sync> Send for Layer<K, P> {}

impl<K, P> Layer<K, P> {
    /// Makes an empty layer that belongs to a single view.
    pub(super) fn new(frozen: bool) -> Self {
        Self {
            array: AtomicPtr::new(ptr::null_mut()),
            frames: AtomicUsize::new(0),
            frozen: AtomicUsize::new(usize::from(frozen)),
            views: AtomicUsize::new(1),
            arrays: ReentrancyLock::new(Vec::new()),
            _owns: PhantomData,
        }
    }

    /// Returns the number of frames: all that were added, or found, before, and perhaps some that
    /// are just being added (private_pages.F8).
    pub(super) fn len(&self) -> usize {
        // ORDER: Acquire; pairs with Release in `put`.
        self.frames.load(Ordering::Acquire)
    }

    /// Freezes the layer: no write begins in it any more (private_pages.F3).
    pub(super) fn freeze(&self) {
        // ORDER: a full fence after the store; pairs with the one in `Frame::write` between the
        // lock and the look here. Either the writer sees this store, or a thread that finds the
        // layer frozen, after the fence, sees the lock.
        // BUG: a layer is frozen with no fence after it (private_pages.F3).
        if seeded_bug!("unfenced-freeze") {
            self.frozen.store(1, Ordering::Release);
        } else {
            barrier::swap_full(&self.frozen, 1);
        }
    }

    #[inline]
    pub(super) fn is_frozen(&self) -> bool {
        // ORDER: Relaxed; the fences decide (private_pages.F3).
        self.frozen.load(Ordering::Relaxed) != 0
    }

    pub(super) fn add_view(&self) {
        // ORDER: Relaxed; by a view that has the layer, which is counted.
        let views = self.views.fetch_add(1, Ordering::Relaxed);
        debug_assert!(views > 0, "private_pages.F5: a layer that no view has gets one");
    }

    pub(super) fn drop_view(&self) {
        // ORDER: Release; pairs with Acquire in `is_sole`.
        let views = self.views.fetch_sub(1, Ordering::Release);
        debug_assert!(views > 0, "private_pages.F5: a layer is given up by no view");
    }

    /// Returns true if only one view has the layer. If that view asks under its lock for forks, the
    /// answer stays true.
    pub(super) fn is_sole(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `drop_view`: what other views read here came
        // before.
        self.views.load(Ordering::Acquire) == 1
    }

    #[inline]
    fn newest(&self) -> Option<&Array<K, P>> {
        // ORDER: Acquire; pairs with Release in `room`.
        // SAFETY: null, or one of the layer's arrays, which it keeps.
        unsafe { self.array.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the key's frame.
    #[inline]
    pub(super) fn get<'s>(
        &'s self,
        hash: u64,
        key: &K,
        _section: &'s Section<'_>,
    ) -> Option<&'s Frame<K, P>>
    where
        K: Eq,
    {
        let (_, frame) = self.newest()?.seek(hash, |frame| frame.key == *key);
        // SAFETY: null, or a frame that the layer keeps, or that goes after the section
        // (private_pages.F6).
        unsafe { frame.as_ref() }
    }

    /// Calls `f` with every frame that is there during the whole call, once.
    pub(super) fn for_each(&self, mut f: impl FnMut(&Arc<Frame<K, P>>)) {
        let slots = self.newest().map_or(&[][..], |array| &array.slots);
        for slot in slots {
            // ORDER: Acquire; as in `seek`.
            let frame = slot.load(Ordering::Acquire);
            if !frame.is_null() {
                // SAFETY: from an `Arc`, whose reference the section keeps (private_pages.F6); not
                // given up here.
                let frame = std::mem::ManuallyDrop::new(unsafe { Arc::from_raw(frame) });
                f(&frame);
            }
        }
    }

    /// Returns an array in which `more` further frames leave half of the slots free. `arrays` is
    /// the list.
    fn room<'a>(&'a self, arrays: &mut Vec<NonNull<Array<K, P>>>, more: usize) -> &'a Array<K, P> {
        let last = self.newest();
        let slots = 2 * (self.len() + more);
        if let Some(array) = last.filter(|array| slots <= array.slots.len()) {
            return array;
        }
        let next = Array::new(slots.next_power_of_two().max(LAYER_SLOTS));
        self.for_each(|frame| {
            let (at, _) = next.seek(frame.hash, |_| false);
            // ORDER: Relaxed; the array is not published yet. The reference goes along.
            next.slots[at].store(Arc::as_ptr(frame).cast_mut(), Ordering::Relaxed);
        });
        arrays.reserve(1);
        let next = NonNull::from(Box::leak(Box::new(next)));
        arrays.push(next);
        // ORDER: Release; pairs with Acquire in `newest`.
        self.array.store(next.as_ptr(), Ordering::Release);
        // SAFETY: the layer keeps its arrays.
        unsafe { next.as_ref() }
    }

    /// Adds the frame to the newest array, which has room. If the key has a frame, replaces it if
    /// `replace` is true. Returns the frame that is there now, and the one that was replaced. The
    /// caller holds the lock.
    fn put(
        &self,
        array: &Array<K, P>,
        frame: &Arc<Frame<K, P>>,
        replace: bool,
    ) -> (*const Frame<K, P>, Old<K, P>)
    where
        K: Eq,
    {
        let (at, found) = array.seek(frame.hash, |other| other.key == frame.key);
        if !found.is_null() && (!replace || ptr::eq(found, Arc::as_ptr(frame))) {
            return (found, None);
        }
        let raw = Arc::into_raw(Arc::clone(frame)).cast_mut();
        // ORDER: Release; pairs with Acquire in `len`. Under the lock.
        let count = || {
            let frames = self.len() + 1;
            debug_assert!(
                2 * frames <= array.slots.len(),
                "private_pages.F8: {frames} frames in {} slots",
                array.slots.len()
            );
            self.frames.store(frames, Ordering::Release);
        };
        // BUG: a layer of private pages counts a frame when it can be found already
        // (private_pages.F8).
        let is_late = seeded_bug!("late-frame-count");
        if found.is_null() && !is_late {
            count(); // private_pages.F8
        }
        // ORDER: Release; pairs with Acquire in `seek`: the frame, and that it is counted.
        array.slots[at].store(raw, Ordering::Release);
        if found.is_null() && is_late {
            count();
        }
        if found.is_null() {
            return (raw, None);
        }
        // SAFETY: the slot's reference, which the slot has no more.
        (raw, Some(unsafe { Arc::from_raw(found) }))
    }

    /// Adds the frame, unless the key has one. Returns the key's frame.
    pub(super) fn insert<'s>(
        &'s self,
        frame: &Arc<Frame<K, P>>,
        _section: &'s Section<'_>,
    ) -> &'s Frame<K, P>
    where
        K: Eq,
    {
        let mut arrays = self.arrays.hold();
        let array = self.room(&mut arrays, 1);
        let (there, _) = self.put(array, frame, false);
        // SAFETY: in the layer, which keeps it, or it goes after the section (private_pages.F6).
        unsafe { &*there }
    }

    /// Takes in the frames of another layer. Calls `out` with each frame that was replaced.
    fn take(&self, other: &Self, replace: bool, mut out: impl FnMut(Arc<Frame<K, P>>))
    where
        K: Eq,
    {
        let mut arrays = self.arrays.hold();
        self.room(&mut arrays, other.len());
        other.for_each(|frame| {
            let array = self.room(&mut arrays, 1);
            if let (_, Some(old)) = self.put(array, frame, replace) {
                out(old);
            }
        });
    }

    /// Takes in the frames of a layer below.
    pub(super) fn take_from_below(&self, older: &Self)
    where
        K: Eq,
    {
        self.take(older, false, drop);
    }

    /// Takes in the frames of a layer above; its pages replace those of this layer.
    pub(super) fn take_from_above(&self, younger: &Self, section: &Section<'_>)
    where
        K: Eq + Send + Sync,
        P: Send + Sync,
    {
        self.take(younger, true, |old| {
            let old = Owned::new(old).into_shared(section);
            // SAFETY: unlinked just now, and linked nowhere by this pointer; readers that found the
            // frame here have sections of the same domain, which is not bounded.
            unsafe { section.retire_quietly(old, Weight::of::<P>()) };
        });
    }
}

impl<K, P> Drop for Layer<K, P> {
    fn drop(&mut self) {
        let mut frames = Vec::with_capacity(self.len());
        // SAFETY: the slot's reference; the layer is not reachable any more.
        self.for_each(|frame| frames.push(unsafe { Arc::from_raw(Arc::as_ptr(frame)) }));
        debug_assert!(
            SMALL || frames.len() == self.len(),
            "private_pages.F8: {} frames, of which {} are counted",
            frames.len(),
            self.len()
        );
        self.arrays.with(|arrays| {
            for array in arrays.drain(..) {
                // SAFETY: leaked by `room`, and used no more.
                drop(unsafe { Box::from_raw(array.as_ptr()) });
            }
        });
        drop_each(frames);
    }
}
