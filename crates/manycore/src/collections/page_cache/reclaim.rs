//! Making room, and writing pages back to the store. Laws page_cache.G3 to page_cache.G5 and
//! page_cache.G8.

use super::super::reentrancy_lock::panic_on_reentrancy;
use super::{Counted, Frame, Lookup, PageCache, PageStore, PinError, Room, State, Tag, Uses};
use crate::percpu::thread_token;
use crate::sync::{Backoff, Ordering, seeded_bug};
use std::hash::BuildHasher;
use std::sync::Arc;

/// The state that a step found when it saw the whole page.
enum Found<F> {
    /// Pinned, loading, being written, or used since the last look.
    InUse,
    /// A write-back is under way, on the thread with this token.
    Writing(usize),
    /// Dirty. The write-back has begun: the caller must do it.
    Dirty(Arc<F>),
    Clean,
}

/// A write-back under way: the page is pinned and its dirty bits are cleared. Dropping this counts
/// the write-back as failed, unless `failed` was reset.
struct WriteBack<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static> {
    cache: &'a PageCache<T, S>,
    tag: Tag,
    failed: bool,
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for WriteBack<'_, T, S> {
    fn drop(&mut self) {
        let dirty = self.failed;
        self.cache.pages.gather_tagged(self.tag, (), |(), uses| {
            if std::mem::take(&mut uses.writing) != 0 {
                uses.pins = uses.pins.wrapping_sub(1);
                uses.dirty |= dirty;
            }
        });
    }
}

/// Pages that a reclaimer spares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spare {
    /// Pages in use, and for one look those that were used since the last look.
    Used,
    /// Only pages in use.
    InUse,
}

/// A page that a reclaimer looks at. Dropping this gives the room back if the page has gone.
struct Victim<'a, T: PageStore, S: BuildHasher + Send + Sync + 'static> {
    cache: &'a PageCache<T, S>,
    tag: Tag,
    gone: bool,
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> Drop for Victim<'_, T, S> {
    fn drop(&mut self) {
        if self.gone {
            self.cache.room.with(|room| room.leave(self.tag));
        }
    }
}

/// Begins a write-back if the page is dirty and none is under way: clears the dirty bits and pins
/// the page (page_cache.G3, page_cache.G4).
fn begin<F>(page: &Arc<F>, uses: &mut [&mut Uses]) -> Found<F> {
    if let Some(uses) = uses.iter().find(|uses| uses.writing != 0) {
        return Found::Writing(uses.writing);
    }
    let mut dirty = uses.iter_mut().filter(|uses| uses.dirty);
    let Some(first) = dirty.next() else { return Found::Clean };
    first.writing = thread_token();
    first.pins = first.pins.wrapping_add(1);
    first.dirty = false;
    dirty.for_each(|uses| uses.dirty = false);
    Found::Dirty(Arc::clone(page))
}

