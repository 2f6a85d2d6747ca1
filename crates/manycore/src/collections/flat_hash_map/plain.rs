//! [`Plain`], the trait of types that are copied by their bits, and the bits as words.

use crate::sync::{AtomicU64, Ordering};
use std::mem::offset_of;
use std::num::NonZero;

/// Bytes of the largest key, and of the largest value.
const MAX_BYTES: usize = 32;
/// Words of the largest key or value.
const MAX_WORDS: usize = MAX_BYTES / 8;

/// A type that can be copied by its bits: the keys and values of a
/// [`FlatHashMap`](super::FlatHashMap).
///
/// Such a map copies keys and values in and out by words, and compares keys by their bits. The
/// library implements this trait for integers, `bool`, `char`, floating-point numbers, non-zero
/// integers and `Option`s of them, `()`, and arrays and tuples of such types. With feature
/// `derive`, `#[derive(Plain)]` implements it for a struct whose fields are plain, and for an enum
/// without fields. A type of more than 32 bytes does not compile as a key or value.
///
#[cfg_attr(feature = "derive", doc = "```")]
#[cfg_attr(not(feature = "derive"), doc = "```ignore")]
/// use manycore::collections::{FlatHashMap, Plain};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash, Plain)]
/// struct Block {
///     device: u16,
///     number: u64,
/// }
///
/// let cached = FlatHashMap::new();
/// cached.insert(Block { device: 7, number: 0 }, 4096_u64);
/// assert_eq!(cached.get(&Block { device: 7, number: 0 }), Some(4096));
/// ```
///
/// A key must also satisfy this: equal values (`Eq`) have the same bits and the same hash, and
/// unequal values have different bits. Otherwise the map may have a key twice, or not find it.
///
/// # Safety
/// - Every byte of every value is initialized. There is no `MaybeUninit` and no padding, as in a
///   `repr(C)` struct whose fields are `Plain` and leave no gap. (A struct with gaps needs the
///   derive macro, which leaves out the gaps.)
/// - No value contains a pointer or a reference: a copy by words does not preserve a pointer's
///   provenance.
///
/// A type may have invalid bit patterns: the map makes a value only of bits that were a value.
///
/// ```
/// use manycore::collections::Plain;
///
/// #[derive(Clone, Copy, PartialEq, Eq, Hash)]
/// #[repr(C)]
/// struct Block {
///     file: u32,
///     number: u32,
/// }
/// // SAFETY: two words of four bytes, without a gap or a pointer.
/// unsafe impl Plain for Block {}
/// ```
///
/// Pointers are not plain. The derive macro rejects types with pointers, and enums with fields:
/// ```compile_fail
/// let map = manycore::collections::FlatHashMap::new();
/// map.insert(1, "text");
/// ```
/// ```compile_fail
/// #[derive(Clone, Copy, manycore::collections::Plain)]
/// struct Name(&'static str);
/// ```
/// ```compile_fail
/// #[derive(Clone, Copy, manycore::collections::Plain)]
/// enum Shape {
///     Square(u32),
///     Circle(u64),
/// }
/// ```
/// A type that is too large is rejected, too:
/// ```compile_fail
/// let map = manycore::collections::FlatHashMap::new();
/// map.insert(1, [0_u64; 5]);
/// ```
pub unsafe trait Plain: Copy + Send + 'static {
    /// Writes the value's bytes to `to`, where all bytes are zero, except the gaps, which stay
    /// zero. A part of the derive macro, and not to be implemented by hand.
    ///
    /// # Safety
    /// `to` is valid for writing as many bytes as the value has.
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn __write(value: &Self, to: *mut u8) {
        let from = std::ptr::from_ref(value).cast::<u8>();
        // SAFETY: every byte of the value is initialized (`Plain`), and the caller has room for as
        // many. The destination does not overlap the value, which is borrowed.
        unsafe { to.copy_from_nonoverlapping(from, size_of::<Self>()) };
    }
}

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

// SAFETY: the elements are plain and lie side by side. Each leaves out its own gaps.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    #[inline(always)]
    unsafe fn __write(value: &Self, to: *mut u8) {
        for (index, value) in value.iter().enumerate() {
            // SAFETY: the element's offset in an array; the caller has room for the whole array.
            unsafe { T::__write(value, to.add(index * size_of::<T>())) };
        }
    }
}

