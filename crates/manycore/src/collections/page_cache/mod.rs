//! A cache of pages of a slow store, near the threads that use them.
//!
//! Owns: [`PageCache`] and [`Pinned`]. Does not own: the pages' contents, nor the store.
//!
//! A page's descriptor is an element of a [`DHash`]. Its shared part says whether the page is
//! there. Its local parts have the pins, the dirty bit and the used bit.
//!
//! ```text
//! pin, not cached:   add element (Loading) -> take room -> load -> Ready
//! reclaim:           Ready, no pins -> dirty: write back, look again
//!                                   -> clean: remove, give room back
//! ```
//!
//! Laws:
//! - page_cache.G1 A key has at most one load under way. A thread that finds one waits for it, and
//!   then looks for that element again. If the load failed or panicked, one of the waiting threads
//!   loads.
//! - page_cache.G2 The sum of an element's pins, over all parts, minus those given back on the page
//!   itself, is the number of its pinned pages and of write-backs under way. (A pin that was
//!   counted in the central part is given back by one addition, the last access to the page.) A
//!   page leaves the table only in a step that sees the sum at zero, with all parts locked
//!   (dhash.M3). Until then the table has a reference to it. So a pinned page is alive, and in a
//!   distributed table no pin writes a line that others write.
//! - page_cache.G3 A page leaves the table only if, in the same step, no part says that it is dirty
//!   or being written. A dirty bit is cleared in the step that begins a write-back, and set again
//!   if that fails. A page is marked only while it is pinned. So no marked change is lost.
//! - page_cache.G4 A page has at most one write-back under way: two could reach the store in the
//!   wrong order.
//! - page_cache.G5 Room is taken before a load begins, so there are never more pages than the
//!   bound. A failed load gives its room back before its element goes, so the next load of that
//!   page finds it.
//! - page_cache.G6 Store and pages are used with no lock held, except the flight of a loader, for
//!   which its own waiters wait.
//! - page_cache.G7 A pin hashes and compares a key once, to find an element. Everything later (the
//!   end of a load, a release, a mark, a write-back, reclaiming) takes the element by its tag
//!   (dhash.M9 of `dhash`). So whatever a key's `Hash`, `Eq` or `Clone` answers later does not
//!   touch page_cache.G2 to page_cache.G5.
//! - page_cache.G8 A pin is refused for lack of room only if two things hold. Each page was found
//!   in use: pinned, loading, being written back or dropped. And no room was given back since the
//!   pin first asked for room. A page stays in the queue while a reclaimer looks at it, so every
//!   reclaimer sees every page. A page that was used lately is spared for one round; that refuses
//!   no pin.
//!
//! Source: K42's file cache manager, section 4.3 of the paper. It replaced one table and lock by a
//! table with distributed page descriptors. Faults set dirty bits locally, and the scanner gathers
//! them.

#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod pin;
mod reclaim;
mod room;
mod store;

pub use store::{PageStore, PinError};

use room::Room;

use super::dhash::{Lookup, Tag};
use super::owned::{Kept, Owner};
use super::reentrancy_lock::ReentrancyLock;
use super::{DHash, DHashStats};
use crate::sync::{AtomicUsize, Ordering};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;

/// Held by the loader until the load is over, one way or the other (page_cache.G1).
type Flight = Arc<ReentrancyLock<()>>;

/// A page that is there.
struct Frame<K, P> {
    page: P,
    key: K,
    /// Hash with which the element is in the table (page_cache.G7).
    hash: u64,
    /// Pins of the central part that were given back (page_cache.G2). Wraps around.
    back: AtomicUsize,
}

/// An element's shared part.
enum State<K, P> {
    Loading(Flight),
    Ready(Arc<Frame<K, P>>),
}

type StateOf<T> = State<<T as PageStore>::Key, <T as PageStore>::Page>;

impl<K, P> Clone for State<K, P> {
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
    /// Pins taken here minus pins given back here (page_cache.G2). Wraps around.
    pins: usize,
    dirty: bool,
    /// Whether the page was used since the last look for a victim.
    used: bool,
    /// Token of the thread that is writing the page back; zero if there is none.
    writing: usize,
}

impl Uses {
    #[inline]
    fn pin(&mut self) {
        self.pins = self.pins.wrapping_add(1);
        self.used = true;
    }
}

