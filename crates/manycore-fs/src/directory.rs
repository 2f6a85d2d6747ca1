//! The entries of a directory: a tree by the hash of names. A small directory is one bucket; a full
//! bucket becomes a node with a bucket for each of its links.
//!
//! ```text
//! 3 entries    root --> bucket
//! 300          root --> node --> bucket, bucket, ...    the hash's first 6 bits choose
//! 30,000       root --> node --> node --> bucket, ...   the next 6
//! ```
//!
//! - directory.D1 Only one thread at a time writes a directory: the one with the lock of its inode.
//! - directory.D2 Reading in the order of cookies finds an entry that is there all the time exactly
//!   once: its cookie does not change, and each bucket is at the place that its cookies say.

use crate::bucket::{Bucket, HASH_BITS, Named, hash_of};
use crate::memory::Counted;
use crate::tree::radix::Writer;
use crate::tree::{BITS, Held, Link, Node, View, WAYS, Word};
use crate::{Error, Ino, Kind, Result};
use manycore::section::Section;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Entries of a bucket, unless their hashes are the same.
const FULL: usize = 32;
/// Levels of nodes at most.
const DEPTHS: u32 = HASH_BITS / BITS;

/// Hashes names, for all directories of a file system.
pub(crate) struct NameHash(RandomState);

impl NameHash {
    pub(crate) fn new() -> Self {
        Self(RandomState::new())
    }

    /// Returns 54 bits, never all zero: small cookies are left for `.` and `..`.
    pub(crate) fn of(&self, name: &[u8]) -> u64 {
        (self.0.hash_one(name) >> (64 - HASH_BITS)).max(1)
    }
}

/// Returns true if a file may have this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let is_special = matches!(name, b"" | b"." | b"..");
    !is_special && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// The link of a node at this depth for a hash.
fn digit(hash: u64, depth: u32) -> usize {
    (hash >> (HASH_BITS - BITS * (depth + 1))) as usize % WAYS
}

/// Finds a name. Takes no lock and writes nothing.
pub(crate) fn find<'s>(
    root: &Link<Bucket>,
    hash: u64,
    name: &[u8],
    section: &'s Section<'_>,
) -> Option<Named<'s>> {
    let bucket = bucket_of(root, hash, section)?;
    bucket.find(hash, name).map(|at| bucket.get(at))
}

/// Returns the entry with this cookie.
pub(crate) fn at_cookie<'s>(
    root: &Link<Bucket>,
    cookie: u64,
    section: &'s Section<'_>,
) -> Option<Named<'s>> {
    let bucket = bucket_of(root, hash_of(cookie), section)?;
    let at = bucket.lower_bound(cookie);
    (at < bucket.len()).then(|| bucket.get(at)).filter(|entry| entry.cookie == cookie)
}

fn bucket_of<'s>(root: &Link<Bucket>, hash: u64, section: &'s Section<'_>) -> Option<&'s Bucket> {
    let (mut word, mut depth) = (root.load(section), 0);
    loop {
        match word.view() {
            View::Empty | View::Dead => return None,
            View::Value(bucket) => return Some(bucket),
            View::Node(node) => word = node.links[digit(hash, depth)].load(section),
        }
        depth += 1;
    }
}

/// Returns the first bucket with an entry whose cookie is greater than `after`, and the place of
/// that entry in it.
pub(crate) fn next<'s>(
    root: &Link<Bucket>,
    after: u64,
    section: &'s Section<'_>,
) -> Option<(&'s Bucket, usize)> {
    fn below<'s>(
        word: Word<'s, Bucket>,
        depth: u32,
        after: Option<u64>,
        section: &'s Section<'_>,
    ) -> Option<(&'s Bucket, usize)> {
        match word.view() {
            View::Empty | View::Dead => None,
            View::Value(bucket) => {
                let at = after.map_or(0, |after| bucket.lower_bound(after + 1));
                (at < bucket.len()).then_some((bucket, at))
            }
            View::Node(node) => {
                let first = after.map_or(0, |after| digit(hash_of(after), depth));
                (first..WAYS).find_map(|at| {
                    let after = after.filter(|_| at == first);
                    below(node.links[at].load(section), depth + 1, after, section)
                })
            }
        }
    }
    below(root.load(section), 0, Some(after.min(i64::MAX as u64 - 1)), section)
}

/// Visits all entries below a word.
pub(crate) fn for_each<'s>(
    word: Word<'s, Bucket>,
    section: &'s Section<'_>,
    each: &mut dyn FnMut(Named<'s>),
) {
    match word.view() {
        View::Empty | View::Dead => {}
        View::Value(bucket) => bucket.iter().for_each(each),
        View::Node(node) => {
            node.links.iter().for_each(|link| for_each(link.load(section), section, each));
        }
    }
}

