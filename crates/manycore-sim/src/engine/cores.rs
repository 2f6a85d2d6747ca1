//! A set of cores, in four words.

use crate::machine::MAX_CORES;

/// "No core", where a core number is stored in 16 bits.
pub(super) const NO_CORE: u16 = u16::MAX;

/// A set of cores.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct CoreSet([u64; MAX_CORES as usize / 64]);

impl CoreSet {
    pub(super) const EMPTY: CoreSet = CoreSet([0; MAX_CORES as usize / 64]);

    #[inline]
    pub(super) fn has(&self, core: u16) -> bool {
        self.0[usize::from(core >> 6) & 3] >> (core & 63) & 1 == 1
    }

    #[inline]
    pub(super) fn add(&mut self, core: u16) {
        self.0[usize::from(core >> 6) & 3] |= 1 << (core & 63);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u16> {
        self.0.into_iter().zip(0_u16..).flat_map(|(mut word, at)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros() as u16;
                (word != 0).then(|| {
                    word &= word - 1;
                    at * 64 + bit
                })
            })
        })
    }
}
