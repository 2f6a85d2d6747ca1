//! The control file, as other programs use it.

use crate::harness::Mount;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Command;

fn open(mount: &Mount) -> File {
    let path = mount.path(".manycore-fs/control");
    OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

fn answers(control: &mut File) -> String {
    let mut text = String::new();
    control.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn each_opening_is_a_session_of_its_own() {
    let Some(mount) = Mount::new() else { return };
    let (mut first, mut second) = (open(&mount), open(&mount));
    first.write_all(b"fork main a\n").unwrap();
    second.write_all(b"no request\nfork main a\nabort a\n").unwrap();
    assert_eq!(answers(&mut first), "ok 0\n");
    let text = answers(&mut second);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("error 0 'no request' is none of: fork PARENT NAME"), "{text}");
    assert_eq!(lines[1..], ["error 0 there is a branch 'a' already", "ok 0"]);
    drop(second);
    first.write_all(b"fork main a\n").unwrap();
    assert_eq!(answers(&mut first), "ok 0\n");
}

#[test]
fn wrong_names_and_wrong_bytes_are_refused_in_words() {
    let Some(mount) = Mount::new() else { return };
    let mut control = open(&mount);
    for (request, answer) in [
        ("fork main ../x\n", "error 0 '../x' is no name of a branch"),
        ("fork none x\n", "error 0 there is no branch 'none'"),
        ("commit main\n", "error 0 'main' is the first branch"),
        ("abort main\n", "error 0 'main' is the first branch"),
        ("diff x\n", "error 0 there is no branch 'x'"),
        ("\n", "error 0 '' is none of"),
    ] {
        control.write_all(request.as_bytes()).unwrap();
        let text = answers(&mut control);
        assert!(text.starts_with(answer), "{request}: {text}");
    }
    control.write_all(&[0xFF; 3000]).unwrap();
    control.write_all(b"\nlist\n").unwrap();
    let text = answers(&mut control);
    assert!(text.starts_with("error 0 a request has at most"), "{text}");
    assert!(text.contains("\nok 1\nmain - "), "{text}");
}

#[test]
fn shell_can_ask() {
    let Some(mount) = Mount::new() else { return };
    let script = "exec 3<>.manycore-fs/control && echo fork main s >&3 && echo list >&3 && cat <&3";
    let mut shell = Command::new("sh");
    let text = crate::harness::printed(shell.arg("-c").arg(script).current_dir(&mount.point));
    assert!(text.starts_with("ok 0\nok 2\nmain - "), "{text}");
}

#[test]
fn command_finds_the_mount_from_anywhere_in_it() {
    let Some(mount) = Mount::new() else { return };
    std::fs::create_dir_all(mount.path("deep/er")).unwrap();
    let mut list = crate::harness::command(["list"]);
    assert!(
        crate::harness::printed(list.current_dir(mount.path("deep/er"))).starts_with("main - ")
    );
    let mut list = crate::harness::command(["list", "--mount"]);
    assert!(crate::harness::printed(list.arg(&mount.point)).starts_with("main - "));
    let mut list = crate::harness::command(["list"]);
    let refused = crate::harness::refusal(list.current_dir("/"));
    assert!(refused.contains("/ is not in a mount of manycore-fs"), "{refused}");
}
