//! The command line.

#[cfg(test)]
mod dist;
#[cfg(test)]
mod tests;

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// A file system in memory whose whole tree forks at once.
///
/// `manycore-fs mount DIR` mounts it. Each of its branches is a whole tree; a fork takes
/// microseconds, whatever the size of the tree, and shares everything until one side writes.
/// `manycore-fs run -- COMMAND` runs a command in a branch of its own; `diff` shows what the
/// branch changed, `commit` moves the changes to the parent branch, and `abort` forgets them.
#[derive(Debug, Parser)]
#[command(name = "manycore-fs", version, disable_help_subcommand = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a file system on an empty directory
    ///
    /// Returns when the mount works; a daemon in the background serves it until it is unmounted.
    /// What is written is in memory and is gone after that, unless `--keep` is given.
    Mount(Mount),
    /// Make a branch
    Fork(Fork),
    /// List the branches
    ///
    /// Prints a line for each branch: its name, its parent and the seconds since 1970 at which it
    /// was made.
    List(List),
    /// Show what a branch has changed since it was made
    ///
    /// Prints a line for each change: A (added), D (deleted), M (modified) or T (only attributes,
    /// such as times and permissions), the kind of file as `find -type` has it, and the path. A
    /// line feed in a path is printed as \n, a backslash as \\.
    Diff(Diff),
    /// Move the changes of a branch to its parent, and end the branch
    ///
    /// All changes appear in the parent, or none: if the parent has changed the same files or names
    /// since the fork, the conflicts are printed and both branches stay as they are.
    Commit(End),
    /// Forget a branch with its changes
    Abort(End),
    /// Run a command in a branch
    ///
    /// The command sees the branch in the place of the mount, and the rest of the system as it is.
    /// Its exit status is that of `run`; 125 if `run` failed itself, 126 if the command can't be
    /// executed, 127 if there is no such command, 128 and the signal's number if a signal ended
    /// it.
    Run(Run),
    /// Wait until all changes of all branches are on disk, if the mount has `--keep`
    Sync(Sync),
    /// Unmount a file system; everything in it is gone, unless the mount has `--keep`
    Unmount(Unmount),
}

#[derive(Debug, Args)]
pub struct Mount {
    /// Begin with what this directory has. It is only read, and must not change while it is
    /// mounted; changes are kept in memory
    #[arg(long, value_name = "DIR")]
    pub base: Option<PathBuf>,
    /// Keep all branches in this folder, which is made if need be, as a log of changes; a mount of
    /// the same folder goes on with them. After `fsync` has returned, nothing that was done before
    /// is lost, whatever ends. The folder must not be in the base directory or the mount point
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Most memory for the content of files, all branches together, with K, M, G or T
    /// [default: half of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Threads that answer the kernel [default: one for each core, at least 2, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Refuse extended attributes. The kernel then never asks for them, which makes unpacking and
    /// copying faster
    #[arg(long)]
    pub no_xattrs: bool,
    /// Stay in the foreground until the mount ends
    #[arg(long)]
    pub foreground: bool,
    /// Let other users in, as far as owners and permissions of the files allow. Users other than
    /// root need `user_allow_other` in /etc/fuse.conf
    #[arg(long)]
    pub allow_other: bool,
    /// An empty directory
    pub mountpoint: PathBuf,
}

/// Which file system a command is about.
#[derive(Debug, Args)]
pub struct Where {
    /// The mount point [default: the mount that the current directory is in]
    #[arg(long, value_name = "MOUNTPOINT")]
    pub mount: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Fork {
    #[command(flatten)]
    pub at: Where,
    /// The branch to fork [default: inside `run` its branch, else main]
    #[arg(long, value_name = "PARENT")]
    pub from: Option<String>,
    /// Name of the new branch: letters, digits, `.`, `_` and `-`
    pub name: String,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub at: Where,
}

#[derive(Debug, Args)]
pub struct Sync {
    #[command(flatten)]
    pub at: Where,
}

#[derive(Debug, Args)]
pub struct Diff {
    #[command(flatten)]
    pub at: Where,
    /// The branch [default: inside `run` its branch, else main]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct End {
    #[command(flatten)]
    pub at: Where,
    /// The branch
    pub name: String,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    pub at: Where,
    /// The branch, which is made if it does not exist [default: a new one, `run-` and a number]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// The branch to fork, if `run` makes one [default: inside `run` its branch, else main]
    #[arg(long, value_name = "PARENT")]
    pub from: Option<String>,
    /// Keep the branch afterwards, which is the default
    #[arg(long, conflicts_with_all = ["commit", "abort"])]
    pub keep: bool,
    /// Commit the branch if the command succeeds (status 0); else it is kept
    #[arg(long)]
    pub commit: bool,
    /// Abort the branch afterwards; with --commit, only if the command fails
    #[arg(long)]
    pub abort: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Unmount {
    /// Detach the mount even if files in it are open; it ends when the last one is closed
    #[arg(long)]
    pub lazy: bool,
    /// The mount point [default: the mount that the current directory is in]
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with = "mountpoint")]
    pub mount: Option<PathBuf>,
    /// The same as --mount
    pub mountpoint: Option<PathBuf>,
}

/// A number of bytes: digits, and `K`, `M`, `G` or `T` for powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write bytes, or a number with K, M, G or T");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    if bytes == 0 { Err(wrong()) } else { Ok(bytes) }
}
