//! Bytes, attributes and branches, one thread.

use manycore_fs::*;
use std::ffi::OsStr;

fn s(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn number(branch: &Branch, path: &str) -> Ino {
    branch.resolve(path).unwrap().ino
}

#[test]
fn written_bytes_are_read_across_pages() {
    let main = FileSystem::new().main();
    main.write_file("/f", b"").unwrap();
    let file = number(&main, "/f");
    let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(main.write(file, 3_000, &bytes).unwrap(), bytes.len());
    let all = main.read_file("/f").unwrap();
    assert_eq!(all.len(), 23_000);
    assert!(all[..3_000].iter().all(|byte| *byte == 0));
    assert_eq!(all[3_000..], bytes);
    let mut some = [0; 9];
    assert_eq!(main.read(file, 22_995, &mut some).unwrap(), 5);
    assert_eq!(main.read(file, 23_000, &mut some).unwrap(), 0);
}

#[test]
fn far_write_makes_a_hole_that_takes_no_memory() {
    let main = FileSystem::new().main();
    main.write_file("/f", b"begin").unwrap();
    let file = number(&main, "/f");
    let far = (1 << 50) - 3;
    assert_eq!(main.write(file, far, b"end").unwrap(), 3);
    assert_eq!(main.write(file, far, b"ends"), Err(Error::TooLarge));
    assert_eq!(main.usage().used, 2 * 4096);
    assert_eq!(main.attributes(file).unwrap().blocks, 16);
    let mut bytes = [1; 4];
    assert_eq!(main.read(file, 1 << 40, &mut bytes).unwrap(), 4);
    assert_eq!(bytes, [0; 4]);
    assert_eq!(main.seek(file, 0, Whence::Data).unwrap(), 0);
    assert_eq!(main.seek(file, 0, Whence::Hole).unwrap(), 4096);
    assert_eq!(main.seek(file, 4096, Whence::Data).unwrap(), (1 << 50) - 4096);
    assert_eq!(main.seek(file, far, Whence::Hole).unwrap(), 1 << 50);
    assert_eq!(main.seek(file, 1 << 50, Whence::Data), Err(Error::NoData));
}

#[test]
fn cut_file_shows_zeros_when_it_grows_again() {
    let main = FileSystem::new().main();
    main.write_file("/f", &[7; 10_000]).unwrap();
    let file = number(&main, "/f");
    let size = |size| SetAttributes { size: Some(size), ..Default::default() };
    main.set_attributes(file, &size(5_000)).unwrap();
    main.set_attributes(file, &size(10_000)).unwrap();
    let bytes = main.read_file("/f").unwrap();
    assert!(bytes[..5_000].iter().all(|b| *b == 7) && bytes[5_000..].iter().all(|b| *b == 0));
    main.allocate(file, Fallocate::PunchHole, 1_000, 3_500).unwrap();
    let bytes = main.read_file("/f").unwrap();
    assert!(bytes[..1_000].iter().all(|b| *b == 7));
    assert!(bytes[1_000..4_500].iter().all(|b| *b == 0));
    assert!(bytes[4_500..5_000].iter().all(|b| *b == 7));
    main.allocate(file, Fallocate::ZeroRange(false), 9_000, 5_000).unwrap();
    assert_eq!(main.attributes(file).unwrap().size, 14_000);
    main.allocate(file, Fallocate::Extend, 0, 20_000).unwrap();
    assert_eq!(main.attributes(file).unwrap().size, 20_000);
}

#[test]
fn limit_of_memory_is_kept_and_comes_back() {
    let files = FileSystem::builder().memory_limit(10 * 4096).build().unwrap();
    let main = files.main();
    main.write_file("/f", b"").unwrap();
    let file = number(&main, "/f");
    assert_eq!(main.write(file, 0, &[1; 12 * 4096]).unwrap(), 10 * 4096);
    assert_eq!(main.append(file, &[1]), Err(Error::NoSpace));
    assert_eq!(main.write(file, 0, &[2; 100]).unwrap(), 100);
    main.unlink(Ino::ROOT, s("f")).unwrap();
    main.write_file("/g", &[1; 10 * 4096]).unwrap();
    assert_eq!(main.usage().used, 10 * 4096);
    let branch = main.fork("b").unwrap();
    let g = number(&branch, "/g");
    assert_eq!(branch.write(g, 0, &[1]), Err(Error::NoSpace));
    assert_eq!(branch.read_file("/g").unwrap(), vec![1; 10 * 4096]);
}

#[test]
fn fork_is_apart_from_its_parent() {
    let files = FileSystem::new();
    let main = files.main();
    for number in 0..300 {
        main.write_file(format!("/f{number}"), format!("{number}").as_bytes()).unwrap();
    }
    let branch = main.fork("b").unwrap();
    for number in (0..300).step_by(3) {
        branch.write_file(format!("/f{number}"), b"branch").unwrap();
        main.unlink(Ino::ROOT, s(&format!("f{number}"))).unwrap();
    }
    branch.unlink(Ino::ROOT, s("f1")).unwrap();
    main.write_file("/new", b"main").unwrap();
    for number in 0..300 {
        let path = format!("/f{number}");
        let (of_main, of_branch) = (main.read_file(&path), branch.read_file(&path));
        if number % 3 == 0 {
            assert_eq!((of_main, of_branch), (Err(Error::NotFound), Ok(b"branch".to_vec())));
        } else {
            assert_eq!(of_main, Ok(format!("{number}").into_bytes()));
            assert_eq!(of_branch.is_err(), number == 1);
        }
    }
    assert_eq!(branch.resolve("/new"), Err(Error::NotFound));
    assert_eq!(main.fork("b").unwrap_err(), Error::Exists);
    assert_eq!(main.abort(), Err(Error::Busy));
    let below = branch.fork("below").unwrap();
    assert_eq!(branch.abort(), Err(Error::Busy));
    assert_eq!(files.branches().len(), 3);
    below.abort().unwrap();
    branch.abort().unwrap();
    assert_eq!(branch.resolve("/f2"), Err(Error::Ended));
    assert_eq!(branch.write_file("/f2", b""), Err(Error::Ended));
    assert!(files.branch("b").is_none() && files.branch_by_id(branch.id()).is_none());
    assert_ne!(main.fork("b").unwrap().id(), branch.id());
    for name in ["", ".a", "-a", "a/b", "a b", "\u{e4}"] {
        assert_eq!(main.fork(name).unwrap_err(), Error::Invalid);
    }
    assert_eq!(main.fork(&"a".repeat(256)).unwrap_err(), Error::NameTooLong);
}

#[test]
fn memory_comes_back_after_abort() {
    let files = FileSystem::new();
    let main = files.main();
    main.write_file("/kept", &[1; 50_000]).unwrap();
    let before = main.usage();
    let branch = main.fork("b").unwrap();
    for number in 0..1000 {
        branch.write_file(format!("/f{number}"), &[1; 5_000]).unwrap();
    }
    branch.write_file("/kept", &[2; 90_000]).unwrap();
    assert!(branch.usage().used > 8_000_000);
    branch.abort().unwrap();
    assert_eq!((main.usage().used, main.usage().files), (before.used, before.files));
    assert_eq!(main.read_file("/kept").unwrap(), vec![1; 50_000]);
}

#[test]
fn xattrs_are_as_on_linux() {
    let main = FileSystem::new().main();
    main.write_file("/f", b"").unwrap();
    let file = number(&main, "/f");
    main.set_xattr(file, s("user.b"), b"1", SetXattr::Create).unwrap();
    main.set_xattr(file, s("user.a"), b"", SetXattr::Either).unwrap();
    let exists = main.set_xattr(file, s("user.a"), b"", SetXattr::Create);
    assert_eq!(exists, Err(Error::Exists));
    let missing = main.set_xattr(file, s("user.c"), b"", SetXattr::Replace);
    assert_eq!(missing, Err(Error::NoAttribute));
    let branch = main.fork("b").unwrap();
    branch.set_xattr(file, s("user.b"), b"2", SetXattr::Replace).unwrap();
    branch.remove_xattr(file, s("user.a")).unwrap();
    assert_eq!(branch.remove_xattr(file, s("user.a")), Err(Error::NoAttribute));
    assert_eq!(main.xattrs(file).unwrap(), [s("user.a"), s("user.b")]);
    assert_eq!(main.xattr(file, s("user.b")).unwrap(), b"1");
    assert_eq!(branch.xattr(file, s("user.b")).unwrap(), b"2");
    let set = |name: &str, size| main.set_xattr(file, s(name), &vec![0; size], SetXattr::Either);
    assert_eq!(set(&"n".repeat(256), 0), Err(Error::NameTooLong));
    assert_eq!(set("user.x", 65_537), Err(Error::ValueTooLarge));
    assert_eq!(set("", 1), Err(Error::Invalid));
    set("user.x", 65_536).unwrap();
}

#[test]
fn paths_follow_links() {
    let main = FileSystem::new().main();
    main.create_directories("/a/b/c").unwrap();
    main.write_file("/a/b/c/f", b"deep").unwrap();
    let new = |target| New { content: Content::Symlink(s(target)), mode: 0o777, uid: 0, gid: 0 };
    main.create(Ino::ROOT, s("l"), &new("a/b")).unwrap();
    main.create(Ino::ROOT, s("abs"), &new("/l/c/../c/f")).unwrap();
    main.create(Ino::ROOT, s("loop"), &new("loop")).unwrap();
    assert_eq!(main.read_file("/l/c/f").unwrap(), b"deep");
    assert_eq!(main.read_file("abs").unwrap(), b"deep");
    assert_eq!(main.resolve("/loop"), Err(Error::TooManyLinks));
    assert_eq!(main.resolve("/a/b/c/f/g"), Err(Error::NotDirectory));
    main.write_file("/abs", b"through").unwrap();
    assert_eq!(main.read_file("/a/b/c/f").unwrap(), b"through");
    main.remove_all("/l").unwrap();
    assert_eq!(main.read_file("/a/b/c/f").unwrap(), b"through");
    main.remove_all("/a").unwrap();
    assert_eq!(main.resolve("/a"), Err(Error::NotFound));
    assert_eq!(main.remove_all("/"), Err(Error::Busy));
    assert_eq!(main.resolve("/").unwrap().links, 2);
}
