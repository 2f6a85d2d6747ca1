//! The command `mount`: checks, the daemon, and its end.

mod background;
mod check;
mod device;

use super::command_line::Mount;
use super::failure::{Failure, Result};
use super::fuse::{Operations, Options, Shared};
use super::unmount;
use check::Plan;
use manycore_fs::FileSystem;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

/// Mounts. Returns when the mount works, or with `--foreground` when it has ended.
pub fn mount(options: &Mount) -> Result<()> {
    let plan = check::check(options)?;
    if options.foreground {
        serve(plan, || background::notify_manager("READY=1"))
    } else {
        background::start(|ready| serve(plan, ready))
    }
}

/// Serves the mount until it ends. Calls `ready` when it works.
fn serve(plan: Plan, ready: impl FnOnce()) -> Result<()> {
    // All threads inherit this, so that the signals come to the one that waits for them.
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(|error| Failure::new(format!("signals: {error}")))?;
    die_of_panics();
    allow_many_files();
    let mut builder = FileSystem::builder().memory_limit(plan.memory);
    builder = match &plan.base {
        Some(base) => builder.base(base),
        None => builder.root(plan.uid, plan.gid, 0o755),
    };
    let files = builder.build().map_err(|error| match &plan.base {
        Some(base) => Failure::of(base, error),
        None => Failure::new(error.to_string()),
    })?;
    let options =
        Options { uid: plan.uid, gid: plan.gid, memory: plan.memory, xattrs: plan.xattrs };
    let shared = Arc::new(Shared::new(files, options));
    let operations = Operations::new(shared.clone())
        .map_err(|error| Failure::new(format!("no thread: {error}")))?;
    let session = device::mount(operations, &plan)?;
    // Nothing is there to be set yet.
    let _ = shared.notifier.set(session.notifier());
    let mountpoint = plan.mountpoint.clone();
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || unmount_at_signal(&signals, mountpoint))
        .map_err(|error| Failure::new(format!("no thread: {error}")))?;
    ready();
    session.run().map_err(|error| Failure::of(&plan.mountpoint, error))
}

/// Unmounts at the first signal. If the mount is busy it is detached, and the daemon goes on until
/// the last file is closed; a second signal ends it at once.
fn unmount_at_signal(signals: &SigSet, mountpoint: PathBuf) {
    let mut is_detached = false;
    while let Ok(signal) = signals.wait() {
        if is_detached {
            eprintln!("manycore-fs: ended by a second signal, {signal}; open files are lost");
            std::process::exit(1);
        }
        match unmount::detach(&mountpoint, false) {
            // The other threads end.
            Ok(()) => return,
            Err(Errno::EBUSY) => {
                eprintln!(
                    "manycore-fs: {} is busy: detached until its last file is closed",
                    mountpoint.display()
                );
                is_detached = unmount::detach(&mountpoint, true).is_ok();
            }
            Err(error) => eprintln!("manycore-fs: {}: {error}", mountpoint.display()),
        }
    }
}

/// Makes a panic end the process: the kernel then gives errors to all that wait, and nobody hangs.
fn die_of_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::exit(70);
    }));
}

/// Raises the limit of open files: files of the base directory may stay open.
fn allow_many_files() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With a lower limit the daemon works, too.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}
