//! Hits among the links of a bucket, by their tags.

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
fn an_entry_is_supplanted_only_if_it_is_there_and_unused() {
    let table = Table::<u8, u8>::new(1, Probation::InBuckets);
    let bucket = &table.buckets()[0];
    let hash = |n| KeyHash::of(n);
    let locked = table.lock(bucket).expect("the table is there");
    locked.add(&table, hash(1), node(1), table.first_frequency(hash(1)));
    assert!(bucket.unproved(Some(node(1))).is_none());
    let seen = bucket.unproved(None).expect("it was not used");
    // Used since, so it stays.
    seen.0.set_frequency(PROVED);
    assert!(!locked.supplant(&table, seen, hash(2), node(2)));
    assert!(bucket.unproved(None).is_none());
    // On probation, and it goes.
    seen.0.set_frequency(UNPROVED);
    assert!(locked.supplant(&table, seen, hash(2), node(2)));
    assert_eq!(seen.0.node(), Some(node(2)));
    // Another is there now.
    assert!(!locked.supplant(&table, seen, hash(3), node(3)));
    assert_eq!(seen.0.node(), Some(node(2)));
    // The key that went is remembered, and skips probation.
    assert_eq!([1, 2, 3].map(|n| table.first_frequency(hash(n))), [PROVED, UNPROVED, UNPROVED]);
    locked.clear(seen.0);
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
    let least = |from, kept| bucket.least_used(from, kept).map(|(_, node)| node);
    assert_eq!(least(UNPROVED, None), Some(node(5)));
    assert_eq!(least(PROVED, None), Some(node(9)));
    assert_eq!(least(UNPROVED, Some(node(5))), Some(node(9)));
    bucket.cool();
    let mut now: Vec<_> = bucket.slots().filter(|s| s.node().is_some()).collect();
    now.sort_by_key(|slot| slot.node());
    let now: Vec<_> = now.into_iter().map(Slot::frequency_now).collect();
    assert_eq!(now, [3, 2, 1, 3, 0, 2, 3, 1, 1]);
    (0..9).for_each(|n| locked.clear(locked.slot_of(node(n + 1)).expect("linked")));
}
