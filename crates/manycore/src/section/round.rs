//! What the threads of a domain share, and the rounds that find out what is ripe.

use super::builder::{Builder, Mode};
use super::gate::{Gate, Retired};
use super::limbo::{Legacy, Limbo, Node};
use super::local::{FULL, Local};
use super::report::Sightings;
use crate::clock::{self, Clock};
use crate::percpu::{self, barrier, segmented::Segmented};
use crate::sync::{AtomicU64, Bug, LoadToChange, Mutex, Ordering, global, hint, seeded_bug};
use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError, TryLockResult};
use std::time::Instant;

/// Alone on its cache lines.
#[repr(align(128))]
struct Line<T>(T);

global! {
    /// The number of the next domain.
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
}

/// What rounds found out.
struct Found {
    /// What is stamped `margin` below this is ripe. Rises.
    safe: AtomicU64,
    /// The limit of the last round that is over: it looked at everybody after a barrier that came
    /// after every seal with a lower stamp.
    looked: AtomicU64,
}

/// A domain's shared part.
pub(super) struct Core {
    /// No other domain of the process has it, nor will have. Not zero.
    pub(super) number: u64,
    pub(super) mode: Mode,
    /// Whether births are looked at (E4).
    pub(super) bounded: bool,
    /// Whether readers pay no fence: the mode has eras, and there is a membarrier.
    pub(super) light: bool,
    /// How far below `safe` a stamp is ripe (E2).
    margin: u64,
    /// What of that is for the way of messages between cores.
    transfer: u64,
    clock: Option<Clock>,
    batch_nodes: usize,
    batch_bytes: usize,
    /// Waiting nodes from which a thread is made to reclaim (S5).
    bound: usize,
    gate: Option<Box<dyn Gate>>,
    locals: Segmented<Local>,
    era: Line<AtomicU64>,
    found: Line<Found>,
    /// Held by the leader. No user code runs under it.
    leader: Line<Mutex<Sightings>>,
    /// What threads left behind (S9).
    legacy: Line<Mutex<Legacy>>,
}

/// What a leader saw.
struct Round {
    /// The round's own stamp: sections that entered later have at least this.
    limit: u64,
    /// The least stamp of an open section, or `limit`.
    least: u64,
}

impl Core {
    pub(super) fn new(builder: Builder) -> Self {
        let mode = builder.mode;
        let has_eras = mode != Mode::Clock;
        let clock = builder.clock;
        let transfer = if has_eras { 0 } else { transfer(clock.as_ref()) };
        let apart = skew(clock.as_ref()).saturating_add(transfer);
        Self {
            // ORDER: Relaxed; only that nobody else gets it matters.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            mode,
            bounded: mode == Mode::Bounded,
            light: has_eras && builder.asymmetric && barrier::is_asymmetric(),
            margin: if has_eras { 2 } else { apart.saturating_add(1) },
            transfer,
            clock,
            batch_nodes: builder.batch_nodes,
            batch_bytes: builder.batch_bytes,
            bound: builder.bound,
            gate: builder.gate,
            locals: Segmented::new(),
            era: Line(AtomicU64::new(1)),
            found: Line(Found { safe: AtomicU64::new(0), looked: AtomicU64::new(0) }),
            leader: Line(Mutex::new(Sightings::default())),
            legacy: Line(Mutex::new(Legacy::default())),
        }
    }

    #[inline(always)]
    pub(super) fn local(&self, slot: usize) -> Option<&Local> {
        self.locals.get(slot)
    }

    pub(super) fn make_local(&self, slot: usize) -> &Local {
        self.locals.get_or_init(slot)
    }

    /// Every thread's part.
    pub(super) fn locals(&self) -> impl Iterator<Item = (usize, &Local)> {
        let high = percpu::slot_count();
        self.locals.iter().take_while(move |(slot, _)| *slot < high)
    }

