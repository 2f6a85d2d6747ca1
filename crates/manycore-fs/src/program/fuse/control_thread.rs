//! The thread that does what sessions ask for.
//!
//! It is a thread of its own because a commit has to tell the kernel what to forget. Before the
//! kernel can forget, it may have to wait for answers to other requests. So a thread that answers
//! the kernel's requests must not wait for a commit.

use super::node::Node;
use super::shared::Shared;
use crate::program::control::{Answer, Request, Session, escaped};
use fuser::{Errno, Notifier, ReplyWrite};
use manycore_fs::{Branch, BranchId, Change, Committed, Kind, NotCommitted};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::UNIX_EPOCH;

/// What the thread is to do.
pub enum Job {
    /// A client has written this to the control file. The reply is sent when the answers are there.
    Written { session: Arc<Mutex<Session>>, bytes: Vec<u8>, reply: ReplyWrite },
    /// What the kernel knows of this file is wrong.
    Forget(Node),
}

/// Starts the thread, which ends with the last sender.
pub fn start(shared: Arc<Shared>) -> std::io::Result<Sender<Job>> {
    let (sender, receiver) = channel();
    thread::Builder::new().name("control".into()).spawn(move || serve(&shared, &receiver))?;
    Ok(sender)
}

fn serve(shared: &Shared, receiver: &Receiver<Job>) {
    for job in receiver {
        match job {
            Job::Written { session, bytes, reply } => {
                let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
                let done = session.write(&bytes, |request| execute(shared, request));
                drop(session);
                match done {
                    Ok(()) => reply.written(bytes.len() as u32),
                    // The answers must be read first.
                    Err(_) => reply.error(Errno::EAGAIN),
                }
            }
            Job::Forget(node) => {
                if let Some(notifier) = shared.notifier.get() {
                    let _ = notifier.inval_inode(node.number(), 0, 0);
                }
            }
        }
    }
}

fn execute(shared: &Shared, request: Request) -> Answer {
    let done = match request {
        Request::Fork { parent, name } => fork(shared, &parent, &name),
        Request::List => Ok(list(shared)),
        Request::Diff(name) => diff(shared, &name),
        Request::Commit(name) => return commit(shared, &name),
        Request::Abort(name) => abort(shared, &name),
        Request::Info => Ok(info(shared)),
        Request::Sync => shared.files.sync().map(|()| Vec::new()).map_err(|e| e.to_string()),
    };
    done.map_or_else(Answer::refused, Answer::ok)
}

fn named(shared: &Shared, name: &str) -> Result<Branch, String> {
    shared.files.branch(name).ok_or_else(|| format!("there is no branch '{name}'"))
}

fn fork(shared: &Shared, parent: &str, name: &str) -> Result<Vec<String>, String> {
    use manycore_fs::Error::{Exists, Invalid};
    let parent = named(shared, parent)?;
    parent.fork(name).map_err(|error| match error {
        Exists => format!("there is a branch '{name}' already"),
        Invalid => format!(
            "'{name}' is no name of a branch: 1 to 255 letters, digits, '.', '_' and '-', not \
             beginning with '.' or '-'"
        ),
        other => format!("'{}' can't be forked: {other}", parent.name()),
    })?;
    Ok(Vec::new())
}

fn list(shared: &Shared) -> Vec<String> {
    let branches = shared.files.branches();
    let name_of = |id: Option<BranchId>| {
        let parent = branches.iter().find(|branch| Some(branch.id) == id);
        parent.map_or("-", |branch| branch.name.as_str())
    };
    let line = |branch: &manycore_fs::BranchInfo| {
        let age = branch.created.duration_since(UNIX_EPOCH).unwrap_or_default();
        format!("{} {} {}", branch.name, name_of(branch.parent), age.as_secs())
    };
    branches.iter().map(line).collect()
}

fn diff(shared: &Shared, name: &str) -> Result<Vec<String>, String> {
    let changes = named(shared, name)?.diff();
    let changes = changes.map_err(|error| format!("'{name}': {error}"))?;
    Ok(changes.iter().map(change_line).collect())
}

