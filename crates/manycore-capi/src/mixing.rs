//! The hasher of a map's entries, which have a hash from the program. `lookups` times the same.

use std::hash::{BuildHasher, Hasher};

/// Makes a hash of the program's fit for buckets and tags, which are of its low and its high bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        // Both halves of the product with an odd constant, of the golden ratio.
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
