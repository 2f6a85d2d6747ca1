//! Grace periods: one thread at a time, the leader, advances the era, pays the barrier for all
//! threads, and looks at all of them. What that shows to be expired may be freed.
//!
//! ```text
//! want       announce whose limbo the leader would take over
//! start      stamp the round: era += 1; then the barrier for all threads
//! look       read each thread's `lower`; take over what was announced
//! publish    safe = least `lower` of an open section, or the round's stamp
//! ```
//!
//! Laws section.S2, section.S3, section.S9, and section.E1 to section.E4 of the parent module.

use super::local::Local;
use super::report::Sightings;
use super::state::{MARGIN, State, unpoisoned};
use crate::percpu::barrier;
use crate::profile::{EventKind, Timed};
use crate::sync::{LoadToChange, MutexGuard, Ordering, seeded_bug};
use std::sync::PoisonError;
use std::time::Instant;

/// Whose garbage a leader takes over (section.S9).
#[derive(Clone, Copy)]
pub(super) struct TakeOver {
    /// True: of all threads that are outside. False: only of threads that have not changed their
    /// garbage for a while.
    pub(super) all: bool,
    /// Not of this slot: the leader's own, if it has one.
    pub(super) own: usize,
}

impl TakeOver {
    const IDLE: Self = Self { all: false, own: usize::MAX };
}

/// What a leader saw.
struct Round {
    /// The round's stamp: sections that entered later have at least this stamp.
    limit: u64,
    /// The least stamp of an open section, or `limit`.
    least: u64,
}

impl State {
    /// Returns a stamp for everything that the calling thread has unlinked (section.S2).
    pub(super) fn stamp(&self) -> u64 {
        // BUG: a batch of retired nodes is stamped with no fence after the unlinks (section.S2):
        // the paper's Figure 2.
        if !seeded_bug!("unfenced-retire") {
            barrier::fence_full();
        }
        self.era()
    }

    /// Returns true if finished rounds show that the grace period of `stamp` is over.
    pub(super) fn is_expired(&self, stamp: u64) -> bool {
        // ORDER: Acquire; pairs with Release in `lead`: the readers' leaving before the free.
        stamp.saturating_add(MARGIN) <= self.found.0.safe.load(Ordering::Acquire)
    }

    /// Leads a round; `leader` is the leader's lock. Also returns what `f` returns for what the
    /// round saw.
    ///
    /// The profile's observer is called without the lock, because it may record the event: a fork
    /// takes this lock, and perhaps the recorder's lock before it.
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
        timed.end(EventKind::GracePeriod, "Domain", self);
        (round, seen)
    }

    /// Compares the charge with the budget at the end of a round. Notes whether threads over the
    /// budget need not wait for a stalled section, and whether to report again the next time that
    /// the domain is over its budget.
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

    /// Returns the least stamp of an open section, or `limit`. Remembers sections older than
    /// `limit`, and takes over the announced limbos of threads that are outside.
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

    /// Announces what is to be taken over. Called before the barrier.
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

    /// Takes over what was announced, if the owner is outside (section.S9). Called after the
    /// barrier.
    fn take_over(&self, local: &Local, is_inside: bool) {
        let taken = local.take_over(is_inside, |limbo| {
            // A fence after the owner's last unlink, which came before the owner left (section.S2).
            self.clear_out(local, limbo, self.stamp())
        });
        if let Some(taken) = taken {
            self.leave_behind(|| taken);
        }
    }

    /// Returns true if the domain allows one more round that would otherwise be left to others.
    pub(super) fn may_lead_early(&self, now: Instant) -> bool {
        unpoisoned(self.leader.0.try_lock()).is_some_and(|sightings| sightings.may_lead_early(now))
    }

    /// Leads a round if no other thread does. Returns true if everything that the calling thread
    /// had sealed before is expired now (section.E3), and `None` if another thread leads.
    pub(super) fn try_round(&self, whose: TakeOver) -> Option<bool> {
        let leader = unpoisoned(self.leader.0.try_lock())?;
        let (round, ()) = self.lead(leader, whose, |_| ());
        Some(round.least == round.limit)
    }

    /// As [`try_round`](Self::try_round), but waits for the leader if there is one. That takes
    /// microseconds, unless the leader was switched out. Leads no round if `stamp` is expired by
    /// then, so threads that wait here need not lead one round each (section.S6).
    pub(super) fn wait_for_round(&self, whose: TakeOver, stamp: u64) -> bool {
        let leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !whose.all && self.is_expired(stamp) {
            return false;
        }
        let (round, ()) = self.lead(leader, whose, |_| ());
        round.least == round.limit
    }

    /// Waits for the present leader, leads a round, and returns what `f` returns for what the round
    /// saw.
    pub(super) fn round<R>(&self, f: impl FnOnce(&Sightings) -> R) -> R {
        let leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.lead(leader, TakeOver::IDLE, f).1
    }

    /// Leads a round if no other thread does, and returns true if `stamp` is expired now.
    pub(super) fn round_is_over(&self, stamp: u64) -> bool {
        self.try_round(TakeOver::IDLE) == Some(true) || self.is_expired(stamp)
    }

    /// Returns the latest birth of a node that an open section can hold, among the nodes of a batch
    /// with this stamp (section.E4).
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

    /// Returns the open sections that may hold nodes of a batch with this stamp, and the sections'
    /// own stamps.
    fn holders(&self, stamp: u64) -> impl Iterator<Item = (u64, &Local)> {
        let limit = stamp.saturating_add(MARGIN);
        self.locals().filter_map(move |(_, local)| {
            // ORDER: Acquire; pairs with Release in `open_light` and `leave`, as in `look`.
            let lower = local.lower.load(Ordering::Acquire);
            (lower != 0 && lower < limit).then_some((lower, local))
        })
    }

    /// Returns true if only sections that count as stalled may hold nodes of a batch with this
    /// stamp.
    pub(super) fn only_stalled_hold(&self, stamp: u64) -> bool {
        // ORDER: Relaxed; an estimate, which only decides which sections are waited for.
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
