//! The map's own methods, the map by value, and the set: compared with `std`'s, in every state of
//! growth. Values count their owners, which tells what was dropped.

use crate::common::env;
use manycore::collections::{FlatHashMap, HashMap, HashSet};
use manycore::section::Domain;
use std::collections::{BTreeSet, HashMap as Sequential};
use std::hash::{Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// Checks maps of every size up to 300; some of them have just begun to grow.
fn in_every_state(mut check: impl FnMut(u32, HashMap<u32, Arc<u32>>, &Arc<u32>)) {
    for size in 0..300 {
        let (map, value) = (HashMap::new(), Arc::new(7));
        (0..size).for_each(|key| assert!(map.insert(key, Arc::clone(&value))));
        assert_eq!(Arc::strong_count(&value), size as usize + 1);
        check(size, map, &value);
        assert_eq!(Arc::strong_count(&value), 1, "{size} entries: not dropped, or twice");
    }
}

#[test]
fn own_methods_answer_as_the_sequential_map() {
    let (map, mut model) = (HashMap::<u32, u32>::new(), Sequential::<u32, u32>::new());
    for n in 0..4_000_u32 {
        let (key, value) = (n * 7_919 % 101, n);
        // Not in turns: then one call would find its key there each time, and another never.
        match (n.wrapping_mul(0x9e37_79b9) >> 16) % 9 {
            0 | 1 => assert_eq!(map.insert(key, value), model.insert(key, value).is_none()),
            2 => assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            3 => assert_eq!(map.remove_cloned(&key), model.remove(&key)),
            4 => assert_eq!(
                map.get_or_insert_with(key, || value),
                *model.entry(key).or_insert(value)
            ),
            5 => {
                let had = model.get_mut(&key).map(|own| *own += 1).is_some();
                assert_eq!(map.update(&key, |own| own + 1), had);
            }
            6 => {
                let even = model.get(&key).is_some_and(|own| own % 2 == 0);
                assert_eq!(map.remove_if(&key, |_, own| own % 2 == 0), even);
                if even {
                    model.remove(&key);
                }
            }
            7 => {
                let free = !model.contains_key(&key);
                let expected = if free { Ok(()) } else { Err((key, value)) };
                assert_eq!(map.try_insert(key, value), expected);
                model.entry(key).or_insert(value);
            }
            _ => {
                let own = *map.enter().update_or_insert_with(key, |own| own + 2, || 1);
                assert_eq!(own, *model.entry(key).and_modify(|own| *own += 2).or_insert(1));
            }
        }
        assert_eq!(map.contains_key(&key), model.contains_key(&key));
        assert_eq!(map.get_cloned(&key), model.get(&key).copied());
        assert_eq!(map.read(&key, |own| own + 1), model.get(&key).map(|own| own + 1));
        assert_eq!(map.len(), model.len());
    }
    assert!(
        map.compute(1, |_| Some(5)) && !map.compute(1, |own| own.filter(|n| **n == 0).copied())
    );
    model.remove(&1);
    let mut sum = 0_u64;
    map.for_each(|_, own| sum += u64::from(*own));
    assert_eq!(sum, model.values().map(|own| u64::from(*own)).sum::<u64>());
    map.retain(|key, _| key % 2 == 0);
    model.retain(|key, _| key % 2 == 0);
    assert_eq!(map.clone().into_iter().collect::<Sequential<_, _>>(), model);
    map.clear();
    assert!(map.is_empty());
}

#[test]
fn map_by_value_yields_each_entry_once_and_drops_the_rest() {
    in_every_state(|size, map, value| {
        let mut entries = map.into_iter();
        assert_eq!(entries.len(), size as usize);
        let taken: BTreeSet<u32> = entries.by_ref().take(size as usize / 2).map(|e| e.0).collect();
        assert_eq!((taken.len(), entries.len()), (size as usize / 2, size.div_ceil(2) as usize));
        assert_eq!(Arc::strong_count(value), size.div_ceil(2) as usize + 1);
        if size % 2 == 0 {
            let rest: BTreeSet<u32> = entries.map(|entry| entry.0).collect();
            assert!(taken.is_disjoint(&rest) && taken.union(&rest).copied().eq(0..size));
        }
    });
}

#[test]
fn map_shrinks_to_what_it_holds_and_loses_nothing() {
    in_every_state(|size, map, value| {
        let before = map.capacity();
        map.retain(|key, _| key % 8 == 0);
        map.shrink_to_fit();
        let left = size.div_ceil(8) as usize;
        assert_eq!((map.len(), map.enter().iter().count()), (left, left));
        assert!(map.capacity() <= before && map.capacity() >= left);
        assert!(map.capacity() <= (6 * left).max(24), "{left}: {}", map.capacity());
        (0..size).for_each(|key| assert_eq!(map.contains_key(&key), key % 8 == 0));
        (0..2 * size).for_each(|key| _ = map.insert(key, Arc::clone(value)));
        assert_eq!(map.len(), 2 * size as usize);
    });
}

#[test]
fn reserved_map_does_not_grow_and_threads_may_use_it_in_between() {
    let map = HashMap::<u32, u32>::new();
    thread::scope(|scope| {
        for part in 0..2 {
            let map = &map;
            scope.spawn(move || (0..5_000).for_each(|n| _ = map.insert(2 * n + part, n)));
            scope.spawn(move || (0..20).for_each(|n| map.reserve(n * 1_000)));
        }
    });
    let capacity = map.capacity();
    assert_eq!((map.len(), map.enter().keys().count()), (10_000, 10_000));
    assert!(capacity >= 19_000, "{capacity}");
    map.reserve(0);
    map.reserve(capacity - map.len());
    assert_eq!(map.capacity(), capacity);
}

/// The length and capacity of a map, and what becomes of its table when most entries are removed.
#[test]
fn map_that_lost_most_of_its_entries_shrinks_within_its_removals() {
    let most = if cfg!(miri) { 300 } else { 50_000 };
    let map: HashMap<u32, u32> = (0..most).map(|key| (key, key)).collect();
    let full = map.capacity();
    for key in 10..most {
        assert!(map.remove(&key));
        assert_eq!(map.len(), (most - key + 9) as usize);
    }
    assert!(map.capacity() < 1_000 && map.capacity() * 2 <= full, "{} of {full}", map.capacity());
    assert!((0..10).all(|key| map.get_cloned(&key) == Some(key)));
    (0..most).for_each(|key| _ = map.insert(key, key));
    map.clear();
    assert!(map.is_empty() && map.capacity() < 1_000, "{}", map.capacity());
    // A view helps, too, in whichever table it has begun.
    let view = map.enter();
    (0..most).for_each(|key| _ = view.insert(key, key));
    for key in 10..most {
        assert!(view.remove(&key).is_some());
    }
    assert!(map.capacity() < 1_000, "{}", map.capacity());
}

#[test]
fn room_that_was_asked_for_stays_until_it_was_used() {
    let room = if cfg!(miri) { 300 } else { 20_000 };
    let map = HashMap::<u32, u32>::with_capacity(room);
    let reserved = map.capacity();
    let fill = |entries: usize| {
        (0..entries as u32).for_each(|key| assert!(map.insert(key, key)));
        map.retain(|key, _| *key == 7);
        (8..200).for_each(|key| assert!(map.insert(key, key) && map.remove(&key)));
        assert!(map.remove(&7) && map.is_empty());
    };
    (0..5).for_each(|_| fill(room / 4));
    assert_eq!(map.capacity(), reserved);
    (0..2).for_each(|_| fill(room));
    assert!(map.capacity() <= reserved / 2, "{}", map.capacity());
}

/// Threads remove, look up, insert and walk over the same keys, and the table halves again and
/// again.
#[test]
fn map_that_shrinks_by_itself_loses_nothing() {
    let (rounds, entries) = if cfg!(miri) { (1, 200) } else { (5, 20_000) };
    let map: HashMap<u32, u32> = HashMap::new();
    for _ in 0..rounds {
        (0..4 * entries).for_each(|key| _ = map.insert(key, key));
        thread::scope(|scope| {
            for part in 0..2 {
                let map = &map;
                scope.spawn(move || {
                    let mine = (entries..4 * entries).filter(|key| key % 2 == part);
                    mine.for_each(|key| assert!(map.remove(&key)));
                });
            }
            scope.spawn(|| {
                let mut view = map.enter();
                for key in 0..entries {
                    assert_eq!(view.get(&key), Some(&key));
                    if key % 100 == 0 {
                        view.refresh();
                    }
                }
                let stayed = view.keys().filter(|key| **key < entries).count();
                assert_eq!(stayed, entries as usize);
            });
        });
        assert_eq!((map.len(), map.enter().iter().count()), (entries as usize, entries as usize));
    }
}

/// Tables of several huge pages, which are touched before they are used, while another thread wants
/// more room and less.
#[test]
fn tables_of_several_huge_pages_come_and_go() {
    let each = env::rounds(100_000) as u64;
    let (map, flat) = (HashMap::<u64, u64>::new(), FlatHashMap::<u64, u64>::new());
    thread::scope(|scope| {
        for part in 0..2 {
            let (map, flat) = (&map, &flat);
            scope.spawn(move || {
                for key in (part..2 * each).step_by(2) {
                    assert!(map.insert(key, !key) && flat.insert(key, !key).is_none());
                }
            });
        }
        for room in [2 * each, 8 * each, 4 * each] {
            map.reserve(room as usize);
            map.shrink_to_fit();
            flat.reserve(room as usize);
            flat.shrink_to_fit();
        }
    });
    assert_eq!((map.len(), flat.len()), (2 * each as usize, 2 * each as usize));
    for key in 0..2 * each {
        assert_eq!((map.get_cloned(&key), flat.get(&key)), (Some(!key), Some(!key)));
    }
    map.retain(|key, _| *key < 10);
    flat.retain(|key, _| *key < 10);
    map.shrink_to_fit();
    flat.shrink_to_fit();
    assert!(
        map.capacity() < 100 && flat.capacity() < 100,
        "{} {}",
        map.capacity(),
        flat.capacity()
    );
    assert_eq!((map.get_cloned(&7), flat.get(&7)), (Some(!7), Some(!7)));
}

/// Hashers that pass keys on unchanged fill no chains, though the keys are pointers or multiples of
/// a power of two. A look-up takes a comparison or two.
#[test]
fn hashes_of_poor_bits_cost_no_more_comparisons() {
    thread_local!(static COMPARED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    #[derive(Clone, Copy, Eq)]
    struct Key(u64);
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }
    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u64(self.0);
        }
    }
    #[derive(Default)]
    struct Itself(u64);
    impl Hasher for Itself {
        fn write(&mut self, _: &[u8]) {
            unreachable!("a key is a number");
        }
        fn write_u64(&mut self, number: u64) {
            self.0 = number;
        }
        fn finish(&self) -> u64 {
            self.0
        }
    }
    let keys: u64 = if cfg!(miri) { 200 } else { 10_000 };
    for step in [1, 16, 64, 4096, 1 << 32, 1 << 48, 0x7fff_1234_5678, u64::MAX / 3] {
        let map = HashMap::with_hasher(std::hash::BuildHasherDefault::<Itself>::new());
        (0..keys).for_each(|n| assert!(map.insert(Key(n.wrapping_mul(step)), n)));
        COMPARED.set(0);
        (0..keys).for_each(|n| assert_eq!(map.get_cloned(&Key(n.wrapping_mul(step))), Some(n)));
        let each = COMPARED.get() as f64 / keys as f64;
        assert!(each < 1.5, "step {step:#x}: {each} comparisons");
        COMPARED.set(0);
        (keys..2 * keys).for_each(|n| assert!(!map.contains_key(&Key(n.wrapping_mul(step)))));
        let each = COMPARED.get() as f64 / keys as f64;
        assert!(each < 0.5, "step {step:#x}: {each} comparisons in vain");
    }
}

