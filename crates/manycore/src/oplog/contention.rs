//! The word beside the object's word: flags, and counts of how a cold object is used.
//!
//! ```text
//! bit  31 30 29 28 27 26 25 | 24..22 | 21..11 | 10..0
//!      flags                | waits  | reads  | updates
//! ```
//!
//! Owns: the word's bits. An object has four bytes for them (law oplog.D8). The lock of the
//! object's word guards the counts; any thread may set `HOT` and `POISONED`.
//!
//! An update or a read of the cold object makes one addition. The word is looked at after a wait
//! for the lock, and when one of the counts is *due*, after some thousand uses. Then both counts
//! are halved, so they stay below their bounds and keep their ratio. Each use changes the word, so
//! the lock's waiters can tell one hold from the next.

use crate::config::{self, USES_FOR_RESERVATION as DUE};
use crate::sync::{AtomicU32, Ordering, const_fn};

const WIDTH: u32 = 11;
const MOST: u32 = (1 << WIDTH) - 1;
const UPDATE: u32 = 1;
const READ: u32 = 1 << WIDTH;
const COUNTS: u32 = MOST * (UPDATE + READ);
const WAIT: u32 = 1 << (2 * WIDTH);
/// The number of uses that had to wait.
const WAITS: u32 = 0x7 * WAIT;
/// The object keeps the mode that it was pinned to (`adaptive`).
const PINNED: u32 = 1 << 25;
/// The object asks for no logs.
const RESTING: u32 = 1 << 26;
/// The object is, or was, reserved for a thread. That happens once in its life (reservation.N4).
const SPENT: u32 = 1 << 27;
/// While the object is cold, readers may be inside through lanes (`readers`). This flag and those
/// above keep a use from the shortest path.
const SHARED: u32 = 1 << 28;
/// A hint: the word is reserved.
const RESERVED: u32 = 1 << 29;
/// A hint: the word is HOT, or the object should have logs from its first update on.
const HOT: u32 = 1 << 30;
const POISONED: u32 = 1 << 31;
const FLAGS: u32 = PINNED | RESTING | SPENT | SHARED | RESERVED | HOT | POISONED;

const _: () = assert!((COUNTS | WAITS) & FLAGS == 0);
const _: () = assert!(DUE.is_power_of_two() && 2 * DUE <= MOST + 1);
const _: () = assert!(config::CONTENDED_FOR_LOGS < WAITS / WAIT);

/// The kind of a counted access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Update,
    Read,
}

impl Kind {
    #[inline(always)]
    fn one(self) -> u32 {
        if self == Self::Update { UPDATE } else { READ }
    }
}

/// The word's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contention(u32);

impl Contention {
    /// The value after so many uses that the next one reserves the object.
    #[cfg(all(test, manycore_loom))]
    pub(super) const DUE: Self = Self((DUE - 1) * (UPDATE | READ));

    /// The value after so many reads, of an object that was reserved once, that the next read makes
    /// it shared.
    #[cfg(all(test, manycore_loom))]
    pub(super) const DUE_FOR_READERS: Self = Self((DUE - 1) * READ | SPENT);

