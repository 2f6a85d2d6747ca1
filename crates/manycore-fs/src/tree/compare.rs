//! Compares two trees by number. Nodes that they share are skipped, so the cost grows with the
//! changes, not with the trees.

use super::radix::span;
use super::{View, WAYS, Word};
use crate::memory::Object;
use manycore::section::Section;

/// A range of keys at which two trees differ. It has more than one key if both are empty or dead
/// there.
pub(crate) struct Difference<'s, V: Object> {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) old: Word<'s, V>,
    pub(crate) new: Word<'s, V>,
}

/// Returns the keys below a root.
fn room<V: Object>(root: Word<'_, V>) -> u64 {
    match root.view() {
        View::Node(node) => span(node.level),
        View::Empty | View::Dead | View::Value(_) => 1,
    }
}

/// Visits all differences of two trees, in the order of keys. Nobody writes either meanwhile.
pub(crate) fn differences<'s, V: Object>(
    old: Word<'s, V>,
    new: Word<'s, V>,
    section: &'s Section<'_>,
    each: &mut dyn FnMut(Difference<'s, V>),
) {
    let count = room(old).max(room(new));
    walk(Difference { first: 0, count, old, new }, section, each);
}

fn walk<'s, V: Object>(
    at: Difference<'s, V>,
    section: &'s Section<'_>,
    each: &mut dyn FnMut(Difference<'s, V>),
) {
    let Difference { first, count, old, new } = at;
    let is_void = |word: Word<'_, V>| matches!(word.view(), View::Empty | View::Dead);
    if old == new {
        return;
    }
    if count == 1 || is_void(old) && is_void(new) {
        return each(Difference { first, count, old, new });
    }
    let part = count / WAYS as u64;
    for way in 0..WAYS {
        let first = first + way as u64 * part;
        let (old, new) = (below(old, count, way, section), below(new, count, way, section));
        walk(Difference { first, count: part, old, new }, section, each);
    }
}

/// Returns what a word that stands for `count` keys has in one of its ways.
fn below<'s, V: Object>(
    word: Word<'s, V>,
    count: u64,
    way: usize,
    section: &'s Section<'_>,
) -> Word<'s, V> {
    match word.view() {
        View::Empty | View::Dead => word,
        View::Node(node) if span(node.level) == count => node.links[way].load(section),
        // A lower root has the first keys.
        View::Node(_) | View::Value(_) if way == 0 => word,
        View::Node(_) | View::Value(_) => Word::EMPTY,
    }
}
