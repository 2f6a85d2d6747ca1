//! Intervals by their beginnings, with the largest end below each: plain, sequential code.
//!
//! Owns: [`Tree`]. A treap: a search tree by (start, id) and a heap by priorities that are a hash
//! of the id, so that its depth is logarithmic whatever the order of the insertions. Nodes are
//! places in one vector. Source: R. Seidel, C. Aragon, *Randomized search trees*, 1996; the largest
//! ends after Cormen and others, *Introduction to Algorithms*, section 14.3.

use std::cmp::Ordering;
use std::ops::Range;

const NONE: u32 = u32::MAX;

struct Node<K, P> {
    range: Range<K>,
    /// The largest end in the subtree.
    reach: K,
    id: usize,
    priority: u64,
    left: u32,
    right: u32,
    payload: P,
}

/// See the module header. `P` is what belongs to an interval.
pub(super) struct Tree<K, P> {
    nodes: Vec<Option<Node<K, P>>>,
    free: Vec<u32>,
    root: u32,
    len: usize,
}

impl<K: Ord + Clone, P> Tree<K, P> {
    pub(super) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn node(&self, at: u32) -> &Node<K, P> {
        self.nodes[at as usize].as_ref().expect("a place in the tree has a node")
    }

    fn node_mut(&mut self, at: u32) -> &mut Node<K, P> {
        self.nodes[at as usize].as_mut().expect("a place in the tree has a node")
    }

    /// Adds an interval. No other has its id.
    pub(super) fn insert(&mut self, range: Range<K>, id: usize, payload: P) {
        let reach = range.end.clone();
        let priority = scatter(id);
        let node = Node { range, reach, id, priority, left: NONE, right: NONE, payload };
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.nodes.push(None);
                u32::try_from(self.nodes.len() - 1).expect("fewer than four billion intervals")
            }
        };
        self.nodes[at as usize] = Some(node);
        self.root = self.insert_below(self.root, at);
        self.len += 1;
    }

    fn insert_below(&mut self, root: u32, new: u32) -> u32 {
        if root == NONE {
            return new;
        }
        if self.node(new).priority > self.node(root).priority {
            let (left, right) = self.split(root, new);
            let node = self.node_mut(new);
            (node.left, node.right) = (left, right);
            self.update(new);
            return new;
        }
        if self.is_before(new, root) {
            let left = self.insert_below(self.node(root).left, new);
            self.node_mut(root).left = left;
        } else {
            let right = self.insert_below(self.node(root).right, new);
            self.node_mut(root).right = right;
        }
        self.update(root);
        root
    }

    fn is_before(&self, one: u32, other: u32) -> bool {
        let (one, other) = (self.node(one), self.node(other));
        one.range.start.cmp(&other.range.start).then(one.id.cmp(&other.id)) == Ordering::Less
    }

    /// Splits a subtree into what is before the node `at`, and what is after it.
    fn split(&mut self, root: u32, at: u32) -> (u32, u32) {
        if root == NONE {
            return (NONE, NONE);
        }
        if self.is_before(root, at) {
            let (left, right) = self.split(self.node(root).right, at);
            self.node_mut(root).right = left;
            self.update(root);
            (root, right)
        } else {
            let (left, right) = self.split(self.node(root).left, at);
            self.node_mut(root).left = right;
            self.update(root);
            (left, root)
        }
    }

    /// Joins two subtrees, all of the first before all of the second.
    fn join(&mut self, left: u32, right: u32) -> u32 {
        if left == NONE || right == NONE {
            return if left == NONE { right } else { left };
        }
        if self.node(left).priority > self.node(right).priority {
            let joined = self.join(self.node(left).right, right);
            self.node_mut(left).right = joined;
            self.update(left);
            left
        } else {
            let joined = self.join(left, self.node(right).left);
            self.node_mut(right).left = joined;
            self.update(right);
            right
        }
    }

    fn update(&mut self, at: u32) {
        let node = self.node(at);
        let below = [node.left, node.right].into_iter().filter(|child| *child != NONE);
        let reach = below.map(|child| &self.node(child).reach).chain([&node.range.end]).max();
        let reach = reach.expect("one of them is the node's own").clone();
        self.node_mut(at).reach = reach;
    }

    /// Takes an interval out, if it is there.
    pub(super) fn remove(&mut self, start: &K, id: usize) -> Option<P> {
        let mut found = NONE;
        self.root = self.remove_below(self.root, start, id, &mut found);
        let node = self.nodes.get_mut(found as usize)?.take()?;
        self.free.push(found);
        self.len -= 1;
        Some(node.payload)
    }

    fn remove_below(&mut self, root: u32, start: &K, id: usize, found: &mut u32) -> u32 {
        if root == NONE {
            return NONE;
        }
        let node = self.node(root);
        match start.cmp(&node.range.start).then(id.cmp(&node.id)) {
            Ordering::Equal => {
                *found = root;
                return self.join(node.left, node.right);
            }
            Ordering::Less => {
                let left = self.remove_below(node.left, start, id, found);
                self.node_mut(root).left = left;
            }
            Ordering::Greater => {
                let right = self.remove_below(node.right, start, id, found);
                self.node_mut(root).right = right;
            }
        }
        self.update(root);
        root
    }

    /// Calls `f` with every interval that has something in common with `range`, by their
    /// beginnings.
    pub(super) fn for_overlapping(&self, range: &Range<K>, f: &mut impl FnMut(&Range<K>, &P)) {
        if range.start < range.end {
            self.overlapping_below(self.root, range, f);
        }
    }

    fn overlapping_below(&self, root: u32, range: &Range<K>, f: &mut impl FnMut(&Range<K>, &P)) {
        if root == NONE || self.node(root).reach <= range.start {
            return;
        }
        let node = self.node(root);
        self.overlapping_below(node.left, range, f);
        if node.range.start < range.end {
            if node.range.end > range.start {
                f(&node.range, &node.payload);
            }
            self.overlapping_below(node.right, range, f);
        }
    }
}

impl<K, P> Tree<K, P> {
    /// Everything that belongs to an interval; the tree is of no use afterwards.
    pub(super) fn take_payloads(&mut self) -> impl Iterator<Item = P> {
        self.root = NONE;
        std::mem::take(&mut self.nodes).into_iter().flatten().map(|node| node.payload)
    }
}

/// Spreads ids, which are addresses, over all priorities (the finaliser of SplitMix64).
fn scatter(id: usize) -> u64 {
    let mut z = (id as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn depth<P>(tree: &Tree<u32, P>, at: u32) -> usize {
        if at == NONE {
            return 0;
        }
        let node = tree.node(at);
        1 + depth(tree, node.left).max(depth(tree, node.right))
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
            if next(3) > 0 {
                tree.insert(range.clone(), id, id);
                list.insert(id, range.clone());
            } else if let Some((old, range)) = list.iter().nth(next(8) as usize) {
                let (old, range) = (*old, range.clone());
                assert_eq!(tree.remove(&range.start, old), Some(old));
                assert_eq!(tree.remove(&range.start, old), None);
                list.remove(&old);
            }
            if next(20) == 0 {
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
        assert_eq!(tree.take_payloads().count(), list.len());
    }

    #[test]
    fn ordered_insertions_make_no_deep_tree() {
        let mut tree = Tree::new();
        (0..10_000).for_each(|at| tree.insert(at..at + 1, at as usize * 64, ()));
        let deep = depth(&tree, tree.root);
        assert!(deep < 60, "depth {deep} for 10,000 intervals");
        tree.for_overlapping(&(5..5), &mut |_, ()| panic!("an empty range overlaps nothing"));
    }
}
