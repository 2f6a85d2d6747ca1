//! A private copy of a page, its writer and its readers. Laws private_pages.F2 to private_pages.F4.

use super::super::reentrancy_lock::cannot_hold;
use crate::config::SMALL;
use crate::lock::{self, Hold, LOCKED, Refused};
use crate::percpu::barrier;
use crate::profile::Of;
use crate::section::{Atomic, Owned, Section, Shared};
use crate::sync::{AtomicUsize, ConstPtr, Ordering, UnsafeCell, seeded_bug};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Number of copies, and its limit, in all views of a family.
pub(super) struct Tally {
    live: AtomicUsize,
    most: usize,
}

impl Tally {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { live: AtomicUsize::new(0), most })
    }

    pub(super) fn live(&self) -> usize {
        // ORDER: Relaxed; a statistic.
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }
}

/// The right to one copy, counted in the tally.
pub(super) struct Room(Arc<Tally>);

/// The error at the limit of copies.
#[derive(Debug)]
pub(super) struct Full;

impl Room {
    pub(super) fn take(tally: &Arc<Tally>) -> Result<Self, Full> {
        // ORDER: Relaxed (both); a count, whose bound is decided by one exchange.
        let taken = tally.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |live| {
            (live < tally.most).then(|| live + 1)
        });
        if taken.is_ok() { Ok(Self(Arc::clone(tally))) } else { Err(Full) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // ORDER: Relaxed, as in `take`.
        let live = self.0.live.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(
            (1..=self.0.most).contains(&live),
            "private_pages.F9: {live} copies are counted, of at most {}",
            self.0.most
        );
    }
}

/// A copy of a page.
pub(super) struct Copied<P> {
    page: UnsafeCell<P>,
    _room: Room,
}

// SAFETY: changed only by the holder of its frame's lock without readers (private_pages.F3,
// private_pages.F4), else shared.
unsafe impl<P: Send + Sync> Sync for Copied<P> {}
// SAFETY: owned data.
unsafe impl<P: Send> Send for Copied<P> {}

impl<P: Clone> Copied<P> {
    pub(super) fn new(room: Room, page: &P) -> Self {
        Self { page: UnsafeCell::new(page.clone()), _room: room }
    }

    /// Copies the copy. The caller knows that no thread writes it.
    pub(super) fn copy(&self, tally: &Arc<Tally>) -> Result<Self, Full> {
        let room = Room::take(tally)?;
        // SAFETY: private_pages.F3, private_pages.F4 - the caller knows that it is not being
        // written.
        Ok(self.page.with(|page| Self::new(room, unsafe { &*page })))
    }
}

/// A key with its page, in one or more layers.
pub(super) struct Frame<K, P> {
    pub(super) hash: u64,
    pub(super) key: K,
    /// Held by the writer of the page.
    word: AtomicUsize,
    /// Number of readers of the page while it may be written (private_pages.F4).
    readers: AtomicUsize,
    page: Atomic<Copied<P>>,
}

/// Outcome of a write.
pub(super) enum Written<R, F> {
    Done(R),
    /// The layer was frozen before the write.
    Frozen(F),
    /// The page is being read, and the limit of copies is reached.
    Full(F),
}

/// A replaced version of a page. It is retired when the frame's lock is free again.
struct Replaced<'s, P: Send> {
    page: Shared<'s, Copied<P>>,
    section: &'s Section<'s>,
}

impl<P: Send> Drop for Replaced<'_, P> {
    fn drop(&mut self) {
        if !self.page.is_null() {
            // SAFETY: swapped out of its frame, its only link, by the holder of the lock.
            unsafe { self.section.retire(self.page) };
        }
    }
}

