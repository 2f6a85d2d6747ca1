//! Compression of sub-buffers for a small file.
//!
//! The packed form has the first bytes of all words, then all second bytes, and so on. Most records
//! of a sub-buffer differ in few bytes, so this gives long rows of nearly equal bytes. LZ4 then
//! compresses them.

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::format::packed::{FILLER, area};

/// Buffers that are reused from one sub-buffer to the next.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    planes: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    /// Returns the packed words, filled up to whole words of the file, and the number of packed
    /// bytes. Returns `None` if packing does not make them shorter.
    pub(crate) fn pack(&mut self, words: &[u64]) -> Option<(&[u8], usize)> {
        self.planes.clear();
        for plane in 0..8 {
            self.planes.extend(words.iter().map(|word| (word >> (8 * plane)) as u8));
        }
        self.packed.resize(get_maximum_output_size(self.planes.len()), 0);
        let length = compress_into(&self.planes, &mut self.packed).ok()?;
        if length >= self.planes.len() {
            return None;
        }
        self.packed.truncate(length);
        self.packed.resize(area(words.len(), length).next_multiple_of(8), FILLER);
        Some((&self.packed, length))
    }
}

/// Unpacks `count` words from the bytes that [`Packer::pack`] returned and appends them. Returns
/// false if the bytes are damaged.
pub(crate) fn unpack(packed: &[u8], count: usize, to: &mut Vec<u64>) -> bool {
    let mut planes = vec![0; 8 * count];
    if decompress_into(packed, &mut planes).ok() != Some(planes.len()) {
        return false;
    }
    to.extend((0..count).map(|at| {
        (0..8).fold(0, |word, plane| word | u64::from(planes[plane * count + at]) << (8 * plane))
    }));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_when_unpacked_and_damage_is_no_panic() {
        let words: Vec<u64> = (0..1000_u64).map(|n| (n * 0x1_0000_0101) ^ (17 << 40)).collect();
        let mut packer = Packer::default();
        let (packed, length) = packer.pack(&words).expect("shorter");
        let packed = packed[..length].to_vec();
        assert!(packed.len() < 8 * words.len() / 2, "{} bytes", packed.len());
        let mut again = vec![7];
        assert!(unpack(&packed, words.len(), &mut again));
        assert_eq!((again[0], &again[1..]), (7, &words[..]));
        for at in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x55;
            let mut out = Vec::new();
            assert!(!unpack(&damaged, words.len(), &mut out) || out.len() == words.len());
            assert!(!unpack(&packed[..at], words.len(), &mut out));
        }
        let random = |n: u64| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(n as u32);
        assert_eq!(packer.pack(&(0..100).map(random).collect::<Vec<_>>()), None);
    }

    /// LZ4 alone packs 255 bytes into one, which would be about 1,000 bytes here.
    #[test]
    fn equal_words_take_a_sixteenth_of_their_bytes() {
        let mut packer = Packer::default();
        let (packed, length) = packer.pack(&[7; 32 << 10]).expect("shorter");
        assert_eq!(packed.len(), 8 * (32 << 10) / 16);
        assert!(length < 2000, "{length} bytes");
        assert!(packed[length..].iter().all(|byte| *byte == FILLER));
    }
}
