//! Keys that are integers, and the word that stands for one in a place.
//!
//! Owns: which types these are, and the order-preserving translation.

use std::any::{Any, TypeId};

/// What makes words of signed numbers that have the numbers' order.
const SIGN: u64 = 1 << 63;

/// Whether `Ord`, `Clone` and `Drop` are the compiler's.
pub(super) fn is_integer<K: 'static>() -> bool {
    let key = TypeId::of::<K>();
    has_word::<K>() || key == TypeId::of::<u128>() || key == TypeId::of::<i128>()
}

/// Whether keys of this type have a word. (All of this is decided when it is compiled.)
#[inline(always)]
pub(super) fn has_word<K: 'static>() -> bool {
    let key = TypeId::of::<K>();
    key == TypeId::of::<u64>()
        || key == TypeId::of::<u32>()
        || key == TypeId::of::<usize>()
        || key == TypeId::of::<i64>()
        || key == TypeId::of::<i32>()
        || key == TypeId::of::<isize>()
}

/// A key's word, if its type has words: in the order of the keys.
#[inline(always)]
pub(super) fn to_word<K: 'static>(key: &K) -> Option<u64> {
    let key = key as &dyn Any;
    let unsigned = || {
        let long = key.downcast_ref::<u64>().copied();
        let short = || key.downcast_ref::<u32>().copied().map(u64::from);
        long.or_else(short).or_else(|| key.downcast_ref::<usize>().map(|key| *key as u64))
    };
    let signed = || {
        let long = key.downcast_ref::<i64>().copied();
        let short = || key.downcast_ref::<i32>().copied().map(i64::from);
        long.or_else(short).or_else(|| key.downcast_ref::<isize>().map(|key| *key as i64))
    };
    unsigned().or_else(|| signed().map(|key| key as u64 ^ SIGN))
}

/// The key that has this word.
///
/// # Panics
/// If keys of the type have no words.
#[inline(always)]
pub(super) fn from_word<K: Clone + 'static>(word: u64) -> K {
    let number = (word ^ SIGN) as i64;
    let as_key = |number: &dyn Any| number.downcast_ref::<K>().cloned();
    as_key(&word)
        .or_else(|| as_key(&(word as u32)))
        .or_else(|| as_key(&(word as usize)))
        .or_else(|| as_key(&number))
        .or_else(|| as_key(&(number as i32)))
        .or_else(|| as_key(&(number as isize)))
        .expect("keys of this type have no words")
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::fmt::Debug;

    /// Each of these, in order, has a word of its own, in order.
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
        keeps_order(&[i64::MIN, -2, -1, 0, 1, i64::MAX]);
        keeps_order(&[i32::MIN, -1, 0, 1, i32::MAX]);
        keeps_order(&[isize::MIN, -1, 0, 1, isize::MAX]);
    }

    #[test]
    fn other_keys_have_no_word() {
        assert!(is_integer::<u128>() && !has_word::<u128>() && to_word(&7_i128).is_none());
        assert!(!is_integer::<String>() && to_word(&String::new()).is_none());
    }
}
