//! Spare buffers, which connections return and later connections reuse.
//!
//! If a new buffer is large, or if the allocator has returned its pages, its first use costs a page
//! fault for every 4 KB: half a millisecond for a megabyte. So a worker keeps the last buffers
//! while they are used, and for a second or two after that. The ledger counts their bytes. None is
//! kept if other buffers need the room.

use crate::buffers::{Ledger, Use};

/// The most buffers that are kept.
const COUNT: usize = 32;
/// The most bytes of all kept buffers together.
const BYTES: usize = 8 << 20;

/// A worker's spare buffers.
#[derive(Debug, Default)]
pub(super) struct Spares {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// Bytes counted in the ledger.
    holds: usize,
    /// Whether a buffer was returned since the last second.
    is_used: bool,
}

impl Spares {
    /// Returns an empty buffer with a capacity of at least `room`, and not much above `most`.
    pub(super) fn take(&mut self, room: usize, most: usize, ledger: &mut Ledger<'_>) -> Vec<u8> {
        let most = most.max(room).max(2048).saturating_mul(2);
        let fits = |spare: &Vec<u8>| (room..=most).contains(&spare.capacity());
        let Some(at) = self.buffers.iter().position(fits) else { return Vec::with_capacity(room) };
        let found = self.buffers.swap_remove(at);
        self.bytes -= found.capacity();
        let _ = ledger.set(&mut self.holds, self.bytes, Use::Replies);
        self.check();
        found
    }

    /// Keeps a buffer, or frees it.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>, ledger: &mut Ledger<'_>) {
        let bytes = self.bytes + buffer.capacity();
        let is_kept = buffer.capacity() > 0
            && self.buffers.len() < COUNT
            && bytes <= BYTES
            && ledger.budget().is_ample()
            && ledger.set(&mut self.holds, bytes, Use::Replies);
        if is_kept {
            buffer.clear();
            self.buffers.push(buffer);
            (self.bytes, self.is_used) = (bytes, true);
        }
        self.check();
    }

    fn check(&self) {
        debug_assert_eq!(
            self.bytes,
            self.buffers.iter().map(Vec::capacity).sum::<usize>(),
            "buffers.B1: the bytes of spare buffers are not those counted"
        );
        debug_assert_eq!(
            self.bytes, self.holds,
            "buffers.B1: spare buffers are not reserved in the ledger"
        );
    }

    /// Frees all spare buffers, if none was returned since the last call.
    pub(super) fn age(&mut self, ledger: &mut Ledger<'_>) {
        if !std::mem::take(&mut self.is_used) {
            (self.buffers, self.bytes) = (Vec::new(), 0);
            let _ = ledger.set(&mut self.holds, 0, Use::Replies);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Budget;

    #[test]
    fn spares_are_found_by_size_and_freed_when_they_are_not_used() {
        let budget = Budget::new(64 << 20);
        let mut ledger = Ledger::new(&budget, 1);
        let mut spares = Spares::default();
        for bytes in [1_000_000, 5_000, 20_000] {
            spares.give(Vec::with_capacity(bytes), &mut ledger);
        }
        assert_eq!(ledger.held(), 1_025_000);
        assert_eq!(spares.take(15_000, 15_000, &mut ledger).capacity(), 20_000);
        assert_eq!(spares.take(100_000, 100_000, &mut ledger).capacity(), 100_000);
        assert_eq!(spares.take(100_000, 900_000, &mut ledger).capacity(), 1_000_000);
        assert_eq!((ledger.held(), spares.buffers.len()), (5_000, 1));
        spares.age(&mut ledger);
        assert_eq!(ledger.held(), 5_000);
        spares.age(&mut ledger);
        assert_eq!((ledger.held(), spares.buffers.len()), (0, 0));
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let budget = Budget::new(4 << 20);
        let mut ledger = Ledger::new(&budget, 1);
        let mut spares = Spares::default();
        (0..100).for_each(|_| spares.give(Vec::with_capacity(400_000), &mut ledger));
        assert!((400_000..=2 << 20).contains(&ledger.held()), "{}", ledger.held());
        let (budget, mut spares) = (Budget::new(0), Spares::default());
        let mut ledger = Ledger::new(&budget, 1);
        (0..100).for_each(|_| spares.give(Vec::with_capacity(400_000), &mut ledger));
        assert!((4 << 20..=BYTES).contains(&ledger.held()), "{}", ledger.held());
    }
}
