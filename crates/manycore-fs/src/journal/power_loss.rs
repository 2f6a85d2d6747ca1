//! Losses of power. A random program runs on a folder, and the test records all writes of the log.
//! From these it makes a disk as a loss of power may leave it: each sector that no sync followed is
//! lost or kept, in any order, while names of files come and go in order. The log on that disk must
//! open to the state after some operation, and no operation that a sync had promised may be
//! missing.
//!
//! `MANYCORE_SEED=N` repeats a program.

use super::Journal;
use crate::{
    Attributes, Branch, BranchId, Content, Fallocate, FileSystem, Ino, Kind, New, Rename,
    SetAttributes, SetXattr,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is written at once, or not at all.
const SECTOR: usize = 512;

/// A generator of random numbers (SplitMix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// What a log does to its folder, in order. Files go by a number for each time they are opened.
#[derive(Clone, Debug)]
enum Event {
    Open { file: usize, name: OsString, is_new: bool },
    Write { file: usize, offset: u64, bytes: Vec<u8> },
    Length { file: usize, length: u64 },
    Sync { file: usize },
    Rename { from: OsString, to: OsString },
    SyncFolder,
}

/// Folders that are watched.
static WATCHED: Mutex<BTreeMap<PathBuf, Vec<Event>>> = Mutex::new(BTreeMap::new());

fn watched() -> MutexGuard<'static, BTreeMap<PathBuf, Vec<Event>>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(path: &Path) -> OsString {
    path.file_name().expect("a file of a folder").to_owned()
}

/// An open file, for the watch. No folder: nobody watches.
pub(super) struct Seen {
    folder: Option<PathBuf>,
    file: usize,
}

impl Seen {
    pub(super) fn open(path: &Path, is_new: bool) -> Seen {
        let folder = path.parent().expect("a file of a folder");
        let mut watched = watched();
        let Some(events) = watched.get_mut(folder) else { return Seen { folder: None, file: 0 } };
        let file = events.len();
        events.push(Event::Open { file, name: name(path), is_new });
        Seen { folder: Some(folder.to_owned()), file }
    }

    fn push(&self, event: impl FnOnce(usize) -> Event) {
        let Some(folder) = &self.folder else { return };
        if let Some(events) = watched().get_mut(folder) {
            events.push(event(self.file));
        }
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        self.push(|file| Event::Write { file, offset, bytes: bytes.to_vec() });
    }

    pub(super) fn copy(&self, to: &File, from: &File, start: u64, count: u64) {
        let (mut to, mut bytes) = (to, vec![0; count as usize]);
        from.read_exact_at(&mut bytes, start).expect("what was written");
        let offset = io::Seek::stream_position(&mut to).expect("a file");
        self.write(offset, &bytes);
    }

    pub(super) fn set_length(&self, length: u64) {
        self.push(|file| Event::Length { file, length });
    }

    pub(super) fn sync(&self) {
        self.push(|file| Event::Sync { file });
    }
}

pub(super) fn renames(from: &Path, to: &Path) {
    let folder = from.parent().expect("a file of a folder");
    if let Some(events) = watched().get_mut(folder) {
        events.push(Event::Rename { from: name(from), to: name(to) });
    }
}

pub(super) fn synced(folder: &Path) {
    if let Some(events) = watched().get_mut(folder) {
        events.push(Event::SyncFolder);
    }
}

/// A file on the disk, and what the kernel has of it beyond that.
#[derive(Clone, Default)]
struct Stored {
    durable: Vec<u8>,
    /// What it was after each write since.
    later: Vec<Vec<u8>>,
}

impl Stored {
    fn now(&self) -> &Vec<u8> {
        self.later.last().unwrap_or(&self.durable)
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut now = self.now().clone();
        change(&mut now);
        self.later.push(now);
    }

    /// What the disk may have: each sector as of some moment since the last sync.
    fn torn(&self, rng: &mut Rng, luck: Luck) -> Vec<u8> {
        let mut version = || match luck {
            Luck::None => &self.durable,
            Luck::All => self.now(),
            Luck::Some => match rng.below(self.later.len() + 1) {
                0 => &self.durable,
                at => &self.later[at - 1],
            },
        };
        let mut bytes = vec![0; version().len()];
        for (at, sector) in bytes.chunks_mut(SECTOR).enumerate() {
            let from = version().get(at * SECTOR..).unwrap_or_default();
            let count = from.len().min(sector.len());
            sector[..count].copy_from_slice(&from[..count]);
        }
        bytes
    }
}

#[derive(Clone, Copy)]
enum Luck {
    None,
    Some,
    All,
}

/// A change of names in the folder.
#[derive(Clone)]
enum Naming {
    New(OsString, usize),
    Rename(OsString, OsString),
}

/// The disk with the folder.
#[derive(Clone, Default)]
struct Disk {
    files: Vec<Stored>,
    durable: BTreeMap<OsString, usize>,
    later: Vec<Naming>,
    /// The files of a process's numbers.
    open: BTreeMap<usize, usize>,
}

