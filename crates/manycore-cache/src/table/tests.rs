//! Hits among the links of a bucket, by their tags, and its least used entry.

use super::*;

/// Nodes are only pointed to here.
fn link(tag: usize, rest: usize) -> Link<u8, u8> {
    ptr::without_provenance_mut(tag << TAG_SHIFT | rest << 48 | 0x1234_5678_9ab0)
}

#[test]
fn every_link_with_the_tag_is_a_hit_and_nothing_else() {
    let table = Table::<u8, u8>::new(1, Probation::None);
    let bucket = &table.buckets()[0];
    for tag in [1, 2, 0x155, 0x2000, 0x3fff] {
        // What is behind the links must not look like one.
        bucket.lock.disguise((tag >> 6) as u8);
        bucket.frequency[SLOTS - 1].store((tag << 2) as u8, Ordering::Relaxed);
        for chosen in 0..1_u32 << SLOTS {
            let mut expected = 0;
            for at in 0..SLOTS {
                let has_it = chosen >> at & 1 != 0;
                let other = [0, tag ^ 1, 0x3fff ^ tag][at % 3];
                let link = link(if has_it { tag } else { other }, at % 4);
                bucket.links[at].store(link, Ordering::Relaxed);
                expected |= u32::from(has_it) << (2 * at);
            }
            assert_eq!(bucket.hits(tag), expected, "tag {tag:#x}, links {chosen:#b}");
        }
    }
    bucket.links[SLOTS - 1].store(ptr::null_mut(), Ordering::Relaxed);
}

/// A node that is only pointed to.
fn node(number: usize) -> NonNull<Node<u8, u8>> {
    NonNull::new(ptr::without_provenance_mut(number * 64)).expect("not null")
}

#[test]
fn an_entry_is_supplanted_unless_one_of_the_new_keys_tag_is_there() {
    let table = Table::<u8, u8>::new(1, Probation::InBuckets);
    let bucket = &table.buckets()[0];
    let hash = |n| KeyHash::of(n);
    let locked = table.lock(bucket).expect("the table is there");
    locked.add(&table, hash(1), node(1), table.first_frequency(hash(1)));
    assert!(bucket.least_used(UNPROVED, Some(node(1))).is_none());
    assert!(locked.least_used_without(hash(1)).is_none(), "perhaps the same key");
    let seen = locked.least_used_without(hash(2)).expect("it is there");
    assert_eq!((seen.node, seen.frequency, seen.entries), (node(1), UNPROVED, 1));
    locked.supplant(&table, &seen, hash(2), node(2));
    assert_eq!(seen.slot.node(), Some(node(2)));
    assert!(locked.least_used_without(hash(2)).is_none());
    // The key that went is remembered, and skips probation.
    assert_eq!([1, 2, 3].map(|n| table.first_frequency(hash(n))), [PROVED, UNPROVED, UNPROVED]);
    assert_eq!([1, 2].map(|n| table.knows(hash(n))), [true, false]);
    // So does not one that had proved itself.
    seen.slot.set_frequency(PROVED);
    let seen = locked.least_used_without(hash(3)).expect("it is there");
    locked.supplant(&table, &seen, hash(3), node(3));
    assert!(!table.knows(hash(2)));
    // A tag in another bucket of the chain counts, too.
    (4..20).for_each(|n| locked.add(&table, hash(n), node(n as usize), PROVED));
    assert!((3..20).all(|n| locked.least_used_without(hash(n)).is_none()));
    assert!(locked.least_used_without(hash(20)).is_some());
}

#[test]
fn others_of_the_bucket_cool_by_what_the_supplanted_one_had_left() {
    let table = Table::<u8, u8>::new(1, Probation::InBuckets);
    let bucket = &table.buckets()[0];
    let locked = table.lock(bucket).expect("the table is there");
    for (n, frequency) in [4, 2, 3, 4].into_iter().enumerate() {
        locked.add(&table, KeyHash::of(n as u64), node(n + 1), frequency);
    }
    let least = bucket.least_used(UNPROVED, None).expect("there are some");
    assert_eq!((least.node, least.frequency, least.entries), (node(2), 2, 4));
    locked.supplant(&table, &least, KeyHash::of(9), node(9));
    let now: Vec<_> = bucket.slots().filter(|s| s.node().is_some()).collect();
    let now: Vec<_> = now.iter().map(|s| (s.node().unwrap(), s.frequency_now())).collect();
    let expected = [(1, 3), (9, UNPROVED), (3, 2), (4, 3)];
    assert_eq!(now, expected.map(|(n, frequency)| (node(n), frequency)));
    [1, 9, 3, 4].iter().for_each(|n| locked.clear(locked.slot_of(node(*n)).expect("linked")));
}

