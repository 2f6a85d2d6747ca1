//! Which slots have something to collect: one bit for each (law hot_state.C2, queue.Q3 of
//! `ldu::queue`).

use super::segmented::Lazy;
use crate::sync::AtomicU64;

/// 64 slots' dirty bits.
#[repr(align(128))]
pub(crate) struct DirtyWord(pub(crate) AtomicU64);

impl From<usize> for DirtyWord {
    fn from(_: usize) -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Every slot's dirty bit. The first 64, which are nearly all that ever exist, need no segment.
pub(crate) struct DirtyTable {
    near: DirtyWord,
    far: Lazy<DirtyWord>,
}

impl DirtyTable {
    pub(crate) fn new() -> Self {
        Self { near: DirtyWord::from(0), far: Lazy::new() }
    }

    /// Returns the word of slots `64 * number` and on.
    pub(crate) fn get_or_init(&self, number: usize) -> &DirtyWord {
        match number.checked_sub(1) {
            None => &self.near,
            Some(far) => self.far.get_or_init(far),
        }
    }

    /// Returns the word of the first 64 slots, if there is no other.
    #[inline(always)]
    pub(crate) fn only_word(&self) -> Option<&DirtyWord> {
        self.far.is_unused().then_some(&self.near)
    }

    /// Iterates over every word that exists, with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &DirtyWord)> {
        let far = self.far.iter().map(|(far, word)| (far + 1, word));
        std::iter::once((0, &self.near)).chain(far)
    }
}
