//! What replies have of an item.

use super::Item;

/// What a reply to a get has of an item.
pub struct View<'i> {
    /// Its key.
    pub key: &'i [u8],
    /// The client's own number.
    pub flags: u32,
    /// Bytes of its value.
    pub length: usize,
    pub(super) front: &'i [u8],
    /// If the value is not all there.
    pub(super) item: Option<&'i Item>,
}

impl View<'_> {
    /// Whether its value is not all there.
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
