//! The hasher of a map's entries, which have the program's hash. `lookups` measures with the same
//! hasher.

use std::hash::{BuildHasher, Hasher};

/// Mixes the program's hash, because buckets and tags use its low and its high bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        // Folds both halves of a product with an odd constant (the golden ratio).
        let product = u128::from(hash ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Makes [`Mixed`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mixing;

impl BuildHasher for Mixing {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed::default()
    }
}
