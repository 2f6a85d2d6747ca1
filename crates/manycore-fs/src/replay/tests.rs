//! Forged logs: all checksums hold, but a record does not fit the tree. Each log is refused at this
//! record, and stays as it was.

use crate::files::leads_to_root;
use crate::journal::record::{self, Change, HEADER};
use crate::xattrs::Pair;
use crate::{BranchId, Builder, Content, Error, FileSystem, Ino, Kind, New};
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use tempfile::TempDir;

const SALT: u64 = 9;
const MAIN: BranchId = BranchId(0);

fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// A log that is being forged.
#[derive(Clone)]
struct Forged {
    bytes: Vec<u8>,
    number: u64,
    /// Where the last record begins.
    last: usize,
}

/// Words of an inode, one by one.
#[derive(Clone, Copy)]
struct Raw<'a> {
    kind: Kind,
    mode: u32,
    links: u32,
    size: u64,
    backed: u64,
    target: &'a [u8],
}

const FILE: Raw<'_> = Raw { kind: Kind::File, mode: 0, links: 1, size: 0, backed: 0, target: b"" };
const DIRECTORY: Raw<'_> = Raw { kind: Kind::Directory, links: 2, ..FILE };

fn inode(change: &mut Change, ino: u64, raw: Raw<'_>) {
    change.0.push(0);
    for word in [ino, raw.size, 0, raw.backed, 0, 0, 0, 0] {
        change.0.extend(word.to_le_bytes());
    }
    for word in [raw.mode, raw.links, 0, 0] {
        change.0.extend(word.to_le_bytes());
    }
    change.0.push(raw.kind.code());
    change.0.extend((raw.target.len() as u32).to_le_bytes());
    change.0.extend(raw.target);
}

fn change(make: impl FnOnce(&mut Change)) -> Vec<u8> {
    let mut change = Change::new(MAIN);
    make(&mut change);
    change.0
}

fn root(links: u32, size: u64) -> Raw<'static> {
    Raw { links, size, mode: 0o755, ..DIRECTORY }
}

impl Forged {
    fn empty() -> Self {
        Self { bytes: record::start(SALT), number: 0, last: 0 }
    }

    /// A log with a root directory.
    fn new() -> Self {
        Self::of(&record::base(None)).at_once(&change(|c| inode(c, 1, root(2, 0)))).ready()
    }

    /// A log that begins with this record.
    fn of(payload: &[u8]) -> Self {
        Self::empty().at_once(payload)
    }

    fn put(mut self, payload: &[u8], number: u64) -> Self {
        self.last = self.bytes.len();
        let (length, sum) = (payload.len() as u32, record::checksum(&[payload]));
        self.bytes.extend(record::header(SALT, length, sum, number, 0));
        self.bytes.extend(payload);
        Self { number, ..self }
    }

    /// Adds a record of what is written at once.
    fn at_once(self, payload: &[u8]) -> Self {
        let number = self.number;
        self.put(payload, number)
    }

    fn ready(self) -> Self {
        self.at_once(&record::ready(1, 1))
    }

    fn then(self, payload: &[u8]) -> Self {
        let number = self.number + 1;
        self.put(payload, number)
    }

    fn change(self, make: impl FnOnce(&mut Change)) -> Self {
        self.then(&change(make))
    }

    /// Adds directory 64, `d`, and in it directory 65, `e`.
    fn with_directories(self) -> Self {
        let below = |c: &mut Change, (above, ino): (u64, u64), name: &[u8]| {
            c.entry(Ino(above), name, Some((Ino(ino), Kind::Directory)), true);
        };
        self.change(|c| {
            inode(c, 1, root(3, 1));
            inode(c, 64, DIRECTORY);
            below(c, (1, 64), b"d");
        })
        .change(|c| {
            inode(c, 64, Raw { links: 3, size: 1, ..DIRECTORY });
            inode(c, 65, DIRECTORY);
            below(c, (64, 65), b"e");
        })
    }

    /// Adds a file, 64, `f`.
    fn with_file(self, raw: Raw<'_>) -> Self {
        self.change(|c| {
            inode(c, 1, root(2, 1));
            inode(c, 64, raw);
            c.entry(Ino::ROOT, b"f", Some((Ino(64), raw.kind)), true);
        })
    }

    fn open(&self, builder: Builder) -> (TempDir, std::io::Result<FileSystem>) {
        let folder = folder();
        fs::write(folder.path().join("log"), &self.bytes).unwrap();
        let files = builder.keep(folder.path()).build();
        (folder, files)
    }

