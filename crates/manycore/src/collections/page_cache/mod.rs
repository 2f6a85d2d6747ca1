//! Pages of a slow store, kept near those who use them.
//!
//! Owns: [`PageCache`] and [`Pinned`]. Does not own: the pages' contents, nor the store.
//!
//! A page's descriptor is an element of a [`DHash`]: whether the page is there is its shared part;
//! pins, dirty bit and used bit are its local parts.
//!
//! Laws:
//! - G1 A key has at most one load under way. Who finds one waits for it, and then looks again: if
//!   it has failed or panicked, one of those who waited loads.
//! - G2 The sum of an element's pins, over all places, is the number of its pinned pages and of
//!   write-backs under way. A page leaves the table only in a step that sees the sum at zero, with
//!   all parts locked (M3 of `dhash`), and until then the table has a reference to it. So a pinned
//!   page is alive, and no pin writes a line that others write.
//! - G3 A page leaves the table only if, in the same step, no part says that it is dirty or being
//!   written. A dirty bit is cleared in the step that begins a write-back, and set again if that
//!   fails. A page is marked only while it is pinned. So no change that was marked is lost.
//! - G4 A page has at most one write-back under way: two could reach the store in the wrong order.
//! - G5 Room is taken before a load begins: there are never more pages than the bound.
//! - G6 Store and pages are used with no lock held, but for the flight that a loader's own waiters
//!   wait for.
//!
//! Source: K42's file cache manager, section 4.3 of the paper: a table with distributed page
//! descriptors put in place of the one table and lock, dirty bits set where the fault happens and
//! gathered by the scanner.

#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod reclaim;
mod store;

pub use store::{PageStore, PinError};

use super::DHash;
use super::held::Held;
use crate::cluster::Placement;
use crate::sync::{AtomicUsize, Bug, Ordering, seeded_bug};
use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

/// Held by the loader until the load is over, one way or the other (G1).
type Flight = Arc<Held<()>>;

/// An element's shared part.
enum State<P> {
    Loading(Flight),
    Ready(Arc<P>),
}

impl<P> Clone for State<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Loading(flight) => Self::Loading(Arc::clone(flight)),
            Self::Ready(page) => Self::Ready(Arc::clone(page)),
        }
    }
}

/// An element's local part.
#[derive(Debug, Default)]
struct Uses {
    /// Taken here less given back here (G2).
    pins: isize,
    dirty: bool,
    /// Since the last look for a victim.
    used: bool,
    /// The thread whose write-back is under way; zero if there is none.
    writing: usize,
}

