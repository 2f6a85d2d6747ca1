//! One ordered time for all cores.
//!
//! ```
//! use manycore::clock::Clock;
//!
//! let clock = Clock::system(); // decided once, by what this machine's counters are worth
//! let before = clock.stamp();
//! let after = std::thread::scope(|s| s.spawn(|| clock.stamp()).join().unwrap());
//! assert!(before < after); // on whichever core
//! println!("{}", clock.verdict());
//! ```
//!
//! The order of updates that different cores log needs a time that the cores agree on and that
//! costs no shared cache line. It is the hardware's counter if that can be trusted, and else one
//! shared counter. [`Mode`] says what is promised, [`Verdict`] says what decided it, and [`probe`]
//! measures the counters of two cores against each other. A [`FakeClock`] is as wrong as a test
//! needs it to be. To measure durations, use [`std::time::Instant`].
//!
//! # Laws
//!
//! Owns: [`Stamp`], the [`Clock`] that gives it, the choice between a hardware counter and a shared
//! one, and the report on that choice ([`Verdict`]). Does not own: the publication of updates.
//!
//! *Before* is happens-before through memory; `e` is the largest difference between two cores'
//! counters.
//!
//! - clock.C1 A [`stamp`](Clock::stamp) is read after everything before it in the thread has
//!   happened, as far as other cores told this core of it: after all earlier loads have their
//!   values. Later loads find no value that was replaced, visibly to all cores, before the stamp
//!   was read. A [`cut`](Clock::cut) is also read before every later load runs. The hardware
//!   modules argue it instruction by instruction.
//! - clock.C2 If `a` is before `b`, then `stamp(a) < stamp(b) + e`. With `e` = 0 the order is
//!   strict, because a tick is shorter than the shortest message between cores. If ticks are
//!   longer, the mode is Bounded with `e` = 0. In Counter mode both are increments of one word, and
//!   clock.C2 is that word's modification order.
//! - clock.C3 A stamp says nothing about *stores*: an earlier store may still wait in the core's
//!   store buffer when the stamp is read. An update is visible when its publication is. Ordering
//!   the publication before later loads is the publisher's duty (a locked instruction, a lock, or a
//!   membarrier on the reader's side), not the clock's.
//! - clock.C4 [`commit_wait`](Clock::commit_wait) restores the strict order in Bounded mode. It
//!   waits from *its entry*, which lies after the publication, until this core's clock has gained
//!   more than `e` and is more than `e` past the stamp. Then (a) every stamp and cut that begins
//!   afterwards is above the settled stamp, on every core; (b) it is also above every cut taken, on
//!   any core, before the publication. Waiting from the stamp alone gives (a) and not (b). An
//!   updater that was preempted between its stamp and its publication would not wait at all; a
//!   reader that had scanned its log too early could then collect a successor without it. An
//!   exhaustive model finds that history. It finds none with the wait from the entry, whatever the
//!   readers do.
//!
//! Source: [OpLog](crate#sources), section 6.1; the wait is the commit wait of Spanner (J. C.
//! Corbett and others, OSDI 2012).

#[cfg_attr(
    all(target_arch = "x86_64", not(any(miri, manycore_loom, manycore_shuttle))),
    path = "tsc.rs"
)]
#[cfg_attr(
    all(target_arch = "aarch64", not(any(miri, manycore_loom, manycore_shuttle))),
    path = "cntvct.rs"
)]
#[cfg_attr(manycore_loom, path = "model.rs")]
#[cfg_attr(
    all(
        not(manycore_loom),
        any(miri, manycore_shuttle, not(any(target_arch = "x86_64", target_arch = "aarch64")))
    ),
    path = "absent.rs"
)]
#[cfg_attr(any(manycore_loom, manycore_shuttle), allow(dead_code))] // nothing is detected there
mod hardware;

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod detect;
mod fake;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub mod probe;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod verdict;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub use self::verdict::Verdict;

#[cfg(all(test, manycore_loom))]
mod loom_tests;
#[cfg(all(test, not(any(manycore_loom, manycore_shuttle, miri))))]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

pub use self::fake::FakeClock;
use self::hardware::Instruction;
#[cfg(all(test, manycore_loom))]
pub(crate) use self::hardware::run_ahead;
use crate::sync::{AtomicU64, Ordering, global, hint, seeded_bug};

