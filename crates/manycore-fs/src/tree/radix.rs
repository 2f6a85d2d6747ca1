//! Trees by number: values at the lowest level, as many levels as the greatest number needs. Used
//! for inodes (many writers) and for pages (one writer at a time). This file owns the descent.
//!
//! ```text
//! level 1   0 ..... 63        key / 64 chooses the link
//!           |        |
//! level 0   0..63    4032..4095
//! ```
//!
//! - radix.R1 A root that may be *direct* holds a value with key 0 without a node: a file of one
//!   page.
//! - radix.R2 Writers meet at links by compare-and-exchange. A writer that loses looks again.

use super::{BITS, Held, Link, Node, View, WAYS, Word};
use crate::memory::{AccountRef, Object};
use manycore::section::Section;
use std::sync::atomic::Ordering;

/// What is found at a key.
pub(crate) enum Found<'s, V> {
    Nothing,
    Dead,
    Value(&'s V),
}

/// Who writes.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'s, 'd> {
    pub(crate) token: u64,
    pub(crate) account: AccountRef,
    pub(crate) section: &'s Section<'d>,
}

/// The level of a node that has room for a key.
fn level_of(key: u64) -> u8 {
    let bits = 64 - key.leading_zeros();
    (bits.max(1).div_ceil(BITS) - 1) as u8
}

/// The link of a node of this level for a key.
pub(crate) fn digit(key: u64, level: u8) -> usize {
    (key >> (BITS * u32::from(level))) as usize % WAYS
}

/// Keys below a node of this level.
pub(crate) fn span(level: u8) -> u64 {
    1 << (BITS * (u32::from(level) + 1))
}

/// Looks a key up. Takes no lock and writes nothing.
pub(crate) fn get<'s, V: Object>(
    root: &Link<V>,
    key: u64,
    section: &'s Section<'_>,
) -> Found<'s, V> {
    get_in(root.load(section), key, section)
}

/// As [`get`], from a word.
pub(crate) fn get_in<'s, V: Object>(
    root: Word<'s, V>,
    key: u64,
    section: &'s Section<'_>,
) -> Found<'s, V> {
    match word_in(root, key, section).view() {
        View::Empty | View::Node(_) => Found::Nothing,
        View::Dead => Found::Dead,
        View::Value(value) => Found::Value(value),
    }
}

/// Returns the word of a key, below a root that is not direct.
pub(crate) fn word_in<'s, V: Object>(
    mut word: Word<'s, V>,
    key: u64,
    section: &'s Section<'_>,
) -> Word<'s, V> {
    if matches!(word.view(), View::Node(node) if level_of(key) > node.level) {
        return Word::EMPTY;
    }
    while let View::Node(node) = word.view() {
        word = node.links[digit(key, node.level)].load(section);
    }
    word
}

/// As [`get`], where the root may be direct (radix.R1).
pub(crate) fn get_direct<'s, V: Object>(
    root: &Link<V>,
    key: u64,
    section: &'s Section<'_>,
) -> Option<&'s V> {
    let word = root.load(section);
    if let View::Value(value) = word.view() {
        return (key == 0).then_some(value);
    }
    match get_in(word, key, section) {
        Found::Value(value) => Some(value),
        Found::Nothing | Found::Dead => None,
    }
}

/// Returns the link of a key, in nodes that this writer may write. `None` if it is dead.
pub(crate) fn slot<'s, V: Object>(
    root: &'s Link<V>,
    key: u64,
    is_direct: bool,
    writer: Writer<'s, '_>,
) -> Option<&'s Link<V>> {
    descend(root, key, is_direct, writer, &mut |_| ())
}

fn descend<'s, V: Object>(
    root: &'s Link<V>,
    key: u64,
    is_direct: bool,
    writer: Writer<'s, '_>,
    pass: &mut dyn FnMut(&'s Link<V>),
) -> Option<&'s Link<V>> {
    let Writer { token, account, section } = writer;
    // First the root: high enough.
    loop {
        let word = root.load(section);
        let level = match word.view() {
            View::Dead => return None,
            View::Node(node) if node.level >= level_of(key) => break,
            View::Node(node) => node.level + 1,
            View::Empty | View::Value(_) if is_direct && key == 0 => return Some(root),
            View::Value(_) => 0,
            View::Empty => level_of(key),
        };
        let node = Node::new(token, account, level);
        if !word.is_empty() {
            node.links[0].set(word.hold(), section);
        }
        drop(root.replace(word, Held::node(node), section)); // radix.R2
    }
    let mut link = root;
    let mut level = None;
    loop {
        let word = link.load(section);
        match word.view() {
            View::Node(node) if node.token() != token => link.thaw(word, node, token, section),
            View::Node(node) => {
                pass(link);
                link = &node.links[digit(key, node.level)];
                if node.level == 0 {
                    return Some(link);
                }
                level = Some(node.level - 1);
            }
            View::Empty => {
                let level = level.unwrap_or_else(|| level_of(key));
                let node = Held::node(Node::new(token, account, level));
                drop(link.replace(word, node, section)); // radix.R2
            }
            View::Dead => return None,
            View::Value(_) => unreachable!("radix.R1: a value above the lowest level"),
        }
    }
}