macro_rules! tuples {
    ($($($field:ident $index:tt)+,)*) => {$(
        // SAFETY: the fields are plain, and nothing between them is written.
        unsafe impl<$($field: Plain),*> Plain for ($($field,)*) {
            #[inline(always)]
            unsafe fn __write(value: &Self, to: *mut u8) {
                // SAFETY: each field's offset in the tuple; the caller has room for the whole
                // tuple.
                unsafe { $($field::__write(&value.$index, to.add(offset_of!(Self, $index)));)* }
            }
        }
    )*};
}
tuples! {
    A 0,
    A 0 B 1,
    A 0 B 1 C 2,
    A 0 B 1 C 2 D 3,
    A 0 B 1 C 2 D 3 E 4,
    A 0 B 1 C 2 D 3 E 4 F 5,
    A 0 B 1 C 2 D 3 E 4 F 5 G 6,
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7,
}

/// Returns the number of words that hold a `T`.
pub(super) const fn words_of<T>() -> usize {
    assert!(size_of::<T>() <= MAX_BYTES, "manycore: a FlatHashMap's type has more than 32 bytes");
    size_of::<T>().div_ceil(8)
}

/// A value's bits, with zeros in its gaps and behind it. If they were read while they changed, they
/// may be no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bits([u64; MAX_WORDS]);

impl Bits {
    #[inline(always)]
    pub(super) fn of<T: Plain>(value: &T) -> Self {
        const { assert!(words_of::<T>() <= MAX_WORDS) };
        let mut bits = [0_u64; MAX_WORDS];
        // SAFETY: the array has as many bytes (asserted above).
        unsafe { T::__write(value, bits.as_mut_ptr().cast()) };
        Self(bits)
    }

    /// Makes the value.
    ///
    /// # Safety
    /// The bits are those of a `T`.
    #[inline(always)]
    pub(super) unsafe fn value<T: Plain>(self) -> T {
        const { assert!(words_of::<T>() <= MAX_WORDS) };
        // SAFETY: the array has as many bytes (asserted above). They are those of a `T` (# Safety),
        // which may be copied and has no pointer (`Plain`). Its gaps may have any contents.
        unsafe { self.0.as_ptr().cast::<T>().read_unaligned() }
    }

    /// Reads a `T`'s words, which another thread may be writing.
    #[inline(always)]
    pub(super) fn load<'w, T>(word: impl Fn(usize) -> &'w AtomicU64) -> Self {
        let mut bits = [0; MAX_WORDS];
        for (index, bits) in bits.iter_mut().enumerate().take(const { words_of::<T>() }) {
            // ORDER: Relaxed; used only if the version is unchanged (flat_hash_map.F2).
            *bits = word(index).load(Ordering::Relaxed);
        }
        Self(bits)
    }

    /// Writes a `T`'s words.
    #[inline(always)]
    pub(super) fn store<'w, T>(self, word: impl Fn(usize) -> &'w AtomicU64) {
        for (index, bits) in self.0.iter().enumerate().take(const { words_of::<T>() }) {
            // ORDER: Relaxed; after the fence of `Bucket::lock_at`, and before the Release of
            // `Locked::drop` (flat_hash_map.F2).
            word(index).store(*bits, Ordering::Relaxed);
        }
    }

    /// Returns true if a `T`'s words equal these bits.
    #[inline(always)]
    pub(super) fn are_at<'w, T>(self, word: impl Fn(usize) -> &'w AtomicU64) -> bool {
        let words = self.0.iter().enumerate().take(const { words_of::<T>() });
        // ORDER: Relaxed; as in `load`.
        words.fold(0, |differ, (index, bits)| differ | (word(index).load(Ordering::Relaxed) ^ bits))
            == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn arrays_of_tuples_leave_gaps_zero() {
        type Pairs = [(u8, u32); 2];
        let pairs: Pairs = [(1, 0x0202_0202), (3, 0x0404_0404)];
        let mut value = MaybeUninit::<Pairs>::uninit();
        let place = value.as_mut_ptr();
        let mut expected = [0_u8; 32];
        // SAFETY: the bytes are those of the array, and then each field is written.
        let value = unsafe {
            place.write_bytes(0xff, 1);
            for (index, pair) in pairs.iter().enumerate() {
                (&raw mut (*place)[index].0).write(pair.0);
                (&raw mut (*place)[index].1).write(pair.1);
                let at = index * size_of::<(u8, u32)>();
                expected[at + offset_of!((u8, u32), 0)] = pair.0;
                let number = &mut expected[at + offset_of!((u8, u32), 1)..][..4];
                number.copy_from_slice(&pair.1.to_ne_bytes());
            }
            value.assume_init_ref()
        };
        let bits = Bits::of(value);
        let bytes: Vec<u8> = bits.0.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes, expected);
        // SAFETY: these are the bits of such a value.
        assert_eq!(unsafe { bits.value::<Pairs>() }, pairs);
    }
}
