//! Reclamation: what the owner of a limbo does when its section closes.
//!
//! ```text
//! section closes --> is a batch full, or urgent and due?
//!   --> seal it --> lead a round (or leave that to others) --> sort out what is expired
//!   --> free expired nodes --> over the budget? wait, for a limited time
//! ```
//!
//! Owns: when a batch is sealed, when its thread leads a round, and how many nodes it then frees
//! (section.S5, section.S10). Does not own: what is expired (`grace_period`).

use super::budget::BATCHES;
use super::gate::{Gate, Retired};
use super::grace_period::TakeOver;
use super::limbo::{ExpiredNode, Handful, Limbo, Orphans, RetiredNode};
use super::local::{FULL, Local, URGENT};
use super::report::Backlog;
use super::state::{State, unpoisoned};
use crate::config::STALLED_MILLIS;
use crate::sync::{self, Backoff, Ordering, seeded_bug};
use std::collections::VecDeque;
use std::ptr;
use std::time::{Duration, Instant};

/// Attempts that a thread makes after the time for which it waits over the budget.
const LATE: usize = 16;
/// Number of held batches that a seal looks at.
const HELD: usize = 64;

impl State {
    /// Frees an expired node, and up to `more` others: runs user code. The owner is not freeing any
    /// node yet.
    #[inline(always)]
    pub(super) fn free_these(&self, local: &Local, node: ExpiredNode, more: usize) {
        local.freeing.set(Local::ONE);
        let done = Freeing(local);
        node.free();
        drop(done);
        if more != 0 {
            self.free_expired(local, more);
        }
    }

    /// Frees up to `most` expired nodes: runs user code.
    pub(super) fn free_expired(&self, local: &Local, most: usize) {
        if !local.freeing.get().is_null() {
            return;
        }
        let _done = Freeing(local);
        let mut left = most;
        let mut taken = Taken { local, nodes: Handful::EMPTY };
        while left != 0 {
            let nodes = &raw mut taken.nodes;
            local.freeing.set(nodes);
            local.with_limbo(|limbo| {
                // SAFETY: of this frame. Destructors may look at it through the pointer, but they
                // run between two uses.
                limbo.pop_handful(left, unsafe { &mut *nodes });
                self.charge_if_less(local, limbo);
            });
            // SAFETY: of this frame, and no destructor runs.
            let count = unsafe { &*nodes }.len();
            if count == 0 {
                break;
            }
            left -= count;
            // SAFETY: of this frame, and each use is over before the node's destructor runs.
            while let Some(node) = unsafe { &mut *nodes }.pop() {
                node.free();
            }
        }
        if cfg!(not(manycore_loom)) {
            local.with_limbo(|limbo| self.charge_freed(local, limbo));
        }
    }

    /// Does what `wishes` asks for, the flags of a section that was just closed. Seals the batch if
    /// it is full, or if it is urgent and due.
    ///
    /// Then it frees expired nodes, which runs user code. It frees all if the limbo is urgent, at
    /// its bound, or the domain over its budget. It frees many if expired batches have piled up:
    /// after a stall, or because threads end before they have retired much (section.S9).
    #[cold]
    pub(super) fn seal_after(&self, local: &Local, wishes: u32) {
        if sync::panicking() {
            // No user code runs while the thread unwinds: a second panic would end the process.
            local.extra.set(local.extra.get() | wishes);
            return;
        }
        if wishes & FULL == 0 && !local.pace.is_due() {
            local.extra.set(local.extra.get() | URGENT);
            return;
        }
        if self.only_joins(local) {
            return;
        }
        let had_some = self.seal_early(local);
        let over = self.is_over_budget();
        let most = local.with_limbo(|limbo| self.to_free(limbo, over));
        self.free_expired(local, most);
        if had_some && self.is_over_budget() && local.freeing.get().is_null() {
            self.over_budget(local);
        }
        local.with_limbo(|limbo| {
            if limbo.is_counted() {
                self.grant(local, limbo);
            }
            limbo.set_taken(false);
            if !limbo.is_urgent() {
                local.extra.set(local.extra.get() & !URGENT);
            }
        });
    }

