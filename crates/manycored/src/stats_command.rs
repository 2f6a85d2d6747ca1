//! `stats` and its subcommands.
//!
//! The fields are memcached's. Fields of mechanisms that do not exist here are always 0 or `no`;
//! `docs/server.md` names them.

mod fields;

use crate::protocol::{ERROR, Words};
use crate::reply::write_reply;
use crate::server_state::ServerState;
use crate::store::Handle;
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

fn line(out: &mut Vec<u8>, name: &str, value: impl Display) {
    // Writing to a vector does not fail.
    let _ = write!(out, "STAT {name} {value}\r\n");
}

fn count(of: &AtomicU64) -> u64 {
    // ORDER: Relaxed; a count.
    of.load(Ordering::Relaxed)
}

/// Answers `stats`.
pub(crate) fn stats(
    handle: &Handle<'_>,
    server: &ServerState,
    mut words: Words<'_>,
    out: &mut Vec<u8>,
) {
    let store = handle.store();
    match words.next() {
        None => fields::general(store, server, out),
        Some(b"settings") => fields::settings(store, server, out),
        Some(b"items") => fields::items(store, out),
        Some(b"slabs") => fields::slabs(store, out),
        Some(b"sizes") => fields::sizes(store, &server.settings, out),
        Some(b"memory") => fields::memory(store, out),
        Some(b"extstore") => {}
        Some(b"conns") => {
            let second = store.clock().second();
            server.clients.each(handle.client, second, |descriptor, name, value| {
                line(out, &format!("{descriptor}:{name}"), value);
            });
        }
        Some(b"reset") => {
            store.reset_counters();
            return write_reply(out, "RESET");
        }
        Some(b"detail") => match words.next() {
            _ if !server.settings.dump_enabled => {
                return write_reply(out, "CLIENT_ERROR stats detail not allowed");
            }
            Some(b"on") => {
                store.events().set_detail(true);
                return write_reply(out, "OK");
            }
            Some(b"off") => {
                store.events().set_detail(false);
                return write_reply(out, "OK");
            }
            Some(b"dump") => store.events().dump_details(out),
            _ => return write_reply(out, "CLIENT_ERROR usage: stats detail on|off|dump"),
        },
        Some(b"cachedump") => match fields::cachedump(store, server, words, out) {
            Ok(()) => {}
            Err(refused) => return write_reply(out, refused),
        },
        _ => return write_reply(out, ERROR),
    }
    write_reply(out, "END");
}
