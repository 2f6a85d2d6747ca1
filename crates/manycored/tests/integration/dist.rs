//! What an installation needs beside the program, in `dist`: the man page and the completions are
//! made of the command line, and the others name options and files that there are.
//!
//!     MANYCORED_WRITE=1 cargo test -p manycored --test integration dist::
//!
//! writes the man page and the completions anew.

use clap::CommandFactory;
use clap_complete::Shell;
use manycored::args::Args;
use std::fs;
use std::path::{Path, PathBuf};

fn dist() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dist")
}

fn read(name: &str) -> String {
    fs::read_to_string(dist().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn assert_current(name: &str, made: &[u8]) {
    if std::env::var_os("MANYCORED_WRITE").is_some() {
        fs::write(dist().join(name), made).expect("the file can be written");
    }
    let there = fs::read(dist().join(name)).unwrap_or_default();
    assert!(there == made, "dist/{name} is not what the command line says: {}", module_path!());
}

/// What the command line does not say.
const MORE: &str = "\
.SH EXIT STATUS
0 after a signal or the command shutdown; 64 for wrong options; 67 for an unknown user of \\-u;
71 for an address that cannot be had, and whatever else the system refuses.
.SH SIGNALS
.TP
TERM, INT
Requests that were received whole are answered; then the server ends.
.TP
USR1
The same, and with \\-e the items are saved for the next start.
.TP
HUP
Certificates and the files of \\-Y are read again.
.SH FILES
.TP
/etc/manycored.conf
The options with which the systemd service starts.
.SH SEE ALSO
.BR memcached (1)
.PP
https://github.com/manycore\\-rs/manycore/blob/main/docs/server.md
";

#[test]
fn man_page_is_of_this_command_line() {
    let mut page = Vec::new();
    // Without a date. The version changes with each release: docs/releasing.md says so.
    let command = Args::command();
    clap_mangen::Man::new(command).date("").source("manycored").render(&mut page).unwrap();
    page.extend_from_slice(MORE.as_bytes());
    assert_current("manycored.1", &page);
}

#[test]
fn completions_are_of_this_command_line() {
    let shells = [
        (Shell::Bash, "manycored.bash"),
        (Shell::Zsh, "_manycored"),
        (Shell::Fish, "manycored.fish"),
    ];
    for (shell, file) in shells {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "manycored", &mut script);
        assert_current(&format!("completions/{file}"), &script);
    }
}

/// The configuration that the service starts with is accepted, with its comments' options, too.
#[test]
fn shipped_configuration_is_accepted() {
    let text = read("manycored.conf");
    let option = |line: &str| line.contains(" = ");
    let uncommented: String = text
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|line| option(line)).unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("shipped", text), ("uncommented", uncommented)] {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        let words = ["manycored", "--config", file.to_str().unwrap()];
        let args = Args::from_command_line(words.map(Into::into));
        args.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn units_name_what_is_installed() {
    let (service, package) = (read("manycored.service"), read("../Cargo.toml"));
    assert!(service.contains("ExecStart=/usr/bin/manycored --config /etc/manycored.conf"));
    assert!(service.contains("Type=notify"), "the server sends READY=1");
    for file in ["manycored.conf", "manycored.socket", "manycored.1", "grafana.json"] {
        assert!(package.contains(&format!("\"dist/{file}\"")), "{file} is not in the package");
    }
}
