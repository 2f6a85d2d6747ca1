//! A worker: one thread with its queues, its connections and an epoll.

use super::connection::{Connection, ConnectionState, WorkerBuffers};
use super::handover::Accepted;
use super::listen::{PAUSE, Paused, Queue};
use super::{GRACE, Shared, udp};
use crate::buffers::Ledger;
use crate::latency::Latency;
use crate::session::{Context, Session};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_nodelay};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Nanoseconds after which pending events are sent to clients that watch.
pub(super) const WATCH_PAUSE: u64 = 20_000_000;

/// Events that are fetched with one call.
const EVENTS: usize = 256;
/// The first token of connections; smaller tokens are the wake-up and the queues.
const FIRST: u64 = 1 << 32;
/// The first token of the UDP sockets.
const DATAGRAMS: u64 = 1 << 31;
/// The token of the wake-up: for a shutdown, or a connection from another worker.
const WAKE: u64 = 0;

/// Keys of one connection before the other connections have their turn: a whole batch of look-ups.
const SLICE: usize = 64;
/// Keys in a round of slices after which new events are fetched. With few connections the slices
/// are longer.
const ROUND: usize = 512;

/// Lets an epoll watch a queue for clients.
pub(super) fn listen_to(epoll: &OwnedFd, at: usize, queue: &Queue) -> Result<(), Errno> {
    // If workers share a queue, the kernel wakes one of them.
    let alone = if queue.is_shared { EventFlags::EXCLUSIVE } else { EventFlags::empty() };
    epoll::add(epoll, &*queue.socket, EventData::new_u64(at as u64 + 1), EventFlags::IN | alone)
}

/// The state of one worker thread.
pub(super) struct Worker<'s> {
    pub(super) number: usize,
    pub(super) shared: &'s Shared,
    buffers: WorkerBuffers<'s>,
    pub(super) epoll: OwnedFd,
    pub(super) queues: Vec<Queue>,
    pub(super) paused: Paused,
    datagrams: Vec<OwnedFd>,
    /// Room for a datagram; empty without UDP sockets.
    datagram: Vec<u8>,
    pub(super) connections: Vec<Option<Connection>>,
    /// Free indexes of `connections`.
    free: Vec<usize>,
    /// Connections that can continue without an event.
    again: Vec<usize>,
    /// Connections that watch events.
    pub(super) watchers: Vec<usize>,
    /// The store's time at which events were last sent to them.
    pub(super) watched: u64,
    /// Turns of connections so far. A sample of the turns is timed.
    turns: u32,
    /// The deadline of the shutdown.
    ends_by: Option<Instant>,
    /// The second of the last check for idle connections.
    looked: u32,
}

