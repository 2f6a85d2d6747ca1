//! A set of cores: sixteen words of bits, and a word that says which of them are not empty.
//!
//! Most sets have a few cores that are near each other, so only a few words are examined.

use crate::machine::MAX_CORES;

/// "No core", where a core number is stored in 16 bits.
pub(super) const NO_CORE: u16 = u16::MAX;

const WORDS: usize = MAX_CORES as usize / 64;

/// A set of cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CoreSet {
    /// One bit for each word that is not 0.
    used: u16,
    words: [u64; WORDS],
}

impl Default for CoreSet {
    fn default() -> CoreSet {
        CoreSet::EMPTY
    }
}

impl CoreSet {
    pub(super) const EMPTY: CoreSet = CoreSet { used: 0, words: [0; WORDS] };

    #[inline]
    pub(super) fn has(&self, core: u16) -> bool {
        self.words[usize::from(core >> 6) % WORDS] >> (core & 63) & 1 == 1
    }

    #[inline]
    pub(super) fn add(&mut self, core: u16) {
        self.used |= 1 << ((core >> 6) as usize % WORDS);
        self.words[usize::from(core >> 6) % WORDS] |= 1 << (core & 63);
    }

    pub(super) fn remove(&mut self, core: u16) {
        let word = usize::from(core >> 6) % WORDS;
        self.words[word] &= !(1 << (core & 63));
        self.used &= !(u16::from(self.words[word] == 0) << word);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(super) fn clear(&mut self) {
        for word in bits(u64::from(self.used)) {
            self.words[usize::from(word)] = 0;
        }
        self.used = 0;
    }

    /// Makes this set a copy of the other.
    pub(super) fn copy_from(&mut self, other: &CoreSet) {
        for word in bits(u64::from(self.used | other.used)) {
            self.words[usize::from(word)] = other.words[usize::from(word)];
        }
        self.used = other.used;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        bits(u64::from(self.used))
            .flat_map(|word| bits(self.words[usize::from(word)]).map(move |bit| word * 64 + bit))
    }
}

/// Iterates over the numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as u16;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CoreSet;
    use crate::{engine::hash::Random, machine::MAX_CORES};

    #[test]
    fn random_sets_hold_what_the_obvious_set_holds() {
        let mut random = Random::new(7);
        for most in [3, 60, 300, MAX_CORES as usize] {
            let (mut set, mut other) = (CoreSet::EMPTY, CoreSet::EMPTY);
            let mut plain = BTreeSet::new();
            for _ in 0..2000 {
                match random.below(40) {
                    0 => {
                        set.clear();
                        plain.clear();
                    }
                    1 => {
                        other.copy_from(&set);
                        std::mem::swap(&mut set, &mut other);
                    }
                    2..=8 => {
                        let core = random.below(most) as u16;
                        set.remove(core);
                        plain.remove(&core);
                    }
                    _ => {
                        let core = random.below(most) as u16;
                        assert_eq!(set.has(core), plain.contains(&core));
                        set.add(core);
                        plain.insert(core);
                    }
                }
                assert_eq!(set.is_empty(), plain.is_empty());
                assert!(set.iter().eq(plain.iter().copied()), "in order");
            }
        }
    }
}