#[test]
fn each_of_several_that_were_used_least_goes_at_times() {
    let table = Table::<u8, u8>::new(1, Probation::InBuckets);
    let bucket = &table.buckets()[0];
    let locked = table.lock(bucket).expect("the table is there");
    for (n, frequency) in [PROVED, 4, PROVED, PROVED].into_iter().enumerate() {
        locked.add(&table, KeyHash::of(n as u64), node(n + 1), frequency);
    }
    let mut times = [0; 5];
    for _ in 0..1000 {
        let least = bucket.least_used(UNPROVED, None).expect("there are some");
        times[(1..=4).find(|n| node(*n) == least.node).expect("one of them")] += 1;
    }
    assert_eq!(times[2], 0, "it was used most");
    assert!([1, 3, 4].iter().all(|n| times[*n] >= 100), "{times:?}");
    // Entries that age are on probation in the end.
    (0..3).for_each(|_| bucket.age());
    let now: Vec<_> = bucket.slots().take(4).map(|slot| slot.frequency_now()).collect();
    assert_eq!(now, [UNPROVED, 1, UNPROVED, UNPROVED]);
    (1..=4).for_each(|n| locked.clear(locked.slot_of(node(n)).expect("linked")));
}

#[test]
fn least_used_is_what_a_look_at_each_place_finds() {
    let table = Table::<u8, u8>::new(1, Probation::InBuckets);
    let bucket = &table.buckets()[0];
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
        // What the lock's byte holds must not look like a place.
        bucket.lock.disguise(random(5) as u8);
        for at in 0..SLOTS {
            let tag = if random(3) == 0 { 0 } else { 1 + random(0x3fff) as usize };
            let entry = Locked::<u8, u8>::link_to(node(at + 1), tag.max(1));
            let empty = ptr::null_mut();
            bucket.links[at].store(if tag == 0 { empty } else { entry }, Ordering::Relaxed);
            let frequency = random(u64::from(FREQUENCY_MAX) + 1) as u8;
            bucket.frequency[at].store(frequency, Ordering::Relaxed);
        }
        let (from, kept) = (random(2) as u8, node(1 + random(9) as usize));
        let entries = || bucket.slots().filter(|slot| slot.node().is_some());
        let meant = entries().filter(|slot| slot.node() != Some(kept));
        let meant = meant.filter(|slot| slot.frequency_now() >= from);
        let expected = meant.map(|slot| slot.frequency_now()).min();
        let expected = expected.map(|frequency| (frequency, entries().count()));
        let found = bucket.least_used(from, Some(kept));
        if let Some(least) = &found {
            assert_eq!(least.slot.node(), Some(least.node));
            assert_eq!(least.slot.frequency_now(), least.frequency);
            assert_ne!(least.node, kept);
        }
        assert_eq!(found.map(|least| (least.frequency, least.entries)), expected);
    }
    bucket.links.iter().for_each(|link| link.store(ptr::null_mut(), Ordering::Relaxed));
    bucket.lock.disguise(0);
}

#[test]
fn hand_finds_the_least_used_and_cools_what_proved_itself() {
    let table = Table::<u8, u8>::new(1, Probation::InQueue);
    let bucket = &table.buckets()[0];
    let locked = table.lock(bucket).expect("the table is there");
    // More than a bucket holds: the chain has two.
    let frequencies = [4, 3, 2, 4, 0, 3, 4, 2, 1];
    for (n, frequency) in frequencies.into_iter().enumerate() {
        locked.add(&table, KeyHash::of(n as u64), node(n + 1), frequency);
    }
    let least = |from, kept| bucket.least_used(from, kept).map(|least| least.node);
    assert_eq!(least(UNPROVED, None), Some(node(5)));
    assert_eq!(least(PROVED, None), Some(node(9)));
    assert_eq!(least(UNPROVED, Some(node(5))), Some(node(9)));
    bucket.cool(1);
    let mut now: Vec<_> = bucket.slots().filter(|s| s.node().is_some()).collect();
    now.sort_by_key(|slot| slot.node());
    let now: Vec<_> = now.into_iter().map(Slot::frequency_now).collect();
    assert_eq!(now, [3, 2, 1, 3, 0, 2, 3, 1, 1]);
    (0..9).for_each(|n| locked.clear(locked.slot_of(node(n + 1)).expect("linked")));
}
