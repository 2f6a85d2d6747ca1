//! A user that gives memory back, and what it has to give.
//!
//! *The rule*: among the users at and below the level whose limit is in the way, those that hold
//! more than their share come first. Among these, the user that holds the most for each of its
//! recent uses comes first. A user that notes no uses counts as unused, so without notes the
//! largest is asked. Uses count as recent for some ten requests: each request forgets an eighth of
//! them.

use super::Counter;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Callback that a user registers.
pub(super) type Callback = Box<dyn Fn(u64) -> u64 + Send + Sync>;

/// A registered user.
pub(super) struct User {
    pub(super) level: usize,
    reclaim: Callback,
    /// Set under the tree's lock, cleared at the end of the call.
    is_running: AtomicBool,
    share: AtomicU64,
    uses: Counter,
    /// Uses at the last request. Changes only under the tree's lock, as `recent` does.
    seen: AtomicU64,
    recent: AtomicU64,
}

impl User {
    pub(super) fn new(level: usize, reclaim: Callback) -> Self {
        Self {
            level,
            reclaim,
            is_running: AtomicBool::new(false),
            share: AtomicU64::new(0),
            uses: Counter::new(0),
            seen: AtomicU64::new(0),
            recent: AtomicU64::new(0),
        }
    }

    pub(super) fn call(&self, wanted: u64) -> u64 {
        (self.reclaim)(wanted)
    }

    pub(super) fn is_running(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `end_call`: what the call did comes before.
        self.is_running.load(Ordering::Acquire)
    }

    /// Marks the user as running. The caller has the tree's lock.
    pub(super) fn begin_call(&self) {
        // ORDER: Relaxed; the tree's lock orders it against other requests.
        self.is_running.store(true, Ordering::Relaxed);
    }

    pub(super) fn end_call(&self) {
        // ORDER: Release; pairs with the Acquire in `is_running`.
        self.is_running.store(false, Ordering::Release);
    }

    #[inline]
    pub(super) fn note_uses(&self, uses: u64) {
        self.uses.add(i64::try_from(uses).unwrap_or(i64::MAX));
    }

    pub(super) fn set_share(&self, share: u64) {
        // ORDER: Relaxed; a setting.
        self.share.store(share, Ordering::Relaxed);
    }

    /// Returns the rank of a user that holds `holds`.
    pub(super) fn rank(&self, holds: u64, recent: u64) -> Rank {
        // ORDER: Relaxed; a setting.
        let beyond = holds.saturating_sub(self.share.load(Ordering::Relaxed));
        let amount = if beyond > 0 { beyond } else { holds };
        Rank { is_beyond: beyond > 0, amount, recent }
    }

    /// Forgets an eighth of the recent uses, adds those since, and returns them.
    pub(super) fn recent_uses(&self) -> u64 {
        let uses = u64::try_from(self.uses.sum()).unwrap_or(0);
        // ORDER: Relaxed, all three; the tree's lock orders them.
        let new = uses.saturating_sub(self.seen.load(Ordering::Relaxed));
        self.seen.store(uses, Ordering::Relaxed);
        let recent = self.recent.load(Ordering::Relaxed);
        let recent = (recent - recent / 8).saturating_add(new);
        self.recent.store(recent, Ordering::Relaxed);
        recent
    }
}

/// A user's rank, by how much it has to give. Users of a greater rank are asked first.
#[derive(Clone, Copy)]
pub(super) struct Rank {
    is_beyond: bool,
    /// The most that the user is asked for.
    pub(super) amount: u64,
    recent: u64,
}

impl Rank {
    pub(super) fn is_before(self, other: Self) -> bool {
        let weighed = |own: Self, by: Self| u128::from(own.amount) * (u128::from(by.recent) + 1);
        let (own, others) = (weighed(self, other), weighed(other, self));
        (self.is_beyond, own) > (other.is_beyond, others)
    }
}
