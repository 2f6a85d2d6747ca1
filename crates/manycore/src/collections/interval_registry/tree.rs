//! Intervals by their starts, with the largest end below each branch: plain, sequential code.
//!
//! Owns: [`Tree`]. A B+ tree by (start, id). Its nodes are arrays. The parts that a search reads
//! are apart from the parts that each change writes. If many cores read a registry, its tree moves
//! from core to core line by line, so few lines matter more than few comparisons.
//!
//! Laws:
//! - interval_registry_tree.T1 The children of a branch have, in order, the keys below the first
//!   bound, from there to the next bound, and so on. A bound need not be the key of an interval
//!   that is still there.
//! - interval_registry_tree.T2 A child's reach is the largest end of its intervals, or more. No
//!   child is empty.
//! - interval_registry_tree.T3 Two neighbours together have more than half of what one child can
//!   hold. So the depth is logarithmic whatever the order of insertions and removals.
//! - interval_registry_tree.T4 The key's `Ord`, `Clone` and `Drop` may panic, or contradict
//!   themselves, and no interval is lost. Calls of user code come before the changes of a node.
//!   Intervals that a panic kept out of the tree go to `strays`. An interval that is not where its
//!   start says is found by its id. A panic is kept for a reader. (interval_registry_tree.T1 to
//!   interval_registry_tree.T3 hold for keys with a consistent order. With other keys, queries find
//!   what the order leads to.)
//!
//! Source: R. Bayer, E. McCreight, *Organization and maintenance of large ordered indices*, 1972;
//! the largest ends after Cormen and others, *Introduction to Algorithms*, section 14.3.

use crate::collections::deferred_drops::DeferredDrops;
use std::any::Any;
use std::cmp::Ordering;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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

/// Children of a branch, all of one kind.
enum Below<K, P> {
    Leaves(Vec<Leaf<K, P>>),
    Branches(Vec<Branch<K, P>>),
}

struct Branch<K, P> {
    /// Bounds between the children (interval_registry_tree.T1): one fewer than there are children.
    bounds: Vec<(K, usize)>,
    /// Reaches of the children (interval_registry_tree.T2).
    reaches: Vec<K>,
    below: Below<K, P>,
}

/// A payload of an interval, which knows the interval's range.
pub(super) trait Ranged<K> {
    fn range(&self) -> &Range<K>;
}

/// The first panic of user code, kept for a reader (interval_registry_tree.T4).
pub(super) type Panics = Arc<DeferredDrops<Box<dyn Any + Send>>>;

/// See the module header. `P` is the payload of an interval.
pub(super) struct Tree<K, P> {
    root: Branch<K, P>,
    /// Intervals, by id, that were not put into the tree because user code panicked
    /// (interval_registry_tree.T4).
    strays: Vec<(usize, P)>,
    len: usize,
    panics: Panics,
}

/// The parts that a removal takes out. The keys are dropped once the tree is in order.
struct Removed<K, P> {
    interval: Option<Interval<K, P>>,
    keys: Vec<K>,
}

impl<K: Ord + Clone, P> Interval<K, P> {
    fn compare(&self, start: &K, id: usize) -> Ordering {
        self.range.start.cmp(start).then(self.id.cmp(&id))
    }
}

/// Returns the largest of the ends.
fn largest<'a, K: Ord + Clone + 'a>(mut ends: impl Iterator<Item = &'a K>) -> K {
    let first = ends.next().expect("interval_registry_tree.T2: no child is empty");
    ends.fold(first, |most, end| if end > most { end } else { most }).clone()
}

/// Moves the second half of a full vector into a new one.
fn halve<N>(full: &mut Vec<N>) -> Vec<N> {
    full.split_off(full.len() / 2)
}

impl<K, P> Removed<K, P> {
    const fn nothing() -> Self {
        Self { interval: None, keys: Vec::new() }
    }
}

impl<K, P> Below<K, P> {
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

