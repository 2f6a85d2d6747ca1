//! The command `mount`: checks, the daemon, and its end.

mod background;
mod check;
mod device;

use super::command_line::Mount;
use super::failure::{Failure, Result};
use super::fuse::{Operations, Options, Shared};
use super::unmount;
use check::Plan;
use manycore_fs::{FileSystem, Recovered};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

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
    if let Some(keep) = &plan.keep {
        builder = builder.keep(keep);
    }
    let files = builder.build().map_err(|error| match (&plan.keep, &plan.base) {
        (None, Some(base)) => Failure::of(base, error),
        _ => Failure::new(error.to_string()),
    })?;
    if let Some(cut) = files.recovered() {
        say_cut(cut);
    }
    let options = Options {
        uid: plan.uid,
        gid: plan.gid,
        memory: plan.memory,
        xattrs: plan.xattrs,
        keep: plan.keep.clone(),
    };
    let kept = files.is_kept().then(|| files.clone());
    let shared = Arc::new(Shared::new(files, options));
    let operations = Operations::new(shared.clone())
        .map_err(|error| Failure::new(format!("no thread: {error}")))?;
    let session = device::mount(operations, &plan)?;
    // Nothing is there to be set yet.
    let _ = shared.notifier.set(session.notifier());
    let mountpoint = plan.mountpoint.clone();
    let of_signals = kept.clone();
    spawn("signals", move || unmount_at_signal(&signals, mountpoint, of_signals.as_ref()))?;
    if let Some(files) = kept.clone() {
        spawn("compact", move || compact_now_and_then(&files))?;
    }
    ready();
    let served = session.run().map_err(|error| Failure::of(&plan.mountpoint, error));
    if let Some(files) = kept {
        compact(&files);
        files.sync().map_err(|error| Failure::new(error.to_string()))?;
    }
    served
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(|error| Failure::new(format!("no thread: {error}")))
}

/// Says what a log has lost.
fn say_cut(cut: &Recovered) {
    let aside = cut.aside.as_ref().map(|path| format!("; they are in {}", path.display()));
    eprintln!(
        "manycore-fs: {}: {} bytes at offset {} were never on disk as a whole, and are cut off{}",
        cut.log.display(),
        cut.bytes,
        cut.offset,
        aside.unwrap_or_default()
    );
}

/// Writes the log anew if it has grown.
fn compact(files: &FileSystem) {
    if files.log_has_grown() {
        if let Err(error) = files.compact() {
            eprintln!("manycore-fs: the log can't be written anew, and grows: {error}");
        }
    }
}

/// A thread: also at the start, when the log has what the last daemon left.
fn compact_now_and_then(files: &FileSystem) {
    const PAUSE: Duration = Duration::from_secs(5);
    loop {
        compact(files);
        thread::sleep(PAUSE);
    }
}

/// Unmounts at the first signal. If the mount is busy it is detached, and the daemon goes on until
/// the last file is closed; a second signal ends it at once.
fn unmount_at_signal(signals: &SigSet, mountpoint: PathBuf, kept: Option<&FileSystem>) {
    let mut is_detached = false;
    while let Ok(signal) = signals.wait() {
        if is_detached {
            let lost = kept.is_none_or(|files| files.sync().is_err());
            let words = if lost { "open files are lost" } else { "all is on disk" };
            eprintln!("manycore-fs: ended by a second signal, {signal}; {words}");
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
