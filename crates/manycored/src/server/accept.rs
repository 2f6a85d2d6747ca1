//! Accepting clients. A worker admits a client, refuses it, or leaves it waiting in the queue.

use super::handover::{Accepted, Inbox};
use super::listen::{PAUSE, Queue};
use super::worker::{Worker, listen_to};
use crate::tls::Demand;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The most connections accepted before other work has its turn.
const ACCEPTS: usize = 64;
const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";

fn accept(queue: &Queue) -> Result<OwnedFd, Errno> {
    accept_with(&*queue.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

impl Worker<'_> {
    pub(super) fn accept(&mut self, at: usize) {
        let Some(queue) = self.queues.get(at).cloned() else { return };
        for _ in 0..ACCEPTS {
            let accepted = match accept(&queue) {
                Err(Errno::MFILE | Errno::NFILE) => self.refuse_next(&queue),
                Ok(socket) => {
                    let accepted = Accepted { socket, queue: queue.clone() };
                    if self.admit(&accepted) {
                        self.place(accepted);
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            };
            match accepted {
                Ok(()) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => return self.pause(at, &queue, error),
            }
        }
    }

    /// Returns true if there is room for this connection, and counts it. The accept decides this
    /// and not the serving worker, so that the first of two clients of one queue gets the last
    /// place.
    fn admit(&self, Accepted { socket, queue }: &Accepted) -> bool {
        let server = &self.shared.server;
        // ORDER: Relaxed; counts.
        if server.connections.fetch_add(1, Ordering::Relaxed) < server.settings.connections_max {
            return true;
        }
        server.connections.fetch_sub(1, Ordering::Relaxed);
        self.refuse(socket, queue);
        false
    }

    /// Tells a client that there is no room for it, and counts it.
    pub(super) fn refuse(&self, socket: &OwnedFd, queue: &Queue) {
        // ORDER: Relaxed; a count.
        self.shared.server.rejected.fetch_add(1, Ordering::Relaxed);
        if !self.encrypts(queue) {
            let _ = send(socket, TOO_MANY, SendFlags::NOSIGNAL);
        }
    }

    /// Refuses the next client, for which there is no descriptor. Gives up the spare descriptor for
    /// that (server_descriptors.D2).
    fn refuse_next(&self, queue: &Queue) -> Result<(), Errno> {
        let refused = || accept(queue).map(|socket| self.refuse(&socket, queue));
        self.shared.spare.in_its_place(refused)
    }

    /// Returns true if connections of that queue speak TLS.
    pub(super) fn encrypts(&self, queue: &Queue) -> bool {
        self.shared.server.tls.is_some() && queue.is_tcp && queue.demand != Demand::NoTls
    }

    /// Serves an accepted connection, or hands it to the worker with the fewest connections (law
    /// server.V1).
    fn place(&mut self, accepted: Accepted) {
        let inboxes = &self.shared.inboxes;
        let counts = inboxes.iter().map(Inbox::connections).enumerate();
        let own = inboxes[self.number].connections();
        let least = counts.min_by_key(|(_, count)| *count).filter(|(_, count)| *count < own);
        // ORDER: Relaxed; a hint: a worker that has ended refuses.
        let stays = self.shared.draining.load(Ordering::Relaxed);
        let kept = match least.filter(|_| !stays) {
            Some((other, _)) => inboxes[other].hand_over(accepted),
            None => Some(accepted),
        };
        if let Some(accepted) = kept {
            inboxes[self.number].count();
            self.welcome(accepted);
        }
    }

    /// Stops listening on a queue for a moment; its clients wait in it. The queue stays readable,
    /// so epoll would otherwise report it again at once.
    fn pause(&mut self, at: usize, queue: &Queue, error: Errno) {
        if self.paused.queues.contains(&at) {
            return; // asked again at a shutdown
        }
        // An error is harmless: then there is nothing to remove.
        let _ = epoll::delete(&self.epoll, &*queue.socket);
        self.paused.queues.push(at);
        self.paused.since.get_or_insert_with(Instant::now);
        let server = &self.shared.server;
        // ORDER: Relaxed; a count.
        server.pauses.fetch_add(1, Ordering::Relaxed);
        let second = Some(self.shared.store.clock().second());
        if server.verbosity() > 0 && self.paused.logged != second {
            self.paused.logged = second;
            server.log.message(&format!("no connection can be accepted: {error}"));
        }
    }

    /// Listens again on the queues that were paused long enough ago.
    pub(super) fn resume(&mut self) {
        let Some(time) = self.paused.since.map(|since| since.elapsed()) else { return };
        if time < PAUSE {
            return;
        }
        // ORDER: Relaxed; a count.
        self.shared.server.paused_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
        let (epoll, queues) = (&self.epoll, &self.queues);
        // If a queue can't be watched, it waits for the next time. A closed queue is forgotten.
        self.paused.queues.retain(|at| {
            queues.get(*at).is_some_and(|queue| listen_to(epoll, *at, queue).is_err())
        });
        self.shared.spare.in_its_place(|| ()); // it is there again, too
        self.paused.since = (!self.paused.queues.is_empty()).then(Instant::now);
    }
}
