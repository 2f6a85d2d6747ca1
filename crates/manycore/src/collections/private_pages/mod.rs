//! Private, copy-on-write views of a page cache. A fork costs a pointer or two.
//!
//! Owns: [`PrivatePages`], [`PrivatePage`] and the copies of pages. Does not own: the cache.
//!
//! A view is a *chain* of *layers*, with its own layer on top. A layer has *frames*: a key and a
//! copy of its page. Pages in no layer are the cache's. A domain of [`crate::section`], shared by
//! all views of a family, reclaims replaced layers, frames and pages.
//!
//! ```text
//! view A:  top (written) --.
//!                           >-- frozen layer -- older frozen layer -- page cache
//! view B:  top (written) --'       shared by both views since the fork
//! ```
//!
//! Laws:
//! - private_pages.F1 Copy on write: a thread puts a frame into a top layer with the page that the
//!   view shows there without the frame. So the insertion changes nothing that is visible, whether
//!   before, beside or after a fork, and needs no order with the fork. Frames are only added; a
//!   frame's page stays in it.
//! - private_pages.F2 A write changes a page under the lock of its frame. The frame is in the layer
//!   that was the top when the writer looked for it, and the write happens only if that layer is
//!   not frozen. Otherwise the write begins again in the next top.
//! - private_pages.F3 A fork freezes the top, puts a new one above it, and lets both views have the
//!   chain. Writer: lock, fence, look at the layer. Fork: freeze, fence. If a writer finds the
//!   layer not frozen, every thread that finds it frozen sees the lock, and waits for it before it
//!   reads. So the write is in both views, wholly. If the writer finds the layer frozen, it writes
//!   above it: in one view alone. A frozen layer's page with no lock on it never changes again, and
//!   is read without a count.
//! - private_pages.F4 Readers of a page in a top layer are counted in its frame. Reader: count,
//!   fence, look at the lock. Writer: lock, fence, look at the count. So either the reader sees the
//!   lock and waits, or the writer sees the count and changes a copy, which replaces the page. So
//!   what a reader sees never changes, and a reader blocks no writer.
//! - private_pages.F5 A fork that froze a layer joins layers, under the view's lock for forks. It
//!   joins two neighbours if the older one is the view's alone, or if the older one is at most
//!   `LAYER_RATIO` times as large as the younger one. It changes the view's own layers in place,
//!   the smaller into the larger: the younger is searched first, so that is invisible. It copies
//!   shared layers: frames, not pages. A layer counts as a view's until the last reader that found
//!   it in that view is gone, because the view gives it up through the domain. So each layer of a
//!   chain is more than `LAYER_RATIO` times as large as the one above, or has just been frozen, and
//!   the number of layers is at most logarithmic.
//! - private_pages.F6 What a thread found in a section stays until the section is closed. Chains,
//!   frames and pages are retired after they were unlinked, in a domain that is not bounded. Layers
//!   go with the last chain that has them, and arrays with their layer.
//! - private_pages.F7 The cache, clones and closures are called with no lock held except that of
//!   the written frame. So a panic loses nothing: a copy that was not finished is not there, and a
//!   page that was partly written is as the closure left it.
//! - private_pages.F8 A frame is counted before it can be found. So in a top without a frame, no
//!   write has returned yet, whichever thread put the frame there, and a fork may leave that top as
//!   it is.
//! - private_pages.F9 A copy is counted from before it is made until it is dropped, and the count
//!   never exceeds the limit.
//!
//! Source: fork logic of K42's file cache manager, section 4.3; shadow objects and their collapse
//! as in Mach (Rashid et al., ASPLOS 1987) and 4.4BSD; the growing sizes of layers are those of
//! O'Neil et al., *The log-structured merge-tree*, 1996.

mod chain;
mod frame;
mod layer;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod page;

pub use page::PrivatePage;

use self::chain::{Chain, GivenUp, joined};
use self::frame::{Copied, Frame, Full, Reading, Room, Tally, Written};
use super::reentrancy_lock::ReentrancyLock;
use super::{PageCache, PageStore, PinError};
use crate::config::{PRIVATE_BATCH, PRIVATE_BOUND};
use crate::section::{Atomic, Domain, Mode, Owned, Section, Weight};
use crate::sync::Backoff;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::Arc;

type FrameOf<T> = Frame<<T as PageStore>::Key, <T as PageStore>::Page>;

