//! A hash that is the same in every run: results must not depend on a random seed.

use std::hash::{BuildHasherDefault, Hasher};

/// Builds [`Multiply`] hashers.
pub(crate) type Fixed = BuildHasherDefault<Multiply>;

/// A hasher that multiplies word by word (Fibonacci hashing); enough for addresses and small
/// numbers.
#[derive(Debug, Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
