//! The daemon: a process in the background, whose parent waits until the mount works.

use crate::program::failure::{Failure, Result};
use nix::fcntl::OFlag;
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// What the daemon sends when the mount works; anything else is why it does not.
const READY: [u8; 1] = [0];

/// Runs `work` in a new process, and returns when it calls what it is given, or has failed before.
pub fn start(work: impl FnOnce(Box<dyn FnOnce()>) -> Result<()>) -> Result<()> {
    let system = |error| Failure::new(format!("can't run in the background: {error}"));
    let (said, saying) = pipe2(OFlag::O_CLOEXEC).map_err(system)?;
    // SAFETY: the program has one thread so far, so the child may do whatever the parent may.
    match unsafe { fork() }.map_err(system)? {
        ForkResult::Parent { .. } => {
            drop(saying);
            let mut said = File::from(said);
            let mut words = Vec::new();
            // The daemon keeps its end open while it is well.
            let mut first = [0];
            let read = match said.read(&mut first) {
                Ok(1) if first != READY => {
                    words.push(first[0]);
                    said.read_to_end(&mut words)
                }
                Ok(count) => {
                    words.extend_from_slice(&first[..count]);
                    Ok(count)
                }
                Err(error) => Err(error),
            };
            read.map_err(|error| Failure::new(format!("the daemon: {error}")))?;
            match words.as_slice() {
                words if words == READY => Ok(()),
                [] => Err(Failure::new("the daemon has ended at once, and did not say why")),
                words => Err(Failure::new(String::from_utf8_lossy(words))),
            }
        }
        ForkResult::Child => {
            drop(said);
            let mut saying = File::from(saying);
            let telling = saying.try_clone().map_err(|error| Failure::new(error.to_string()))?;
            let done = setsid().map_err(system).and_then(|_| work(Box::new(|| detach(telling))));
            if let Err(failure) = done {
                // After `detach` nobody reads it.
                let _ = saying.write_all(failure.to_string().as_bytes());
                std::process::exit(i32::from(failure.code()));
            }
            std::process::exit(0)
        }
    }
}

/// Leaves the terminal and the current directory, and lets the parent return.
fn detach(mut telling: File) {
    // It works without as well, but keeps the terminal's files open.
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
    let _ = std::env::set_current_dir("/");
    let _ = telling.write_all(&READY);
}

/// Tells the service manager that has started the daemon, if there is one: `state` as in
/// `sd_notify(3)`.
pub fn notify_manager(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let target = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(Path::new(&address)),
    };
    let told = target.and_then(|to| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to));
    if let Err(error) = told {
        eprintln!("manycore-fs: NOTIFY_SOCKET {}: {error}", Path::new(&address).display());
    }
}