/// State shared by all views that were forked from the same view.
struct Family<T: PageStore, S: BuildHasher + Send + Sync + 'static> {
    cache: Arc<PageCache<T, S>>,
    tally: Arc<Tally>,
    domain: Domain,
}

/// A private, writable view of the pages of a [`PageCache`]. It can be forked at any time: each
/// side then sees what was there, and only its own changes.
///
/// What for: what `MAP_PRIVATE` and `fork` are for files. Snapshots of a store of pages, documents
/// with undo, speculative transactions, scratch copies of a shared data set for each request. A
/// page is copied when it is first written after a fork, and not before. When not: for changes that
/// all should see, [`pin`](PageCache::pin) the page and change it in place. For small values by key
/// that are replaced and not changed, a persistent map is simpler.
///
/// [`read`](Self::read) returns a page that never changes while it is held (except for the cache's
/// own pages, if others change those in place). [`with_mut`](Self::with_mut) runs a closure on the
/// view's own copy with `&mut`. So private pages need no atomics or locks inside, unlike pages that
/// are changed in the cache. And a write has an end, so that it is wholly before or after a fork.
///
/// ```
/// use manycore::collections::{PageCache, PageStore, PrivatePages};
/// use std::sync::Arc;
///
/// /// Pages of zeros, until they are written.
/// struct Blank;
///
/// impl PageStore for Blank {
///     type Key = u64;
///     type Page = Vec<u8>;
///     type Error = std::io::Error;
///
///     fn load(&self, _: &u64) -> Result<Vec<u8>, std::io::Error> {
///         Ok(vec![0; 4096])
///     }
///     fn write_back(&self, _: &u64, _: &Vec<u8>) -> Result<(), std::io::Error> {
///         Ok(())
///     }
/// }
///
/// let document = PrivatePages::new(Arc::new(PageCache::new(Blank, 100)));
/// document.with_mut(&7, |page| page[0] = 1)?;
/// let undo = document.fork();
/// std::thread::scope(|s| {
///     s.spawn(|| document.with_mut(&7, |page| page[0] = 2).unwrap());
///     s.spawn(|| document.with_mut(&8, |page| page[0] = 2).unwrap());
/// });
/// assert_eq!((document.read(&7)?[0], document.read(&8)?[0]), (2, 2));
/// assert_eq!((undo.read(&7)?[0], undo.read(&8)?[0]), (1, 0));
/// assert_eq!(document.cache().pin(&7)?[0], 0);
/// assert_eq!(document.copies(), 3);
/// # Ok::<(), manycore::collections::PinError<std::io::Error>>(())
/// ```
///
/// - Consistency: linearizable; a fork is one moment for all pages. A write that returned before
///   the fork began is in both views. A write that began after the fork returned is in one view.
///   Any other write is in both or in one, wholly. A page without a copy is the cache's, so changes
///   that others make in place there are visible. This ends when the view writes the page or tries
///   to. It also ends if the view that it was forked from did so, before or during the fork.
///   (`MAP_PRIVATE` leaves this open.) Nothing private reaches the cache or its store;
///   [`for_each`](Self::for_each) shows the private pages.
/// - Progress: reads and writes of different pages never wait for each other, nor for a fork's
///   work. The one exception: a write waits for the moment in which a fork puts a new layer on top.
///   A read waits for a write of the same page, also in a view that was forked in between. A write
///   never waits for readers: it changes a copy then. Forks of one view wait for each other. A page
///   that is in no layer is pinned, and perhaps loaded.
/// - Cost of a read: a page of a frozen layer (written before the last fork) writes no shared line.
///   A page written since counts the reader on that page's line. A page of the cache takes a
///   look-up in every layer, and a pin. So for many readers of one view, fork it first.
/// - Cost of a write: the first write of a page after a fork copies it. Further writes are a
///   look-up and a lock, some tens of nanoseconds.
/// - Cost of a fork: it copies a list of a few pointers if the view was not written since the last
///   fork. Else it also makes two small objects and joins layers, which moves pointers: a logarithm
///   of them for each page that was written.
/// - Figures: a request forks a view of 1,000 pages of 4 KiB, writes 10 and reads 30. It takes 0.4
///   to 0.45 of the time with an `Arc<HashMap>` that is cloned at the first write; with 20,000
///   pages, 0.05. A read takes up to 1.5 times as long as there. A fork takes 70 ns, the clone of
///   an `Arc` 8 (`cargo run --release --example forks 20000`).
/// - Memory: a copy has some 130 bytes beside the page. A family of views (all forked from one) has
///   a [domain](crate::section), 1.2 KiB and 400 bytes a thread. Unreachable copies go with the
///   last view that had their layer. If their layer was joined, they go some 32 replacements later
///   on the same thread, once no [`PrivatePage`] that old is held. [`copies`](Self::copies) counts
///   all; [`with_limit`](Self::with_limit) bounds them.
/// - Depth: layers are joined when the views they were shared with are gone, and when they are of
///   similar size. Whatever is forked and dropped, the number of layers in a chain is at most
///   logarithmic (10 for a million pages).
/// - Errors: those of [`PageCache::pin`], and [`PinError::Full`] at the limit.
/// - Panics: if the store, the page's `Clone`, the key's `Hash`, `Eq` or `Clone` or a closure does.
///   Then nothing is lost and no thread waits forever. What a closure did to a page before it
///   panicked stays. Also if a closure reads or writes the page that it is writing, in this view or
///   one forked since. If closures use each other's pages in a cycle (deadlock), the thread that
///   closes the cycle panics.
/// - Source: [K42](crate#sources)'s file cache manager, section 4.3; Mach's shadow objects.
#[doc(alias = "copy on write")]
#[doc(alias = "snapshot")]
pub struct PrivatePages<T: PageStore, S = RandomState>
where
    S: BuildHasher + Send + Sync + 'static,
{
    chain: Atomic<Chain<T::Key, T::Page>>,
    /// Held while the view is forked.
    forking: ReentrancyLock<()>,
    /// Last field: dropping its domain frees what was retired.
    family: Arc<Family<T, S>>,
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PrivatePages<T, S> {
    /// Makes a view of the cache's pages, with no copies yet.
    #[must_use]
    pub fn new(cache: Arc<PageCache<T, S>>) -> Self {
        Self::with_limit(cache, usize::MAX)
    }

    /// Makes a view with at most `copies_max` copies of pages, in this view and all its forks
    /// together. Unreachable copies count until they are freed.
    #[must_use]
    pub fn with_limit(cache: Arc<PageCache<T, S>>, copies_max: usize) -> Self {
        let domain = Domain::builder().mode(Mode::Epoch).batch_nodes(PRIVATE_BATCH);
        let domain = domain.bound(PRIVATE_BOUND).build().expect("such a domain can be made");
        let family = Family { cache, tally: Tally::new(copies_max), domain };
        Self::of(Arc::new(family), Chain::new(Vec::new()))
    }

    fn of(family: Arc<Family<T, S>>, chain: Chain<T::Key, T::Page>) -> Self {
        Self { chain: Atomic::new(chain), forking: ReentrancyLock::new(()), family }
    }

    #[inline]
    fn chain<'s>(&'s self, section: &'s Section<'_>) -> &'s Chain<T::Key, T::Page> {
        self.chain.load(section).as_ref().expect("a view has a chain")
    }

    /// Returns the page as this view has it now. The page does not change until the returned value
    /// is dropped, except for pages of the cache that others change in place.
    ///
    /// The returned value stays with its thread, and holds back the memory of what other threads
    /// replace: do not keep it while waiting.
    ///
    /// # Errors
    /// If the page is the cache's, as [`PageCache::pin`].
    ///
    /// # Panics
    /// If the store does, or from within a closure that writes the page.
    #[inline]
    pub fn read(&self, key: &T::Key) -> Result<PrivatePage<'_, T, S>, PinError<T::Error>> {
        match self.find(self.family.cache.hash(key), key) {
            Some(reading) => Ok(PrivatePage::own(reading)),
            None => self.family.cache.pin(key).map(PrivatePage::cached),
        }
    }

    #[inline]
    fn find(&self, hash: u64, key: &T::Key) -> Option<Reading<'_, T::Key, T::Page>> {
        let section = self.family.domain.enter();
        let chain = self.chain(&section);
        let (frame, frozen) = match chain.top.get(hash, key, &section) {
            Some(frame) => (frame, false),
            None => (chain.find_below(hash, key, &section)?, true),
        };
        let frame = NonNull::from(frame);
        // SAFETY: found in the section.
        Some(unsafe { Reading::new(frame, frozen, section) })
    }

    /// Returns true if this view has a copy of the page, its own or one from before a fork.
    #[must_use]
    pub fn is_private(&self, key: &T::Key) -> bool {
        let hash = self.family.cache.hash(key);
        let section = self.family.domain.enter();
        let chain = self.chain(&section);
        chain.layers().any(|layer| layer.get(hash, key, &section).is_some())
    }

    /// Calls `f` with every page that differs, or may differ, from the cache's: the copies that
    /// this view shows.
    ///
    /// Consistency: each page as [`read`](Self::read) shows it at some moment of the walk. A page
    /// that is written concurrently may come twice, its later state last. For all pages at one
    /// moment, fork the view and walk the fork. Cost: each copy is looked up in the layers above
    /// its own.
    ///
    /// # Panics
    /// If `f` does, or the key's `Eq`; or from within a closure that writes one of the pages.
    pub fn for_each(&self, mut f: impl FnMut(&T::Key, &T::Page)) {
        let section = self.family.domain.enter();
        let chain = self.chain(&section);
        // The oldest first, so that a page which moves into the top in between is not missed.
        for depth in (0..=chain.below.len()).rev() {
            let is_above = |frame: &Frame<_, _>| {
                let mut above = chain.layers().take(depth);
                above.any(|layer| layer.get(frame.hash, &frame.key, &section).is_some())
            };
            chain.layers().skip(depth).take(1).for_each(|layer| {
                layer.for_each(|frame| {
                    if !is_above(frame) {
                        let inner = self.family.domain.enter();
                        let frame = NonNull::from(&**frame);
                        // SAFETY: found in a section that is open still, of the same domain.
                        let page = unsafe { Reading::new(frame, depth > 0, inner) };
                        // SAFETY: private_pages.F6 - the frame was found in `section`, which is
                        // open until `f` has returned.
                        f(unsafe { &frame.as_ref().key }, page.page());
                    }
                });
            });
        }
    }

    /// Returns another view of the same pages. From now on, each view has only its own changes.
    ///
    /// Progress: waits for other forks of this view, for no reader and no writer.
    ///
    /// # Panics
    /// If the key's `Eq` does, and from within it. The view is as before then.
    #[must_use = "a fork that is dropped was in vain"]
    pub fn fork(&self) -> Self {
        // Closed last, so that what is retired here goes with no lock held.
        let section = self.family.domain.enter();
        let alone = self.forking.hold();
        if self.chain(&section).top.len() > 0 {
            self.freeze(&section);
        }
        // Else no write of this layer has returned yet, nor has its page been seen
        // (private_pages.F8): writes that are under way come after this moment. Whatever is below
        // is frozen.
        let fork = Chain::new(self.chain(&section).below.clone());
        fork.below.iter().for_each(|layer| layer.add_view());
        let fork = Self::of(Arc::clone(&self.family), fork);
        // Dropped first: a destructor that panics leaks what is being returned.
        drop(alone);
        drop(section);
        fork
    }

    /// Freezes the top and puts a new one above it (private_pages.F3), and joins layers
    /// (private_pages.F5). The caller is a fork.
    fn freeze(&self, section: &Section<'_>) {
        let chain = self.chain(section);
        let next = Chain::new(chain.layers().cloned().collect());
        let next = Owned::new(next); // all that can fail is done before writers are refused
        chain.top.freeze();
        self.replace(next, section);
        let chain = self.chain(section);
        let Some(below) = joined(&chain.below, section) else { return };
        let is_among = |layers: &[Arc<_>], one| layers.iter().any(|other| Arc::ptr_eq(other, one));
        let gone = chain.below.iter().filter(|layer| !is_among(&below, layer));
        let gone = Owned::new(GivenUp(gone.cloned().collect())).into_shared(section);
        self.replace(Owned::new(Chain { top: Arc::clone(&chain.top), below }), section);
        let weight = Weight::exact(size_of::<GivenUp<T::Key, T::Page>>());
        // SAFETY: linked nowhere; readers of the layers found the chain that was replaced just now,
        // in sections of the family's domain (private_pages.F5, private_pages.F6).
        unsafe { section.retire_quietly(gone, weight) };
    }

    fn replace(&self, chain: Owned<Chain<T::Key, T::Page>>, section: &Section<'_>) {
        let old = self.chain.swap(chain, section);
        // Its layers live on in the new chain, or go soon: batches are small here.
        let weight = Weight::exact(size_of::<Chain<T::Key, T::Page>>());
        // SAFETY: unlinked by the swap; all sections are of the family's domain (private_pages.F6).
        unsafe { section.retire_quietly(old, weight) };
    }
}