    /// Returns true if no flag keeps a use from the shortest path.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.0 < SHARED
    }

    #[inline(always)]
    pub(super) fn is_poisoned(self) -> bool {
        self.0 & POISONED != 0
    }

    /// Returns true if the object seems to be reserved, and has no other flag that matters.
    #[inline(always)]
    pub(super) fn is_reserved(self) -> bool {
        self.0 & (SHARED | RESERVED | HOT | POISONED) == RESERVED
    }

    /// As [`is_reserved`](Self::is_reserved), for an object that is as the reservation made it: it
    /// has no other flag, and no uses were counted since.
    #[inline(always)]
    pub(super) fn is_merely_reserved(self) -> bool {
        self.0 == SPENT | RESERVED
    }

    /// Returns the value after a use by the holder of the word's lock.
    #[inline(always)]
    pub(super) fn with(self, kind: Kind) -> Self {
        debug_assert!(self.count(kind) < MOST, "a count that is due was not looked at");
        Self(self.0 + kind.one())
    }

    /// Returns the value without the reservation hint: the word's lock is held, so the word is not
    /// reserved.
    pub(super) fn unreserved(self) -> Self {
        Self(self.0 & !RESERVED)
    }

    #[inline(always)]
    pub(super) fn count(self, kind: Kind) -> u32 {
        (self.0 / kind.one()) & MOST
    }

    fn waits(self) -> u32 {
        (self.0 & WAITS) / WAIT
    }

    /// Returns true if so many uses of this kind are counted that the counts must be looked at.
    #[inline(always)]
    pub(super) fn is_due(self, kind: Kind) -> bool {
        self.0 & (DUE * kind.one()) != 0
    }

    /// Returns true if nothing is left to do after a use of this kind, which is counted here: no
    /// flag keeps it from the shortest path, and nothing is due.
    #[inline(always)]
    pub(super) fn needs_no_look(self, kind: Kind) -> bool {
        self.0 & (SHARED | RESERVED | HOT | POISONED | (DUE * kind.one())) == 0
    }

    /// Returns true if an object that is due should be reserved for the thread that holds it: it
    /// never was reserved, and no use had to wait.
    pub(super) fn wants_reservation(self) -> bool {
        self.0 & (SPENT | WAITS) == 0
    }

    /// Returns the value after a count was due and the object was not reserved.
    pub(super) fn looked_at(self) -> Self {
        let halved = |kind: Kind| self.count(kind) / 2 * kind.one();
        // A rest is over if there was no read for very many updates.
        let kept = if self.count(Kind::Read) == 0 { FLAGS & !RESTING } else { FLAGS };
        Self(self.0 & kept | halved(Kind::Update) | halved(Kind::Read))
    }

    /// Returns the value of an object that is `reserved` now, or that will never be.
    pub(super) fn spent(self, reserved: bool) -> Self {
        Self(self.0 & !(COUNTS | RESERVED) | SPENT | if reserved { RESERVED } else { 0 })
    }

    /// Returns the value of an object that will never be reserved, and rests or no longer does.
    pub(super) fn resting(self, rests: bool) -> Self {
        let flags = self.flags().unreserved().0 & !RESTING | SPENT;
        Self(flags | if rests { RESTING } else { 0 })
    }

    /// Returns the value after an update that had to wait for the lock, and whether the object
    /// wants logs.
    pub(super) fn after_wait(self) -> (Self, bool) {
        if self.0 & (RESTING | PINNED) != 0 {
            return (self, false);
        }
        let (updates, reads) = (self.count(Kind::Update), self.count(Kind::Read));
        let waits = self.waits().max(1);
        let with_waits = |waits: u32| self.0 & !WAITS | (waits * WAIT);
        if updates >= config::RATIO_FOR_LOGS * reads.max(1) {
            if waits >= config::CONTENDED_FOR_LOGS {
                return (Self(with_waits(1)), true);
            }
            return (Self(with_waits(waits + 1)), false);
        }
        // With this many uses, the ratio is no accident. (Fewer say nothing yet.)
        let known = updates + reads >= 4 * config::RATIO_FOR_LOGS;
        (Self(with_waits(1) & if known { !COUNTS } else { u32::MAX }), false)
    }

    /// Returns true if there are enough reads for each update to pay for lanes. Reads are due.
    pub(super) fn wants_readers(self) -> bool {
        let (updates, reads) = (self.count(Kind::Update), self.count(Kind::Read));
        self.0 & (PINNED | RESTING) == 0 && reads >= updates.saturating_mul(config::SHARED_FROM)
    }

    /// Returns true if readers may be inside through lanes.
    #[inline(always)]
    pub(super) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    pub(super) fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
    }

    /// Returns the value with or without readers through lanes, and pinned or not.
    pub(super) fn in_mode(self, shared: bool, pinned: bool) -> Self {
        let rest = self.0 & !(SHARED | PINNED);
        Self(rest | if shared { SHARED } else { 0 } | if pinned { PINNED } else { 0 })
    }

    /// Returns the value without any counts.
    pub(super) fn flags(self) -> Self {
        Self(self.0 & FLAGS)
    }
}

/// The word itself; the module header explains it.
// ORDER: Relaxed (all); the word's lock orders the counts, and the flags are hints without a lock.
pub(super) struct AtomicContention(AtomicU32);

