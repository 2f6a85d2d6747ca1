//! `stats` and its subcommands.
//!
//! The fields are memcached's. Those of mechanisms that do not exist here are always 0 or `no`, and
//! `docs/server.md` names them.

mod fields;

use crate::auth::Auth;
use crate::buffers::Budget;
use crate::clients::Clients;
use crate::latency::Latency;
use crate::log::Log;
use crate::protocol::{ERROR, Words};
use crate::reply::say;
use crate::store::Handle;
use crate::tls::{Files, Tls};
use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What `version` answers: the memcached whose replies these are, and this server's own version.
pub const VERSION: &str = concat!("1.6.45-manycored-", env!("CARGO_PKG_VERSION"));

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
    pub udp_ratio: Option<usize>,
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
    /// What TLS was asked to do.
    pub tls: Files,
    /// Whether the server's keys may be listed.
    pub dump_enabled: bool,
    /// Whether `watch` is allowed.
    pub watch_enabled: bool,
    /// The access mask of the Unix socket.
    pub socket_mask: u32,
    /// Requests of one connection at a time; 0 is as many as were read.
    pub requests: usize,
    /// Whether expired items are looked for from the start.
    pub crawls: bool,
    /// Whether `stats` has the fields of memcached's lists of least recent use.
    pub has_lru_fields: bool,
    /// Whether `stats sizes` answers from the start.
    pub tracks_sizes: bool,
    /// Bytes that wait for a client of `watch`.
    pub watcher_buffer: usize,
    /// The file for items between a graceful end and the next start.
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
            verbosity: 0,
            backlog: 1024,
            listen: String::new(),
            language: Language::Any,
            is_sealed: false,
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

/// What is known of the server.
#[derive(Debug, Default)]
pub struct Facts {
    /// What it was started with.
    pub settings: Settings,
    /// Authentication of clients, if it is required.
    pub auth: Option<Auth>,
    /// The TLS configuration, if TCP uses TLS.
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
    /// How long turns of connections take.
    pub latency: Latency,
    /// The connections themselves.
    pub clients: Arc<Clients>,
    /// How much is logged, if a client has changed that: one more than `verbosity` says.
    pub verbosity: AtomicU8,
    /// Whether a client that ends the server wants its items saved.
    pub is_end_graceful: AtomicBool,
    /// Where it is logged.
    pub log: Log,
}

impl Facts {
    /// Has items be saved when the server ends.
    pub fn end_gracefully(&self) {
        // ORDER: Relaxed; the signal that follows carries the news.
        self.is_end_graceful.store(true, Ordering::Relaxed);
    }

    /// Whether items are to be saved when the server ends, whatever the signal says.
    #[must_use]
    pub fn is_end_graceful(&self) -> bool {
        // ORDER: Relaxed; as in `end_gracefully`.
        self.is_end_graceful.load(Ordering::Relaxed)
    }

    /// How much is logged now.
    #[must_use]
    #[inline]
    pub fn verbosity(&self) -> u8 {
        // ORDER: Relaxed; a hint.
        match self.verbosity.load(Ordering::Relaxed) {
            0 => self.settings.verbosity,
            changed => changed - 1,
        }
    }

    /// Changes how much is logged.
    pub fn set_verbosity(&self, level: u8) {
        // ORDER: Relaxed; a hint.
        self.verbosity.store(level.saturating_add(1), Ordering::Relaxed);
    }
}

fn line(out: &mut Vec<u8>, name: &str, value: impl Display) {
    // Writing to a vector does not fail.
    let _ = write!(out, "STAT {name} {value}\r\n");
}

fn count(of: &AtomicU64) -> u64 {
    // ORDER: Relaxed; a count.
    of.load(Ordering::Relaxed)
}

/// Answers `stats`.
pub(crate) fn stats(handle: &Handle<'_>, facts: &Facts, mut words: Words<'_>, out: &mut Vec<u8>) {
    let store = handle.store();
    match words.next() {
        None => fields::general(store, facts, out),
        Some(b"settings") => fields::settings(store, facts, out),
        Some(b"items") => fields::items(store, out),
        Some(b"slabs") => fields::slabs(store, out),
        Some(b"sizes") => fields::sizes(store, &facts.settings, out),
        Some(b"memory") => fields::memory(store, out),
        Some(b"extstore") => {}
        Some(b"conns") => {
            let second = store.clock().second();
            facts.clients.each(handle.client, second, |descriptor, name, value| {
                line(out, &format!("{descriptor}:{name}"), value);
            });
        }
        Some(b"reset") => {
            store.reset_counters();
            return say(out, "RESET");
        }
        Some(b"detail") => match words.next() {
            _ if !facts.settings.dump_enabled => {
                return say(out, "CLIENT_ERROR stats detail not allowed");
            }
            Some(b"on") => {
                store.events().set_detail(true);
                return say(out, "OK");
            }
            Some(b"off") => {
                store.events().set_detail(false);
                return say(out, "OK");
            }
            Some(b"dump") => store.events().dump_details(out),
            _ => return say(out, "CLIENT_ERROR usage: stats detail on|off|dump"),
        },
        Some(b"cachedump") => match fields::cachedump(store, facts, words, out) {
            Ok(()) => {}
            Err(refused) => return say(out, refused),
        },
        _ => return say(out, ERROR),
    }
    say(out, "END");
}
