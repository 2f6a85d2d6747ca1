//! The builder of a domain.

use super::domain::Domain;
use super::gate::Gate;
use super::report::Backlog;
use super::settings::{Mode, Settings};
use crate::config::MAX_BOUND;
use std::fmt;
use std::time::Duration;

/// Why a builder's settings were refused.
///
/// ```
/// let refused = manycore::section::Domain::builder().batch_nodes(0).build().unwrap_err();
/// assert!(refused.to_string().contains("at least 1"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting (the first value) must lie between 1 and the second value.
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
///     .mode(Mode::Bounded)
///     .batch_nodes(512)
///     .bound(1_000_000)
///     .build()?;
/// # Ok::<(), manycore::section::BuildError>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    settings: Settings,
}

impl Domain {
    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    fn new() -> Self {
        Self { settings: Settings::new() }
    }

    /// Sets how grace periods are found; [`Mode::Epoch`] by default, as for [`Domain::new`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Sets how many nodes a thread retires before it looks whether earlier ones are expired. A
    /// larger batch makes the round's barrier cheaper per node, and keeps more memory waiting.
    pub fn batch_nodes(mut self, nodes: usize) -> Self {
        self.settings.batch_nodes = nodes;
        self
    }

    /// Sets how many bytes a thread retires before it seals the batch, if the nodes are so large
    /// that this limit comes first.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.settings.batch_bytes = bytes;
        self
    }

    /// Sets how many retired nodes of one thread force that thread to reclaim (law section.S5). By
    /// default there is no such bound, and the backlog may grow: see [`Domain::backlog`].
    ///
    /// Beyond the bound, the thread leads a round whenever it closes a section in which it retired
    /// something. It then frees all that is expired instead of a few nodes. It never waits. (Within
    /// one long section nothing can be done: the section could hold every node.)
    pub fn bound(mut self, nodes: usize) -> Self {
        self.settings.bound = nodes;
        self
    }

    /// Sets how many bytes may wait to be freed in the whole domain, by their
    /// [`Weight`](super::Weight); 32 MiB by default.
    ///
    /// All threads together stay within the budget plus what each retires in one section
    /// ([`Domain`] has the formula). Over the budget, every thread that retires reclaims what it
    /// can at the end of its section, and waits for sections that are not stalled. Only a stalled
    /// section can make garbage exceed the bound. [`on_over_budget`](Self::on_over_budget) and
    /// [`backpressure`](Self::backpressure) set what else happens.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.settings.budget = bytes;
        self
    }

    /// Sets a function to call when the domain's garbage exceeds its budget although threads
    /// reclaim.
    ///
    /// A thread that has retired calls it, after its section was closed, with no lock held. It is
    /// called once, and again only after a round has found the garbage within the budget.
    pub fn on_over_budget(mut self, report: impl Fn(&Backlog) + Send + Sync + 'static) -> Self {
        self.settings.report = Some(Box::new(report));
        self
    }

    /// Sets how long, at most, a thread that retires waits at the end of its outermost section for
    /// the garbage to come within the budget. By default it waits only for sections that are not
    /// stalled, for at most 100 ms.
    ///
    /// A time that is set holds for stalled sections, too. (A bounded domain is different: no
    /// thread waits there for nodes that only sections hold which are older than this time and than
    /// `STALLED_MILLIS`.) So memory is bounded even under a stalled section. The price is progress:
    /// until the stalled section is closed, writers run no faster than one section in this time.
    ///
    /// Choose a time that callers can bear: a section that stalls because it waits for a writer
    /// delays both by this much, but never for ever. With zero, no thread waits, and a thread that
    /// is switched out in a section lets garbage grow beyond the budget.
    pub fn backpressure(mut self, at_most: Duration) -> Self {
        self.settings.wait = Some(at_most);
        self
    }

    /// Sets a gate, which is asked before each node is freed, after the node's grace period (law
    /// section.S8).
    pub fn gate(mut self, gate: impl Gate + 'static) -> Self {
        self.settings.gate = Some(Box::new(gate));
        self
    }

    /// Sets whether the kernel's membarrier may replace the readers' fence, where it exists; on by
    /// default. Switch it off to test or measure the other way.
    pub fn asymmetric(mut self, yes: bool) -> Self {
        self.settings.asymmetric = yes;
        self
    }

    /// Builds the domain.
    ///
    /// # Errors
    /// If a batch, the bound or the budget is zero, or beyond its maximum (a batch in nodes: `1 <<
    /// 24`; the others: `1 << 40`).
    pub fn build(self) -> Result<Domain, BuildError> {
        let settings = [
            ("batch in nodes", self.settings.batch_nodes, 1 << 24),
            ("batch in bytes", self.settings.batch_bytes, MAX_BOUND),
            ("bound", self.settings.bound, MAX_BOUND),
            ("budget", self.settings.budget, MAX_BOUND),
        ];
        for (what, value, most) in settings {
            if !(1..=most).contains(&value) {
                return Err(BuildError::OutOfRange(what, most));
            }
        }
        Ok(Domain::from_settings(self.settings))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("mode", &self.settings.mode)
            .field("batch_nodes", &self.settings.batch_nodes)
            .field("batch_bytes", &self.settings.batch_bytes)
            .field("bound", &self.settings.bound)
            .field("budget", &self.settings.budget)
            .field("backpressure", &self.settings.wait)
            .field("gate", &self.settings.gate.is_some())
            .field("asymmetric", &self.settings.asymmetric)
            .finish_non_exhaustive()
    }
}
