//! Connection events, for clients that watch and for the log.

use super::worker::{WATCH_PAUSE, Worker};
use crate::clients::address_text;
use crate::store::events::CONNEVENTS;
use rustix::net::{getpeername, getsockname};
use std::fmt::Write;
use std::net::SocketAddr;

impl Worker<'_> {
    /// Returns the descriptor of a connection, or -1 if it is closed.
    fn descriptor(&self, index: usize) -> i32 {
        let connection = self.connections.get(index).and_then(Option::as_ref);
        connection.map_or(-1, |found| rustix::fd::AsRawFd::as_raw_fd(&found.socket))
    }

    /// Reports a connection that was opened or closed, if a watcher or the log wants it.
    pub(super) fn tell(&self, index: usize, event: &str, reason: Option<&str>) {
        let descriptor = self.descriptor(index);
        crate::trace::connection(descriptor, reason);
        let events = self.shared.store.events();
        let is_verbose = self.shared.server.verbosity() > 1;
        if !is_verbose && !events.wants(CONNEVENTS) {
            return;
        }
        let Some(connection) = self.connections.get(index).and_then(Option::as_ref) else { return };
        let socket = &connection.socket;
        let peer = getpeername(socket).ok().flatten();
        if is_verbose {
            let text = |address: Option<_>| address.map_or("unix:".into(), address_text);
            let (from, on) = (text(peer.clone()), text(getsockname(socket).ok()));
            let log = &self.shared.server.log;
            log.message(&match reason {
                None => format!("connection {descriptor} from {from} on {on}"),
                Some(why) => format!("connection {descriptor} from {from} ends: {why}"),
            });
        }
        if events.wants(CONNEVENTS) {
            let address = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
            let ip = address.map_or("unix".into(), |address| address.ip().to_string());
            let port = address.map_or(0, |address| address.port());
            let transport = if address.is_some() { "tcp" } else { "local" };
            events.tell(CONNEVENTS, |line| {
                // Writing to a string does not fail.
                let _ = write!(line, "type={event} rip={ip} rport={port} transport={transport}");
                if let Some(reason) = reason {
                    let _ = write!(line, " reason={reason}");
                }
                let _ = write!(line, " cfd={descriptor}");
            });
        }
    }

    /// Records a connection that has begun to watch.
    pub(super) fn note_watcher(&mut self, index: usize) {
        let watches = |found: &super::connection::Connection| found.is_watching();
        if self.connections[index].as_ref().is_some_and(watches) && !self.watchers.contains(&index)
        {
            self.watchers.push(index);
        }
    }

    /// Sends the pending events to connections that watch.
    pub(super) fn serve_watchers(&mut self) {
        let now = self.shared.store.clock().now();
        if self.watchers.is_empty() || now < self.watched + WATCH_PAUSE / 2 {
            return;
        }
        self.watched = now;
        for index in std::mem::take(&mut self.watchers) {
            // It may have been closed, and its index reused by another connection.
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            if !connection.is_watching() {
                continue;
            }
            let can = connection.resume_watch();
            if can {
                self.serve(index);
            }
            let stays = self.connections[index].as_ref().is_some_and(|found| found.is_watching());
            if stays && !self.watchers.contains(&index) {
                self.watchers.push(index);
            }
        }
    }
}
