//! The shared state of a domain, and the rounds that end grace periods.

use super::builder::{Builder, Mode, Report};
use super::gate::Gate;
use super::limbo::{Legacy, Limbo};
use super::local::Local;
use super::report::Sightings;
use crate::clock::{self, Clock};
use crate::config::MIN_BATCH_BYTES;
use crate::percpu::{self, barrier, segmented::Segmented};
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, LoadToChange, Mutex, Ordering, global, hint, seeded_bug,
};
use std::sync::{PoisonError, TryLockError, TryLockResult};
use std::time::{Duration, Instant};

/// Batches that a thread may have: one that is open, up to three that wait for rounds, and two that
/// are being freed.
pub(super) const BATCHES: usize = 6;

/// Alone on its cache lines.
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);

global! {
    /// The number of the next domain.
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
}

/// A leader's and the heirs' locks, held over a fork.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(super) struct HeldLocks<'a> {
    _leader: crate::sync::MutexGuard<'a, Sightings>,
    _legacy: crate::sync::MutexGuard<'a, Legacy>,
}

/// What rounds found out.
pub(super) struct Found {
    /// What is stamped `margin` below this is ripe. Rises.
    safe: AtomicU64,
    /// The limit of the last round that is over: it looked at all threads after a barrier that came
    /// after every seal with a lower stamp.
    pub(super) looked: AtomicU64,
    /// What waits in the domain, in bytes, as the last round saw it.
    total: AtomicUsize,
    /// Threads that have closed a batch, and have neither ended nor been idle since (section.S11).
    writers: AtomicUsize,
    /// Whether it was reported that the domain is over its budget.
    pub(super) reported: AtomicBool,
}