    #[track_caller]
    fn opens(&self) -> (TempDir, FileSystem) {
        let (folder, files) = self.open(FileSystem::builder());
        (folder, files.unwrap_or_else(|error| panic!("{error}")))
    }

    /// The last record does not fit, for this reason.
    #[track_caller]
    fn refused(&self, words: &str) {
        self.refused_with(FileSystem::builder(), words);
    }

    #[track_caller]
    fn refused_with(&self, builder: Builder, words: &str) {
        let (folder, files) = self.open(builder);
        let said = files.expect_err("it is refused").to_string();
        let at = format!("log at offset {}: ", self.last);
        assert!(said.contains(&at) && said.contains(words), "{said}, not {at}{words}");
        assert_eq!(fs::read(folder.path().join("log")).unwrap(), self.bytes);
    }
}

#[test]
fn forger_makes_logs_that_open() {
    let (_folder, files) = Forged::new().with_directories().opens();
    assert_eq!(files.main().resolve("/d/e").unwrap().ino, Ino(65));
    let (_folder, files) = Forged::new().with_file(FILE).opens();
    assert_eq!(files.main().resolve("/f").unwrap().links, 1);
}

#[test]
fn directory_below_itself_is_refused() {
    let log = Forged::new().with_directories();
    let circle = log.clone().change(|c| {
        inode(c, 1, root(2, 0));
        inode(c, 64, Raw { links: 3, size: 1, ..DIRECTORY });
        inode(c, 65, Raw { links: 3, size: 1, ..DIRECTORY });
        c.entry(Ino::ROOT, b"d", None, false);
        c.entry(Ino(65), b"x", Some((Ino(64), Kind::Directory)), true);
    });
    circle.refused("is a directory that the root does not lead to");
    // Two new ones that are below each other, and in what is written at once.
    let pair = |c: &mut Change| {
        inode(c, 66, Raw { links: 3, size: 1, ..DIRECTORY });
        inode(c, 67, Raw { links: 3, size: 1, ..DIRECTORY });
        c.entry(Ino(66), b"x", Some((Ino(67), Kind::Directory)), true);
        c.entry(Ino(67), b"x", Some((Ino(66), Kind::Directory)), true);
    };
    log.change(pair).refused("is a directory that the root does not lead to");
    let at_once = change(|c| {
        inode(c, 1, root(2, 0));
        pair(c);
    });
    let at_once = Forged::of(&record::base(None)).at_once(&at_once);
    at_once.clone().ready().refused("is a directory that the root does not lead to");
    let fork = record::fork(MAIN, BranchId(1), 0, "try");
    at_once.at_once(&fork).refused("is a directory that the root does not lead to");
}

#[test]
fn directory_of_no_or_several_names_is_refused() {
    let log = Forged::new().with_directories();
    let named = |is_home| {
        log.clone().change(|c| {
            inode(c, 1, root(4, 2));
            c.entry(Ino::ROOT, b"x", Some((Ino(65), Kind::Directory)), is_home);
        })
    };
    named(true).refused("file 65 is a directory without a name, or with several");
    named(false).refused("file 65 is a directory without a name, or with several");
    let unnamed = log.clone().change(|c| {
        inode(c, 64, DIRECTORY);
        c.entry(Ino(64), b"e", None, false);
    });
    unnamed.refused("file 65 is a directory without a name, or with several");
    log.clone()
        .change(|c| inode(c, 66, DIRECTORY))
        .refused("file 66 is a directory without a name, or with several");
    // Moved, but it says that it is where it was.
    let moved = log.clone().change(|c| {
        inode(c, 1, root(4, 2));
        inode(c, 64, DIRECTORY);
        inode(c, 65, DIRECTORY);
        c.entry(Ino(64), b"e", None, false);
        c.entry(Ino::ROOT, b"x", Some((Ino(65), Kind::Directory)), false);
    });
    moved.refused("file 65 is a directory that is not where its name is");
    let of_root = log.change(|c| {
        inode(c, 65, Raw { links: 3, size: 1, ..DIRECTORY });
        c.entry(Ino(65), b"x", Some((Ino::ROOT, Kind::Directory)), true);
    });
    of_root.refused("file 1 is a directory without a name, or with several");
}