    fn clock(&self) -> &Clock {
        self.clock.as_ref().unwrap_or_else(|| Clock::system())
    }

    /// The present era.
    #[inline(always)]
    pub(super) fn era(&self) -> u64 {
        // ORDER: Acquire; pairs with Release in `start` (E2, E3). As the second load of a protected
        // pointer load it stays behind the first, which is Acquire (E4).
        self.era.0.load(Ordering::Acquire)
    }

    /// Opens the outermost section of `local`'s owner.
    #[inline(always)]
    pub(super) fn open(&self, local: &Local) {
        if self.light || seeded_bug(Bug::PlainPublish) {
            self.open_light(local);
        } else {
            self.open_fenced(local);
        }
    }

    /// The same where readers pay no fence.
    #[inline(always)]
    pub(super) fn open_light(&self, local: &Local) {
        // ORDER: Release; pairs with Acquire in `look`: the sections before this one are over.
        // Later loads stay behind by the light barrier (B1 with `heavy` in `start`; E1).
        local.lower.store(self.era(), Ordering::Release);
        if !seeded_bug(Bug::PlainPublish) {
            barrier::light();
        }
    }

    #[inline(never)]
    fn open_fenced(&self, local: &Local) {
        let stamp = match self.mode {
            Mode::Clock => self.clock().stamp().ticks().max(1),
            Mode::Epoch | Mode::Bounded => self.era(),
        };
        // ORDER: SeqCst and a full fence; pairs with the fence in `start` (E1).
        local.lower.swap(stamp, Ordering::SeqCst);
        barrier::full_after_rmw();
    }

    /// Raises `raised` to the present era (E4): later loads come after it.
    #[cold]
    pub(super) fn catch_up(&self, local: &Local) {
        let era = self.era();
        if self.light {
            // ORDER: Release and a light barrier; pairs with `heavy` in `start` (E4).
            local.raised.store(era, Ordering::Release);
            barrier::light();
        } else {
            // ORDER: SeqCst and a full fence; pairs with the fence in `start` (E4).
            local.raised.swap(era, Ordering::SeqCst);
            barrier::full_after_rmw();
        }
    }

    /// The stamp of everything that the calling thread has unlinked (S2).
    pub(super) fn stamp(&self) -> u64 {
        if !seeded_bug(Bug::UnfencedRetire) {
            barrier::fence_full();
            if self.mode == Mode::Clock {
                barrier::stores_are_visible();
            }
        }
        match self.mode {
            Mode::Clock => self.clock().cut().ticks(),
            Mode::Epoch | Mode::Bounded => self.era(),
        }
    }

    /// Waits until a stamp that was just taken is so old that a round may find it ripe: some
    /// microseconds, where the clock is the machine's.
    fn let_pass(&self, stamp: u64) {
        if self.transfer == 0 {
            return;
        }
        let now = || self.clock().cut().ticks();
        let last = now().min(stamp).saturating_add(self.margin.min(self.transfer + 1));
        while now() < last {
            hint::spin_loop();
        }
    }

    /// Whether what was stamped so can be held by nobody, as far as rounds have found out.
    pub(super) fn is_ripe(&self, stamp: u64) -> bool {
        // ORDER: Acquire; pairs with Release in `lead`: the readers' leaving before the free.
        stamp.saturating_add(self.margin) <= self.found.0.safe.load(Ordering::Acquire)
    }

    /// Leads a round; `sightings` are the leader's.
    fn lead(&self, sightings: &mut Sightings) -> Round {
        let round = if seeded_bug(Bug::LateRound) {
            let least = self.look(u64::MAX, sightings);
            let limit = self.start();
            Round { limit, least: least.min(limit) }
        } else {
            let limit = self.start(); // before anybody is looked at (S3)
            Round { limit, least: self.look(limit, sightings) }
        };
        sightings.forget_before(round.limit);
        // ORDER: Relaxed load, as only leaders write; Release pairs with Acquire in `is_ripe`.
        let safe = round.least.max(self.found.0.safe.load_to_change(Ordering::Relaxed));
        self.found.0.safe.store(safe, Ordering::Release);
        // ORDER: Release; pairs with Acquire in `sieve`: the barrier before the look (E4).
        self.found.0.looked.store(round.limit, Ordering::Release);
        round
    }