#[test]
fn update_or_insert_with_counts_whichever_thread_comes_first() {
    let map = HashMap::new();
    let inserted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..if cfg!(miri) { 100 } else { 10_000 } {
                    let was_there = map.update_or_insert_with(n % 10, |count| count + 1, || 1_u32);
                    inserted.fetch_add(u64::from(!was_there), Relaxed);
                }
            });
        }
    });
    assert_eq!((inserted.into_inner(), map.len()), (10, 10));
    map.for_each(|_, count| assert_eq!(*count, if cfg!(miri) { 20 } else { 2_000 }));
}

/// Every key has the same hash: one chain has them all, and is longer than the table has room for.
#[test]
fn chain_of_all_keys_is_as_good_as_a_map() {
    #[derive(Default)]
    struct One;
    impl Hasher for One {
        fn write(&mut self, _: &[u8]) {}
        fn finish(&self) -> u64 {
            1
        }
    }
    let keys = if cfg!(miri) { 40 } else { 500 };
    let map = HashMap::with_hasher(std::hash::BuildHasherDefault::<One>::new());
    (0..keys).for_each(|key| assert!(map.insert(key, key)));
    (0..keys).step_by(3).for_each(|key| assert!(map.remove(&key)));
    (0..keys).step_by(6).for_each(|key| assert!(map.insert(key, 7)));
    map.shrink_to_fit();
    for key in 0..keys {
        let value = if key % 6 == 0 { Some(7) } else { (key % 3 != 0).then_some(key) };
        assert_eq!(map.get_cloned(&key), value);
    }
    assert_eq!(map.enter().iter().count(), map.len());
}