    /// Returns the most entries that a child may hold.
    fn room(&self) -> usize {
        match self {
            Self::Leaves(_) => LEAF,
            Self::Branches(_) => BRANCH,
        }
    }

    /// Drops an empty child.
    fn drop_child(&mut self, at: usize) {
        match self {
            Self::Leaves(leaves) => drop(leaves.remove(at)),
            Self::Branches(branches) => drop(branches.remove(at)),
        }
    }

    /// Appends all of the child after `at` to child `at`. `bound` stood between them; its key comes
    /// back if the joined child does not need it.
    fn join(&mut self, at: usize, bound: (K, usize)) -> Option<K> {
        match self {
            Self::Leaves(leaves) => {
                let mut right = leaves.remove(at + 1);
                leaves[at].append(&mut right);
                Some(bound.0)
            }
            Self::Branches(branches) => {
                let right = branches.remove(at + 1);
                branches[at].append(bound, right);
                None
            }
        }
    }
}

impl<K: Ord + Clone, P> Below<K, P> {
    fn reach_of(&self, at: usize) -> K {
        self.reach_in(at, 0..self.len_of(at))
    }

    /// Returns the largest end in a part of a child.
    fn reach_in(&self, at: usize, part: Range<usize>) -> K {
        match self {
            Self::Leaves(leaves) => largest(leaves[at][part].iter().map(|own| &own.range.end)),
            Self::Branches(branches) => largest(branches[at].reaches[part].iter()),
        }
    }
}

impl<K, P> Branch<K, P> {
    const fn new() -> Self {
        Self { bounds: Vec::new(), reaches: Vec::new(), below: Below::Leaves(Vec::new()) }
    }

    /// Splits off the second half, and returns it with the bound before it.
    fn split(&mut self) -> ((K, usize), Self) {
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

    fn drop_child(&mut self, at: usize, keys: &mut Vec<K>) {
        self.below.drop_child(at);
        keys.push(self.reaches.remove(at));
        if !self.bounds.is_empty() {
            keys.push(self.bounds.remove(at.saturating_sub(1)).0);
        }
    }

    /// Takes out the interval with this id, wherever it is (interval_registry_tree.T4).
    fn remove_anywhere(&mut self, id: usize, removed: &mut Removed<K, P>) {
        for at in 0..self.below.len() {
            match &mut self.below {
                Below::Leaves(leaves) => {
                    let place = leaves[at].iter().position(|own| own.id == id);
                    removed.interval = place.map(|place| leaves[at].remove(place));
                }
                Below::Branches(branches) => branches[at].remove_anywhere(id, removed),
            }
            if removed.interval.is_some() {
                if self.below.len_of(at) == 0 {
                    self.drop_child(at, &mut removed.keys);
                }
                return;
            }
        }
    }
}

impl<K: Ord + Clone, P> Branch<K, P> {
    /// Returns the index of the child that has, or would have, this key.
    fn child_of(&self, start: &K, id: usize) -> usize {
        self.bounds.partition_point(|bound| (&bound.0, bound.1) <= (start, id))
    }

    /// Adds an interval, and takes its payload once it is added. The branch may be full then.
    fn insert(&mut self, range: Range<K>, id: usize, payload: &mut Option<P>) {
        let at = self.child_of(&range.start, id);
        match self.reaches.get_mut(at) {
            Some(reach) if *reach >= range.end => {}
            Some(reach) => *reach = range.end.clone(),
            None => self.reaches.push(range.end.clone()), // the tree was empty
        }
        match &mut self.below {
            Below::Leaves(leaves) => insert_into_leaf(leaves, at, range, id, payload),
            Below::Branches(branches) => branches[at].insert(range, id, payload),
        }
        if self.below.len_of(at) >= self.below.room() {
            self.split_child(at);
        }
    }