/// A cache of pages of a slow [store](PageStore), with a bound. Each page is loaded once for all
/// threads.
///
/// What for: blocks of files, pages of a database, tiles, decoded objects. Such pages are expensive
/// to load, used by many threads at once, changed in place, and must be written back before they
/// go. When not: for values that are replaced and not changed, and may simply be forgotten, take a
/// cache (`manycore-cache`). For what fits in memory, take a [`HashMap`](super::HashMap).
///
/// A [pinned](Self::pin) page is there until its pin is dropped. Its contents are shared: a page
/// that is changed in place needs atomics or a lock of its own. After a change, call
/// [`Pinned::mark_dirty`] to say that the store is out of date.
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
///
/// - Consistency: all threads see one page for a key. Two misses of one key make one load. When
///   [`flush`](Self::flush) returns, the store has every change that was marked before.
/// - Progress: blocking. A pin waits for a load of the same page. A pin that must make room may
///   wait for a write-back.
/// - Cost while threads do not wait for each other: a pin of a cached page is a look-up under one
///   of 16 locks. Its release is one atomic addition. Together they take some 20 ns.
/// - Cost once they do: the table of descriptors is distributed, as that of a [`DHash`] is. Then a
///   pin, a mark and a release are a look-up each in the thread's own table, and write no shared
///   line. On one thread, a pin and its release take up to half as long again.
///   [`stats`](Self::stats) says which form the table has; [`with_builder`](Self::with_builder)
///   decides it beforehand.
/// - Cost of misses: a load locks parts of the table some times, beside what the store costs.
///   Reclaiming a page of a distributed table locks the tables of all places that have used it.
/// - Memory: at most `pages_max` pages, including those that are being loaded. An entry for each
///   page, and in a distributed table one more for each place that has used it.
/// - Errors: the store's, and [`PinError::Full`] if all pages are in use: pinned, being loaded,
///   written back or dropped. While fewer than `pages_max` pages are in use, no pin fails with it.
/// - Panics: if the store does, or a key's `Hash`, `Eq`, `Clone` or `Drop`. The page is as before,
///   and no thread waits forever. Also if a load pins the page that it loads, or a write-back
///   flushes the cache. If loads pin each other's pages in a cycle, the thread that closes the
///   cycle panics.
/// - Keys whose `Hash`, `Eq` or `Clone` contradict themselves (a NaN with an `Eq`) may get a page
///   of their own at each pin, or another key's page. Pins, bounds and write-backs of these pages
///   still hold: after the look-up, no step asks the key again.
/// - Eviction: second chance, in the order of loads. A page that was pinned since the last look
///   stays for another round.
/// - A dropped cache writes nothing back: [`flush`](Self::flush) first.
/// - Source: [K42](crate#sources)'s file cache manager, section 4.3.
#[doc(alias = "buffer pool")]
#[doc(alias = "single flight")]
pub struct PageCache<T: PageStore, S = RandomState>
where
    S: Send + Sync + 'static,
{
    pages: DHash<T::Key, StateOf<T>, Uses, S>,
    room: ReentrancyLock<Room>,
    store: T,
}

/// A counted pin that has no owner yet. If no caller takes it, it stays counted.
struct Counted<F> {
    frame: *const F,
    /// Same as in [`Pinned`].
    id: u64,
    near: Option<NonZero<usize>>,
}

type CountedOf<T> = Counted<Frame<<T as PageStore>::Key, <T as PageStore>::Page>>;

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PageCache<T, S> {
    /// Returns the store.
    pub fn store(&self) -> &T {
        &self.store
    }

    /// Returns the hash of the key, by the cache's hasher.
    #[inline]
    pub(super) fn hash(&self, key: &T::Key) -> u64 {
        self.pages.hash(key)
    }

    /// Returns whether the table of descriptors is distributed over the threads, and why.
    pub fn stats(&self) -> DHashStats {
        self.pages.stats()
    }

    /// Distributes the table of descriptors, as [`DHash::distribute`] does.
    pub fn distribute(&self) -> bool {
        self.pages.distribute()
    }

    /// Centralizes the table of descriptors, as [`DHash::fold`] does. Call it when few threads are
    /// left. Pins stay valid.
    pub fn fold(&self) -> bool {
        self.pages.fold(|into, from| {
            into.pins = into.pins.wrapping_add(std::mem::take(&mut from.pins));
            into.dirty |= std::mem::take(&mut from.dirty);
            into.used |= std::mem::take(&mut from.used);
            // At most one is not zero (page_cache.G4).
            into.writing |= std::mem::take(&mut from.writing);
        })
    }

    /// Returns the number of pages, including those that are being loaded.
    pub fn len(&self) -> usize {
        self.room.with(|room| room.taken())
    }

    /// Returns true if there are no pages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn pinned(&self, Counted { frame, id, near }: CountedOf<T>) -> Pinned<'_, T, S> {
        Pinned { frame, id, near, cache: self }
    }
}

impl<T: PageStore, S: Send + Sync + 'static> fmt::Debug for PageCache<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pages, pages_max) = self.room.with(|room| (room.taken(), room.bound()));
        f.debug_struct("PageCache")
            .field("pages", &pages)
            .field("pages_max", &pages_max)
            .finish_non_exhaustive()
    }
}

/// A pinned page of a [`PageCache`]. Dropping this unpins the page; any thread may.
///
/// If it is forgotten, its page stays in the cache forever; nothing else happens.
///
/// See [`PageCache`] for an example.
#[must_use = "the page may go at once"]
pub struct Pinned<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static = RandomState> {
    frame: *const Frame<T::Key, T::Page>,
    /// Id of the element's tag (page_cache.G7).
    id: u64,
    /// Index in the local table in which the pin was counted; `None` if the central part counted
    /// it.
    near: Option<NonZero<usize>>,
    cache: &'a PageCache<T, S>,
}

