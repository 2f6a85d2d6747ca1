//! What the server tells about itself: `stats` and its parts.

use crate::auth::Auth;
use crate::buffers::Budget;
use crate::protocol::{ERROR, Words};
use crate::session::say;
use crate::store::Handle;
use crate::tls::Tls;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// What `version` answers: the memcached whose replies these are, and this server's own version.
pub const VERSION: &str = concat!("1.6.18-manycored-", env!("CARGO_PKG_VERSION"));

/// How many times the bytes of its request a reply in datagrams may have, unless options say
/// otherwise: one Ethernet frame for the shortest `get`.
pub const UDP_RATIO: usize = 100;

/// What clients may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// What they begin with.
    #[default]
    Any,
    /// The text and meta protocols.
    Text,
    /// The binary protocol.
    Binary,
}

impl Language {
    /// As memcached names it.
    fn name(self) -> &'static str {
        match self {
            Self::Any => "auto-negotiate",
            Self::Text => "ascii",
            Self::Binary => "binary",
        }
    }
}

/// What the server was started with, as far as its replies depend on it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether `flush_all` is allowed.
    pub flush_enabled: bool,
    /// Whether `shutdown` is allowed.
    pub shutdown_enabled: bool,
    /// Connections at once.
    pub connections_max: u64,
    /// Workers.
    pub threads: usize,
    /// The TCP port; 0 if there is none.
    pub port: u16,
    /// The UDP port; 0 if there is none.
    pub udp_port: u16,
    /// How many times the bytes of its request a reply in datagrams may have; 0 is no limit.
    pub udp_ratio: usize,
    /// The Unix socket.
    pub socket: Option<String>,
    /// Seconds after which a connection that says nothing is closed; 0 is never.
    pub idle_timeout: u64,
    /// Seconds after which a connection that stands still with something in its buffers is closed
    /// while these are scarce; 0 is never.
    pub buffer_timeout: u64,
    /// How much is logged.
    pub verbosity: u8,
    /// Connections that may wait to be accepted.
    pub backlog: i32,
    /// Addresses, as they were given.
    pub listen: String,
    /// What clients may speak.
    pub language: Language,
    /// Whether TCP is sealed by TLS.
    pub is_sealed: bool,
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
            udp_ratio: UDP_RATIO,
            socket: None,
            idle_timeout: 0,
            buffer_timeout: 30,
            verbosity: 0,
            backlog: 1024,
            listen: String::new(),
            language: Language::Any,
            is_sealed: false,
        }
    }
}

/// What is known of the server.
#[derive(Debug, Default)]
pub struct Facts {
    /// What it was started with.
    pub settings: Settings,
    /// Who may talk to it; everybody, if nothing is said.
    pub auth: Option<Auth>,
    /// What TLS begins with, if TCP is sealed.
    pub tls: Option<Tls>,
    /// What the buffers of all connections may take.
    pub buffers: Budget,
    /// Connections open now.
    pub connections: AtomicU64,
    /// Connections accepted so far.
    pub accepted: AtomicU64,
    /// Connections refused so far.
    pub rejected: AtomicU64,
    /// Connections closed because they said nothing.
    pub idle_kicks: AtomicU64,
}

fn line(out: &mut Vec<u8>, name: &str, value: impl Display) {
    // Writing to a vector does not fail.
    let _ = write!(out, "STAT {name} {value}\r\n");
}

