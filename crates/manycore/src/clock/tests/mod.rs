//! Tests of the clock: its order, its decision, its experiment.

mod decision;
mod order;
mod probing;

/// A small seeded generator for the property tests.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}
