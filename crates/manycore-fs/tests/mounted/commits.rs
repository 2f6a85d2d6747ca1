//! Differences, commits, and what the kernel must not remember after them.

use crate::harness::Mount;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn diff_names_every_kind_of_change() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("dir/gone")).unwrap();
    for name in ["same", "written", "removed", "mode"] {
        fs::write(mount.path(format!("dir/{name}")), name).unwrap();
    }
    mount.printed(&["fork", "try"]);
    assert_eq!(mount.printed(&["diff", "try"]), "");
    fs::write(mount.branch("try", "dir/written"), "other").unwrap();
    fs::remove_file(mount.branch("try", "dir/removed")).unwrap();
    fs::remove_dir(mount.branch("try", "dir/gone")).unwrap();
    fs::create_dir(mount.branch("try", "made")).unwrap();
    symlink("nowhere", mount.branch("try", "made/a link\nof two lines")).unwrap();
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(mount.branch("try", "dir/mode"), mode).unwrap();
    let diff = mount.printed(&["diff", "try"]);
    let mut lines: Vec<_> = diff.lines().filter(|line| !line.starts_with("T d ")).collect();
    lines.sort_unstable();
    let expected = [
        "A d made",
        "A l made/a link\\nof two lines",
        "D d dir/gone",
        "D f dir/removed",
        "M f dir/written",
        "T f dir/mode",
    ];
    assert_eq!(lines, expected, "{diff}");
}

#[test]
fn commit_is_seen_at_once_by_who_has_looked_before() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("dir/sub")).unwrap();
    fs::write(mount.path("dir/grows"), "short").unwrap();
    fs::write(mount.path("dir/shrinks"), "x".repeat(100_000)).unwrap();
    fs::write(mount.path("dir/replaced"), "old").unwrap();
    fs::write(mount.path("dir/removed"), "old").unwrap();
    fs::write(mount.path("dir/moved"), "moved").unwrap();
    mount.printed(&["fork", "try"]);
    // The kernel knows all of it, and that `new` is not there.
    let look = || {
        let mut names: Vec<_> = fs::read_dir(mount.path("dir"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let read = |name: &String| fs::read(mount.path("dir").join(name)).unwrap_or_default();
        let contents: Vec<_> = names.iter().map(|name| read(name).len()).collect();
        (names.join(" "), contents, mount.path("dir/new").exists())
    };
    let before = look();
    assert_eq!(before.0, "grows moved removed replaced shrinks sub");
    let mut open = fs::File::open(mount.path("dir/grows")).unwrap();

    let at = |name: &str| mount.branch("try", "dir").join(name);
    fs::write(at("grows"), "y".repeat(200_000)).unwrap();
    fs::write(at("shrinks"), "z").unwrap();
    fs::write(at("other"), "of another file").unwrap();
    fs::rename(at("other"), at("replaced")).unwrap();
    fs::remove_file(at("removed")).unwrap();
    fs::rename(at("moved"), at("sub/moved")).unwrap();
    fs::write(at("new"), "new").unwrap();
    assert_eq!(look(), before, "before the commit nothing is seen");
    let printed = mount.printed(&["commit", "try"]);
    assert!(printed.contains("A f dir/new\n"), "{printed}");

    assert!(fs::read_to_string(mount.path("dir/grows")).unwrap() == "y".repeat(200_000));
    assert_eq!(fs::read_to_string(mount.path("dir/shrinks")).unwrap(), "z");
    assert_eq!(fs::read_to_string(mount.path("dir/replaced")).unwrap(), "of another file");
    assert_eq!(fs::read_to_string(mount.path("dir/sub/moved")).unwrap(), "moved");
    assert_eq!(fs::read_to_string(mount.path("dir/new")).unwrap(), "new");
    assert!(!mount.path("dir/removed").exists() && !mount.path("dir/moved").exists());
    assert_eq!(look().0, "grows new replaced shrinks sub");
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text.len(), 200_000, "a file that was open");
    assert!(!mount.branch("try", "").exists());
    assert!(mount.refusal(&["diff", "try"]).contains("no branch 'try'"));
}

#[test]
fn append_after_a_commit_is_at_the_new_end() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("log"), "1\n").unwrap();
    let mut log = OpenOptions::new().append(true).open(mount.path("log")).unwrap();
    mount.printed(&["fork", "try"]);
    fs::write(mount.branch("try", "log"), "1\n2\n3\n").unwrap();
    mount.printed(&["commit", "try"]);
    log.write_all(b"4\n").unwrap();
    log.write_all(b"5\n").unwrap();
    assert_eq!(fs::read_to_string(mount.path("log")).unwrap(), "1\n2\n3\n4\n5\n");
}

#[test]
fn conflicts_are_named_and_nothing_is_lost() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("both"), "old").unwrap();
    fs::write(mount.path("one"), "old").unwrap();
    mount.printed(&["fork", "try"]);
    fs::write(mount.branch("try", "both"), "branch").unwrap();
    fs::write(mount.branch("try", "one"), "branch").unwrap();
    fs::write(mount.path("both"), "main").unwrap();
    let refused = mount.refusal(&["commit", "try"]);
    assert!(refused.contains("'try' conflicts with its parent"), "{refused}");
    assert!(refused.contains("\n  both: "), "{refused}");
    assert!(!refused.contains("one"), "{refused}");
    assert_eq!(fs::read_to_string(mount.path("both")).unwrap(), "main");
    assert_eq!(fs::read_to_string(mount.path("one")).unwrap(), "old");
    assert_eq!(fs::read_to_string(mount.branch("try", "both")).unwrap(), "branch");
    mount.printed(&["abort", "try"]);
}

#[test]
fn commit_into_a_branch_leaves_main_alone() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "0").unwrap();
    mount.printed(&["fork", "a"]);
    mount.printed(&["fork", "--from", "a", "b"]);
    fs::write(mount.branch("b", "file"), "b").unwrap();
    assert_eq!(fs::read_to_string(mount.branch("a", "file")).unwrap(), "0");
    mount.printed(&["commit", "b"]);
    assert_eq!(fs::read_to_string(mount.branch("a", "file")).unwrap(), "b");
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "0");
    mount.printed(&["commit", "a"]);
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "b");
}

/// Ends what others do when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn commits_beside_work_in_the_parent_hang_nobody() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (mount, stop) = (&mount, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Relaxed) {
                    let path = mount.path(format!("dir/own {thread} {}", round % 10));
                    fs::write(&path, "x").unwrap();
                    let _ = fs::read_dir(mount.path("dir")).unwrap().count();
                    fs::remove_file(&path).unwrap();
                    round += 1;
                }
            });
        }
        // Also if the test fails.
        let _stop = Stop(&stop);
        for round in 0..30 {
            mount.printed(&["fork", "try"]);
            fs::write(mount.branch("try", format!("dir/committed {round}")), "text").unwrap();
            mount.printed(&["commit", "try"]);
            let text = fs::read_to_string(mount.path(format!("dir/committed {round}"))).unwrap();
            assert_eq!(text, "text");
        }
    });
    assert_eq!(fs::read_dir(mount.path("dir")).unwrap().count(), 30);
}