/// A moment on a [`Clock`], in that clock's ticks.
///
/// What for: ordering what happened on different cores. When not: wall-clock time, or comparing
/// moments of two clocks; a stamp means nothing outside its clock and its process.
///
/// ```
/// use manycore::clock::{Clock, Stamp};
///
/// let stamp = Clock::system().stamp();
/// assert!(Stamp::ZERO < stamp && stamp < Stamp::MAX);
/// assert!(stamp < stamp.next());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Stamp(u64);

impl Stamp {
    /// Before every stamp that a clock gives.
    pub const ZERO: Self = Self(0);
    /// After every stamp that a clock gives.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes the stamp of this tick.
    #[inline]
    pub const fn from_ticks(ticks: u64) -> Self {
        Self(ticks)
    }

    /// Returns the tick of this stamp.
    #[inline]
    pub const fn ticks(self) -> u64 {
        self.0
    }

    /// Returns the least stamp after this one; for [`Stamp::MAX`], returns itself.
    #[inline]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A [`Clock`]'s promise about the stamps of different cores.
///
/// ```
/// use manycore::clock::{Clock, Mode};
///
/// match Clock::system().mode() {
///     Mode::Bounded { skew_ticks } => println!("ordered updates wait {skew_ticks} ticks"),
///     Mode::Counter => println!("stamps share a cache line: prefer logs without order"),
///     _ => println!("stamps are cheap"),
/// }
/// assert_eq!(Clock::counter().mode(), Mode::Counter);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The cores' hardware counters agree: order across cores is the order of stamps.
    Synchronized,
    /// The cores' hardware counters differ by at most `skew_ticks`; every ordered update waits
    /// that long, in [`Clock::commit_wait`].
    Bounded {
        /// The largest difference between two cores. 0 means that they agree, but a tick is so long
        /// that two moments in order may fall into the same tick.
        skew_ticks: u64,
    },
    /// One counter shared by all cores: correct on every machine, and slow on many cores, because
    /// each stamp moves its cache line.
    Counter,
    /// A [`FakeClock`] for tests.
    Fake {
        /// The largest difference between two threads' offsets that the test promises.
        skew_ticks: u64,
    },
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synchronized => f.write_str("synchronized"),
            Self::Bounded { skew_ticks } => write!(f, "bounded by {skew_ticks} ticks"),
            Self::Counter => f.write_str("counter"),
            Self::Fake { skew_ticks } => write!(f, "fake, bounded by {skew_ticks} ticks"),
        }
    }
}

#[derive(Debug)]
enum Source {
    Hardware(Instruction),
    Counter,
    Fake(FakeClock),
}

/// The shared counter, alone on its cache lines so that stamps disturb nothing else.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

/// An ordered time shared by all cores.
/// What for: the order of updates that different cores log ([`crate::oplog`] takes a stamp per
/// ordered update and a cut per read). When not: updates that need no order need no clock at all.
/// To measure time, take [`std::time::Instant`].
///
/// ```
/// use manycore::clock::Clock;
///
/// let clock = Clock::system();
/// let first = clock.stamp();
/// clock.commit_wait(first);
/// let second = std::thread::scope(|s| s.spawn(|| clock.stamp()).join().unwrap());
/// assert!(first < second);
/// ```
///
/// - Consistency: if one moment happened before another, on whichever cores, it has the lower
///   stamp; in Bounded mode, if [`commit_wait`] lay between them. The [module](super::clock)'s laws
///   say it exactly.
/// - Progress: wait-free, except [`commit_wait`] in Bounded mode, which waits a fixed time.
/// - Cost: one `rdtscp` (about 15 ns on a 2.6 GHz Xeon guest) and no shared cache line. In Counter
///   mode, one `fetch_add` on a shared line (5 ns alone, over 100 ns between many cores).
/// - Memory: 256 bytes and more; a program has one, or one per test.
///
/// Source: [OpLog](crate#sources), section 6.1.
///
/// [`commit_wait`]: Clock::commit_wait
#[doc(alias = "rdtsc")]
#[doc(alias = "timestamp")]
#[doc(alias = "TSC")]
#[derive(Debug)]
#[repr(C)] // so that what a stamp and a settling look at are one cache line
pub struct Clock {
    source: Source,
    /// `Some(e)`: settling waits for `e` ticks.
    skew: Option<u64>,
    /// Ticks in a second; zero until that is known.
    hertz: AtomicU64,
    /// The decision of the detection; `None` if the program chose.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    verdict: Option<Verdict>,
    counter: Line,
}

