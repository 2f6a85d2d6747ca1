//! The sockets on which connections come.
//!
//! On each address every worker has a socket and a queue of its own (`SO_REUSEPORT`), so that no
//! two workers fetch connections from one place. (The system spreads them by a hash of addresses,
//! which can give one worker most of a few; `handover` evens that out.) A Unix socket has one
//! queue, of which one worker is woken at a time; so have sockets that the service manager opened,
//! which are taken instead of what the options name.

use super::{Failure, inherit};
use crate::args::{Listener, Plan};
use crate::clients::{Clients, address_text};
use crate::report::Language;
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

/// A socket on which connections come.
#[derive(Clone)]
pub(super) struct Queue {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) is_tcp: bool,
    /// What is asked of its clients.
    pub(super) demand: Demand,
    /// What is spoken on it, if that was said.
    pub(super) language: Option<Language>,
    /// Whether all workers have it: of them one is woken at a time.
    pub(super) is_shared: bool,
    /// Whether the service manager made it, and it listens already.
    is_inherited: bool,
}

/// All workers' queues.
pub(super) struct Queues {
    workers: Vec<Vec<Queue>>,
    /// The first address's port.
    pub(super) port: Option<u16>,
    path: Option<PathBuf>,
    /// The addresses of sockets that do not listen yet.
    bound: Vec<SocketAddr>,
}

impl Queue {
    /// One whose clients are as those of any other, shared with all workers.
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
    /// Those of one worker.
    pub(super) fn take(&mut self, worker: usize) -> Vec<Queue> {
        std::mem::take(&mut self.workers[worker])
    }

    /// Has connections come. Before, they are refused, as long as items are read from a file.
    pub(super) fn listen(&self, backlog: i32) -> Result<(), Failure> {
        for address in &self.bound {
            // A server that was started in between may listen there.
            free(*address).map_err(Failure::system(format!("cannot listen on {address}")))?;
        }
        for queue in self.workers.iter().flatten().filter(|queue| !queue.is_inherited) {
            listen(&*queue.socket, backlog).map_err(Failure::system("cannot listen"))?;
        }
        Ok(())
    }

    /// Tells `stats conns` of each address: by the first worker's socket.
    pub(super) fn list(&self, clients: &Clients) {
        for queue in self.workers.first().into_iter().flatten() {
            let address =
                getsockname(&*queue.socket).map_or_else(|_| "unknown".into(), address_text);
            clients.add_listener(queue.socket.as_raw_fd(), address, "conn_listening");
        }
    }

    /// Removes the Unix socket's name.
    pub(super) fn remove_socket(&self) {
        // Not ours to remove any more, if the user has changed.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

/// Binds what the plan names.
pub(super) fn queues(plan: &Plan) -> Result<Queues, Failure> {
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
        for worker in &mut workers {
            let socket = Arc::new(tcp(address).map_err(failed())?);
            let (demand, language) = (*demand, *language);
            let (is_tcp, is_shared, is_inherited) = (true, false, false);
            worker.push(Queue { socket, is_tcp, demand, language, is_shared, is_inherited });
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

/// The queues where sockets are there already.
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
    // A Unix socket's name belongs to who made it.
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

/// The address, with a port if the system is to choose one. Fails if somebody listens there: with
/// `SO_REUSEPORT` alone a second server would get part of the first one's connections.
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
        // Left by a server that was killed, unless somebody answers.
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
