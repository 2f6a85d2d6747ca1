//! A directory of the host below the mount.

use crate::harness::Mount;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// A folder with some files, and a mount on top of it.
fn mounted() -> Option<(tempfile::TempDir, Mount)> {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir_all(base.path().join("src/deep")).unwrap();
    fs::write(base.path().join("src/main"), "main").unwrap();
    fs::write(base.path().join("src/deep/large"), vec![7; 3_000_000]).unwrap();
    fs::write(base.path().join("tool"), "#!/bin/sh\necho tool\n").unwrap();
    fs::set_permissions(base.path().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("src/main", base.path().join("link")).unwrap();
    let mount = Mount::with(&["--base", base.path().to_str().unwrap()])?;
    Some((base, mount))
}

fn tree(of: &Path) -> Vec<(String, u64, u32)> {
    let mut found = Vec::new();
    let mut folders = vec![of.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let attributes = fs::symlink_metadata(&path).unwrap();
            if attributes.is_dir() {
                folders.push(path.clone());
            }
            let size = if attributes.is_dir() { 0 } else { attributes.len() };
            let name = path.strip_prefix(of).unwrap().to_str().unwrap().to_owned();
            found.push((name, size, attributes.mode()));
        }
    }
    found.sort();
    found
}

#[test]
fn base_is_seen_as_it_is() {
    let Some((base, mount)) = mounted() else { return };
    assert_eq!(tree(&mount.point), tree(base.path()));
    assert_eq!(fs::read_to_string(mount.path("link")).unwrap(), "main");
    assert!(fs::read(mount.path("src/deep/large")).unwrap() == vec![7; 3_000_000]);
    let output = std::process::Command::new(mount.path("tool")).output().unwrap();
    assert_eq!(output.stdout, b"tool\n");
}

#[test]
fn changes_stay_in_the_mount() {
    let Some((base, mount)) = mounted() else { return };
    let before = tree(base.path());
    fs::write(mount.path("src/main"), "changed").unwrap();
    fs::remove_dir_all(mount.path("src/deep")).unwrap();
    fs::write(mount.path("new"), "new").unwrap();
    fs::rename(mount.path("tool"), mount.path("src/tool")).unwrap();
    fs::create_dir(mount.path("src/deep")).unwrap();
    assert_eq!(fs::read_dir(mount.path("src/deep")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(mount.path("link")).unwrap(), "changed");
    assert_eq!(tree(base.path()), before);
    assert_eq!(fs::read_to_string(base.path().join("src/main")).unwrap(), "main");
}

#[test]
fn branch_of_a_base_differs_only_by_its_changes() {
    let Some((base, mount)) = mounted() else { return };
    mount.printed(&["fork", "try"]);
    assert_eq!(tree(&mount.branch("try", "")), tree(base.path()));
    fs::write(mount.branch("try", "src/deep/new"), "new").unwrap();
    let diff = mount.printed(&["diff", "try"]);
    let lines: Vec<_> = diff.lines().filter(|line| !line.starts_with("T d ")).collect();
    assert_eq!(lines, ["A f src/deep/new"]);
    assert!(!mount.path("src/deep/new").exists());
    mount.printed(&["commit", "try"]);
    assert_eq!(fs::read_to_string(mount.path("src/deep/new")).unwrap(), "new");
}