    /// Stamps the round and pays its barrier.
    fn start(&self) -> u64 {
        if self.mode == Mode::Clock {
            barrier::fence_full();
            return self.clock().cut().ticks();
        }
        // ORDER: Relaxed; only leaders write it, one after the other.
        let next = self.era.0.load_to_change(Ordering::Relaxed) + 1;
        // ORDER: Release; pairs with Acquire in `era` (E2, E3).
        self.era.0.store(next, Ordering::Release);
        if self.light {
            barrier::heavy()
        } else {
            barrier::fence_full()
        }
        next
    }

    /// The least stamp of an open section, or `limit`; remembers sections older than `limit`.
    fn look(&self, limit: u64, sightings: &mut Sightings) -> u64 {
        let mut least = limit;
        for (slot, local) in self.locals() {
            // ORDER: Acquire; pairs with Release in `open_light` and `leave`: what the reader did
            // with its nodes comes before their being freed.
            let lower = local.lower.load(Ordering::Acquire);
            if lower != 0 && lower < limit {
                least = least.min(lower);
                sightings.see(slot, lower, limit);
            }
        }
        least
    }

    /// Leads a round if nobody else does, and says whether everything that the calling thread had
    /// sealed before is ripe now (E3).
    fn try_round(&self) -> Option<bool> {
        let mut sightings = unpoisoned(self.leader.0.try_lock())?;
        let round = self.lead(&mut sightings);
        Some(self.mode != Mode::Clock && round.least == round.limit)
    }

    /// Leads a round, after who leads now; then `f` with what was seen.
    pub(super) fn round<R>(&self, f: impl FnOnce(&Sightings) -> R) -> R {
        let mut sightings = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.lead(&mut sightings);
        f(&sightings)
    }

    /// Leads a round if nobody else does, and says whether what was stamped so is ripe now.
    pub(super) fn round_is_over(&self, stamp: u64) -> bool {
        self.let_pass(stamp);
        self.try_round() == Some(true) || self.is_ripe(stamp)
    }

    /// The latest birth among nodes of a batch so stamped that an open section can hold (E4).
    fn youngest_held(&self, stamp: u64) -> u64 {
        if seeded_bug(Bug::EagerSieve) {
            return 0;
        }
        let held = |(_, local): (usize, &Local)| {
            // ORDER: Acquire; pairs with Release in `open_light` and `leave`, as in `look`.
            let lower = local.lower.load(Ordering::Acquire);
            let may_hold = lower != 0 && lower < stamp.saturating_add(self.margin);
            // ORDER: Acquire; pairs with Release in `catch_up`.
            may_hold.then(|| lower.max(local.raised.load(Ordering::Acquire)))
        };
        self.locals().filter_map(held).max().unwrap_or(0)
    }

    /// Puts a node into the owner's limbo and frees a few that are ripe (S5).
    #[inline(always)]
    pub(super) fn retire(&self, local: &Local, node: Node, bytes: usize) {
        let (share, full) = local.with_limbo(|limbo| {
            limbo.push(node, bytes);
            (limbo.share(), self.is_full(limbo))
        });
        if share != 0 {
            self.free_ripe(local, share);
        }
        if full {
            self.batch_full(local);
        }
    }

    #[inline(always)]
    fn is_full(&self, limbo: &Limbo) -> bool {
        let (nodes, bytes) = limbo.open();
        nodes >= self.batch_nodes || bytes >= self.batch_bytes || limbo.waiting() >= self.bound
    }

