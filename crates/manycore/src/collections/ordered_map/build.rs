//! Construction of a tree from existing entries.

use super::OrderedMap;
use super::node::Node;
use super::order::SLOTS;
use super::value::{Fresh, Word};
use crate::sync::Ordering;

/// Entries of a node that is made here. It has room for one more.
const FILL: usize = SLOTS - 1;

impl<K: Ord + Clone, V> OrderedMap<K, V> {
    /// Makes a map of these entries. Of equal keys, the last one's entry is kept.
    pub(super) fn of(mut entries: Vec<(K, V)>) -> Self {
        let map = Self::new();
        entries.sort_by(|one, other| one.0.cmp(&other.0)); // stable
        entries.dedup_by(|later, former| {
            let is_same = later.0.cmp(&former.0).is_eq();
            if is_same {
                std::mem::swap(later, former);
            }
            is_same
        });
        // The first key of each node, level by level. All user code runs before anything is linked.
        let mut firsts: Vec<Vec<K>> = Vec::new();
        let mut count = entries.len().div_ceil(FILL);
        while count > 1 {
            let level = match firsts.last() {
                None => entries.iter().step_by(FILL).map(|entry| entry.0.clone()).collect(),
                Some(below) => below.iter().step_by(FILL).cloned().collect(),
            };
            firsts.push(level);
            count = count.div_ceil(FILL);
        }
        if entries.is_empty() {
            return map;
        }
        map.count.add(entries.len() as i64);
        let entries =
            entries.into_iter().map(|(key, value)| (key, Fresh::new(value).into_word())).collect();
        let mut nodes = level_of::<K, V>(0, entries);
        for (level, keys) in firsts.into_iter().enumerate() {
            let words = nodes.into_iter().map(|node| Word::new(node.cast()));
            nodes = level_of(level as u32 + 1, keys.into_iter().zip(words).collect());
        }
        debug_assert_eq!(nodes.len(), 1, "ordered_map.T2: a tree of several roots");
        // ORDER: Relaxed; no other thread has the map.
        map.root.store(nodes[0], Ordering::Relaxed);
        map
    }
}

/// Makes the nodes of a level from their entries.
fn level_of<K, V>(level: u32, entries: Vec<(K, Word)>) -> Vec<*mut Node<K, V>> {
    let mut entries = entries.into_iter().peekable();
    let mut nodes = Vec::with_capacity(entries.len().div_ceil(FILL));
    while entries.peek().is_some() {
        let mut node = Node::<K, V>::new(level);
        entries.by_ref().take(FILL).for_each(|(key, word)| node.push(key, word));
        nodes.push(Box::into_raw(node));
    }
    nodes
}
