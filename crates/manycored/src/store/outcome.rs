//! The condition of a storage command, and its outcome.

use super::NewItem;
use crate::protocol::Mode;

/// The result of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The value was stored.
    Stored,
    /// The condition of the command was not met.
    NotStored,
    /// The item has another version.
    Exists,
    /// There is no item.
    NotFound,
    /// There is no room.
    NoMemory,
}

/// The result of a storage command, and what a reply may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreResult {
    /// The result itself.
    pub outcome: Outcome,
    /// The version of the new item; 0 if the value was not stored.
    pub cas: u64,
    /// The length of the item's value, or of the sent value if it was not stored.
    pub length: usize,
}

impl StoreResult {
    pub(super) fn refused(outcome: Outcome, new_item: &NewItem<'_>) -> Self {
        Self { outcome, cas: 0, length: new_item.value_len() }
    }

    pub(super) fn stored(cas: u64, new_item: &NewItem<'_>) -> Self {
        Self { outcome: Outcome::Stored, cas, length: new_item.value_len() }
    }
}

/// The condition and the mode of a storage command.
#[derive(Debug, Clone, Copy)]
pub struct StoreCondition {
    /// The command.
    pub mode: Mode,
    /// Store only if the item has this version.
    pub cas: Option<u64>,
    /// If the item has a later version, store the value all the same, as stale.
    pub invalidate: bool,
    /// If there is no item to append to, store the value, until this deadline.
    pub vivify: Option<u32>,
}

impl StoreCondition {
    /// Returns the command's own condition, and no other.
    #[must_use]
    pub fn plain(mode: Mode) -> Self {
        let cas = if let Mode::Cas(cas) = mode { Some(cas) } else { None };
        Self { mode, cas, invalidate: false, vivify: None }
    }
}

/// The result of an increment or a decrement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is no item.
    Missing,
    /// The item's value is not a number.
    NoNumber,
    /// The item has another version.
    Exists,
    /// There is no room.
    NoMemory,
    /// The new number, with the version and deadline of the item.
    Done(u64, u64, u32),
}
