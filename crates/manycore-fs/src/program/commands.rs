//! The commands that are one request: `fork`, `list`, `diff`, `commit`, `abort` and `sync`.

use super::client::{Client, default_branch};
use super::command_line::Command;
use super::control::Request;
use super::failure::{Failure, Result};
use std::io::{ErrorKind, Write};

/// Asks the daemon, and prints what it answers.
pub fn ask(command: &Command) -> Result<()> {
    let (at, request) = match command {
        Command::Fork(fork) => {
            let parent = fork.from.clone().unwrap_or_else(default_branch);
            (&fork.at, Request::Fork { parent, name: fork.name.clone() })
        }
        Command::Sync(sync) => (&sync.at, Request::Sync),
        Command::List(list) => (&list.at, Request::List),
        Command::Diff(diff) => {
            (&diff.at, Request::Diff(diff.name.clone().unwrap_or_else(default_branch)))
        }
        Command::Commit(end) => (&end.at, Request::Commit(end.name.clone())),
        Command::Abort(end) => (&end.at, Request::Abort(end.name.clone())),
        Command::Mount(_) | Command::Run(_) | Command::Unmount(_) => {
            unreachable!("main calls other functions for these")
        }
    };
    let mut client = Client::open(at.mount.as_deref())?;
    if !matches!(request, Request::List | Request::Abort(_)) {
        client.sync()?;
    }
    let lines = client.ask(&request)?;
    print(&lines)
}

/// Prints lines. It is no failure if nobody wants to read them.
fn print(lines: &[String]) -> Result<()> {
    let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}
