//! Caches of pages as they are built by hand: a map of counted pages, behind locks of all kinds.
//!
//! A page that is in use has a second count, which protects it from eviction. Second chance chooses
//! the victim. If all pages are in use, the caches grow.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use crossbeam_utils::CachePadded;
use dashmap::DashMap;
use foldhash::fast::RandomState;

use super::{Disk, Page, Pages};

/// A page, once it is loaded.
#[derive(Default)]
pub(super) struct Frame {
    page: OnceLock<Page>,
    dirty: AtomicBool,
    used: AtomicBool,
}

impl Frame {
    /// Uses the page. The caller's count keeps it here.
    fn with(&self, key: u64, disk: &Disk, f: impl FnOnce(&Page) -> bool) {
        let page = self.page.get_or_init(|| disk.load(key));
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if f(page) {
            // ORDER: Release; pairs with the Acquire below: the change before its mark.
            self.dirty.store(true, Ordering::Release);
        }
    }

    fn write_back(&self, disk: &Disk) {
        if self.dirty.swap(false, Ordering::Acquire) {
            disk.write_back(self.page.get().expect("a page that was changed is loaded"));
        }
    }

    /// Whether the page may be evicted. The caller keeps other threads from pinning it.
    fn may_go(frame: &Arc<Self>) -> bool {
        let is_idle = Arc::strong_count(frame) == 1 && frame.page.get().is_some();
        // Pairs with the Release of the last unpin: the owner's dirty mark is visible.
        std::sync::atomic::fence(Ordering::Acquire);
        is_idle && !frame.used.swap(false, Ordering::Relaxed)
    }
}

/// Some of the pages.
#[derive(Default)]
pub(super) struct Shelf {
    frames: HashMap<u64, Arc<Frame>, RandomState>,
    queue: VecDeque<u64>,
}

impl Shelf {
    fn admit(&mut self, key: u64, room: usize, disk: &Disk) -> Arc<Frame> {
        if let Some(frame) = self.frames.get(&key) {
            return Arc::clone(frame);
        }
        if self.frames.len() >= room {
            self.evict(disk);
        }
        self.queue.push_back(key);
        Arc::clone(self.frames.entry(key).or_default())
    }

    fn evict(&mut self, disk: &Disk) {
        for _ in 0..2 * self.queue.len() {
            let Some(key) = self.queue.pop_front() else { return };
            if Frame::may_go(&self.frames[&key]) {
                self.frames[&key].write_back(disk);
                self.frames.remove(&key);
                return;
            }
            self.queue.push_back(key);
        }
    }
}

/// A lock around some of the pages.
pub(super) trait Lock: Default + Send + Sync + 'static {
    fn get(&self, key: u64) -> Option<Arc<Frame>>;
    fn change<R>(&self, f: impl FnOnce(&mut Shelf) -> R) -> R;
}

macro_rules! lock {
    ($(#[$doc:meta])* $type:ident, $inner:ty, $own:ident, $read:expr, $write:expr) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(super) struct $type($inner);

        impl Lock for $type {
            #[inline]
            fn get(&self, key: u64) -> Option<Arc<Frame>> {
                let $own = &self.0;
                $read.frames.get(&key).map(Arc::clone)
            }

            fn change<R>(&self, f: impl FnOnce(&mut Shelf) -> R) -> R {
                let $own = &self.0;
                f(&mut $write)
            }
        }
    };
}

lock!(
    /// The standard library's lock.
    StdMutex, Mutex<Shelf>, own,
    own.lock().unwrap_or_else(PoisonError::into_inner),
    own.lock().unwrap_or_else(PoisonError::into_inner)
);
lock!(
    /// The standard library's lock for readers and writers.
    StdRwLock, RwLock<Shelf>, own,
    own.read().unwrap_or_else(PoisonError::into_inner),
    own.write().unwrap_or_else(PoisonError::into_inner)
);
lock!(
    /// parking_lot's lock for readers and writers.
    ParkingLot, parking_lot::RwLock<Shelf>, own, own.read(), own.write()
);

/// The pages, spread over so many locks.
pub(super) struct Locked<L, const SHELVES: usize> {
    shelves: Box<[CachePadded<L>]>,
    /// Pages of one shelf.
    room: usize,
    disk: Disk,
}

impl<L: Lock, const SHELVES: usize> Pages for Locked<L, SHELVES> {
    fn new(disk: Disk, room: usize) -> Self {
        let shelves = (0..SHELVES).map(|_| CachePadded::default()).collect();
        Self { shelves, room: room.div_ceil(SHELVES), disk }
    }

    #[inline]
    fn with(&self, key: u64, f: impl FnOnce(&Page) -> bool) {
        let shelf = &self.shelves[key as usize % SHELVES];
        let admit = || shelf.change(|shelf| shelf.admit(key, self.room, &self.disk));
        let frame = shelf.get(key).unwrap_or_else(admit);
        frame.with(key, &self.disk, f);
    }

    fn flush(&self) {
        for shelf in &self.shelves {
            shelf.change(|shelf| shelf.frames.values().for_each(|own| own.write_back(&self.disk)));
        }
    }

    fn disk(&self) -> &Disk {
        &self.disk
    }
}

/// dashmap's map.
pub(super) struct Dash {
    frames: DashMap<u64, Arc<Frame>, RandomState>,
    queue: CachePadded<Mutex<VecDeque<u64>>>,
    room: usize,
    disk: Disk,
}

impl Dash {
    fn admit(&self, key: u64) -> Arc<Frame> {
        let mut is_new = false;
        let frame = Arc::clone(&self.frames.entry(key).or_insert_with(|| {
            is_new = true;
            Arc::default()
        }));
        if is_new {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push_back(key);
            self.evict(&mut queue);
        }
        frame
    }

    fn evict(&self, queue: &mut VecDeque<u64>) {
        for _ in 0..2 * queue.len() {
            if queue.len() <= self.room {
                return;
            }
            let Some(key) = queue.pop_front() else { return };
            let goes = self.frames.remove_if(&key, |_, frame| {
                let goes = Frame::may_go(frame);
                if goes {
                    frame.write_back(&self.disk);
                }
                goes
            });
            if goes.is_none() {
                queue.push_back(key);
            }
        }
    }
}

impl Pages for Dash {
    fn new(disk: Disk, room: usize) -> Self {
        let frames = DashMap::with_hasher(RandomState::default());
        Self { frames, queue: CachePadded::default(), room, disk }
    }

    #[inline]
    fn with(&self, key: u64, f: impl FnOnce(&Page) -> bool) {
        let found = self.frames.get(&key).map(|frame| Arc::clone(&frame));
        found.unwrap_or_else(|| self.admit(key)).with(key, &self.disk, f);
    }

    fn flush(&self) {
        // Excludes evictions and other flushes.
        let _alone = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        self.frames.iter().for_each(|frame| frame.write_back(&self.disk));
    }

    fn disk(&self) -> &Disk {
        &self.disk
    }
}
