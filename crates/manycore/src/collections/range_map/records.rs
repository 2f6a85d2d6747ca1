//! Records of the ranges that threads hold for long: under a guard, or while a thread waits for the
//! rest of its range. A thread that has to wait parks on the holder's record (range_map.R7).

use super::error::RangeError;
use crate::lock::{self, Hold, Refused};
use crate::percpu::{segmented::Segmented, thread_token};
use crate::profile::Of;
use crate::sync::{AtomicU64, AtomicUsize, Backoff, Ordering, UnsafeCell, fence, seeded_bug};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Empty branches, by first key and level, in the order in which they were listed.
pub(super) type Listed = VecDeque<(u64, u32)>;

/// The range that the owner of a slot holds. Only the owner writes it, except for the lock.
#[repr(align(128))]
pub(super) struct Record {
    /// The record's lock. The owner holds it while it holds the range. Waiters hold it for a
    /// moment.
    pub(super) word: AtomicUsize,
    /// Number of threads that wait for the lock, or are about to.
    waiters: AtomicUsize,
    /// Odd while the fields below are being written.
    version: AtomicU64,
    /// The range. The owner holds all of it before the slot `want`.
    first: AtomicU64,
    last: AtomicU64,
    /// First and last key of the slot whose lock bit the owner waits for, or [`ALL_HELD`] if it
    /// holds the whole range.
    want: [AtomicU64; 2],
    /// Used only by the owner.
    listed: UnsafeCell<Listed>,
}

/// No slot, because it would end before it begins.
pub(super) const ALL_HELD: (u64, u64) = (u64::MAX, 0);

// SAFETY: only the slot's owner uses `listed`, through `with_listed`. A slot has one owner at a
// time, and is handed over with everything that its owner did (percpu.P2).
unsafe impl Sync for Record {}

impl From<usize> for Record {
    fn from(_slot: usize) -> Self {
        Self {
            word: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            first: AtomicU64::new(1),
            last: AtomicU64::new(0),
            want: [AtomicU64::new(0), AtomicU64::new(0)],
            listed: UnsafeCell::new(Listed::new()),
        }
    }
}

impl Record {
    /// Runs `f` on the empty branches that the owner has listed. Called by the owner. `f` runs no
    /// user code.
    pub(super) fn with_listed<R>(&self, f: impl FnOnce(&mut Listed) -> R) -> R {
        // SAFETY: percpu.P2 - the calling thread owns the slot, as `Records::own` requires, and `f`
        // does not call this function.
        self.listed.with_mut(|listed| f(unsafe { &mut *listed }))
    }

    /// Publishes that the owner holds the range up to the slot `want`, or is about to lock the
    /// record.
    pub(super) fn set(&self, range: (u64, u64), want: (u64, u64)) {
        // ORDER: Relaxed; the owner's own word.
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // ORDER: Release; pairs with the second fence of `has`: the odd version before the fields.
        fence(Ordering::Release);
        self.first.store(range.0, Ordering::Relaxed);
        self.last.store(range.1, Ordering::Relaxed);
        self.want[0].store(want.0, Ordering::Relaxed);
        self.want[1].store(want.1, Ordering::Relaxed);
        // ORDER: Release; pairs with Acquire in `has`: the fields before the even version.
        self.version.store(version + 2, Ordering::Release);
        // ORDER: Release; if the owner takes the lock next, its locked instruction publishes the
        // fields. Pairs with the first fence of `has`.
        fence(Ordering::Release);
    }