    /// Seals at the end of a section. If the owner has sealed little of late, it leads a round that
    /// it would otherwise leave to others, as far as the domain allows. If that frees nothing, it
    /// leads two more: as a rule, a section that was opened between the retire and the round is
    /// closed by then.
    fn seal_early(&self, local: &Local) -> bool {
        const MORE: usize = 2;
        let now = Instant::now();
        let has_saved = local.pace.has_saved(now);
        let mut leads = false;
        let had_some = self.seal_and_sort(local, HELD, |last, stamp| {
            let is_left = self.is_left_to_others(local, last, stamp);
            leads = !is_left || has_saved && self.may_lead_early(now);
            !leads
        });
        let is_blocked = || local.with_limbo(|limbo| limbo.is_urgent() && limbo.is_blocked());
        for _ in 0..MORE {
            if !(has_saved && leads && is_blocked()) {
                break;
            }
            self.seal_and_sort(local, HELD, |_, _| false);
        }
        if cfg!(not(any(manycore_loom, manycore_shuttle))) {
            let in_vain =
                local.with_limbo(|limbo| limbo.is_urgent() && limbo.expired_batches() == 0);
            local.pace.sealed(now, in_vain);
        }
        had_some
    }

    /// Makes the owner a writer if it is none. Returns true if nothing else is to be done: the
    /// batch counted as full only because a thread that is no writer has no limit.
    fn only_joins(&self, local: &Local) -> bool {
        if cfg!(manycore_loom) {
            return false;
        }
        let joins = local.with_limbo(|limbo| {
            let is_new = !limbo.is_counted();
            self.count(limbo);
            if is_new && limbo.is_counted() {
                self.grant(local, limbo);
            }
            let has_light_batch = !limbo.is_urgent() && !self.is_full(limbo);
            is_new && limbo.waiting() == limbo.open().0 && has_light_batch
        });
        joins && !unpoisoned(self.orphans.0.try_lock()).is_some_and(|left| self.is_batch(&left))
    }

    /// Returns how many expired nodes to free at the end of a section.
    fn to_free(&self, limbo: &Limbo, over: bool) -> usize {
        const PILE: usize = 4;
        let at_once = over
            || limbo.is_urgent()
            || limbo.waiting() >= self.bound
            || limbo.expired_bytes() > 2 * self.batch_bytes;
        match () {
            () if at_once => usize::MAX,
            () if limbo.expired_batches() >= PILE => self.batch_nodes,
            () => 0,
        }
    }

    /// Reports once that the domain is over its budget although the caller has freed what it could.
    /// Then waits until the domain is within the budget, none of the caller's nodes is held up any
    /// more, or the caller has waited long enough. Runs user code; the caller's section is closed.
    #[cold]
    fn over_budget(&self, local: &Local) {
        self.report_over_budget();
        let (start, mut backoff) = (Instant::now(), Backoff::new());
        let mut looked = self.looked();
        // A thread that was switched out while it waited has not yet seen what happened meanwhile.
        let mut late = 0;
        while self.is_over_budget() && local.with_limbo(|limbo| limbo.is_blocked()) {
            late += usize::from(start.elapsed() >= self.patience());
            let may_be_late = self.wait.is_none() && !self.is_stalled();
            let most = if may_be_late { LATE } else { 0 };
            if late > most {
                break;
            }
            backoff.pause();
            // One round by any thread that waits is enough for all of them (section.S6).
            let before = std::mem::replace(&mut looked, self.looked());
            self.seal_and_sort(local, HELD, |_, _| before != looked);
            self.free_expired(local, usize::MAX);
        }
    }

    fn report_over_budget(&self) {
        let reported = &self.found.0.reported;
        let Some(report) = &self.report else { return };
        // ORDER: Relaxed (both); only that one thread reports matters.
        if reported.load(Ordering::Relaxed) {
            return;
        }
        let backlog = self.backlog(Duration::ZERO);
        if backlog.bytes > self.budget && !reported.swap(true, Ordering::Relaxed) {
            report(&backlog);
        }
    }

    /// Returns the stamp of the last round.
    fn looked(&self) -> u64 {
        // ORDER: Relaxed; a hint.
        self.found.0.looked.load(Ordering::Relaxed)
    }

    /// Returns how long a thread waits beyond the budget: the builder's time if it has one, else
    /// long enough for sections that are not stalled. (In a bounded domain, a stalled section need
    /// not hold up what is garbage now.)
    fn patience(&self) -> Duration {
        let millis = || if self.is_stalled() { 0 } else { STALLED_MILLIS };
        self.wait.unwrap_or_else(|| Duration::from_millis(millis()))
    }

    /// Returns true if a stalled section holds back all that is garbage now.
    fn is_stalled(&self) -> bool {
        // ORDER: Relaxed; an estimate.
        !self.bounded && self.found.0.stalled.load(Ordering::Relaxed)
    }

    /// Returns the time after which a section counts as stalled.
    pub(super) fn stalled_after(&self) -> Duration {
        self.wait.unwrap_or_default().max(Duration::from_millis(STALLED_MILLIS))
    }

