//! Reclamation: what the owner of a limbo does when its section closes.
//!
//! Owns: when a batch is sealed, when its thread leads a round, and how many nodes it frees then
//! (section.S5, section.S10). Does not own: what is ripe (`grace_period`).

use super::budget::BATCHES;
use super::gate::{Gate, Retired};
use super::grace_period::TakeOver;
use super::limbo::{Handful, Legacy, Limbo, RetiredNode, RipeNode};
use super::local::{FULL, Local, PRESSES};
use super::report::Backlog;
use super::settings::Mode;
use super::state::{State, unpoisoned};
use crate::sync::{self, Backoff, Ordering, Ordering::Relaxed, seeded_bug};
use std::collections::VecDeque;
use std::ptr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

impl State {
    /// Frees a node that was ripe, and up to `more`: runs user code. The owner frees none yet.
    #[inline(always)]
    pub(super) fn free_these(&self, local: &Local, node: RipeNode, more: usize) {
        local.freeing.set(Local::ONE);
        let done = Freeing(local);
        node.free();
        drop(done);
        if more != 0 {
            self.free_ripe(local, more);
        }
    }

    /// Frees up to `most` ripe nodes: runs user code.
    pub(super) fn free_ripe(&self, local: &Local, most: usize) {
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
                // SAFETY: of this frame; destructors, in which it may be looked at by the pointer,
                // run between two uses.
                limbo.pop_handful(left, unsafe { &mut *nodes });
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
    }

    /// Does what `wishes`, the flags of a section that has just been closed, ask for: seals the
    /// batch that is full, or presses and is due. Then frees all that is ripe if it presses, or at
    /// the bound or the budget, and much of it where ripe batches have piled up, after a stall or
    /// because threads end sooner than they retire much (section.S9): runs user code then.
    #[cold]
    pub(super) fn seal_after(&self, local: &Local, wishes: u32) {
        if sync::panicking() {
            // No user code runs while the thread unwinds: a second panic would end the process.
            local.extra.set(local.extra.get() | wishes);
            return;
        }
        if wishes & FULL == 0 && !local.pace.is_due() {
            local.extra.set(local.extra.get() | PRESSES);
            return;
        }
        self.seal(local);
        let over = self.is_over_budget();
        let most = local.with_limbo(|limbo| self.to_free(limbo, over));
        self.free_ripe(local, most);
        if over && local.freeing.get().is_null() {
            self.over_budget(local);
        }
        if !local.with_limbo(|limbo| limbo.presses()) {
            local.extra.set(local.extra.get() & !PRESSES);
        }
    }

    /// How many ripe nodes are to be freed at the end of a section.
    fn to_free(&self, limbo: &Limbo, over: bool) -> usize {
        const PILE: usize = 4;
        let at_once = over
            || limbo.presses()
            || limbo.waiting() >= self.bound
            || limbo.ripe_bytes() > 2 * self.batch_bytes;
        match () {
            () if at_once => usize::MAX,
            () if limbo.ripe_batches() >= PILE => self.batch_nodes,
            () => 0,
        }
    }

    /// The domain is over its budget although the caller has freed what it could: reports it once,
    /// and waits, if the builder says so. Runs user code; the caller's section is closed.
    #[cold]
    fn over_budget(&self, local: &Local) {
        let reported = &self.found.0.reported;
        // ORDER: Relaxed; only that one thread reports matters.
        if let Some(report) = self.report.as_ref().filter(|_| !reported.swap(true, Relaxed)) {
            report(&self.backlog(Duration::ZERO));
        }
        let (start, mut backoff) = (Instant::now(), Backoff::new());
        while !self.wait.is_zero() && self.is_over_budget() && start.elapsed() < self.wait {
            backoff.pause();
            self.seal(local);
            self.free_ripe(local, usize::MAX);
        }
    }

    /// A thread is new to the domain: if ended ones have left a batch together, it takes that over
    /// when its first section closes.
    pub(super) fn welcome(&self, local: &Local) {
        local.with_limbo(|limbo| limbo.set_limit(self.least_share()));
        if unpoisoned(self.legacy.0.try_lock()).is_some_and(|legacy| self.is_batch(&legacy)) {
            local.extra.set(local.extra.get() | FULL);
        }
    }

