//! Random operations on several branches, each compared with the oracle.

use crate::oracle::{self, Body, Expected, Node, ROOT, Tree};
use manycore_fs::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;

/// An operation; places are taken modulo what there is.
#[derive(Clone, Debug)]
pub enum Op {
    Create { directory: usize, name: u8, is_directory: bool },
    Write { file: usize, offset: u64, length: usize, byte: u8 },
    Append { file: usize, length: usize, byte: u8 },
    Resize { file: usize, size: u64 },
    Zero { file: usize, offset: u64, length: u64, how: u8 },
    Link { file: usize, directory: usize, name: u8 },
    Remove { directory: usize, name: u8, is_directory: bool },
    Rename { from: (usize, u8), to: (usize, u8), how: u8 },
    Mode { file: usize, mode: u32 },
    Xattr { file: usize, value: Option<u8> },
    Fork,
    Abort,
    Commit,
}

pub fn ops() -> impl Strategy<Value = Vec<(usize, Op)>> {
    let place = || (0..8_usize, 0..4_u8);
    let op = prop_oneof![
        6 => (place(), any::<bool>()).prop_map(|((directory, name), is_directory)| {
            Op::Create { directory, name, is_directory }
        }),
        3 => (0..8_usize, 0..20_000_u64, 0..9_000_usize, 0..3_u8).prop_map(
            |(file, offset, length, byte)| Op::Write { file, offset, length, byte }
        ),
        1 => (0..8_usize, 0..5_000_usize, 0..3_u8)
            .prop_map(|(file, length, byte)| Op::Append { file, length, byte }),
        2 => (0..8_usize, prop_oneof![Just(0), 0..20_000_u64])
            .prop_map(|(file, size)| Op::Resize { file, size }),
        2 => (0..8_usize, 0..20_000_u64, 0..10_000_u64, 0..3_u8)
            .prop_map(|(file, offset, length, how)| Op::Zero { file, offset, length, how }),
        2 => (0..8_usize, place())
            .prop_map(|(file, (directory, name))| Op::Link { file, directory, name }),
        4 => (place(), any::<bool>()).prop_map(|((directory, name), is_directory)| {
            Op::Remove { directory, name, is_directory }
        }),
        6 => (place(), place(), 0..4_u8).prop_map(|(from, to, how)| Op::Rename { from, to, how }),
        2 => (0..12_usize, 0..3_u32).prop_map(|(file, mode)| Op::Mode { file, mode }),
        1 => (0..12_usize, proptest::option::of(0..3_u8))
            .prop_map(|(file, value)| Op::Xattr { file, value }),
        2 => Just(Op::Fork),
        1 => Just(Op::Abort),
        3 => Just(Op::Commit),
    ];
    proptest::collection::vec((0..4_usize, op), 1..100)
}

/// A branch, what it should have, and what it began with.
pub struct Pair {
    branch: Branch,
    tree: Tree,
    start: Tree,
    parent: Option<BranchId>,
}

pub struct World {
    pairs: Vec<Pair>,
    next_name: u32,
    writes: u64,
}

fn name(number: u8) -> String {
    format!("n{number}")
}

fn at(list: &[u64], index: usize) -> Option<u64> {
    (!list.is_empty()).then(|| list[index % list.len()])
}

/// What all branches have.
pub type State = Vec<(String, BTreeMap<u64, Seen>)>;

impl World {
    pub fn new(files: &FileSystem) -> World {
        let (branch, tree, start) = (files.main(), Tree::new(), Tree::new());
        World { pairs: vec![Pair { branch, tree, start, parent: None }], next_name: 0, writes: 0 }
    }

    pub fn files(&self) -> FileSystem {
        self.pairs[0].branch.file_system()
    }

    /// What the oracle says.
    pub fn state(&self) -> State {
        let of = |pair: &Pair| (pair.branch.name().to_owned(), shape(&pair.tree));
        let mut state: State = self.pairs.iter().map(of).collect();
        state.sort_by(|a, b| a.0.cmp(&b.0));
        state
    }

