/// What happened to the updates of one [`Deferred`](super::Deferred) object since it was promoted.
///
/// A cold object applies its updates at once and has no room for counts, so all are zero then. In
/// every state `appended = absorbed + applied + pending`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Updates that went to a log.
    pub appended: u64,
    /// Updates that never had to be applied: cancelled, combined or absorbed.
    pub absorbed: u64,
    /// Updates applied to the object by a merge.
    pub applied: u64,
    /// Updates in logs now.
    pub pending: u64,
    /// Times that logs were merged, by readers and by updates whose log was full.
    pub merges: u64,
    /// Times that the object lost its logs to a busier one.
    pub evictions: u64,
    /// Slots that have a log of this object.
    pub logs: usize,
    /// Bytes of logs: slots, entries, and spare buffers counted by their entries.
    pub bytes: usize,
    /// Whether updates publish with plain stores now (see [`Publish`](super::Publish)).
    pub biased: bool,
}