    /// Seals the owner's open batch and finds out what is ripe.
    #[cold]
    pub(super) fn seal(&self, local: &Local) {
        const HELD: usize = 64;
        self.seal_and_sort(local, HELD, |is_new, last, stamp| {
            !is_new && self.is_left_to_others(local, last, stamp)
        });
    }

    /// Whether so many rounds were led since the owner's last seal that it need not lead one: what
    /// it sealed then is ripe by them. So the rounds of a batch's time, and with them the moves of
    /// the era's line to every reader and the barriers, do not grow with the threads.
    fn is_left_to_others(&self, local: &Local, last: u64, stamp: u64) -> bool {
        const ENOUGH: u64 = 4;
        self.mode != Mode::Clock
            && last != 0
            && stamp.saturating_sub(last) >= ENOUGH
            && local.with_limbo(|limbo| {
                limbo.waiting() < self.bound && limbo.bytes() <= BATCHES * self.share()
            })
            && !self.is_over_budget()
    }

    /// The same, with a look at up to `most` batches that were held back, and a round unless
    /// `skip` says no to it, which is told whether the owner is a new writer, and the stamps of the
    /// last seal and of this one.
    fn seal_and_sort(&self, local: &Local, most: usize, skip: impl FnOnce(bool, u64, u64) -> bool) {
        local.extra.set(local.extra.get() & !(FULL | PRESSES));
        let (stamp, now) = (self.stamp(), Instant::now());
        let (last, is_new) = local.with_limbo(|limbo| {
            // A leader may have sealed all, and with a later stamp, since this one was taken.
            let is_sealed = limbo.open().0 == 0;
            let last = limbo.seal(stamp, now);
            debug_assert!(
                is_sealed || self.mode == Mode::Clock || last <= stamp,
                "section.E2: the stamps of a thread's batches fall"
            );
            (last, self.count(limbo))
        });
        self.inherit(local);
        let is_flush = most == usize::MAX; // `collect`
        if is_flush {
            self.let_pass(stamp);
        }
        let whose = TakeOver { all: is_flush, own: local.slot };
        let mut all = !skip(is_new, last, stamp) && self.round_for(local, whose, is_new);
        // BUG: a batch that presses is freed when it is closed, with no grace period (section.S10).
        all |= seeded_bug!("pressed-ripe") && local.with_limbo(|limbo| limbo.presses());
        local.with_limbo(|limbo| {
            limbo.ripen(most, |stamp| all || self.is_ripe(stamp));
            limbo.set_limit(self.share());
        });
        if is_flush {
            // What the round took over was sealed after its barrier: `all` says nothing of it.
            self.inherit(local);
            local.with_limbo(|limbo| limbo.ripen(most, |stamp| self.is_ripe(stamp)));
        }
        if self.bounded {
            self.sieve(local);
        }
        local.with_limbo(|limbo| {
            local.pace.sealed(now, limbo.presses() && limbo.ripe_batches() == 0);
            if limbo.presses() {
                // At the end of this thread's next sections, whether it retires in them or not.
                local.extra.set(local.extra.get() | PRESSES);
            }
        });
        if let Some(gate) = &self.gate {
            Asking::all(local, gate.as_ref());
        }
    }

    /// Leads a round if no other thread does. A thread outside that is a new writer, or has more
    /// than its share, waits for its turn instead: the leader may have been switched out, and
    /// garbage would grow until it runs again (section.S10).
    fn round_for(&self, local: &Local, whose: TakeOver, is_new: bool) -> bool {
        let waits = is_new || local.with_limbo(|limbo| limbo.bytes() > BATCHES * self.share());
        if waits && !local.is_inside() {
            return self.wait_for_round(whose);
        }
        self.try_round(whose) == Some(true)
    }