/// A letter for the change, one for the kind of file, and the path.
fn change_line(change: &Change) -> String {
    let (letter, path, kind) = match change {
        Change::Added(path, kind) => ('A', path, kind),
        Change::Removed(path, kind) => ('D', path, kind),
        Change::Modified(path, kind) => ('M', path, kind),
        Change::Attributes(path, kind) => ('T', path, kind),
    };
    let kind = match kind {
        Kind::File => 'f',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    };
    format!("{letter} {kind} {}", shown(path))
}

/// A path below the root; the root itself is a dot.
fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    if bytes.is_empty() { ".".into() } else { escaped(bytes).into_owned() }
}

fn commit(shared: &Shared, name: &str) -> Answer {
    let branch = match named(shared, name) {
        Ok(branch) => branch,
        Err(words) => return Answer::refused(words),
    };
    let branches = shared.files.branches();
    let parent = branches.iter().find(|info| info.id == branch.id()).and_then(|info| info.parent);
    match (branch.commit(), parent) {
        (Ok(done), Some(parent)) => {
            if let Some(notifier) = shared.notifier.get() {
                forget_changed(notifier, parent, &done);
                forget_branch(notifier, name);
            }
            Answer::ok(done.changes.iter().map(change_line).collect())
        }
        (Ok(_), None) => Answer::ok(Vec::new()),
        (Err(NotCommitted::Conflicts(conflicts)), _) => {
            let line = |at: &manycore_fs::Conflict| format!("{}: {}", shown(&at.path), at.reason);
            let words = format!("'{name}' conflicts with its parent, and nothing was committed");
            Answer { refused: Some(words), lines: conflicts.iter().map(line).collect() }
        }
        (Err(NotCommitted::Error(manycore_fs::Error::Busy)), _) => Answer::refused(busy(name)),
        (Err(NotCommitted::Error(error)), _) => Answer::refused(format!("'{name}': {error}")),
    }
}

fn abort(shared: &Shared, name: &str) -> Result<Vec<String>, String> {
    let branch = named(shared, name)?;
    branch.abort().map_err(|error| match error {
        manycore_fs::Error::Busy => busy(name),
        error => format!("'{name}': {error}"),
    })?;
    if let Some(notifier) = shared.notifier.get() {
        forget_branch(notifier, name);
    }
    Ok(Vec::new())
}

fn busy(name: &str) -> String {
    if name == "main" {
        return "'main' is the first branch, which ends with the mount".into();
    }
    format!("'{name}' has branches of its own: commit or abort them first")
}

fn info(shared: &Shared) -> Vec<String> {
    let usage = shared.files.main().usage();
    let shown_or_none = |path: Option<&Path>| path.map_or("-".into(), shown_whole);
    let base = shown_or_none(shared.files.base().as_deref());
    let keep = shown_or_none(shared.options.keep.as_deref());
    vec![
        format!("version {}", env!("CARGO_PKG_VERSION")),
        format!("process {}", std::process::id()),
        format!("base {base}"),
        format!("keep {keep}"),
        format!("memory {}", usage.used),
        format!("memory-limit {}", shared.options.memory),
        format!("files {}", usage.files),
    ]
}

fn shown_whole(path: &Path) -> String {
    escaped(path.as_os_str().as_bytes()).into_owned()
}

/// Tells the kernel what a commit has changed in the parent. An error means that the kernel did not
/// have it, or that the mount has ended.
fn forget_changed(notifier: &Notifier, parent: BranchId, done: &Committed) {
    let mut directories = HashSet::new();
    for (directory, name) in &done.names {
        let _ = notifier.inval_entry(Node::File(parent, *directory).number(), name);
        directories.insert(*directory);
    }
    for file in done.files.iter().chain(&directories) {
        // Attributes, and all pages: of a directory, its list.
        let _ = notifier.inval_inode(Node::File(parent, *file).number(), 0, 0);
    }
}

/// Tells the kernel that a branch is gone, so that it forgets what it has of the branch's files.
fn forget_branch(notifier: &Notifier, name: &str) {
    let _ = notifier.inval_entry(Node::Branches.number(), OsStr::new(name));
}
