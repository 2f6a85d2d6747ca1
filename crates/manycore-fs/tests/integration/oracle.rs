//! A tree of files in one thread, as simple as can be: what the file system is compared with.

use manycore_fs::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What a file is.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    File(Vec<u8>),
    Directory(BTreeMap<String, u64>),
}

/// A file. Its number is that of the file system.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub body: Body,
    pub mode: u32,
    pub xattr: Option<u8>,
    /// Counts changes of the bytes, over all files.
    pub modified: u64,
    /// The last name that it was made or renamed to.
    pub home: (u64, String),
}

impl Node {
    pub fn entries(&self) -> Option<&BTreeMap<String, u64>> {
        match &self.body {
            Body::Directory(entries) => Some(entries),
            Body::File(_) => None,
        }
    }

    pub fn entries_mut(&mut self) -> Option<&mut BTreeMap<String, u64>> {
        match &mut self.body {
            Body::Directory(entries) => Some(entries),
            Body::File(_) => None,
        }
    }

    pub fn kind(&self) -> Kind {
        if self.entries().is_some() { Kind::Directory } else { Kind::File }
    }

    fn same_attributes(&self, other: &Node) -> bool {
        let same_time = self.kind() == Kind::Directory || self.modified == other.modified;
        same_time && self.mode == other.mode && self.xattr == other.xattr
    }

    fn same_bytes(&self, other: &Node) -> bool {
        self.kind() == Kind::Directory || self.body == other.body
    }
}

/// A tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree(pub BTreeMap<u64, Node>);

pub const ROOT: u64 = 1;

impl Tree {
    pub fn new() -> Self {
        let home = (ROOT, String::new());
        let body = Body::Directory(BTreeMap::new());
        Self(BTreeMap::from([(ROOT, Node { body, mode: 0o755, xattr: None, modified: 0, home })]))
    }

    /// Returns what a directory has for a name.
    pub fn find(&self, directory: u64, name: &str) -> Result<u64> {
        let node = self.0.get(&directory).ok_or(Error::NotFound)?;
        let entries = node.entries().ok_or(Error::NotDirectory)?;
        entries.get(name).copied().ok_or(Error::NotFound)
    }

    pub fn names(&mut self, directory: u64) -> &mut BTreeMap<String, u64> {
        self.0.get_mut(&directory).and_then(Node::entries_mut).expect("a directory")
    }

    pub fn is_directory(&self, file: u64) -> bool {
        self.0[&file].kind() == Kind::Directory
    }

    fn is_below(&self, mut inner: u64, outer: u64) -> bool {
        loop {
            if inner == outer {
                return true;
            }
            if inner == ROOT {
                return false;
            }
            inner = self.0[&inner].home.0;
        }
    }

    /// Counts the names of each file.
    pub fn links(&self) -> BTreeMap<u64, u32> {
        let mut links = BTreeMap::new();
        for (number, node) in &self.0 {
            let Some(entries) = node.entries() else { continue };
            let below = entries.values().filter(|file| self.is_directory(**file)).count();
            links.insert(*number, 2 + below as u32);
            for file in entries.values().filter(|file| !self.is_directory(**file)) {
                *links.entry(*file).or_insert(0) += 1;
            }
        }
        links
    }

    /// Removes files without names.
    fn sweep(&mut self) {
        let links = self.links();
        self.0.retain(|number, _| links.contains_key(number));
    }

    pub fn add(&mut self, directory: u64, name: &str, number: u64, body: Body, mode: u32) {
        let home = (directory, name.to_owned());
        self.0.insert(number, Node { body, mode, xattr: None, modified: 0, home });
        self.names(directory).insert(name.to_owned(), number);
    }

    pub fn remove(&mut self, directory: u64, name: &str, is_directory: bool) -> Result<()> {
        let file = self.find(directory, name)?;
        match (self.is_directory(file), is_directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            (true, true) if !self.names(file).is_empty() => return Err(Error::NotEmpty),
            (true, true) => {
                self.0.remove(&file);
            }
            (false, false) => {}
        }
        self.names(directory).remove(name);
        self.sweep();
        Ok(())
    }

    pub fn rename(&mut self, from: (u64, &str), to: (u64, &str), how: Rename) -> Result<()> {
        let target = match self.find(to.0, to.1) {
            Err(Error::NotFound) => None,
            target => Some(target?),
        };
        let moved = self.find(from.0, from.1)?;
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(Error::Exists),
            (Rename::Exchange, None) => return Err(Error::NotFound),
            (_, Some(target)) if target == moved => return Ok(()),
            _ => {}
        }
        if self.is_directory(moved) && from.0 != to.0 && self.is_below(to.0, moved) {
            return Err(Error::Invalid);
        }
        let set_home = |tree: &mut Self, file: u64, place: (u64, &str)| {
            tree.0.get_mut(&file).unwrap().home = (place.0, place.1.to_owned());
        };
        if let (Rename::Exchange, Some(target)) = (how, target) {
            if self.is_directory(target) && from.0 != to.0 && self.is_below(from.0, target) {
                return Err(Error::Invalid);
            }
            self.names(to.0).insert(to.1.to_owned(), moved);
            self.names(from.0).insert(from.1.to_owned(), target);
            set_home(self, target, from);
        } else {
            if let Some(target) = target {
                match (self.is_directory(moved), self.is_directory(target)) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    (true, true) if !self.names(target).is_empty() => return Err(Error::NotEmpty),
                    (true, true) => {
                        self.0.remove(&target);
                    }
                    (false, false) => {}
                }
            }
            self.names(to.0).insert(to.1.to_owned(), moved);
            self.names(from.0).remove(from.1);
        }
        set_home(self, moved, to);
        self.sweep();
        Ok(())
    }

    /// Returns a path of a directory.
    pub fn path(&self, directory: u64) -> PathBuf {
        if directory == ROOT {
            return PathBuf::from("/");
        }
        let (home, name) = &self.0[&directory].home;
        self.path(*home).join(name)
    }
}