/// A synchronized hardware clock, reduced to its instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hardware(Instruction);

impl Hardware {
    /// Same as [`Clock::stamp`].
    #[inline(always)]
    pub(crate) fn stamp(self) -> Stamp {
        Stamp(self.0.stamp())
    }
}

global! {
    /// The clock of this process, chosen at first use.
    made static SYSTEM: Clock = Clock::detect();
}

impl Clock {
    /// Returns the clock of this machine, chosen at the first call. [`verdict`](Clock::verdict)
    /// tells how.
    ///
    /// The clock is Synchronized if the kernel itself keeps time by an invariant counter that this
    /// process may read. If the kernel does not tell (a container without sysfs), a probe of at
    /// most a few milliseconds decides; it pins the calling thread to one CPU for that time.
    /// Otherwise, and in all doubt, the clock is Counter. The environment variable `MANYCORE_CLOCK`
    /// overrules the detection: `tsc`, `counter`, or `bounded:<ticks>`. A value that makes no sense
    /// or that the machine cannot do is ignored, and the verdict says so.
    ///
    /// Cost: the first call about 0.1 ms, later ones one load and a branch.
    #[inline]
    pub fn system() -> &'static Self {
        &SYSTEM
    }

    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    fn detect() -> Self {
        let verdict = detect::verdict();
        let mut clock = match (verdict.mode, Instruction::detect()) {
            (Mode::Synchronized, Some(it)) => Self::new(Source::Hardware(it), None),
            (Mode::Bounded { skew_ticks }, Some(it)) => {
                Self::new(Source::Hardware(it), Some(skew_ticks))
            }
            _ => Self::counter(),
        };
        clock.verdict = Some(verdict);
        clock
    }

    /// Returns a clock that counts, unless a model asks for another: a model checker detects no
    /// hardware.
    #[cfg(any(manycore_loom, manycore_shuttle))]
    fn detect() -> Self {
        Self::counter()
    }

    /// Makes a separate clock that counts stamps: correct everywhere, on any number of cores.
    pub fn counter() -> Self {
        Self::new(Source::Counter, None)
    }

    /// Makes a clock of the hardware counter, trusted to differ by at most `skew_ticks` between
    /// cores.
    ///
    /// If there is no hardware counter, returns a [`Clock::counter`], which has no skew.
    ///
    /// What for: machines with counters that are known to be a little apart. Every ordered update
    /// then takes `skew_ticks` longer. When not: if no bound is known; use [`Clock::counter`].
    pub fn bounded(skew_ticks: u64) -> Self {
        match Instruction::detect().filter(|_| hardware::readable()) {
            Some(instruction) => Self::new(Source::Hardware(instruction), Some(skew_ticks)),
            None => Self::counter(),
        }
    }

    /// Makes a clock of the model's hardware counter, trusted to agree between threads.
    #[cfg(all(test, manycore_loom))]
    pub(crate) fn synchronized() -> Self {
        Self::new(Source::Hardware(Instruction::new()), None)
    }

    /// Makes a clock that reads `time`, trusted to differ by at most `skew_ticks` between threads.
    ///
    /// With 0, [`commit_wait`](Clock::commit_wait) does nothing, as on a synchronized clock. An
    /// algorithm with a skewed thread then does what a wrong verdict would make it do.
    pub fn fake(time: &FakeClock, skew_ticks: u64) -> Self {
        Self::new(Source::Fake(time.clone()), (skew_ticks != 0).then_some(skew_ticks))
    }

    fn new(source: Source, skew: Option<u64>) -> Self {
        Self {
            source,
            skew,
            hertz: AtomicU64::new(0),
            #[cfg(not(any(manycore_loom, manycore_shuttle)))]
            verdict: None,
            counter: Line(AtomicU64::new(1)),
        }
    }

    /// Returns the stamp of an update: after everything that happened before it (clock.C1).
    #[inline]
    pub fn stamp(&self) -> Stamp {
        if let Source::Hardware(instruction) = &self.source {
            return Stamp(instruction.stamp());
        }
        self.read_in_software()
    }

    /// Returns the cut of a reader: like a [`stamp`](Clock::stamp), and before every later load
    /// (clock.C1).
    #[inline]
    pub fn cut(&self) -> Stamp {
        if let Source::Hardware(instruction) = &self.source {
            return Stamp(instruction.cut());
        }
        self.read_in_software()
    }

    #[inline(never)]
    fn read_in_software(&self) -> Stamp {
        match &self.source {
            Source::Hardware(instruction) => Stamp(instruction.cut()),
            // ORDER: SeqCst. clock.C1 and clock.C2 need AcqRel: a thread that reads a later value
            // acquires from the release sequence of the earlier increments. So what was before an
            // earlier stamp is before a later cut. SeqCst also keeps later loads behind it
            // (clock.C1, the cut).
            Source::Counter => {
                let count = self.counter.0.fetch_add(1, Ordering::SeqCst);
                debug_assert!((1..u64::MAX).contains(&count), "clock.C2: the counter wrapped");
                Stamp(count)
            }
            Source::Fake(time) => Stamp(time.read()),
        }
    }

    /// Returns true if a stamp takes a [`commit_wait`](Clock::commit_wait).
    pub(crate) fn is_skewed(&self) -> bool {
        self.skew.is_some()
    }

    /// Returns the instruction of a stamp, if this clock stamps by one instruction and needs no
    /// settling. For hot paths that keep it beside their data.
    pub(crate) fn hardware(&self) -> Option<Hardware> {
        match &self.source {
            Source::Hardware(instruction) if self.skew.is_none() => Some(Hardware(*instruction)),
            _ => None,
        }
    }

    /// Waits until `stamp` is past on every core (clock.C4). Call it after publishing the update
    /// that `stamp` belongs to and before reporting that the update is done.
    ///
    /// Does nothing unless the clock is Bounded (or a fake with a skew). `stamp` must come from
    /// this clock: a stamp from the far future is waited for.
    #[inline]
    pub fn commit_wait(&self, stamp: Stamp) {
        // BUG: an update returns before the clocks' skew is over (clock.C4).
        if let Some(skew_ticks) = self.skew.filter(|_| !seeded_bug!("unsettled")) {
            self.wait_out(stamp, skew_ticks);
        }
    }

    #[cold]
    fn wait_out(&self, stamp: Stamp, skew_ticks: u64) {
        // clock.C4 (b): from the entry, not from the stamp.
        let entry = self.stamp();
        let end = entry.max(stamp).0.saturating_add(skew_ticks);
        let mut now = self.stamp();
        while now.0 <= end {
            hint::spin_loop();
            now = self.stamp();
        }
        let gained = |since: Stamp| now.0 > since.0.saturating_add(skew_ticks);
        debug_assert!(
            gained(entry) && gained(stamp),
            "clock.C4: {now:?} is not {skew_ticks} past {entry:?} and {stamp:?}"
        );
    }

    /// Returns what this clock promises.
    pub fn mode(&self) -> Mode {
        match (&self.source, self.skew) {
            (Source::Hardware(_), None) => Mode::Synchronized,
            (Source::Hardware(_), Some(skew_ticks)) => Mode::Bounded { skew_ticks },
            (Source::Counter, _) => Mode::Counter,
            (Source::Fake(_), skew) => Mode::Fake { skew_ticks: skew.unwrap_or(0) },
        }
    }

    /// Returns what was decided, and why; for people. Takes about 5 ms the first time, see
    /// [`ticks_per_second`](Clock::ticks_per_second), and measures the cost of a stamp each time.
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    pub fn verdict(&self) -> Verdict {
        let verdict = self.verdict.clone();
        let mut verdict = verdict.unwrap_or_else(|| detect::chosen(self.mode()));
        if let Source::Hardware(_) = self.source {
            verdict.frequency_hz = Some(self.ticks_per_second());
        }
        verdict.read_ns = Some(detect::stamp_nanoseconds(self));
        verdict
    }

    /// Returns a cheap tick in no order with anything: for ages and time limits, never for
    /// ordering.
    ///
    /// On a hardware clock, ticks of the same counter as the stamps (`rdtsc`, about 9 ns). In
    /// Counter mode, nanoseconds of a monotonic clock, unrelated to the stamps. On a fake, its
    /// time, which does not move.
    #[inline]
    pub fn ticks_now(&self) -> u64 {
        if let Source::Hardware(instruction) = &self.source {
            return instruction.ticks();
        }
        self.ticks_in_software()
    }

    #[inline(never)]
    fn ticks_in_software(&self) -> u64 {
        match &self.source {
            Source::Fake(time) => time.peek(),
            // A model checker must see no real time: the count itself.
            // ORDER: Relaxed; a coarse reading, in no order.
            _ if cfg!(any(manycore_loom, manycore_shuttle)) => {
                self.counter.0.load(Ordering::Relaxed)
            }
            _ => monotonic_nanos(),
        }
    }

    /// Returns how many [`ticks_now`](Clock::ticks_now) pass in a second.
    ///
    /// Stated by the processor or the hypervisor, or else measured against the monotonic clock: the
    /// first call then takes about 5 ms. 10^9 for Counter and fake clocks.
    pub fn ticks_per_second(&self) -> u64 {
        match self.source {
            Source::Hardware(instruction) => {
                // ORDER: Relaxed; the number is all there is. (Two threads may measure it at once:
                // a child of a fork waits for none.)
                let known = self.hertz.load(Ordering::Relaxed);
                if known != 0 {
                    return known;
                }
                let found = hardware::nominal_hz().unwrap_or_else(|| calibrate(instruction));
                let (set, keep) = (Ordering::Relaxed, Ordering::Relaxed);
                // ORDER: Relaxed; as above.
                self.hertz
                    .compare_exchange(0, found, set, keep)
                    .map_or_else(|first| first, |_| found)
            }
            Source::Counter | Source::Fake(_) => NANOS_PER_SECOND as u64,
        }
    }

    /// Returns how long `ticks` of [`ticks_now`](Clock::ticks_now) are.
    pub fn ticks_to_duration(&self, ticks: u64) -> Duration {
        let hertz = u128::from(self.ticks_per_second());
        let nanos = u128::from(ticks) * NANOS_PER_SECOND / hertz;
        Duration::new((nanos / NANOS_PER_SECOND) as u64, (nanos % NANOS_PER_SECOND) as u32)
    }

    /// Returns how many ticks of [`ticks_now`](Clock::ticks_now) `duration` takes, rounded up; at
    /// most `u64::MAX`.
    pub fn duration_to_ticks(&self, duration: Duration) -> u64 {
        let hertz = u128::from(self.ticks_per_second());
        let ticks = duration.as_nanos().saturating_mul(hertz).div_ceil(NANOS_PER_SECOND);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Returns nanoseconds of the kernel's monotonic clock. Not by `Instant`: the difference of two
/// `Instant`s takes three times the instructions of the call.
#[cfg(all(target_os = "linux", not(miri)))]
#[inline]
fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to the structure that it is given, and to nothing else.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    debug_assert!(failed == 0, "every kernel has a monotonic clock");
    (now.tv_sec as u64).wrapping_mul(NANOS_PER_SECOND as u64).wrapping_add(now.tv_nsec as u64)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn monotonic_nanos() -> u64 {
    global! {
        made static START: Instant = Instant::now();
    }
    START.elapsed().as_nanos() as u64
}

/// Returns ticks per second, measured over some milliseconds of the monotonic clock.
fn calibrate(instruction: Instruction) -> u64 {
    const SPAN: Duration = Duration::from_millis(5);
    let (ticks_before, before) = simultaneously(instruction);
    while before.elapsed() < SPAN {
        hint::spin_loop();
    }
    let (ticks_after, after) = simultaneously(instruction);
    debug_assert!(ticks_before < ticks_after, "clock.C2: the counter stood still for {SPAN:?}");
    let ticks = u128::from(ticks_after.saturating_sub(ticks_before));
    let nanos = after.duration_since(before).as_nanos().max(1);
    u64::try_from(ticks * NANOS_PER_SECOND / nanos).unwrap_or(u64::MAX).max(1)
}

/// Reads both clocks at one moment: the closest of a few tries, so that an interruption does not
/// count.
fn simultaneously(instruction: Instruction) -> (u64, Instant) {
    let pair = || {
        let before = Instant::now();
        let ticks = instruction.stamp();
        let gap = before.elapsed();
        (gap, ticks, before + gap / 2)
    };
    let (_, ticks, moment) = (0..8).map(|_| pair()).min_by_key(|(gap, ..)| *gap).expect("8 tries");
    (ticks, moment)
}
