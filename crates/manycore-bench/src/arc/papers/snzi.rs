//! SNZI (Ellen, Lev, Luchangco and Moir, PODC 2007): it tells whether there are references, but not
//! how many.
//!
//! It is a tree of counts. A thread arrives at its leaf. Only the first arrival at a node continues
//! to the parent, and only the last departure does. Threads of different leaves therefore meet at
//! the root only when a leaf's count leaves or returns to zero. A node whose first arrival is under
//! way has half an arrival. Other threads complete it; a thread that did so in vain takes back its
//! arrivals at the parent. The root has a separate indicator of whether its count is above zero.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use crossbeam_utils::CachePadded;

use super::super::{CountedHandle, CountedImpl, Value};

/// Leaves, which threads take in turn.
const LEAVES: usize = 64;
/// Children of a node.
const FAN_OUT: usize = 8;

/// A count in halves, and a version above it: of a node, and of the root, whose lowest bit says
/// that
/// its indicator is still to be set.
type Word = CachePadded<AtomicU64>;

const VERSION: u64 = 1 << 32;
const COUNT: u64 = VERSION - 1;
const ONE: u64 = 2;
const HALF: u64 = 1;

fn count(word: u64) -> u64 {
    word & COUNT
}

fn swapped(word: &AtomicU64, old: u64, new: u64) -> bool {
    // ORDER: SeqCst; as in the paper, where all steps have one order.
    word.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
}

/// The nodes of all levels, the root first; the parent of node `n` is `(n - 1) / FAN_OUT`.
struct Tree {
    nodes: Box<[Word]>,
    /// Whether there are references, and a version above.
    indicator: Word,
}

impl Tree {
    const FIRST_LEAF: usize = 1 + FAN_OUT;

    fn new() -> Self {
        let nodes = (0..Self::FIRST_LEAF + LEAVES).map(|_| Word::default()).collect();
        Self { nodes, indicator: Word::default() }
    }

    fn arrive(&self, node: usize) {
        if node == 0 {
            return self.arrive_at_root();
        }
        let (word, parent) = (&self.nodes[node], (node - 1) / FAN_OUT);
        let (mut has_arrived, mut too_often) = (false, 0);
        while !has_arrived {
            let mut found = word.load(SeqCst);
            if count(found) >= ONE {
                has_arrived = swapped(word, found, found + ONE);
            }
            if count(found) == 0 && swapped(word, found, found + VERSION + HALF) {
                (has_arrived, found) = (true, found + VERSION + HALF);
            }
            if count(found) == HALF {
                self.arrive(parent);
                too_often += u32::from(!swapped(word, found, found - HALF + ONE));
            }
        }
        (0..too_often).for_each(|_| self.depart(parent));
    }

    fn depart(&self, node: usize) {
        if node == 0 {
            return self.depart_from_root();
        }
        let word = &self.nodes[node];
        loop {
            let found = word.load(SeqCst);
            if swapped(word, found, found - ONE) {
                if count(found) == ONE {
                    self.depart((node - 1) / FAN_OUT);
                }
                return;
            }
        }
    }

    fn arrive_at_root(&self) {
        let root = &self.nodes[0];
        let new = loop {
            let found = root.load(SeqCst);
            let new = if count(found) < ONE { found + VERSION + ONE + HALF } else { found + ONE };
            if swapped(root, found, new) {
                break new;
            }
        };
        if new & HALF != 0 {
            self.indicate(true);
            // The mark goes, unless another thread has seen to that.
            swapped(root, new, new - HALF);
        }
    }

    fn depart_from_root(&self) {
        let root = &self.nodes[0];
        let found = loop {
            let found = root.load(SeqCst);
            if swapped(root, found, (found & !HALF) - ONE) {
                break found;
            }
        };
        if count(found & !HALF) > ONE {
            return;
        }
        loop {
            let seen = self.indicator.load(SeqCst);
            if root.load(SeqCst) >> 32 != found >> 32 {
                return; // an arrival came, whose indicator is to stay
            }
            if swapped(&self.indicator, seen, (seen & !1) + 2) {
                return;
            }
        }
    }

    /// A store that a departure's swap of the indicator fails after, whatever was there.
    fn indicate(&self, is_any: bool) {
        loop {
            let seen = self.indicator.load(SeqCst);
            if swapped(&self.indicator, seen, (seen & !1) + 2 + u64::from(is_any)) {
                return;
            }
        }
    }

    /// Whether there are references.
    fn query(&self) -> bool {
        self.indicator.load(SeqCst) & 1 == 1
    }
}

/// A value with such a tree.
pub(in super::super) struct Snzi {
    value: Value,
    tree: Tree,
    next: AtomicUsize,
}

/// A thread's reference.
pub(in super::super) struct SnziHandle<'a> {
    counted: &'a Snzi,
    leaf: usize,
}

impl CountedImpl for Snzi {
    type Handle<'a> = SnziHandle<'a>;

    fn new(value: Value) -> Self {
        Self { value, tree: Tree::new(), next: AtomicUsize::new(0) }
    }

    fn handle(&self) -> SnziHandle<'_> {
        let leaf = Tree::FIRST_LEAF + self.next.fetch_add(1, SeqCst) % LEAVES;
        self.tree.arrive(leaf);
        SnziHandle { counted: self, leaf }
    }
}

impl Drop for Snzi {
    fn drop(&mut self) {
        assert!(!self.tree.query(), "a reference was lost");
    }
}

impl CountedHandle for SnziHandle<'_> {
    #[inline]
    fn pair(&mut self) -> u64 {
        self.counted.tree.arrive(self.leaf);
        let word = black_box(&self.counted.value).word;
        self.counted.tree.depart(self.leaf);
        word
    }
}

impl Drop for SnziHandle<'_> {
    fn drop(&mut self) {
        assert!(self.counted.tree.query(), "there is this reference");
        self.counted.tree.depart(self.leaf);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn indicator_says_whether_there_is_a_reference() {
        let tree = Tree::new();
        let leaf = Tree::FIRST_LEAF;
        assert!(!tree.query());
        tree.arrive(leaf);
        tree.arrive(leaf);
        tree.arrive(leaf + LEAVES - 1);
        tree.depart(leaf);
        tree.depart(leaf);
        assert!(tree.query(), "the other leaf's");
        tree.depart(leaf + LEAVES - 1);
        assert!(!tree.query());
        tree.arrive(leaf);
        assert!(tree.query());
    }

    #[test]
    fn only_a_leaf_s_first_arrival_comes_to_the_root() {
        let tree = Tree::new();
        let root = || tree.nodes[0].load(SeqCst);
        tree.arrive(Tree::FIRST_LEAF);
        let once = root();
        (0..10).for_each(|_| tree.arrive(Tree::FIRST_LEAF));
        (0..10).for_each(|_| tree.depart(Tree::FIRST_LEAF));
        assert_eq!(root(), once);
        tree.arrive(Tree::FIRST_LEAF + LEAVES - 1);
        assert_eq!(count(root()), 2 * ONE);
    }

    #[test]
    fn a_reference_always_shows_while_others_come_and_go() {
        let tree = Tree::new();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (tree, leaf) = (&tree, Tree::FIRST_LEAF + thread / 2);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        tree.arrive(leaf);
                        assert!(tree.query(), "the thread's own");
                        tree.depart(leaf);
                    }
                });
            }
        });
        assert!(!tree.query());
        assert!(tree.nodes.iter().all(|node| count(node.load(SeqCst)) == 0));
    }
}