    /// Registers a thread that is new to the domain. If ended threads have left a batch or more,
    /// the thread takes it over when its first section closes.
    pub(super) fn register(&self, local: &Local) {
        local.with_limbo(|limbo| {
            limbo.set_limit(self.first_limit());
            limbo.set_taken(false);
        });
        if unpoisoned(self.orphans.0.try_lock()).is_some_and(|orphans| self.is_batch(&orphans)) {
            local.extra.set(local.extra.get() | FULL);
        }
    }

    /// Seals the owner's open batch and sorts out what is expired. Returns true if anything waited.
    #[cold]
    pub(super) fn seal(&self, local: &Local) -> bool {
        self.seal_and_sort(local, HELD, |last, stamp| self.is_left_to_others(local, last, stamp))
    }

    /// True if four rounds have run since this thread's last seal: then others lead often enough,
    /// what it sealed before is expired as a rule, and it need not lead a round. So the number of
    /// rounds does not grow with the threads. Nor does the number of barriers and of moves of the
    /// era's line to every reader. The next seal counts from this one, even if nothing was open:
    /// otherwise rounds that were in vain would count for ever.
    fn is_left_to_others(&self, local: &Local, last: u64, stamp: u64) -> bool {
        const ENOUGH: u64 = 4;
        last != 0
            && stamp.saturating_sub(last) >= ENOUGH
            && local.with_limbo(|limbo| {
                limbo.waiting() < self.bound && limbo.bytes() <= BATCHES * self.share()
            })
            && !self.is_over_budget()
    }

    /// As [`seal`](Self::seal), and looks at up to `most` held batches. Leads a round unless
    /// `skip(last, stamp)` returns true; `last` is the stamp of the last seal, `stamp` that of this
    /// one.
    fn seal_and_sort(
        &self,
        local: &Local,
        most: usize,
        skip: impl FnOnce(u64, u64) -> bool,
    ) -> bool {
        local.extra.set(local.extra.get() & !(FULL | URGENT));
        let (stamp, now) = (self.stamp(), Instant::now());
        let (last, mut had_some) = local.with_limbo(|limbo| {
            // Since this stamp was taken, a leader may have sealed everything with a later stamp.
            let is_sealed = limbo.open().0 == 0;
            let last = limbo.seal(stamp, now);
            debug_assert!(
                is_sealed || last <= stamp,
                "section.E2: the stamps of a thread's batches fall"
            );
            self.count(limbo);
            (last, limbo.had_some())
        });
        let is_flush = most == usize::MAX; // `collect`
        had_some |= self.adopt(local, is_flush);
        let whose = TakeOver { all: is_flush, own: local.slot };
        let mut all = !skip(last, stamp) && self.round_for(local, whose, stamp);
        // BUG: a batch that is urgent is freed when it is closed, with no grace period
        // (section.S10).
        all |= seeded_bug!("urgent-expired") && local.with_limbo(|limbo| limbo.is_urgent());
        local.with_limbo(|limbo| limbo.expire(most, |stamp| all || self.is_expired(stamp)));
        if is_flush {
            // What the round took over was sealed after its barrier, so `all` says nothing about
            // it.
            self.adopt(local, true);
            local.with_limbo(|limbo| limbo.expire(most, |stamp| self.is_expired(stamp)));
        }
        if self.bounded {
            self.filter(local);
        }
        local.with_limbo(|limbo| {
            if limbo.is_counted() || cfg!(manycore_loom) {
                self.grant(local, limbo);
            }
            if limbo.is_urgent() {
                // At the end of this thread's next sections, whether it retires in them or not.
                local.extra.set(local.extra.get() | URGENT);
            }
        });
        if let Some(gate) = &self.gate {
            Asking::all(local, gate.as_ref());
        }
        had_some
    }

    /// Leads a round if no other thread does. If the domain is over its budget, a thread that is
    /// outside waits for its turn instead. The leader may have been switched out, and garbage would
    /// grow until it runs again (section.S10).
    fn round_for(&self, local: &Local, whose: TakeOver, stamp: u64) -> bool {
        if self.is_over_budget() && !local.is_inside() {
            return self.wait_for_round(whose, stamp);
        }
        self.try_round(whose) == Some(true)
    }

