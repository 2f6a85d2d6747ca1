//! Do the counters of two cores agree? An experiment.
//!
//! ```
//! use manycore::clock::probe;
//!
//! match probe::pairs(1000, &mut |progress| println!("{} of {}", progress.done, progress.total)) {
//!     Ok(pairs) => assert!(pairs.iter().all(|pair| pair.from != pair.to)),
//!     Err(error) => println!("{error}"), // no counter, or no permission to pin threads
//! }
//! ```
//!
//! # How it works
//!
//! The first core reads its counter and stores the reading. The second core loads it and then reads
//! its own counter. The second reading must be the larger one. Both are read in order here, as
//! stamps are. (The paper lets the first read run early, which adds slack and so hides small
//! inversions.)
//!
//! A message takes time, so the least delay of a pair is the transfer plus the difference of the
//! counters. If it is positive in both directions, no order of events that passes between these
//! cores through memory can be seen inverted, which is all that clock.C2 needs. It does not mean
//! that the difference is 0.
//!
//! Owns: message passing between pinned threads, and the least delay seen for each pair. Source:
//! [OpLog](crate#sources), section 6.1.

use std::io;
use std::time::{Duration, Instant};
use std::{error, fmt};

use super::hardware::{self, Instruction};
use super::verdict::Probe;
use crate::percpu::pin::{self, Pinned};
use crate::sync::{AtomicU64, Ordering, hint, thread};

/// The time that [`pairs`] takes at most, shared fairly by all pairs, plus a thread per pair.
pub const DURATION_MAX: Duration = Duration::from_secs(30);

/// A pair gets at least this long: a thread must start and move to its core.
const PAIR_DURATION_MIN: Duration = Duration::from_micros(300);

/// The bounds of the quick probe.
const QUICK_DURATION_MAX: Duration = Duration::from_millis(5);
const QUICK_PAIRS_MAX: usize = 8;
const QUICK_ROUNDS: u32 = 256;

/// The delay of messages from one core to another, as each core's own clock shows it.
///
/// See [`pairs`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PairDelta {
    /// The CPU that sends.
    pub from: usize,
    /// The CPU that receives.
    pub to: usize,
    /// The least difference of any round, in ticks: above 0 if the counters agree.
    pub min_ticks: i64,
    /// Number of messages; fewer than requested if the time was up.
    pub rounds: u32,
}

/// Progress of [`pairs`].
///
/// ```
/// use manycore::clock::probe::{self, Progress};
///
/// let mut last = None;
/// let pairs = probe::pairs(1, &mut |progress| last = Some((progress.done, progress.total)));
/// if pairs.is_ok() {
///     assert!(last.is_some_and(|(done, total)| done == total));
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Pairs of CPUs (both directions at once) that are done.
    pub done: usize,
    /// Number of pairs.
    pub total: usize,
}

/// Reason why the experiment could not be made.
///
/// See [`pairs`] for an example.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProbeError {
    /// There is no hardware counter here, or the process may not read it.
    NoCounter,
    /// The system does not tell on which CPUs the thread may run.
    Affinity(io::Error),
    /// A thread could not be kept on its CPU.
    Pin {
        /// The CPU.
        cpu: usize,
        /// The system's error.
        error: io::Error,
    },
    /// The second thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounter => f.write_str("no hardware counter that may be read"),
            Self::Affinity(error) => write!(f, "cannot learn which CPUs may be used: {error}"),
            Self::Pin { cpu, error } => write!(f, "cannot keep a thread on CPU {cpu}: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl error::Error for ProbeError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::NoCounter => None,
            Self::Affinity(error) | Self::Pin { error, .. } | Self::Thread(error) => Some(error),
        }
    }
}

/// Sends up to `rounds` messages (at least one) each way between every two CPUs that the calling
/// thread may run on. Returns the least delay of each ordered pair, sorted by `(from, to)`.
///
/// What for: a look at a machine's counters, as `manycore doctor` takes it. When not: at start;
/// [`Clock::system`](super::Clock::system) decides without it.
///
/// With one CPU there are no pairs, and the result is empty. A pair is missing if its CPUs were
/// busy elsewhere for all of its time. Time: about half a microsecond per round and pair, at most
/// [`DURATION_MAX`] in all unless starting a thread takes longer than a pair's share. Both CPUs of
/// a pair spin during the probe. `progress` is called before the first pair and after each.
///
/// # Errors
/// See [`ProbeError`]. The calling thread may run where it might before in any case.
///
/// ```
/// use manycore::clock::probe;
///
/// match probe::pairs(100, &mut |_| ()) {
///     Ok(pairs) => assert!(pairs.iter().all(|pair| pair.rounds > 0)),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn pairs(
    rounds: u32,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<PairDelta>, ProbeError> {
    let cpus = pin::allowed().map_err(ProbeError::Affinity)?;
    let all: Vec<_> = cpus
        .iter()
        .enumerate()
        .flat_map(|(index, &first)| cpus[index + 1..].iter().map(move |&second| (first, second)))
        .collect();
    let mut deltas = measure(&all, rounds, DURATION_MAX, progress)?;
    deltas.sort_unstable_by_key(|delta| (delta.from, delta.to));
    Ok(deltas)
}

/// Probes the first CPU against a few others, spread over the machine, in a few milliseconds.
pub(crate) fn quick() -> Probe {
    let cpus = match pin::allowed() {
        Ok(cpus) => cpus,
        Err(error) => return Probe::Failed(ProbeError::Affinity(error).to_string()),
    };
    let [first, others @ ..] = cpus.as_slice() else {
        return Probe::Failed("no CPU that may be used".to_owned());
    };
    // Rounded up from the far end, so that the last CPU, often on another socket, is one of them.
    let step = others.len().div_ceil(QUICK_PAIRS_MAX).max(1);
    let spread: Vec<_> = others.iter().rev().step_by(step).map(|&cpu| (*first, cpu)).collect();
    match measure(&spread, QUICK_ROUNDS, QUICK_DURATION_MAX, &mut |_| ()) {
        Ok(deltas) => judge(&deltas, spread.len()),
        Err(error) => Probe::Failed(error.to_string()),
    }
}