#[test]
fn links_and_sizes_that_are_not_those_of_names_are_refused() {
    let log = Forged::new().with_file(FILE);
    let again = |links| {
        log.clone().change(|c| {
            inode(c, 1, root(2, 2));
            inode(c, 64, Raw { links, ..FILE });
            c.entry(Ino::ROOT, b"g", Some((Ino(64), Kind::File)), false);
        })
    };
    again(1).refused("file 64 has 1 links, and 2 names");
    assert_eq!(again(2).opens().1.main().resolve("/g").unwrap().links, 2);
    let many = log.clone().change(|c| inode(c, 64, Raw { links: 1_000_000, ..FILE }));
    many.refused("file 64 has 1000000 links, and 1 names");
    let gone = |c: &mut Change| c.gone(Ino(64));
    log.clone().change(gone).refused("file 64 is gone, and has names or entries");
    let unnamed = log.clone().change(|c| {
        inode(c, 1, root(2, 0));
        c.entry(Ino::ROOT, b"f", None, false);
    });
    unnamed.refused("file 64 has 1 links, and 0 names");
    Forged::new().change(|c| inode(c, 64, FILE)).refused("file 64 has 1 links, and 0 names");
    // Directories.
    for (links, size, words) in [
        (3, 1, "whose links are not its subdirectories"),
        (2, 0, "whose size is not that of its entries"),
        (2, 1 << 49, "whose size is not that of its entries"),
    ] {
        log.clone().change(|c| inode(c, 1, root(links, size))).refused(words);
    }
    let full = Forged::new().with_directories();
    let removed = full.clone().change(|c| {
        inode(c, 1, root(2, 0));
        c.gone(Ino(64));
        c.entry(Ino::ROOT, b"d", None, false);
    });
    removed.refused("file 65 is a directory without a name, or with several");
    let with_all = full.change(|c| {
        inode(c, 1, root(2, 0));
        c.gone(Ino(64));
        c.gone(Ino(65));
        c.entry(Ino::ROOT, b"d", None, false);
    });
    assert_eq!(with_all.opens().1.main().usage().files, 1);
}

/// A short record does not empty a directory.
#[test]
fn directory_loses_the_names_that_are_said_alone() {
    let log = Forged::new().with_file(FILE).change(|c| {
        inode(c, 1, root(2, 2));
        inode(c, 65, FILE);
        c.entry(Ino::ROOT, b"g", Some((Ino(65), Kind::File)), true);
    });
    let emptied = log.change(|c| {
        inode(c, 1, root(2, 0));
        c.gone(Ino(64));
        c.gone(Ino(65));
        c.entry(Ino::ROOT, b"f", None, false);
    });
    emptied.refused("");
}

#[test]
fn name_without_a_file_or_of_another_kind_is_refused() {
    let named = |ino, kind| {
        Forged::new().with_file(FILE).change(|c| {
            inode(c, 1, root(2, 2));
            inode(c, 64, Raw { links: if ino == 64 { 2 } else { 1 }, ..FILE });
            c.entry(Ino::ROOT, b"g", Some((Ino(ino), kind)), false);
        })
    };
    named(99, Kind::File).refused("file 99 is gone, and has names or entries");
    named(64, Kind::Symlink).refused("file 64 is of another kind than its name says");
    let log = Forged::new().with_file(FILE);
    let within = log.clone().change(|c| c.entry(Ino(64), b"g", Some((Ino(64), Kind::File)), true));
    within.refused("not a directory");
    log.clone()
        .change(|c| inode(c, 64, Raw { kind: Kind::Fifo, ..FILE }))
        .refused("file 64 is of another kind than before");
    for name in [&b".."[..], b".", b"", b"a/b", b"a\0", &[b'x'; 256]] {
        let entry = |c: &mut Change| c.entry(Ino::ROOT, name, Some((Ino(64), Kind::File)), true);
        log.clone().change(entry).refused("the record is damaged, or of a newer version");
    }
}

