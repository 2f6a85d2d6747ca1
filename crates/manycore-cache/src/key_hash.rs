//! A key's hash, and which of its bits choose the segment, the bucket and the tag.

/// A key's hash, mixed.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// Mixes the hasher's result, so that every bit depends on all of it.
    #[inline(always)]
    pub(crate) fn of(hash: u64) -> Self {
        let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
        Self((product as u64) ^ (product >> 64) as u64)
    }

    /// A number below `segments`, a power of two.
    #[inline(always)]
    pub(crate) fn segment(self, segments: usize) -> usize {
        self.0 as usize & (segments - 1)
    }

    /// Never zero.
    #[inline(always)]
    pub(crate) fn tag(self) -> usize {
        ((self.0 >> 16) as usize & 0x3fff).max(1)
    }

    /// The half that chooses the bucket.
    #[inline(always)]
    pub(crate) fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn whole(self) -> u64 {
        self.0
    }
}
