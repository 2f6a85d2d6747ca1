//! Intervals by their beginnings, with the largest end below each branch: plain, sequential code.
//!
//! Owns: [`Tree`]. A B+ tree by (start, id). Its nodes are arrays, and what is looked at in search
//! of a place, is apart from what each change writes: the trees of a registry that many cores read
//! go from core to core line by line, so that few lines matter more than few comparisons.
//!
//! Laws:
//! - T1 The children of a branch have, in order, the keys below the first bound, from there to the
//!   next, and so on. A bound need not be the key of an interval that is still there.
//! - T2 A child's reach is the largest end of its intervals. No child is empty.
//! - T3 Two neighbours have more than half of what one could have, so that the depth is logarithmic
//!   whatever the order of insertions and removals.
//!
//! Source: R. Bayer, E. McCreight, *Organization and maintenance of large ordered indices*, 1972;
//! the largest ends after Cormen and others, *Introduction to Algorithms*, section 14.3.

use std::cmp::Ordering;
use std::ops::Range;

/// Intervals in a leaf, at most: with numbers as keys, some eight lines.
const LEAF: usize = 16;

/// Children of a branch, at most.
const BRANCH: usize = 32;

struct Interval<K, P> {
    range: Range<K>,
    id: usize,
    payload: P,
}

type Leaf<K, P> = Vec<Interval<K, P>>;

/// What is below a branch, all of one kind.
enum Below<K, P> {
    Leaves(Vec<Leaf<K, P>>),
    Branches(Vec<Branch<K, P>>),
}

struct Branch<K, P> {
    /// T1; one less than there are children.
    bounds: Vec<(K, usize)>,
    /// T2.
    reaches: Vec<K>,
    below: Below<K, P>,
}

/// See the module header. `P` is what belongs to an interval.
pub(super) struct Tree<K, P> {
    root: Branch<K, P>,
    len: usize,
}

/// What a branch that was full has given up: the bound before it, and the rest.
type Split<K, N> = ((K, usize), N);

impl<K: Ord + Clone, P> Interval<K, P> {
    fn compare(&self, start: &K, id: usize) -> Ordering {
        self.range.start.cmp(start).then(self.id.cmp(&id))
    }
}

/// The largest of some ends.
fn largest<'a, K: Ord + Clone + 'a>(mut ends: impl Iterator<Item = &'a K>) -> K {
    let first = ends.next().expect("T2: no child is empty");
    ends.fold(first, |most, end| if end > most { end } else { most }).clone()
}

/// Moves the second half of a full vector into a new one.
fn halve<N>(full: &mut Vec<N>) -> Vec<N> {
    full.split_off(full.len() / 2)
}

impl<K: Ord + Clone, P> Below<K, P> {
    fn len(&self) -> usize {
        match self {
            Self::Leaves(leaves) => leaves.len(),
            Self::Branches(branches) => branches.len(),
        }
    }

    fn len_of(&self, at: usize) -> usize {
        match self {
            Self::Leaves(leaves) => leaves[at].len(),
            Self::Branches(branches) => branches[at].below.len(),
        }
    }

    /// The most that one child holds.
    fn room(&self) -> usize {
        match self {
            Self::Leaves(_) => LEAF,
            Self::Branches(_) => BRANCH,
        }
    }

    fn reach_of(&self, at: usize) -> K {
        match self {
            Self::Leaves(leaves) => largest(leaves[at].iter().map(|own| &own.range.end)),
            Self::Branches(branches) => largest(branches[at].reaches.iter()),
        }
    }

    fn drop_child(&mut self, at: usize) {
        match self {
            Self::Leaves(leaves) => drop(leaves.remove(at)),
            Self::Branches(branches) => drop(branches.remove(at)),
        }
    }

    /// Moves all of the child behind `at` to its end; `bound` stood between them.
    fn join(&mut self, at: usize, bound: (K, usize)) {
        match self {
            Self::Leaves(leaves) => {
                let mut right = leaves.remove(at + 1);
                leaves[at].append(&mut right);
            }
            Self::Branches(branches) => {
                let right = branches.remove(at + 1);
                branches[at].append(bound, right);
            }
        }
    }
}

impl<K, P> Branch<K, P> {
    const fn new() -> Self {
        Self { bounds: Vec::new(), reaches: Vec::new(), below: Below::Leaves(Vec::new()) }
    }
}

impl<K: Ord + Clone, P> Branch<K, P> {
    /// The child that has, or would have, this key.
    fn child_of(&self, start: &K, id: usize) -> usize {
        self.bounds.partition_point(|bound| (&bound.0, bound.1) <= (start, id))
    }

