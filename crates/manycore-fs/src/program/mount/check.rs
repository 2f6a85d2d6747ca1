//! Checks before a mount is tried, with messages that say what to do.

use crate::program::client::{Client, daemon_is_gone};
use crate::program::command_line::Mount;
use crate::program::failure::{Failure, Result};
use crate::program::mount_table;
use nix::libc;
use nix::unistd::{getegid, geteuid};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::thread::available_parallelism;

/// A mount whose parts have been looked at.
pub struct Plan {
    pub mountpoint: PathBuf,
    pub base: Option<PathBuf>,
    pub keep: Option<PathBuf>,
    pub memory: u64,
    pub threads: usize,
    pub allow_other: bool,
    pub xattrs: bool,
    pub uid: u32,
    pub gid: u32,
}

/// Looks at everything that the command line names.
pub fn check(options: &Mount) -> Result<Plan> {
    let mountpoint = check_mountpoint(&options.mountpoint)?;
    let base = options.base.as_deref().map(check_base).transpose()?;
    if let Some(base) = &base {
        check_apart(base, &mountpoint)?;
    }
    let keep = options.keep.as_deref().map(check_keep).transpose()?;
    if let Some(keep) = &keep {
        check_keep_apart(keep, &mountpoint, base.as_deref())?;
    }
    let cores = available_parallelism().map_or(1, usize::from);
    Ok(Plan {
        mountpoint,
        base,
        keep,
        memory: options.memory.unwrap_or_else(half_of_memory),
        threads: options.threads.map_or(cores.clamp(2, 16), usize::from),
        allow_other: options.allow_other,
        xattrs: !options.no_xattrs,
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    })
}

fn check_mountpoint(path: &Path) -> Result<PathBuf> {
    let found = fs::metadata(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTCONN) => daemon_is_gone(path),
        Some(libc::ENOENT) => {
            Failure::new(format!("{}: no such directory: make it first", path.display()))
        }
        _ => Failure::of(path, error),
    })?;
    if !found.is_dir() {
        return Err(Failure::of(path, "not a directory"));
    }
    let mountpoint = path.canonicalize().map_err(|error| Failure::of(path, error))?;
    if mount_table::is_mounted(&mountpoint) {
        // The kernel may know the directory without asking; a session shows if the daemon is well.
        return Err(Client::open(Some(&mountpoint)).err().unwrap_or_else(|| {
            Failure::new(format!("{} is a mount of manycore-fs already", mountpoint.display()))
        }));
    }
    let mut entries = fs::read_dir(&mountpoint).map_err(|error| Failure::of(path, error))?;
    if entries.next().is_some() {
        return Err(Failure::new(format!(
            "{} is not empty: the mount would hide what is in it",
            mountpoint.display()
        )));
    }
    Ok(mountpoint)
}

fn check_base(path: &Path) -> Result<PathBuf> {
    let base = path.canonicalize().map_err(|error| Failure::of(path, error))?;
    let found = fs::read_dir(&base);
    found.map_err(|error| Failure::of(&base, format!("the base directory: {error}")))?;
    Ok(base)
}

/// Refuses to mount in the base directory: who read it through the mount would meet the mount
/// again.
fn check_apart(base: &Path, mountpoint: &Path) -> Result<()> {
    if mountpoint.starts_with(base) {
        return Err(Failure::new(format!(
            "{} is in the base directory {}: choose a mount point elsewhere",
            mountpoint.display(),
            base.display()
        )));
    }
    if base.starts_with(mountpoint) {
        return Err(Failure::new(format!(
            "the base directory {} is in {}, which would hide it: choose another mount point",
            base.display(),
            mountpoint.display()
        )));
    }
    Ok(())
}

/// Returns where the folder is or will be. A command that is refused makes none.
fn check_keep(path: &Path) -> Result<PathBuf> {
    let above = path.ancestors().find(|above| above.exists());
    let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let missing = path.strip_prefix(above).unwrap_or(path);
    if missing.components().any(|part| part == Component::ParentDir) {
        return Err(Failure::of(path, "there is no such directory to go up from"));
    }
    let above = above.canonicalize().map_err(|error| Failure::of(path, error))?;
    Ok(if missing.as_os_str().is_empty() { above } else { above.join(missing) })
}

/// Refuses a folder that the mount would hide, or that would change the base.
fn check_keep_apart(keep: &Path, mountpoint: &Path, base: Option<&Path>) -> Result<()> {
    for outer in [Some(mountpoint), base].into_iter().flatten() {
        if keep.starts_with(outer) {
            let words = format!("it is in {}: keep the branches elsewhere", outer.display());
            return Err(Failure::of(keep, words));
        }
    }
    Ok(())
}

/// Half of the machine's memory, as a tmpfs takes.
fn half_of_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    // Without that file, what any machine has.
    kilobytes.map_or(1 << 30, |kilobytes| (kilobytes << 10) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T>(result: Result<T>) -> String {
        result.err().expect("it is refused").to_string()
    }

    #[test]
    fn mount_point_must_be_an_empty_directory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(refusal(check_mountpoint(&file)).contains("not a directory"));
        assert!(refusal(check_mountpoint(&folder.path().join("none"))).contains("make it first"));
        assert!(refusal(check_mountpoint(folder.path())).contains("is not empty"));
        fs::remove_file(&file).unwrap();
        assert!(check_mountpoint(folder.path()).is_ok());
    }

    #[test]
    fn base_and_mount_point_are_not_within_each_other() {
        let apart = |base, mountpoint| check_apart(Path::new(base), Path::new(mountpoint));
        assert!(apart("/a/b", "/a/bc").is_ok());
        for (base, mountpoint) in [("/a", "/a"), ("/a", "/a/b"), ("/a/b/c", "/a/b"), ("/", "/a")] {
            assert!(apart(base, mountpoint).is_err(), "{base} {mountpoint}");
        }
    }

    #[test]
    fn folder_is_apart_from_mount_point_and_base() {
        let apart = |keep, base| check_keep_apart(Path::new(keep), Path::new("/m"), base);
        assert!(apart("/k", Some(Path::new("/k/base"))).is_ok());
        assert!(apart("/m/k", None).is_err());
        assert!(apart("/b/k", Some(Path::new("/b"))).is_err());
    }

    #[test]
    fn some_memory_is_found() {
        assert!(half_of_memory() > 1 << 20);
    }
}