// SAFETY: a pin gives shared access to the page, which is `Sync`, and may be given back by any
// thread: the pins of all places count (page_cache.G2).
unsafe impl<T: PageStore, S: BuildHasher + Send + Sync> Send for Pinned<'_, T, S> {}
// SAFETY: a shared pin gives out the page (`T::Page: Sync`) and marks it by way of the cache, which
// any thread may use.
unsafe impl<T: PageStore, S: BuildHasher + Send + Sync> Sync for Pinned<'_, T, S> {}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Pinned<'_, T, S> {
    /// Says that the page was changed, and must be written back before it goes. Call it *after* the
    /// change: a change after its mark may miss the write-back.
    ///
    /// Writes only the calling thread's own part.
    #[inline]
    pub fn mark_dirty(&self) {
        let mark = |uses: &mut Uses| uses.dirty = true;
        let pages = &self.cache.pages;
        let there = match self.near {
            Some(near) => pages.with_near(self.id, near, || self.frame().hash, mark),
            None => pages.with_centre(Tag { hash: self.frame().hash, id: self.id }, mark),
        };
        debug_assert!(there.is_some(), "a pinned page is there");
    }

    /// Returns the page's key.
    pub fn key(&self) -> &T::Key {
        &self.frame().key
    }

    #[inline(always)]
    fn frame(&self) -> &Frame<T::Key, T::Page> {
        // SAFETY: page_cache.G2 - this pin is counted until it is dropped, so the table has a
        // reference to the frame; the pointer is from that `Arc`.
        unsafe { &*self.frame }
    }

    /// Gives back a pin that a local part has counted, in that part or in the calling thread's.
    #[inline(never)]
    fn release(&self, near: NonZero<usize>) {
        let back = |uses: &mut Uses| uses.pins = uses.pins.wrapping_sub(1);
        let there = self.cache.pages.with_near(self.id, near, || self.frame().hash, back);
        debug_assert!(there.is_some(), "a pinned page is there");
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Deref for Pinned<'_, T, S> {
    type Target = T::Page;

    #[inline]
    fn deref(&self) -> &T::Page {
        &self.frame().page
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for Pinned<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.near {
            // ORDER: Release; pairs with Acquire in `drop_page`: what was done with the page comes
            // before its end.
            // SAFETY: page_cache.G2 - this pin keeps the frame until this addition, the last access
            // to it.
            None => _ = unsafe { (*self.frame).back.fetch_add(1, Ordering::Release) },
            Some(near) => self.release(near),
        }
    }
}

/// Same as [`Pinned`], without borrowing the cache; see [`PageCache::pin_owned`].
///
/// ```
/// use manycore::collections::{OwnedPinned, PageCache, PageStore};
/// use std::{convert::Infallible, sync::Arc};
///
/// struct Squares;
/// impl PageStore for Squares {
///     type Key = u64;
///     type Page = u64;
///     type Error = Infallible;
///     fn load(&self, number: &u64) -> Result<u64, Infallible> {
///         Ok(number * number)
///     }
///     fn write_back(&self, _: &u64, _: &u64) -> Result<(), Infallible> {
///         Ok(())
///     }
/// }
///
/// struct Request {
///     page: OwnedPinned<Squares>,
/// }
///
/// let cache = Arc::new(PageCache::new(Squares, 10));
/// let request = Request { page: PageCache::pin_owned(&cache, &7).unwrap() };
/// assert_eq!((request.page.key(), *request.page), (&7, 49));
/// ```
#[must_use = "the page may go at once"]
pub struct OwnedPinned<
    T: PageStore,
    S: BuildHasher + Send + Sync + 'static = RandomState,
    C: Owner<Target = PageCache<T, S>> = Arc<PageCache<T, S>>,
> {
    kept: Kept<Pinned<'static, T, S>, C>,
}

impl<T: PageStore, S, C: Owner<Target = PageCache<T, S>>> OwnedPinned<T, S, C>
where
    S: BuildHasher + Send + Sync + 'static,
{
    /// Says that the page was changed; see [`Pinned::mark_dirty`].
    pub fn mark_dirty(&self) {
        self.kept.handle.mark_dirty();
    }

    /// Returns the page's key.
    pub fn key(&self) -> &T::Key {
        self.kept.handle.key()
    }

    /// Returns the cache.
    #[must_use]
    pub fn cache(&self) -> &C {
        &self.kept.owner
    }
}

impl<T, S, C: Owner<Target = PageCache<T, S>>> fmt::Debug for OwnedPinned<T, S, C>
where
    T: PageStore<Page: fmt::Debug>,
    S: BuildHasher + Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.handle.fmt(f)
    }
}

impl<T: PageStore, S, C: Owner<Target = PageCache<T, S>>> Deref for OwnedPinned<T, S, C>
where
    S: BuildHasher + Send + Sync + 'static,
{
    type Target = T::Page;

    fn deref(&self) -> &T::Page {
        &self.kept.handle
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PartialEq for Pinned<'_, T, S> {
    /// Returns true if both are the same page of the same cache.
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.frame, other.frame)
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