/// Judges the deltas of `pairs` pairs.
pub(crate) fn judge(deltas: &[PairDelta], pairs: usize) -> Probe {
    let Some(min_ticks) = deltas.iter().map(|delta| delta.min_ticks).min() else {
        return Probe::Failed(format!("no message arrived in time on {pairs} pairs of cores"));
    };
    if min_ticks <= 0 {
        return Probe::Inverted { by_ticks: min_ticks.unsigned_abs().max(1) };
    }
    if deltas.len() < pairs * 2 {
        return Probe::Failed(format!("{} of {pairs} pairs in time", deltas.len() / 2));
    }
    Probe::Clean { pairs, min_ticks }
}

fn measure(
    pairs: &[(usize, usize)],
    rounds: u32,
    duration_max: Duration,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<PairDelta>, ProbeError> {
    let instruction = Instruction::detect().filter(|_| hardware::readable());
    let instruction = instruction.ok_or(ProbeError::NoCounter)?;
    let end = Instant::now() + duration_max;
    let mut deltas = Vec::with_capacity(pairs.len() * 2);
    progress(Progress { done: 0, total: pairs.len() });
    for (done, &(first, second)) in pairs.iter().enumerate() {
        let now = Instant::now();
        let share = end.saturating_duration_since(now) / (pairs.len() - done) as u32;
        let deadline = now + share.max(PAIR_DURATION_MIN);
        deltas.extend(pair(instruction, first, second, rounds.max(1), deadline)?);
        progress(Progress { done: done + 1, total: pairs.len() });
    }
    Ok(deltas)
}

/// Measures both directions between two CPUs. Returns nothing if there was no time for one round.
fn pair(
    instruction: Instruction,
    first: usize,
    second: usize,
    rounds: u32,
    deadline: Instant,
) -> Result<Vec<PairDelta>, ProbeError> {
    let _pinned = Pinned::to(first).map_err(|error| ProbeError::Pin { cpu: first, error })?;
    let (there, back) = (Mailbox::new(), Mailbox::new());
    let end = |to, from| End { instruction, inbox: to, outbox: from, deadline };
    let (far, near) = thread::scope(|scope| {
        let echo = thread::Builder::new().spawn_scoped(scope, || {
            let end = end(&there, &back);
            pin::pin_to(second).inspect_err(|_| end.refuse())?;
            Ok(end.run(rounds, false))
        });
        let echo = echo.map_err(ProbeError::Thread)?;
        let near = end(&back, &there).run(rounds, true);
        let far = echo.join().expect("the echo does not panic");
        far.map(|far| (far, near)).map_err(|error| ProbeError::Pin { cpu: second, error })
    })?;
    let delta = |from, to, (min_ticks, rounds)| PairDelta { from, to, min_ticks, rounds };
    let deltas = [delta(first, second, far), delta(second, first, near)];
    Ok(deltas.into_iter().filter(|delta| delta.rounds > 0).collect())
}

/// One message at a time, on cache lines of its own.
#[repr(align(128))]
struct Mailbox {
    /// Number of the message in `ticks`; [`Mailbox::CLOSED`] if no message will come.
    number: AtomicU64,
    ticks: AtomicU64,
}

impl Mailbox {
    const CLOSED: u64 = u64::MAX;

    fn new() -> Self {
        Self { number: AtomicU64::new(0), ticks: AtomicU64::new(0) }
    }
}

/// One side of a pair.
struct End<'a> {
    instruction: Instruction,
    inbox: &'a Mailbox,
    outbox: &'a Mailbox,
    deadline: Instant,
}

impl End<'_> {
    /// Exchanges messages. Returns the least delay of the received messages, and their number.
    fn run(&self, rounds: u32, begins: bool) -> (i64, u32) {
        let mut least = (i64::MAX, 0);
        for round in 1..=rounds {
            if begins {
                self.send(round);
            }
            let Some(delay) = self.receive(round) else { break };
            least = (least.0.min(delay), round);
            if !begins {
                self.send(round);
            }
        }
        least
    }

    fn send(&self, round: u32) {
        // ORDER: Relaxed; the Release below carries it.
        self.outbox.ticks.store(self.instruction.stamp(), Ordering::Relaxed);
        // ORDER: Release; pairs with Acquire in `receive`.
        self.outbox.number.store(u64::from(round), Ordering::Release);
    }

    /// Waits for message `round`. Returns `None` if it will not come.
    fn receive(&self, round: u32) -> Option<i64> {
        const SPINS_PER_LOOK: u32 = 256;
        loop {
            for _ in 0..SPINS_PER_LOOK {
                // ORDER: Acquire; pairs with Release in `send`.
                let number = self.inbox.number.load(Ordering::Acquire);
                if number == u64::from(round) {
                    // ORDER: Relaxed; the sender writes the next one after our answer only.
                    let sent = self.inbox.ticks.load(Ordering::Relaxed);
                    return Some(self.instruction.stamp().wrapping_sub(sent) as i64);
                }
                if number == Mailbox::CLOSED {
                    return None;
                }
                hint::spin_loop();
            }
            if Instant::now() >= self.deadline {
                return None;
            }
        }
    }

    /// Tells the other side not to wait: no message will ever come.
    fn refuse(&self) {
        // ORDER: Relaxed; nothing comes with it.
        self.outbox.number.store(Mailbox::CLOSED, Ordering::Relaxed);
    }
}