#[test]
fn number_that_was_used_is_refused() {
    let removed = Forged::new().with_file(FILE).change(|c| {
        inode(c, 1, root(2, 0));
        c.gone(Ino(64));
        c.entry(Ino::ROOT, b"f", None, false);
    });
    removed.clone().with_file(FILE).refused("file 64 has a number that was used before");
    removed.change(|c| c.gone(Ino(64))).opens();
    Forged::new().change(|c| c.gone(Ino(64))).refused("file 64 is gone, and was never there");
    Forged::new().change(|c| inode(c, 0, FILE)).refused("file 0 has a number that was used before");
    Forged::new().change(|c| c.gone(Ino::ROOT)).refused("file 1 is the root");
    // The last number: there is none left then.
    let last = Forged::new().change(|c| {
        inode(c, 1, root(2, 1));
        inode(c, (1 << 40) - 1, FILE);
        c.entry(Ino::ROOT, b"f", Some((Ino((1 << 40) - 1), Kind::File)), true);
    });
    let (_folder, files) = last.opens();
    let new = New { content: Content::File, mode: 0, uid: 0, gid: 0 };
    let made = files.main().create(Ino::ROOT, "g".as_ref(), &new);
    assert_eq!(made.unwrap_err(), Error::NoSpace);
}

#[test]
fn lengths_without_bounds_are_refused() {
    let log = Forged::new().with_file(Raw { size: 10, ..FILE });
    let huge = 1 << 60;
    log.clone().change(|c| inode(c, 64, Raw { size: huge, ..FILE })).refused("largest size");
    let bytes = |offset: u64| {
        log.clone().change(|c| {
            c.bytes(Ino(64), offset, 1);
            c.0.push(1);
        })
    };
    for offset in [huge, u64::MAX, 1 << 50] {
        bytes(offset).refused("largest size");
    }
    bytes(10).refused("file 64 has bytes behind its end");
    bytes(4096).refused("file 64 has bytes behind its end");
    bytes(9).opens();
    log.clone().change(|c| c.shrink(Ino(64), huge)).refused("largest size");
    log.clone().change(|c| c.cut(Ino(64), 0, huge)).refused("an argument is wrong");
    log.clone().change(|c| c.cut(Ino(64), 2, 1)).refused("an argument is wrong");
    log.clone().change(|c| c.clear(Ino(64), 2, 1)).refused("an argument is wrong");
    log.clone().change(|c| c.hole(Ino(64), huge)).refused("an argument is wrong");
    // A hole over bytes of the base, of which there are none.
    log.clone().change(|c| c.hole(Ino(64), 0)).refused("an argument is wrong");
    // Without the check, a cut puts 2^38 pages over such bytes.
    let backed = Raw { size: 1 << 50, backed: 1 << 50, ..FILE };
    let cut = log.change(|c| {
        inode(c, 64, backed);
        c.cut(Ino(64), 0, 1 << 50);
    });
    cut.refused("file 64 has more bytes of the base than the base");
    Forged::new()
        .with_file(backed)
        .refused("file 64 has bytes of the base, and is not of the base");
    // A payload's length beyond the file ends the log there.
    let mut long = Forged::new();
    long.last = long.bytes.len();
    long.bytes.extend(record::header(SALT, u32::MAX, 0, 1, 0));
    assert_eq!(long.opens().1.recovered().unwrap().offset, long.last as u64);
}

#[test]
fn attributes_that_no_file_has_are_refused() {
    let file = |raw| Forged::new().with_file(raw);
    let link = Raw { kind: Kind::Symlink, size: 1, target: b"x", ..FILE };
    file(link).opens();
    file(Raw { size: 2, ..link }).refused("file 64 is a symbolic link of a wrong length");
    let long = [b'x'; 5000];
    let long = Raw { size: 5000, target: &long, ..link };
    file(long).refused("file 64 is a symbolic link of a wrong length");
    file(Raw { target: b"", ..link }).refused("file 64 has attributes that no file has");
    file(Raw { target: b"x", ..FILE }).refused("file 64 has attributes that no file has");
    file(Raw { mode: 0o10000, ..FILE }).refused("file 64 has attributes that no file has");
    file(link)
        .change(|c| inode(c, 64, Raw { size: 7, ..link }))
        .refused("file 64 is a symbolic link of another length than before");
    let pair = |name: &[u8], length| -> Pair { (name.into(), vec![0; length].into()) };
    for pairs in [
        vec![pair(b"b", 0), pair(b"a", 0)],
        vec![pair(b"a", 0), pair(b"a", 0)],
        vec![pair(b"", 0)],
        vec![pair(&[b'x'; 256], 0)],
        vec![pair(b"a", (64 << 10) + 1)],
    ] {
        let forged = file(FILE).change(|c| c.xattrs(Ino(64), &pairs));
        forged.refused("file 64 has extended attributes that are too long or not in order");
    }
}