/// A change, where a file with several paths goes by its number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Expected {
    Added(PathBuf),
    Removed(PathBuf),
    Modified(u64),
    Attributes(u64),
}

fn names_of(old: Option<&Node>, new: Option<&Node>) -> Vec<(String, Option<u64>, Option<u64>)> {
    let entries = |node: Option<&Node>| node.and_then(Node::entries).cloned().unwrap_or_default();
    let (old, new) = (entries(old), entries(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let rows = names.into_iter();
    let rows = rows.map(|name| (name.clone(), old.get(name).copied(), new.get(name).copied()));
    rows.filter(|(_, old, new)| old != new).collect()
}

/// Compares whole trees.
pub fn diff(old: &Tree, new: &Tree) -> BTreeSet<Expected> {
    let (mut found, mut named) = (BTreeSet::new(), BTreeSet::new());
    let numbers: BTreeSet<u64> = old.0.keys().chain(new.0.keys()).copied().collect();
    for number in &numbers {
        for (name, before, after) in names_of(old.0.get(number), new.0.get(number)) {
            named.extend(after);
            let old_is_directory = before.map(|file| old.is_directory(file));
            let new_is_directory = after.map(|file| new.is_directory(file));
            if let (Some(false), Some(false)) = (old_is_directory, new_is_directory) {
                found.insert(Expected::Modified(after.unwrap()));
                continue;
            }
            if before.is_some() {
                found.insert(Expected::Removed(old.path(*number).join(&name)));
            }
            if after.is_some() {
                found.insert(Expected::Added(new.path(*number).join(&name)));
            }
        }
    }
    for number in numbers.difference(&named) {
        if let (Some(before), Some(after)) = (old.0.get(number), new.0.get(number)) {
            if !before.same_bytes(after) {
                found.insert(Expected::Modified(*number));
            } else if !before.same_attributes(after) {
                found.insert(Expected::Attributes(*number));
            }
        }
    }
    found
}

/// Chooses between three versions of one thing. `None`: a conflict.
fn choose<T: PartialEq + Clone>(old: &T, here: &T, new: &T) -> Option<T> {
    if old == new || here == new {
        Some(here.clone())
    } else if old == here {
        Some(new.clone())
    } else {
        None
    }
}

/// Merges whole trees. `None`: a conflict.
pub fn merge(old: &Tree, here: &Tree, new: &Tree) -> Option<Tree> {
    let mut merged = here.clone();
    let mut gained = BTreeSet::new();
    for (number, node) in &new.0 {
        if !old.0.contains_key(number) {
            merged.0.insert(*number, node.clone());
        }
    }
    let numbers: BTreeSet<u64> = old.0.keys().chain(new.0.keys()).copied().collect();
    for number in &numbers {
        let (before, now, after) = (old.0.get(number), here.0.get(number), new.0.get(number));
        for (name, from, to) in names_of(before, after) {
            let there = now.and_then(Node::entries).and_then(|names| names.get(&name)).copied();
            let is_new = before.is_none();
            if there == to {
                continue;
            }
            if !is_new && (now.is_none() || there != from) {
                return None;
            }
            gained.extend(to);
            if !is_new && after.is_some() {
                match to {
                    Some(file) => merged.names(*number).insert(name, file),
                    None => merged.names(*number).remove(&name),
                };
            }
        }
    }
    for (number, before) in &old.0 {
        match (here.0.get(number), new.0.get(number)) {
            (None, None) => {}
            (None, Some(after)) => {
                let changed = !before.same_bytes(after) || !before.same_attributes(after);
                if changed || before.home != after.home || gained.contains(number) {
                    return None;
                }
            }
            (Some(now), None) => {
                let is_directory = now.kind() == Kind::Directory;
                let changed = !before.same_bytes(now) || !before.same_attributes(now);
                let added = names_of(Some(before), Some(now)).iter().any(|name| name.2.is_some());
                if now.home != before.home || !is_directory && changed || added {
                    return None;
                }
                if is_directory {
                    merged.0.remove(number);
                }
            }
            (Some(now), Some(after)) => {
                let node = merged.0.get_mut(number).unwrap();
                if node.kind() == Kind::File {
                    node.body = choose(&before.body, &now.body, &after.body)?;
                    node.modified = if before.modified == now.modified {
                        after.modified
                    } else {
                        now.modified.max(after.modified)
                    };
                }
                node.mode = choose(&before.mode, &now.mode, &after.mode)?;
                node.xattr = choose(&before.xattr, &now.xattr, &after.xattr)?;
                node.home = choose(&before.home, &now.home, &after.home)?;
            }
        }
    }
    // Every directory must be reached, and every name must lead somewhere.
    let mut reached = BTreeSet::from([ROOT]);
    let mut left = vec![ROOT];
    while let Some(directory) = left.pop() {
        for file in merged.0[&directory].entries().unwrap().values() {
            if merged.is_directory(*file) && reached.insert(*file) {
                left.push(*file);
            }
        }
    }
    let is_lost =
        |(number, node): (&u64, &Node)| node.entries().is_some() && !reached.contains(number);
    if merged.0.iter().any(is_lost) {
        return None;
    }
    merged.sweep();
    Some(merged)
}
