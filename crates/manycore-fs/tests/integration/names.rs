//! Names: creating, linking, removing and renaming, as POSIX says.

use manycore_fs::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;

const FILE: New<'_> = New { content: Content::File, mode: 0o644, uid: 1, gid: 2 };
const DIRECTORY: New<'_> = New { content: Content::Directory, mode: 0o755, uid: 1, gid: 2 };

fn s(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn names(branch: &Branch, directory: Ino) -> BTreeMap<String, Ino> {
    let mut found = BTreeMap::new();
    let read = branch.read_directory(directory, 0, &mut |entry| {
        let name = entry.name.to_str().unwrap().to_owned();
        assert!(entry.next > 2 && entry.next <= i64::MAX as u64);
        assert_eq!(found.insert(name, entry.ino), None, "seen twice");
        ControlFlow::Continue(())
    });
    read.unwrap();
    found
}

#[test]
fn links_count_names() {
    let main = FileSystem::new().main();
    let file = main.create(Ino::ROOT, s("a"), &FILE).unwrap();
    assert_eq!((file.links, file.uid, file.gid, file.mode), (1, 1, 2, 0o644));
    let directory = main.create(Ino::ROOT, s("d"), &DIRECTORY).unwrap().ino;
    assert_eq!(main.attributes(Ino::ROOT).unwrap().links, 3);
    assert_eq!(main.link(file.ino, directory, s("b")).unwrap().links, 2);
    assert_eq!(main.link(directory, Ino::ROOT, s("e")), Err(Error::NotPermitted));
    assert_eq!(main.link(file.ino, directory, s("b")), Err(Error::Exists));
    assert_eq!(main.remove_directory(Ino::ROOT, s("d")), Err(Error::NotEmpty));
    assert_eq!(main.unlink(Ino::ROOT, s("d")), Err(Error::IsDirectory));
    assert_eq!(main.remove_directory(Ino::ROOT, s("a")), Err(Error::NotDirectory));
    main.unlink(Ino::ROOT, s("a")).unwrap();
    assert_eq!(main.attributes(file.ino).unwrap().links, 1);
    main.unlink(directory, s("b")).unwrap();
    assert_eq!(main.attributes(file.ino), Err(Error::NotFound));
    main.remove_directory(Ino::ROOT, s("d")).unwrap();
    assert_eq!(main.attributes(Ino::ROOT).unwrap().links, 2);
    assert_eq!(main.create(directory, s("x"), &FILE).unwrap_err(), Error::NotFound);
    assert_eq!(main.usage().files, 1);
}

#[test]
fn wrong_names_are_refused() {
    let main = FileSystem::new().main();
    let create = |name: &str| main.create(Ino::ROOT, s(name), &FILE).map(|_| ());
    assert_eq!(create(&"n".repeat(256)), Err(Error::NameTooLong));
    assert_eq!(create(""), Err(Error::NotFound));
    assert_eq!(create("a/b"), Err(Error::Invalid));
    assert_eq!(create("."), Err(Error::Exists));
    assert_eq!(create(&"n".repeat(255)), Ok(()));
    let file = main.create(Ino::ROOT, s("f"), &FILE).unwrap().ino;
    assert_eq!(main.create(file, s("x"), &FILE).unwrap_err(), Error::NotDirectory);
    assert_eq!(main.lookup(file, s("x")), Err(Error::NotDirectory));
    assert_eq!(main.remove_directory(Ino::ROOT, s(".")), Err(Error::Invalid));
}

#[test]
fn large_directory_keeps_every_name() {
    let main = FileSystem::new().main();
    let mut expected = BTreeMap::new();
    for number in 0..20_000 {
        let name = format!("file-{number}");
        let ino = main.create(Ino::ROOT, s(&name), &FILE).unwrap().ino;
        expected.insert(name, ino);
    }
    assert_eq!(names(&main, Ino::ROOT), expected);
    // One entry at a time, by its place.
    let (mut next, mut count) = (0, 0);
    loop {
        let before = next;
        main.read_directory(Ino::ROOT, next, &mut |entry| {
            next = entry.next;
            ControlFlow::Break(())
        })
        .unwrap();
        if next == before {
            break;
        }
        count += 1;
    }
    assert_eq!(count, 20_000);
    for number in (0..20_000).filter(|number| number % 100 != 0) {
        let name = format!("file-{number}");
        main.unlink(Ino::ROOT, s(&name)).unwrap();
        expected.remove(&name);
    }
    assert_eq!(names(&main, Ino::ROOT), expected);
    for name in expected.keys() {
        assert_eq!(main.lookup(Ino::ROOT, s(name)).unwrap().ino, expected[name]);
        main.unlink(Ino::ROOT, s(name)).unwrap();
    }
    assert_eq!(names(&main, Ino::ROOT).len(), 0);
}

#[test]
fn renames_keep_the_rules() {
    let main = FileSystem::new().main();
    let (a, b) = (main.create_directories("a").unwrap(), main.create_directories("b").unwrap());
    let deep = main.create_directories("a/x/y").unwrap();
    let f = main.create(Ino::ROOT, s("f"), &FILE).unwrap().ino;
    let g = main.create(Ino::ROOT, s("g"), &FILE).unwrap().ino;
    let rename = |from: (Ino, &str), to: (Ino, &str), how| {
        main.rename((from.0, s(from.1)), (to.0, s(to.1)), how)
    };
    let root = Ino::ROOT;
    assert_eq!(rename((root, "a"), (deep, "a"), Rename::Replace), Err(Error::Invalid));
    assert_eq!(rename((root, "a"), (a, "a"), Rename::Replace), Err(Error::Invalid));
    assert_eq!(rename((root, "f"), (root, "a"), Rename::Replace), Err(Error::IsDirectory));
    assert_eq!(rename((root, "a"), (root, "f"), Rename::Replace), Err(Error::NotDirectory));
    assert_eq!(rename((root, "b"), (root, "a"), Rename::Replace), Err(Error::NotEmpty));
    assert_eq!(rename((root, "f"), (root, "g"), Rename::NoReplace), Err(Error::Exists));
    assert_eq!(rename((root, "f"), (root, "h"), Rename::Exchange), Err(Error::NotFound));
    assert_eq!(rename((root, "none"), (root, "h"), Rename::Replace), Err(Error::NotFound));
    assert_eq!(rename((root, "b"), (deep, "g"), Rename::Exchange), Err(Error::NotFound));
    assert_eq!(rename((a, "x"), (root, "a"), Rename::Exchange), Err(Error::Invalid));
    main.link(f, root, s("same")).unwrap();
    rename((root, "f"), (root, "same"), Rename::Replace).unwrap();
    assert_eq!(main.attributes(f).unwrap().links, 2);
    rename((root, "f"), (root, "g"), Rename::Replace).unwrap();
    assert_eq!(main.attributes(g), Err(Error::NotFound));
    assert_eq!(main.lookup(root, s("g")).unwrap().ino, f);
    rename((a, "x"), (b, "z"), Rename::Replace).unwrap();
    assert_eq!(main.resolve("b/z/y").unwrap().ino, deep);
    let links = |ino| main.attributes(ino).unwrap().links;
    assert_eq!((links(a), links(b), links(root)), (2, 3, 4));
    assert_eq!(main.parent(main.parent(deep).unwrap()).unwrap(), b);
    rename((root, "g"), (b, "z"), Rename::Exchange).unwrap();
    assert_eq!((links(a), links(b), links(root)), (2, 2, 5));
    assert_eq!(main.resolve("g/y").unwrap().ino, deep);
    assert_eq!(main.resolve("b/z").unwrap().ino, f);
    rename((root, "g"), (root, "a"), Rename::Replace).unwrap();
    assert_eq!(main.attributes(a), Err(Error::NotFound));
    assert_eq!(links(root), 4);
}

#[test]
fn kept_files_outlive_their_names() {
    let main = FileSystem::new().main();
    main.write_file("/f", b"bytes").unwrap();
    main.write_file("/g", b"other").unwrap();
    let (f, g) = (main.resolve("/f").unwrap().ino, main.resolve("/g").unwrap().ino);
    main.keep(f).unwrap();
    main.keep(f).unwrap();
    main.rename((Ino::ROOT, s("g")), (Ino::ROOT, s("f")), Rename::Replace).unwrap();
    assert_eq!(main.attributes(f).unwrap().links, 0);
    assert_eq!(main.write(f, 5, b" more").unwrap(), 5);
    assert_eq!(main.link(f, Ino::ROOT, s("again")), Err(Error::NotFound));
    main.forget(f, 1);
    main.keep(f).unwrap();
    let mut bytes = [0; 10];
    assert_eq!(main.read(f, 0, &mut bytes).unwrap(), 10);
    main.forget(f, 2);
    assert_eq!(main.attributes(f), Err(Error::NotFound));
    assert_eq!(main.keep(f), Err(Error::NotFound));
    main.keep(g).unwrap();
    main.forget(g, 1);
    assert_eq!(main.read_file("/f").unwrap(), b"other");
    let directory = main.create_directories("d").unwrap();
    main.keep(directory).unwrap();
    main.remove_directory(Ino::ROOT, s("d")).unwrap();
    assert_eq!(main.create(directory, s("x"), &FILE).unwrap_err(), Error::NotFound);
    assert_eq!(names(&main, directory).len(), 0);
    main.forget(directory, 1);
    assert_eq!(main.attributes(directory), Err(Error::NotFound));
}

#[test]
fn group_is_inherited_where_the_directory_says_so() {
    let main = FileSystem::new().main();
    let new = New { mode: 0o2775, gid: 77, ..DIRECTORY };
    let shared = main.create(Ino::ROOT, s("shared"), &new).unwrap().ino;
    assert_eq!(main.create(shared, s("f"), &FILE).unwrap().gid, 77);
    let below = main.create(shared, s("d"), &DIRECTORY).unwrap();
    assert_eq!((below.gid, below.mode), (77, 0o2755));
}
