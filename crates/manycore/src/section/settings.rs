//! Settings of a domain.

use super::gate::Gate;
use super::report::Backlog;
use crate::config::{
    CORE_BUDGET_BYTES, DEFAULT_BATCH_BYTES, DEFAULT_BATCH_NODES, DEFAULT_BUDGET_BYTES, MAX_BOUND,
};
use crate::sync::parallelism;
use std::time::Duration;

/// A function that is called when a domain is over its budget.
pub(super) type Report = dyn Fn(&Backlog) + Send + Sync;

/// How a domain finds out that a grace period is over.
///
/// ```
/// use manycore::section::{Domain, Mode};
///
/// let domain = Domain::builder().mode(Mode::Bounded).build()?;
/// drop(domain.enter());
/// # Ok::<(), manycore::section::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// The leader publishes an era, sections copy it at enter, and no node's age is looked at. One
    /// stalled section holds back everything retired since it was opened. Structures may be walked
    /// as under any epoch scheme, also through unlinked nodes: textbook lock-free code is correct.
    /// This is the default.
    ///
    /// What a stalled section held back is freed by the threads that go on retiring, as fast as the
    /// allocator takes it. With two threads, a node takes some 12 ns with a [slab](crate::slab),
    /// and 30 to 40 ns with the C library's `malloc`. So 470 MB of nodes of 64 bytes are gone a
    /// tenth to a quarter of a second after the section. Prefetching the nodes' lines, or freeing
    /// more at a time, changes neither figure. (`manycore-bench bench smr --stall 1` measures it.)
    /// In `Bounded` mode, no such backlog arises.
    #[default]
    Epoch,
    /// As `Epoch`, and nodes carry the era of their birth: a stalled section holds back only what
    /// was linked before it stalled. It costs one more load per pointer load, and a rule: every
    /// link out of a node is tagged before the node is unlinked (see [`Section::retire`]). A
    /// structure that breaks the rule uses nodes after they were freed.
    /// [`Domain::bounded`](super::Domain::bounded) makes such a domain.
    ///
    /// [`Section::retire`]: super::Section::retire
    Bounded,
}

/// A domain's settings; [`Builder`](super::Builder) says what each means.
pub(super) struct Settings {
    pub(super) mode: Mode,
    pub(super) batch_nodes: usize,
    pub(super) batch_bytes: usize,
    pub(super) bound: usize,
    pub(super) budget: usize,
    pub(super) wait: Option<Duration>,
    pub(super) report: Option<Box<Report>>,
    pub(super) gate: Option<Box<dyn Gate>>,
    pub(super) asymmetric: bool,
}

impl Settings {
    pub(super) fn new() -> Self {
        Self {
            mode: Mode::default(),
            batch_nodes: DEFAULT_BATCH_NODES,
            batch_bytes: DEFAULT_BATCH_BYTES,
            bound: MAX_BOUND,
            budget: DEFAULT_BUDGET_BYTES,
            wait: None,
            report: None,
            gate: None,
            asymmetric: true,
        }
    }

    /// As `new`, but with a smaller budget on few cores, if `by_cores`.
    pub(super) fn with_budget(by_cores: bool) -> Self {
        let budget = if by_cores { parallelism() * CORE_BUDGET_BYTES } else { usize::MAX };
        Self { budget: budget.min(DEFAULT_BUDGET_BYTES), ..Self::new() }
    }
}
