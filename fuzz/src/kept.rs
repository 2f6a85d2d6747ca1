//! What must hold whatever is in the log of a file system that is kept in a folder.
//!
//! The first byte says whether there is a base, and whether the last piece is no record. The rest is
//! pieces, each a length of two bytes and a payload, of which a log with the right checksums and
//! numbers is made. Demanded is:
//! - Opening the log ends, and its memory and steps follow the bytes.
//! - A log that is refused stays as it is, and the error says where.
//! - What is opened is a tree in each branch: names lead to files, links are names, directories
//!   have one name and say where it is, and the root leads to all.
//! - The log can be written anew, and has the same trees then. Branches can be changed, committed
//!   and given up.

use crate::bounds::Bound;
use manycore_fs::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;
use std::{fs, process};

/// A write of a byte has some 20 bytes, and makes a page and the nodes above it. A fork has 50, and
/// the first change after it copies a path of nodes. The buffer of what is read has a megabyte.
const BOUND: Bound = Bound { each: 1024, besides: 4 << 20 };

const SALT: u64 = 7;
const START: usize = 20;
const HEADER: usize = 28;
/// Kinds of records.
const BASE: u8 = 0;
const READY: u8 = 6;

fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc32fast::hash(bytes).to_le_bytes()
}

/// The base of some inputs: the same for all.
fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        // One for all processes: nothing of an input depends on who makes it.
        let base = folder();
        let shared = base.with_file_name("fuzz-kept-base");
        fs::create_dir_all(base.join("d/e")).expect("a folder");
        fs::write(base.join("d/f"), [1; 5000]).expect("a file");
        fs::write(base.join("g"), "text").expect("a file");
        fs::hard_link(base.join("g"), base.join("d/h")).expect("a link");
        std::os::unix::fs::symlink("d/f", base.join("l")).expect("a link");
        if fs::rename(&base, &shared).is_err() {
            fs::remove_dir_all(&base).expect("another process was faster");
        }
        shared.canonicalize().expect("it was made")
    })
}