#[test]
fn clone_is_equal_and_apart() {
    in_every_state(|_, map, value| {
        let other = map.clone();
        assert_eq!(map, other);
        other.insert(1_000, Arc::clone(value));
        assert_ne!(map, other);
        assert!(other.remove(&1_000) && map == other);
        if let Some(key) = map.enter().keys().next() {
            other.insert(*key, Arc::new(8));
            assert_ne!(map, other);
        }
    });
}

/// Each value is taken once, by the thread whose condition saw it.
#[test]
fn conditional_removals_and_updates_of_one_key_never_share_a_value() {
    let map = HashMap::from([(0, 1_u64)]);
    let (taken, raised) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let mut seen = 0;
                    if map.remove_if(&0, |_, value| {
                        seen = *value;
                        seen % 2 == 0
                    }) {
                        taken.fetch_add(seen, Relaxed);
                        assert_eq!(map.try_insert(0, 0), Ok(()));
                    }
                }
            });
            scope.spawn(|| {
                let raise = |_: &u32| map.update(&0, |value| value + 1);
                raised.fetch_add((0..20_000).filter(raise).count() as u64, Relaxed);
            });
        }
    });
    let left = map.get_cloned(&0).expect("it was put back");
    assert_eq!(taken.load(Relaxed) + left, 1 + raised.load(Relaxed), "each is taken once");
}