    /// Adds an interval; gives up the second half of itself if it is full then.
    fn insert(&mut self, new: Interval<K, P>) -> Option<Split<K, Self>> {
        let at = self.child_of(&new.range.start, new.id);
        match self.reaches.get_mut(at) {
            Some(reach) if *reach >= new.range.end => {}
            Some(reach) => *reach = new.range.end.clone(),
            None => self.reaches.push(new.range.end.clone()), // the tree was empty
        }
        let bound = match &mut self.below {
            Below::Leaves(leaves) => insert_into_leaf(leaves, at, new),
            Below::Branches(branches) => branches[at].insert(new).map(|(bound, right)| {
                branches.insert(at + 1, right);
                bound
            }),
        }?;
        self.bounds.insert(at, bound);
        self.reaches[at] = self.below.reach_of(at);
        self.reaches.insert(at + 1, self.below.reach_of(at + 1));
        (self.below.len() == BRANCH).then(|| self.split())
    }

    fn split(&mut self) -> Split<K, Self> {
        let reaches = halve(&mut self.reaches);
        let below = match &mut self.below {
            Below::Leaves(leaves) => Below::Leaves(halve(leaves)),
            Below::Branches(branches) => Below::Branches(halve(branches)),
        };
        let bounds = self.bounds.split_off(self.reaches.len());
        let bound = self.bounds.pop().expect("a bound stands between the halves");
        (bound, Self { bounds, reaches, below })
    }

    /// The opposite of [`split`](Self::split).
    fn append(&mut self, bound: (K, usize), mut right: Self) {
        self.bounds.push(bound);
        self.bounds.append(&mut right.bounds);
        self.reaches.append(&mut right.reaches);
        match (&mut self.below, &mut right.below) {
            (Below::Leaves(own), Below::Leaves(rest)) => own.append(rest),
            (Below::Branches(own), Below::Branches(rest)) => own.append(rest),
            _ => unreachable!("all leaves are equally deep"),
        }
    }

    /// Takes an interval out, if it is there.
    fn remove(&mut self, start: &K, id: usize) -> Option<Interval<K, P>> {
        let at = self.child_of(start, id);
        let removed = match &mut self.below {
            Below::Leaves(leaves) => {
                let leaf = leaves.get_mut(at)?;
                let place = leaf.binary_search_by(|own| own.compare(start, id)).ok()?;
                leaf.remove(place)
            }
            Below::Branches(branches) => branches[at].remove(start, id)?,
        };
        if self.below.len_of(at) == 0 {
            self.drop_child(at);
        } else {
            if removed.range.end >= self.reaches[at] {
                let reach = self.below.reach_of(at);
                if reach != self.reaches[at] {
                    self.reaches[at] = reach;
                }
            }
            self.join_neighbours(at);
        }
        Some(removed)
    }

    fn drop_child(&mut self, at: usize) {
        self.below.drop_child(at);
        self.reaches.remove(at);
        if !self.bounds.is_empty() {
            self.bounds.remove(at.saturating_sub(1));
        }
    }

    /// Sees to T3 for a child that got smaller.
    fn join_neighbours(&mut self, at: usize) {
        let half = self.below.room() / 2;
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            let fits = left + 1 < self.below.len()
                && self.below.len_of(left) + self.below.len_of(left + 1) <= half;
            if fits {
                let bound = self.bounds.remove(left);
                self.below.join(left, bound);
                let reach = self.reaches.remove(left + 1);
                if reach > self.reaches[left] {
                    self.reaches[left] = reach;
                }
            }
        }
    }

    fn for_overlapping(&self, range: &Range<K>, f: &mut impl FnMut(&Range<K>, &P)) {
        for (at, reach) in self.reaches.iter().enumerate() {
            if at > 0 && self.bounds[at - 1].0 >= range.end {
                return;
            }
            if *reach <= range.start {
                continue;
            }
            match &self.below {
                Below::Branches(branches) => branches[at].for_overlapping(range, f),
                Below::Leaves(leaves) => {
                    let first = |own: &&Interval<K, P>| own.range.start < range.end;
                    leaves[at]
                        .iter()
                        .take_while(first)
                        .filter(|own| own.range.end > range.start)
                        .for_each(|own| f(&own.range, &own.payload));
                }
            }
        }
    }
}

/// Adds an interval to a leaf; the bound before the one that was split off, if that was needed.
fn insert_into_leaf<K: Ord + Clone, P>(
    leaves: &mut Vec<Leaf<K, P>>,
    at: usize,
    new: Interval<K, P>,
) -> Option<(K, usize)> {
    let Some(leaf) = leaves.get_mut(at) else {
        leaves.push(vec![new]);
        return None;
    };
    let place = leaf.partition_point(|own| own.compare(&new.range.start, new.id).is_lt());
    leaf.insert(place, new);
    if leaf.len() < LEAF {
        return None;
    }
    let right = halve(leaf);
    let bound = (right[0].range.start.clone(), right[0].id);
    leaves.insert(at + 1, right);
    Some(bound)
}

