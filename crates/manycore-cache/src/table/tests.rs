//! The links of a bucket that have a tag, and the least used entry of a bucket.

use super::*;

/// Makes a link that is only compared, and never followed.
fn link(tag: usize, rest: usize) -> Link<u8, u8> {
    ptr::without_provenance_mut(tag << TAG_SHIFT | rest << 48 | 0x1234_5678_9ab0)
}

#[test]
fn every_link_with_the_tag_is_a_hit_and_nothing_else() {
    let table = Table::<u8, u8>::new(1, false);
    let bucket = &table.buckets()[0];
    for tag in [1, 2, 0x155, 0x2000, 0x3fff] {
        // The bytes behind the links must not look like a link.
        bucket.lock.disguise((tag >> 6) as u8);
        bucket.frequency[SLOTS - 1].store((tag << 2) as u8, Ordering::Relaxed);
        for chosen in 0..1_u32 << SLOTS {
            let mut expected = 0;
            for at in 0..SLOTS {
                let has_it = chosen >> at & 1 != 0;
                let other = [0, tag ^ 1, 0x3fff ^ tag][at % 3];
                let link = link(if has_it { tag } else { other }, at % 4);
                bucket.links[at].store(link, Ordering::Relaxed);
                expected |= u32::from(has_it) << at;
            }
            assert_eq!(bucket.hits(tag), expected, "tag {tag:#x}, links {chosen:#b}");
        }
    }
    bucket.links[SLOTS - 1].store(ptr::null_mut(), Ordering::Relaxed);
}

/// Makes the address of a node that is never accessed.
fn node(number: usize) -> NonNull<Node<u8, u8>> {
    NonNull::new(ptr::without_provenance_mut(number * 64)).expect("not null")
}

#[test]
fn keys_are_on_probation_once_one_was_evicted_and_prove_themselves_by_coming_back() {
    let table = Table::<u8, u8>::new(1, true);
    let bucket = &table.buckets()[0];
    let hash = |n| KeyHash::of(n);
    let locked = table.lock(bucket).expect("the table is there");
    let first = |n: u64| table.first_frequency(bucket, hash(n));
    assert_eq!((first(1), table.probation().len()), (PROTECTED, 0), "nothing was evicted yet");
    for n in 1..=3_u64 {
        locked.add(&table, hash(n), node(n as usize), PROTECTED);
    }
    let slot = |n| locked.slot_of(node(n)).expect("linked");
    let evict = |n| {
        let entry = slot(n).to_evict().expect("not pinned");
        assert!(table.evict(&locked, entry.slot, entry.link, FREQUENCY_MAX));
    };
    evict(1);
    // The ghost of key 1 has proved itself, so key 1 is treated as any new key.
    let all = (0..64).map(|_| first(1)).filter(|byte| *byte == ON_PROBATION).count();
    assert!((1..=64).contains(&all), "{all} of 64 on probation");
    while table.probation().pop_beyond(0).is_some() {}
    slot(2).set_frequency(ON_PROBATION);
    evict(2);
    assert!((0..8).all(|_| first(2) == PROTECTED), "it was on probation when it went");
    assert_eq!(table.probation().len(), 0);
    evict(3);
    // The queue has room for one record: a key that finds no room is not on probation.
    while first(9) == PROTECTED {}
    assert!((0..8).all(|_| first(9) == PROTECTED));
}

#[test]
fn each_of_several_that_were_used_least_goes_at_times() {
    let table = Table::<u8, u8>::new(1, true);
    let bucket = &table.buckets()[0];
    let locked = table.lock(bucket).expect("the table is there");
    for (n, frequency) in [PROTECTED, 3, PROTECTED, PROTECTED].into_iter().enumerate() {
        locked.add(&table, KeyHash::of(n as u64), node(n + 1), frequency);
    }
    let mut times = [0; 5];
    for _ in 0..1000 {
        let least = bucket.least_used(ON_PROBATION..=FREQUENCY_MAX, None).expect("there are some");
        times[(1..=4).find(|n| node(*n) == least.node()).expect("one of them")] += 1;
    }
    assert_eq!(times[2], 0, "it was used most");
    assert!([1, 3, 4].iter().all(|n| times[*n] >= 100), "{times:?}");
    (1..=4).for_each(|n| locked.clear(locked.slot_of(node(n)).expect("linked")));
}