    /// Puts a node into the owner's limbo, and leaves all else to the end of the section.
    pub(super) fn retire_quietly(&self, local: &Local, node: Node, bytes: usize) {
        let full = local.with_limbo(|limbo| {
            limbo.push(node, bytes);
            self.is_full(limbo)
        });
        local.extra.set(local.extra.get() | if full { FULL } else { 0 });
    }

    /// Frees up to `most` ripe nodes: runs user code.
    #[inline]
    pub(super) fn free_ripe(&self, local: &Local, most: usize) {
        if local.freeing.replace(true) {
            return;
        }
        let _done = Freeing(local);
        for _ in 0..most {
            match local.with_limbo(Limbo::pop_ripe) {
                Some(node) => node.free(),
                None => break,
            }
        }
    }

    /// Asks for the batch to be sealed when the outermost section closes, when the thread's own
    /// section can no longer hold anything back; or seals it, if that takes too long.
    #[cold]
    fn batch_full(&self, local: &Local) {
        local.extra.set(local.extra.get() | FULL);
        let (nodes, bytes) = local.with_limbo(|limbo| limbo.open());
        if nodes >= 2 * self.batch_nodes || bytes >= 2 * self.batch_bytes {
            self.seal(local);
        }
    }

    /// Seals the batch for which a section that has just been closed was asked. At the bound it
    /// frees all that is ripe, and much of it where ripe batches have piled up, after a stall or
    /// because threads end sooner than they retire much (S9): runs user code then.
    #[cold]
    pub(super) fn seal_after(&self, local: &Local) {
        const PILE: usize = 4;
        let is_bound = local.with_limbo(|limbo| limbo.waiting()) >= self.bound;
        self.seal(local);
        if is_bound {
            self.free_ripe(local, usize::MAX);
        } else if local.with_limbo(|limbo| limbo.ripe_batches()) >= PILE {
            self.free_ripe(local, self.batch_nodes);
        }
    }

    /// A thread is new to the domain: if ended ones have left a batch together, it takes that over
    /// when its first section closes.
    pub(super) fn welcome(&self, local: &Local) {
        if unpoisoned(self.legacy.0.try_lock()).is_some_and(|legacy| self.is_batch(&legacy)) {
            local.extra.set(local.extra.get() | FULL);
        }
    }

    /// Seals the owner's open batch and finds out what is ripe.
    #[cold]
    fn seal(&self, local: &Local) {
        const HELD: usize = 64;
        self.seal_and_sort(local, HELD, |last, stamp| self.is_left_to_others(local, last, stamp));
    }

    /// Whether so many rounds were led since the owner's last seal that it need not lead one: what
    /// it sealed then is ripe by them. So the rounds of a batch's time, and with them the moves of
    /// the era's line to every reader and the barriers, do not grow with the threads.
    fn is_left_to_others(&self, local: &Local, last: u64, stamp: u64) -> bool {
        const ENOUGH: u64 = 4;
        self.mode != Mode::Clock
            && last != 0
            && stamp.saturating_sub(last) >= ENOUGH
            && local.with_limbo(|limbo| limbo.waiting()) < self.bound
    }

    /// The same, with a look at up to `most` batches that were held back, and a round unless
    /// `skip` says no to it, which is told the stamps of the last seal and of this one.
    fn seal_and_sort(&self, local: &Local, most: usize, skip: impl FnOnce(u64, u64) -> bool) {
        local.extra.set(local.extra.get() & !FULL);
        let stamp = self.stamp();
        let last = local.with_limbo(|limbo| limbo.seal(stamp, Instant::now()));
        self.inherit(local);
        if most == usize::MAX {
            self.let_pass(stamp); // `collect`
        }
        let all = !skip(last, stamp) && self.try_round() == Some(true);
        local.with_limbo(|limbo| limbo.ripen(most, |stamp| all || self.is_ripe(stamp)));
        if self.bounded {
            self.sieve(local);
        }
        if let Some(gate) = &self.gate {
            Asking::all(local, gate.as_ref());
        }
    }

