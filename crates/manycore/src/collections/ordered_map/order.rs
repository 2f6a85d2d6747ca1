//! The order of a node: a word that lists the slots in use, in the order of their keys. It is
//! replaced as a whole.

use crate::config::SMALL;
use std::ops::Range;

/// Slots of a node: as many as a word can order.
pub(super) const SLOTS: usize = if SMALL { 5 } else { 15 };

/// Four bits for each position, which contain the number of the slot there. The first position is
/// in the lowest bits. The number of positions is above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order(u64);

const COUNT: u32 = 60;
const ALL_SLOTS: u64 = (1 << COUNT) - 1;
/// Slot 0 at position 0, slot 1 at position 1, and so on.
const IN_TURN: u64 = 0x0edc_ba98_7654_3210;

/// Returns the bits of the positions below `at`.
#[inline(always)]
fn below(at: usize) -> u64 {
    (1 << (4 * at)) - 1
}

impl Order {
    /// Returns the order of the first `slots` slots, by their numbers.
    pub(super) fn in_turn(slots: usize) -> Self {
        debug_assert!(slots <= SLOTS, "ordered_map.T1: an order of {slots} slots");
        Self(IN_TURN & below(slots) | (slots as u64) << COUNT)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// Returns the number of slots in use.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        (self.0 >> COUNT) as usize
    }

    /// Returns the slot at a position.
    #[inline(always)]
    pub(super) fn slot(self, at: usize) -> usize {
        (self.0 >> (4 * at)) as usize & 15
    }

    /// Iterates over the slots at these positions.
    pub(super) fn slots(self, positions: Range<usize>) -> impl Iterator<Item = usize> {
        positions.map(move |at| self.slot(at))
    }

    /// Returns the position of a slot, if it is in use.
    pub(super) fn position(self, slot: usize) -> Option<usize> {
        (0..self.len()).find(|at| self.slot(*at) == slot)
    }

    /// Returns the order with `slot` inserted at position `at`.
    pub(super) fn with(self, at: usize, slot: usize) -> Self {
        debug_assert!(at <= self.len() && self.len() < SLOTS, "ordered_map.T1: no room at {at}");
        let slots = self.0 & ALL_SLOTS;
        let above = (slots & !below(at)) << 4;
        let count = self.len() as u64 + 1;
        Self(slots & below(at) | (slot as u64) << (4 * at) | above | count << COUNT)
    }

    /// Returns the order without position `at`.
    pub(super) fn without(self, at: usize) -> Self {
        debug_assert!(at < self.len(), "ordered_map.T1: nothing is at {at}");
        let slots = self.0 & ALL_SLOTS;
        let above = slots >> 4 & !below(at);
        let count = self.len() as u64 - 1;
        Self(slots & below(at) | above | count << COUNT)
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn orders_are_lists_of_slots() {
        let slots = |order: Order| order.slots(0..order.len()).collect::<Vec<_>>();
        let (mut order, mut list) = (Order::in_turn(0), Vec::new());
        for slot in 0..SLOTS {
            let at = slot * 7 % (list.len() + 1);
            order = order.with(at, slot);
            list.insert(at, slot);
            assert_eq!(slots(order), list);
            assert_eq!(Order::from_bits(order.bits()), order);
        }
        assert!((0..SLOTS).all(|slot| list[order.position(slot).unwrap()] == slot));
        while !list.is_empty() {
            let at = list.len() * 5 % list.len().min(3);
            order = order.without(at);
            let gone = list.remove(at);
            assert_eq!((slots(order), order.position(gone)), (list.clone(), None));
        }
        assert_eq!(order, Order::in_turn(0));
        assert_eq!(slots(Order::in_turn(SLOTS)), (0..SLOTS).collect::<Vec<_>>());
    }
}
