//! The word beside the object's: what a cold object has seen of contention, and two flags.
//!
//! Owns: its bits. An object has four bytes for them (law oplog.D8). The word's lock guards the
//! counts; the flags may be set by any thread. While the object is cold, it counts for the
//! controller in `policy`; the counts of a *managed* object are its owner's [`Meter`]. Each update
//! and read changes them, so that the lock's waiters can tell one hold from the next.

use crate::config;
use crate::policy::Streak;
use crate::sync::{AtomicU32, Ordering, const_fn};

/// Updates since the last read.
const UPDATES: u32 = 0x3ff;
const CONTENDED_SHIFT: u32 = 10;
/// The contended ones among them, since the object last asked for logs.
const CONTENDED: u32 = 7 << CONTENDED_SHIFT;
const USE: u32 = 1 << 13;
/// Updates and reads since one of them had to wait, while the object was never reserved. Later, or
/// if it is never to be, the reads for which it rests: for those it asks for no logs.
const USES: u32 = 0x7ff * USE;
/// Updates and reads, modulo 16: the highest bits, so that nothing is carried on.
const TURN: u32 = 1 << 28;
const TURNS: u32 = 0xf * TURN;

/// Fewer than make an object ask for a reservation.
const REST_MAX: u32 = config::USES_FOR_RESERVATION - 1;

/// A managed object's updates, in place of the four above.
const METERED: u32 = (1 << READ_SHIFT) - 1;
const READ_SHIFT: u32 = 12;
const WAIT_SHIFT: u32 = 28;
const WAITS: u32 = 0xf << WAIT_SHIFT;