    /// Locks the record for the owner, after all threads that waited for its last range have left.
    /// They wait for nothing that the owner holds now, and would seem to close cycles.
    pub(super) fn lock(&self, of: Of) -> Hold<'_> {
        let mut backoff = Backoff::new();
        // ORDER: SeqCst; store buffering. The owner releases its last range and then loads the
        // count here. A waiter, in `wait`, counts itself and then loads the lock. One of them sees
        // the other's store.
        fence(Ordering::SeqCst);
        // BUG: a record is locked for a new range while threads are still leaving the wait for the
        // old one, so they seem to wait for the new range (range_map.R7).
        while self.waiters.load(Ordering::Acquire) != 0 && !seeded_bug!("locked-over-waiters") {
            backoff.pause();
        }
        match lock::hold(&self.word, of) {
            Ok(hold) => hold,
            Err(_) => unreachable!("waiters hold a record for a moment, and wait for nothing"),
        }
    }

    /// Waits until the owner has released its range, if it holds the slot with this span.
    pub(super) fn wait(&self, span: (u64, u64), of: Of) -> Result<(), Refused> {
        self.waiters.fetch_add(1, Ordering::SeqCst);
        // ORDER: SeqCst; as in `lock`.
        fence(Ordering::SeqCst);
        let waited = if self.has(span) { lock::hold(&self.word, of).map(drop) } else { Ok(()) };
        // ORDER: Release; pairs with Acquire in `lock`.
        self.waiters.fetch_sub(1, Ordering::Release);
        waited
    }

    /// Announces that the owner is about to release the range.
    pub(super) fn clear(&self) {
        self.set((1, 0), ALL_HELD);
    }

    /// Returns the range that the owner holds or is taking.
    pub(super) fn range(&self) -> RangeInclusive<u64> {
        // ORDER: Relaxed; called by the owner, or within `has`.
        self.first.load(Ordering::Relaxed)..=self.last.load(Ordering::Relaxed)
    }

    /// Returns true if the owner holds the lock bit of the slot with this span. Returns false while
    /// the owner is changing the record.
    pub(super) fn has(&self, span: (u64, u64)) -> bool {
        // ORDER: Relaxed load, and Acquire by the fence; pairs with the last fence of `set`: the
        // fields are not older than the lock.
        if self.word.load(Ordering::Relaxed) & lock::LOCKED == 0 {
            return false;
        }
        fence(Ordering::Acquire);
        // ORDER: Acquire; pairs with Release in `set`.
        let version = self.version.load(Ordering::Acquire);
        let range = self.range();
        let want = (self.want[0].load(Ordering::Relaxed), self.want[1].load(Ordering::Relaxed));
        // ORDER: Acquire, so that the version is loaded after the fields; pairs with the first
        // fence of `set`.
        fence(Ordering::Acquire);
        let is_whole = version % 2 == 0 && self.version.load(Ordering::Relaxed) == version;
        // Of the slots around the slot that it waits for, the owner holds those within its range.
        let is_around = span.0 <= want.0 && want.1 <= span.1 && span != want;
        is_whole
            && *range.start() <= span.0
            && span.1 <= *range.end()
            && (want == ALL_HELD || span.1 < want.0 || is_around)
    }
}

/// The records of all slots.
pub(super) struct Records(Segmented<Record>);

impl Records {
    pub(super) fn new() -> Self {
        Self(Segmented::new())
    }

    /// Returns the calling thread's record. `slot` is that of a section of the calling thread.
    pub(super) fn own(&self, slot: usize) -> &Record {
        self.0.get_or_init(slot)
    }

    /// Returns the record, other than slot `own`'s, whose owner holds the slot with this span.
    pub(super) fn holder(&self, span: (u64, u64), own: usize) -> Option<&Record> {
        let mut others = self.0.iter().filter(|(slot, _)| *slot != own);
        others.find(|(_, record)| record.has(span)).map(|(_, record)| record)
    }

    /// Checks that the calling thread holds no range of the map.
    ///
    /// # Errors
    /// `Nested`, if the calling thread holds a range.
    #[inline]
    pub(super) fn forbid_nesting(&self, slot: usize, keys: (u64, u64)) -> Result<(), RangeError> {
        match self.0.get(slot) {
            Some(own) if lock::is_held_by(&own.word, thread_token()) => {
                Err(RangeError::Nested { range: keys.0..=keys.1, held: own.range() })
            }
            _ => Ok(()),
        }
    }
}
