//! Pinned values: replies contain them without a copy, because they are sent from the items' own
//! memory.
//!
//! Laws:
//! - store_pinned.G1 A guard protects each item until its value has been sent, or copied because
//!   the socket accepted no more. Both happen in the turn in which the item was found. The list is
//!   empty between turns, so a slow client does not delay the reclamation of items.
//! - store_pinned.G2 The reply is the worker's buffer, with each value inserted at the position
//!   where it was pinned.

use super::Item;
use super::handle::Found;

/// The least length of a value that is sent from its item. Each such value adds two slices to a
/// gathered write. They cost the kernel more than a copy of 4 KB, and less than a copy of 10 KB (16
/// gets at once).
const PINNED_MIN: usize = 8 << 10;

/// The pinned values of one turn's replies.
#[derive(Default)]
pub struct Pinned<'s> {
    /// The position in the buffer, and the item.
    values: Vec<(usize, Found<'s>)>,
    /// Bytes of all pinned values.
    bytes: usize,
    is_on: bool,
}

impl<'s> Pinned<'s> {
    /// Begins a turn. Its replies may have pinned values.
    pub fn begin(&mut self) {
        debug_assert!(self.values.is_empty(), "store_pinned.G1: values of another turn are pinned");
        self.is_on = true;
    }

    /// Returns true if pinning is cheaper than a copy: the value is long and in few pieces.
    #[inline]
    pub(super) fn wants(&self, item: &Item) -> bool {
        if !self.is_on || !item.has_tail() {
            return false;
        }
        let length = item.value_len();
        length >= PINNED_MIN && item.value_parts().count() <= 2 + length / PINNED_MIN
    }

    /// Inserts an item's value at the end of the buffer.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, found: Found<'s>) {
        debug_assert!(self.is_on, "store_pinned.G1: a value is pinned outside of a turn");
        let (here, rest) = found.key().value_by_place();
        out.extend_from_slice(here);
        self.bytes += rest.map(<[u8]>::len).sum::<usize>();
        debug_assert!(
            self.values.last().is_none_or(|(at, _)| *at <= out.len()),
            "store_pinned.G2: a value is pinned before an earlier one"
        );
        self.values.push((out.len(), found));
    }

    /// Returns the bytes of all pinned values.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if no value is pinned.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the replies, piece by piece.
    pub fn pieces<'a>(&'a self, out: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        // store_pinned.G2: the buffer up to a position, then the value that belongs there.
        let ends = self.values.iter().map(|(at, found)| (*at, Some(found)));
        let mut from = 0;
        ends.chain([(out.len(), None)]).flat_map(move |(to, found)| {
            debug_assert!(
                from <= to && to <= out.len(),
                "store_pinned.G2: a value outside of the reply"
            );
            let before = &out[from..to];
            from = to;
            let value = found.map(|found| found.key().value_by_place().1);
            std::iter::once(before).chain(value.into_iter().flatten())
        })
    }

    /// Ends the turn (store_pinned.G1).
    #[inline]
    pub fn end(&mut self) {
        self.values.clear();
        (self.bytes, self.is_on) = (0, false);
    }
}
