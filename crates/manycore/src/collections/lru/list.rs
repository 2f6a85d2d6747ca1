//! The sequential recency list: a hash index over a doubly linked list in a slab.
//!
//! Owns: nothing concurrent; plain safe code. Hashes come from outside, so that no user code but
//! `Eq` and `Drop` of the keys runs in here, and the list is in order whenever one of them does.

use hashbrown::HashTable;

/// No node.
const NIL: usize = usize::MAX;

#[derive(Debug)]
struct Node<K> {
    /// `None` while the node is free.
    key: Option<K>,
    hash: u64,
    /// The next more recent node.
    newer: usize,
    /// The next less recent node; the next free one while the node is free.
    older: usize,
}

/// Keys by how recently they were touched.
#[derive(Debug)]
pub(super) struct List<K> {
    nodes: Vec<Node<K>>,
    index: HashTable<usize>,
    newest: usize,
    oldest: usize,
    free: usize,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { nodes: Vec::new(), index: HashTable::new(), newest: NIL, oldest: NIL, free: NIL }
    }
}

impl<K: Eq> List<K> {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn contains(&self, hash: u64, key: &K) -> bool {
        self.find(hash, key).is_some()
    }

    fn find(&self, hash: u64, key: &K) -> Option<usize> {
        let is_key = |node: &usize| self.nodes[*node].key.as_ref() == Some(key);
        self.index.find(hash, is_key).copied()
    }

    /// Makes `key` the most recent one, inserting it if need be.
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

    fn insert(&mut self, hash: u64, key: K) {
        let fresh = Node { key: Some(key), hash, newer: NIL, older: NIL };
        let node = self.free;
        let node = if node == NIL {
            self.nodes.push(fresh);
            self.nodes.len() - 1
        } else {
            debug_assert!(self.nodes[node].key.is_none(), "lru.L1: a free node has a key");
            self.free = self.nodes[node].older;
            self.nodes[node] = fresh;
            node
        };
        let nodes = &self.nodes;
        self.index.insert_unique(hash, node, |other| nodes[*other].hash);
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

    fn take_out(&mut self, node: usize) -> Option<K> {
        debug_assert!(self.nodes[node].key.is_some(), "lru.L1: a node is taken out twice");
        let hash = self.nodes[node].hash;
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == node) {
            entry.remove();
        }
        self.unlink(node);
        self.nodes[node].older = self.free;
        self.free = node;
        self.nodes[node].key.take()
    }

    /// Keys from the least recent one on.
    pub(super) fn iter(&self) -> impl Iterator<Item = &K> {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(next)?;
            next = node.newer;
            node.key.as_ref()
        })
    }

    fn unlink(&mut self, node: usize) {
        let Node { newer, older, .. } = self.nodes[node];
        let leads_back = |at: usize, to: fn(&Node<K>) -> usize, end| match at {
            NIL => end == node,
            at => to(&self.nodes[at]) == node,
        };
        debug_assert!(
            leads_back(newer, |newer| newer.older, self.newest)
                && leads_back(older, |older| older.newer, self.oldest),
            "lru.L1: the neighbours of node {node} do not lead back to it"
        );
        match newer {
            NIL => self.newest = older,
            newer => self.nodes[newer].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.nodes[older].newer = newer,
        }
    }

    fn link_newest(&mut self, node: usize) {
        let older = self.newest;
        (self.nodes[node].newer, self.nodes[node].older) = (NIL, older);
        match older {
            NIL => self.oldest = node,
            older => self.nodes[older].newer = node,
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
