//! Feature `derive`: plain structs and enums as keys and values of a flat map.

use manycore::collections::{FlatHashMap, Plain};
use std::hash::Hash;
use std::mem::MaybeUninit;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Plain)]
struct Gaps {
    first: u8,
    second: u64,
    third: (u16, u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Plain)]
#[repr(C)]
struct Generic<T: Eq, const N: usize>(u8, [T; N], Kind)
where
    T: Hash;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Plain)]
enum Kind {
    One,
    Two = 7,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Plain)]
#[repr(C, packed)]
struct Packed {
    r#type: u8,
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Plain)]
#[repr(align(16))]
struct Aligned(u8);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Plain)]
struct Unit;

/// Keys and values come back, though what is between their fields was something else each time.
fn come_back<T: Plain + Eq + Hash + std::fmt::Debug>(of: impl Fn(u8) -> T, write: fn(*mut T, T)) {
    let map = FlatHashMap::new();
    let with = |fill: u8, n: u8, f: &dyn Fn(&T)| {
        let mut place = MaybeUninit::<T>::uninit();
        // SAFETY: the place is written as a whole, then each field of it.
        unsafe {
            place.as_mut_ptr().write_bytes(fill, 1);
            write(place.as_mut_ptr(), of(n));
            f(place.assume_init_ref());
        }
    };
    for n in 0..100 {
        with(n, n, &|key| assert_eq!(map.insert(*key, *key), None));
        with(!n, n, &|key| assert_eq!(map.insert(*key, *key), Some(*key)));
    }
    for n in 0..100 {
        with(n ^ 0x55, n, &|key| assert_eq!(map.get(key), Some(*key)));
        with(n ^ 0x55, n, &|key| assert_eq!(map.compare_exchange(key, *key, *key), Ok(*key)));
    }
    assert_eq!(map.len(), 100);
}

/// Writes the fields and nothing between them.
macro_rules! fields {
    ($($field:tt)*) => {
        |place, value| {
            // SAFETY: each field lies in the place.
            unsafe { $((&raw mut (*place).$field).write_unaligned(value.$field);)* }
        }
    };
}

#[test]
fn derived_types_are_keys_and_values_whatever_is_between_their_fields() {
    let kind = |n: u8| if n % 2 == 0 { Kind::One } else { Kind::Two };
    come_back(
        |n| Gaps { first: n, second: !u64::from(n), third: (!u16::from(n), n) },
        fields!(first second third),
    );
    come_back(|n| Generic(n, [u32::from(n); 3], kind(n)), fields!(0 1 2));
    come_back(|n| Generic(n, [(n, u64::from(n))], kind(n)), fields!(0 1 2));
    come_back(|n| Packed { r#type: n, number: u64::from(n) << 50 }, fields!(r#type number));
    come_back(Aligned, fields!(0));
    let map = FlatHashMap::from([(Kind::One, Unit)]);
    assert_eq!((map.get(&Kind::One), map.get(&Kind::Two)), (Some(Unit), None));
}