    /// Splits a child in two.
    fn split_child(&mut self, at: usize) {
        let len = self.below.len_of(at);
        // User code is called first (interval_registry_tree.T4). If it panics, the child is too
        // full for a while.
        let half = len / 2;
        let left = self.below.reach_in(at, 0..half);
        let right = self.below.reach_in(at, half..len);
        let bound = match &mut self.below {
            Below::Leaves(leaves) => {
                let bound = (leaves[at][half].range.start.clone(), leaves[at][half].id);
                let second = halve(&mut leaves[at]);
                leaves.insert(at + 1, second);
                bound
            }
            Below::Branches(branches) => {
                let (bound, second) = branches[at].split();
                branches.insert(at + 1, second);
                bound
            }
        };
        self.bounds.insert(at, bound);
        self.reaches.insert(at + 1, right);
        self.reaches[at] = left;
    }

    /// Takes an interval out, if it is where its start says.
    fn remove(&mut self, start: &K, id: usize, removed: &mut Removed<K, P>) {
        let at = self.child_of(start, id);
        match &mut self.below {
            Below::Leaves(leaves) => {
                let Some(leaf) = leaves.get_mut(at) else { return };
                let place = leaf.binary_search_by(|own| own.compare(start, id)).ok();
                removed.interval = place.map(|place| leaf.remove(place));
            }
            Below::Branches(branches) => branches[at].remove(start, id, removed),
        }
        let Some(interval) = &removed.interval else { return };
        if self.below.len_of(at) == 0 {
            self.drop_child(at, &mut removed.keys);
            return;
        }
        if interval.range.end >= self.reaches[at] {
            let reach = self.below.reach_of(at);
            if reach != self.reaches[at] {
                self.reaches[at] = reach;
            }
        }
        self.join_neighbours(at, &mut removed.keys);
    }