impl AtomicContention {
    const_fn! {
        /// Makes the word of an object that `always_logs`, or not.
        pub(super) const fn new(always_logs: bool) -> Self {
            Self(AtomicU32::new(if always_logs { HOT } else { 0 }))
        }
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Contention {
        Contention(self.0.load(Ordering::Relaxed))
    }

    /// Returns the word that each update and each read of the cold object changes.
    pub(super) fn turns(&self) -> &AtomicU32 {
        &self.0
    }

    /// Stores the value, for the holder of the cold object's lock. A flag that another thread sets
    /// at this moment may be lost: the promotion that set it sets it again at its end.
    #[inline(always)]
    pub(super) fn store(&self, to: Contention) {
        self.0.store(to.0, Ordering::Relaxed);
    }

    /// Pins a hot object to its logs. For the holder of the hot state's lock.
    pub(super) fn pin_to_logs(&self) {
        self.0.fetch_and(!SHARED, Ordering::Relaxed);
        self.0.fetch_or(PINNED, Ordering::Relaxed);
    }

    /// Lets the load decide on the object's mode. For the holder of either lock.
    pub(super) fn unpin(&self) {
        self.0.fetch_and(!PINNED, Ordering::Relaxed);
    }

    /// Notes that the object has become hot.
    pub(super) fn note_hot(&self) {
        self.0.fetch_or(HOT, Ordering::Relaxed);
    }

    pub(super) fn poison(&self) {
        self.0.fetch_or(POISONED, Ordering::Relaxed);
    }

    pub(super) fn clear_poison(&self) {
        self.0.fetch_and(!POISONED, Ordering::Relaxed);
    }

    /// Notes that the object has become cold. That ends a pin to logs.
    pub(super) fn note_cold(&self, poisoned: bool, always_logs: bool) {
        let seen = self.load();
        let kept = seen.0 & if seen.is_shared() { SPENT | SHARED | PINNED } else { SPENT };
        let flags = if poisoned { POISONED } else { 0 } | if always_logs { HOT } else { 0 };
        self.0.store(kept | flags, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const NONE: Contention = Contention(0);

    /// Counts like the holder of the lock.
    fn used(seen: Contention, kind: Kind) -> Contention {
        let next = seen.with(kind);
        if next.is_due(kind) { next.looked_at() } else { next }
    }

    fn used_times(mut seen: Contention, kind: Kind, times: u32) -> Contention {
        (0..times).for_each(|_| seen = used(seen, kind));
        seen
    }

    #[test]
    fn counts_do_not_touch_each_other_or_the_flags() {
        let flags = Contention(FLAGS & !RESTING);
        let counted = flags.with(Kind::Update).with(Kind::Read).with(Kind::Read);
        assert_eq!((counted.count(Kind::Update), counted.count(Kind::Read)), (1, 2));
        assert_eq!((counted.waits(), counted.flags()), (0, flags));
        let most = used_times(used_times(flags, Kind::Update, 10 * MOST), Kind::Read, 10 * MOST);
        assert_eq!((most.flags(), most.waits()), (flags, 0));
    }

    #[test]
    fn each_use_changes_the_word() {
        for mut seen in [NONE, Contention(SPENT), NONE.resting(true)] {
            for at in 0..10 * MOST {
                let kind = if at % 3 == 0 { Kind::Update } else { Kind::Read };
                let next = used(seen, kind);
                assert_ne!(next, seen, "use {at}");
                seen = next;
            }
        }
    }

    #[test]
    fn ratio_outlives_many_uses() {
        let mut seen = NONE;
        for _ in 0..1000 {
            seen = used(used_times(seen, Kind::Update, 100), Kind::Read);
        }
        let ratio = seen.count(Kind::Update) / seen.count(Kind::Read);
        assert!((70..150).contains(&ratio), "{seen:?}: {ratio}");
    }

    #[test]
    fn object_wants_logs_after_waits_at_a_high_ratio_alone() {
        let waits = |ratio: u32| {
            let mut seen = NONE;
            (0..1000_u32).position(|_| {
                seen = used(used_times(seen, Kind::Update, ratio), Kind::Read);
                let (next, wants) = seen.after_wait();
                seen = next;
                wants
            })
        };
        let ratio = config::RATIO_FOR_LOGS;
        assert_eq!(waits(2 * ratio), Some(config::CONTENDED_FOR_LOGS as usize - 1));
        assert_eq!((waits(ratio / 2), waits(0)), (None, None));
    }

    #[test]
    fn rest_lasts_until_it_is_ended_or_very_many_updates_come_without_a_read() {
        let is_resting = |seen: Contention| seen.0 & RESTING != 0;
        let rested = NONE.resting(true);
        assert_eq!(rested.flags(), Contention(SPENT | RESTING));
        let mut seen = rested;
        for _ in 0..10 * DUE {
            seen = used(used_times(seen, Kind::Update, 100), Kind::Read);
            assert_eq!((seen.after_wait(), is_resting(seen)), ((seen, false), true));
        }
        assert_eq!(seen.resting(false).flags(), Contention(SPENT));
        assert!(is_resting(used_times(rested, Kind::Update, DUE - 1)), "a read may come yet");
        assert!(!is_resting(used_times(rested, Kind::Update, 2 * DUE)), "there is no read");
    }

    #[test]
    fn object_is_reserved_once_after_enough_uses_without_a_wait() {
        let mut seen = NONE;
        (0..DUE - 1).for_each(|_| seen = seen.with(Kind::Update));
        assert!(!seen.is_due(Kind::Update) && seen.with(Kind::Update).is_due(Kind::Update));
        assert!(seen.wants_reservation() && !seen.after_wait().0.wants_reservation());
        let again = used(used(seen, Kind::Update).after_wait().0, Kind::Update);
        assert!(used_times(again, Kind::Update, DUE).wants_reservation(), "the wait is long ago");
        let spent = seen.spent(true);
        assert!(spent.is_reserved() && !spent.is_plain() && !spent.wants_reservation());
        assert!(!spent.unreserved().is_reserved() && spent.unreserved().is_plain());
        assert!(!seen.spent(false).is_reserved());
        assert!(!Contention(spent.0 | POISONED).is_reserved());
    }
}
