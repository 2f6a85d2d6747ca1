//! The sequential recency list: a hash index over a doubly linked list in a slab.
//!
//! Owns: nothing concurrent; plain safe code. Hashes come from outside, so that no user code but
//! `Eq` and `Drop` of the keys runs in here, and the list is in order whenever one of them does.

use super::pace::Pace;
use hashbrown::HashTable;

/// The index of a node. Four bytes and not eight: nodes and the index are what a touch misses the
/// caches for.
type At = u32;

/// No node.
const NIL: At = At::MAX;

#[derive(Debug)]
struct Node<K> {
    /// `None` while the node is free.
    key: Option<K>,
    hash: u64,
    /// The next more recent node.
    newer: At,
    /// The next less recent node; the next free one while the node is free.
    older: At,
}

/// Keys by how recently they were touched.
#[derive(Debug)]
pub(super) struct List<K> {
    nodes: Vec<Node<K>>,
    index: HashTable<At>,
    newest: At,
    oldest: At,
    free: At,
    /// Made by the first merge. (Boxed: what two threads pass on with the lock is in few lines.)
    pub(super) pace: Option<Box<Pace>>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            index: HashTable::new(),
            newest: NIL,
            oldest: NIL,
            free: NIL,
            pace: None,
        }
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
        let is_key = |node: &At| self.node(*node).key.as_ref() == Some(key);
        self.index.find(hash, is_key).copied()
    }

    #[inline(always)]
    fn node(&self, at: At) -> &Node<K> {
        &self.nodes[at as usize]
    }

    #[inline(always)]
    fn node_mut(&mut self, at: At) -> &mut Node<K> {
        &mut self.nodes[at as usize]
    }

    /// Makes `key` the most recent one, inserting it if need be.
    #[inline(always)]
    pub(super) fn touch(&mut self, hash: u64, key: K) {
        match self.find(hash, &key) {
            Some(node) if node == self.newest => {}
            Some(node) => {
                self.unlink(node);
                self.link_newest(node);
            }
            None => self.insert(hash, key),
        }
    }

    /// Not inlined, so that a touch of a key that is in saves few registers (`oplog`'s `ColdGuard`
    /// says what stores cost).
    #[inline(never)]
    fn insert(&mut self, hash: u64, key: K) {
        let fresh = Node { key: Some(key), hash, newer: NIL, older: NIL };
        let node = self.free;
        let node = if node == NIL {
            let node = At::try_from(self.nodes.len()).ok().filter(|node| *node != NIL);
            let node = node.expect("manycore: an Lru holds at most 2^32 - 1 keys");
            self.nodes.push(fresh);
            node
        } else {
            debug_assert!(self.node(node).key.is_none(), "lru.L1: a free node has a key");
            self.free = self.node(node).older;
            *self.node_mut(node) = fresh;
            node
        };
        let nodes = &self.nodes;
        self.index.insert_unique(hash, node, |other| nodes[*other as usize].hash);
        self.link_newest(node);
    }

    /// Takes `key` out, if it is in.
    pub(super) fn remove(&mut self, hash: u64, key: &K) -> Option<K> {
        let node = self.find(hash, key)?;
        self.take_out(node)
    }

    /// Takes the least recent key out.
    pub(super) fn pop_oldest(&mut self) -> Option<K> {
        if self.oldest == NIL { None } else { self.take_out(self.oldest) }
    }

    fn take_out(&mut self, node: At) -> Option<K> {
        debug_assert!(self.node(node).key.is_some(), "lru.L1: a node is taken out twice");
        let hash = self.node(node).hash;
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == node) {
            entry.remove();
        }
        self.unlink(node);
        let free = std::mem::replace(&mut self.free, node);
        let taken = self.node_mut(node);
        taken.older = free;
        taken.key.take()
    }

    /// Keys from the least recent one on.
    pub(super) fn iter(&self) -> impl Iterator<Item = &K> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(next as usize)?;
            next = node.newer;
            node.key.as_ref()
        })
    }

    #[inline(always)]
    fn unlink(&mut self, node: At) {
        let Node { newer, older, .. } = *self.node(node);
        let leads_back = |at: At, to: fn(&Node<K>) -> At, end| match at {
            NIL => end == node,
            at => to(self.node(at)) == node,
        };
        debug_assert!(
            leads_back(newer, |newer| newer.older, self.newest)
                && leads_back(older, |older| older.newer, self.oldest),
            "lru.L1: the neighbours of node {node} do not lead back to it"
        );
        match newer {
            NIL => self.newest = older,
            newer => self.node_mut(newer).older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.node_mut(older).newer = newer,
        }
    }

    #[inline(always)]
    fn link_newest(&mut self, node: At) {
        let older = self.newest;
        let linked = self.node_mut(node);
        (linked.newer, linked.older) = (NIL, older);
        match older {
            NIL => self.oldest = node,
            older => self.node_mut(older).newer = node,
        }
        debug_assert!(older != node, "lru.L1: a node is linked twice");
        self.newest = node;
    }
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
        assert!(list.nodes.len() <= 60, "free nodes are used again");
    }
}