#[test]
fn set_does_as_the_map_without_values() {
    let set = HashSet::<String>::new();
    assert!(set.insert(String::from("a")) && !set.insert(String::from("a")));
    assert!(set.contains("a") && set.get_cloned("b").is_none());
    set.reserve(100);
    (&set).extend(["b", "c"].map(String::from));
    assert_eq!(format!("{:?}", HashSet::from([1])), "{1}");
    let twin: HashSet<String> = set.clone();
    assert_eq!(set, twin);
    set.retain(|name| name != "b");
    assert_ne!(set, twin);
    assert!(set.is_subset(&twin) && twin.is_superset(&set) && !set.is_disjoint(&twin));
    let view = twin.enter();
    assert_eq!(view.remove("b").map(String::as_str), Some("b"));
    assert_eq!((view.len(), view.iter().count(), view.get("b")), (2, 2, None));
    assert!(set.remove("a") && !set.remove("a"));
    let mut all: Vec<String> = set.into_iter().collect();
    all.sort();
    assert_eq!(all, ["c"]);
    let shared = HashSet::from(HashMap::builder().capacity(7).build());
    assert!(shared.insert(1) && shared.capacity() >= 7);
    shared.clear();
    assert!(shared.is_empty());
}

/// A key with a field that does not count for equality: it shows which of two equal keys is kept.
#[derive(Clone, Debug)]
struct Named(u32, &'static str);

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Named {}

impl Hash for Named {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn own_key_is_told_with_its_value_and_an_insertion_brings_its_own() {
    let map = HashMap::from([(Named(1, "first"), 'a')]);
    let mut view = map.enter();
    let told = |found: Option<(&Named, &char)>| found.map(|(key, value)| (key.1, *value));
    let (one, two) = (Named(1, "sought"), Named(2, "sought"));
    assert_eq!(told(view.get_key_value(&one)), Some(("first", 'a')));
    assert_eq!(told(view.get_key_value(&two)), None);
    assert_eq!(view.get_key_value_now(&one).map(told), Some(Some(("first", 'a'))));
    assert_eq!(view.get_key_value_now(&two).map(told), Some(None));
    assert_eq!(told(view.insert_entry(Named(1, "second"), 'b')), Some(("first", 'a')));
    assert_eq!(told(view.insert_entry(Named(2, "other"), 'c')), None);
    assert_eq!(told(view.get_key_value(&one)), Some(("second", 'b')));
    assert_eq!((*view.get_or_insert(one.clone(), 'd'), view.len()), ('b', 2));
    assert_eq!(*view.get_or_insert(Named(3, "third"), 'e'), 'e');
    assert_eq!(told(view.remove_entry(&one)), Some(("second", 'b')));
    assert_eq!((told(view.remove_entry(&one)), view.len()), (None, 2));
    view.refresh();
    assert_eq!(told(view.get_key_value(&two)), Some(("other", 'c')));
    assert!(std::ptr::eq(view.map(), &map) && !view.is_empty() && !map.is_empty());
}

#[test]
fn map_and_set_have_the_room_that_was_asked_for() {
    assert_eq!((HashMap::<u32, u32>::new().capacity(), HashSet::<u32>::new().capacity()), (0, 0));
    assert_eq!(HashMap::<u32, u32>::with_capacity(0).capacity(), 0);
    for asked in [1, 7, 100, 10_000] {
        let map = HashMap::<u32, u32>::with_capacity(asked);
        let set = HashSet::<u32>::with_capacity(asked);
        let builders = HashMap::<u32, u32>::builder().capacity(asked).build();
        let hasher = HashMap::with_capacity_and_hasher(asked, RandomState::new());
        // As much as the smallest power of two of buckets has, and not all that there is.
        let least = map.capacity();
        assert!((asked..=4 * asked + 64).contains(&least), "{least} for {asked}");
        assert_eq!([set.capacity(), builders.capacity(), hasher.capacity()], [least; 3]);
        (0..asked as u32).for_each(|key| assert!(hasher.insert(key, key)));
        assert_eq!(hasher.capacity(), least, "it did not grow");
    }
    let map = HashMap::<u32, u32>::new();
    map.reserve(1_000);
    let reserved = map.capacity();
    assert!((1_000..8_000).contains(&reserved));
    (0..10_000).for_each(|key| assert!(map.insert(key, key)));
    assert!((10_000..80_000).contains(&map.capacity()));
    map.clear();
    map.shrink_to_fit();
    assert!(map.capacity() < 64, "{}", map.capacity());
}

#[test]
fn view_is_in_a_section_of_the_map_s_own_domain_only() {
    let map = HashMap::from([(1, 'a')]);
    let view = map.view_in(map.domain().enter());
    assert_eq!(view.get(&1), Some(&'a'));
    let another = Domain::new();
    let in_another = AssertUnwindSafe(|| map.view_in(another.enter()).len());
    assert!(catch_unwind(in_another).is_err());
    let domain = Arc::new(Domain::new());
    let shared = HashMap::builder().domain(Arc::clone(&domain)).build();
    assert!(std::ptr::eq(shared.domain(), &*domain) && shared.insert(1, 2));
    assert_eq!(shared.view_in(domain.enter()).get(&1), Some(&2));
}

#[test]
fn sets_are_compared_member_by_member() {
    let some = HashSet::from([1, 2]);
    let (all, others) = (HashSet::from([1, 2, 3]), HashSet::from([3, 4]));
    let none = HashSet::<u32>::new();
    let subset = |of: &HashSet<u32>| [&none, &some, &all, &others].map(|one| one.is_subset(of));
    assert_eq!(subset(&none), [true, false, false, false]);
    assert_eq!(subset(&some), [true, true, false, false]);
    assert_eq!(subset(&all), [true, true, true, false]);
    assert_eq!([some.is_superset(&all), all.is_superset(&some)], [false, true]);
    let disjoint = |of: &HashSet<u32>| [&none, &some, &all, &others].map(|one| one.is_disjoint(of));
    assert_eq!(disjoint(&some), [true, false, false, true]);
    assert_eq!(disjoint(&none), [true; 4]);
    assert!(some != all && some == HashSet::from([2, 1]) && none.is_empty());
}

#[test]
fn set_keeps_the_member_that_was_there_and_gives_it_back() {
    let set = HashSet::from([Named(1, "first")]);
    assert!(!set.insert(Named(1, "second")) && set.insert(Named(2, "other")));
    let sought = Named(1, "sought");
    assert_eq!(set.get_cloned(&sought).map(|own| own.1), Some("first"));
    assert!(set.contains(&sought) && !set.contains(&Named(3, "")));
    let mut view = set.enter();
    assert_eq!(view.get(&sought).map(|own| own.1), Some("first"));
    assert!(view.contains(&sought) && !view.contains(&Named(3, "")) && !view.is_empty());
    assert!(!view.insert(Named(1, "third")) && view.insert(Named(3, "third")));
    view.retain(|own| own.0 != 2);
    let mut members: Vec<_> = view.iter().chain(&view).map(|own| own.1).collect();
    members.sort_unstable();
    assert_eq!(members, ["first", "first", "third", "third"]);
    let mut sum = 0;
    set.for_each(|own| sum += own.0);
    assert_eq!((sum, set.len()), (4, 2));
    view.clear();
    view.refresh();
    assert!(view.is_empty() && set.is_empty());
    assert_eq!(view.len(), 0);
    let mut all: HashSet<u32> = (0..9).collect();
    all.extend([8, 9]);
    assert!(!all.is_empty());
    let mut rest = all.into_iter();
    assert_eq!((rest.size_hint(), rest.len()), ((10, Some(10)), 10));
    assert!(rest.next().is_some());
    assert_eq!((rest.len(), rest.count()), (9, 9));
}

#[test]
fn entries_are_lent_and_copied_one_by_one() {
    let map: HashMap<u32, u32> = (0..100).map(|key| (key, 2 * key)).collect();
    let mut copy = HashMap::<u32, u32>::new();
    copy.extend(map.enter().iter());
    copy.extend([(100, 200), (101, 0)]);
    (&copy).extend([(101, 202)]);
    let view = copy.enter();
    let sorted = |found: Vec<u32>| found.into_iter().collect::<BTreeSet<_>>();
    let expected = |times: u32| (0..102_u32).map(|key| key * times).collect::<BTreeSet<u32>>();
    assert_eq!(sorted(view.keys().copied().collect()), expected(1));
    assert_eq!(sorted(view.values().copied().collect()), expected(2));
    assert!(view.iter().chain(&view).all(|(key, value)| *value == 2 * key));
}

/// A view keeps what it has seen until it is refreshed, and no longer.
#[test]
fn refreshed_view_holds_nothing_back() {
    let value = Arc::new(());
    let map = Arc::new(HashMap::from([(1, value.clone())]));
    let member = Arc::new(1);
    let set = HashSet::from([member.clone()]);
    let collect = || [map.domain(), set.domain()].map(Domain::collect);
    let (mut view, mut owned, mut members) = (map.enter(), map.enter_owned(), set.enter());
    assert!(view.get(&1).is_some() && owned.get(&1).is_some());
    assert!(map.remove(&1) && members.contains(&1) && set.remove(&1));
    (0..4).for_each(|_| _ = collect());
    assert_eq!(Arc::strong_count(&value), 2, "two views may have it");
    assert_eq!(Arc::strong_count(&member), 2, "a view may have it");
    owned.refresh();
    (0..4).for_each(|_| map.domain().collect());
    assert_eq!(Arc::strong_count(&value), 2, "a view may have it");
    view.refresh();
    members.refresh();
    owned.refresh();
    (0..4).for_each(|_| _ = collect());
    assert_eq!((Arc::strong_count(&value), Arc::strong_count(&member)), (1, 1));
    assert!(view.is_empty() && owned.get(&1).is_none() && members.is_empty());
    assert!(std::ptr::eq(set.domain(), set.domain()));
    assert!(!std::ptr::eq(set.domain(), map.domain()));
}

#[test]
fn weighed_entry_is_dropped_once_also_if_its_weigher_panics() {
    let value = Arc::new(());
    let weigh = |key: &u32, _: &Arc<()>| {
        assert!(*key != 2, "the weigher");
        100
    };
    let map = HashMap::builder().weigher(weigh).build();
    (1..4).for_each(|key| assert!(map.insert(key, Arc::clone(&value))));
    assert!(map.remove(&1) && !map.contains_key(&1));
    assert!(catch_unwind(AssertUnwindSafe(|| map.remove(&2))).is_err() && !map.contains_key(&2));
    assert!(!map.insert(3, Arc::clone(&value)));
    (0..4).for_each(|_| map.domain().collect());
    assert_eq!((map.len(), Arc::strong_count(&value)), (1, 2));
}
