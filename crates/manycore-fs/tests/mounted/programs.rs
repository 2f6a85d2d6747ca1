//! Programs of others, unchanged, on the mount and in a folder of the host: shell scripts of the
//! papers' commands, a parallel make, and PostMark. What they print and leave must be equal.
//!
//!     cargo test -p manycore-fs --test mounted programs::

use crate::harness::{Mount, printed, skipped};
use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../../examples/postmark.rs"]
#[allow(dead_code, reason = "its `main`")]
mod postmark;

/// Runs a script of `tests/programs` in a folder.
fn script(name: &str, words: &[&str], folder: &Path) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    printed(Command::new("sh").arg(path).args(words).current_dir(folder))
}

/// Whether a program is installed.
fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skipped(&format!("no {program}"));
    }
    found
}

#[test]
fn scripts_of_everyday_commands_print_the_same() {
    let Some(mount) = Mount::new() else { return };
    let host = tempfile::tempdir().unwrap();
    let expected = script("sdet.sh", &["one", "2"], host.path());
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (mount, expected) = (&mount, &expected);
            scope.spawn(move || {
                assert_eq!(script("sdet.sh", &[name, "2"], &mount.point), *expected);
            });
        }
    });
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0, "each removes its folder");
}

#[test]
fn parallel_make_builds_the_same_program_and_then_has_nothing_to_do() {
    if !is_there("make") || !is_there("cc") {
        return;
    }
    let Some(mount) = Mount::new() else { return };
    let host = tempfile::tempdir().unwrap();
    let words = ["make", "8", "3"];
    assert_eq!(script("make.sh", &words, &mount.point), script("make.sh", &words, host.path()));
    printed(Command::new("diff").arg("-r").arg(host.path().join("make")).arg(mount.path("make")));
}

#[test]
fn postmark_reads_what_it_wrote_and_leaves_nothing() {
    let Some(mount) = Mount::new() else { return };
    let run = |seed| postmark::run(&mount.point, 100, 300, seed).unwrap().0;
    let (one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| run(1));
        (run(2), one.join().unwrap())
    });
    let host = tempfile::tempdir().unwrap();
    for (seed, done) in [(2, one), (1, two)] {
        assert_eq!(done, postmark::run(host.path(), 100, 300, seed).unwrap().0);
        assert_eq!(done.created, done.removed);
    }
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0);
}