fn flag(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// Answers `stats`.
pub(crate) fn stats(handle: &Handle<'_>, facts: &Facts, mut words: Words<'_>, out: &mut Vec<u8>) {
    match (words.next(), words.next()) {
        (None, _) => general(handle, facts, out),
        (Some(b"settings"), _) => settings(handle, facts, out),
        (Some(b"items"), _) => items(handle, out),
        (Some(b"slabs"), _) => {
            line(out, "active_slabs", 0);
            line(out, "total_malloced", handle.store().bytes());
        }
        (Some(b"sizes"), _) => line(out, "sizes_status", "disabled"),
        (Some(b"conns"), _) => line(out, "curr_connections", count(&facts.connections)),
        (Some(b"reset"), _) => {
            handle.store().reset_counters();
            return say(out, "RESET");
        }
        (Some(b"detail"), Some(b"on" | b"off")) => return say(out, "OK"),
        (Some(b"detail"), Some(b"dump")) => {}
        (Some(b"detail"), _) => return say(out, "CLIENT_ERROR usage: stats detail on|off|dump"),
        (Some(b"cachedump"), _) => return say(out, "CLIENT_ERROR stats cachedump not allowed"),
        _ => return say(out, ERROR),
    }
    say(out, "END");
}

fn count(of: &AtomicU64) -> u64 {
    // ORDER: Relaxed; a count.
    of.load(Ordering::Relaxed)
}

fn general(handle: &Handle<'_>, facts: &Facts, out: &mut Vec<u8>) {
    let store = handle.store();
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    line(out, "pid", std::process::id());
    line(out, "uptime", store.clock().uptime().as_secs());
    line(out, "time", today.as_secs());
    line(out, "version", VERSION);
    line(out, "pointer_size", usize::BITS);
    line(out, "max_connections", facts.settings.connections_max);
    line(out, "curr_connections", count(&facts.connections));
    line(out, "total_connections", count(&facts.accepted));
    line(out, "rejected_connections", count(&facts.rejected));
    line(out, "connection_structures", count(&facts.connections));
    for (name, value) in store.totals().each() {
        line(out, name, value);
    }
    line(out, "idle_kicks", count(&facts.idle_kicks));
    line(out, "read_buf_bytes", facts.buffers.reserved());
    line(out, "read_buf_oom", facts.buffers.closed());
    line(out, "limit_maxbytes", store.memory());
    line(out, "accepting_conns", 1);
    line(out, "threads", facts.settings.threads);
    line(out, "hash_bytes", store.table_bytes());
    line(out, "bytes", store.bytes());
    line(out, "curr_items", store.len());
    line(out, "evictions", store.cache_stats().evictions);
    line(out, "expired_dropped", store.cache_stats().expirations);
}

fn settings(handle: &Handle<'_>, facts: &Facts, out: &mut Vec<u8>) {
    let (store, settings) = (handle.store(), &facts.settings);
    line(out, "maxbytes", store.memory());
    line(out, "maxconns", settings.connections_max);
    line(out, "tcpport", settings.port);
    line(out, "udpport", settings.udp_port);
    line(out, "inter", &settings.listen);
    line(out, "verbosity", settings.verbosity);
    line(out, "evictions", if store.limits().evicts { "on" } else { "off" });
    line(out, "domain_socket", settings.socket.as_deref().unwrap_or("NULL"));
    line(out, "num_threads", settings.threads);
    line(out, "cas_enabled", "yes");
    line(out, "tcp_backlog", settings.backlog);
    let asks = |without| flag(facts.auth.is_some() && settings.language != without);
    line(out, "auth_enabled_sasl", asks(Language::Text));
    line(out, "auth_enabled_ascii", asks(Language::Binary));
    line(out, "item_size_max", store.limits().item);
    line(out, "maxconns_fast", "yes");
    line(out, "idle_timeout", settings.idle_timeout);
    line(out, "read_buf_mem_limit", facts.buffers.limit());
    line(out, "flush_enabled", flag(settings.flush_enabled));
    line(out, "dump_enabled", "no");
    line(out, "shutdown_command", flag(settings.shutdown_enabled));
    line(out, "binding_protocol", settings.language.name());
    if settings.is_sealed {
        line(out, "ssl_enabled", "yes");
    }
}

fn items(handle: &Handle<'_>, out: &mut Vec<u8>) {
    let store = handle.store();
    if !store.is_empty() {
        line(out, "items:1:number", store.len());
        line(out, "items:1:mem_requested", store.bytes());
        line(out, "items:1:evicted", store.cache_stats().evictions);
    }
}