impl<K, P> Frame<K, P> {
    pub(super) fn new(hash: u64, key: K, copied: Copied<P>) -> Self {
        let (word, readers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { hash, key, word, readers, page: Atomic::new(copied) }
    }

    #[inline]
    fn current<'s>(&'s self, section: &'s Section<'_>) -> &'s Copied<P> {
        self.page.load(section).as_ref().expect("a frame has a page")
    }

    #[inline]
    fn is_locked(&self) -> bool {
        // ORDER: Acquire; pairs with the Release that unlocks: the page as it was left.
        self.word.load(Ordering::Acquire) & LOCKED != 0
    }

    fn hold(&self) -> Result<Hold<'_>, Refused> {
        lock::hold(&self.word, Of::new("PrivatePages", self))
    }

    /// Returns the page of a frame in a layer that was found frozen. It never changes again, once
    /// no write is under way (private_pages.F3).
    ///
    /// # Panics
    /// If the calling thread is writing the page.
    #[inline]
    pub(super) fn settled<'s>(&'s self, section: &'s Section<'_>) -> &'s Copied<P> {
        // Look at the lock before the page: a write under way may replace the page.
        if self.is_locked() {
            drop(self.hold().unwrap_or_else(|refused| cannot_hold(refused)));
        }
        self.current(section)
    }

    /// Counts a reader and returns the page of a frame in a layer that may be written. The page
    /// does not change until the reader is discounted (private_pages.F4).
    ///
    /// # Panics
    /// If the calling thread is writing the page.
    fn count_reader<'s>(&'s self, section: &'s Section<'_>) -> &'s Copied<P> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        // ORDER: a full fence between the count and the look at the lock; pairs with the one in
        // `write` between the lock and the look at the count (private_pages.F4).
        barrier::full_after_rmw();
        // The page before the lock: a page loaded after a write began may be the one that is
        // written.
        let current = self.current(section);
        if !self.is_locked() {
            return current;
        }
        let _hold = self.hold().unwrap_or_else(|refused| {
            self.discount_reader();
            cannot_hold(refused)
        });
        self.current(section)
    }

    fn discount_reader(&self) {
        // ORDER: Release; pairs with Acquire in `write`: what was read before what is written.
        let readers = self.readers.fetch_sub(1, Ordering::Release);
        debug_assert!(
            readers.wrapping_sub(1) < usize::MAX / 2,
            "private_pages.F4: a reader that is not counted ends"
        );
    }

    /// Changes the page, unless its layer was frozen before (`is_frozen`). Changes it in place if
    /// it has no readers, or else changes a copy, which replaces it.
    ///
    /// # Panics
    /// If the calling thread is writing the page, or if `f` or the page's `Clone` does.
    pub(super) fn write<R, F: FnOnce(&mut P) -> R>(
        &self,
        is_frozen: impl Fn() -> bool,
        tally: &Arc<Tally>,
        section: &Section<'_>,
        f: F,
    ) -> Written<R, F>
    where
        P: Clone + Send,
    {
        // Declared before the lock, so that it is dropped after it: a page's destructor is user
        // code, and runs with no lock held (private_pages.F7).
        let mut replaced = Replaced { page: Shared::null(), section };
        let hold = self.hold().unwrap_or_else(|refused| cannot_hold(refused));
        // ORDER: a full fence between the lock, taken just now, and the looks at the layer and at
        // the readers; pairs with `Layer::freeze` (private_pages.F3) and `count_reader`
        // (private_pages.F4).
        barrier::full_after_rmw();
        // BUG: a private page is written without a look whether a fork has frozen its layer
        // (private_pages.F2 of `private_pages`).
        if is_frozen() && !seeded_bug!("stale-layer") {
            return Written::Frozen(f);
        }
        // ORDER: Acquire; pairs with Release in `discount_reader`.
        let is_read = self.readers.load(Ordering::Acquire) != 0;
        // BUG: a private page is written in place without a look whether a thread reads it
        // (private_pages.F4 of `private_pages`).
        if is_read && !seeded_bug!("written-under-reader") {
            let Ok(copy) = self.current(section).copy(tally) else { return Written::Full(f) };
            replaced.page = self.page.swap(Owned::new(copy), section);
        }
        // SAFETY: private_pages.F3, private_pages.F4 - this thread has the lock; readers check it,
        // because the layer is not frozen; and no reader is counted, or none can have seen this
        // copy yet.
        let result = self.current(section).page.with_mut(|page| f(unsafe { &mut *page }));
        // Dropped first: a destructor that panics leaks what is being returned.
        drop(hold);
        drop(replaced);
        Written::Done(result)
    }
}

impl<K, P> Drop for Frame<K, P> {
    fn drop(&mut self) {
        // ORDER: Relaxed; the frame is ours alone.
        debug_assert!(
            SMALL || self.readers.load(Ordering::Relaxed) == 0,
            "private_pages.F4: a frame is dropped while its page is read"
        );
        // SAFETY: the frame is ours alone, and its page has no other link.
        drop(unsafe { std::mem::take(&mut self.page).into_owned() });
    }
}

/// A page that is being read, with the section in which it was found.
pub(super) struct Reading<'a, K, P> {
    page: ManuallyDrop<ConstPtr<P>>,
    /// The frame in which this reader is counted, if it is.
    counted: Option<NonNull<Frame<K, P>>>,
    /// Closed last.
    _section: Section<'a>,
}

impl<'a, K, P> Reading<'a, K, P> {
    /// Reads a page that may be written, or (`frozen`) a page of a layer that was found frozen.
    ///
    /// # Panics
    /// If the calling thread is writing the page.
    ///
    /// # Safety
    /// The frame was found in `section`.
    pub(super) unsafe fn new(
        frame: NonNull<Frame<K, P>>,
        frozen: bool,
        section: Section<'a>,
    ) -> Self {
        // SAFETY: private_pages.F6 - the caller promises that the frame was found in `section`,
        // which keeps it, and moves into the `Reading`.
        let found = unsafe { frame.as_ref() };
        let copied = if frozen { found.settled(&section) } else { found.count_reader(&section) };
        let page = ManuallyDrop::new(copied.page.get());
        Self { page, counted: (!frozen).then_some(frame), _section: section }
    }

    #[inline]
    pub(super) fn page(&self) -> &P {
        // SAFETY: private_pages.F3, private_pages.F4 - it is not changed while it is counted or
        // frozen, and the section keeps it.
        unsafe { self.page.deref() }
    }
}

impl<K, P> Drop for Reading<'_, K, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped here alone.
        unsafe { ManuallyDrop::drop(&mut self.page) };
        if let Some(frame) = self.counted {
            // SAFETY: the section, which is open still, keeps the frame.
            unsafe { frame.as_ref() }.discount_reader();
        }
    }
}
