//! Forks, and what a branch has that another has not.

use crate::harness::Mount;
use std::fs;
use std::io::ErrorKind;
use std::thread;

fn names(listed: &str) -> Vec<&str> {
    listed.lines().map(|line| line.split(' ').next().unwrap()).collect()
}

#[test]
fn branch_has_what_its_parent_had_and_both_go_their_ways() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/both"), "old").unwrap();
    mount.printed(&["fork", "try"]);
    assert_eq!(fs::read_to_string(mount.branch("try", "dir/both")).unwrap(), "old");
    fs::write(mount.branch("try", "dir/both"), "of the branch").unwrap();
    fs::write(mount.branch("try", "new"), "new").unwrap();
    fs::write(mount.path("dir/main only"), "main").unwrap();
    assert_eq!(fs::read_to_string(mount.path("dir/both")).unwrap(), "old");
    assert_eq!(fs::read_to_string(mount.branch("try", "dir/both")).unwrap(), "of the branch");
    assert_eq!(fs::metadata(mount.path("new")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!mount.branch("try", "dir/main only").exists());
    assert_eq!(names(&mount.printed(&["list"])), ["main", "try"]);
}

#[test]
fn branches_of_branches_are_listed_with_their_parents() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "0").unwrap();
    for (parent, name) in [("main", "a"), ("a", "b"), ("b", "c")] {
        mount.printed(&["fork", "--from", parent, name]);
        fs::write(mount.branch(name, "file"), name).unwrap();
    }
    for name in ["a", "b", "c"] {
        assert_eq!(fs::read_to_string(mount.branch(name, "file")).unwrap(), name);
    }
    let listed = mount.printed(&["list"]);
    let parents: Vec<_> = listed.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(parents, ["-", "main", "a", "b"], "{listed}");
    let refused = mount.refusal(&["abort", "b"]);
    assert!(refused.contains("has branches of its own"), "{refused}");
}

#[test]
fn hidden_directory_is_found_by_name_and_never_listed() {
    let Some(mount) = Mount::new() else { return };
    mount.printed(&["fork", "x"]);
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0);
    let list = |path| -> Vec<_> {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(list(mount.path(".manycore-fs")), ["branches"]);
    assert_eq!(list(mount.path(".manycore-fs/branches")), ["main", "x"]);
    fs::write(mount.path("file"), "text").unwrap();
    // The main branch is the mount itself.
    assert_eq!(fs::read_to_string(mount.branch("main", "file")).unwrap(), "text");
    for error in [
        fs::create_dir(mount.path(".manycore-fs")).unwrap_err(),
        fs::remove_dir(mount.path(".manycore-fs")).unwrap_err(),
        fs::write(mount.path(".manycore-fs/other"), "").unwrap_err(),
        fs::rename(mount.path("file"), mount.path(".manycore-fs/control")).unwrap_err(),
        fs::remove_dir(mount.branch("x", "")).unwrap_err(),
    ] {
        assert!(!matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotConnected), "{error}");
    }
}

#[test]
fn name_can_be_used_again_after_its_branch_has_ended() {
    let Some(mount) = Mount::new() else { return };
    for round in 0..20 {
        fs::write(mount.path("round"), round.to_string()).unwrap();
        mount.printed(&["fork", "same"]);
        let seen = fs::read_to_string(mount.branch("same", "round")).unwrap();
        assert_eq!(seen, round.to_string());
        fs::write(mount.branch("same", format!("{round}")), "").unwrap();
        assert_eq!(fs::read_dir(mount.branch("same", "")).unwrap().count(), 2);
        mount.printed(&["abort", "same"]);
        assert!(!mount.branch("same", "").exists());
    }
    assert_eq!(names(&mount.printed(&["list"])), ["main"]);
}

#[test]
fn open_file_of_a_branch_that_ends_gives_errors() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), vec![1; 100_000]).unwrap();
    mount.printed(&["fork", "short"]);
    let file = fs::File::open(mount.branch("short", "file")).unwrap();
    mount.printed(&["abort", "short"]);
    let mut bytes = [0; 10];
    let error = std::os::unix::fs::FileExt::read_at(&file, &mut bytes, 50_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle);
}

#[test]
fn branches_are_written_at_once() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    for number in 0..50 {
        fs::write(mount.path(format!("dir/{number}")), "same").unwrap();
    }
    let names: Vec<String> = (0..4).map(|number| format!("b{number}")).collect();
    names.iter().for_each(|name| drop(mount.printed(&["fork", name])));
    thread::scope(|scope| {
        for name in &names {
            let mount = &mount;
            scope.spawn(move || {
                for number in 0..50 {
                    let path = mount.branch(name, format!("dir/{number}"));
                    fs::write(&path, format!("{name} {number}")).unwrap();
                    fs::rename(&path, mount.branch(name, format!("dir/new {number}"))).unwrap();
                }
            });
        }
    });
    for name in &names {
        for number in 0..50 {
            let text = fs::read_to_string(mount.branch(name, format!("dir/new {number}"))).unwrap();
            assert_eq!(text, format!("{name} {number}"));
        }
    }
    assert_eq!(fs::read_to_string(mount.path("dir/7")).unwrap(), "same");
}

#[test]
fn file_moves_between_branches_as_between_mounts() {
    let Some(mount) = Mount::new() else { return };
    mount.printed(&["fork", "x"]);
    fs::write(mount.path("file"), "text").unwrap();
    let renamed = fs::rename(mount.path("file"), mount.branch("x", "file")).unwrap_err();
    assert_eq!(renamed.kind(), ErrorKind::CrossesDevices);
    let linked = fs::hard_link(mount.path("file"), mount.branch("x", "file")).unwrap_err();
    assert_eq!(linked.kind(), ErrorKind::CrossesDevices);
    fs::copy(mount.path("file"), mount.branch("x", "file")).unwrap();
    assert_eq!(fs::read_to_string(mount.branch("x", "file")).unwrap(), "text");
}