impl<T, S> PrivatePages<T, S>
where
    T: PageStore<Page: Clone>,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Runs `f` on this view's own copy of the page, with exclusive access. The copy is made first
    /// if there is none since the last fork, or if the page has readers.
    ///
    /// Progress: waits for other writes of the same page, in this view or (before it is copied) in
    /// one that this view was forked from. Waits a moment if a fork is just putting a new layer on
    /// top.
    ///
    /// # Errors
    /// As [`PageCache::pin`], if the page must come from the cache, and [`PinError::Full`] at the
    /// limit of copies. `f` was not called then.
    ///
    /// # Panics
    /// If the store, `Clone` or `f` does, or from within a closure that writes the page.
    pub fn with_mut<R>(
        &self,
        key: &T::Key,
        mut f: impl FnOnce(&mut T::Page) -> R,
    ) -> Result<R, PinError<T::Error>> {
        let Family { cache, tally, domain } = &*self.family;
        let hash = cache.hash(key);
        let (mut loaded, mut swept) = (None, false);
        let mut backoff = Backoff::new();
        loop {
            let section = domain.enter();
            let chain = self.chain(&section);
            let full = match self.own(chain, hash, key, loaded.as_deref(), &section) {
                Ok(Some(frame)) => {
                    match frame.write(|| chain.top.is_frozen(), tally, &section, f) {
                        Written::Done(result) => {
                            // Dropped first: a destructor that panics leaks what is being returned.
                            drop(section);
                            return Ok(result);
                        }
                        Written::Frozen(again) => {
                            f = again;
                            backoff.pause();
                            false
                        }
                        Written::Full(again) => {
                            f = again;
                            true
                        }
                    }
                }
                Ok(None) => {
                    drop(section); // a load may take long
                    loaded = Some(cache.pin(key)?);
                    continue;
                }
                Err(Full) => true,
            };
            drop(section);
            if full && std::mem::replace(&mut swept, true) {
                return Err(PinError::Full);
            }
            if full {
                (0..2).for_each(|_| domain.collect()); // the second call finds what is new
            }
        }
    }

    /// Returns the page's frame in the top layer of `chain`. If there is none, adds one
    /// (private_pages.F1), with a copy of the page below, or of the cache's page. Returns `None` if
    /// the cache's page is needed and `loaded` is `None`.
    fn own<'s>(
        &self,
        chain: &'s Chain<T::Key, T::Page>,
        hash: u64,
        key: &T::Key,
        loaded: Option<&T::Page>,
        section: &'s Section<'_>,
    ) -> Result<Option<&'s FrameOf<T>>, Full> {
        if let Some(frame) = chain.top.get(hash, key, section) {
            return Ok(Some(frame));
        }
        let tally = &self.family.tally;
        let copied = match (chain.find_below(hash, key, section), loaded) {
            (Some(below), _) => below.settled(section).copy(tally)?,
            (None, Some(page)) => Copied::new(Room::take(tally)?, page),
            (None, None) => return Ok(None),
        };
        let frame = Arc::new(Frame::new(hash, key.clone(), copied));
        Ok(Some(chain.top.insert(&frame, section)))
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PrivatePages<T, S> {
    /// Returns the cache.
    pub fn cache(&self) -> &Arc<PageCache<T, S>> {
        &self.family.cache
    }

    /// Returns the number of copies of pages in this view and all related by forks, including
    /// copies that wait to be freed.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.family.tally.live()
    }

    /// Returns the number of pages that this view has written since it was last forked: those that
    /// a fork would freeze.
    #[must_use]
    pub fn written(&self) -> usize {
        let section = self.family.domain.enter();
        self.chain(&section).top.len()
    }

    /// Returns the number of layers that a look-up goes through before it comes to the cache.
    #[must_use]
    pub fn depth(&self) -> usize {
        let section = self.family.domain.enter();
        self.chain(&section).layers().count()
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for PrivatePages<T, S> {
    fn drop(&mut self) {
        if crate::sync::model_failed() {
            return;
        }
        // SAFETY: the view is not used any more, and its chain has no other link.
        let chain = unsafe { std::mem::take(&mut self.chain).into_owned() };
        if let Some(chain) = &chain {
            chain.layers().for_each(|layer| layer.drop_view());
        }
    }
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> fmt::Debug for PrivatePages<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivatePages")
            .field("written", &self.written())
            .field("depth", &self.depth())
            .field("copies", &self.copies())
            .field("copies_max", &self.family.tally.most())
            .finish_non_exhaustive()
    }
}
