//! Diff and commit: what is reported, merged and refused.

use manycore_fs::*;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

fn s(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn place(branch: &Branch, path: &str) -> (Ino, PathBuf) {
    let path = Path::new(path);
    let directory = branch.resolve(path.parent().unwrap()).unwrap().ino;
    (directory, path.file_name().unwrap().into())
}

fn rename(branch: &Branch, from: &str, to: &str) {
    let (from, to) = (place(branch, from), place(branch, to));
    let (from, to) = ((from.0, from.1.as_os_str()), (to.0, to.1.as_os_str()));
    branch.rename(from, to, Rename::Replace).unwrap();
}

fn chmod(branch: &Branch, path: &str, mode: u32) {
    let set = SetAttributes { mode: Some(mode), ..Default::default() };
    branch.set_attributes(branch.resolve(path).unwrap().ino, &set).unwrap();
}

fn sample() -> FileSystem {
    let files = FileSystem::new();
    let main = files.main();
    main.create_directories("/d/e").unwrap();
    main.create_directories("/g").unwrap();
    main.write_file("/d/f", &[1; 9000]).unwrap();
    main.write_file("/d/e/x", b"x").unwrap();
    main.write_file("/top", b"top").unwrap();
    files
}

fn reasons(result: std::result::Result<Committed, NotCommitted>) -> Vec<(String, &'static str)> {
    match result {
        Err(NotCommitted::Conflicts(conflicts)) => {
            let of = |c: Conflict| (c.path.to_str().unwrap().to_owned(), c.reason);
            conflicts.into_iter().map(of).collect()
        }
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn diff_names_what_has_changed() {
    let files = sample();
    let branch = files.main().fork("b").unwrap();
    assert_eq!(branch.diff().unwrap(), []);
    branch.write_file("/d/f", &[1; 9000]).unwrap();
    let unchanged = files.main().resolve("/d/f").unwrap();
    let modified = Some(SetTime::At(unchanged.modified));
    branch
        .set_attributes(unchanged.ino, &SetAttributes { modified, ..Default::default() })
        .unwrap();
    assert_eq!(branch.diff().unwrap(), [], "the same bytes and times");
    branch.write_file("/d/f", b"other").unwrap();
    chmod(&branch, "/d", 0o700);
    rename(&branch, "/d/e", "/g/e");
    branch.write_file("/d/e", b"now a file").unwrap();
    branch.create_directories("/new/below").unwrap();
    branch.write_file("/top2", b"top").unwrap();
    rename(&branch, "/top2", "/top");
    let expected = [
        Change::Attributes("/d".into(), Kind::Directory),
        Change::Added("/d/e".into(), Kind::File),
        Change::Removed("/d/e".into(), Kind::Directory),
        Change::Modified("/d/f".into(), Kind::File),
        Change::Added("/g/e".into(), Kind::Directory),
        Change::Added("/new".into(), Kind::Directory),
        Change::Added("/new/below".into(), Kind::Directory),
        Change::Modified("/top".into(), Kind::File),
    ];
    assert_eq!(branch.diff().unwrap(), expected);
    let committed = branch.commit().unwrap();
    assert_eq!(committed.changes, expected);
    let main = files.main();
    assert_eq!(main.read_file("/g/e/x").unwrap(), b"x");
    assert_eq!(main.resolve("/g").unwrap().links, 3);
    assert_eq!(main.resolve("/").unwrap().links, 5);
    assert_eq!(main.read_file("/d/f").unwrap(), b"other");
    assert!(committed.names.contains(&(Ino::ROOT, "new".into())));
    assert!(committed.files.contains(&unchanged.ino));
    assert_eq!(branch.diff(), Err(Error::Ended));
    assert!(matches!(branch.commit(), Err(NotCommitted::Error(Error::Ended))));
    assert!(files.branch("b").is_none());
}

#[test]
fn changes_of_both_sides_are_merged() {
    let files = sample();
    let main = files.main();
    let branch = main.fork("b").unwrap();
    branch.write_file("/d/of-branch", b"1").unwrap();
    branch.write_file("/d/f", b"branch").unwrap();
    branch.create_directories("/d/sub").unwrap();
    chmod(&main, "/d/f", 0o600);
    main.write_file("/d/of-main", b"2").unwrap();
    main.remove_all("/d/e").unwrap();
    rename(&main, "/d", "/moved");
    branch.commit().unwrap();
    assert_eq!(main.read_file("/moved/f").unwrap(), b"branch");
    assert_eq!(main.resolve("/moved/f").unwrap().mode, 0o600);
    assert_eq!(main.read_file("/moved/of-branch").unwrap(), b"1");
    assert_eq!(main.read_file("/moved/of-main").unwrap(), b"2");
    assert_eq!(main.resolve("/moved").unwrap().links, 3);
    assert_eq!(main.resolve("/moved/e"), Err(Error::NotFound));
}

#[test]
fn conflicts_are_reported_and_change_nothing() {
    let files = sample();
    let main = files.main();
    let branch = main.fork("b").unwrap();
    branch.write_file("/d/f", b"branch").unwrap();
    main.write_file("/d/f", b"main").unwrap();
    chmod(&branch, "/top", 0o1);
    chmod(&main, "/top", 0o2);
    branch.write_file("/both", b"same").unwrap();
    main.write_file("/both", b"same").unwrap();
    branch.remove_all("/g").unwrap();
    main.write_file("/g/added", b"").unwrap();
    main.remove_all("/d/e").unwrap();
    branch.write_file("/d/e/more", b"").unwrap();
    let before = main.usage();
    let expected = [
        ("/both".to_owned(), "both changed this name"),
        ("/d/e/more".to_owned(), "the parent removed the directory of this name"),
        ("/d/f".to_owned(), "both wrote this file"),
        ("/g".to_owned(), "the branch removed this directory, the parent added to it"),
        ("/top".to_owned(), "both changed the owner or the permissions"),
    ];
    assert_eq!(reasons(branch.commit()), expected);
    assert_eq!(reasons(branch.commit()), expected);
    assert_eq!(main.read_file("/d/f").unwrap(), b"main");
    assert_eq!((main.usage().used, main.usage().files), (before.used, before.files));
    main.write_file("/d/f", b"branch").unwrap();
    main.remove_all("/g").unwrap();
    main.remove_all("/both").unwrap();
    chmod(&main, "/top", 0o1);
    branch.remove_all("/d/e").unwrap();
    branch.commit().unwrap();
    assert_eq!(main.read_file("/both").unwrap(), b"same");
}

#[test]
fn moves_that_cannot_be_joined_conflict() {
    let files = sample();
    let main = files.main();
    let branch = main.fork("crossed").unwrap();
    rename(&branch, "/d", "/g/d");
    rename(&main, "/g", "/d/g");
    let found = reasons(branch.commit());
    assert!(
        found.iter().any(|(_, why)| *why == "this directory would contain itself"),
        "{found:?}"
    );
    branch.abort().unwrap();
    rename(&main, "/d/g", "/g");

    let branch = main.fork("twice").unwrap();
    rename(&branch, "/d/e", "/g/e");
    rename(&main, "/d/e", "/e");
    assert_eq!(reasons(branch.commit()), [("/g/e".to_owned(), "both renamed this file")]);
    branch.abort().unwrap();

    let branch = main.fork("removed").unwrap();
    branch.remove_all("/e").unwrap();
    rename(&main, "/e", "/d/e");
    let found = reasons(branch.commit());
    let why = "the branch removed this file, the parent renamed it";
    assert!(found.contains(&("/e".to_owned(), why)), "{found:?}");
    let branch = main.fork("written").unwrap();
    branch.write_file("/d/f", b"1").unwrap();
    main.unlink(main.resolve("/d").unwrap().ino, s("f")).unwrap();
    let why = "the parent removed this file, the branch changed it";
    assert_eq!(reasons(branch.commit()), [("/d/f".to_owned(), why)]);
}

#[test]
fn files_kept_in_the_parent_survive_a_commit_that_removes_them() {
    let files = sample();
    let main = files.main();
    let top = main.resolve("/top").unwrap().ino;
    main.keep(top).unwrap();
    let branch = main.fork("b").unwrap();
    branch.keep(main.resolve("/d/f").unwrap().ino).unwrap();
    branch.remove_all("/top").unwrap();
    branch.remove_all("/d").unwrap();
    branch.commit().unwrap();
    assert_eq!(main.attributes(top).unwrap().links, 0);
    assert_eq!(main.resolve("/top"), Err(Error::NotFound));
    main.forget(top, 1);
    assert_eq!(main.attributes(top), Err(Error::NotFound));
    assert_eq!((main.usage().files, main.usage().used), (2, 0));
}

#[test]
fn commits_go_up_a_chain_of_branches() {
    let files = sample();
    let mut chain = vec![files.main()];
    for depth in 0..50 {
        let branch = chain.last().unwrap().fork(&format!("b{depth}")).unwrap();
        branch.write_file(format!("/f{depth}"), b"1").unwrap();
        chain.push(branch);
    }
    let busy = chain[10].commit();
    assert!(matches!(busy, Err(NotCommitted::Error(Error::Busy))));
    while chain.len() > 1 {
        chain.pop().unwrap().commit().unwrap();
    }
    for depth in 0..50 {
        assert_eq!(files.main().read_file(format!("/f{depth}")).unwrap(), b"1");
    }
    assert_eq!(files.branches().len(), 1);
}