impl Disk {
    /// The names after some of the changes since the last sync.
    fn names(&self, count: usize) -> BTreeMap<OsString, usize> {
        let mut names = self.durable.clone();
        for naming in &self.later[..count] {
            match naming {
                Naming::New(name, file) => drop(names.insert(name.clone(), *file)),
                Naming::Rename(from, to) => {
                    let file = names.remove(from).expect("it was made before");
                    names.insert(to.clone(), file);
                }
            }
        }
        names
    }

    fn run(&mut self, event: &Event) {
        match event {
            Event::Open { file, name, is_new } => {
                let found = self.names(self.later.len()).get(name).copied();
                let place = match found {
                    Some(place) => place,
                    None => {
                        self.files.push(Stored::default());
                        self.later.push(Naming::New(name.clone(), self.files.len() - 1));
                        self.files.len() - 1
                    }
                };
                if *is_new {
                    self.files[place].change(Vec::clear);
                }
                self.open.insert(*file, place);
            }
            Event::Write { file, offset, bytes } => self.file(*file).change(|now| {
                let (start, end) = (*offset as usize, *offset as usize + bytes.len());
                now.resize(now.len().max(end), 0);
                now[start..end].copy_from_slice(bytes);
            }),
            Event::Length { file, length } => {
                self.file(*file).change(|now| now.resize(*length as usize, 0));
            }
            Event::Sync { file } => {
                let file = self.file(*file);
                file.durable = file.now().clone();
                file.later.clear();
            }
            Event::Rename { from, to } => self.later.push(Naming::Rename(from.clone(), to.clone())),
            Event::SyncFolder => {
                self.durable = self.names(self.later.len());
                self.later.clear();
            }
        }
    }

    fn file(&mut self, number: usize) -> &mut Stored {
        let place = self.open[&number];
        &mut self.files[place]
    }

    /// The power fails.
    fn loses_power(&mut self, rng: &mut Rng) {
        let luck = *rng.pick(&[Luck::None, Luck::All, Luck::Some, Luck::Some]);
        let names = self.names(match luck {
            Luck::None => 0,
            Luck::All => self.later.len(),
            Luck::Some => rng.below(self.later.len() + 1),
        });
        let contents = names.values().map(|file| self.files[*file].torn(rng, luck)).collect();
        let contents: Vec<Vec<u8>> = contents;
        self.files =
            contents.into_iter().map(|durable| Stored { durable, later: vec![] }).collect();
        self.durable = names.into_keys().zip(0..).collect();
        self.later.clear();
    }

    /// Makes the folder as a process finds it.
    fn put(&mut self, folder: &Path) {
        self.open.clear();
        for (name, file) in self.names(self.later.len()) {
            fs::write(folder.join(name), self.files[file].now()).expect("a file");
        }
    }
}

/// What is to be seen of a branch: attributes, bytes and entries.
type Tree = BTreeMap<Ino, (Attributes, Vec<u8>, BTreeMap<OsString, Ino>)>;

type State = BTreeMap<String, Tree>;

fn state(files: &FileSystem) -> State {
    let rows = files.branches().into_iter();
    rows.map(|row| (row.name, tree(&files.branch_by_id(row.id).expect("it is listed")))).collect()
}

fn tree(branch: &Branch) -> Tree {
    let (mut tree, mut left) = (BTreeMap::new(), vec![Ino::ROOT]);
    while let Some(ino) = left.pop() {
        let attributes = branch.attributes(ino).expect("a name leads to a file");
        let (mut bytes, mut entries) = (Vec::new(), BTreeMap::new());
        if attributes.kind == Kind::Directory {
            let each = &mut |entry: crate::Entry<'_>| {
                entries.insert(entry.name.to_owned(), entry.ino);
                left.push(entry.ino);
                ControlFlow::Continue(())
            };
            branch.read_directory(ino, 0, each).expect("a directory");
        } else {
            bytes.resize(attributes.size as usize, 0);
            branch.read(ino, 0, &mut bytes).expect("a file");
            bytes.extend(branch.xattr(ino, OsStr::new("user.x")).unwrap_or_default());
        }
        tree.insert(ino, (attributes, bytes, entries));
    }
    tree
}

