//! The view of an item for replies.

use super::Item;

/// The parts of an item that a reply to a get needs.
pub struct View<'i> {
    /// Its key.
    pub key: &'i [u8],
    /// The client's flags.
    pub flags: u32,
    /// Bytes of its value.
    pub length: usize,
    pub(super) front: &'i [u8],
    /// The item, if its value has a tail.
    pub(super) item: Option<&'i Item>,
}

impl View<'_> {
    /// Returns true if its value has a tail.
    #[inline]
    pub fn has_tail(&self) -> bool {
        self.item.is_some()
    }

    /// Appends its value.
    #[inline]
    pub fn write_value(&self, out: &mut Vec<u8>) {
        match self.item {
            None => out.extend_from_slice(self.front),
            Some(item) => item.write_value(out),
        }
    }
}