#[test]
fn records_at_a_wrong_place_are_refused() {
    let fork = |parent, id, name| record::fork(BranchId(parent), BranchId(id), 0, name);
    let log = Forged::new();
    for payload in [record::base(None), record::ready(1, 1)] {
        log.clone().then(&payload).refused("");
    }
    Forged::of(&record::ready(1, 1)).refused("the log does not begin with its base");
    Forged::of(&record::base(None)).ready().refused("there is no root directory");
    let file = change(|c| inode(c, 1, FILE));
    let of_file = Forged::of(&record::base(None)).at_once(&file);
    of_file.ready().refused("file 1 has 1 links, and 0 names");
    let at_once = Forged::of(&record::base(None)).at_once(&change(|c| inode(c, 1, root(2, 0))));
    let forked = at_once.clone().at_once(&fork(0, 2, "a"));
    forked.clone().at_once(&record::commit(BranchId(2))).refused("not at its place");
    forked.clone().at_once(&record::abort(BranchId(2))).refused("not at its place");
    // A branch is younger than those before it.
    forked.clone().at_once(&fork(0, 1, "b")).refused("branch 1 is not the next one");
    forked.clone().at_once(&fork(0, 2, "b")).refused("branch 2 is not the next one");
    forked.clone().at_once(&fork(2, 1, "b")).refused("branch 1 is not the next one");
    forked.clone().ready().refused("the next branch was there already");
    let ready = forked.at_once(&record::ready(1, 3));
    ready.clone().then(&fork(0, 2, "b")).refused("branch 2 is not the next one");
    ready.clone().then(&fork(0, 7, "b")).then(&fork(7, 6, "c")).refused("branch 6 is not");
    ready.clone().then(&fork(0, 7, "a")).refused("the name is taken");
    ready.clone().then(&fork(9, 10, "b")).refused("there is no branch 9");
    ready.then(&record::commit(BranchId(2))).then(&fork(0, 2, "b")).refused("branch 2 is not");
    log.clone().then(&record::commit(MAIN)).refused("is the main one");
    log.clone().put(&record::abort(MAIN), 2).refused("record 2 is not the next one");
    // The number of the next record would be no number.
    let mut last = Forged::empty();
    last.number = u64::MAX;
    let last = last.at_once(&record::base(None));
    last.refused(&format!("record {} is not the next one", u64::MAX));
}

#[test]
fn forged_commit_is_refused() {
    // Both write the file in different ways.
    let write = |branch: u32, byte: u8| {
        let mut change = Change::new(BranchId(branch));
        inode(&mut change, 64, Raw { size: 1, ..FILE });
        change.bytes(Ino(64), 0, 1);
        change.0.push(byte);
        change.0
    };
    let log = Forged::new().with_file(FILE).then(&record::fork(MAIN, BranchId(1), 0, "a"));
    let log = log.then(&write(0, 1)).then(&write(1, 2));
    log.opens();
    log.then(&record::commit(BranchId(1))).refused("the commit conflicts");
}

#[test]
fn directory_of_the_base_stays_within_it() {
    let base = folder();
    fs::create_dir(base.path().join("d")).unwrap();
    fs::write(base.path().join("d/f"), "text").unwrap();
    fs::write(base.path().join("g"), vec![7; 9000]).unwrap();
    let path = base.path().canonicalize().unwrap();
    let number = fs::metadata(&path).unwrap().ino();
    let builder = || FileSystem::builder().base(base.path());
    let first = record::base(Some((path.as_os_str().as_bytes(), number)));
    let log = Forged::of(&first).at_once(&record::ready(1, 1));
    let listed = |log: &Forged, ino: u64, files: &[(u64, &[u8])]| {
        let files = files.iter().map(|(ino, name)| (Ino(*ino), *name));
        log.clone().then(&record::directory(Ino(ino), files))
    };
    let right = listed(&log, 1, &[(64, b"d"), (65, b"g")]);
    let (_folder, files) = right.open(builder());
    assert_eq!(files.unwrap().main().read_file("/d/f").unwrap(), b"text");
    for name in [&b".."[..], b".", b"d/f", b"d/.."] {
        listed(&log, 1, &[(64, name)]).refused_with(builder(), "damaged, or of a newer version");
    }
    for (files, words) in [
        (&[(1, &b"d"[..])][..], "has changed: the name is taken"),
        (&[(64, b"d"), (64, b"g")], "file 64 of directory 1 is there already"),
        (&[(64, b"d"), (65, b"d")], "file 65 of directory 1 is there already"),
        (&[(0, b"d"), (0, b"g")], "file 0 of directory 1 is there already"),
        (&[(64, b"missing")], "has changed"),
    ] {
        listed(&log, 1, files).refused_with(builder(), words);
    }
    listed(&right, 64, &[(65, b"f")]).refused_with(builder(), "has changed: the name is taken");
    listed(&right, 65, &[]).refused_with(builder(), "not a directory");
    listed(&right, 99, &[]).refused_with(builder(), "has changed");
    // A change of a directory that was not read has numbers that nobody knows.
    let mode = |ino: u64| right.clone().change(|c| inode(c, ino, DIRECTORY));
    mode(64).refused_with(builder(), "file 64 is a directory of the base that was not read");
    // More bytes of the base than it has, under which a hole has no end.
    let cut = |backed: u64| {
        right.clone().change(|c| {
            inode(c, 65, Raw { size: 1 << 50, backed, ..FILE });
            c.cut(Ino(65), 0, 1 << 50);
        })
    };
    cut(9001).refused_with(builder(), "more bytes of the base than the base");
    assert!(cut(9000).open(builder()).1.is_ok());
}