/// Pages of a slow [store](PageStore), at most so many, each loaded once for all threads.
///
/// What for: blocks of files, pages of a database, tiles, decoded objects: what is dear to get,
/// used by many threads at once, changed in place, and must be written back before it goes. When
/// not: for values that are replaced and not changed, and may simply be forgotten, take a cache
/// (`manycore-cache`); for what fits in memory, a [`HashMap`](super::HashMap).
///
/// A [pinned](Self::pin) page is there until its pin is dropped. Its contents are shared: a page
/// that is changed in place needs atomics or a lock of its own. After a change,
/// [`Pinned::mark_dirty`] says that the store is behind.
///
/// - Consistency: all threads see one page for a key. Two misses of one key make one load. When
///   [`flush`](Self::flush) returns, the store has every change that was marked before.
/// - Progress: blocking. A pin waits for a load of the same page. One that must make room may wait
///   for a write-back.
/// - Cost: a pin of a page that the thread has used before, its mark and its release are a look-up
///   each in the thread's own table (some 25 ns), and write no shared line. A load locks parts of
///   the table twice, beside what the store costs. Reclaiming a page locks the tables of all places
///   that have used it.
/// - Memory: at most `pages_max` pages, those that are being loaded among them; an entry for each
///   page, and one for each place that has used it.
/// - Errors: the store's, and [`PinError::Full`] if all pages are pinned.
/// - Panics: if the store does; the page is as before, and nobody waits for ever. If a load pins
///   the page that it loads, or a write-back flushes the cache. (Loads that pin each other's pages
///   wait for each other, as locks do.)
/// - Eviction: second chance, in the order of loads: a page that was pinned since the last look
///   stays for another round.
/// - A dropped cache writes nothing back: [`flush`](Self::flush) first.
/// - Source: K42's file cache manager, section 4.3.
///
/// ```
/// use manycore::collections::{PageCache, PageStore};
/// use std::sync::{Mutex, atomic::{AtomicU32, Ordering::Relaxed}};
///
/// /// Numbers on a disk, say.
/// struct Disk(Mutex<Vec<u32>>);
///
/// impl PageStore for Disk {
///     type Key = usize;
///     type Page = AtomicU32;
///     type Error = std::io::Error;
///
///     fn load(&self, key: &usize) -> Result<AtomicU32, std::io::Error> {
///         Ok(AtomicU32::new(self.0.lock().unwrap()[*key]))
///     }
///     fn write_back(&self, key: &usize, page: &AtomicU32) -> Result<(), std::io::Error> {
///         self.0.lock().unwrap()[*key] = page.load(Relaxed);
///         Ok(())
///     }
/// }
///
/// let cache = PageCache::new(Disk(Mutex::new(vec![0; 1000])), 10);
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| {
///             for key in 0..100 {
///                 let page = cache.pin(&key).unwrap();
///                 page.fetch_add(1, Relaxed);
///                 page.mark_dirty();
///             }
///         });
///     }
/// });
/// cache.flush().unwrap();
/// assert!(cache.len() <= 10);
/// assert!(cache.store().0.lock().unwrap()[..100].iter().all(|number| *number == 4));
/// ```
pub struct PageCache<T: PageStore, S = RandomState>
where
    S: Send + Sync + 'static,
{
    pages: DHash<T::Key, State<T::Page>, Uses, S>,
    /// The keys of all pages that are there, but for those that somebody tries to reclaim.
    queue: Held<VecDeque<T::Key>>,
    /// Pages that are there or are being loaded (G5).
    resident: AtomicUsize,
    pages_max: usize,
    store: T,
}

impl<T: PageStore> PageCache<T> {
    /// An empty cache of so many pages at most, with a table for each thread.
    #[must_use]
    pub fn new(store: T, pages_max: usize) -> Self {
        Self::with_hasher(store, pages_max, Placement::default(), RandomState::new())
    }
}

/// A load that is under way; dropping it gives up.
struct Load<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static> {
    cache: &'a PageCache<T, S>,
    key: &'a T::Key,
    has_room: bool,
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for Load<'_, T, S> {
    fn drop(&mut self) {
        self.cache.pages.remove(self.key);
        if self.has_room {
            self.cache.give_back_room();
        }
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PageCache<T, S> {
    /// An empty cache whose tables are placed so and hash so.
    #[must_use]
    pub fn with_hasher(store: T, pages_max: usize, placement: Placement, hasher: S) -> Self {
        Self {
            pages: DHash::with_hasher(placement, hasher),
            queue: Held::new(VecDeque::new()),
            resident: AtomicUsize::new(0),
            pages_max,
            store,
        }
    }

    /// The store.
    pub fn store(&self) -> &T {
        &self.store
    }

    /// How many pages there are, those that are being loaded among them.
    pub fn len(&self) -> usize {
        // ORDER: Relaxed; a statistic to whoever asks.
        self.resident.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The page, loaded if it is not there, which stays until what is returned is dropped.
    ///
    /// # Errors
    /// [`PinError::Store`] if this call's load failed, or a write-back that should make room (a
    /// failed load fails its caller alone), and [`PinError::Full`] if there is no room.
    ///
    /// # Panics
    /// If the store does, or from within the load of this page.
    #[inline]
    pub fn pin(&self, key: &T::Key) -> Result<Pinned<'_, T, S>, PinError<T::Error>> {
        loop {
            match self.look(key) {
                Some(Ok(page)) => return Ok(page),
                Some(Err(flight)) => drop(flight.hold()),
                None => {
                    if let Some(page) = self.load(key)? {
                        return Ok(page);
                    }
                }
            }
        }
    }

    /// The page, if it is there; loads nothing, and waits for no load.
    #[inline]
    pub fn pin_if_there(&self, key: &T::Key) -> Option<Pinned<'_, T, S>> {
        self.look(key)?.ok()
    }

    /// Pins the page, if it is there; else the load to wait for, if there is one.
    #[inline]
    fn look(&self, key: &T::Key) -> Option<Result<Pinned<'_, T, S>, Flight>> {
        let own = key.clone(); // before the pin counts: it may panic
        let found = self.pages.with_local(key, |state, uses| match state {
            State::Ready(page) => {
                uses.pins += 1;
                uses.used = true;
                Ok(Arc::as_ptr(page))
            }
            State::Loading(flight) => Err(Arc::clone(flight)),
        })?;
        Some(found.map(|page| Pinned { page, key: own, cache: self }))
    }

    /// Loads the page, unless somebody else does: then there is nothing to return.
    #[cold]
    fn load(&self, key: &T::Key) -> Result<Option<Pinned<'_, T, S>>, PinError<T::Error>> {
        let flight = Flight::new(Held::new(()));
        let _flies = flight.hold();
        let loading = State::Loading(Arc::clone(&flight));
        if seeded_bug(Bug::SecondLoad) {
            self.pages.insert(key.clone(), loading);
        } else if self.pages.try_insert(key.clone(), loading).is_err() {
            return Ok(None);
        }
        let mut load = Load { cache: self, key, has_room: false };
        // The loader's own pin, from the start: nobody reclaims what has just come.
        self.pages.with_local(key, |_, uses| {
            uses.pins += 1;
            uses.used = true;
        });
        self.take_room()?;
        load.has_room = true;
        let page = Arc::new(self.store.load(key).map_err(PinError::Store)?);
        let pinned = Pinned { page: Arc::as_ptr(&page), key: key.clone(), cache: self };
        let own = key.clone();
        self.pages.update_shared(key, |state| *state = State::Ready(page));
        std::mem::forget(load);
        self.queue.with(|queue| queue.push_back(own));
        Ok(Some(pinned))
    }

    fn give_back_room(&self) {
        // ORDER: Relaxed, as in `take_room`: a count; what it stands for is in the table.
        self.resident.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: PageStore, S: Send + Sync + 'static> fmt::Debug for PageCache<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache")
            .field("pages", &self.resident.load(Ordering::Relaxed))
            .field("pages_max", &self.pages_max)
            .finish_non_exhaustive()
    }
}

