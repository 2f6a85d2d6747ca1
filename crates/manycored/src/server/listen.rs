//! The listening sockets.
//!
//! For each address every worker has its own socket and accept queue (`SO_REUSEPORT`), so that no
//! two workers contend for a queue. The kernel spreads connections by a hash of their addresses.
//! With few connections, one worker may get most of them; `handover` balances that.
//!
//! All workers share one queue of
//!
//! - a Unix socket,
//! - sockets inherited from the service manager, which replace those that the options name,
//! - all sockets, if descriptors are scarce (`descriptors`).
//!
//! The kernel wakes one worker at a time for a shared queue.

use super::{Failure, inherit};
use crate::args::{Listener, Plan};
use crate::clients::{Clients, address_text};
use crate::server_state::Language;
use crate::tls::Demand;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr, set_socket_reuseport};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with,
};
use rustix::process::umask;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker does not listen if it could neither accept nor refuse a client. The time is
/// memcached's.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// The queues on which a worker does not listen at present.
#[derive(Default)]
pub(super) struct Paused {
    pub(super) queues: Vec<usize>,
    /// When the first queue was paused.
    pub(super) since: Option<Instant>,
    /// The second in which a pause was last logged.
    pub(super) logged: Option<u32>,
}

impl Paused {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

/// A listening socket.
#[derive(Clone)]
pub(super) struct Queue {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) is_tcp: bool,
    /// Whether its connections are encrypted, and what its clients must show.
    pub(super) demand: Demand,
    /// The protocol spoken on it, if the options fix one.
    pub(super) language: Option<Language>,
    /// Whether all workers share it. If so, the kernel wakes one worker at a time.
    pub(super) is_shared: bool,
    /// Whether it is inherited from the service manager. If so, it listens already.
    is_inherited: bool,
}

/// The queues of all workers.
pub(super) struct Queues {
    workers: Vec<Vec<Queue>>,
    /// The port of the first address.
    pub(super) port: Option<u16>,
    path: Option<PathBuf>,
    /// The addresses of the sockets that do not listen yet.
    bound: Vec<SocketAddr>,
}

impl Queue {
    /// Returns a queue with the default settings, shared by all workers.
    pub(super) fn shared(socket: Arc<OwnedFd>, is_tcp: bool) -> Self {
        Self {
            socket,
            is_tcp,
            demand: Demand::AsConfigured,
            language: None,
            is_shared: true,
            is_inherited: false,
        }
    }
}

impl Queues {
    /// Returns the queues of one worker.
    pub(super) fn take(&mut self, worker: usize) -> Vec<Queue> {
        std::mem::take(&mut self.workers[worker])
    }

    /// Starts to listen. Until then, while items are read from a file, connections are refused.
    pub(super) fn listen(&self, backlog: i32) -> Result<(), Failure> {
        for address in &self.bound {
            // Another server may have been started on the port meanwhile.
            free(*address).map_err(Failure::system(format!("cannot listen on {address}")))?;
        }
        for queue in self.workers.iter().flatten().filter(|queue| !queue.is_inherited) {
            listen(&*queue.socket, backlog).map_err(Failure::system("cannot listen"))?;
        }
        Ok(())
    }

    /// Lists each address for `stats conns`, by the first worker's socket.
    pub(super) fn list(&self, clients: &Clients) {
        for queue in self.workers.first().into_iter().flatten() {
            let address =
                getsockname(&*queue.socket).map_or_else(|_| "unknown".into(), address_text);
            clients.add_listener(queue.socket.as_raw_fd(), address, "conn_listening");
        }
    }

    /// Removes the Unix socket's file.
    pub(super) fn remove_socket(&self) {
        // The removal may fail, because the file may belong to another user after a change of user.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

/// Binds the addresses and the path of the plan. Each worker has its own sockets, unless all share
/// them (`shares`).
pub(super) fn queues(plan: &Plan, shares: bool) -> Result<Queues, Failure> {
    let mut workers: Vec<Vec<Queue>> = (0..plan.settings.threads).map(|_| Vec::new()).collect();
    let given = inherit::sockets()?;
    if !given.is_empty() {
        return shared(given, workers);
    }
    let (mut port, mut bound) = (None, Vec::new());
    for Listener { address, demand, language } in &plan.listeners {
        let failed = || Failure::system(format!("cannot listen on {address}"));
        let address = free(*address).map_err(failed())?;
        port = port.or(Some(address.port()));
        bound.push(address);
        let mut common = None;
        for worker in &mut workers {
            let socket = match common.clone() {
                Some(socket) => socket,
                None => Arc::new(tcp(address).map_err(failed())?),
            };
            common = shares.then(|| socket.clone());
            let queue = Queue::shared(socket, true);
            let (demand, language) = (*demand, *language);
            worker.push(Queue { demand, language, is_shared: shares, ..queue });
        }
    }
    let path = plan.socket.as_ref().map(|(path, _)| path.clone());
    if let Some((path, mask)) = &plan.socket {
        let failed = Failure::system(format!("cannot listen on {}", path.display()));
        let socket = Arc::new(unix(path, *mask).map_err(failed)?);
        for worker in &mut workers {
            worker.push(Queue::shared(socket.clone(), false));
        }
    }
    Ok(Queues { workers, port, path, bound })
}

/// Returns the queues of inherited sockets.
fn shared(given: Vec<OwnedFd>, mut workers: Vec<Vec<Queue>>) -> Result<Queues, Failure> {
    let mut port = None;
    for socket in given {
        let address = getsockname(&socket).map_err(Failure::system("an inherited socket"))?;
        let address = SocketAddr::try_from(address).ok();
        port = port.or(address.map(|address| address.port()));
        let socket = Arc::new(socket);
        for worker in &mut workers {
            let queue = Queue::shared(socket.clone(), address.is_some());
            worker.push(Queue { is_inherited: true, ..queue });
        }
    }
    // The file of an inherited Unix socket belongs to the service manager.
    Ok(Queues { workers, port, path: None, bound: Vec::new() })
}

fn stream(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

fn tcp_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = stream(family)?;
    set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    Ok(socket)
}

/// Returns the address; if it has no port, the system chooses one. Fails if another process listens
/// there. With `SO_REUSEPORT` alone, a second server would get some of the first server's
/// connections.
fn free(address: SocketAddr) -> Result<SocketAddr, Errno> {
    let socket = tcp_socket(address)?;
    bind(&socket, &address)?;
    SocketAddr::try_from(getsockname(&socket)?)
}

fn tcp(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = tcp_socket(address)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn unix(path: &Path, mask: u32) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // Unless a connection succeeds, a killed server has left the socket behind.
        if connect(stream(AddressFamily::UNIX)?, &address).is_ok() {
            return Err(Errno::ADDRINUSE);
        }
        let _ = fs::remove_file(path);
    }
    let socket = stream(AddressFamily::UNIX)?;
    let before = umask((!mask & 0o777).into());
    let bound = bind(&socket, &address);
    umask(before);
    bound?;
    Ok(socket)
}