    /// Filters batches that a stalled section holds up. Also filters some held batches again: the
    /// sections that they were held for may be closed by now.
    fn filter(&self, local: &Local) {
        const AGAIN: usize = 4;
        // The newest batch may wait only for a round, so it is left alone. Over the budget, a
        // thread waits for sections, and has to know for which.
        let patience = usize::from(!self.is_over_budget());
        for _ in 0..local.with_limbo(|limbo| limbo.held()).min(AGAIN) {
            if let Some(stamp) = local.with_limbo(Limbo::next_held) {
                self.filter_oldest(local, stamp);
            }
        }
        while let Some(stamp) = local.with_limbo(|limbo| limbo.overdue(patience)) {
            // ORDER: Acquire; pairs with Release in `lead`.
            let looked = self.found.0.looked.load(Ordering::Acquire) > stamp;
            // BUG: a batch is filtered although no round has looked since it was sealed
            // (section.E4).
            if !looked && !seeded_bug!("unlooked-filter") {
                return; // no barrier since the seal
            }
            self.filter_oldest(local, stamp);
        }
    }

    /// Filters the oldest sealed batch, which has the stamp `stamp`.
    fn filter_oldest(&self, local: &Local, stamp: u64) {
        let is_excused = self.only_stalled_hold(stamp);
        let youngest = self.youngest_held(stamp);
        local.with_limbo(|limbo| limbo.filter(youngest, is_excused));
    }

    pub(super) fn is_batch(&self, orphans: &Orphans) -> bool {
        orphans.len() >= self.batch_nodes
            || orphans.bytes() >= self.batch_bytes
            || orphans.is_urgent()
    }

    /// Leaves everything in the slot to other threads, because its thread ends. Returns false if
    /// the thread is in a section.
    pub(super) fn orphan(&self, local: &Local) -> bool {
        if local.is_inside() {
            return false;
        }
        if local.with_limbo(|limbo| limbo.waiting() != 0 || limbo.is_counted()) {
            let stamp = self.stamp();
            let take = || local.with_limbo(|limbo| self.clear_out(local, limbo, stamp));
            // The slot's next owner takes this over when its first section closes.
            let is_batch = self.leave_behind(take);
            local.extra.set(local.extra.get() | if is_batch { FULL } else { 0 });
        }
        true
    }

    /// Frees all that can be freed now: the caller's own nodes, those that ended threads left, and
    /// those that wait for threads that are outside.
    pub(super) fn collect(&self, local: &Local) {
        self.seal_and_sort(local, usize::MAX, |_, _| false);
        self.free_expired(local, usize::MAX);
    }

    /// Seals, and frees what other threads' rounds have found expired.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn collect_found(&self, local: &Local) {
        self.seal_and_sort(local, usize::MAX, |_, _| true);
        self.free_expired(local, usize::MAX);
    }

    /// Leads a round, and reports what waits.
    pub(super) fn backlog(&self, stalled_for: Duration) -> Backlog {
        let stalled = self.round(|sightings| sightings.at_least(stalled_for));
        let (nodes, bytes) = self.waiting();
        Backlog { nodes, bytes, stalled }
    }

    /// Returns the number of nodes that wait to be freed, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let left = self.left(); // while it is held, no thread that ends moves anything
        let mut sum = (left.len(), left.bytes());
        for (_, local) in self.locals() {
            // ORDER: Relaxed; a report.
            sum.0 += local.waiting.load(Ordering::Relaxed);
            sum.1 = sum.1.wrapping_add(local.bytes.load(Ordering::Relaxed));
        }
        sum
    }
}

/// Marks the owner as freeing nodes, as long as it lives.
struct Freeing<'a>(&'a Local);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.0.freeing.set(ptr::null());
    }
}

/// Expired nodes on their way to be freed. If a destructor panics, the nodes that are left go back.
struct Taken<'a> {
    local: &'a Local,
    nodes: Handful,
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.nodes.is_empty() {
            self.local.with_limbo(|limbo| limbo.put_handful_back(&mut self.nodes));
        }
    }
}

/// Expired nodes that a gate is being asked about. If the gate panics, the nodes that it was not
/// asked about go back.
struct Asking<'a> {
    local: &'a Local,
    ask: VecDeque<(RetiredNode, Instant)>,
    no: VecDeque<(RetiredNode, Instant)>,
    yes: Vec<RetiredNode>,
}

impl<'a> Asking<'a> {
    fn all(local: &'a Local, gate: &dyn Gate) {
        let ask = local.with_limbo(Limbo::take_expired);
        let mut asking = Self { local, ask, no: VecDeque::new(), yes: Vec::new() };
        while let Some((node, sealed)) = asking.ask.front() {
            let address = node.address.as_ptr() as usize;
            let may_free = gate.may_free(&Retired { address, sealed: *sealed });
            let (node, sealed) = asking.ask.pop_front().expect("it was at the front");
            if may_free {
                asking.yes.push(node);
            } else {
                asking.no.push_back((node, sealed));
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.no);
        rest.append(&mut self.ask);
        self.local.with_limbo(|limbo| limbo.put_back(std::mem::take(&mut self.yes), rest));
    }
}