impl<T: PageStore, S: BuildHasher + Send + Sync + 'static> PageCache<T, S> {
    /// Takes room for a page, if need be from another page (page_cache.G5, page_cache.G8).
    pub(super) fn take_room(&self) -> Result<(), PinError<T::Error>> {
        loop {
            let Err(given_back) = self.room.with(Room::take) else { return Ok(()) };
            let made = self.reclaim(1).map_err(PinError::Store)? > 0
                // BUG: a page that was used lately refuses a pin as one in use does (page_cache.G8
                // of `page_cache`).
                || !seeded_bug!("spared-is-full") && self.drop_unpinned().map_err(PinError::Store)?;
            // Room that other threads gave back may be taken again: then they have made progress.
            if !made && self.room.with(|room| room.given_back()) == given_back {
                return Err(PinError::Full);
            }
        }
    }

    /// Drops one page that is not in use, even if it was used lately. Returns true if it dropped
    /// one.
    fn drop_unpinned(&self) -> Result<bool, T::Error> {
        for tag in self.room.with(|room| room.tags()) {
            if self.drop_page(tag, Spare::InUse)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Drops up to `pages` pages, dirty ones after writing them back. Returns how many it dropped.
    /// Pinned pages stay. Pages that were pinned since the last look stay for one round.
    ///
    /// # Errors
    /// At the first page that the store does not take. That page stays in the cache, and dirty.
    /// Pages that were dropped before it are gone.
    ///
    /// # Panics
    /// If the store does; the page stays, and dirty.
    pub fn reclaim(&self, pages: usize) -> Result<usize, T::Error> {
        let mut reclaimed = 0;
        // Each page twice: at the first look it may have been used.
        let mut looks = 2 * self.room.with(|room| room.queued());
        while reclaimed < pages && looks > 0 {
            looks -= 1;
            let Some(tag) = self.room.with(Room::next) else { break };
            reclaimed += usize::from(self.drop_page(tag, Spare::Used)?);
        }
        Ok(reclaimed)
    }

    /// Same as [`reclaim`](Self::reclaim); if that finds too few, also drops pages that were used
    /// lately. For memory that is needed now. Pinned pages stay.
    ///
    /// # Errors
    /// As `reclaim`.
    ///
    /// # Panics
    /// As `reclaim`.
    pub fn reclaim_unpinned(&self, pages: usize) -> Result<usize, T::Error> {
        let mut reclaimed = self.reclaim(pages)?;
        while reclaimed < pages && self.drop_unpinned()? {
            reclaimed += 1;
        }
        Ok(reclaimed)
    }

    /// Drops the page unless it is spared (page_cache.G2, page_cache.G3). Returns true if the page
    /// has gone.
    fn drop_page(&self, tag: Tag, spare: Spare) -> Result<bool, T::Error> {
        let mut victim = Victim { cache: self, tag, gone: false };
        loop {
            let mut found = Found::InUse;
            let gone = &mut victim.gone;
            let removed = self.pages.remove_tagged_if(tag, |state, uses| {
                let State::Ready(page) = state else { return false };
                // ORDER: Acquire; pairs with Release in `Pinned::drop`. What is taken was counted
                // under locks that are held now, so both are equal only if no pin is left.
                let back = page.back.load(Ordering::Acquire);
                let taken = uses.iter().fold(0_usize, |sum, uses| sum.wrapping_add(uses.pins));
                let used = uses.iter_mut().fold(false, |any, u| any | std::mem::take(&mut u.used));
                if taken == back && (!used || spare == Spare::InUse) {
                    found = begin(page, uses);
                }
                *gone = matches!(found, Found::Clean); // it goes, even if its `Drop` panics
                *gone
            });
            drop(removed);
            match found {
                Found::Dirty(page) => self.write(tag, page)?, // and look again
                Found::Clean | Found::InUse | Found::Writing(_) => return Ok(victim.gone),
            }
        }
    }

    /// Writes a page back. The caller has begun the write-back.
    fn write(&self, tag: Tag, page: Arc<Frame<T::Key, T::Page>>) -> Result<(), T::Error> {
        let mut write_back = WriteBack { cache: self, tag, failed: true };
        let page = page; // dropped before the pin is given back: page_cache.G5 counts memory
        self.store.write_back(&page.key, &page.page)?;
        write_back.failed = false;
        Ok(())
    }

    /// Calls `show` with every page that is there, in no order: those that stay for the whole call,
    /// and perhaps some that come or go meanwhile. Each page is pinned while it is shown, and does
    /// not count as used for that.
    ///
    /// Cost: a pin for each page. No lock is held while a page is shown.
    ///
    /// # Panics
    /// If `show` does.
    pub fn for_each(&self, mut show: impl FnMut(&T::Key, &T::Page)) {
        for tag in self.pages.tags() {
            let mut lookup = Lookup::of(tag);
            let frame = self.pages.with_tagged(&mut lookup, |state, uses| match state {
                State::Ready(frame) => {
                    uses.pins = uses.pins.wrapping_add(1);
                    Some(Arc::as_ptr(frame))
                }
                State::Loading(_) => None,
            });
            if let Some(frame) = frame.flatten() {
                let pinned = self.pinned(Counted { frame, id: tag.id, near: lookup.near() });
                show(pinned.key(), &pinned);
            }
        }
    }

    /// Writes all dirty pages back, and returns how many there were. The pages stay in the cache.
    ///
    /// Every change that was marked before the call is in the store when this returns without an
    /// error.
    ///
    /// # Errors
    /// At the first page that the store does not take. That page stays dirty, and so do pages that
    /// were not looked at yet.
    ///
    /// # Panics
    /// If the store does; the page stays dirty. Also from within a write-back.
    pub fn flush(&self) -> Result<usize, T::Error> {
        let mut written = 0;
        for tag in self.pages.tags() {
            let mut backoff = Backoff::new();
            loop {
                let mut found = Found::Clean;
                self.pages.remove_tagged_if(tag, |state, uses| {
                    if let State::Ready(page) = state {
                        found = begin(page, uses);
                    }
                    false
                });
                match found {
                    Found::Dirty(page) => {
                        self.write(tag, page)?;
                        written += 1;
                        break;
                    }
                    // Another thread's write-back, which may fail.
                    Found::Writing(by) if by == thread_token() => panic_on_reentrancy(),
                    Found::Writing(_) => backoff.pause(),
                    Found::Clean | Found::InUse => break,
                }
            }
        }
        Ok(written)
    }
}
