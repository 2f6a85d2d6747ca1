//! A session with the daemon of a mount, through the mount's control file.

use super::control::{Answer, Request};
use super::failure::{Failure, Result};
use super::fuse::{CONTROL, FOLDER};
use super::mount_table;
use nix::libc;
use nix::unistd::syncfs;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The branch of the surrounding `run`.
pub const BRANCH_VARIABLE: &str = "MANYCORE_FS_BRANCH";

/// A session.
pub struct Client {
    pub mountpoint: PathBuf,
    control: BufReader<File>,
}

impl Client {
    /// Begins a session with the mount at this place or around it, or around the current directory.
    pub fn open(place: Option<&Path>) -> Result<Client> {
        let mountpoint = mount_table::find(place)?;
        let path = mountpoint.join(FOLDER).join(CONTROL);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let control = options.open(&path).map_err(|error| refused(&mountpoint, &path, &error))?;
        Ok(Client { mountpoint, control: BufReader::new(control) })
    }

    /// Sends a request and waits for its answer.
    pub fn ask(&mut self, request: &Request) -> Result<Vec<String>> {
        let answer = self.exchange(request).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTCONN | libc::ECONNABORTED) => daemon_is_gone(&self.mountpoint),
            _ => Failure::of(&self.mountpoint, format!("the daemon's answer: {error}")),
        })?;
        match answer.refused {
            None => Ok(answer.lines),
            Some(words) => {
                let more = answer.lines.iter().map(|line| format!("\n  {line}"));
                Err(Failure::new(words + &more.collect::<String>()))
            }
        }
    }

    fn exchange(&mut self, request: &Request) -> std::io::Result<Answer> {
        let wrong = || std::io::Error::other("it is cut off, or of another version");
        self.control.get_mut().write_all(request.line().as_bytes())?;
        let mut line = String::new();
        self.control.read_line(&mut line)?;
        let head = line.strip_suffix('\n').and_then(Answer::parse_head);
        let (mut answer, count) = head.ok_or_else(wrong)?;
        for _ in 0..count {
            let mut line = String::new();
            self.control.read_line(&mut line)?;
            answer.lines.push(line.strip_suffix('\n').ok_or_else(wrong)?.to_owned());
        }
        Ok(answer)
    }

    /// Makes the kernel send what it has not sent yet to the daemon: pages that were written
    /// through a mapping.
    pub fn sync(&self) -> Result<()> {
        syncfs(self.control.get_ref()).map_err(|error| Failure::of(&self.mountpoint, error))
    }
}

/// The branch that a command is about if it names none.
pub fn default_branch() -> String {
    std::env::var(BRANCH_VARIABLE).ok().filter(|name| !name.is_empty()).unwrap_or("main".into())
}

/// What to say of a mount that has no daemon.
pub fn daemon_is_gone(mountpoint: &Path) -> Failure {
    let place = mountpoint.display();
    Failure::new(format!(
        "the daemon of {place} has ended; `manycore-fs unmount {place}` clears the mount away"
    ))
}

fn refused(mountpoint: &Path, path: &Path, error: &std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => daemon_is_gone(mountpoint),
        Some(libc::EACCES | libc::EPERM) => Failure::new(format!(
            "{}: only the user who has mounted it, and root, may work with its branches",
            mountpoint.display()
        )),
        _ => Failure::of(path, error),
    }
}
