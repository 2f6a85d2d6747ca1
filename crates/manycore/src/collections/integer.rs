//! Keys that are integers: they run no user code, and a word can stand for them.
//!
//! Owns: the list of these types, and the order-preserving translation to words.

use std::any::{Any, TypeId};

/// Flips the sign bit, so that the words of signed numbers have the numbers' order.
const SIGN: u64 = 1 << 63;

/// Returns true if `Eq`, `Ord`, `Hash`, `Clone` and `Drop` of `K` are the compiler's.
#[inline(always)]
pub(super) fn is_integer<K: 'static>() -> bool {
    let key = TypeId::of::<K>();
    has_word::<K>() || key == TypeId::of::<u128>() || key == TypeId::of::<i128>()
}

/// Generates the questions about a key's type, for each of these types. The compiler decides all of
/// them.
macro_rules! words {
    ($($unsigned:ident)*; $($signed:ident)*) => {
        /// Returns true if keys of this type have a word.
        #[inline(always)]
        pub(super) fn has_word<K: 'static>() -> bool {
            let key = TypeId::of::<K>();
            $(key == TypeId::of::<$unsigned>() ||)* $(key == TypeId::of::<$signed>() ||)* false
        }

        /// Returns the word of a key, if its type has words. Words have the order of their keys.
        #[inline(always)]
        pub(super) fn to_word<K: 'static>(key: &K) -> Option<u64> {
            let key = key as &dyn Any;
            $(if let Some(key) = key.downcast_ref::<$unsigned>() {
                return Some(*key as u64);
            })*
            $(if let Some(key) = key.downcast_ref::<$signed>() {
                return Some(*key as i64 as u64 ^ SIGN);
            })*
            None
        }

        /// Returns the key that has this word.
        ///
        /// # Panics
        /// If keys of the type have no words.
        #[inline(always)]
        pub(super) fn from_word<K: Clone + 'static>(word: u64) -> K {
            let number = (word ^ SIGN) as i64;
            let as_key = |number: &dyn Any| number.downcast_ref::<K>().cloned();
            None$(.or_else(|| as_key(&(word as $unsigned))))*
                $(.or_else(|| as_key(&(number as $signed))))*
                .expect("keys of this type have no words")
        }
    };
}

words! { u64 u32 usize u16 u8; i64 i32 isize i16 i8 }

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// Asserts that each of these keys, in order, has a word of its own, in order.
    fn keeps_order<K: Ord + Clone + Debug + 'static>(keys: &[K]) {
        assert!(is_integer::<K>() && has_word::<K>() && keys.is_sorted());
        let words: Vec<u64> = keys.iter().map(|key| to_word(key).unwrap()).collect();
        assert!(words.is_sorted_by(|left, right| left < right), "{words:?}");
        let back: Vec<K> = words.into_iter().map(from_word).collect();
        assert_eq!(back, keys);
    }

    #[test]
    fn words_have_the_order_of_their_keys() {
        keeps_order(&[0, 1, u64::MAX / 2, u64::MAX / 2 + 1, u64::MAX]);
        keeps_order(&[0, 1, u32::MAX]);
        keeps_order(&[0, 1, usize::MAX]);
        keeps_order(&[0, 1, u16::MAX]);
        keeps_order(&[0, 1, u8::MAX]);
        keeps_order(&[i64::MIN, -2, -1, 0, 1, i64::MAX]);
        keeps_order(&[i32::MIN, -1, 0, 1, i32::MAX]);
        keeps_order(&[isize::MIN, -1, 0, 1, isize::MAX]);
        keeps_order(&[i16::MIN, -1, 0, 1, i16::MAX]);
        keeps_order(&[i8::MIN, -1, 0, 1, i8::MAX]);
    }

    #[test]
    fn other_keys_have_no_word() {
        assert!(is_integer::<u128>() && !has_word::<u128>() && to_word(&7_i128).is_none());
        assert!(!is_integer::<String>() && to_word(&String::new()).is_none());
    }
}