/// A page that stays, of a [`PageCache`]. Dropping it lets the page go; any thread may.
///
/// One that is forgotten keeps its page in the cache for ever, and nothing worse.
#[must_use = "the page may go at once"]
pub struct Pinned<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static = RandomState> {
    page: *const T::Page,
    key: T::Key,
    cache: &'a PageCache<T, S>,
}

// SAFETY: a pin gives shared access to the page, which is `Sync`, and may be given back by any
// thread: the pins of all places count (G2).
unsafe impl<T: PageStore, S: BuildHasher + Send + Sync> Send for Pinned<'_, T, S> {}
// SAFETY: as above.
unsafe impl<T: PageStore, S: BuildHasher + Send + Sync> Sync for Pinned<'_, T, S> {}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Pinned<'_, T, S> {
    /// Says that the page was changed, and the store has to be told before it goes. To be said
    /// *after* the change: what is changed after its mark may miss the write-back.
    ///
    /// Writes the calling thread's own part alone.
    #[inline]
    pub fn mark_dirty(&self) {
        let there = self.cache.pages.with_local(&self.key, |_, uses| uses.dirty = true);
        debug_assert!(there.is_some(), "a pinned page is there");
    }

    /// Which page it is.
    pub fn key(&self) -> &T::Key {
        &self.key
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Deref for Pinned<'_, T, S> {
    type Target = T::Page;

    #[inline]
    fn deref(&self) -> &T::Page {
        // SAFETY: G2 - this pin is counted until it is dropped, so the table has a reference to
        // the page; the pointer is from that `Arc`.
        unsafe { &*self.page }
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for Pinned<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        let there = self.cache.pages.with_local(&self.key, |_, uses| uses.pins -= 1);
        debug_assert!(there.is_some(), "a pinned page is there");
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PartialEq for Pinned<'_, T, S> {
    /// Whether both are the same page of the same cache.
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.page, other.page)
    }
}

impl<T, S> fmt::Debug for Pinned<'_, T, S>
where
    T: PageStore<Page: fmt::Debug>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
