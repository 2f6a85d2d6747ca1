//! The sequential recency list: a hash index over a doubly linked list in a slab.
//!
//! Owns: nothing concurrent; plain safe code. Hashes come from outside. So the only user code that
//! runs in here is `Eq` and `Drop` of the keys, and the list is in order whenever it runs.

use super::pace::Pace;
use hashbrown::HashTable;

/// Index of a node. Four bytes and not eight: nodes and the index are what a touch misses the
/// caches for.
type At = u32;

/// The first node has no key. Its neighbours are the least and the most recent node. So every node
/// has two neighbours, and the ends need no special case.
const END: At = 0;

#[derive(Debug)]
struct Node<K> {
    /// `None` while the node is free.
    key: Option<K>,
    hash: u64,
    /// The next more recent node. For the end: the least recent node.
    newer: At,
    /// The next less recent node. For the end: the most recent node. For a free node: the next free
    /// node, or the end.
    older: At,
}

/// Keys by how recently they were touched.
#[derive(Debug)]
pub(super) struct List<K> {
    nodes: Vec<Node<K>>,
    index: HashTable<At>,
    free: At,
    /// Made by the first merge. (Boxed, so that what two threads pass on with the lock is on few
    /// lines.)
    pub(super) pace: Option<Box<Pace>>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        let end = Node { key: None, hash: 0, newer: END, older: END };
        Self { nodes: vec![end], index: HashTable::new(), free: END, pace: None }
    }
}

impl<K: Eq> List<K> {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn contains(&self, hash: u64, key: &K) -> bool {
        self.find(hash, key).is_some()
    }

    #[inline(always)]
    fn find(&self, hash: u64, key: &K) -> Option<At> {
        let nodes = &self.nodes[..];
        self.index.find(hash, |at| node(nodes, *at).key.as_ref() == Some(key)).copied()
    }

    /// Makes `key` the most recent key, inserting it if need be.
    #[inline(always)]
    pub(super) fn touch(&mut self, hash: u64, key: K) {
        if self.touch_again(hash, &key).is_none() {
            self.insert(hash, key);
        }
    }

    /// Makes `key` the most recent key, if it is in the list.
    #[inline(always)]
    pub(super) fn touch_again(&mut self, hash: u64, key: &K) -> Option<()> {
        let found = self.find(hash, key)?;
        let nodes = &mut self.nodes[..];
        unlink(nodes, found);
        link_newest(nodes, found);
        Some(())
    }

    /// Not inlined, so that a touch of a key in the list saves few registers (`oplog`'s `Locked`
    /// says what stores cost).
    #[inline(never)]
    fn insert(&mut self, hash: u64, key: K) {
        let fresh = Node { key: Some(key), hash, newer: END, older: END };
        let at = self.free;
        let at = if at == END {
            let at = At::try_from(self.nodes.len());
            let at = at.expect("manycore: an Lru holds at most 2^32 - 1 keys");
            self.nodes.push(fresh);
            at
        } else {
            let free = node_mut(&mut self.nodes, at);
            debug_assert!(free.key.is_none(), "lru.L1: a free node has a key");
            self.free = std::mem::replace(free, fresh).older;
            at
        };
        let nodes = &self.nodes;
        self.index.insert_unique(hash, at, |other| node(nodes, *other).hash);
        link_newest(&mut self.nodes, at);
    }

    /// Removes `key`, if it is in the list.
    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<K> {
        let node = self.find(hash, key)?;
        self.take_out(node)
    }

    /// Removes the least recent key.
    pub(super) fn pop_oldest(&mut self) -> Option<K> {
        match node(&self.nodes, END).newer {
            END => None,
            oldest => self.take_out(oldest),
        }
    }

    fn take_out(&mut self, at: At) -> Option<K> {
        debug_assert!(node(&self.nodes, at).key.is_some(), "lru.L1: a node is taken out twice");
        let hash = node(&self.nodes, at).hash;
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        unlink(&mut self.nodes, at);
        let free = std::mem::replace(&mut self.free, at);
        let taken = node_mut(&mut self.nodes, at);
        taken.older = free;
        taken.key.take()
    }

    /// Iterates over the keys, from the least recent one.
    pub(super) fn iter(&self) -> impl Iterator<Item = &K> {
        let mut at = END;
        std::iter::from_fn(move || {
            at = node(&self.nodes, at).newer;
            node(&self.nodes, at).key.as_ref()
        })
    }
}

#[inline(always)]
fn unlink<K>(nodes: &mut [Node<K>], at: At) {
    let Node { newer, older, .. } = *node(nodes, at);
    debug_assert!(
        node(nodes, newer).older == at && node(nodes, older).newer == at,
        "lru.L1: the neighbours of node {at} do not lead back to it"
    );
    node_mut(nodes, newer).older = older;
    node_mut(nodes, older).newer = newer;
}

#[inline(always)]
fn link_newest<K>(nodes: &mut [Node<K>], at: At) {
    let older = std::mem::replace(&mut node_mut(nodes, END).older, at);
    debug_assert!(older != at, "lru.L1: a node is linked twice");
    node_mut(nodes, older).newer = at;
    let linked = node_mut(nodes, at);
    (linked.newer, linked.older) = (END, older);
}

#[inline(always)]
fn node<K>(nodes: &[Node<K>], at: At) -> &Node<K> {
    nodes.get(at as usize).unwrap_or_else(|| no_node())
}

#[inline(always)]
fn node_mut<K>(nodes: &mut [Node<K>], at: At) -> &mut Node<K> {
    nodes.get_mut(at as usize).unwrap_or_else(|| no_node())
}

/// Panics as an index out of bounds does, in fewer instructions.
#[cold]
#[inline(never)]
fn no_node() -> ! {
    unreachable!("lru.L1: a link leads to no node")
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::config::SMALL;

    /// Two keys share each hash, so that equality decides.
    fn hash(key: u32) -> u64 {
        u64::from(key / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn behaves_like_a_vector() {
        let mut list = List::default();
        let mut model: Vec<u32> = Vec::new(); // oldest first
        let mut random = 1_u64;
        for _ in 0..if SMALL { 200 } else { 20_000 } {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (random >> 40) as u32 % 60;
            match random >> 60 {
                0..=9 => {
                    model.retain(|other| *other != key);
                    model.push(key);
                    list.touch(hash(key), key);
                }
                10..=12 => {
                    let found = model.iter().position(|other| *other == key);
                    assert_eq!(list.remove(hash(key), &key), found.map(|at| model.remove(at)));
                }
                13 => {
                    let oldest = if model.is_empty() { None } else { Some(model.remove(0)) };
                    assert_eq!(list.pop_oldest(), oldest);
                }
                _ => assert_eq!(list.contains(hash(key), &key), model.contains(&key)),
            }
            assert_eq!(list.len(), model.len());
            assert!(list.iter().eq(&model));
        }
        assert!(list.nodes.len() <= 61, "free nodes are used again");
    }
}
