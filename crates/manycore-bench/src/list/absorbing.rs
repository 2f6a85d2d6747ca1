//! The paper's global absorption (sections 5.2 and 7.3), as a kind of log: at the merge, an
//! addition and a removal of one element absorb each other.
//!
//! The paper's flag "already in the structure" is not needed. Additions and removals of one element
//! alternate, so the update that is left over has not been applied.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use manycore::{
    clock::Stamp,
    oplog::{Cancel, Log},
};

use super::{Element, ElementList, ListOp, paper};

/// Keeps every update with its stamp.
#[derive(Default)]
pub(super) struct Absorbing(Vec<(Stamp, ListOp)>);

impl Log<ElementList> for Absorbing {
    type Op = ListOp;
    const ORDERED: bool = true;

    #[inline(always)]
    fn apply(op: ListOp, list: &mut ElementList) {
        list.apply(op);
    }

    #[inline(always)]
    fn push(&mut self, op: ListOp, stamp: Stamp) {
        self.0.push((stamp, op));
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }

    fn collect(&mut self, cut: Stamp, into: &mut Self) {
        paper::collect(&mut self.0, cut, &mut into.0);
    }

    fn merge(logs: &mut [Self], list: &mut ElementList) -> usize {
        let mut left = absorbed(logs.iter_mut().flat_map(|log| log.0.drain(..)).collect());
        left.sort_by_key(|(stamp, _)| *stamp);
        let applied = left.len();
        left.into_iter().for_each(|(_, op)| list.apply(op));
        applied
    }
}

/// Returns the updates without pairs of opposite updates of one element.
fn absorbed(all: Vec<(Stamp, ListOp)>) -> Vec<(Stamp, ListOp)> {
    let mut cancelled = vec![false; all.len()];
    // By place: the place of another update with the same element and of the same kind.
    let mut others: Vec<Option<usize>> = Vec::with_capacity(all.len());
    let mut places: HashMap<Element, usize, RandomState> = HashMap::default();
    // Most pairs are adjacent, so the last element is kept out of the table.
    let mut last: Option<(Element, usize)> = None;
    for (place, (_, op)) in all.iter().enumerate() {
        let key = op.key();
        let found = match last.take() {
            Some((same, found)) if same == key => Some(found),
            another => {
                places.extend(another);
                places.remove(&key)
            }
        };
        others.push(found);
        last = match found {
            Some(found) if all[found].1.inserts() != op.inserts() => {
                (cancelled[found], cancelled[place]) = (true, true);
                others[found].map(|other| (key, other))
            }
            _ => Some((key, place)),
        };
    }
    let mut cancelled = cancelled.into_iter();
    all.into_iter().filter(|_| !cancelled.next().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elements are added and removed in random logs, some of them present before the batch.
    #[test]
    fn what_is_left_is_what_the_list_lacks() {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (seed >> 33) % below
        };
        for round in 0..300 {
            let before: Vec<Element> = (0..12).filter(|element| element % 3 == 0).collect();
            let mut model = before.clone();
            let mut all = Vec::new();
            for stamp in 1..=random(80) {
                let element = random(12) as Element;
                let op = if model.contains(&element) {
                    model.retain(|other| *other != element);
                    ListOp::Remove(element)
                } else {
                    model.push(element);
                    ListOp::Add(element)
                };
                all.push((random(4), Stamp::from_ticks(stamp), op));
            }
            all.sort_by_key(|(log, stamp, _)| (*log, *stamp));
            let mut left = absorbed(all.into_iter().map(|(_, stamp, op)| (stamp, op)).collect());
            left.sort_by_key(|(stamp, _)| *stamp);
            let mut list = before.clone();
            let applied = left.len();
            for (_, op) in left {
                match op {
                    ListOp::Add(element) => list.push(element),
                    ListOp::Remove(element) => list.retain(|other| *other != element),
                }
            }
            list.sort_unstable();
            model.sort_unstable();
            assert_eq!(list, model, "round {round}");
            let differs = |element: &Element| before.contains(element) != model.contains(element);
            let changed = (0..12).filter(differs);
            assert_eq!(applied, changed.count(), "round {round}: others are absorbed");
        }
    }
}
