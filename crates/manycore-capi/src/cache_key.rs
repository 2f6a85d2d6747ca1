//! The keys of `mc_cache`: bytes that are compared and hashed with few instructions.

use std::hash::{Hash, Hasher};
use std::ptr;

/// The bytes by which an entry is found.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Key([u8]);

impl Key {
    /// Returns these bytes as a key.
    #[inline(always)]
    pub(crate) fn of(bytes: &[u8]) -> &Self {
        // SAFETY: a key is nothing but its bytes (`repr(transparent)`), and they stay borrowed.
        unsafe { &*(ptr::from_ref(bytes) as *const Self) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Copies the bytes.
impl From<&Key> for Box<Key> {
    fn from(key: &Key) -> Self {
        let bytes: Box<[u8]> = key.0.into();
        // SAFETY: the box has the same layout (`repr(transparent)`).
        unsafe { Self::from_raw(Box::into_raw(bytes) as *mut Key) }
    }
}

/// Hashes without the length, which a slice writes first. A key is hashed alone, and the hash
/// function tells lengths apart.
impl Hash for Key {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// Returns true if the first and the last `N` bytes are equal, which are all of up to `2 * N`.
#[inline(always)]
fn same_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
    one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
}

/// Compares 4 to 32 bytes without a function call. Up to two words are loaded as single words:
/// after a program has just written them as words, one load of both would have to wait.
impl PartialEq for Key {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        one.len() == other.len()
            && match one.len() {
                17..=32 => same_ends::<16>(one, other),
                8..=16 => same_ends::<8>(one, other),
                4..8 => same_ends::<4>(one, other),
                _ => one == other,
            }
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::quality::RandomState;
    use std::hash::BuildHasher;

    #[test]
    fn keys_of_any_length_differ_by_each_byte() {
        let hasher = RandomState::default();
        for length in 0..=70_usize {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (key, same) = (Key::of(&bytes), Box::<Key>::from(Key::of(&bytes)));
            assert!(*key == *same && same.bytes() == bytes, "{length}");
            assert_eq!(hasher.hash_one(key), hasher.hash_one(&same), "{length}");
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(*key != *Key::of(&other), "{at} of {length}");
                assert_ne!(hasher.hash_one(key), hasher.hash_one(Key::of(&other)));
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert!(*key != *Key::of(&longer), "{length}");
            assert_ne!(hasher.hash_one(key), hasher.hash_one(Key::of(&longer)));
        }
    }

    #[test]
    fn zeros_of_different_lengths_have_different_hashes() {
        let (hasher, zeros) = (RandomState::default(), [0; 300]);
        let mut hashes: Vec<u64> =
            (0..=300).map(|length| hasher.hash_one(Key::of(&zeros[..length]))).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 301);
    }
}