/// Marks a key as dead, and the nodes above that have nothing else (tree.T3). Returns false if it
/// was dead before.
pub(crate) fn kill<'s, V: Object>(root: &'s Link<V>, key: u64, writer: Writer<'s, '_>) -> bool {
    let mut path = Vec::new();
    let section = writer.section;
    let Some(link) = descend(root, key, false, writer, &mut |link| path.push(link)) else {
        return false;
    };
    loop {
        let word = link.load(section);
        if word.is_dead() {
            return false;
        }
        if link.replace(word, Held::dead(), section).is_ok() {
            break;
        }
    }
    while let Some(link) = path.pop() {
        let word = link.load(section);
        let View::Node(node) = word.view() else { return true };
        // ORDER: AcqRel; the last of the threads that count here has seen all links dead.
        let dead = usize::from(node.dead.fetch_add(1, Ordering::AcqRel)) + 1;
        // The root stays: a dead root is the mark of a branch that has ended.
        if dead < WAYS || path.is_empty() || link.replace(word, Held::dead(), section).is_err() {
            return true;
        }
    }
    true
}

/// Returns the first value whose key is at least `from`.
pub(crate) fn next<'s, V: Object>(
    root: &Link<V>,
    from: u64,
    section: &'s Section<'_>,
) -> Option<(u64, &'s V)> {
    fn below<'s, V: Object>(
        word: Word<'s, V>,
        base: u64,
        from: u64,
        section: &'s Section<'_>,
    ) -> Option<(u64, &'s V)> {
        match word.view() {
            View::Empty | View::Dead => None,
            View::Value(value) => (base >= from).then_some((base, value)),
            View::Node(node) => {
                let each = span(node.level) / WAYS as u64;
                let first = (from.saturating_sub(base) / each).min(WAYS as u64) as usize;
                (first..WAYS).find_map(|at| {
                    let word = node.links[at].load(section);
                    below(word, base + at as u64 * each, from, section)
                })
            }
        }
    }
    below(root.load(section), 0, from, section)
}

/// Removes all values with keys from `from` up to, and without, `to`. Returns how many there were.
/// Only one thread at a time writes this tree.
pub(crate) fn clear<V: Object>(root: &Link<V>, from: u64, to: u64, writer: Writer<'_, '_>) -> u64 {
    clear_below(root, 0, from, to, writer)
}

fn clear_below<V: Object>(
    link: &Link<V>,
    base: u64,
    from: u64,
    to: u64,
    writer: Writer<'_, '_>,
) -> u64 {
    let Writer { token, section, .. } = writer;
    let word = link.load(section);
    let node = match word.view() {
        View::Empty | View::Dead => return 0,
        View::Value(_) => {
            let is_in = base >= from && base < to;
            if is_in {
                link.set(Held::empty(), section);
            }
            return u64::from(is_in);
        }
        View::Node(node) => node,
    };
    let end = base.saturating_add(span(node.level));
    if base >= from && end <= to {
        let count = count(word, section);
        link.clear(count as usize * size_of::<V>(), section);
        return count;
    }
    if base >= to || end <= from {
        return 0;
    }
    if node.token() != token {
        link.thaw(word, node, token, section);
        return clear_below(link, base, from, to, writer);
    }
    let each = span(node.level) / WAYS as u64;
    let links = node.links.iter().enumerate();
    links.map(|(at, link)| clear_below(link, base + at as u64 * each, from, to, writer)).sum()
}

/// Counts the values below a word.
pub(crate) fn count<V: Object>(word: Word<'_, V>, section: &Section<'_>) -> u64 {
    match word.view() {
        View::Empty | View::Dead => 0,
        View::Value(_) => 1,
        View::Node(node) => node.links.iter().map(|link| count(link.load(section), section)).sum(),
    }
}