/// Does something to a branch, which may be refused.
fn operate(files: &FileSystem, rng: &mut Rng) {
    let rows = files.branches();
    let Some(branch) = files.branch_by_id(rng.pick(&rows).id) else { return };
    let all: Vec<(Ino, Kind)> =
        tree(&branch).iter().map(|(ino, file)| (*ino, file.0.kind)).collect();
    let of = |kind| all.iter().filter(|file| file.1 == kind).map(|file| file.0).collect::<Vec<_>>();
    let (directories, regular) = (of(Kind::Directory), of(Kind::File));
    let directory = *rng.pick(&directories);
    let word = |rng: &mut Rng| OsString::from(format!("n{}", rng.below(4)));
    let (a, b) = (word(rng), word(rng));
    let file = if regular.is_empty() { Ino::ROOT } else { *rng.pick(&regular) };
    // Few lengths, so that a record often is as long as one that was cut off at its place.
    let bytes = vec![rng.below(250) as u8; *rng.pick(&[0, 700, 700, 2000])];
    let (offset, other) = (rng.below(9000) as u64, *rng.pick(&directories));
    let _has_changed = match rng.below(16) {
        0..=3 => {
            let content = if rng.once_in(3) { Content::Directory } else { Content::File };
            let new = New { content, mode: 0o700, uid: 0, gid: 0 };
            branch.create(directory, &a, &new).is_ok()
        }
        4..=7 => branch.write(file, offset, &bytes).is_ok(),
        8 if rng.once_in(2) => {
            let set = SetAttributes { size: Some(offset), ..Default::default() };
            branch.set_attributes(file, &set).is_ok()
        }
        8 => branch.allocate(file, Fallocate::PunchHole, offset, 5000).is_ok(),
        9 => branch.link(file, directory, &a).is_ok(),
        10 => branch.unlink(directory, &a).is_ok(),
        11 => branch.remove_directory(directory, &a).is_ok(),
        12 => {
            let how = *rng.pick(&[Rename::Replace, Rename::Exchange]);
            branch.rename((directory, &a), (other, &b), how).is_ok()
        }
        13 => branch.set_xattr(file, OsStr::new("user.x"), &bytes, SetXattr::Either).is_ok(),
        14 if rows.len() < 4 => branch.fork(&format!("b{}", rng.below(9))).is_ok(),
        _ if branch.id() == BranchId::MAIN => false,
        _ if rng.once_in(3) => branch.abort().is_ok(),
        _ => branch.commit().is_ok(),
    };
}

impl Journal {
    /// Writes what there is, and does not wait for the disk.
    fn write_now(&self) {
        let state = self.shared.lock();
        if !state.is_writing {
            drop(self.shared.flush(state, false));
        }
    }
}

/// What was done until an event.
#[derive(Clone, Copy)]
struct Mark {
    events: usize,
    /// The states that were reached, and those that a sync has promised.
    reached: usize,
    promised: Option<usize>,
}

/// What may be found on the disk: a state from the last that was promised on.
struct Past {
    states: Vec<State>,
    /// None: no file system was there for sure.
    promised: Option<usize>,
}

/// Runs a program on what the disk has, and lets power or the process fail at some moment of it.
fn life(disk: &mut Disk, past: &mut Past, rng: &mut Rng) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    let path = folder.path().canonicalize().expect("it was made");
    disk.put(&path);
    let had_log = path.join("log").exists();
    watched().insert(path.clone(), Vec::new());
    let seen = || watched()[&path].len();
    let files = FileSystem::builder().root(0, 0, 0o755).keep(&path).build();
    let files = files.unwrap_or_else(|error| panic!("{error}"));
    let Past { states, promised } = past;
    let opened = state(&files);
    if !had_log && promised.is_none() {
        *states = vec![opened.clone()]; // a new file system
    }
    let found = states.iter().rposition(|state| *state == opened);
    let found = found.expect("a state that was");
    assert!(Some(found) >= *promised, "state {found}, and {promised:?} was promised");
    states.truncate(found + 1);
    let mut marks = vec![Mark { events: 0, reached: found, promised: *promised }];
    let mark = |reached, promised, marks: &mut Vec<Mark>| {
        marks.push(Mark { events: seen(), reached, promised: Some(promised) });
    };
    let mut safe = found;
    mark(found, safe, &mut marks);
    for _ in 0..rng.below(40) {
        operate(&files, rng);
        states.push(state(&files));
        let reached = states.len() - 1;
        mark(reached, safe, &mut marks);
        match rng.below(12) {
            0 => files.sync().expect("the disk works"),
            1 | 2 => {
                files.core.journal.get().expect("it is kept").write_now();
                continue;
            }
            3 if rng.once_in(2) => files.compact().expect("the disk works"),
            _ => continue,
        }
        safe = reached;
        mark(reached, safe, &mut marks);
    }
    drop(files);
    let events = watched().remove(&path).expect("it was watched");
    // At this moment.
    let end = rng.below(events.len() + 1);
    events[..end].iter().for_each(|event| disk.run(event));
    let at = marks.iter().rposition(|mark| mark.events <= end).expect("the first mark");
    // What was begun may be there as well.
    let reached = marks.get(at + 1).map_or(states.len() - 1, |next| next.reached);
    *promised = marks[at].promised;
    states.truncate(reached + 1);
    if !rng.once_in(3) {
        disk.loses_power(rng);
    }
}

#[test]
fn what_was_synced_survives_a_loss_of_power() {
    let given = |name| std::env::var(name).ok();
    let seed = given("MANYCORE_SEED").map(|seed| seed.parse().expect("a number"));
    let is_short = given("MANYCORE_TESTS").is_some_and(|form| form == "short");
    for _ in 0..if is_short { 10 } else { 40 } {
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        eprintln!("MANYCORE_SEED={seed}"); // shown if it fails
        let (mut rng, mut disk) = (Rng(seed), Disk::default());
        let mut past = Past { states: Vec::new(), promised: None };
        for _ in 0..5 {
            life(&mut disk, &mut past, &mut rng);
        }
    }
}