    /// Goes on with another file system, which must have the same branches. Gives up the old one
    /// before `open` is called.
    pub fn reopen(&mut self, open: impl FnOnce() -> FileSystem) {
        let nowhere = FileSystem::new().main();
        let names: Vec<_> = self.pairs.iter().map(|pair| pair.branch.name().to_owned()).collect();
        self.pairs.iter_mut().for_each(|pair| pair.branch = nowhere.clone());
        let files = open();
        for (pair, name) in self.pairs.iter_mut().zip(names) {
            pair.branch = files.branch(&name).expect("the branch is there");
        }
        assert_eq!(files.branches().len(), self.pairs.len());
        self.check();
        (0..self.pairs.len()).for_each(|which| self.check_diff(which));
    }

    pub fn run(&mut self, which: usize, op: &Op) {
        let which = which % self.pairs.len();
        match op {
            Op::Fork if self.pairs.len() < 5 => return self.fork(which),
            Op::Abort => return self.abort(which),
            Op::Commit => return self.commit(which),
            _ => {}
        }
        self.writes += 1;
        let writes = self.writes;
        let Pair { branch, tree, .. } = &mut self.pairs[which];
        let of_kind = |kind: Kind| -> Vec<u64> {
            let nodes = tree.0.iter().filter(|(_, node)| node.kind() == kind);
            nodes.map(|(number, _)| *number).collect()
        };
        let (files, directories) = (of_kind(Kind::File), of_kind(Kind::Directory));
        let directory = |index: usize| at(&directories, index).unwrap();
        let any = |index: usize| {
            let all: Vec<u64> = tree.0.keys().copied().collect();
            at(&all, index).unwrap()
        };
        match *op {
            Op::Create { directory: d, name: n, is_directory } => {
                let (d, n) = (directory(d), name(n));
                let content = if is_directory { Content::Directory } else { Content::File };
                let new = New { content, mode: 0o700, uid: 0, gid: 0 };
                let made = branch.create(Ino(d), OsStr::new(&n), &new);
                if tree.find(d, &n).is_ok() {
                    assert_eq!(made, Err(Error::Exists));
                } else {
                    let body = match is_directory {
                        true => Body::Directory(BTreeMap::new()),
                        false => Body::File(Vec::new()),
                    };
                    let number = made.unwrap().ino.0;
                    tree.add(d, &n, number, body, 0o700);
                    tree.0.get_mut(&number).unwrap().modified = writes;
                }
            }
            Op::Write { file, offset, length, byte } => {
                let Some(file) = at(&files, file) else { return };
                assert_eq!(branch.write(Ino(file), offset, &vec![byte; length]), Ok(length));
                write(tree.0.get_mut(&file).unwrap(), offset, length, byte, writes);
            }
            Op::Append { file, length, byte } => {
                let Some(file) = at(&files, file) else { return };
                let node = tree.0.get_mut(&file).unwrap();
                let size = bytes(node).len() as u64;
                assert_eq!(branch.append(Ino(file), &vec![byte; length]), Ok(size));
                write(node, size, length, byte, writes);
            }
            Op::Resize { file, size } => {
                let Some(file) = at(&files, file) else { return };
                let set = SetAttributes { size: Some(size), ..Default::default() };
                branch.set_attributes(Ino(file), &set).unwrap();
                let node = tree.0.get_mut(&file).unwrap();
                if bytes(node).len() as u64 != size {
                    bytes(node).resize(size as usize, 0);
                    node.modified = writes;
                }
            }
            Op::Zero { file, offset, length, how } => {
                let Some(file) = at(&files, file) else { return };
                let kinds = [Fallocate::PunchHole, Fallocate::ZeroRange(false), Fallocate::Extend];
                let how = kinds[usize::from(how)];
                let done = branch.allocate(Ino(file), how, offset, length);
                if length == 0 {
                    return assert_eq!(done, Err(Error::Invalid));
                }
                done.unwrap();
                let node = tree.0.get_mut(&file).unwrap();
                let end = (offset + length) as usize;
                if how != Fallocate::PunchHole && bytes(node).len() < end {
                    bytes(node).resize(end, 0);
                }
                if how != Fallocate::Extend {
                    let zeroed = bytes(node).iter_mut().take(end).skip(offset as usize);
                    zeroed.for_each(|byte| *byte = 0);
                }
                node.modified = writes;
            }
            Op::Link { file, directory: d, name: n } => {
                let Some(file) = at(&files, file) else { return };
                let (d, n) = (directory(d), name(n));
                let linked = branch.link(Ino(file), Ino(d), OsStr::new(&n)).map(|_| ());
                if tree.find(d, &n).is_ok() {
                    assert_eq!(linked, Err(Error::Exists));
                } else {
                    assert_eq!(linked, Ok(()));
                    tree.names(d).insert(n, file);
                }
            }
            Op::Remove { directory: d, name: n, is_directory } => {
                let (d, n) = (directory(d), name(n));
                let removed = match is_directory {
                    true => branch.remove_directory(Ino(d), OsStr::new(&n)),
                    false => branch.unlink(Ino(d), OsStr::new(&n)),
                };
                assert_eq!(removed, tree.remove(d, &n, is_directory));
            }
            Op::Rename { from, to, how } => {
                let kinds = [Rename::Replace, Rename::Replace, Rename::NoReplace, Rename::Exchange];
                let how = kinds[usize::from(how)];
                let (from, to) = ((directory(from.0), name(from.1)), (directory(to.0), name(to.1)));
                let of = |place: &(u64, String)| (Ino(place.0), place.1.clone());
                let (of_from, of_to) = (of(&from), of(&to));
                let renamed = branch.rename(
                    (of_from.0, OsStr::new(&of_from.1)),
                    (of_to.0, OsStr::new(&of_to.1)),
                    how,
                );
                assert_eq!(renamed, tree.rename((from.0, &from.1), (to.0, &to.1), how));
            }
            Op::Mode { file, mode } => {
                let file = any(file);
                let set = SetAttributes { mode: Some(mode), ..Default::default() };
                branch.set_attributes(Ino(file), &set).unwrap();
                tree.0.get_mut(&file).unwrap().mode = mode;
            }
            Op::Xattr { file, value } => {
                let file = any(file);
                let key = OsStr::new("user.x");
                match value {
                    Some(value) => {
                        branch.set_xattr(Ino(file), key, &[value], SetXattr::Either).unwrap();
                    }
                    None => {
                        let had = tree.0[&file].xattr.is_some();
                        let removed = branch.remove_xattr(Ino(file), key);
                        assert_eq!(removed, if had { Ok(()) } else { Err(Error::NoAttribute) });
                    }
                }
                tree.0.get_mut(&file).unwrap().xattr = value;
            }
            Op::Fork | Op::Abort | Op::Commit => {}
        }
    }

