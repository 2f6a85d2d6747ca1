//! [`Plain`]: types whose values are their bits, and the bits as words.

use crate::sync::{AtomicU64, Ordering};
use std::num::NonZero;

/// Bytes of the largest key, and of the largest value.
const MAX_BYTES: usize = 32;
/// Words of it.
const MAX_WORDS: usize = MAX_BYTES / 8;

/// A type whose values are their bits: what a [`FlatHashMap`](super::FlatHashMap) holds.
///
/// Such a map copies keys and values in and out by words, and compares keys by their bits. The
/// library implements it for integers, `bool`, `char`, floating-point numbers, non-zero integers
/// and `Option`s of them, `()`, and arrays of such types. A type of more than 32 bytes does not
/// compile as a key or value.
///
/// # Safety
/// - Every byte of every value is initialized: there is no padding, as in a `repr(C)` struct whose
///   fields are `Plain` and leave no gap, and no `MaybeUninit`.
/// - No value has a pointer or a reference in it: a copy made by words does not keep what a pointer
///   is allowed to access.
///
/// Any type is sound as for its valid bits: only bits that were a value are made one again. Of a
/// key, the map expects more, without which it may have a key twice or not find it: values that are
/// equal (`Eq`) have the same bits and the same hash, and others have other bits.
///
/// ```
/// use manycore::collections::{FlatHashMap, Plain};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// #[repr(C)]
/// struct Block {
///     file: u32,
///     number: u32,
/// }
/// // SAFETY: two words of four bytes, without a gap or a pointer.
/// unsafe impl Plain for Block {}
///
/// let cached = FlatHashMap::new();
/// cached.insert(Block { file: 7, number: 0 }, 4096_u64);
/// assert_eq!(cached.get(&Block { file: 7, number: 0 }), Some(4096));
/// ```
///
/// A pointer is not plain:
/// ```compile_fail
/// let map = manycore::collections::FlatHashMap::new();
/// map.insert(1, "text");
/// ```
/// Nor is what does not fit:
/// ```compile_fail
/// let map = manycore::collections::FlatHashMap::new();
/// map.insert(1, [0_u64; 5]);
/// ```
pub unsafe trait Plain: Copy + Send + 'static {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        // SAFETY: a primitive type: every byte is part of the number, and it is no pointer.
        unsafe impl Plain for $type {}
    )*};
}
plain! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 bool char }

// SAFETY: no bytes.
unsafe impl Plain for () {}

macro_rules! non_zero {
    ($($type:ty)*) => {$(
        // SAFETY: laid out as the integer, which is plain.
        unsafe impl Plain for NonZero<$type> {}
        // SAFETY: laid out as the integer (zero is `None`), which is plain.
        unsafe impl Plain for Option<NonZero<$type>> {}
    )*};
}
non_zero! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

// SAFETY: elements follow each other without a gap, and are plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Words that hold a `T`.
pub(super) const fn words_of<T>() -> usize {
    assert!(size_of::<T>() <= MAX_BYTES, "manycore: a FlatHashMap's type has more than 32 bytes");
    size_of::<T>().div_ceil(8)
}

/// A value's bits; zeros behind them. Perhaps no value's: bits that were read while they changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bits([u64; MAX_WORDS]);

impl Bits {
    #[inline(always)]
    pub(super) fn of<T: Plain>(value: &T) -> Self {
        const { assert!(words_of::<T>() <= MAX_WORDS) };
        let mut bits = [0_u64; MAX_WORDS];
        // SAFETY: every byte of the value is initialized (`Plain`), and there are as many here
        // (asserted above).
        unsafe {
            std::ptr::from_ref(value)
                .cast::<u8>()
                .copy_to_nonoverlapping(bits.as_mut_ptr().cast::<u8>(), size_of::<T>());
        }
        Self(bits)
    }

    /// The value.
    ///
    /// # Safety
    /// The bits are those of a `T`.
    #[inline(always)]
    pub(super) unsafe fn value<T: Plain>(self) -> T {
        const { assert!(words_of::<T>() <= MAX_WORDS) };
        // SAFETY: as many bytes are here (asserted above), and they are those of a `T` (# Safety),
        // which may be copied and has no pointer (`Plain`).
        unsafe { self.0.as_ptr().cast::<T>().read_unaligned() }
    }

    /// Reads a `T`'s words, which another thread may be writing.
    #[inline(always)]
    pub(super) fn load<'w, T>(word: impl Fn(usize) -> &'w AtomicU64) -> Self {
        let mut bits = [0; MAX_WORDS];
        for (index, bits) in bits.iter_mut().enumerate().take(const { words_of::<T>() }) {
            // ORDER: Relaxed; what was read counts only if the version says so (flat_hash_map.F2).
            *bits = word(index).load(Ordering::Relaxed);
        }
        Self(bits)
    }

    /// Writes a `T`'s words.
    #[inline(always)]
    pub(super) fn store<'w, T>(self, word: impl Fn(usize) -> &'w AtomicU64) {
        for (index, bits) in self.0.iter().enumerate().take(const { words_of::<T>() }) {
            // ORDER: Relaxed; behind the fence of `Bucket::lock` and before the Release of `Locked`
            // (flat_hash_map.F2).
            word(index).store(*bits, Ordering::Relaxed);
        }
    }

    /// Whether a `T`'s words are these.
    #[inline(always)]
    pub(super) fn are_at<'w, T>(self, word: impl Fn(usize) -> &'w AtomicU64) -> bool {
        let words = self.0.iter().enumerate().take(const { words_of::<T>() });
        // ORDER: Relaxed; as in `load`.
        words.fold(0, |differ, (index, bits)| differ | (word(index).load(Ordering::Relaxed) ^ bits))
            == 0
    }
}
