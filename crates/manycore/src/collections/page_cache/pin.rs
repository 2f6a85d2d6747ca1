//! Constructors of the cache; pinning and loading its pages. Laws page_cache.G1, page_cache.G5 and
//! page_cache.G7.

use super::super::DHashBuilder;
use super::super::dhash::{Lookup, Tag};
use super::super::owned::{Kept, Owner};
use super::super::reentrancy_lock::ReentrancyLock;
use super::room::Room;
use super::{
    Counted, CountedOf, Flight, Frame, OwnedPinned, PageCache, PageStore, PinError, Pinned, State,
};
use crate::cluster::Placement;
use crate::sync::{AtomicUsize, prefetch, seeded_bug};
use std::hash::BuildHasher;
use std::ptr;
use std::sync::Arc;

impl<T: PageStore> PageCache<T> {
    /// Makes an empty cache of at most `pages_max` pages. It gets a table for each thread once
    /// threads wait for each other.
    #[must_use]
    pub fn new(store: T, pages_max: usize) -> Self {
        Self::with_builder(store, pages_max, DHashBuilder::new())
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PageCache<T, S> {
    /// Makes an empty cache with this placement of its tables and this hasher.
    #[must_use]
    pub fn with_hasher(store: T, pages_max: usize, placement: Placement, hasher: S) -> Self {
        let builder = DHashBuilder::new().placement(placement).hasher(hasher);
        Self::with_builder(store, pages_max, builder)
    }

    /// Makes an empty cache with a table of descriptors made by this builder.
    #[must_use]
    pub fn with_builder(store: T, pages_max: usize, table: DHashBuilder<S>) -> Self {
        Self { pages: table.build(), room: ReentrancyLock::new(Room::new(pages_max)), store }
    }

    /// Pins the page, and loads it if it is not there. The page stays until the returned pin is
    /// dropped.
    ///
    /// # Errors
    /// [`PinError::Store`] if this call's load failed, or a write-back that should make room. (A
    /// failed load fails only its own caller.) [`PinError::Full`] if all pages are in use.
    ///
    /// # Panics
    /// If the store does, or from within the load of this page.
    #[inline(always)]
    pub fn pin(&self, key: &T::Key) -> Result<Pinned<'_, T, S>, PinError<T::Error>> {
        let mut lookup = Lookup::new(self.pages.hash(key));
        let counted = match self.look(&mut lookup, |_, own| own == key, &mut None) {
            Some(counted) => counted,
            None => self.pin_slow(lookup.tag().hash, key)?,
        };
        Ok(self.pinned(counted))
    }

    /// Same as [`pin`](Self::pin), with a pin that keeps the cache alive, for a struct that is to
    /// hold it. [`Owner`] says what it costs.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    ///
    /// # Panics
    /// As [`pin`](Self::pin).
    #[inline]
    pub fn pin_owned<C: Owner<Target = Self>>(
        cache: &C,
        key: &T::Key,
    ) -> Result<OwnedPinned<T, S, C>, PinError<T::Error>> {
        Kept::try_new(cache, |cache| cache.pin(key)).map(|kept| OwnedPinned { kept })
    }

    /// Pins the page if it is there. Loads nothing, and waits for no load.
    #[inline(always)]
    pub fn pin_if_cached(&self, key: &T::Key) -> Option<Pinned<'_, T, S>> {
        let mut lookup = Lookup::new(self.pages.hash(key));
        let counted = self.look(&mut lookup, |_, own| own == key, &mut None)?;
        Some(self.pinned(counted))
    }

    /// Pins a page that was not there.
    #[cold]
    #[inline(never)]
    fn pin_slow(&self, hash: u64, key: &T::Key) -> Result<CountedOf<T>, PinError<T::Error>> {
        loop {
            let flight = Flight::new(ReentrancyLock::new(()));
            let _flies = flight.hold();
            let loading = State::Loading(Arc::clone(&flight));
            // In one step: a key that answers differently a moment later would make this loop for
            // ever.
            // BUG: a page is loaded without a look whether another thread loads it (page_cache.G1
            // of `page_cache`).
            let added = self.pages.add(hash, key.clone(), loading, seeded_bug!("second-load"));
            let tag = match added {
                Ok(tag) => return self.load(tag, key),
                Err((tag, ..)) => tag,
            };
            let look =
                |flight: &mut _| self.look(&mut Lookup::of(tag), |own, _| own == tag, flight);
            let mut flight = None;
            let mut found = look(&mut flight);
            if let Some(flight) = flight {
                drop(flight.hold());
                found = look(&mut None);
            }
            if let Some(counted) = found {
                return Ok(counted);
            }
        }
    }

    /// Pins the page, if it is there. If a thread is loading it, `flight` gets what to wait for.
    #[inline(always)]
    fn look(
        &self,
        lookup: &mut Lookup,
        which: impl Fn(Tag, &T::Key) -> bool,
        flight: &mut Option<Flight>,
    ) -> Option<CountedOf<T>> {
        let frame = self.pages.with_local_at(lookup, which, |state, uses| match state {
            State::Ready(frame) => {
                uses.pin();
                prefetch(Arc::as_ptr(frame)); // while the unlocking instruction runs
                Arc::as_ptr(frame)
            }
            State::Loading(loading) => {
                *flight = Some(Arc::clone(loading));
                ptr::null()
            }
        })?;
        (!frame.is_null()).then_some(Counted { frame, id: lookup.tag().id, near: lookup.near() })
    }

    /// Loads the page of an element that the caller has added.
    #[cold]
    fn load(&self, tag: Tag, key: &T::Key) -> Result<CountedOf<T>, PinError<T::Error>> {
        let mut load = Load { cache: self, tag, has_room: false };
        // The loader pins the page from the start, so that it is not reclaimed at once.
        let mut lookup = Lookup::of(tag);
        let there = self.pages.with_tagged(&mut lookup, |_, uses| uses.pin());
        there.expect("the element stays until its load is over");
        self.take_room()?;
        load.has_room = true;
        let own = key.clone();
        // page_cache.G6: no lock of the table is held; only waiters for this page wait during the
        // load.
        let page = self.store.load(key).map_err(PinError::Store)?;
        let frame = Frame { page, key: own, hash: tag.hash, back: AtomicUsize::new(0) };
        let frame = Arc::new(frame);
        let counted = Counted { frame: Arc::as_ptr(&frame), id: tag.id, near: lookup.near() };
        let there = self.pages.update_tagged(tag, |state| *state = State::Ready(frame));
        there.expect("the element stays until its load is over");
        std::mem::forget(load);
        self.room.with(|room| room.enqueue(tag));
        Ok(counted)
    }
}

/// A load that is under way. Dropping this gives the load up.
struct Load<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static> {
    cache: &'a PageCache<T, S>,
    tag: Tag,
    has_room: bool,
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for Load<'_, T, S> {
    fn drop(&mut self) {
        // Gives the room back first (page_cache.G5): the next thread to add the element finds it.
        // BUG: a failed load gives its room back after its element has gone (page_cache.G5).
        let late = seeded_bug!("late-room");
        if self.has_room && !late {
            self.cache.room.with(Room::give_back);
        }
        self.cache.pages.remove_tagged_if(self.tag, |_, _| true);
        if self.has_room && late {
            self.cache.room.with(Room::give_back);
        }
    }
}