    fn fork(&mut self, which: usize) {
        let pair = &self.pairs[which];
        let branch = pair.branch.fork(&format!("b{}", self.next_name)).unwrap();
        self.next_name += 1;
        let (tree, start) = (pair.tree.clone(), pair.tree.clone());
        let parent = Some(pair.branch.id());
        self.pairs.push(Pair { branch, tree, start, parent });
    }

    /// Returns the place of the parent, if the branch may end.
    fn parent(&self, which: usize) -> Option<usize> {
        let rows = self.pairs[0].branch.file_system().branches();
        let id = self.pairs[which].branch.id();
        let parent = rows.iter().find(|row| row.id == id).unwrap().parent?;
        let is_free = rows.iter().all(|row| row.parent != Some(id));
        is_free.then(|| self.pairs.iter().position(|pair| pair.branch.id() == parent).unwrap())
    }

    fn abort(&mut self, which: usize) {
        match self.parent(which) {
            None => assert_eq!(self.pairs[which].branch.abort(), Err(Error::Busy)),
            Some(_) => self.pairs.remove(which).branch.abort().unwrap(),
        }
    }

    fn commit(&mut self, which: usize) {
        self.check_diff(which);
        let committed = self.pairs[which].branch.commit();
        let Some(parent) = self.parent_of_ended(which, &committed) else { return };
        let Pair { tree, start, .. } = &self.pairs[which];
        let merged = oracle::merge(start, &self.pairs[parent].tree, tree);
        match (committed, merged) {
            (Ok(committed), Some(merged)) => {
                let expected = oracle::diff(&self.pairs[parent].tree, &merged);
                self.pairs[parent].tree = merged;
                let changes = committed.changes;
                assert_eq!(by_number(&self.pairs[parent].branch, &changes), expected);
                self.pairs.remove(which);
            }
            (Err(NotCommitted::Conflicts(_)), None) => {}
            (committed, merged) => panic!("{committed:?}, but {merged:#?}"),
        }
        self.check();
    }