/// A name that is left when the host has added links to a file of the base: found by nobody, and no
/// look-up waits for it to go.
#[test]
fn name_that_the_host_has_added_is_not_found() {
    let base = folder();
    let below = |path: &str| base.path().join(path);
    (0..3).for_each(|n| fs::create_dir(below(&format!("d{n}"))).unwrap());
    fs::write(below("d0/f"), "text").unwrap();
    fs::hard_link(below("d0/f"), below("outside")).unwrap();
    let files = FileSystem::builder().base(base.path()).build().unwrap();
    let main = files.main();
    main.resolve("/d0/f").unwrap();
    fs::hard_link(below("d0/f"), below("d1/f")).unwrap();
    fs::hard_link(below("d0/f"), below("d2/f")).unwrap();
    let directory = |n: u32| main.resolve(format!("/d{n}")).unwrap().ino;
    main.resolve("/d2/f").unwrap();
    let name = "f".as_ref();
    (0..2).for_each(|n| main.unlink(directory(n), name).unwrap());
    let at = directory(2);
    assert_eq!(main.lookup(at, name).unwrap_err(), Error::NotFound);
    assert_eq!(main.unlink(at, name).unwrap_err(), Error::NotFound);
    let renamed = main.rename((at, name), (at, "g".as_ref()), crate::Rename::Replace);
    assert_eq!(renamed.unwrap_err(), Error::NotFound);
}

/// Headers whose payloads lie one over the other: their checksums are not computed for ever.
#[test]
fn overlapping_headers_are_refused() {
    let log = Forged::new();
    let mut forged = log.clone();
    forged.last = log.bytes.len();
    let count = 100;
    forged.bytes.push(0); // no whole record follows
    for at in 0..count {
        let length = (count - 1 - at) * HEADER;
        forged.bytes.extend(record::header(SALT, length as u32, 0, 2, 0));
    }
    forged.refused("the log is damaged, and what follows is no log");
}

#[test]
fn versions_are_told_apart() {
    let mut log = Forged::new();
    log.last = 0;
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut forged = log.clone();
        change(&mut forged.bytes);
        forged
    };
    with(&|bytes| bytes[7] += 1).refused("the log is of another version of manycore-fs");
    with(&|bytes| bytes[0] += 1).refused("this is no log of manycore-fs");
    with(&|bytes| bytes.clear()).refused("this is no log of manycore-fs");
    with(&|bytes| bytes.truncate(9)).refused("the beginning of the log is damaged");
    with(&|bytes| bytes[9] += 1).refused("the beginning of the log is damaged");
}

#[test]
fn ways_to_the_root_are_walked_once() {
    let depth = 1000;
    let (mut known, mut steps) = (HashMap::new(), 0);
    for start in 2..=depth {
        let up = |ino: Ino| {
            steps += 1;
            Some(Ino(ino.0 - 1))
        };
        assert!(leads_to_root(Ino(start), &mut known, up));
    }
    assert!(steps < depth, "{steps} steps");
    // A circle, and what leads into it.
    let (mut known, mut steps) = (HashMap::new(), 0);
    for start in 2..=depth {
        let up = |ino: Ino| {
            steps += 1;
            Some(if ino.0 == 2 { Ino(depth) } else { Ino(ino.0 - 1) })
        };
        assert!(!leads_to_root(Ino(start), &mut known, up));
    }
    assert!(steps < depth, "{steps} steps");
}
