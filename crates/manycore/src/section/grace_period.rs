//! Grace periods: one thread at a time, the leader, advances the era, pays the barrier for all, and
//! looks at all threads; what that shows is expired may be freed.
//!
//! Laws section.S2, section.S3, section.S9, and section.E1 to section.E4 of the parent module.

use super::local::Local;
use super::report::Sightings;
use super::state::{MARGIN, State, unpoisoned};
use crate::percpu::barrier;
use crate::profile::{Timed, What};
use crate::sync::{LoadToChange, MutexGuard, Ordering, seeded_bug};
use std::sync::PoisonError;
use std::time::Instant;

/// Whose garbage a leader takes over (section.S9).
#[derive(Clone, Copy)]
pub(super) struct TakeOver {
    /// Of all threads that are outside, or only of those that have not changed theirs for a while.
    pub(super) all: bool,
    /// But not of this slot: the leader's own, if it has one.
    pub(super) own: usize,
}

impl TakeOver {
    const IDLE: Self = Self { all: false, own: usize::MAX };
}

/// What a leader saw.
struct Round {
    /// The round's own stamp: sections that entered later have at least this.
    limit: u64,
    /// The least stamp of an open section, or `limit`.
    least: u64,
}

impl State {
    /// The stamp of everything that the calling thread has unlinked (section.S2).
    pub(super) fn stamp(&self) -> u64 {
        // BUG: a batch of retired nodes is stamped with no fence after the unlinks (section.S2):
        // the paper's Figure 2.
        if !seeded_bug!("unfenced-retire") {
            barrier::fence_full();
        }
        self.era()
    }

    /// Whether the grace period of this stamp is over, as far as finished rounds know.
    pub(super) fn is_expired(&self, stamp: u64) -> bool {
        // ORDER: Acquire; pairs with Release in `lead`: the readers' leaving before the free.
        stamp.saturating_add(MARGIN) <= self.found.0.safe.load(Ordering::Acquire)
    }

    /// Leads a round; `leader` is the leader's lock. Returns also what `f` says of what was seen.
    /// The profile's observer, which may record what it is told, is told without the lock: a fork
    /// takes the lock, and perhaps the recorder's before.
    fn lead<R>(
        &self,
        mut leader: MutexGuard<'_, Sightings>,
        whose: TakeOver,
        f: impl FnOnce(&Sightings) -> R,
    ) -> (Round, R) {
        let timed = Timed::begin();
        let sightings = &mut *leader;
        self.want(sightings, whose);
        // BUG: a round is stamped after it has looked at the others (section.S3): the paper's
        // public code.
        let round = if seeded_bug!("late-round") {
            let least = self.look(u64::MAX, sightings);
            let limit = self.start();
            Round { limit, least: least.min(limit) }
        } else {
            let limit = self.start(); // before any thread is looked at (section.S3)
            Round { limit, least: self.look(limit, sightings) }
        };
        sightings.forget_before(round.limit);
        self.compare_with_budget(sightings);
        // ORDER: Relaxed load, as only leaders write; Release pairs with Acquire in `is_expired`.
        let safe = round.least.max(self.found.0.safe.load_to_change(Ordering::Relaxed));
        self.found.0.safe.store(safe, Ordering::Release);
        debug_assert!(
            cfg!(manycore_loom) || self.found.0.looked.load(Ordering::Relaxed) < round.limit,
            "section.S3: a round is stamped before the one that came before it"
        );
        // ORDER: Release; pairs with Acquire in `filter`: the barrier before the look (section.E4).
        self.found.0.looked.store(round.limit, Ordering::Release);
        let seen = f(sightings);
        drop(leader);
        timed.end(What::GracePeriod, "Domain", self);
        (round, seen)
    }

    /// At the end of a round: whether those over the budget need wait no more, and whether it is
    /// reported again when the domain is over it the next time.
    fn compare_with_budget(&self, sightings: &Sightings) {
        let found = &self.found.0;
        // ORDER: Relaxed (all); estimates, and only leaders write.
        if self.is_over_budget() {
            let mut any = false;
            for (slot, lower) in sightings.stalled(self.stalled_after()) {
                any = true;
                if let Some(local) = self.local(slot) {
                    local.stalled.store(lower, Ordering::Relaxed);
                }
            }
            found.stalled.store(any, Ordering::Relaxed);
        } else if cfg!(not(manycore_loom)) && found.reported.load(Ordering::Relaxed) {
            found.reported.store(false, Ordering::Relaxed);
        }
    }

    /// Stamps the round and pays its barrier.
    fn start(&self) -> u64 {
        // ORDER: Relaxed; only leaders write it, one after the other.
        let next = self.era.0.load_to_change(Ordering::Relaxed) + 1;
        // ORDER: Release; pairs with Acquire in `era` (section.E2, section.E3).
        self.era.0.store(next, Ordering::Release);
        if self.light {
            barrier::heavy()
        } else {
            barrier::fence_full()
        }
        next
    }