    /// Restores interval_registry_tree.T3 for a child that got smaller.
    fn join_neighbours(&mut self, at: usize, keys: &mut Vec<K>) {
        let half = self.below.room() / 2;
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            let fits = left + 1 < self.below.len()
                && self.below.len_of(left) + self.below.len_of(left + 1) <= half;
            if fits {
                // User code is called first (interval_registry_tree.T4).
                let is_larger = self.reaches[left + 1] > self.reaches[left];
                let bound = self.bounds.remove(left);
                keys.extend(self.below.join(left, bound));
                if is_larger {
                    self.reaches.swap(left, left + 1);
                }
                keys.push(self.reaches.remove(left + 1));
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

/// Adds an interval to a leaf, or makes the first leaf.
fn insert_into_leaf<K: Ord + Clone, P>(
    leaves: &mut Vec<Leaf<K, P>>,
    at: usize,
    range: Range<K>,
    id: usize,
    payload: &mut Option<P>,
) {
    let place = leaves
        .get(at)
        .map_or(0, |leaf| leaf.partition_point(|own| own.compare(&range.start, id).is_lt()));
    if leaves.is_empty() {
        leaves.push(Leaf::new());
    }
    leaves[at].extend(payload.take().map(|payload| Interval { range, id, payload }));
    leaves[at][place..].rotate_right(1);
}

impl<K: Ord + Clone, P: Ranged<K>> Tree<K, P> {
    pub(super) const fn new(panics: Panics) -> Self {
        Self { root: Branch::new(), strays: Vec::new(), len: 0, panics }
    }

    /// Runs `f`, which calls user code. Keeps its panic for a reader (interval_registry_tree.T4).
    fn guarded(&mut self, f: impl FnOnce(&mut Branch<K, P>)) {
        let root = &mut self.root;
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(root))) else { return };
        let mut panics = self.panics.lock();
        if panics.is_empty() {
            panics.push(panic);
            self.panics.note(true);
        }
    }

    /// Adds an interval. No other interval has its id.
    pub(super) fn insert(&mut self, id: usize, payload: P) {
        self.len += 1;
        let mut payload = Some(payload);
        self.guarded(|root| {
            let range = payload.as_ref().expect("not taken yet").range().clone();
            root.insert(range, id, &mut payload);
        });
        self.strays.extend(payload.map(|payload| (id, payload)));
        if self.root.below.len() >= BRANCH {
            self.guarded(|root| {
                let reach = largest(root.reaches.iter());
                let old = std::mem::replace(root, Branch::new());
                root.reaches.push(reach);
                root.below = Below::Branches(vec![old]);
                root.split_child(0);
            });
        }
    }

    /// Takes an interval out, if it is there. Takes logarithmic time if its start is known.
    pub(super) fn remove(&mut self, start: Option<&K>, id: usize) -> Option<P> {
        let mut removed = Removed::nothing();
        if let Some(start) = start {
            self.guarded(|root| root.remove(start, id, &mut removed));
        }
        let payload = match removed.interval.take() {
            Some(Interval { range, payload, .. }) => {
                removed.keys.extend([range.start, range.end]);
                payload
            }
            None => self.remove_stray(id, &mut removed)?,
        };
        self.len -= 1;
        while let Below::Branches(branches) = &mut self.root.below {
            if branches.len() > 1 {
                break;
            }
            let only = branches.pop().unwrap_or_else(Branch::new);
            removed.keys.append(&mut self.root.reaches);
            self.root = only;
        }
        self.guarded(|_| drop(removed));
        Some(payload)
    }

    /// Takes out an interval that was not where its start says.
    #[cold]
    fn remove_stray(&mut self, id: usize, removed: &mut Removed<K, P>) -> Option<P> {
        if let Some(at) = self.strays.iter().position(|(own, _)| *own == id) {
            return Some(self.strays.swap_remove(at).1);
        }
        self.root.remove_anywhere(id, removed);
        let Interval { range, payload, .. } = removed.interval.take()?;
        removed.keys.extend([range.start, range.end]);
        Some(payload)
    }

    /// Calls `f` with every interval that overlaps `range`, in the order of their starts, then the
    /// strays.
    pub(super) fn for_overlapping(&self, range: &Range<K>, f: &mut impl FnMut(&Range<K>, &P)) {
        if range.start < range.end {
            self.root.for_overlapping(range, f);
            for (_, stray) in &self.strays {
                let own = stray.range();
                if own.start < range.end && own.end > range.start {
                    f(own, stray);
                }
            }
        }
    }
}

impl<K, P> Tree<K, P> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the payloads of all intervals.
    pub(super) fn payloads(&self) -> Vec<&P> {
        fn gather<'a, K, P>(branch: &'a Branch<K, P>, payloads: &mut Vec<&'a P>) {
            match &branch.below {
                Below::Leaves(leaves) => {
                    payloads.extend(leaves.iter().flatten().map(|own| &own.payload));
                }
                Below::Branches(below) => below.iter().for_each(|own| gather(own, payloads)),
            }
        }
        let mut payloads: Vec<_> = self.strays.iter().map(|(_, payload)| payload).collect();
        gather(&self.root, &mut payloads);
        payloads
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::config::SMALL;
    use std::collections::BTreeMap;

    impl<T> Ranged<u32> for (Range<u32>, T) {
        fn range(&self) -> &Range<u32> {
            &self.0
        }
    }

    fn tree<T>() -> Tree<u32, (Range<u32>, T)> {
        Tree::new(Arc::new(DeferredDrops::new()))
    }