/// A domain's shared part.
pub(super) struct State {
    /// No other domain of the process has it, nor will have. Not zero.
    pub(super) number: u64,
    pub(super) mode: Mode,
    /// Whether births are looked at (section.E4).
    pub(super) bounded: bool,
    /// Whether readers pay no fence: the mode has eras, and there is a membarrier.
    pub(super) light: bool,
    /// How far below `safe` a stamp is ripe (section.E2).
    margin: u64,
    /// What of that is for the way of messages between cores.
    transfer: u64,
    clock: Option<Clock>,
    pub(super) batch_nodes: usize,
    pub(super) batch_bytes: usize,
    /// Waiting nodes from which a thread is made to reclaim (section.S5).
    pub(super) bound: usize,
    /// Bytes that may wait in the domain (section.S11), and what is done beyond.
    budget: usize,
    pub(super) wait: Duration,
    pub(super) report: Option<Box<Report>>,
    pub(super) gate: Option<Box<dyn Gate>>,
    locals: Segmented<Local>,
    era: Line<AtomicU64>,
    pub(super) found: Line<Found>,
    /// Held by the leader. No user code runs under it.
    leader: Line<Mutex<Sightings>>,
    /// What threads left behind (section.S9).
    pub(super) legacy: Line<Mutex<Legacy>>,
}

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
    pub(super) fn new(builder: Builder) -> Self {
        let mode = builder.mode;
        let has_eras = mode != Mode::Clock;
        let clock = builder.clock;
        let transfer = if has_eras { 0 } else { transfer(clock.as_ref()) };
        let apart = skew(clock.as_ref()).saturating_add(transfer);
        Self {
            // ORDER: Relaxed; only uniqueness matters.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            mode,
            bounded: mode == Mode::Bounded,
            light: has_eras
                && builder.asymmetric
                && barrier::is_asymmetric()
                && !barrier::is_denied(),
            margin: if has_eras { 2 } else { apart.saturating_add(1) },
            transfer,
            clock,
            batch_nodes: builder.batch_nodes,
            batch_bytes: builder.batch_bytes,
            bound: builder.bound,
            budget: builder.budget,
            wait: builder.wait,
            report: builder.report,
            gate: builder.gate,
            locals: Segmented::new(),
            era: Line(AtomicU64::new(1)),
            found: Line(Found {
                safe: AtomicU64::new(0),
                looked: AtomicU64::new(0),
                total: AtomicUsize::new(0),
                writers: AtomicUsize::new(0),
                reported: AtomicBool::new(false),
            }),
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
        // ORDER: Acquire; pairs with Release in `start` (section.E2, section.E3). As the second
        // load of a protected pointer load it stays behind the first, which is Acquire
        // (section.E4).
        self.era.0.load(Ordering::Acquire)
    }

    /// Opens the outermost section of `local`'s owner.
    ///
    /// Not by [`crate::percpu::gate`], although the barriers are the same: a section is never
    /// turned away, so there is no word to look at afterwards, and no leader waits. A leader reads
    /// *when* each section was opened, from an `AtomicU64` that holds an era or a clock's stamp.
    #[inline(always)]
    pub(super) fn open(&self, local: &Local) {
        if self.light || seeded_bug!("plain-publish") {
            self.open_light(local);
        } else {
            self.open_fenced(local);
        }
    }

    /// The same where readers pay no fence.
    #[inline(always)]
    pub(super) fn open_light(&self, local: &Local) {
        // ORDER: Release; pairs with Acquire in `look`: the sections before this one are over.
        // Later loads stay behind by the light barrier (percpu.B1 with `heavy` in `start`;
        // section.E1).
        local.lower.store(self.era(), Ordering::Release);
        // BUG: a section is announced by a plain store with no barrier behind it (section.S6).
        if !seeded_bug!("plain-publish") {
            barrier::light();
        }
    }

    #[inline(never)]
    fn open_fenced(&self, local: &Local) {
        let stamp = match self.mode {
            Mode::Clock => self.clock().stamp().ticks().max(1),
            Mode::Epoch | Mode::Bounded => self.era(),
        };
        // ORDER: SeqCst and a full fence; pairs with the fence in `start` (section.E1).
        local.lower.swap(stamp, Ordering::SeqCst);
        barrier::full_after_rmw();
    }

    /// Raises `raised` to the present era (section.E4): later loads come after it.
    #[cold]
    pub(super) fn catch_up(&self, local: &Local) {
        let era = self.era();
        if self.light {
            // ORDER: Release and a light barrier; pairs with `heavy` in `start` (section.E4).
            local.raised.store(era, Ordering::Release);
            // BUG: a section that raises its era loads again with no barrier between (section.E4).
            if !seeded_bug!("unfenced-raise") {
                barrier::light();
            }
        } else if seeded_bug!("unfenced-raise") {
            local.raised.store(era, Ordering::Release);
        } else {
            // ORDER: SeqCst and a full fence; pairs with the fence in `start` (section.E4).
            local.raised.swap(era, Ordering::SeqCst);
            barrier::full_after_rmw();
        }
    }

    /// The stamp of everything that the calling thread has unlinked (section.S2).
    pub(super) fn stamp(&self) -> u64 {
        // BUG: a batch of retired nodes is stamped with no fence after the unlinks (section.S2):
        // the paper's Figure 2.
        if !seeded_bug!("unfenced-retire") {
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
    pub(super) fn let_pass(&self, stamp: u64) {
        if self.transfer == 0 {
            return;
        }
        let now = || self.clock().cut().ticks();
        let last = now().min(stamp).saturating_add(self.margin.min(self.transfer + 1));
        while now() < last {
            hint::spin_loop();
        }
    }

    /// Whether the grace period of this stamp is over, as far as finished rounds know.
    pub(super) fn is_ripe(&self, stamp: u64) -> bool {
        // ORDER: Acquire; pairs with Release in `lead`: the readers' leaving before the free.
        stamp.saturating_add(self.margin) <= self.found.0.safe.load(Ordering::Acquire)
    }

    /// Leads a round; `sightings` are the leader's.
    fn lead(&self, sightings: &mut Sightings, whose: TakeOver) -> Round {
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
        // ORDER: Relaxed load, as only leaders write; Release pairs with Acquire in `is_ripe`.
        let safe = round.least.max(self.found.0.safe.load_to_change(Ordering::Relaxed));
        self.found.0.safe.store(safe, Ordering::Release);
        // ORDER: Release; pairs with Acquire in `sieve`: the barrier before the look (section.E4).
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
        // ORDER: Release; pairs with Acquire in `era` (section.E2, section.E3).
        self.era.0.store(next, Ordering::Release);
        if self.light {
            barrier::heavy()
        } else {
            barrier::fence_full()
        }
        next
    }

    /// The least stamp of an open section, or `limit`; remembers sections older than `limit`. Adds
    /// up what waits, and takes over what is wanted of threads that are outside.
    fn look(&self, limit: u64, sightings: &mut Sightings) -> u64 {
        let mut least = limit;
        let mut total = 0_usize;
        for (slot, local) in self.locals() {
            // ORDER: Acquire; pairs with Release in `open_light` and `leave`: what the reader did
            // with its nodes comes before their being freed.
            let lower = local.lower.load(Ordering::Acquire);
            if lower != 0 && lower < limit {
                least = least.min(lower);
                sightings.see(slot, lower, limit);
            }
            self.take_over(local, lower != 0);
            if cfg!(not(manycore_loom)) {
                // ORDER: Relaxed; an estimate.
                total = total.saturating_add(local.bytes.load(Ordering::Relaxed));
            }
        }
        if cfg!(not(manycore_loom)) {
            self.weigh(total);
        }
        least
    }

    /// Publishes what waits, in limbos and of threads that ended.
    fn weigh(&self, total: usize) {
        let left = unpoisoned(self.legacy.0.try_lock()).map_or(0, |legacy| legacy.bytes());
        let total = total.saturating_add(left);
        let found = &self.found.0;
        // ORDER: Relaxed; estimates.
        found.total.store(total, Ordering::Relaxed);
        if total <= self.budget && found.reported.load(Ordering::Relaxed) {
            found.reported.store(false, Ordering::Relaxed);
        }
    }

    /// Bytes from which the first batch of a thread is full, and every batch beyond the budget.
    pub(super) fn least_share(&self) -> usize {
        MIN_BATCH_BYTES.min(self.batch_bytes)
    }

    /// Bytes from which a batch is full, so that all threads stay within the budget (section.S11).
    pub(super) fn share(&self) -> usize {
        if cfg!(manycore_loom) {
            return self.batch_bytes.min(self.budget);
        }
        // ORDER: Relaxed; an estimate.
        let writers = self.found.0.writers.load(Ordering::Relaxed).max(1);
        let share = if self.is_over_budget() { 0 } else { self.budget / (BATCHES * writers) };
        share.clamp(self.least_share(), self.batch_bytes)
    }

    /// Counts the owner of a limbo in which something waits among the writers; says whether it is
    /// new there.
    pub(super) fn count(&self, limbo: &mut Limbo) -> bool {
        if cfg!(manycore_loom) || limbo.waiting() == 0 || limbo.set_counted(true) {
            return false;
        }
        // ORDER: Relaxed; an estimate.
        self.found.0.writers.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The owner of the limbo has ended or is idle: as if it were new.
    pub(super) fn discount(&self, limbo: &mut Limbo) {
        limbo.set_limit(self.least_share());
        if limbo.set_counted(false) {
            // ORDER: Relaxed; an estimate.
            self.found.0.writers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether more waited at the last round than the budget allows.
    pub(super) fn is_over_budget(&self) -> bool {
        // ORDER: Relaxed; an estimate.
        !cfg!(manycore_loom) && self.found.0.total.load(Ordering::Relaxed) > self.budget
    }

    /// Before the barrier: announces what is to be taken over.
    fn want(&self, sightings: &mut Sightings, whose: TakeOver) {
        if !whose.all && !sightings.looks_for_idle() {
            return;
        }
        for (slot, local) in self.locals() {
            // ORDER: Relaxed; a guess, and the owner can refuse.
            let waiting = local.waiting.load(Ordering::Relaxed);
            if waiting != 0 && slot != whose.own {
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
            limbo.seal(self.stamp(), Instant::now());
            self.discount(limbo);
            limbo.take_all()
        });
        if let Some(taken) = taken {
            self.legacy.0.lock().unwrap_or_else(PoisonError::into_inner).append(taken);
        }
    }

    /// Leads a round if no other thread does, and says whether everything that the calling thread
    /// had sealed before is ripe now (section.E3).
    pub(super) fn try_round(&self, whose: TakeOver) -> Option<bool> {
        let mut sightings = unpoisoned(self.leader.0.try_lock())?;
        let round = self.lead(&mut sightings, whose);
        Some(self.mode != Mode::Clock && round.least == round.limit)
    }

    /// Waits for the leader, and for a thread that leaves garbage to others, and keeps them out.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub(super) fn hold(&self) -> HeldLocks<'_> {
        let _leader = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _legacy = self.legacy.0.lock().unwrap_or_else(PoisonError::into_inner);
        HeldLocks { _leader, _legacy }
    }

    /// As [`try_round`](Self::try_round), after the round that another thread may be leading: that
    /// takes microseconds, unless it was switched out.
    pub(super) fn wait_for_round(&self, whose: TakeOver) -> bool {
        let mut sightings = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        let round = self.lead(&mut sightings, whose);
        self.mode != Mode::Clock && round.least == round.limit
    }

    /// Leads a round, after the present leader; then `f` with what was seen.
    pub(super) fn round<R>(&self, f: impl FnOnce(&Sightings) -> R) -> R {
        let mut sightings = self.leader.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.lead(&mut sightings, TakeOver::IDLE);
        f(&sightings)
    }

    /// Leads a round if no other thread does, and says whether what was stamped so is ripe now.
    pub(super) fn round_is_over(&self, stamp: u64) -> bool {
        self.let_pass(stamp);
        self.try_round(TakeOver::IDLE) == Some(true) || self.is_ripe(stamp)
    }

    /// The latest birth among nodes of a batch so stamped that an open section can hold
    /// (section.E4).
    pub(super) fn youngest_held(&self, stamp: u64) -> u64 {
        // BUG: the sieve of a bounded domain frees what an open section may hold, whatever its
        // birth (section.E4).
        if seeded_bug!("eager-sieve") {
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
}

/// How far two cores' stamps may differ (clock.C2).
fn skew(clock: Option<&Clock>) -> u64 {
    match clock.unwrap_or_else(|| Clock::system()).mode() {
        clock::Mode::Bounded { skew_ticks } | clock::Mode::Fake { skew_ticks } => skew_ticks,
        clock::Mode::Synchronized | clock::Mode::Counter => 0,
    }
}

/// The ticks by which a stamp must be older than a section beside what the clock promises. It
/// promises that no message is seen before it was sent (clock.C2); but that a reader found a link
/// as it was *before* another thread changed it is no message that was received, and so the two
/// stamps may be inverted by as much as messages take. This is 3 us or more by a counter of 5 GHz
/// or less, some ten times what a line takes between sockets; batches are ripe that much later. A
/// counter in memory needs nothing: its stamps are in one order, and fences put the loads and
/// stores in it.
fn transfer(clock: Option<&Clock>) -> u64 {
    match clock.unwrap_or_else(|| Clock::system()).mode() {
        clock::Mode::Bounded { .. } | clock::Mode::Synchronized => 1 << 14,
        clock::Mode::Fake { .. } | clock::Mode::Counter => 0,
    }
}

/// The lock, if it is free. No panic leaves anything half-done under these locks.
pub(super) fn unpoisoned<T>(locked: TryLockResult<T>) -> Option<T> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use crate::section::Domain;

    fn state_with(clock: Clock) -> State {
        let mut builder = Domain::builder().mode(Mode::Clock);
        builder.clock = Some(clock);
        State::new(builder)
    }

    /// That messages are never seen inverted says nothing about a read before an overwrite.
    #[test]
    fn machines_clock_is_trusted_but_for_the_way_of_a_message() {
        let counts = state_with(Clock::counter());
        assert_eq!((counts.margin, counts.transfer), (1, 0));
        for skew in [0, 7] {
            let state = state_with(Clock::bounded(skew));
            if state.clock().mode() != clock::Mode::Counter {
                assert!(state.margin > 10_000 + skew, "{}", state.margin);
                let stamp = state.stamp();
                state.round(|_| ());
                state.let_pass(stamp);
                state.round(|_| ());
                let waited = state.is_ripe(stamp);
                assert!(waited || skew > 0, "nobody is inside");
            }
        }
    }
}