/// A new folder, in memory where Linux has a folder for that.
fn folder() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let shared = Path::new("/dev/shm");
    let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = parent.join(format!("fuzz-kept-{}-{number}", process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// A log of these payloads.
fn log(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut log = [&b"mcfslog1"[..], &SALT.to_le_bytes()].concat();
    log.extend(checksum(&log));
    let (mut number, mut grows) = (0_u64, false);
    for payload in payloads {
        number += u64::from(grows);
        grows |= payload.first() == Some(&READY);
        let at = log.len();
        log.extend((payload.len() as u32).to_le_bytes());
        log.extend(checksum(payload));
        log.extend(number.to_le_bytes());
        log.extend(number.saturating_sub(1).to_le_bytes());
        let own = checksum(&[&SALT.to_le_bytes(), &log[at..]].concat());
        log.extend(own);
        log.extend_from_slice(payload);
    }
    log
}

/// The payloads of an input.
fn payloads(data: &[u8], has_base: bool) -> Vec<Vec<u8>> {
    let (mut all, mut rest) = (Vec::new(), data);
    while let [low, high, more @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (payload, after) = more.split_at(length);
        let is_base = has_base && all.is_empty() && payload.first() == Some(&BASE);
        all.push(if is_base { record_of_base() } else { payload.to_vec() });
        rest = after;
    }
    all
}

fn record_of_base() -> Vec<u8> {
    let path = base().as_os_str().as_bytes();
    let number = fs::metadata(base()).expect("it is there").ino();
    let length = path.len() as u32;
    [&[BASE, 1], &number.to_le_bytes()[..], &length.to_le_bytes(), path].concat()
}

/// What is to be seen of a file.
#[derive(Debug, PartialEq)]
struct Seen {
    attributes: Attributes,
    xattrs: Vec<(OsString, Vec<u8>)>,
    target: Option<OsString>,
    entries: BTreeMap<OsString, Ino>,
    /// The places and bytes of its data.
    data: Vec<(u64, Vec<u8>)>,
}

type Tree = BTreeMap<Ino, Seen>;

fn data(branch: &Branch, file: Ino) -> Vec<(u64, Vec<u8>)> {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Ok(from) = branch.seek(file, at, Whence::Data) {
        let to = branch.seek(file, from, Whence::Hole).expect("a file ends with a hole");
        assert!(from >= at && to > from, "{at} {from} {to}");
        let mut bytes = vec![0; (to - from) as usize];
        assert_eq!(branch.read(file, from, &mut bytes), Ok(bytes.len()));
        all.push((from, bytes));
        at = to;
    }
    all
}

/// Walks a branch, and demands that it is a tree.
fn walk(branch: &Branch, has_base: bool) -> Tree {
    let (mut tree, mut left) = (Tree::new(), vec![Ino::ROOT]);
    let (mut names, mut directories) = (BTreeMap::new(), BTreeSet::from([Ino::ROOT]));
    assert_eq!(branch.parent(Ino::ROOT), Ok(Ino::ROOT));
    while let Some(file) = left.pop() {
        let mut attributes = branch.attributes(file).expect("a name leads to a file");
        if has_base {
            attributes.accessed = UNIX_EPOCH; // the host's, which reading changes
        }
        let mut entries = BTreeMap::new();
        if attributes.kind == Kind::Directory {
            let each = &mut |entry: Entry<'_>| {
                let kind = branch.attributes(entry.ino).map(|found| found.kind);
                assert_eq!(kind, Ok(entry.kind), "{entry:?}");
                assert_eq!(branch.lookup(file, entry.name).map(|found| found.ino), Ok(entry.ino));
                assert!(entries.insert(entry.name.to_owned(), entry.ino).is_none(), "{entry:?}");
                *names.entry(entry.ino).or_insert(0) += 1;
                if entry.kind == Kind::Directory {
                    assert!(directories.insert(entry.ino), "{entry:?} has two names");
                    assert_eq!(branch.parent(entry.ino), Ok(file));
                }
                if entry.kind == Kind::Directory || names[&entry.ino] == 1 {
                    left.push(entry.ino);
                }
                ControlFlow::Continue(())
            };
            branch.read_directory(file, 0, each).expect("a directory");
        }
        let xattr = |name: OsString| {
            let value = branch.xattr(file, &name).expect("it was listed");
            (name, value)
        };
        let xattrs = branch.xattrs(file).expect("a file").into_iter().map(xattr).collect();
        let data = if attributes.kind == Kind::File { data(branch, file) } else { Vec::new() };
        let target = branch.read_link(file).ok();
        assert!(attributes.mode <= 0o7777);
        tree.insert(file, Seen { attributes, xattrs, target, entries, data });
    }
    if !has_base {
        for (ino, seen) in &tree {
            let is_directory = seen.attributes.kind == Kind::Directory;
            let below = seen.entries.values().filter(|ino| directories.contains(ino)).count();
            let links = if is_directory { 2 + below } else { names[ino] };
            assert_eq!(seen.attributes.links as usize, links, "{ino:?} {seen:?}");
            if is_directory {
                assert_eq!(seen.attributes.size, (seen.entries.len() as u64 + 2) * 20);
            }
        }
    }
    tree
}

/// All branches: parent, name and tree.
type Forest = BTreeMap<BranchId, (Option<BranchId>, String, Tree)>;

fn all(files: &FileSystem, has_base: bool) -> Forest {
    let rows = files.branches().into_iter();
    rows.map(|row| {
        let branch = files.branch_by_id(row.id).expect("it is listed");
        (row.id, (row.parent, row.name, walk(&branch, has_base)))
    })
    .collect()
}

/// Opens a log.
pub fn kept(input: &[u8]) {
    let [setup, rest @ ..] = input else { return };
    let (has_base, has_tail) = (setup & 1 != 0, setup & 2 != 0);
    let mut payloads = payloads(rest, has_base);
    let tail = if has_tail { payloads.pop() } else { None };
    let log = [log(&payloads), tail.unwrap_or_default()].concat();
    let folder = folder();
    demand(&folder, &log, has_base);
    fs::remove_dir_all(&folder).expect("it was made");
}

fn demand(folder: &Path, log: &[u8], has_base: bool) {
    let path = folder.join("log");
    fs::write(&path, log).expect("a log");
    let open = || {
        let builder = FileSystem::builder().root(0, 0, 0o755).keep(folder);
        if has_base { builder.base(base()).build() } else { builder.build() }
    };
    let files = match BOUND.hold(log.len(), open) {
        Ok(files) => files,
        Err(error) => {
            let words = error.to_string();
            assert!(words.contains("log at offset "), "{words}");
            assert!(fs::read(&path).expect("a log") == log, "it has changed: {words}");
            return;
        }
    };
    let before = all(&files, has_base);
    if !has_base && before.len() == 1 {
        let tree = &before[&BranchId::MAIN].2;
        assert_eq!(files.main().usage().files, tree.len() as u64, "files without a name");
    }
    files.compact().expect("it can be written anew");
    assert!(all(&files, has_base) == before, "writing anew has changed something");
    drop(files);
    let files = open().unwrap_or_else(|error| panic!("written anew: {error}"));
    assert!(files.recovered().is_none());
    let after = all(&files, has_base);
    assert_eq!(after, before);
    live(&files, has_base);
    let before = all(&files, has_base);
    drop(files);
    let files = open().unwrap_or_else(|error| panic!("after changes: {error}"));
    assert!(all(&files, has_base) == before);
}

/// Changes and ends the branches, the youngest first.
fn live(files: &FileSystem, has_base: bool) {
    for row in files.branches().into_iter().rev() {
        let branch = files.branch_by_id(row.id).expect("it is listed");
        // The last number may be used.
        let made = branch.create_directories("/made/here");
        assert!(!matches!(made, Err(Error::NotFound | Error::Invalid)), "{made:?}");
        let _ = branch.rename(
            (Ino::ROOT, OsStr::new("made")),
            (Ino::ROOT, OsStr::new("moved")),
            Rename::Exchange,
        );
        branch.diff().expect("versions are compared");
        if row.id != BranchId::MAIN && branch.commit().is_err() {
            branch.abort().expect("it has no branches of its own");
        }
    }
    let main = files.main();
    walk(&main, has_base);
    let mut names = Vec::new();
    main.read_directory(Ino::ROOT, 0, &mut |entry| {
        names.push(entry.name.to_owned());
        ControlFlow::Continue(())
    })
    .expect("the root");
    for name in names {
        main.remove_all(Path::new("/").join(name)).expect("it is there");
    }
    assert_eq!(main.attributes(Ino::ROOT).map(|root| root.kind), Ok(Kind::Directory));
}

/// Inputs from logs that a file system has written.
pub fn saved() -> Vec<Vec<u8>> {
    let of = |compacts, has_base| {
        let folder = folder();
        let builder = FileSystem::builder().root(0, 0, 0o755).keep(&folder);
        let builder = if has_base { builder.base(base()) } else { builder };
        let files = builder.build().expect("a folder");
        script(&files, has_base);
        if compacts {
            files.compact().expect("it can be written");
        }
        files.sync().expect("it can be written");
        let log = fs::read(folder.join("log")).expect("a log");
        drop(files);
        fs::remove_dir_all(&folder).expect("it was made");
        let (mut input, mut at) = (vec![u8::from(has_base)], START);
        while at < log.len() {
            let length = u32::from_le_bytes(log[at..at + 4].try_into().expect("four bytes"));
            input.extend((length as u16).to_le_bytes());
            at += HEADER + length as usize;
            input.extend_from_slice(&log[at - length as usize..at]);
        }
        input
    };
    [(false, false), (true, false), (false, true), (true, true)].map(|(c, b)| of(c, b)).into()
}

fn script(files: &FileSystem, has_base: bool) {
    let run = || -> Result<()> {
        let main = files.main();
        main.create_directories("/a/b")?;
        main.write_file("/a/x", b"one")?;
        let (a, b) = (main.resolve("/a")?.ino, main.resolve("/a/b")?.ino);
        let x = main.resolve("/a/x")?.ino;
        main.link(x, b, OsStr::new("y"))?;
        main.set_xattr(x, OsStr::new("user.x"), b"1", SetXattr::Either)?;
        let link = New { content: Content::Symlink(OsStr::new("a/x")), mode: 0, uid: 1, gid: 2 };
        main.create(Ino::ROOT, OsStr::new("k"), &link)?;
        let one = main.fork("one")?;
        one.write(x, 5000, b"two")?;
        one.allocate(x, Fallocate::PunchHole, 1, 4998)?;
        let two = one.fork("two")?;
        two.rename((a, OsStr::new("b")), (Ino::ROOT, OsStr::new("c")), Rename::Replace)?;
        two.unlink(a, OsStr::new("x"))?;
        main.rename((a, OsStr::new("x")), (a, OsStr::new("b")), Rename::Exchange)?;
        if has_base {
            let f = main.resolve("/d/f")?.ino;
            main.allocate(f, Fallocate::PunchHole, 0, 4096)?;
            main.append(f, b"more")?;
            one.remove_all("/d")?;
        }
        let set = SetAttributes { size: Some(2), mode: Some(0o700), ..Default::default() };
        one.set_attributes(x, &set)?;
        let three = main.fork("three")?;
        three.write_file("/new", b"three")?;
        three.commit().map_err(|_| Error::Busy)?;
        main.fork("four")?.abort()
    };
    run().expect("all of it can be done");
}
