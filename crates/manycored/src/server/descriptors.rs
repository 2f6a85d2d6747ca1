//! Descriptors: how many the process needs, and a spare descriptor for refusals.
//!
//! A process may have a limited number of open files (`RLIMIT_NOFILE`). Each connection is an open
//! file, and so are the sockets, the epoll and the eventfd of each worker:
//!
//! ```text
//! limit = open at the start + sockets, workers, files + RESERVE + connections
//! ```
//!
//! Laws:
//! - server_descriptors.D1 No more connections are admitted than there are descriptors for. If the
//!   limit can't be raised for all of `-c`, the server says so at its start and admits fewer.
//! - server_descriptors.D2 An accept can fail all the same, if the limit was lowered or the whole
//!   system is out of files. Then the worker closes a spare descriptor, accepts the client in its
//!   place, tells it the reason, counts it and closes it. If that fails, too, the worker does not
//!   listen for a moment (`accept`), and never sleeps.

use super::{Failure, inherit};
use crate::args::Plan;
use crate::system;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Mutex, PoisonError};

/// Descriptors for files that are open only for a moment: files of users and certificates, a
/// scraper of metrics, the system's files that `stats` reads.
const RESERVE: u64 = 8;
/// Descriptors that are open at the start, if the system does not tell.
const STANDARD: u64 = 3;
/// Descriptors of each worker besides its sockets: an epoll and an eventfd.
const WORKER: u64 = 2;
/// Descriptors of the process: for signals, and the spare one.
const PROCESS: u64 = 2;
/// Descriptors of a recording.
const RECORDING: u64 = 2;

/// Raises the limit of open files as far as needed and allowed, and lowers the plan's connections
/// to what fits (server_descriptors.D1). Returns true if all workers have to share one socket for
/// each address, because there is no room for a socket each.
pub(super) fn prepare(plan: &mut Plan) -> Result<bool, Failure> {
    let (open, connections) = (system::usage().files.max(STANDARD), plan.settings.connections_max);
    let all = (open + held(plan, false) + RESERVE).saturating_add(connections);
    let Some(limit) = raise(all).filter(|limit| *limit < all) else { return Ok(false) };
    let (own, threads) = (open + held(plan, true), plan.settings.threads);
    let room = limit.saturating_sub(own);
    // If descriptors are scarce, a few connections are better than a reserve.
    let served = room.saturating_sub(RESERVE).max(room.min(1)).min(connections);
    if served == 0 {
        let words = format!("{threads} workers and one connection need {} open files", own + 1);
        let more =
            format!("{words}, and {limit} are allowed; have fewer workers (-t), or more files");
        return Err(Failure::System(more, Errno::MFILE.into()));
    }
    if served < connections {
        eprintln!(
            "manycored: serves at most {served} of the {connections} connections of -c: {limit} \
             open files are allowed, and {all} are needed (ulimit -n, LimitNOFILE=)"
        );
    }
    plan.settings.connections_max = served;
    Ok(true)
}

/// Returns the number of descriptors that the server opens for this plan and keeps, without its
/// connections.
fn held(plan: &Plan, is_shared: bool) -> u64 {
    let threads = plan.settings.threads as u64;
    // Inherited sockets are open already.
    let listeners = if inherit::is_given() { 0 } else { plan.listeners.len() as u64 };
    let listeners = if is_shared { listeners } else { listeners * threads };
    let files = [plan.socket.is_some(), plan.metrics.is_some(), plan.memory_file.is_some()];
    let files = files.into_iter().filter(|is_there| *is_there).count() as u64;
    let recording = if plan.trace.is_some() { RECORDING } else { 0 };
    let datagrams = plan.datagrams.len() as u64 * threads;
    PROCESS + WORKER * threads + listeners + datagrams + files + recording
}

/// Raises the limit of open files to this number, or as far as the system allows. Returns the new
/// limit; `None` is no limit.
fn raise(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let maximum = limit.maximum.map(|most| most.max(wanted));
        let raised = Rlimit { current: Some(wanted), maximum };
        if setrlimit(Resource::Nofile, raised).is_err() {
            // No right to exceed the maximum. If this fails, too, the limit stays as it is.
            let raised = Rlimit { current: limit.maximum, ..limit };
            let _ = setrlimit(Resource::Nofile, raised);
        }
    }
    getrlimit(Resource::Nofile).current
}

/// A descriptor that is given up to refuse a client in its place (server_descriptors.D2).
pub(super) struct Spare(Mutex<Option<OwnedFd>>);

impl Spare {
    pub(super) fn new() -> Result<Self, Failure> {
        let spare = spare().map_err(Failure::system("a spare descriptor"))?;
        Ok(Self(Mutex::new(Some(spare))))
    }

    /// Calls `work` while one more descriptor is free, unless another thread takes that descriptor
    /// first.
    pub(super) fn in_its_place<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        let result = work();
        *held = spare().ok();
        result
    }
}

/// Opens the spare descriptor. It is an eventfd, because that also counts against the system's
/// limit of files; a duplicate of another descriptor would not.
fn spare() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC)
}
