//! Tests of a map that one thread uses, against a plain model, and of the trie's arithmetic.

use super::trie::{BITS, LAST_KEY, bits, level_for};
use super::{RangeError, RangeMap};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

#[test]
fn level_is_the_lowest_with_both_keys_and_more() {
    assert_eq!(level_for(0, 0), 0);
    assert_eq!(level_for(5, 9), 0);
    assert_eq!(level_for(0, 62), 0);
    assert_eq!(level_for(0, 63), 1);
    assert_eq!(level_for(63, 64), 1);
    assert_eq!(level_for(0x1000, 0x1fff), 2);
    assert_eq!(level_for(1 << 30, (1 << 30) + (1 << 30) - 1), 5);
    assert_eq!(level_for(1, LAST_KEY), 10);
    assert_eq!(bits(0, 63), u64::MAX);
    assert_eq!(bits(3, 4), 0b11000);
    assert_eq!(BITS, 6);
}

/// The plain model of a map.
#[derive(Default)]
struct Plain {
    /// Last key and value of each range, by its first key.
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl Plain {
    fn cut(&mut self, first: u64, last: u64) -> Vec<(RangeInclusive<u64>, u32)> {
        let mut removed = Vec::new();
        let met: Vec<_> = self
            .ranges
            .range(..=last)
            .filter(|(_, (end, _))| *end >= first)
            .map(|(start, (end, value))| (*start, *end, *value))
            .collect();
        for (start, end, value) in met {
            self.ranges.remove(&start);
            if start < first {
                self.ranges.insert(start, (first - 1, value));
            }
            if end > last {
                self.ranges.insert(last + 1, (end, value));
            }
            removed.push((start.max(first)..=end.min(last), value));
        }
        removed
    }

    fn get(&self, key: u64) -> Option<u32> {
        let (_, (last, value)) = self.ranges.range(..=key).next_back()?;
        (*last >= key).then_some(*value)
    }

    fn all(&self) -> Vec<(RangeInclusive<u64>, u32)> {
        self.ranges.iter().map(|(first, (last, value))| (*first..=*last, *value)).collect()
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns a range near others, of any size, often on a slot's bounds, and sometimes at an end
    /// of the key space.
    fn range(&mut self) -> (u64, u64) {
        let unit = 1_u64 << [0, 0, 3, 6, 12, 18, 30, 59][self.below(8) as usize];
        let place = match self.below(4) {
            0 => 0,
            1 => 0x7f00_0000_0000,
            2 => u64::MAX - (unit.saturating_mul(40)).min(u64::MAX / 2),
            _ => 1 << 20,
        };
        let first = place.saturating_add(unit.saturating_mul(self.below(40))) / unit * unit;
        let last = first.saturating_add(unit.saturating_mul(1 + self.below(20)) - 1);
        let (low, high) = (self.below(4) / 3, self.below(4) / 3);
        let first = first.saturating_add(low).min(last);
        (first, last.saturating_sub(high).max(first))
    }
}

fn copied<'a>(
    ranges: impl Iterator<Item = (RangeInclusive<u64>, &'a u32)>,
) -> Vec<(RangeInclusive<u64>, u32)> {
    ranges.map(|(range, value)| (range, *value)).collect()
}

fn step(map: &RangeMap<u32>, plain: &mut Plain, random: &mut Random, number: u32) {
    let view = map.enter();
    let (first, last) = random.range();
    match random.below(8) {
        0..=2 => {
            let is_free = plain.ranges.range(..=last).all(|(_, (end, _))| *end < first);
            let inserted = view.insert(first..=last, number);
            assert_eq!(inserted.is_ok(), is_free, "{inserted:?}");
            if is_free {
                plain.ranges.insert(first, (last, number));
            }
        }
        3 => {
            let removed = copied(view.replace(first..=last, number).unwrap());
            assert_eq!(removed, plain.cut(first, last));
            plain.ranges.insert(first, (last, number));
        }
        4 | 5 => {
            let removed = copied(view.remove(first..=last).unwrap());
            assert_eq!(removed, plain.cut(first, last));
        }
        6 => {
            let value = plain.get(first);
            let before = plain.ranges.range(..first).next_back();
            let splits = before.is_some_and(|(_, (end, _))| *end >= first);
            assert_eq!(view.split(first).unwrap(), splits);
            if splits {
                let (_, (end, _)) = plain.ranges.range_mut(..first).next_back().unwrap();
                let end = std::mem::replace(end, first - 1);
                plain.ranges.insert(first, (end, value.unwrap()));
            }
        }
        _ => locked_step(map, plain, random, number),
    }
    for key in [first, last, first.saturating_sub(1), last.saturating_add(1)] {
        assert_eq!(view.get(key).copied(), plain.get(key), "at {key:#x}");
    }
}

fn locked_step(map: &RangeMap<u32>, plain: &mut Plain, random: &mut Random, number: u32) {
    let view = map.enter();
    let (first, last) = random.range();
    let mut guard = view.lock(first..=last).unwrap();
    for _ in 0..random.below(5) {
        let (a, b) = (random.next() % (last - first + 1), random.next() % (last - first + 1));
        let (from, to) = (first + a.min(b), first + a.max(b));
        match random.below(3) {
            0 => {
                let is_free = plain.ranges.range(..=to).all(|(_, (end, _))| *end < from);
                assert_eq!(guard.insert(from..=to, number).is_ok(), is_free);
                if is_free {
                    plain.ranges.insert(from, (to, number));
                }
            }
            1 => {
                let removed = copied(guard.replace(from..=to, number).unwrap());
                assert_eq!(removed, plain.cut(from, to));
                plain.ranges.insert(from, (to, number));
            }
            _ => assert_eq!(copied(guard.remove(from..=to).unwrap()), plain.cut(from, to)),
        }
    }
    assert!(view.insert(5..=5, 0).is_err() && view.lock(last..).is_err(), "nested");
    let inside = copied(guard.iter());
    let all = copied(view.range(first..=last).unwrap());
    assert_eq!(inside, all);
}

#[test]
fn random_operations_do_as_a_plain_map() {
    let seed = std::env::var("MANYCORE_SEED")
        .ok()
        .and_then(|seed| u64::from_str_radix(seed.trim_start_matches("0x"), 16).ok());
    let seed = seed.unwrap_or(0x9e37_79b9_7f4a_7c15);
    println!("MANYCORE_SEED={seed:#x}");
    for round in 0..if cfg!(miri) { 1 } else { 40 } {
        let mut random = Random(seed.wrapping_add(round).max(1));
        let (map, mut plain) = (RangeMap::new(), Plain::default());
        for number in 0..if cfg!(miri) { 60 } else { 400 } {
            step(&map, &mut plain, &mut random, number);
        }
        let view = map.enter();
        assert_eq!(copied(view.iter()), plain.all());
        let gaps: Vec<_> = view.gaps(..).unwrap().collect();
        assert_eq!(gaps, gaps_of(&plain));
        from_both_ends(|| view.iter(), &mut random);
        from_both_ends(|| view.gaps(..).unwrap(), &mut random);
        let (first, last) = random.range();
        from_both_ends(|| view.range(first..=last).unwrap(), &mut random);
        from_both_ends(|| view.gaps(first..=last).unwrap(), &mut random);
        let mut removed = view.remove(first..=last).unwrap();
        let mut expected = plain.cut(first, last).into_iter();
        while removed.len() > 0 {
            let takes_back = random.below(2) == 0;
            let next = if takes_back { removed.next_back() } else { removed.next() };
            let next = next.map(|(range, value)| (range, *value));
            assert_eq!(next, if takes_back { expected.next_back() } else { expected.next() });
        }
        assert!(removed.next_back().is_none() && expected.next().is_none());
        ends_of(&map, &plain);
        view.remove(..).unwrap();
        ends_of(&map, &Plain::default());
        assert!(view.is_empty());
    }
}

/// Checks that an iterator yields the same items from both ends as from the front.
fn from_both_ends<I>(iter: impl Fn() -> I, random: &mut Random)
where
    I: DoubleEndedIterator<Item: PartialEq + std::fmt::Debug>,
{
    let all: Vec<_> = iter().collect();
    assert!(iter().rev().eq(iter().collect::<Vec<_>>().into_iter().rev()));
    let (mut mixed, mut front, mut back) = (iter(), Vec::new(), Vec::new());
    loop {
        let takes_back = random.below(2) == 0;
        let next = if takes_back { mixed.next_back() } else { mixed.next() };
        let Some(next) = next else { break };
        if takes_back { &mut back } else { &mut front }.push(next);
    }
    assert!(mixed.next().is_none() && mixed.next_back().is_none());
    front.extend(back.into_iter().rev());
    assert_eq!(front, all);
}

fn ends_of(map: &RangeMap<u32>, plain: &Plain) {
    let (view, all) = (map.enter(), plain.all());
    let copied = |end: Option<(RangeInclusive<u64>, &u32)>| end.map(|(keys, value)| (keys, *value));
    assert_eq!(copied(view.first()), all.first().cloned());
    assert_eq!(copied(view.last()), all.last().cloned());
    for (first, last) in plain.ranges.iter().map(|(first, (last, _))| (*first, *last)) {
        let middle = first + (last - first) / 2;
        let up_to = view.range(..=middle).unwrap().next_back().map(|(keys, _)| keys);
        assert_eq!(up_to, Some(first..=middle));
    }
}

fn gaps_of(plain: &Plain) -> Vec<RangeInclusive<u64>> {
    let mut gaps = Vec::new();
    let mut next = Some(0);
    for (first, (last, _)) in &plain.ranges {
        if let Some(start) = next.filter(|start| start < first) {
            gaps.push(start..=first - 1);
        }
        next = last.checked_add(1);
    }
    gaps.extend(next.map(|start| start..=u64::MAX));
    gaps
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn bad_ranges_are_named() {
    let map = RangeMap::new();
    let view = map.enter();
    assert_eq!(view.insert(7..7, 1), Err(RangeError::Empty { start: 7, end: 7 }));
    assert_eq!(view.insert(8..=7, 1), Err(RangeError::Empty { start: 8, end: 7 }));
    assert_eq!(view.insert(0..0, 1), Err(RangeError::Empty { start: 0, end: 0 }));
    view.insert(10..20, 1).unwrap();
    view.insert(20..30, 2).unwrap();
    let overlap = view.insert(5..=24, 3).unwrap_err();
    assert_eq!(overlap, RangeError::Overlap { range: 5..=24, taken: 10..=24 });
    assert_eq!(overlap.to_string(), "the range 0x5..=0x18 overlaps 0xa..=0x18");
    view.insert(u64::MAX..=u64::MAX, 4).unwrap();
    assert_eq!(view.get(u64::MAX), Some(&4));
    assert_eq!(view.replace(.., 5).unwrap().count(), 3);
    assert_eq!(view.get_range(77), Some((0..=u64::MAX, &5)));
    assert_eq!(view.remove(..).unwrap().count(), 1);
    assert_eq!(view.get(u64::MAX), None);
}