#[test]
fn least_used_is_what_a_look_at_each_place_finds() {
    let table = Table::<u8, u8>::new(1, true);
    let bucket = &table.buckets()[0];
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
        // The byte of the lock must not look like a place.
        bucket.lock.disguise((1 << random(5)) as u8 >> 1);
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
        let found = bucket.least_used(from..=FREQUENCY_MAX, Some(kept));
        if let Some(least) = &found {
            assert_eq!(least.slot.node(), Some(least.node()));
            assert_eq!(least.slot.frequency_now(), least.frequency);
            assert_ne!(least.node(), kept);
        }
        assert_eq!(found.map(|least| least.frequency), expected);
    }
    bucket.links.iter().for_each(|link| link.store(ptr::null_mut(), Ordering::Relaxed));
    bucket.lock.disguise(0);
}

#[test]
fn hand_finds_the_least_used_and_cools_what_proved_itself() {
    let table = Table::<u8, u8>::new(1, true);
    let bucket = &table.buckets()[0];
    let locked = table.lock(bucket).expect("the table is there");
    // There are more entries than a bucket holds, so the chain has two buckets.
    let frequencies = [3, 3, 2, 3, 0, 3, 3, 2, 1];
    for (n, frequency) in frequencies.into_iter().enumerate() {
        locked.add(&table, KeyHash::of(n as u64), node(n + 1), frequency);
    }
    let least =
        |from, kept| bucket.least_used(from..=FREQUENCY_MAX, kept).map(|least| least.node());
    assert_eq!(least(ON_PROBATION, None), Some(node(5)));
    assert_eq!(least(PROTECTED, None), Some(node(9)));
    assert_eq!(least(ON_PROBATION, Some(node(5))), Some(node(9)));
    bucket.cool();
    let mut now: Vec<_> = bucket.slots().filter(|s| s.node().is_some()).collect();
    now.sort_by_key(|slot| slot.node());
    let now: Vec<_> = now.into_iter().map(Slot::frequency_now).collect();
    assert_eq!(now, [2, 2, 1, 2, 0, 2, 2, 1, 1]);
    (0..9).for_each(|n| locked.clear(locked.slot_of(node(n + 1)).expect("linked")));
}

#[test]
fn new_entry_takes_the_free_place_of_a_chain_before_the_chain_grows() {
    type Add = fn(&Locked<'_, u8, u8>, &Table<u8, u8>, KeyHash, NonNull<Node<u8, u8>>) -> bool;
    let of_new: Add = |locked, table, hash, node| locked.add_new(table, hash, node);
    let of_any: Add = |locked, table, hash, node| {
        locked.add(table, hash, node, PROTECTED);
        true
    };
    for add in [of_new, of_any] {
        let table = Table::<u8, u8>::new(1, false);
        let bucket = &table.buckets()[0];
        let locked = table.lock(bucket).expect("the table is there");
        let places = || bucket.slots().filter(|slot| slot.node().is_some());
        let mut next = 0;
        let mut add_one = || {
            next += 1;
            assert!(add(&locked, &table, KeyHash::of(next), node(next as usize)));
            node(next as usize)
        };
        // The last link of each bucket but the last leads to the next bucket.
        for (buckets, entries) in [(1, SLOTS), (2, 2 * SLOTS - 1), (3, 3 * SLOTS - 2)] {
            while places().count() < entries {
                add_one();
            }
            assert_eq!(bucket.slots().count(), buckets * SLOTS);
            for slot in places().collect::<Vec<_>>() {
                locked.clear(slot);
                let added = add_one();
                assert_eq!(slot.node(), Some(added));
                assert_eq!(slot.frequency_now(), PROTECTED);
            }
            assert_eq!(bucket.slots().count(), buckets * SLOTS, "the chain has grown");
        }
        places().for_each(|slot| locked.clear(slot));
    }
}

#[test]
fn least_used_of_a_chain_may_be_in_any_of_its_buckets() {
    let table = Table::<u8, u8>::new(1, true);
    let bucket = &table.buckets()[0];
    let locked = table.lock(bucket).expect("the table is there");
    for n in 1..=3 * SLOTS - 2 {
        locked.add(&table, KeyHash::of(n as u64), node(n), FREQUENCY_MAX);
    }
    let slots = || bucket.slots().filter(|slot| slot.node().is_some());
    let least = || bucket.least_used(ON_PROBATION..=FREQUENCY_MAX, None).expect("there are some");
    for slot in slots() {
        for frequency in ON_PROBATION..FREQUENCY_MAX {
            slot.set_frequency(frequency);
            assert_eq!((least().slot.node(), least().frequency), (slot.node(), frequency));
        }
        slot.set_frequency(FREQUENCY_MAX);
    }
    slots().for_each(|slot| locked.clear(slot));
}
