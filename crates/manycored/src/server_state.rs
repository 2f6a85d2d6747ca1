//! The state that a server's workers share beside the items: settings, users, counts of
//! connections, the log.

use crate::auth::Auth;
use crate::buffers::Budget;
use crate::clients::Clients;
use crate::latency::Latency;
use crate::log::Log;
use crate::protocol::GET_LINE_MAX;
use crate::tls::{Files, Tls};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The reply to `version`: the compatible version of memcached alone, because some clients parse it
/// as three numbers.
pub const VERSION: &str = "1.6.45";
/// The server's own name and version, in `stats settings` and in the metrics.
pub const SERVER: &str = concat!("manycored ", env!("CARGO_PKG_VERSION"));

/// The most bytes of a reply in datagrams per byte of its request, by default: one Ethernet frame
/// for the shortest `get`.
pub const UDP_RATIO: usize = 100;

/// The protocols that clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// Each client chooses one by its first byte.
    #[default]
    Any,
    /// The text and meta protocols.
    Text,
    /// The binary protocol.
    Binary,
}

impl Language {
    /// Returns its name in memcached.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "auto-negotiate",
            Self::Text => "ascii",
            Self::Binary => "binary",
        }
    }
}

/// The options that replies depend on.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether `flush_all` is allowed.
    pub flush_enabled: bool,
    /// Whether `shutdown` is allowed.
    pub shutdown_enabled: bool,
    /// The most concurrent connections: the number of `-c`, or fewer if descriptors are scarce.
    pub connections_max: u64,
    /// Workers.
    pub threads: usize,
    /// The TCP port; 0 if there is none.
    pub port: u16,
    /// The UDP port; 0 if there is none.
    pub udp_port: u16,
    /// The most bytes of a reply in datagrams per byte of its request; 0 is no limit.
    pub udp_ratio: Option<usize>,
    /// The Unix socket.
    pub socket: Option<String>,
    /// Seconds after which an idle connection is closed; 0 is never.
    pub idle_timeout: u64,
    /// Seconds after which a stalled connection with bytes in its buffers is closed while buffers
    /// are scarce; 0 is never.
    pub buffer_timeout: u64,
    /// The most bytes of the line of a `get`.
    pub get_line_max: usize,
    /// The verbosity of the log.
    pub verbosity: u8,
    /// The length of the queue of connections to be accepted.
    pub backlog: i32,
    /// Addresses, as they were given.
    pub listen: String,
    /// The protocols that clients may use.
    pub language: Language,
    /// Whether TCP connections use TLS.
    pub has_tls: bool,
    /// The options of TLS.
    pub tls: Files,
    /// Whether the server's keys may be listed.
    pub dump_enabled: bool,
    /// Whether `watch` is allowed.
    pub watch_enabled: bool,
    /// The access mask of the Unix socket.
    pub socket_mask: u32,
    /// The most requests of one connection in a turn; 0 is no limit.
    pub requests: usize,
    /// Whether the sweep for expired items runs from the start.
    pub crawls: bool,
    /// Whether `stats` has the fields of memcached's LRU lists.
    pub has_lru_fields: bool,
    /// Whether `stats sizes` answers from the start.
    pub tracks_sizes: bool,
    /// The most bytes buffered for a client of `watch`.
    pub watcher_buffer: usize,
    /// The file that keeps items from a graceful shutdown to the next start.
    pub memory_file: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flush_enabled: true,
            shutdown_enabled: false,
            connections_max: 1024,
            threads: 1,
            port: 0,
            udp_port: 0,
            udp_ratio: None,
            socket: None,
            idle_timeout: 0,
            buffer_timeout: 30,
            get_line_max: GET_LINE_MAX,
            verbosity: 0,
            backlog: 1024,
            listen: String::new(),
            language: Language::Any,
            has_tls: false,
            tls: Files::default(),
            dump_enabled: true,
            watch_enabled: true,
            socket_mask: 0o700,
            requests: 0,
            crawls: true,
            has_lru_fields: true,
            tracks_sizes: false,
            watcher_buffer: 256 << 10,
            memory_file: None,
        }
    }
}

/// The state of the server, beside its items.
#[derive(Debug, Default)]
pub struct ServerState {
    /// Its options.
    pub settings: Settings,
    /// Authentication of clients, if it is required.
    pub auth: Option<Auth>,
    /// The TLS configuration, if TCP uses TLS.
    pub tls: Option<Tls>,
    /// The memory for the buffers of all connections.
    pub buffers: Budget,
    /// Connections open now.
    pub connections: AtomicU64,
    /// Connections accepted so far.
    pub accepted: AtomicU64,
    /// Connections refused so far.
    pub rejected: AtomicU64,
    /// Times that a worker stopped listening for a moment, because it could not accept.
    pub pauses: AtomicU64,
    /// Microseconds for which workers did not listen.
    pub paused_us: AtomicU64,
    /// Connections closed because they were idle.
    pub idle_kicks: AtomicU64,
    /// Connections closed because a line of keys was too long.
    pub long_lines: AtomicU64,
    /// The duration of turns of connections.
    pub latency: Latency,
    /// The list of connections.
    pub clients: Arc<Clients>,
    /// The verbosity plus one, if a client has changed it; else 0.
    pub verbosity: AtomicU8,
    /// Whether a client that shuts the server down wants its items saved.
    pub is_end_graceful: AtomicBool,
    /// The log.
    pub log: Log,
}

impl ServerState {
    /// Requests that the items are saved when the server ends.
    pub fn end_gracefully(&self) {
        // ORDER: Relaxed; the signal that follows publishes it.
        self.is_end_graceful.store(true, Ordering::Relaxed);
    }

    /// Returns true if items are to be saved when the server ends, even if the signal does not ask
    /// for it.
    #[must_use]
    pub fn is_end_graceful(&self) -> bool {
        // ORDER: Relaxed; as in `end_gracefully`.
        self.is_end_graceful.load(Ordering::Relaxed)
    }

    /// Returns the current verbosity.
    #[must_use]
    #[inline]
    pub fn verbosity(&self) -> u8 {
        // ORDER: Relaxed; a hint.
        match self.verbosity.load(Ordering::Relaxed) {
            0 => self.settings.verbosity,
            changed => changed - 1,
        }
    }

    /// Rereads SASL's files of users if they have changed.
    pub(crate) fn refresh_users(&self) {
        if let Some(Err(error)) = self.auth.as_ref().map(Auth::refresh)
            && self.verbosity() > 0
        {
            self.log.message(&error);
        }
    }

    /// With `-v`, logs why a client was not authenticated.
    pub(crate) fn log_refusal(&self, reason: &str) {
        if self.verbosity() > 0 {
            self.log.message(&format!("authentication refused: {reason}"));
        }
    }

    /// Sets the verbosity.
    pub fn set_verbosity(&self, level: u8) {
        // ORDER: Relaxed; a hint.
        self.verbosity.store(level.saturating_add(1), Ordering::Relaxed);
    }
}
