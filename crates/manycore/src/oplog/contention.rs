//! The word beside the object's: what a cold object has seen of contention, and two flags.
//!
//! Owns: its bits. An object has four bytes for them (law oplog.D8). The word's lock guards the
//! counts; the flags may be set by any thread. While the object is cold, it counts for the
//! controller in `policy`; the counts of a *managed* object are its owner's [`Meter`].

use crate::policy::Streak;
use crate::sync::{AtomicU32, Ordering, const_fn};

/// Updates since the last read.
const UPDATES: u32 = 0xffff;
const CONTENDED_SHIFT: u32 = 16;
/// The contended ones among them, since the object last asked for logs.
const CONTENDED: u32 = 0xff << CONTENDED_SHIFT;

/// A managed object's updates, in place of the two above.
const METERED: u32 = (1 << READ_SHIFT) - 1;
const READ_SHIFT: u32 = 13;
const WAIT_SHIFT: u32 = 26;
const WAITS: u32 = 0xf << WAIT_SHIFT;

/// A hint: the word is HOT.
const HOT: u32 = 1 << 30;
const POISONED: u32 = 1 << 31;
const FLAGS: u32 = HOT | POISONED;
const _: () = assert!((UPDATES | CONTENDED) & FLAGS == 0 && (METERED | WAITS) & FLAGS == 0);

/// Counts of a cold object since its owner last took them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Meter {
    pub(crate) updates: u32,
    pub(crate) reads: u32,
    /// The number of them that had to wait for the lock (saturates at 15).
    pub(crate) waits: u32,
}

/// The kind of an access that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Update,
    Read,
}

/// The word's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contention(u32);

impl Contention {
    #[inline(always)]
    pub(super) fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    #[inline(always)]
    pub(super) fn is_poisoned(self) -> bool {
        self.0 & POISONED != 0
    }

    /// The number of updates since the last read; saturates.
    #[inline(always)]
    pub(super) fn updates(self) -> u32 {
        self.0 & UPDATES
    }

    #[inline(always)]
    pub(super) fn with_update(self) -> Self {
        if self.updates() == UPDATES { self } else { Self(self.0 + 1) }
    }

    /// The contended updates.
    pub(super) fn contended(self) -> Streak {
        Streak::from_raw((self.0 & CONTENDED) >> CONTENDED_SHIFT)
    }

    pub(super) fn with_contended(self, contended: Streak) -> Self {
        let count = contended.raw().min(CONTENDED >> CONTENDED_SHIFT);
        Self(self.0 & !CONTENDED | count << CONTENDED_SHIFT)
    }

    /// After a read; `keep` says that contention goes on counting.
    pub(super) fn after_read(self, keep: bool) -> Self {
        Self(self.0 & !if keep { UPDATES } else { UPDATES | CONTENDED })
    }

    /// Counts an access of a managed object.
    #[inline(always)]
    pub(super) fn metered(self, kind: Kind) -> Self {
        debug_assert!(self.count(kind) < METERED, "oplog.W5: the owner did not take its meter");
        Self(self.0 + (1 << Self::shift(kind)))
    }

    /// The number of a managed object's accesses of this kind.
    #[inline(always)]
    pub(super) fn count(self, kind: Kind) -> u32 {
        self.0 >> Self::shift(kind) & METERED
    }

    pub(super) fn with_wait(self) -> Self {
        if self.0 & WAITS == WAITS { self } else { Self(self.0 + (1 << WAIT_SHIFT)) }
    }

    pub(super) fn meter(self) -> Meter {
        let waits = (self.0 & WAITS) >> WAIT_SHIFT;
        Meter { updates: self.count(Kind::Update), reads: self.count(Kind::Read), waits }
    }

    /// Without any counts.
    pub(super) fn flags(self) -> Self {
        Self(self.0 & FLAGS)
    }

    #[inline(always)]
    fn shift(kind: Kind) -> u32 {
        if kind == Kind::Update { 0 } else { READ_SHIFT }
    }
}

/// See the module header.
// ORDER: Relaxed (all); the word's lock orders the counts, and the flags are hints without a lock.
pub(super) struct AtomicContention(AtomicU32);

impl AtomicContention {
    const_fn! {
        pub(super) const fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Contention {
        Contention(self.0.load(Ordering::Relaxed))
    }

    /// For the holder of the cold object's lock. A flag that another thread sets at this moment may
    /// be lost: the promotion that set it sets it again at its end.
    #[inline(always)]
    pub(super) fn store(&self, to: Contention) {
        self.0.store(to.0, Ordering::Relaxed);
    }

    /// The object has become hot.
    pub(super) fn note_hot(&self) {
        self.0.fetch_or(HOT, Ordering::Relaxed);
    }

    pub(super) fn poison(&self) {
        self.0.fetch_or(POISONED, Ordering::Relaxed);
    }

    pub(super) fn clear_poison(&self) {
        self.0.fetch_and(!POISONED, Ordering::Relaxed);
    }

    /// The object has become cold.
    pub(super) fn note_cold(&self, poisoned: bool) {
        self.0.store(if poisoned { POISONED } else { 0 }, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const FULL: u32 = u32::MAX;

    #[test]
    fn counts_do_not_touch_each_other_or_the_flags() {
        let flags = Contention(FLAGS);
        let counted = flags.with_update().with_contended(Streak::from_raw(9));
        assert_eq!((counted.updates(), counted.contended().raw()), (1, 9));
        assert_eq!(counted.flags(), flags);
        assert_eq!(counted.after_read(true).contended().raw(), 9);
        assert_eq!(counted.after_read(false), flags);
        let metered = flags.metered(Kind::Update).metered(Kind::Read).metered(Kind::Read);
        let meter = metered.with_wait().meter();
        assert_eq!(meter, Meter { updates: 1, reads: 2, waits: 1 });
        assert_eq!(metered.flags(), flags);
    }

    #[test]
    fn counts_saturate() {
        assert_eq!(Contention(FULL).with_update(), Contention(FULL));
        assert_eq!(Contention(FULL).with_wait(), Contention(FULL));
        let most = Contention(0).with_contended(Streak::from_raw(u32::MAX));
        assert_eq!((most.contended().raw(), most.flags(), most.updates()), (255, Contention(0), 0));
    }
}
