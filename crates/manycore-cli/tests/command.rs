//! The command from outside: what it prints, where, and with which exit code.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn manycore(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manycore"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    manycore(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// A folder of the test's own.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the test's folder can be made");
    folder
}

#[test]
fn completions_and_the_manual_name_every_command() {
    for args in [&["completions", "bash"][..], &["completions", "zsh"], &["man"]] {
        let output = run(args);
        assert!(output.status.success(), "{args:?}");
        let said = text(&output.stdout);
        for command in ["doctor", "sim", "trace"] {
            assert!(said.contains(command), "{args:?} does not name {command}");
        }
    }
    assert_eq!(run(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn doctor_speaks_of_clock_threads_and_topology() {
    let output = run(&["doctor"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    for words in ["machine: ", "clock", "mode", "membarrier", "topology", "inversions"] {
        assert!(out.contains(words), "{words} not in {out}");
    }
}

/// A trace of two spans of a thread.
fn trace(path: &std::path::Path) {
    const JOBS: manycore_trace::Class = manycore_trace::Class::new(1, "jobs");
    let recording = manycore_trace::Recorder::new().stream(path).start().expect("a recording");
    for id in 0..2_u32 {
        let _span = manycore_trace::span!(JOBS, Job { id: u32 });
        manycore_trace::event!(JOBS, Hit { id: u32 });
    }
    recording.stop().expect("a file");
}

#[test]
fn trace_shows_counts_and_converts_a_recording() {
    let folder = folder("traces");
    let file = folder.join("jobs.mctrace");
    trace(&file);
    let path = file.to_str().expect("a path in UTF-8");
    let said = |args: &[&str]| {
        let output = run(&[&["trace"], args].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(said(&["show", path]).lines().count(), 6);
    assert_eq!(said(&["show", path, "--event", "Hit"]).lines().count(), 2);
    assert_eq!(said(&["tail", path, "--class", "other"]), "");
    let stat = said(&["stat", path]);
    assert!(stat.starts_with("6 produced = 6 merged + 0 lost\n"), "{stat}");
    for format in ["perfetto", "chrome", "ctf", "html"] {
        let out = folder.join(format);
        said(&["convert", path, "--to", format, "--out", out.to_str().expect("UTF-8")]);
        assert!(out.exists());
    }
    let page = std::fs::read_to_string(folder.join("html")).expect("a page");
    assert!(page.contains("jobs Job id=1") && page.contains("<svg"), "{page}");

    let whole = std::fs::read(&file).expect("the file");
    std::fs::write(&file, &whole[..whole.len() - 100]).expect("a file");
    let cut = run(&["trace", "stat", path]);
    assert_eq!(cut.status.code(), Some(1));
    assert!(text(&cut.stderr).contains("the file is cut"), "{}", text(&cut.stderr));
    std::fs::write(&file, "{}").expect("a file");
    let foreign = run(&["trace", "show", path]);
    assert!(text(&foreign.stderr).contains("at byte 0: no recording begins here"));
}

#[test]
fn trace_record_says_if_the_program_does_not_record() {
    let out = folder("trace-record").join("none.mctrace");
    let output = run(&["trace", "record", "--out", out.to_str().expect("UTF-8"), "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("has recorded nothing"));
}

#[test]
fn command_without_arguments_says_what_there_is() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Usage: manycore <COMMAND>"));
    assert_eq!(run(&["nosuch"]).status.code(), Some(2));
}