impl<'s> Worker<'s> {
    /// Creates the worker's system resources. The worker's thread creates everything else, and
    /// keeps it.
    pub(super) fn prepare(
        number: usize,
        shared: &'s Shared,
        queues: Vec<Queue>,
        datagrams: Vec<OwnedFd>,
    ) -> Result<impl FnOnce() + Send + 's, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            shared.inboxes[number].wake(),
            EventData::new_u64(WAKE),
            EventFlags::IN,
        )?;
        for (at, queue) in queues.iter().enumerate() {
            listen_to(&epoll, at, queue)?;
        }
        for (at, socket) in datagrams.iter().enumerate() {
            let data = EventData::new_u64(DATAGRAMS + at as u64);
            epoll::add(&epoll, socket, data, EventFlags::IN)?;
        }
        Ok(move || Self::new(number, shared, queues, datagrams, epoll).run())
    }

    fn new(
        number: usize,
        shared: &'s Shared,
        queues: Vec<Queue>,
        datagrams: Vec<OwnedFd>,
        epoll: OwnedFd,
    ) -> Self {
        let room = if datagrams.is_empty() { 0 } else { udp::LONGEST };
        let context = Context::new(shared.store.handle(number), &shared.server);
        let ledger = Ledger::new(&shared.server.buffers, shared.inboxes.len());
        Self {
            number,
            shared,
            buffers: WorkerBuffers::new(context, ledger),
            epoll,
            queues,
            paused: Paused::default(),
            datagrams,
            datagram: Vec::with_capacity(room),
            connections: Vec::new(),
            free: Vec::new(),
            again: Vec::new(),
            watchers: Vec::new(),
            watched: 0,
            turns: 0,
            ends_by: None,
            looked: 0,
        }
    }

    /// Serves until a shutdown is requested and complete.
    fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("manycored: epoll: {error}"),
            }
            self.shared.store.tick();
            let again = std::mem::take(&mut self.again);
            debug_assert!(
                self.buffers.context.handle.pinned.is_empty(),
                "store_pinned.G1: a value is pinned between turns"
            );
            // One slice for each ready connection; then new events.
            let ready = events.len() + again.len();
            self.buffers.slice = (ROUND / ready.max(1)).max(SLICE).min(self.shared.slice_max);
            for event in &events {
                let number = event.data.u64();
                match number {
                    WAKE => self.take_over(), // a shutdown is checked below
                    DATAGRAMS..FIRST => self.serve_datagrams((number - DATAGRAMS) as usize),
                    1..DATAGRAMS => self.accept(number as usize - 1),
                    number => self.serve_unless_queued((number - FIRST) as usize),
                }
            }
            again.iter().for_each(|index| self.serve(*index));
            self.resume();
            self.kick_idle();
            self.serve_watchers();
            if self.is_over() {
                return;
            }
        }
    }

    fn timeout(&self) -> Option<Timespec> {
        let nanos = |tv_nsec| Some(Timespec { tv_sec: 0, tv_nsec });
        if !self.again.is_empty() {
            nanos(0)
        } else if !self.paused.is_empty() {
            nanos(PAUSE.as_nanos() as i64)
        } else if !self.watchers.is_empty() {
            nanos(WATCH_PAUSE as i64)
        } else if self.ends_by.is_some() {
            nanos(20_000_000)
        } else if self.shared.server.settings.idle_timeout > 0 || self.buffers.ledger.held() > 0 {
            nanos(500_000_000)
        } else {
            None
        }
    }

    /// Returns true if the shutdown is complete. Begins the shutdown when it is requested (law
    /// server.V4).
    fn is_over(&mut self) -> bool {
        // ORDER: Relaxed; an eventfd published it.
        if !self.shared.draining.load(Ordering::Relaxed) {
            return false;
        }
        let ends_by = *self.ends_by.get_or_insert_with(|| Instant::now() + GRACE);
        // Accepts the clients that were connected before the queues close.
        (0..self.queues.len()).for_each(|at| self.accept(at));
        self.take_over();
        self.queues.clear();
        (0..self.datagrams.len()).for_each(|at| self.serve_datagrams(at));
        self.datagrams.clear();
        for index in 0..self.connections.len() {
            self.serve_what_came(index);
            if self.connections[index].as_ref().is_some_and(Connection::is_done) {
                self.close(index);
            }
        }
        let is_empty = self.free.len() == self.connections.len();
        // If another worker hands over a connection at this moment, that connection is served
        // first.
        (is_empty && self.shared.inboxes[self.number].close()) || Instant::now() >= ends_by
    }

    /// Serves a connection until its socket has nothing more to read.
    fn serve_what_came(&mut self, index: usize) {
        let read = &self.buffers.context.handle.counters.bytes_read;
        let mut before = None;
        while before != Some(read.get())
            && self.connections[index].as_ref().is_some_and(Connection::is_done)
        {
            before = Some(read.get());
            self.serve(index);
        }
    }

    /// Takes the connections that other workers have accepted for this one.
    fn take_over(&mut self) {
        for accepted in self.shared.inboxes[self.number].take() {
            self.welcome(accepted);
        }
    }

    /// Starts to serve an admitted connection, which is already counted as this worker's.
    pub(super) fn welcome(&mut self, Accepted { socket, queue }: Accepted) {
        let is_tcp = queue.is_tcp;
        let tls = self.shared.server.tls.as_ref().filter(|_| self.encrypts(&queue));
        let server = &self.shared.server;
        // ORDER: Relaxed; counts.
        server.accepted.fetch_add(1, Ordering::Relaxed);
        if is_tcp {
            // An error is harmless: without these options the connection is only slower.
            let _ = set_tcp_nodelay(&socket, true);
            let _ = set_socket_keepalive(&socket, true);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let store = &self.shared.store;
        let tls_session = tls.and_then(|tls| tls.begin(queue.demand));
        let is_lost = tls.is_some() && tls_session.is_none();
        let session = Session::new(store.limits().item).speaking(queue.language);
        let session = session.with_get_line_max(self.shared.server.settings.get_line_max);
        let (descriptor, second) = (socket.as_raw_fd(), store.clock().second());
        let session = session.of_client(descriptor);
        debug_assert!(self.connections[index].is_none(), "server.V1: an index is given out twice");
        let mut connection = Connection::new(socket, tls_session, session, second);
        connection.client = Some(self.shared.server.clients.add(descriptor, second));
        let added = self.watch(index, connection.socket.as_fd(), EventFlags::IN, true);
        if added.is_err() {
            self.refuse(&connection.socket, &queue);
        }
        self.connections[index] = Some(connection);
        if added.is_err() || is_lost {
            self.close(index);
        } else {
            self.tell(index, "conn_new", None);
        }
    }

    fn watch(
        &self,
        index: usize,
        socket: impl AsFd,
        flags: EventFlags,
        is_new: bool,
    ) -> Result<(), Errno> {
        let data = EventData::new_u64(FIRST + index as u64);
        if is_new {
            epoll::add(&self.epoll, socket, data, flags)
        } else {
            epoll::modify(&self.epoll, socket, data, flags)
        }
    }

    fn serve_datagrams(&mut self, at: usize) {
        let Some(socket) = self.datagrams.get(at) else { return };
        let ratio = self.shared.server.settings.udp_ratio;
        if udp::serve(socket, &mut self.buffers, &mut self.datagram, ratio) {
            end_server();
        }
    }

    /// Serves a connection, unless it is queued to continue and will have its turn anyway.
    fn serve_unless_queued(&mut self, index: usize) {
        let connection = self.connections.get(index).and_then(Option::as_ref);
        if connection.is_some_and(|connection| connection.state != ConnectionState::Yielded) {
            self.serve(index);
        }
    }

    pub(super) fn serve(&mut self, index: usize) {
        // The event's connection may have been closed a moment ago.
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let before = connection.state;
        let started = Latency::begin(&mut self.turns);
        let turn = started.map(|_| crate::trace::turn(connection.socket.as_raw_fd()));
        let state = connection.serve(&mut self.buffers);
        drop(turn);
        self.shared.server.latency.end(started);
        let was_writing = before == ConnectionState::Write;
        match state {
            ConnectionState::Close => return self.close(index),
            ConnectionState::Shutdown => {
                self.close(index);
                return end_server();
            }
            ConnectionState::Yielded => {
                self.buffers.context.handle.counters.conn_yields.inc();
                debug_assert!(!self.again.contains(&index), "server.V2: a turn is queued twice");
                self.again.push(index);
            }
            ConnectionState::Read | ConnectionState::Write => {}
        }
        self.note_watcher(index);
        if was_writing != (state == ConnectionState::Write) {
            let flags = if was_writing { EventFlags::IN } else { EventFlags::OUT };
            let socket = self.connections[index].as_ref().map(|found| found.socket.as_fd());
            let watched = socket.map_or(Ok(()), |socket| self.watch(index, socket, flags, false));
            if watched.is_err() {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        self.close_for(index, None);
    }

    /// Closes a connection. `reason` is the server's reason, if it has one.
    fn close_for(&mut self, index: usize, reason: Option<&str>) {
        let ends = self.ends_by.is_some().then_some("shutdown");
        let own = self.connections[index].as_ref().map(Connection::reason);
        self.tell(index, "conn_close", reason.or(ends).or(own));
        // Closing the socket removes it from the epoll.
        if let Some(mut connection) = self.connections[index].take() {
            connection.end(&mut self.buffers);
            debug_assert!(!self.free.contains(&index), "server.V1: an index is freed twice");
            self.free.push(index);
            self.shared.inboxes[self.number].forget();
            // ORDER: Relaxed; a count.
            let before = self.shared.server.connections.fetch_sub(1, Ordering::Relaxed);
            debug_assert!(before > 0, "server.V1: more connections are closed than were open");
        }
    }

    /// Closes connections that received and sent no byte for `idle_timeout`. While buffers are
    /// scarce, also closes connections with an incomplete request or unsent replies after
    /// `buffer_timeout`.
    fn kick_idle(&mut self) {
        let server = &self.shared.server;
        let (idle, stalled) = (server.settings.idle_timeout, server.settings.buffer_timeout);
        let second = self.shared.store.clock().second();
        let is_scarce = stalled > 0 && self.buffers.ledger.held() > 0 && server.buffers.is_scarce();
        if second == self.looked {
            return;
        }
        self.looked = second;
        self.buffers.age();
        if idle == 0 && !is_scarce {
            return;
        }
        for index in 0..self.connections.len() {
            let Some(found) = &self.connections[index] else { continue };
            let quiet = u64::from(second - found.used.min(second));
            if idle > 0 && quiet > idle {
                // ORDER: Relaxed; a count.
                server.idle_kicks.fetch_add(1, Ordering::Relaxed);
                self.close_for(index, Some("idle_timeout"));
            } else if is_scarce && quiet > stalled && found.holds_memory() {
                server.buffers.count_closed();
                self.close_for(index, Some("buffer_timeout"));
            }
        }
    }
}

/// Shuts the server down by a signal.
fn end_server() {
    // A process may always signal itself.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGINT);
}
