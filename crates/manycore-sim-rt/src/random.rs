//! The random bytes of a simulation: the same in every run with the same seed.

/// A generator: Marsaglia's xorshift over 64 bits.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // A state of 0 would never change.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            *byte = (self.0 >> 32) as u8;
        }
    }
}
