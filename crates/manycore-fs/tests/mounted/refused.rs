//! Mounts that are refused, and what is said then.

use crate::harness::{Mount, command, refusal};
use std::fs;

#[test]
fn wrong_mount_points_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("full/empty")).unwrap();
    fs::write(path("file"), "").unwrap();
    for (name, words) in [
        ("none", "no such directory: make it first"),
        ("file", "not a directory"),
        ("full", "is not empty"),
    ] {
        let refused = refusal(command(["mount"]).arg(path(name)));
        assert!(refused.starts_with("manycore-fs: ") && refused.contains(words), "{refused}");
    }
    let base = |base: &str, point: &str| {
        refusal(command(["mount", "--base"]).arg(path(base)).arg(path(point)))
    };
    assert!(base("none", "full/empty").contains("none: No such file"));
    assert!(base("file", "full/empty").contains("the base directory"));
    assert!(base("full", "full/empty").contains("is in the base directory"));
    assert!(base("full/empty", "full/empty").contains("is in the base directory"));
}

#[test]
fn mount_point_is_taken_once() {
    let Some(mount) = Mount::new() else { return };
    let refused = refusal(command(["mount"]).arg(&mount.point));
    assert!(refused.contains("is a mount of manycore-fs already"), "{refused}");
}