    /// Checks interval_registry_tree.T1 to interval_registry_tree.T3 below a branch. Returns its
    /// depth.
    fn check<P>(branch: &Branch<u32, P>, keys: Range<Option<(u32, usize)>>) -> usize {
        let own = &branch.below;
        assert_eq!((own.len(), own.len()), (branch.reaches.len(), branch.bounds.len() + 1));
        let mut depth = 0;
        for at in 0..own.len() {
            let from = if at == 0 { keys.start } else { Some(branch.bounds[at - 1]) };
            let to = branch.bounds.get(at).copied().or(keys.end);
            assert_eq!(branch.reaches[at], own.reach_of(at), "interval_registry_tree.T2");
            assert!(
                (1..own.room()).contains(&own.len_of(at)),
                "interval_registry_tree.T2, or too full"
            );
            let behind = if at + 1 < own.len() { own.len_of(at + 1) } else { own.room() };
            assert!(own.len_of(at) + behind > own.room() / 2, "interval_registry_tree.T3");
            depth = 1 + match own {
                Below::Branches(branches) => check(&branches[at], from..to),
                Below::Leaves(leaves) => {
                    let keys = leaves[at].iter().map(|own| Some((own.range.start, own.id)));
                    assert!(
                        keys.clone().all(|key| key >= from && (to.is_none() || key < to)),
                        "interval_registry_tree.T1"
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

    /// Random insertions, removals and queries, compared with a list of all intervals.
    #[test]
    fn tree_answers_like_a_list() {
        let mut tree = tree();
        let mut list = BTreeMap::new();
        let mut random = 0x9E37_79B9_u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let (grown, steps) = if SMALL { (240, 400_usize) } else { (12_000, 20_000) };
        for id in 0..steps {
            let start = next(1000);
            let range = start..start + 1 + next(50);
            // Grows to some thousands, and shrinks to nothing.
            if next(3) > if id < grown { 0 } else { 1 + u32::from(id > grown + steps / 10) } {
                tree.insert(id, (range.clone(), id));
                list.insert(id, range.clone());
            } else if let Some((old, range)) = list.iter().nth(next(8) as usize) {
                let (old, range) = (*old, range.clone());
                let mut remove = || tree.remove(Some(&range.start), old).map(|(_, id)| id);
                assert_eq!((remove(), remove()), (Some(old), None));
                list.remove(&old);
            }
            if next(20) == 0 {
                depth(&tree);
                let mut seen = Vec::new();
                tree.for_overlapping(&range, &mut |_, (_, id)| seen.push(*id));
                seen.sort_unstable();
                let all = list.iter();
                let touch = |own: &Range<u32>| own.start < range.end && range.start < own.end;
                let expected: Vec<_> =
                    all.filter(|(_, own)| touch(own)).map(|(id, _)| *id).collect();
                assert_eq!(seen, expected, "{range:?}");
            }
        }
        assert_eq!(tree.len(), list.len());
        assert_eq!(tree.payloads().len(), list.len());
    }

    /// interval_registry_tree.T4: removes intervals by their ids, wherever they are, and keeps the
    /// rest in order.
    #[test]
    fn interval_with_a_wrong_start_is_found() {
        let mut tree = tree();
        (0..2000).for_each(|at| tree.insert(at as usize, (at..at + 2, ())));
        for at in (0..2000).filter(|at| at % 3 > 0) {
            let start = [None, Some(at + 1), Some(0)][at as usize % 3];
            assert!(
                tree.remove(start.as_ref(), at as usize)
                    .is_some_and(|(range, ())| range.start == at)
            );
            assert!(tree.remove(start.as_ref(), at as usize).is_none());
        }
        let mut seen = Vec::new();
        tree.for_overlapping(&(0..3000), &mut |range, _| seen.push(range.start));
        assert!(seen.into_iter().eq((0..2000).step_by(3)));
        (0..2000).step_by(3).for_each(|at| assert!(tree.remove(Some(&at), at as usize).is_some()));
        assert_eq!((tree.len(), tree.root.below.len()), (0, 0));
    }

    #[test]
    fn ordered_insertions_make_no_deep_tree() {
        let mut tree = tree();
        let all = if SMALL { 500 } else { 10_000 };
        (0..all).for_each(|at| tree.insert(at as usize * 64, (at..at + 1, ())));
        let deep = depth(&tree);
        assert!(deep < 5, "depth {deep} for {all} intervals");
        (0..all - 10).for_each(|at| assert!(tree.remove(Some(&at), at as usize * 64).is_some()));
        assert_eq!(depth(&tree), 1, "for 10 intervals");
        tree.for_overlapping(&(5..5), &mut |_, _| panic!("an empty range overlaps nothing"));
    }
}
