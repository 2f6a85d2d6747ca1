//! The command `run`: another command that sees a branch in the place of the mount.
//!
//! This process enters a mount namespace of its own, in which the branch's tree is mounted over the
//! mount point. The command inherits the namespace. No other process sees it, and it ends with the
//! last process in it.

use super::client::{BRANCH_VARIABLE, Client, default_branch};
use super::command_line::Run;
use super::control::Request;
use super::failure::{Failure, NO_COMMAND, NOT_EXECUTABLE, RUN_FAILED, Result};
use super::fuse::{BRANCHES, FOLDER};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getegid, geteuid};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

/// Runs the command; returns its exit status.
pub fn run(options: &Run) -> Result<ExitCode> {
    let failed = |failure: Failure| {
        if failure.code() == super::failure::FAILED {
            failure.with_code(RUN_FAILED)
        } else {
            failure
        }
    };
    try_run(options).map_err(failed)
}

fn try_run(options: &Run) -> Result<ExitCode> {
    let mut client = Client::open(options.at.mount.as_deref())?;
    let name = branch(&mut client, options)?;
    enter(&client.mountpoint, &name)?;
    let status = execute(options, &name);
    // The command's status, also if it could not be started.
    let succeeded = status.as_ref().is_ok_and(ExitStatus::success);
    if options.commit && succeeded {
        client.sync()?;
        client.ask(&Request::Commit(name))?;
    } else if options.abort {
        client.ask(&Request::Abort(name))?;
    } else if options.commit || options.branch.is_none() {
        eprintln!(
            "manycore-fs: the branch {name} is kept: `manycore-fs diff {name}`, `commit {name}` or \
             `abort {name}`"
        );
    }
    let status = status?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.unwrap_or(i32::from(RUN_FAILED)) as u8))
}

/// The name of the branch, which is made if it is not there.
fn branch(client: &mut Client, options: &Run) -> Result<String> {
    let names = client.ask(&Request::List)?;
    let is_there = |name: &str| names.iter().any(|line| line.split(' ').next() == Some(name));
    let name = match &options.branch {
        Some(name) if name == "main" => {
            return Err(Failure::new("the mount itself is the branch main: run the command there"));
        }
        Some(name) if is_there(name) => return Ok(name.clone()),
        Some(name) => name.clone(),
        None => {
            let process = std::process::id();
            let names = (0..).map(|count| match count {
                0 => format!("run-{process}"),
                count => format!("run-{process}-{count}"),
            });
            names.into_iter().find(|name| !is_there(name)).expect("it never ends")
        }
    };
    client.sync()?;
    let parent = options.from.clone().unwrap_or_else(default_branch);
    client.ask(&Request::Fork { parent, name: name.clone() })?;
    Ok(name)
}

/// Enters a namespace in which the branch is in the place of the mount.
fn enter(mountpoint: &Path, name: &str) -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    let here = std::env::current_dir()
        .map_err(|error| Failure::new(format!("the current directory: {error}")))?;
    let branches = mountpoint.join(FOLDER).join(BRANCHES);
    let mut flags = CloneFlags::CLONE_NEWNS;
    if !user.is_root() {
        flags |= CloneFlags::CLONE_NEWUSER;
    }
    unshare(flags).map_err(|error| {
        Failure::new(format!(
            "no mount namespace: {error}; the system may forbid user namespaces (see \
             user.max_user_namespaces and kernel.unprivileged_userns_clone), but root can `run`"
        ))
    })?;
    if !user.is_root() {
        map_user("setgroups", "deny")?;
        map_user("uid_map", &format!("{user} {user} 1"))?;
        map_user("gid_map", &format!("{group} {group} 1"))?;
    }
    let none: Option<&str> = None;
    // What is mounted here is not seen outside; what is mounted outside later is seen here.
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|error| Failure::new(format!("the mount namespace: {error}")))?;
    // Of this namespace: what was opened before can't be mounted in it.
    let open = File::open(&branches).map_err(|error| Failure::of(&branches, error))?;
    bind(&branches.join(name), mountpoint)?;
    // The branches stay within reach, so that `run` works inside, too.
    bind(Path::new(&format!("/proc/self/fd/{}", open.as_raw_fd())), &branches)?;
    // The current directory is still the one below.
    std::env::set_current_dir(&here)
        .map_err(|error| Failure::new(format!("{} in the branch {name}: {error}", here.display())))
}

fn map_user(file: &str, text: &str) -> Result<()> {
    let path = format!("/proc/self/{file}");
    fs::write(&path, text).map_err(|error| Failure::of(&path, error))
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
        .map_err(|error| Failure::new(format!("{} on {}: {error}", from.display(), to.display())))
}

/// Runs the command and waits for its end.
fn execute(options: &Run, name: &str) -> Result<ExitStatus> {
    let (program, arguments) = options.command.split_first().expect("the command line demands it");
    // Signals to this process are for the command, which begins with none of them blocked.
    let signals = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];
    let signals: SigSet = signals.into_iter().collect();
    signals.thread_block().map_err(|error| Failure::new(format!("signals: {error}")))?;
    let mut command = Command::new(program);
    command.args(arguments).env(BRANCH_VARIABLE, name);
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe { command.pre_exec(move || Ok(signals.thread_unblock()?)) };
    let mut child = command.spawn().map_err(|error| {
        let code = match error.kind() {
            ErrorKind::NotFound => NO_COMMAND,
            _ => NOT_EXECUTABLE,
        };
        Failure::of(program, error).with_code(code)
    })?;
    let process = Pid::from_raw(child.id() as i32);
    // Ends with this process.
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            // A terminal sends these two to the command itself.
            if !matches!(signal, Signal::SIGINT | Signal::SIGQUIT) {
                let _ = kill(process, signal);
            }
        }
    });
    child.wait().map_err(|error| Failure::of(program, error))
}
