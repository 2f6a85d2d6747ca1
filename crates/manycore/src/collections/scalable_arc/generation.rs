//! Generations: a reader checks that the object did not change between its look at it and taking
//! the handle. Law scalable_arc.A8.
//!
//! Source: OpLog, section 3 (`stat`: the generation of a directory entry is read, the count is
//! taken, the generation is checked); the sequence lock of Linux.

use super::{ScalableArc, ScalableWeak};
use crate::sync::{AtomicU64, Backoff, Ordering, fence, seeded_bug};

/// A change in progress; dropping this ends it.
struct Changing<'a> {
    generation: &'a AtomicU64,
    odd: u64,
}

impl<'a> Changing<'a> {
    fn begin(generation: &'a AtomicU64) -> Self {
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the exchange decides.
            let seen = generation.load(Ordering::Relaxed);
            // ORDER: Acquire; pairs with Release in `drop`: one change after the other.
            if seen % 2 == 0
                && generation
                    .compare_exchange(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                // ORDER: Release; pairs with the fence in `is_still`: a reader that has read any
                // part of the change finds the generation odd or greater.
                fence(Ordering::Release);
                return Self { generation, odd: seen + 1 };
            }
            backoff.pause();
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        debug_assert!(self.odd % 2 == 1, "scalable_arc.A8: a change that has not begun ends");
        // ORDER: Release; pairs with Acquire in `read`: a reader of this generation reads what the
        // change wrote.
        self.generation.store(self.odd + 1, Ordering::Release);
    }
}

fn read(generation: &AtomicU64) -> u64 {
    // ORDER: Acquire; pairs with Release in `Changing::drop`.
    generation.load(Ordering::Acquire)
}

/// Whether nothing has changed since `then` was read, so that all loads in between are consistent
/// with each other (scalable_arc.A8).
fn is_still(generation: &AtomicU64, then: u64) -> bool {
    // ORDER: Acquire; pairs with the fence in `Changing::begin`: the loads before the fence come
    // before the second load of the generation.
    fence(Ordering::Acquire);
    // ORDER: Relaxed; behind the fence.
    let now = generation.load(Ordering::Relaxed);
    // BUG: a handle is taken whatever the object's generation has become (scalable_arc.A8).
    then % 2 == 0 && (now == then || seeded_bug!("unchecked-generation"))
}

impl<T: ?Sized> ScalableArc<T> {
    /// The object's current generation: see [`ScalableWeak::try_acquire`]. Odd while it is being
    /// [changed](Self::change). The first call allocates, as [`downgrade`](Self::downgrade) does.
    #[must_use]
    pub fn generation(this: &Self) -> u64 {
        read(this.head().generation())
    }

    /// Runs `f`, which changes what the object stands for, such as the renaming of a directory
    /// entry: a thread that looked at it before gets no handle by the old generation.
    ///
    /// What `f` changes must be atomics, in the object or beside it, because other threads read
    /// them concurrently; `Relaxed` is enough on both sides. Consistency: changes of one object are
    /// serialized. Progress: waits for another change of the same object; readers never wait. Cost:
    /// an exchange and a store on a line that readers have to fetch again.
    ///
    /// `f` must not call `change` on the same object: that would deadlock.
    ///
    /// # Panics
    /// If `f` does; the change then counts as complete.
    pub fn change<R>(this: &Self, f: impl FnOnce() -> R) -> R {
        let _changing = Changing::begin(this.head().generation());
        f()
    }

    /// Another handle, if the object's generation is still `generation` after the handle was
    /// counted: see [`ScalableWeak::try_acquire`].
    #[must_use]
    pub fn try_acquire(this: &Self, generation: u64) -> Option<Self> {
        let handle = this.clone();
        is_still(this.head().generation(), generation).then_some(handle)
    }
}

impl<T: ?Sized> ScalableWeak<T> {
    /// The object's current generation, also after its value was dropped. Odd while the object is
    /// being [changed](ScalableArc::change).
    ///
    /// Cost: a load of a line that only changes write.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        read(self.head().generation())
    }

    /// A strong handle, if the value lives, the object has not been [retired](ScalableArc::retire),
    /// and its generation is still `generation`.
    ///
    /// What for: a cache of directory entries. A look-up finds the weak handle in its table, reads
    /// the generation, then name and parent, and takes a handle only of the entry that it has read.
    /// `None`: look up again. An odd generation never yields a handle.
    ///
    /// Consistency: what was read of the object between [`generation`](Self::generation) and this
    /// call is consistent. (It may change as soon as this returns.) Cost and progress: as
    /// [`upgrade`](Self::upgrade); while the object is hot it writes no shared line. Source: OpLog,
    /// section 3.
    ///
    /// ```
    /// use manycore::collections::ScalableArc;
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    ///
    /// let entry = ScalableArc::new(AtomicU64::new(17)); // the hash of its name, say
    /// let cached = ScalableArc::downgrade(&entry);
    ///
    /// let generation = cached.generation();
    /// let found = cached.try_acquire(generation).unwrap();
    /// assert_eq!(found.load(Relaxed), 17);
    ///
    /// ScalableArc::change(&entry, || entry.store(18, Relaxed)); // renamed
    /// assert!(cached.try_acquire(generation).is_none());
    /// assert!(cached.try_acquire(cached.generation()).is_some());
    /// ```
    #[inline]
    #[must_use]
    pub fn try_acquire(&self, generation: u64) -> Option<ScalableArc<T>> {
        let handle = self.upgrade()?;
        is_still(self.head().generation(), generation).then_some(handle)
    }
}