    /// Filters batches that a stalled section holds up, and some that were filtered before: the
    /// sections that they were held back for may be closed.
    fn sieve(&self, local: &Local) {
        const PATIENCE: usize = 1;
        const AGAIN: usize = 4;
        for _ in 0..local.with_limbo(|limbo| limbo.held()).min(AGAIN) {
            if let Some(stamp) = local.with_limbo(Limbo::next_held) {
                let youngest = self.youngest_held(stamp);
                local.with_limbo(|limbo| limbo.sieve(youngest));
            }
        }
        while let Some(stamp) = local.with_limbo(|limbo| limbo.overdue(PATIENCE)) {
            // ORDER: Acquire; pairs with Release in `lead`.
            let looked = self.found.0.looked.load(Ordering::Acquire) > stamp;
            // BUG: a batch is sieved although no round has looked since it was sealed (section.E4).
            if !looked && !seeded_bug!("unlooked-sieve") {
                return; // no barrier since the seal
            }
            let youngest = self.youngest_held(stamp);
            local.with_limbo(|limbo| limbo.sieve(youngest));
        }
    }

    /// Takes over what threads that ended have left behind, if there is anything.
    fn inherit(&self, local: &Local) {
        let Some(mut legacy) = unpoisoned(self.legacy.0.try_lock()) else {
            return;
        };
        let legacy = std::mem::take(&mut *legacy);
        if legacy.len() != 0 {
            local.with_limbo(|limbo| limbo.inherit(legacy));
        }
    }

    fn is_batch(&self, legacy: &Legacy) -> bool {
        legacy.len() >= self.batch_nodes || legacy.bytes() >= self.batch_bytes || legacy.presses()
    }

    /// Leaves everything of the slot's to others: its thread ends. False if it is in a section.
    pub(super) fn bequeath(&self, local: &Local) -> bool {
        if local.is_inside() {
            return false;
        }
        if local.with_limbo(|limbo| limbo.waiting()) != 0 {
            let stamp = self.stamp();
            let legacy = local.with_limbo(|limbo| {
                limbo.seal(stamp, Instant::now());
                self.discount(limbo);
                limbo.take_all()
            });
            let mut left = self.legacy.0.lock().unwrap_or_else(PoisonError::into_inner);
            left.append(legacy);
            // The slot's next owner takes it over when its first section closes.
            let is_batch = self.is_batch(&left);
            local.extra.set(local.extra.get() | if is_batch { FULL } else { 0 });
        }
        true
    }

    /// Frees all that can be freed now: the caller's own, what ended threads left, and what waits
    /// for threads that are outside.
    pub(super) fn collect(&self, local: &Local) {
        self.seal_and_sort(local, usize::MAX, |_, _, _| false);
        self.free_ripe(local, usize::MAX);
    }

    /// Seals, and frees what others' rounds have found ripe.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn collect_found(&self, local: &Local) {
        self.seal_and_sort(local, usize::MAX, |_, _, _| true);
        self.free_ripe(local, usize::MAX);
    }

    /// What waits, after a round.
    pub(super) fn backlog(&self, stalled_for: Duration) -> Backlog {
        let stalled = self.round(|sightings| sightings.at_least(stalled_for));
        let (nodes, bytes) = self.waiting();
        Backlog { nodes, bytes, stalled }
    }

    /// Nodes that wait to be freed, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let legacy = self.legacy.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = (legacy.len(), legacy.bytes());
        drop(legacy);
        for (_, local) in self.locals() {
            // ORDER: Relaxed; a report.
            sum.0 += local.waiting.load(Ordering::Relaxed);
            sum.1 = sum.1.wrapping_add(local.bytes.load(Ordering::Relaxed));
        }
        sum
    }
}

/// While it lives, the owner frees nodes.
struct Freeing<'a>(&'a Local);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.0.freeing.set(ptr::null());
    }
}

/// Ripe nodes on their way to be freed; those that are left when one's destructor panics go back.
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

/// A gate is being asked about ripe nodes; what it was not asked about goes back if it panics.
struct Asking<'a> {
    local: &'a Local,
    ask: VecDeque<(RetiredNode, Instant)>,
    no: VecDeque<(RetiredNode, Instant)>,
    yes: Vec<RetiredNode>,
}

impl<'a> Asking<'a> {
    fn all(local: &'a Local, gate: &dyn Gate) {
        let ask = local.with_limbo(Limbo::take_ripe);
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
