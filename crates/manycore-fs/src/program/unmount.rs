//! The end of a mount, by command or by the daemon itself.

use super::client::Client;
use super::command_line::Unmount;
use super::control::Request;
use super::failure::{Failure, Result};
use super::mount_table;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the command waits for the daemon to end.
const DAEMON_ENDS: Duration = Duration::from_secs(10);

/// The command `unmount`.
pub fn unmount(options: &Unmount) -> Result<()> {
    let place = options.mount.as_deref().or(options.mountpoint.as_deref());
    let mountpoint = mount_table::find(place)?;
    let client = Client::open(Some(&mountpoint)).ok();
    let daemon = match client {
        Some(client) => last_words(client, options.lazy)?,
        None => None,
    };
    // A mount without its daemon has nothing to lose, and files that are open can't be saved.
    let lazy = options.lazy || daemon.is_none();
    detach(&mountpoint, lazy).map_err(|error| match error {
        Errno::EBUSY => Failure::new(format!(
            "{} is busy: a process has files open in it or works there; end it, or use --lazy",
            mountpoint.display()
        )),
        error => Failure::of(&mountpoint, error),
    })?;
    if let Some(daemon) = daemon.filter(|_| !lazy) {
        wait_for_end(daemon);
    }
    Ok(())
}

/// Returns the number of the daemon's process, unless it has ended. What is kept is on disk then:
/// after the end, nobody could say that it is not.
fn last_words(mut client: Client, lazy: bool) -> Result<Option<u32>> {
    let Ok(lines) = client.ask(&Request::Info) else { return Ok(None) };
    let synced = client.sync().and_then(|()| client.ask(&Request::Sync));
    match synced {
        Err(error) if lazy => eprintln!("manycore-fs: {error}; what is not on disk may be lost"),
        Err(error) => {
            return Err(Failure::new(format!(
                "{error}; {} stays mounted: mend that, or use --lazy and lose what is not on disk",
                client.mountpoint.display()
            )));
        }
        Ok(_) => {}
    }
    Ok(lines.iter().find_map(|line| line.strip_prefix("process ")?.parse::<u32>().ok()))
}

/// Waits until a process has ended, so that its memory is free when the command returns.
fn wait_for_end(process: u32) {
    let until = Instant::now() + DAEMON_ENDS;
    while !has_ended(process) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns true if a process is gone or a zombie: whoever started it in the foreground may never
/// wait for it.
fn has_ended(process: u32) -> bool {
    // "number (name) state ...", and the name may contain anything.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_none_or(|state| "ZX".contains(state))
}

/// Unmounts, or if `lazy` takes the mount out of the tree, whoever uses it.
pub fn detach(mountpoint: &Path, lazy: bool) -> nix::Result<()> {
    let lazily = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match umount2(mountpoint, lazily | MntFlags::UMOUNT_NOFOLLOW) {
        Err(Errno::EPERM) => by_helper(mountpoint, lazy),
        other => other,
    }
}

/// Unmounts as a user without privileges: by a program that has them.
fn by_helper(mountpoint: &Path, lazy: bool) -> nix::Result<()> {
    for helper in ["fusermount3", "fusermount"] {
        let mut command = Command::new(helper);
        command.arg(if lazy { "-uqz" } else { "-uq" }).arg("--").arg(mountpoint);
        match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => return Ok(()),
            Ok(_) => return Err(Errno::EBUSY),
            Err(_) => {}
        }
    }
    Err(Errno::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_nobody_waits_for_has_ended() {
        assert!(!has_ended(std::process::id()));
        let mut child = Command::new("true").spawn().expect("a process");
        let until = Instant::now() + Duration::from_secs(60);
        while !has_ended(child.id()) {
            assert!(Instant::now() < until, "a zombie counts as alive");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().expect("it can be waited for").success());
        assert!(has_ended(child.id()));
    }
}
