//! The set of replicas that have a copy of an entry.

/// Places that may have a copy: one bit for each of the first 63, and one for all others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReplicaMask(u64);

impl ReplicaMask {
    fn bit(place: usize) -> u64 {
        1 << place.min(63)
    }

    pub(super) fn add(&mut self, place: usize) {
        self.0 |= Self::bit(place);
    }

    pub(super) fn may_include(self, place: usize) -> bool {
        self.0 & Self::bit(place) != 0
    }

    /// Returns true if no place has a copy.
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }
}
