//! The builder of a domain.

use super::domain::Domain;
use super::gate::Gate;
use super::report::Backlog;
use crate::clock::Clock;
use crate::config::{DEFAULT_BATCH_BYTES, DEFAULT_BATCH_NODES, DEFAULT_BUDGET_BYTES, MAX_BOUND};
use std::fmt;
use std::time::Duration;

/// What is told that a domain is over its budget.
pub(super) type Report = dyn Fn(&Backlog) + Send + Sync;

/// How a domain finds out that a grace period is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// A published era, copied at enter; no node's age is looked at. One stalled section holds back
    /// everything retired since it was opened. Structures may be walked as under any epoch scheme,
    /// through unlinked nodes too.
    ///
    /// What a stalled section held back is freed by the threads that go on retiring, as fast as the
    /// allocator takes it: two threads need some 12 ns a node for a [slab](crate::slab), and
    /// 30 to 40 for the C library's `malloc`. So 470 MB of nodes of 64 bytes are gone a tenth or a
    /// quarter of a second after the section; asking for the nodes' lines ahead, or freeing more at
    /// a time, changed neither. (`manycore bench smr --stall 1` measures it.) `Bounded` lets no
    /// such heap arise.
    Epoch,
    /// As `Epoch`, and nodes carry the era of their birth: a stalled section holds back only what
    /// was linked before it stalled. Costs one more load per pointer load, and a rule: a link out
    /// of a node is tagged before the node is unlinked (see [`Section::retire`]).
    ///
    /// [`Section::retire`]: super::Section::retire
    #[default]
    Bounded,
    /// The paper's literal form: each section stamps itself by the clock and pays a full fence, and
    /// reads nothing that another thread writes. One stalled section holds back everything.
    ///
    /// Memory safety rests here on the machine's clocks: what [`Clock`] decided about them, or what
    /// the environment variable `MANYCORE_CLOCK` says, if it is set. Cores whose counters are
    /// further apart than that, and some microseconds more, free memory under readers. The other
    /// modes trust no clock. [`Domain::quiesced`] and [`Domain::collect`] wait those microseconds
    /// out.
    Clock,
}

/// Why a builder's settings were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The setting (first) must lie between 1 and the second.
    OutOfRange(&'static str, usize),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange(what, most) => {
                write!(f, "the domain's {what} must be at least 1 and at most {most}")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Settings of a [`Domain`]; [`Domain::builder`] makes one.
///
/// ```
/// use manycore::section::{Domain, Mode};
///
/// let domain = Domain::builder()
///     .mode(Mode::Epoch)
///     .batch_nodes(512)
///     .bound(1_000_000)
///     .build()?;
/// # Ok::<(), manycore::section::BuildError>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    pub(super) mode: Mode,
    pub(super) clock: Option<Clock>,
    pub(super) batch_nodes: usize,
    pub(super) batch_bytes: usize,
    pub(super) bound: usize,
    pub(super) budget: usize,
    pub(super) wait: Duration,
    pub(super) report: Option<Box<Report>>,
    pub(super) gate: Option<Box<dyn Gate>>,
    pub(super) asymmetric: bool,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            mode: Mode::default(),
            clock: None,
            batch_nodes: DEFAULT_BATCH_NODES,
            batch_bytes: DEFAULT_BATCH_BYTES,
            bound: MAX_BOUND,
            budget: DEFAULT_BUDGET_BYTES,
            wait: Duration::ZERO,
            report: None,
            gate: None,
            asymmetric: true,
        }
    }

    /// How grace periods are found; [`Mode::Bounded`] by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The clock of [`Mode::Clock`], if not the system's. Not public, because one that breaks its
    /// word frees memory under readers.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Nodes that a thread retires before it looks whether earlier ones are ripe. More make the
    /// round's barrier cheaper for each and keep more memory waiting.
    pub fn batch_nodes(mut self, nodes: usize) -> Self {
        self.batch_nodes = nodes;
        self
    }

    /// Bytes that a thread retires before it seals them, if nodes are so large that this is less.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Retired nodes of one thread from which it is made to reclaim (law section.S5). By default
    /// there is no such bound, and the backlog may grow: see [`Domain::backlog`].
    ///
    /// Beyond the bound, the thread leads a round whenever a section closes in which it retired
    /// something, and frees all that is ripe instead of a few nodes. It never waits.
    /// (Within one long section nothing can be done: it could hold all.)
    pub fn bound(mut self, nodes: usize) -> Self {
        self.bound = nodes;
        self
    }

    /// Bytes that may wait to be freed in the whole domain, by their [`Weight`](super::Weight);
    /// [`DEFAULT_BUDGET_BYTES`](crate::config::DEFAULT_BUDGET_BYTES) by default.
    ///
    /// With `T` threads that retire, a batch is closed at `budget / (6 * T)` bytes, so that all
    /// together stay within the budget, or twice as much while threads come, and six of the
    /// heaviest nodes for each thread (the formula is in the documentation of [`Domain`]). Only a
    /// section that stays open can make garbage exceed that. Then every thread that retires
    /// reclaims what it can at the end of its section, and what else happens is said by
    /// [`on_over_budget`](Self::on_over_budget) and [`backpressure`](Self::backpressure).
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = bytes;
        self
    }

    /// Called when the domain's garbage exceeds its budget although threads reclaim: by a thread
    /// that has retired, after its section was closed, with no lock held; once until a round finds
    /// the garbage within the budget again.
    pub fn on_over_budget(mut self, report: impl Fn(&Backlog) + Send + Sync + 'static) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// How long a thread that retires waits at the end of its outermost section, at most, for the
    /// garbage to come within the budget; by default it does not wait.
    ///
    /// This bounds memory even under a stalled section, at the price of progress: writers run no
    /// faster than one section in so much time until the stalled section is closed. Choose it
    /// shorter than what callers can bear: a section that is stalled because it waits for a writer
    /// delays both by this much, but never for ever.
    pub fn backpressure(mut self, at_most: Duration) -> Self {
        self.wait = at_most;
        self
    }

    /// Asked before each node is freed, after its grace period (law section.S8).
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.gate = Some(Box::new(gate));
        self
    }

    /// Whether the kernel's membarrier may replace the readers' fence, where it exists; on unless
    /// switched off. For tests of the other way, and for measuring it.
    pub fn asymmetric(mut self, yes: bool) -> Self {
        self.asymmetric = yes;
        self
    }

    /// Makes the domain.
    ///
    /// # Errors
    /// A batch or a bound of zero, or beyond [`MAX_BOUND`](crate::config::MAX_BOUND).
    pub fn build(self) -> Result<Domain, BuildError> {
        let settings = [
            ("batch in nodes", self.batch_nodes, 1 << 24),
            ("batch in bytes", self.batch_bytes, MAX_BOUND),
            ("bound", self.bound, MAX_BOUND),
            ("budget", self.budget, MAX_BOUND),
        ];
        for (what, value, most) in settings {
            if !(1..=most).contains(&value) {
                return Err(BuildError::OutOfRange(what, most));
            }
        }
        Ok(Domain::from_builder(self))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("mode", &self.mode)
            .field("batch_nodes", &self.batch_nodes)
            .field("batch_bytes", &self.batch_bytes)
            .field("bound", &self.bound)
            .field("budget", &self.budget)
            .field("backpressure", &self.wait)
            .field("gate", &self.gate.is_some())
            .field("asymmetric", &self.asymmetric)
            .finish_non_exhaustive()
    }
}