    fn parent_of_ended(
        &self,
        which: usize,
        committed: &std::result::Result<Committed, NotCommitted>,
    ) -> Option<usize> {
        if let Err(NotCommitted::Error(error)) = committed {
            assert_eq!((*error, self.parent(which)), (Error::Busy, None));
            return None;
        }
        let parent = self.pairs[which].parent;
        self.pairs.iter().position(|pair| Some(pair.branch.id()) == parent)
    }

    fn check_diff(&self, which: usize) {
        let Pair { branch, tree, start, .. } = &self.pairs[which];
        if branch.id() != BranchId::MAIN {
            let found = by_number(branch, &branch.diff().unwrap());
            assert_eq!(found, oracle::diff(start, tree));
        }
    }

    pub fn check(&self) {
        for pair in &self.pairs {
            assert_eq!(read(&pair.branch), shape(&pair.tree));
        }
    }
}

fn bytes(node: &mut Node) -> &mut Vec<u8> {
    match &mut node.body {
        Body::File(bytes) => bytes,
        Body::Directory(_) => panic!("a directory has no bytes"),
    }
}

fn write(node: &mut Node, offset: u64, length: usize, byte: u8, writes: u64) {
    if length == 0 {
        return;
    }
    let (start, end) = (offset as usize, offset as usize + length);
    let bytes = bytes(node);
    bytes.resize(bytes.len().max(end), 0);
    bytes[start..end].fill(byte);
    node.modified = writes;
}

fn by_number(branch: &Branch, changes: &[Change]) -> BTreeSet<Expected> {
    let number = |path: &std::path::Path| branch.resolve(path).unwrap().ino.0;
    let of = |change: &Change| match change {
        Change::Added(path, _) => Expected::Added(path.clone()),
        Change::Removed(path, _) => Expected::Removed(path.clone()),
        Change::Modified(path, _) => Expected::Modified(number(path)),
        Change::Attributes(path, _) => Expected::Attributes(number(path)),
    };
    changes.iter().map(of).collect()
}

/// What can be seen of a file.
#[derive(PartialEq, Debug)]
pub struct Seen {
    body: Body,
    mode: u32,
    links: u32,
    xattr: Option<u8>,
}

fn shape(tree: &Tree) -> BTreeMap<u64, Seen> {
    let links = tree.links();
    let of = |(number, node): (&u64, &Node)| {
        let Node { body, mode, xattr, .. } = node.clone();
        (*number, Seen { body, mode, links: links[number], xattr })
    };
    tree.0.iter().map(of).collect()
}

/// What a branch has.
pub fn read(branch: &Branch) -> BTreeMap<u64, Seen> {
    let mut found = BTreeMap::new();
    let mut left = vec![Ino(ROOT)];
    while let Some(file) = left.pop() {
        let attributes = branch.attributes(file).unwrap();
        let body = if attributes.kind == Kind::Directory {
            let mut entries = BTreeMap::new();
            let read = branch.read_directory(file, 0, &mut |entry| {
                let name = entry.name.to_str().unwrap().to_owned();
                assert_eq!(branch.lookup(file, entry.name).unwrap().ino, entry.ino);
                assert_eq!(entries.insert(name, entry.ino.0), None);
                left.push(entry.ino);
                ControlFlow::Continue(())
            });
            read.unwrap();
            Body::Directory(entries)
        } else {
            let mut bytes = vec![0xff; attributes.size as usize + 1];
            assert_eq!(branch.read(file, 0, &mut bytes).unwrap(), attributes.size as usize);
            bytes.pop();
            Body::File(bytes)
        };
        let xattr = branch.xattr(file, OsStr::new("user.x")).ok().map(|value| value[0]);
        let Attributes { mode, links, .. } = attributes;
        found.insert(file.0, Seen { body, mode, links, xattr });
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::rounds(400) as u32,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn branches_do_what_the_oracle_does(ops in ops()) {
        let files = FileSystem::builder().root(0, 0, 0o755).build().unwrap();
        let mut world = World::new(&files);
        for (which, op) in &ops {
            world.run(*which, op);
        }
        world.check();
        for which in 0..world.pairs.len() {
            world.check_diff(which);
        }
        while world.pairs.len() > 1 {
            world.pairs.pop().unwrap().branch.abort().unwrap();
        }
        let numbers = world.pairs[0].tree.0.len() as u64;
        prop_assert_eq!(files.main().usage().files, numbers);
    }
}
