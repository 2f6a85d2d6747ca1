//! The command `run`.

use crate::harness::{Mount, output, printed, refusal, text};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Whether the branches are these.
#[track_caller]
fn assert_branches(mount: &Mount, expected: &[&str]) {
    let listed = mount.printed(&["list"]);
    let names: Vec<_> = listed.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, expected);
}

#[test]
fn command_sees_the_branch_in_the_place_of_the_mount() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), "old").unwrap();
    let script = "cat file && echo new >file && pwd && echo $MANYCORE_FS_BRANCH";
    let mut run = mount.command(&["run", "--branch", "try", "--", "sh", "-c", script]);
    let printed = printed(run.current_dir(mount.path("dir")));
    assert_eq!(printed, format!("old{}\ntry\n", mount.path("dir").display()));
    assert_eq!(fs::read_to_string(mount.path("dir/file")).unwrap(), "old");
    assert_eq!(mount.printed(&["diff", "try"]), "M f dir/file\n");
    // Again in the same branch.
    assert_eq!(mount.printed(&["run", "--branch", "try", "cat", "dir/file"]), "new\n");
    mount.printed(&["commit", "try"]);
    assert_eq!(fs::read_to_string(mount.path("dir/file")).unwrap(), "new\n");
}

#[test]
fn status_is_that_of_the_command() {
    let Some(mount) = Mount::new() else { return };
    for (words, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["there-is-no-such-command"], 127),
        (&["/"], 126),
    ] {
        let mut run = mount.command(&["run", "--abort", "--"]);
        let ended = output(run.args(words));
        assert_eq!(ended.status.code(), Some(code), "{words:?}: {}", text(&ended.stderr));
    }
    assert_branches(&mount, &["main"]);
    let ended = output(&mut mount.command(&["run", "--branch", "main", "true"]));
    assert_eq!(ended.status.code(), Some(125));
}

#[test]
fn success_is_committed_and_failure_is_kept_or_aborted() {
    let Some(mount) = Mount::new() else { return };
    mount.printed(&["run", "--commit", "--", "sh", "-c", "echo 1 >one"]);
    assert_eq!(fs::read_to_string(mount.path("one")).unwrap(), "1\n");
    assert_branches(&mount, &["main"]);
    let fails = ["sh", "-c", "echo 2 >two; exit 1"];
    let mut run = mount.command(&["run", "--branch", "kept", "--commit", "--"]);
    let said = refusal(run.args(fails));
    assert!(said.contains("the branch kept is kept"), "{said}");
    assert_branches(&mount, &["main", "kept"]);
    refusal(mount.command(&["run", "--commit", "--abort", "--"]).args(fails));
    assert_branches(&mount, &["main", "kept"]);
    assert!(!mount.path("two").exists());
    assert_eq!(fs::read_to_string(mount.branch("kept", "two")).unwrap(), "2\n");
}

#[test]
fn pages_written_through_a_mapping_are_committed() {
    let Some(mount) = Mount::new() else { return };
    // Only `dd` with `conv=notrunc` to an existing file, and a mapping by python if it is there.
    if Command::new("python3").arg("--version").output().is_err() {
        return crate::harness::skipped("no python3, which maps files");
    }
    fs::write(mount.path("mapped"), vec![b'.'; 8192]).unwrap();
    let script = "import mmap
file = open('mapped', 'r+b')
pages = mmap.mmap(file.fileno(), 0)
pages[5000:5005] = b'12345'
import os
os._exit(0)";
    mount.printed(&["run", "--commit", "--", "python3", "-c", script]);
    assert_eq!(&fs::read(mount.path("mapped")).unwrap()[4999..5006], b".12345.");
}

#[test]
fn run_within_a_run_forks_its_branch() {
    let Some(mount) = Mount::new() else { return };
    let program = env!("CARGO_BIN_EXE_manycore-fs");
    let script = format!(
        "set -e; echo outer >outer
         '{program}' run --branch inner --commit -- sh -c 'cat outer; echo inner >inner'
         cat inner; '{program}' diff"
    );
    let printed = mount.printed(&["run", "--branch", "outer", "--", "sh", "-c", &script]);
    assert_eq!(printed, "outer\ninner\nA f inner\nA f outer\n");
    assert!(!mount.path("inner").exists());
}

#[test]
fn two_runs_at_once_do_not_see_each_other() {
    let Some(mount) = Mount::new() else { return };
    std::thread::scope(|scope| {
        for name in ["left", "right"] {
            let mount = &mount;
            scope.spawn(move || {
                let script = "for i in 1 2 3 4 5 6 7 8; do echo $MANYCORE_FS_BRANCH >f$i; done
                    sleep 0.2; cat f*; ls | wc -l";
                let text = mount.printed(&["run", "--branch", name, "--", "sh", "-c", script]);
                let own = format!("{name}\n");
                assert_eq!(text.trim_end().trim_end_matches('8'), own.repeat(8));
            });
        }
    });
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0);
}

#[test]
fn signal_to_run_reaches_the_command() {
    let Some(mount) = Mount::new() else { return };
    let mut run = mount.command(&["run", "--abort", "--", "sleep", "60"]);
    let mut child = run.process_group(0).spawn().unwrap();
    let is_running = || {
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()))
            .is_ok_and(|children| !children.trim().is_empty())
    };
    crate::harness::wait_until("the command runs", is_running);
    std::thread::sleep(Duration::from_millis(100));
    crate::harness::kill(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_branches(&mount, &["main"]);
}

#[test]
fn session_of_a_shell_works() {
    let Some(mount) = Mount::new() else { return };
    let program = env!("CARGO_BIN_EXE_manycore-fs");
    let script = format!(
        r#"set -eu
        fs() {{ '{program}' "$@"; }}
        mkdir project && cd project
        for i in 1 2 3; do echo "file $i" >file$i; done
        tar -cf ../archive.tar . && mkdir ../copy && tar -xf ../archive.tar -C ../copy
        diff -r . ../copy
        fs fork try1
        fs run --branch try1 -- sh -c 'rm file1; echo more >>file2; ln file3 file4'
        test -e file1 && test "$(cat file2)" = "file 2"
        fs diff try1
        fs commit try1 >../committed
        test ! -e file1 && grep -q more file2 && test file3 -ef file4
        cd .. && rm -r project copy && fs list | wc -l"#
    );
    let printed = printed(Command::new("sh").arg("-c").arg(script).current_dir(&mount.point));
    let lines: Vec<_> = printed.lines().filter(|line| !line.starts_with("T ")).collect();
    let expected = ["D f project/file1", "M f project/file2", "A f project/file4", "1"];
    assert_eq!(lines, expected, "{printed}");
}
