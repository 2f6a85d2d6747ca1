//! Items alone: every part that is put in is read back unchanged.

use super::*;
use crate::protocol::Mode;
use crate::store::clock::stamp;
use crate::store::{Limits, Store, StoreCondition};

#[test]
fn parts_come_back_at_every_length() {
    let memory = Memory::new(1 << 20, 1);
    for length in [0, 1, 32, 33, 34, 35, 37, 38, 40, 41, 42, 44, 45, 46, 1000] {
        for (cas, flags) in [(None, 0), (None, 9), (Some(7), 0), (Some(7), u32::MAX)] {
            let value: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (front, back) = value.split_at(length / 2);
            for key in [&b"key"[..], &[b'k'; 41], &[b'k'; 250]] {
                let new_item =
                    NewItem { value: [front, back], cas, flags, ..NewItem::new(key, &[]) };
                let item = new_item.make(&memory, 5);
                for item in [&item, &item.copy(&memory)] {
                    assert_eq!((item.key(), &*item.value()), (key, &value[..]));
                    assert_eq!(item.value_len(), length);
                    assert_eq!((item.cas(), item.stamp()), (cas.unwrap_or(5), 5));
                    assert_eq!(item.flags(), flags);
                    assert_eq!(item.weight(), new_item.weight());
                    assert_eq!(item.tail().map_or(0, Tail::vacated), 0);
                }
            }
        }
    }
    assert_eq!(size_of::<Item>(), 64);
}

/// A reference to an item does not cover its region's header, which is read all the same.
#[test]
fn item_in_a_node_tells_whether_it_is_vacated() {
    let store = Store::new(Limits { memory: 1 << 20, ..Limits::default() }, 1);
    let mut handle = store.handle(0);
    for length in [0, 1000] {
        handle.put(&NewItem::new(b"a", &vec![1; length]), StoreCondition::plain(Mode::Set));
        assert!(!handle.peek(b"a").unwrap().key().is_to_move());
    }
}

#[test]
fn only_one_wins() {
    let memory = Memory::new(1 << 20, 1);
    let item = NewItem::new(b"a", b"").make(&memory, stamp(1_000_000_000, 3));
    assert_eq!((item.win(), item.win(), item.is_sent()), (true, false, true));
    assert!(!item.was_fetched());
    assert_eq!(item.used(), 1);
    item.touch(3);
    assert!(item.was_fetched() && item.used() == 3 && item.is_sent());
}

#[test]
fn uses_are_exact_for_two_hours_and_to_a_4096th_later() {
    let mut last = 0;
    for age in (0..20_000).chain((0..27).map(|power| 3 << power)).chain([u32::MAX]) {
        let known = unrounded(rounded(age));
        let least = if age < 1 << 13 { age } else { age.min((1 << 27) - 1) / 4096 * 4095 };
        assert!((least..=age).contains(&known), "{known} for {age}");
        assert!(age < last || rounded(age) >= rounded(last), "{age}");
        last = age;
    }
    let memory = Memory::new(1 << 20, 1);
    let item = NewItem::new(b"a", b"").make(&memory, stamp(5_000_000_000, 0));
    for second in [5, 6, 5 + (1 << 13) - 1, 4] {
        item.touch(second);
        assert_eq!(item.used(), second.max(5));
    }
}
