//! A histogram of the bytes of items by the time since their last use (restart.W5).

/// Classes of ages: eight for each power of two of seconds.
pub(super) const CLASSES: usize = 240;

/// Bytes of items by the time since their last use.
#[derive(Debug, Clone)]
pub(super) struct Ages(Box<[u64; CLASSES]>);

/// Returns the class of an age in seconds. Older ages have larger classes.
fn class(seconds: u32) -> usize {
    let power = (u32::BITS - seconds.leading_zeros()).saturating_sub(4);
    ((power << 3) + (seconds >> power)) as usize
}

impl Default for Ages {
    fn default() -> Self {
        Self(Box::new([0; CLASSES]))
    }
}

impl Ages {
    /// Adds an item.
    pub(super) fn note(&mut self, seconds: u32, bytes: usize) {
        let class = class(seconds);
        debug_assert!(class < CLASSES, "restart.W5: an age of {seconds} s has no class");
        self.0[class] += bytes as u64;
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|bytes| out.extend_from_slice(&bytes.to_le_bytes()));
    }

    pub(super) fn decode(mut next: impl FnMut() -> u64) -> Self {
        Self(Box::new(std::array::from_fn(|_| next())))
    }

    /// Chooses the items to take if there is room for `room` bytes.
    pub(super) fn youngest(&self, room: u64) -> Youngest {
        let mut left = room;
        for (class, bytes) in self.0.iter().enumerate() {
            match left.checked_sub(*bytes) {
                Some(less) => left = less,
                None => return Youngest { class, left },
            }
        }
        Youngest { class: CLASSES, left }
    }
}

/// A choice of the most recently used items.
#[derive(Debug)]
pub(super) struct Youngest {
    /// All items of the classes before this class are taken.
    class: usize,
    /// Bytes of this class that may still be taken.
    left: u64,
}

impl Youngest {
    /// Returns true if this item is to be taken.
    pub(super) fn takes(&mut self, seconds: u32, bytes: usize) -> bool {
        let (own, bytes) = (class(seconds), bytes as u64);
        if own != self.class {
            return own < self.class;
        }
        let is_taken = bytes <= self.left;
        if is_taken {
            self.left -= bytes;
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_with_ages_and_are_an_eighth_wide() {
        let ages = (0..5000).chain((5..32).map(|power| (1 << power) - 1)).chain([u32::MAX]);
        let mut last = (0, 0);
        for age in ages {
            let own = class(age);
            assert!(own < CLASSES);
            if age >= last.0 {
                assert!(own >= last.1, "{age}");
                assert!(own > last.1 || age - last.0 <= age / 8, "{age} and {last:?}");
                last = (age, own);
            }
        }
        assert_eq!(class(u32::MAX), CLASSES - 1);
    }

    #[test]
    fn the_youngest_are_taken_as_far_as_they_fit() {
        let mut ages = Ages::default();
        for age in 0..10 {
            ages.note(age, 100);
        }
        let mut youngest = ages.youngest(350);
        let taken: Vec<u32> = (0..10).rev().filter(|age| youngest.takes(*age, 50)).collect();
        assert_eq!(taken, [3, 2, 1, 0]);
        assert!(!youngest.takes(3, 50) && youngest.takes(2, 50));
        let mut all = ages.youngest(1000);
        assert!((0..10).all(|age| all.takes(age, 100)) && ages.youngest(0).class == 0);
    }
}
