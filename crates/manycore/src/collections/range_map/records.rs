//! Which range each thread holds for long: under a guard, or while it waits for the rest of it. A
//! thread that has to wait parks on the holder's record (law range_map.R7).

use super::error::RangeError;
use crate::lock::{self, Hold, Refused};
use crate::percpu::{segmented::Segmented, thread_token};
use crate::profile::Of;
use crate::sync::{AtomicU64, AtomicUsize, Backoff, Ordering, UnsafeCell, fence, seeded_bug};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Empty branches, by first key and level, the one listed first in front.
pub(super) type Listed = VecDeque<(u64, u32)>;

/// What the owner of a slot holds. Written by the owner alone, but for the lock.
#[repr(align(128))]
pub(super) struct Record {
    /// Locked as long as the owner holds the range; by waiters for a moment.
    pub(super) word: AtomicUsize,
    /// Threads that wait for the word, or are about to.
    waiters: AtomicUsize,
    /// Odd while the fields below are being written.
    version: AtomicU64,
    /// The range, of which all is held but for what comes from `want` on.
    first: AtomicU64,
    last: AtomicU64,
    /// First and last key of the slot whose lock bit the owner waits for; of [`ALL_HELD`], if it
    /// holds the whole range.
    want: [AtomicU64; 2],
    /// For the owner alone.
    listed: UnsafeCell<Listed>,
}

/// No slot: it would end before it begins.
pub(super) const ALL_HELD: (u64, u64) = (u64::MAX, 0);

// SAFETY: `listed` is used by the slot's owner alone, through `with_listed`; a slot has one owner
// at a time, and is handed over with what it did (percpu.P2).
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
    /// Runs `f`, which calls nothing of the user's, on the empty branches that the owner has
    /// listed. For the owner.
    pub(super) fn with_listed<R>(&self, f: impl FnOnce(&mut Listed) -> R) -> R {
        // SAFETY: percpu.P2 - the calling thread owns the slot, as `Records::own` asks for, and `f`
        // does not come back here.
        self.listed.with_mut(|listed| f(unsafe { &mut *listed }))
    }

    /// The owner holds the range up to the slot `want`, or is about to lock the record.
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
        // ORDER: Release; makes the owner's lock instruction, if it comes next, publish the fields:
        // pairs with the first fence of `has`.
        fence(Ordering::Release);
    }

    /// Locks the record for the owner, after threads that waited for its last range have left: they
    /// wait for nothing that it holds any more, and would close cycles that are none.
    pub(super) fn lock(&self, of: Of) -> Hold<'_> {
        let mut backoff = Backoff::new();
        // ORDER: SeqCst; the owner's last unlocking and then the count here, a waiter's count and
        // then the lock in `wait`: one of the two sees the other.
        fence(Ordering::SeqCst);
        // BUG: a record is locked for another range while threads are still on their way out of the
        // wait for the last one, and seem to wait for this one (range_map.R7).
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

    /// The owner is about to release the range.
    pub(super) fn clear(&self) {
        self.set((1, 0), ALL_HELD);
    }

    /// The range that the owner holds or takes.
    pub(super) fn range(&self) -> RangeInclusive<u64> {
        // ORDER: Relaxed; for the owner, or within `has`.
        self.first.load(Ordering::Relaxed)..=self.last.load(Ordering::Relaxed)
    }

    /// Whether the owner holds the lock bit of the slot with this span. (False while it is just
    /// saying so.)
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
        // Of the slots around the one it waits for, the owner has those within its range.
        let is_around = span.0 <= want.0 && want.1 <= span.1 && span != want;
        is_whole
            && *range.start() <= span.0
            && span.1 <= *range.end()
            && (want == ALL_HELD || span.1 < want.0 || is_around)
    }
}

/// A record for each slot.
pub(super) struct Records(Segmented<Record>);

impl Records {
    pub(super) fn new() -> Self {
        Self(Segmented::new())
    }

    /// The calling thread's record. The slot is that of a section of the calling thread's.
    pub(super) fn own(&self, slot: usize) -> &Record {
        self.0.get_or_init(slot)
    }

    /// The record, another slot's than `own`, whose owner holds the slot with this span.
    pub(super) fn holder(&self, span: (u64, u64), own: usize) -> Option<&Record> {
        let mut others = self.0.iter().filter(|(slot, _)| *slot != own);
        others.find(|(_, record)| record.has(span)).map(|(_, record)| record)
    }

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
