//! Hits among the links of a bucket, by their tags.

use super::*;

/// Nodes are only pointed to here.
fn link(tag: usize, state: usize) -> Link<u8, u8> {
    ptr::without_provenance_mut(tag << TAG_SHIFT | state << STATE_SHIFT | 0x1234_5678_9ab0)
}

#[test]
fn every_link_with_the_tag_is_a_hit_and_nothing_else() {
    let table = Table::<u8, u8>::new(1, false);
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