/// Returns the link of the bucket for a hash, in nodes that this writer may write, and its depth.
fn slot<'s>(
    root: &'s Link<Bucket>,
    hash: u64,
    writer: Writer<'s, '_>,
) -> (&'s Link<Bucket>, Word<'s, Bucket>, u32) {
    let Writer { token, section, .. } = writer;
    let (mut link, mut depth) = (root, 0);
    loop {
        let word = link.load(section);
        match word.view() {
            View::Node(node) if node.token() != token => link.thaw(word, node, token, section),
            View::Node(node) => {
                link = &node.links[digit(hash, depth)];
                depth += 1;
            }
            View::Empty | View::Dead | View::Value(_) => return (link, word, depth),
        }
    }
}

/// Adds a name that is not there, and returns its cookie.
///
/// # Errors
/// `NoSpace` if more than 512 names have the same hash; nothing has changed then.
pub(crate) fn insert(
    root: &Link<Bucket>,
    hash: u64,
    name: &[u8],
    (ino, kind): (Ino, Kind),
    writer: Writer<'_, '_>,
) -> Result<u64> {
    loop {
        let (link, word, depth) = slot(root, hash, writer);
        let (cookie, bucket) = match word.view() {
            View::Value(old) if old.len() >= FULL && depth < DEPTHS => {
                link.set(split(old, depth, writer), writer.section);
                continue;
            }
            View::Value(old) => {
                let cookie = old.free_cookie(hash)?;
                (cookie, old.with(Named { name, ino, kind, cookie }))
            }
            _ => {
                let cookie = hash << (63 - HASH_BITS);
                let new = Named { name, ino, kind, cookie };
                (cookie, Bucket::of(writer.account, std::iter::once(new)))
            }
        };
        link.set(Held::value(bucket), writer.section);
        return Ok(cookie);
    }
}

/// Returns a node with the entries of a full bucket.
fn split(old: &Bucket, depth: u32, writer: Writer<'_, '_>) -> Held<Bucket> {
    let node = Node::new(writer.token, old.account(), 0);
    let mut from = 0;
    while from < old.len() {
        let way = digit(hash_of(old.get(from).cookie), depth);
        let of_way = |at: &usize| digit(hash_of(old.get(*at).cookie), depth) == way;
        let to = (from..old.len()).take_while(of_way).count() + from;
        let part: Counted<Bucket> = Bucket::of(old.account(), (from..to).map(|at| old.get(at)));
        node.links[way].set(Held::value(part), writer.section);
        from = to;
    }
    Held::node(node)
}

/// Removes a name. Returns what it named.
///
/// # Errors
/// `NotFound`.
pub(crate) fn remove(
    root: &Link<Bucket>,
    hash: u64,
    name: &[u8],
    writer: Writer<'_, '_>,
) -> Result<(Ino, Kind)> {
    let (link, word, _) = slot(root, hash, writer);
    let View::Value(bucket) = word.view() else { return Err(Error::NotFound) };
    let at = bucket.find(hash, name).ok_or(Error::NotFound)?;
    let entry = bucket.get(at);
    link.set(bucket.without(at).map_or(Held::empty(), Held::value), writer.section);
    Ok((entry.ino, entry.kind))
}

/// Lets a name that is there name another file. Returns its cookie.
///
/// # Errors
/// `NotFound`.
pub(crate) fn change(
    root: &Link<Bucket>,
    hash: u64,
    name: &[u8],
    (ino, kind): (Ino, Kind),
    writer: Writer<'_, '_>,
) -> Result<u64> {
    let (link, word, _) = slot(root, hash, writer);
    let View::Value(bucket) = word.view() else { return Err(Error::NotFound) };
    let at = bucket.find(hash, name).ok_or(Error::NotFound)?;
    link.set(Held::value(bucket.with_other(at, ino, kind)), writer.section);
    Ok(bucket.get(at).cookie)
}

/// A name of which two versions of a directory say different things.
pub(crate) struct NameChange<'s> {
    pub(crate) name: &'s [u8],
    pub(crate) old: Option<Named<'s>>,
    pub(crate) new: Option<Named<'s>>,
}

/// Visits the names that two versions of a directory have for different files. What they share is
/// skipped. Nobody writes either meanwhile.
pub(crate) fn compare<'s>(
    old: Word<'s, Bucket>,
    new: Word<'s, Bucket>,
    section: &'s Section<'_>,
    each: &mut dyn FnMut(NameChange<'s>),
) {
    if old == new {
        return;
    }
    if let (View::Node(old), View::Node(new)) = (old.view(), new.view()) {
        for (old, new) in old.links.iter().zip(&new.links) {
            compare(old.load(section), new.load(section), section, each);
        }
        return;
    }
    let collect = |word| {
        let mut names = BTreeMap::new();
        for_each(word, section, &mut |entry: Named<'s>| {
            names.insert(entry.name, entry);
        });
        names
    };
    let (old, mut new) = (collect(old), collect(new));
    for (name, old) in old {
        let new = new.remove(name);
        if new.map(|new| new.ino) != Some(old.ino) {
            each(NameChange { name, old: Some(old), new });
        }
    }
    for (name, new) in new {
        each(NameChange { name, old: None, new: Some(new) });
    }
}