impl<K: Ord + Clone, P> Tree<K, P> {
    pub(super) const fn new() -> Self {
        Self { root: Branch::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an interval. No other has its id.
    pub(super) fn insert(&mut self, range: Range<K>, id: usize, payload: P) {
        self.len += 1;
        if let Some((bound, right)) = self.root.insert(Interval { range, id, payload }) {
            let left = std::mem::replace(&mut self.root, Branch::new());
            self.root.reaches = vec![largest(left.reaches.iter()), largest(right.reaches.iter())];
            self.root.bounds = vec![bound];
            self.root.below = Below::Branches(vec![left, right]);
        }
    }

    /// Takes an interval out, if it is there.
    pub(super) fn remove(&mut self, start: &K, id: usize) -> Option<P> {
        let removed = self.root.remove(start, id)?;
        self.len -= 1;
        while let Below::Branches(branches) = &mut self.root.below {
            if branches.len() > 1 {
                break;
            }
            self.root = branches.pop().unwrap_or_else(Branch::new);
        }
        Some(removed.payload)
    }

    /// Calls `f` with every interval that has something in common with `range`, by their
    /// beginnings.
    pub(super) fn for_overlapping(&self, range: &Range<K>, f: &mut impl FnMut(&Range<K>, &P)) {
        if range.start < range.end {
            self.root.for_overlapping(range, f);
        }
    }
}

impl<K, P> Tree<K, P> {
    /// Everything that belongs to an interval; the tree is empty afterwards.
    pub(super) fn take_payloads(&mut self) -> Vec<P> {
        fn take<K, P>(branch: Branch<K, P>, payloads: &mut Vec<P>) {
            match branch.below {
                Below::Leaves(leaves) => {
                    payloads.extend(leaves.into_iter().flatten().map(|own| own.payload));
                }
                Below::Branches(below) => below.into_iter().for_each(|own| take(own, payloads)),
            }
        }
        let mut payloads = Vec::with_capacity(self.len);
        self.len = 0;
        take(std::mem::replace(&mut self.root, Branch::new()), &mut payloads);
        payloads
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Checks T1 to T3 below a branch; its depth.
    fn check<P>(branch: &Branch<u32, P>, keys: Range<Option<(u32, usize)>>) -> usize {
        let own = &branch.below;
        assert_eq!((own.len(), own.len()), (branch.reaches.len(), branch.bounds.len() + 1));
        let mut depth = 0;
        for at in 0..own.len() {
            let from = if at == 0 { keys.start } else { Some(branch.bounds[at - 1]) };
            let to = branch.bounds.get(at).copied().or(keys.end);
            assert_eq!(branch.reaches[at], own.reach_of(at), "T2");
            assert!((1..own.room()).contains(&own.len_of(at)), "T2, or too full");
            let behind = if at + 1 < own.len() { own.len_of(at + 1) } else { own.room() };
            assert!(own.len_of(at) + behind > own.room() / 2, "T3");
            depth = 1 + match own {
                Below::Branches(branches) => check(&branches[at], from..to),
                Below::Leaves(leaves) => {
                    let keys = leaves[at].iter().map(|own| Some((own.range.start, own.id)));
                    assert!(
                        keys.clone().all(|key| key >= from && (to.is_none() || key < to)),
                        "T1"
                    );
                    assert!(keys.is_sorted());
                    0
                }
            };
        }
        depth
    }

    fn depth<P>(tree: &Tree<u32, P>) -> usize {
        if tree.len() == 0 { 0 } else { check(&tree.root, None..None) }
    }

    /// Random insertions, removals and questions, beside a list of all intervals.
    #[test]
    fn tree_answers_like_a_list() {
        let mut tree = Tree::new();
        let mut list = BTreeMap::new();
        let mut random = 0x9E37_79B9_u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        for id in 0..20_000_usize {
            let start = next(1000);
            let range = start..start + 1 + next(50);
            // Grows to some thousands, and shrinks to nothing.
            if next(3) > if id < 12_000 { 0 } else { 1 + u32::from(id > 14_000) } {
                tree.insert(range.clone(), id, id);
                list.insert(id, range.clone());
            } else if let Some((old, range)) = list.iter().nth(next(8) as usize) {
                let (old, range) = (*old, range.clone());
                assert_eq!(tree.remove(&range.start, old), Some(old));
                assert_eq!(tree.remove(&range.start, old), None);
                list.remove(&old);
            }
            if next(20) == 0 {
                depth(&tree);
                let mut seen = Vec::new();
                tree.for_overlapping(&range, &mut |_, id| seen.push(*id));
                seen.sort_unstable();
                let all = list.iter();
                let touch = |own: &Range<u32>| own.start < range.end && range.start < own.end;
                let expected: Vec<_> =
                    all.filter(|(_, own)| touch(own)).map(|(id, _)| *id).collect();
                assert_eq!(seen, expected, "{range:?}");
            }
        }
        assert_eq!(tree.len(), list.len());
        assert_eq!(tree.take_payloads().len(), list.len());
    }

    #[test]
    fn ordered_insertions_make_no_deep_tree() {
        let mut tree = Tree::new();
        (0..10_000).for_each(|at| tree.insert(at..at + 1, at as usize * 64, ()));
        let deep = depth(&tree);
        assert!(deep < 5, "depth {deep} for 10,000 intervals");
        (0..9_990).for_each(|at| assert!(tree.remove(&at, at as usize * 64).is_some()));
        assert_eq!(depth(&tree), 1, "for 10 intervals");
        tree.for_overlapping(&(5..5), &mut |_, ()| panic!("an empty range overlaps nothing"));
    }
}