    /// Sieves batches that a stalled section holds up, and some of those that were sieved before:
    /// whom they were held back for may have gone.
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
            if self.found.0.looked.load(Ordering::Acquire) <= stamp {
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
        legacy.len() >= self.batch_nodes || legacy.bytes() >= self.batch_bytes
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

    /// Frees all that can be freed now: the caller's own, and what ended threads left.
    pub(super) fn collect(&self, local: &Local) {
        self.seal_and_sort(local, usize::MAX, |_, _| false);
        self.free_ripe(local, usize::MAX);
    }

    /// Seals, and frees what others' rounds have found ripe.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn collect_found(&self, local: &Local) {
        self.seal_and_sort(local, usize::MAX, |_, _| true);
        self.free_ripe(local, usize::MAX);
    }

    /// Nodes that wait to be freed.
    pub(super) fn waiting(&self) -> usize {
        let left = self.legacy.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        // ORDER: Relaxed; a report.
        left + self.locals().map(|(_, l)| l.waiting.load(Ordering::Relaxed)).sum::<usize>()
    }
}

/// How far two cores' stamps may differ (C2 of the clock).
fn skew(clock: Option<&Clock>) -> u64 {
    match clock.unwrap_or_else(|| Clock::system()).mode() {
        clock::Mode::Bounded { skew_ticks } | clock::Mode::Fake { skew_ticks } => skew_ticks,
        clock::Mode::Synchronized | clock::Mode::Counter => 0,
    }
}

/// The ticks by which a stamp must be older than a section beside what the clock promises. It
/// promises that no message is seen before it was sent (C2); but that a reader found a link as it
/// was *before* another thread changed it is no message that anybody received, and so the two
/// stamps may be inverted by as much as messages take. This is 3 us or more by a counter of 5 GHz
/// or less, some ten times what a line takes between sockets; batches are ripe that much later.
/// A counter in memory needs nothing: its stamps are in one order, and fences put the loads and
/// stores in it.
fn transfer(clock: Option<&Clock>) -> u64 {
    match clock.unwrap_or_else(|| Clock::system()).mode() {
        clock::Mode::Bounded { .. } | clock::Mode::Synchronized => 1 << 14,
        clock::Mode::Fake { .. } | clock::Mode::Counter => 0,
    }
}

/// The lock, if nobody has it. No panic leaves anything half-done under these locks.
fn unpoisoned<T>(locked: TryLockResult<T>) -> Option<T> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// While it lives, the owner frees nodes.
struct Freeing<'a>(&'a Local);

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.0.freeing.set(false);
    }
}

/// A gate is being asked about ripe nodes; what it was not asked about goes back if it panics.
struct Asking<'a> {
    local: &'a Local,
    ask: VecDeque<(Node, Instant)>,
    no: VecDeque<(Node, Instant)>,
    yes: Vec<Node>,
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

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use crate::section::Domain;

    fn core(clock: Clock) -> Core {
        let mut builder = Domain::builder().mode(Mode::Clock);
        builder.clock = Some(clock);
        Core::new(builder)
    }

    /// That messages are never seen inverted says nothing about a read before an overwrite.
    #[test]
    fn machines_clock_is_trusted_but_for_the_way_of_a_message() {
        let counts = core(Clock::counter());
        assert_eq!((counts.margin, counts.transfer), (1, 0));
        for skew in [0, 7] {
            let core = core(Clock::bounded(skew));
            if core.clock().mode() != clock::Mode::Counter {
                assert!(core.margin > 10_000 + skew, "{}", core.margin);
                let stamp = core.stamp();
                core.round(|_| ());
                core.let_pass(stamp);
                core.round(|_| ());
                let waited = core.is_ripe(stamp);
                assert!(waited || skew > 0, "nobody is inside");
            }
        }
    }
}
