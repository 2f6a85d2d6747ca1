//! Custom grace periods: law section.S8, the paper's section 3.7.

use std::time::{Duration, Instant};

/// What a [`Gate`] is told about a node whose grace period is over.
///
/// See [`Gate`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retired {
    pub(super) address: usize,
    pub(super) sealed: Instant,
}

impl Retired {
    /// Returns where the node is: its [`address`](super::Shared::address), or the address that
    /// [`retire_raw`](super::Section::retire_raw) was given.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the time since the node's batch was sealed. The node may have been retired earlier.
    pub fn age(&self) -> Duration {
        self.sealed.elapsed()
    }
}

/// Decides, after the grace period, whether a node may be freed.
///
/// What for: memory that something other than a thread still uses. A device writes to it until its
/// transfer is done; a TLB may hold its address until the next flush; a lease on it runs out. When
/// not: to wait for threads, which the grace period does.
///
/// If the gate holds a node back, it is asked again when the node's thread next seals a batch,
/// leads a round, or calls [`Domain::collect`](super::Domain::collect). A closure is a gate. A gate
/// must not open sections of the same domain.
///
/// ```
/// use manycore::section::{Domain, Retired};
/// use std::time::Duration;
///
/// // Every TLB is flushed within 10 ms of the unmap.
/// let domain = Domain::builder()
///     .gate(|node: &Retired| node.age() > Duration::from_millis(10))
///     .build()?;
/// # Ok::<(), manycore::section::BuildError>(())
/// ```
///
/// Source: the paper's section 3.7; section 5.3 for the example.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can not be asked whether a node may be freed",
    label = "lacks `Gate`",
    note = "pass a closure `|node: &Retired| ...`, or implement `manycore::section::Gate`"
)]
pub trait Gate: Send + Sync {
    /// Returns true if `node` may be freed now.
    fn may_free(&self, node: &Retired) -> bool;
}

impl<F: Fn(&Retired) -> bool + Send + Sync> Gate for F {
    fn may_free(&self, node: &Retired) -> bool {
        self(node)
    }
}
