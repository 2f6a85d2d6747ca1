//! A base directory of the host, read through.

use manycore_fs::*;
use std::ffi::OsStr;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of the host that goes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("manycore-fs-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> FileSystem {
    FileSystem::builder().base(path).build().unwrap()
}

fn list(branch: &Branch, directory: Ino) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let read = branch.read_directory(directory, 0, &mut |entry| {
        names.push(entry.name.as_bytes().to_vec());
        ControlFlow::Continue(())
    });
    read.unwrap();
    names.sort();
    names
}

#[test]
fn base_is_read_through_and_never_written() {
    let base = Scratch::new();
    base.write("a/b/f", &[5; 10_000]);
    base.write("top", b"top of it");
    base.write("odd/x", b"");
    let odd = OsStr::from_bytes(b"\xff\xfe");
    std::fs::write(base.0.join("odd").join(odd), b"odd").unwrap();
    symlink("b/f", base.0.join("a/link")).unwrap();
    std::fs::hard_link(base.0.join("top"), base.0.join("a/hard")).unwrap();
    let files = open(&base.0);
    let main = files.main();
    assert_eq!(files.base(), Some(base.0.canonicalize().unwrap()));
    assert_eq!(list(&main, Ino::ROOT), [&b"a"[..], b"odd", b"top"]);
    assert_eq!(main.read_file("/a/link").unwrap(), vec![5; 10_000]);
    let there = std::fs::metadata(base.0.join("a/b/f")).unwrap();
    let here = main.resolve("/a/b/f").unwrap();
    assert_eq!((here.size, here.mode, here.uid), (10_000, there.mode() & 0o7777, there.uid()));
    assert_eq!(here.modified, there.modified().unwrap());
    assert_eq!(here.blocks, there.blocks());
    assert_eq!(main.resolve("/top").unwrap().ino, main.resolve("/a/hard").unwrap().ino);
    let odd_directory = main.resolve("/odd").unwrap().ino;
    assert_eq!(main.lookup(odd_directory, odd).unwrap().size, 3);

    let branch = main.fork("b").unwrap();
    let mut bytes = String::new();
    let top = main.resolve("/top").unwrap().ino;
    branch.backing(top).unwrap().as_ref().read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "top of it");
    branch.write(here.ino, 5_000, &[6; 10]).unwrap();
    assert!(branch.backing(here.ino).is_none() && main.backing(here.ino).is_some());
    assert_eq!(branch.usage().used, 4096);
    let mut expected = vec![5; 10_000];
    expected[5_000..5_010].fill(6);
    assert_eq!(branch.read_file("/a/b/f").unwrap(), expected);
    assert_eq!(main.read_file("/a/b/f").unwrap(), vec![5; 10_000]);

    // Cut, and grown again: what the base has behind the cut does not come back.
    let size = |size| SetAttributes { size: Some(size), ..Default::default() };
    branch.set_attributes(here.ino, &size(7_000)).unwrap();
    branch.set_attributes(here.ino, &size(9_000)).unwrap();
    expected.truncate(7_000);
    expected.resize(9_000, 0);
    assert_eq!(branch.read_file("/a/b/f").unwrap(), expected);
    branch.write(here.ino, 8_990, &[9; 20]).unwrap();
    expected.resize(9_010, 0);
    expected[8_990..].fill(9);
    assert_eq!(branch.read_file("/a/b/f").unwrap(), expected);
    let used = branch.usage().used;
    branch.allocate(here.ino, Fallocate::PunchHole, 0, 4096).unwrap();
    expected[..4096].fill(0);
    assert_eq!(branch.read_file("/a/b/f").unwrap(), expected);
    assert_eq!(branch.usage().used, used);
    assert_eq!(branch.seek(here.ino, 0, Whence::Data).unwrap(), 4096);

    branch.unlink(Ino::ROOT, OsStr::new("top")).unwrap();
    assert_eq!(branch.attributes(top).unwrap().links, 1);
    branch.remove_all("/a").unwrap();
    assert_eq!(branch.attributes(top), Err(Error::NotFound));
    assert_eq!(list(&branch, Ino::ROOT), [&b"odd"[..]]);
    assert_eq!(list(&main, Ino::ROOT), [&b"a"[..], b"odd", b"top"]);
    assert_eq!(main.read_file("/a/hard").unwrap(), b"top of it");
    assert_eq!(std::fs::read(base.0.join("a/b/f")).unwrap(), vec![5; 10_000]);
}

#[test]
fn many_threads_read_a_base_for_the_first_time() {
    let base = Scratch::new();
    for number in 0..200 {
        base.write(&format!("d{}/f{number}", number % 10), format!("{number}").as_bytes());
    }
    let files = open(&base.0);
    let numbers: Vec<Vec<Ino>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let files = &files;
                scope.spawn(move || {
                    let branch = files.main().fork(&format!("b{thread}")).unwrap();
                    let paths = (0..200).map(|number| format!("/d{}/f{number}", number % 10));
                    let found = paths.enumerate().map(|(number, path)| {
                        let bytes = branch.read_file(&path).unwrap();
                        assert_eq!(bytes, format!("{number}").as_bytes());
                        branch.resolve(&path).unwrap().ino
                    });
                    found.collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(numbers.iter().all(|of_thread| *of_thread == numbers[0]));
}

#[test]
fn missing_base_is_refused() {
    let base = Scratch::new();
    base.write("f", b"");
    assert!(FileSystem::builder().base(base.0.join("none")).build().is_err());
    assert!(FileSystem::builder().base(base.0.join("f")).build().is_err());
}

#[test]
fn branch_that_removes_a_base_is_compared_and_committed() {
    let base = Scratch::new();
    for number in 0..300 {
        base.write(&format!("d/f{number}"), b"1");
    }
    base.write("kept", b"1");
    let files = open(&base.0);
    let branch = files.main().fork("b").unwrap();
    branch.remove_all("/d").unwrap();
    assert_eq!(branch.diff().unwrap().len(), 301);
    branch.write_file("/kept", b"2").unwrap();
    let committed = branch.commit().unwrap();
    assert_eq!(committed.changes.len(), 302);
    assert_eq!(list(&files.main(), Ino::ROOT), [&b"kept"[..]]);
    assert_eq!(files.main().diff().unwrap().len(), 302);
    assert_eq!(files.main().read_file("/kept").unwrap(), b"2");
}

#[test]
fn extended_attributes_of_a_base_are_there() {
    let base = Scratch::new();
    base.write("f", b"");
    let path = base.0.join("f");
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.host", b"value", flags).is_err() {
        return; // the host's file system has none
    }
    let files = open(&base.0);
    let main = files.main();
    let file = main.resolve("/f").unwrap().ino;
    let name = |name| OsStr::new(name);
    assert_eq!(main.xattr(file, name("user.host")).unwrap(), b"value");
    main.set_xattr(file, name("user.own"), b"1", SetXattr::Create).unwrap();
    assert_eq!(main.xattrs(file).unwrap(), ["user.host", "user.own"]);
    main.remove_xattr(file, name("user.host")).unwrap();
    assert_eq!(main.xattrs(file).unwrap(), ["user.own"]);
    assert_eq!(main.xattr(file, name("user.host")), Err(Error::NoAttribute));
}
