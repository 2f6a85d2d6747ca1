//! What an installation needs beside the program, in `dist`: the man page and the completions are
//! generated from the command line, and the unit names only options that exist.
//!
//!     MANYCORE_FS_WRITE=1 cargo test -p manycore-fs --bins dist::
//!
//! writes the man page and the completions anew.

use super::Arguments;
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dist")
}

#[track_caller]
fn assert_current(name: &str, made: &[u8]) {
    if std::env::var_os("MANYCORE_FS_WRITE").is_some() {
        fs::write(dist().join(name), made).expect("the file can be written");
    }
    let there = fs::read(dist().join(name)).unwrap_or_default();
    assert!(there == made, "dist/{name} is not what the command line says: {}", module_path!());
}

/// How clap_mangen defines a quotation mark.
const QUOTE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// What the command line does not say.
const MORE: &str = "\
.SH ENVIRONMENT
.TP
MANYCORE_FS_BRANCH
The branch of the surrounding \\fBrun\\fR. \\fBfork\\fR and \\fBdiff\\fR use it if no branch is
named.
.SH SIGNALS
.TP
TERM, INT, HUP
The daemon unmounts and ends. If files are open, it detaches the mount and ends when the last one is
closed; a second signal ends it at once, and what has files open gets errors.
.SH FILES
.TP
MOUNTPOINT/.manycore\\-fs/branches/NAME
The tree of each branch. The directory can be entered, but is not listed.
.TP
MOUNTPOINT/.manycore\\-fs/control
What the commands write requests to. Only the user who mounted, and root, may open it.
.TP
FOLDER/log, FOLDER/lock
Of \\fBmount \\-\\-keep FOLDER\\fR: the log of all changes, and a file that one daemon at a time has
locked.
.SH DURABILITY
With \\fB\\-\\-keep\\fR, an \\fBfsync\\fR(2) or \\fBfdatasync\\fR(2) of any file of the mount, and
\\fBmanycore\\-fs sync\\fR, return when everything that was done before is on disk: in all branches,
with forks, commits and aborts. Without them, the death of the daemon loses what was done in the
last 20 milliseconds or so, and that of the machine what was done in the last second or so. What is
left is what was done up to some moment, never a later change without an earlier one. The kernel
does not tell FUSE daemons of \\fBsync\\fR(2) and \\fBsyncfs\\fR(2).
.SH EXIT STATUS
0 if all went well, 1 if not, 2 for a wrong command line. For \\fBrun\\fR, see there.
.SH EXAMPLES
.nf
manycore\\-fs mount \\-\\-base ~/project ~/work
cd ~/work
manycore\\-fs run \\-\\-branch try1 \\-\\- make test
manycore\\-fs diff try1
manycore\\-fs commit try1
manycore\\-fs unmount ~/work
.sp
manycore\\-fs mount \\-\\-keep ~/work.kept ~/work
.fi
.SH SEE ALSO
.BR fuse (4),
.BR mount_namespaces (7)
.PP
https://github.com/manycore\\-rs/manycore/blob/main/docs/fs.md
";

#[test]
fn man_page_is_of_this_command_line() {
    let mut page = Vec::new();
    // Without a date. The version changes with each release: docs/releasing.md says so.
    let mut command = Arguments::command();
    command.build();
    let man = clap_mangen::Man::new(command.clone()).date("").source("manycore-fs");
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    page.extend_from_slice(b".SH COMMANDS\n");
    for sub in command.get_subcommands() {
        // One page for all commands: each is a subsection.
        let mut part = Vec::new();
        let man = clap_mangen::Man::new(sub.clone());
        man.render_synopsis_section(&mut part).unwrap();
        man.render_description_section(&mut part).unwrap();
        man.render_options_section(&mut part).unwrap();
        let part = String::from_utf8(part).unwrap();
        let part = part.replace(".SH SYNOPSIS", &format!(".SS {}", sub.get_name()));
        let part = part.replace(".SH DESCRIPTION", ".PP").replace(".SH OPTIONS\n", "");
        page.extend_from_slice(part.as_bytes());
    }
    page.extend_from_slice(MORE.as_bytes());
    // Each part begins with the same definition; one is enough.
    let page = String::from_utf8(page).unwrap();
    let page = format!("{QUOTE}{}", page.replace(QUOTE, "")).into_bytes();
    assert_current("manycore-fs.1", &page);
}

#[test]
fn completions_are_of_this_command_line() {
    let shells = [
        (Shell::Bash, "manycore-fs.bash"),
        (Shell::Zsh, "_manycore-fs"),
        (Shell::Fish, "manycore-fs.fish"),
    ];
    for (shell, file) in shells {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "manycore-fs", &mut script);
        assert_current(&format!("completions/{file}"), &script);
    }
}

#[test]
fn unit_starts_what_the_command_line_takes() {
    let unit = fs::read_to_string(dist().join("manycore-fs@.service")).unwrap();
    assert!(unit.contains("Type=notify"), "the daemon sends READY=1");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/")).unwrap();
    let words = start.replace("$MANYCORE_FS_OPTIONS", "--memory 1G").replace("%f", "x");
    clap::Parser::try_parse_from(words.split_whitespace())
        .map(|_: Arguments| ())
        .unwrap_or_else(|error| panic!("{start}: {error}"));
}