/// The object is, or was, reserved for a thread, which it is once in its life (reservation.N4).
const SPENT: u32 = 1 << 24;
/// A hint: the word is reserved.
const RESERVED: u32 = 1 << 25;
/// A hint: the word is HOT.
const HOT: u32 = 1 << 26;
const POISONED: u32 = 1 << 27;
const FLAGS: u32 = SPENT | RESERVED | HOT | POISONED;
const _: () = assert!((UPDATES | CONTENDED | USES | TURNS) & FLAGS == 0);
const _: () = assert!((METERED | METERED << READ_SHIFT | WAITS) & FLAGS == 0);
const _: () = assert!(config::CONTENDED_FOR_LOGS <= CONTENDED >> CONTENDED_SHIFT);
const _: () = assert!(config::RATIO_FOR_LOGS <= UPDATES);
const _: () = assert!(config::USES_FOR_RESERVATION < USES / USE);
const _: () = assert!(2 * config::OPS_PER_LOOK < METERED);

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

    /// Whether the object seems to be reserved, and is not poisoned.
    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.0 & (RESERVED | POISONED) == RESERVED
    }

    /// Whether there is a flag that keeps a read from the short path.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.0 & (HOT | POISONED) == 0
    }

    /// The number of updates since the last read; saturates.
    #[inline(always)]
    pub(super) fn updates(self) -> u32 {
        self.0 & UPDATES
    }

    /// After an update by the holder of the word's lock, which is not reserved.
    #[inline(always)]
    pub(super) fn with_update(self) -> Self {
        let one = u32::from(self.updates() != UPDATES);
        Self(self.0 + one).with_turn().with_use()
    }

    #[inline(always)]
    fn with_turn(self) -> Self {
        Self(self.0.wrapping_add(TURN))
    }

    #[inline(always)]
    fn with_use(self) -> Self {
        let first = self.0 & SPENT == 0;
        Self((self.0 & !RESERVED) + if first { USE } else { 0 })
    }

    /// Whether the object is to be reserved for the thread that holds it.
    #[inline(always)]
    pub(super) fn wants_reservation(self) -> bool {
        self.0 & USES >= config::USES_FOR_RESERVATION * USE
    }

    /// Whether the object was never reserved, and nothing is counted.
    pub(super) fn may_be_reserved(self) -> bool {
        self.0 & !TURNS == 0
    }

    /// As after so many uses that the next one reserves the object.
    #[cfg(all(test, manycore_loom))]
    pub(super) const DUE: Self = Self(config::USES_FOR_RESERVATION * USE);

    /// Reserved, or never to be reserved.
    pub(super) fn spent(self, reserved: bool) -> Self {
        Self(self.0 & !(USES | RESERVED) | SPENT | if reserved { RESERVED } else { 0 })
    }

    /// After a wait for the lock.
    pub(super) fn without_uses(self) -> Self {
        Self(if self.0 & SPENT == 0 { self.0 & !USES } else { self.0 })
    }

    /// Never to be reserved, and at rest for so many reads, or as many as can be counted.
    pub(super) fn resting_for(self, reads: u32) -> Self {
        Self(self.0 & !(USES | RESERVED) | SPENT | (reads.min(REST_MAX) * USE))
    }

    /// Whether the object asks for no logs now. It does if it has had more updates since the last
    /// read than are counted.
    pub(super) fn is_resting(self) -> bool {
        self.0 & SPENT != 0 && self.0 & USES != 0 && self.updates() != UPDATES
    }

    /// The contended updates.
    pub(super) fn contended(self) -> Streak {
        Streak::from_raw((self.0 & CONTENDED) >> CONTENDED_SHIFT)
    }

    pub(super) fn with_contended(self, contended: Streak) -> Self {
        let count = contended.raw().min(CONTENDED >> CONTENDED_SHIFT);
        Self(self.0 & !CONTENDED | count << CONTENDED_SHIFT)
    }

    #[inline(always)]
    pub(super) fn is_contended(self) -> bool {
        self.0 & CONTENDED != 0
    }

    /// After a read; `keep` says that contention goes on counting.
    #[inline(always)]
    pub(super) fn after_read(self, keep: bool) -> Self {
        let next = Self(self.0 & !if keep { UPDATES } else { UPDATES | CONTENDED }).with_turn();
        if next.0 & SPENT != 0 {
            return Self((next.0 & !RESERVED) - if next.0 & USES != 0 { USE } else { 0 });
        }
        // Not every read may reserve, so the count stops before it overflows.
        if next.wants_reservation() { next } else { next.with_use() }
    }

    /// Counts an access of a managed object, which is not reserved.
    #[inline(always)]
    pub(super) fn metered(self, kind: Kind) -> Self {
        debug_assert!(self.count(kind) < METERED, "oplog.W5: the owner did not take its meter");
        Self((self.0 & !RESERVED) + (1 << Self::shift(kind)))
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

    /// The word that each update and each read of the cold object changes.
    pub(super) fn turns(&self) -> &AtomicU32 {
        &self.0
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
        let spent = self.load().0 & SPENT;
        self.0.store(spent | if poisoned { POISONED } else { 0 }, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const FULL: u32 = u32::MAX;

    #[test]
    fn counts_do_not_touch_each_other_or_the_flags() {
        let flags = Contention(FLAGS & !RESERVED); // which an update or a read clears
        let counted = flags.with_update().with_contended(Streak::from_raw(6));
        assert_eq!((counted.updates(), counted.contended().raw()), (1, 6));
        assert_eq!(counted.flags(), flags);
        assert_eq!(counted.after_read(true).contended().raw(), 6);
        assert_eq!(counted.after_read(false).flags(), flags);
        let metered = flags.metered(Kind::Update).metered(Kind::Read).metered(Kind::Read);
        let meter = metered.with_wait().meter();
        assert_eq!(meter, Meter { updates: 1, reads: 2, waits: 1 });
        assert_eq!(metered.flags(), flags);
    }

    #[test]
    fn counts_saturate() {
        let turned = FULL.wrapping_add(TURN);
        assert_eq!(Contention(FULL).with_update(), Contention(turned & !RESERVED));
        assert_eq!(Contention(FULL).with_wait(), Contention(FULL));
        let most = Contention(0).with_contended(Streak::from_raw(u32::MAX));
        assert_eq!((most.contended().raw(), most.flags(), most.updates()), (7, Contention(0), 0));
    }

    #[test]
    fn each_update_and_each_read_changes_the_word() {
        for flags in [0, SPENT, SPENT | TURNS | UPDATES, UPDATES | CONTENDED] {
            let mut seen = Contention(flags);
            for at in 0..100 {
                let next = if at % 3 == 0 { seen.with_update() } else { seen.after_read(true) };
                assert_ne!(next, seen);
                assert_eq!(next.flags(), seen.flags());
                seen = next;
            }
            let updated = seen.with_update();
            assert!(updated != seen && updated.with_update() != updated);
            assert_ne!(seen.metered(Kind::Read), seen);
        }
    }

    #[test]
    fn rest_is_over_after_so_many_reads_and_while_updates_are_too_many() {
        let mut seen = Contention(HOT).with_update().resting_for(3);
        for left in [3, 2, 1] {
            assert!(seen.is_resting() && !seen.wants_reservation(), "{left} left");
            seen = seen.with_update().without_uses().after_read(true);
        }
        assert!(!seen.is_resting() && !seen.after_read(false).is_resting());
        assert_eq!(seen.flags(), Contention(HOT | SPENT));
        let mut seen = Contention(0).resting_for(u32::MAX);
        assert!(seen.is_resting() && !seen.wants_reservation());
        (0..UPDATES).for_each(|_| seen = seen.with_update());
        assert!(!seen.is_resting() && seen.after_read(false).is_resting());
        assert!(!seen.resting_for(0).is_resting());
    }

    #[test]
    fn object_is_reserved_once_after_enough_uses() {
        let mut seen = Contention(0);
        for used in 0..config::USES_FOR_RESERVATION {
            assert!(!seen.wants_reservation(), "after {used} uses");
            seen = if used % 2 == 0 { seen.with_update() } else { seen.after_read(false) };
        }
        assert!(seen.wants_reservation() && !seen.without_uses().wants_reservation());
        // Reads do not overflow the count.
        (0..0x1_0000).for_each(|_| seen = seen.after_read(false));
        assert!(seen.wants_reservation() && !seen.is_reserved());
        let mut seen = seen.spent(true);
        assert!(seen.is_reserved() && !seen.wants_reservation());
        (0..0x1_0000).for_each(|_| seen = seen.with_update());
        assert!(!seen.is_reserved() && !seen.wants_reservation() && seen.updates() == UPDATES);
        assert!(!Contention(seen.spent(true).0 | POISONED).is_reserved());
    }
}
