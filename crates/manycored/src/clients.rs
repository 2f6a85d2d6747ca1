//! The list of connections, for `stats conns`.
//!
//! Law: a connection leaves the list before its descriptor is closed, and a thread that uses a
//! descriptor holds the lock of its part of the list. So a listed descriptor always belongs to its
//! connection.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of parts of the list, so that workers do not wait for one another.
const PARTS: usize = 32;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It waits for a request.
    Read,
    /// It waits for the rest of a request.
    ReadRest,
    /// It waits for the client to take replies.
    Write,
    /// It has requests left, but other connections have their turn.
    Parse,
    /// It watches events.
    Watch,
}

impl State {
    /// Its name in memcached.
    fn name(state: u8) -> &'static str {
        const NAMES: [&str; 5] =
            ["conn_read", "conn_nread", "conn_mwrite", "conn_parse_cmd", "conn_watch"];
        NAMES.get(usize::from(state)).copied().unwrap_or(NAMES[0])
    }
}

/// A connection as other threads see it.
#[derive(Debug)]
struct Client {
    state: AtomicU8,
    /// The second of the store's clock at which something was received or sent.
    used: AtomicU32,
}

/// The list.
#[derive(Debug, Default)]
pub struct Clients {
    parts: [Mutex<BTreeMap<i32, Arc<Client>>>; PARTS],
    /// Listening and UDP sockets: descriptor, address, and state.
    listeners: Mutex<Vec<(i32, String, &'static str)>>,
}

/// A connection's place in the list. When it is dropped, the connection leaves the list.
#[derive(Debug)]
pub struct Entry {
    list: Arc<Clients>,
    client: Arc<Client>,
    descriptor: i32,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clients {
    fn part(&self, descriptor: i32) -> MutexGuard<'_, BTreeMap<i32, Arc<Client>>> {
        locked(&self.parts[descriptor.unsigned_abs() as usize % PARTS])
    }

    /// Adds a connection. Drop the entry before the descriptor is closed.
    pub fn add(self: &Arc<Self>, descriptor: i32, second: u32) -> Entry {
        let (state, used) = (AtomicU8::new(State::Read as u8), AtomicU32::new(second));
        let client = Arc::new(Client { state, used });
        let before = self.part(descriptor).insert(descriptor, client.clone());
        debug_assert!(before.is_none(), "clients: descriptor {descriptor} is listed twice");
        Entry { list: self.clone(), client, descriptor }
    }

    /// Adds a listening or UDP socket, for as long as the server runs.
    pub fn add_listener(&self, descriptor: i32, address: String, state: &'static str) {
        locked(&self.listeners).push((descriptor, address, state));
    }

    /// Calls `give` for each line of each connection, with the descriptor, the name and the value.
    pub fn each(&self, asking: i32, second: u32, mut give: impl FnMut(i32, &str, &str)) {
        for (descriptor, address, state) in locked(&self.listeners).iter() {
            give(*descriptor, "addr", address);
            give(*descriptor, "state", state);
            give(*descriptor, "secs_since_last_cmd", &second.saturating_sub(1).to_string());
        }
        let mut all = BTreeMap::new();
        for part in &self.parts {
            for (descriptor, client) in locked(part).iter() {
                // ORDER: Relaxed; statistics.
                let (state, used) = (&client.state, &client.used);
                let (state, used) = (state.load(Ordering::Relaxed), used.load(Ordering::Relaxed));
                all.insert(*descriptor, (endpoints(*descriptor), state, used));
            }
        }
        for (descriptor, ((peer, own), state, used)) in all {
            let is_asking = descriptor == asking;
            let state = if is_asking { State::Parse as u8 } else { state };
            give(descriptor, "addr", &peer);
            give(descriptor, "listen_addr", &own);
            give(descriptor, "state", State::name(state));
            let unused = if is_asking { 0 } else { second.saturating_sub(used) };
            give(descriptor, "secs_since_last_cmd", &unused.to_string());
        }
    }
}

impl Entry {
    /// Notes what the connection does, and when something was received or sent last.
    #[inline]
    pub fn note(&self, state: State, used: u32) {
        // ORDER: Relaxed; statistics. Only the connection's worker writes them.
        self.client.state.store(state as u8, Ordering::Relaxed);
        self.client.used.store(used, Ordering::Relaxed);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let own = self.list.part(self.descriptor).remove(&self.descriptor);
        debug_assert!(own.is_some(), "clients: descriptor {} is not listed", self.descriptor);
    }
}

/// Returns a socket's address, as memcached writes it.
#[cfg(target_os = "linux")]
pub fn address_text(address: rustix::net::SocketAddrAny) -> String {
    use std::net::SocketAddr;
    if let Ok(address) = SocketAddr::try_from(address.clone()) {
        let family = if address.is_ipv6() { "tcp6" } else { "tcp" };
        return format!("{family}:{address}");
    }
    let path = rustix::net::SocketAddrUnix::try_from(address).ok();
    let path = path.as_ref().and_then(rustix::net::SocketAddrUnix::path);
    format!("unix:{}", path.map_or_else(String::new, |path| path.to_string_lossy().into_owned()))
}

/// Returns the client's address, and the address that it is connected to. The caller holds the
/// list's lock.
#[cfg(target_os = "linux")]
fn endpoints(descriptor: i32) -> (String, String) {
    use rustix::fd::BorrowedFd;
    use rustix::net::{getpeername, getsockname};
    // SAFETY: the module's law: it is open as long as it is in the list, whose lock is held.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let own = getsockname(socket).map_or_else(|_| "unknown".into(), address_text);
    let peer = getpeername(socket).map_or_else(
        |_| "unknown".into(),
        |peer| {
            // A client of a Unix socket has no name of its own.
            peer.map_or_else(|| own.clone(), address_text)
        },
    );
    let peer = if peer == "unix:" { own.clone() } else { peer };
    (peer, own)
}

#[cfg(not(target_os = "linux"))]
fn endpoints(_: i32) -> (String, String) {
    ("unknown".into(), "unknown".into())
}
