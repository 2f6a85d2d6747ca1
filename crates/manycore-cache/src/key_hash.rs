//! The hash of a key, and which of its bits choose the segment, the bucket and the tag.

/// The mixed hash of a key.
#[derive(Clone, Copy)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// Mixes the hasher's result, so that every bit depends on all of it.
    #[inline(always)]
    pub(crate) fn of(hash: u64) -> Self {
        let product = u128::from(hash) * 0x9e37_79b9_7f4a_7c15;
        Self((product as u64) ^ (product >> 64) as u64)
    }

    /// Returns the number of the key's segment. The mask is one less than the number of segments,
    /// which is a power of two.
    #[inline(always)]
    pub(crate) fn segment(self, mask: usize) -> usize {
        self.0 as usize & mask
    }

    /// Returns the tag, which is never zero.
    #[inline(always)]
    pub(crate) fn tag(self) -> usize {
        (self.0 as u32 >> 18).max(1) as usize
    }

    /// Returns the half of the hash that chooses the bucket.
    #[inline(always)]
    pub(crate) fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) fn whole(self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;

    /// This also holds if only some bits of the hasher's result differ.
    #[test]
    fn hashes_that_differ_in_any_bits_spread_over_segments_buckets_and_tags() {
        for shift in [0, 16, 32, 48] {
            let (mut segments, mut buckets) = ([0; 64], [0; 64]);
            let mut tags = std::collections::BTreeSet::new();
            for number in 0..6400_u64 {
                let hash = KeyHash::of(number << shift);
                segments[hash.segment(63)] += 1;
                buckets[(hash.upper() >> 26) as usize] += 1;
                assert!((1..1 << 14).contains(&hash.tag()));
                tags.insert(hash.tag());
            }
            let is_even = |counts: &[u32]| counts.iter().all(|count| (25..400).contains(count));
            assert!(is_even(&segments), "{shift}: {segments:?}");
            assert!(is_even(&buckets), "{shift}: {buckets:?}");
            assert!(tags.len() > 3000, "{shift}: {} tags", tags.len());
        }
        assert_ne!(KeyHash::of(1).whole(), KeyHash::of(2).whole());
    }
}