    /// The least stamp of an open section, or `limit`; remembers sections older than `limit`. Takes
    /// over what is wanted of threads that are outside.
    fn look(&self, limit: u64, sightings: &mut Sightings) -> u64 {
        let mut least = limit;
        for (slot, local) in self.locals() {
            // ORDER: Acquire; pairs with Release in `open_light` and `leave`: what the reader did
            // with its nodes comes before their being freed.
            let lower = local.lower.load(Ordering::Acquire);
            debug_assert!(
                lower <= limit,
                "section.E2: a section entered in an era that has not begun"
            );
            if lower != 0 && lower < limit {
                least = least.min(lower);
                sightings.see(slot, lower, limit);
            }
            self.take_over(local, lower != 0);
        }
        least
    }

    /// Before the barrier: announces what is to be taken over.
    fn want(&self, sightings: &mut Sightings, whose: TakeOver) {
        if !whose.all && !sightings.looks_for_idle() {
            return;
        }
        for (slot, local) in self.locals() {
            // ORDER: Relaxed; a guess, and the owner can refuse.
            let waiting = local.waiting.load(Ordering::Relaxed);
            let is_granted = || {
                // ORDER: Relaxed; a guess, as above.
                cfg!(not(manycore_loom)) && local.charged.load(Ordering::Relaxed) != 0
            };
            if (waiting != 0 || is_granted()) && slot != whose.own {
                let bytes = local.bytes.load(Ordering::Relaxed);
                if whose.all || sightings.is_idle(slot, (waiting, bytes)) {
                    local.want();
                }
            }
        }
    }

    /// After the barrier: takes over what was announced, of an owner that is outside (section.S9).
    fn take_over(&self, local: &Local, is_inside: bool) {
        let taken = local.take_over(is_inside, |limbo| {
            // A fence after the owner's last unlink, which came before its leaving (section.S2).
            self.clear_out(local, limbo, self.stamp())
        });
        if let Some(taken) = taken {
            self.leave_behind(|| taken);
        }
    }

    /// Whether one more round may be led in this domain that would be left to others.
    pub(super) fn may_lead_early(&self, now: Instant) -> bool {
        unpoisoned(self.leader.0.try_lock()).is_some_and(|sightings| sightings.may_lead_early(now))
    }

    /// Leads a round if no other thread does, and says whether everything that the calling thread
    /// had sealed before is expired now (section.E3).
    pub(super) fn try_round(&self, whose: TakeOver) -> Option<bool> {
        let leader = unpoisoned(self.leader.0.try_lock())?;
        let (round, ()) = self.lead(leader, whose, |_| ());
        Some(round.least == round.limit)
    }

    /// As [`try_round`](Self::try_round), after the round that another thread may be leading: that
    /// takes microseconds, unless it was switched out. Leads none if what is stamped so is expired
    /// by then: the threads that wait here need not lead one round each (section.S6).
    pub(super) fn wait_for_round(&self, whose: TakeOver, stamp: u64) -> bool {
        let leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !whose.all && self.is_expired(stamp) {
            return false;
        }
        let (round, ()) = self.lead(leader, whose, |_| ());
        round.least == round.limit
    }

    /// Leads a round, after the present leader; then `f` with what was seen.
    pub(super) fn round<R>(&self, f: impl FnOnce(&Sightings) -> R) -> R {
        let leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.lead(leader, TakeOver::IDLE, f).1
    }

    /// Leads a round if no other thread does, and says whether what was stamped so is expired now.
    pub(super) fn round_is_over(&self, stamp: u64) -> bool {
        self.try_round(TakeOver::IDLE) == Some(true) || self.is_expired(stamp)
    }

    /// The latest birth among nodes of a batch so stamped that an open section can hold
    /// (section.E4).
    pub(super) fn youngest_held(&self, stamp: u64) -> u64 {
        // BUG: the filter of a bounded domain frees what an open section may hold, whatever its
        // birth (section.E4).
        if seeded_bug!("eager-filter") {
            return 0;
        }
        let holders = self.holders(stamp);
        // ORDER: Acquire; pairs with Release in `catch_up`.
        let upper = |(lower, local): (u64, &Local)| lower.max(local.raised.load(Ordering::Acquire));
        holders.map(upper).max().unwrap_or(0)
    }

    /// The open sections that may hold nodes of a batch with this stamp, and their stamps.
    fn holders(&self, stamp: u64) -> impl Iterator<Item = (u64, &Local)> {
        let limit = stamp.saturating_add(MARGIN);
        self.locals().filter_map(move |(_, local)| {
            // ORDER: Acquire; pairs with Release in `open_light` and `leave`, as in `look`.
            let lower = local.lower.load(Ordering::Acquire);
            (lower != 0 && lower < limit).then_some((lower, local))
        })
    }

    /// Whether only sections that count as stalled may hold nodes of a batch with this stamp.
    pub(super) fn only_stalled_hold(&self, stamp: u64) -> bool {
        // ORDER: Relaxed; an estimate, which decides which sections are waited for.
        let mut any = false;
        let is_stalled = |(lower, local): (u64, &Local)| {
            any = true;
            local.stalled.load(Ordering::Relaxed) == lower
        };
        cfg!(not(manycore_loom))
            && self.found.0.stalled.load(Ordering::Relaxed)
            && self.holders(stamp).all(is_stalled)
            && any
    }
}
