//! The load: connections of one thread, each with one batch of requests under way.
//!
//! Laws:
//!
//! - client.C1 A batch is sent with one write, and its time ends when the last of its replies has
//!   come. In a closed loop the next batch follows at once, and the time begins with the write. In
//!   an open loop each connection has a schedule, fixed beforehand, and the time begins when the
//!   batch was due. A server that stalls is then charged for all that it kept waiting (no
//!   coordinated omission).
//! - client.C2 Every reply is compared with the expected one; a wrong reply ends the run with an
//!   error.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustix::event::{Timespec, epoll};

use super::wire::Wire;
use crate::{
    kv::trace::{SET, Trace},
    latency::{Latencies, nanos_per_tick},
    runner::{Control, Tally},
    ticks,
};

/// Bytes that are read at once.
const READ: usize = 256 << 10;
/// Requests of the filling that are under way together.
const FILL: usize = 256;
/// The longest wait for a reply before the end of the run is looked for.
const WAIT_NANOS: i64 = 20_000_000;

/// What a client does.
#[derive(Clone)]
pub(super) struct Plan {
    /// The server.
    pub(super) address: SocketAddr,
    /// What is said.
    pub(super) wire: Wire,
    /// Requests of a batch.
    pub(super) depth: usize,
    /// Connections.
    pub(super) connections: usize,
    /// Keys a second of all connections together, in an open loop.
    pub(super) rate: Option<f64>,
    /// The requests.
    pub(super) trace: Arc<Trace>,
}

struct Connection {
    stream: TcpStream,
    /// Where in the trace its batch begins.
    at: usize,
    /// Replies that are still to come.
    missing: usize,
    /// When its time began.
    since: u64,
    /// When the next batch is due, in an open loop.
    due: u64,
    /// The part of a reply that has come.
    input: Vec<u8>,
}

/// A thread's connections.
pub(super) struct Client {
    plan: Plan,
    connections: Vec<Connection>,
    epoll: rustix::fd::OwnedFd,
    /// Ticks between a connection's batches, in an open loop.
    interval: Option<u64>,
    /// Where in the trace the next batch begins.
    next: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    events: Vec<epoll::Event>,
    times: Latencies,
}

fn wrong(plan: &Plan, got: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(&got[..got.len().min(80)]).into_owned();
    io::Error::other(format!("{} gave a wrong reply: {text:?}", plan.address))
}

impl Client {
    /// Connects.
    pub(super) fn connect(plan: Plan) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for number in 0..plan.connections {
            let stream = TcpStream::connect(plan.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            let input = Vec::new();
            connections.push(Connection { stream, at: 0, missing: 0, since: 0, due: 0, input });
        }
        let batch = (plan.depth * plan.wire.keys() * plan.connections) as f64;
        let interval = plan.rate.map(|rate| (batch / rate * 1e9 / nanos_per_tick()) as u64);
        Ok(Self {
            plan,
            connections,
            epoll,
            interval,
            next: 0,
            input: vec![0; READ],
            output: Vec::new(),
            events: Vec::with_capacity(256),
            times: Latencies::new(),
        })
    }

    /// Asks until the run is over.
    pub(super) fn run(mut self, control: &Control) -> io::Result<(Tally, Latencies)> {
        let mut failed = Ok(());
        let mut has_begun = false;
        let tally = control.drive(|| {
            let done = if has_begun { self.turn() } else { self.begin().map(|()| 0) };
            has_begun = true;
            done.unwrap_or_else(|error| {
                failed = Err(error);
                control.finish();
                0
            })
        });
        failed.map(|()| (tally, self.times))
    }

    /// The first batches; in an open loop their schedules, one behind the other.
    fn begin(&mut self) -> io::Result<()> {
        let now = ticks::now();
        for number in 0..self.connections.len() {
            match self.interval {
                None => self.send(number, now)?,
                Some(interval) => {
                    let share = interval * number as u64 / self.connections.len() as u64;
                    self.connections[number].due = now + share;
                }
            }
        }
        Ok(())
    }

    /// Fetches what has come. Returns how many keys were answered.
    fn turn(&mut self) -> io::Result<u64> {
        // A client with a schedule does not sleep.
        let tv_nsec = if self.interval.is_some() { 0 } else { WAIT_NANOS };
        self.events.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, spare, Some(&Timespec { tv_sec: 0, tv_nsec })) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut answered = 0;
        for at in 0..self.events.len() {
            let number = self.events[at].data.u64() as usize;
            answered += self.receive(number)?;
            let connection = &self.connections[number];
            if connection.missing == 0 {
                let now = ticks::now();
                self.times.record(now.wrapping_sub(connection.since));
                if self.interval.is_none() {
                    self.send(number, now)?;
                }
            }
        }
        if let Some(interval) = self.interval {
            self.send_what_is_due(interval)?;
        }
        Ok(answered)
    }

    fn send_what_is_due(&mut self, interval: u64) -> io::Result<()> {
        let now = ticks::now();
        for number in 0..self.connections.len() {
            let Connection { missing, due, .. } = self.connections[number];
            // Half of the range: the clock may go round.
            if missing == 0 && now.wrapping_sub(due) < u64::MAX / 2 {
                self.send(number, due)?;
                self.connections[number].due = due.wrapping_add(interval);
            }
        }
        Ok(())
    }

    /// Sends the next batch, whose time began then.
    fn send(&mut self, number: usize, since: u64) -> io::Result<()> {
        let Plan { wire, depth, trace, .. } = &mut self.plan;
        let keys = wire.keys();
        let length = *depth * keys;
        if self.next + length > trace.requests.len() {
            self.next = 0;
        }
        let connection = &mut self.connections[number];
        connection.at = self.next;
        connection.missing = *depth;
        connection.since = since;
        self.output.clear();
        for request in trace.requests[self.next..self.next + length].chunks_exact(keys) {
            let is_set = request[0] & SET != 0;
            let numbers = if is_set { &request[..1] } else { request };
            wire.push_request(numbers, is_set, &mut self.output);
        }
        self.next += length;
        write_all(connection, &self.output, &mut self.input)
    }

    /// Reads once. Returns how many keys were answered.
    fn receive(&mut self, number: usize) -> io::Result<u64> {
        let connection = &mut self.connections[number];
        let read = match connection.stream.read(&mut self.input) {
            Ok(0) => return Err(io::Error::other("the server has closed a connection")),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut rest = std::mem::take(&mut connection.input);
        let is_cut = !rest.is_empty();
        if is_cut {
            rest.extend_from_slice(&self.input[..read]);
        }
        let bytes = if is_cut { &rest[..] } else { &self.input[..read] };
        let (used, answered) = take_replies(&mut self.plan, connection, bytes)?;
        if is_cut {
            rest.drain(..used);
        } else {
            rest.extend_from_slice(&self.input[used..read]);
        }
        connection.input = rest;
        Ok(answered)
    }
}

/// Whole replies of the connection's batch: how many bytes they had, and how many keys.
fn take_replies(
    plan: &mut Plan,
    connection: &mut Connection,
    bytes: &[u8],
) -> io::Result<(usize, u64)> {
    let keys = plan.wire.keys();
    let (mut used, mut answered) = (0, 0);
    while connection.missing > 0 {
        let at = connection.at + (plan.depth - connection.missing) * keys;
        let request = &plan.trace.requests[at..at + keys];
        let is_set = request[0] & SET != 0;
        let numbers = if is_set { &request[..1] } else { request };
        let Some(reply) = bytes.get(used..used + plan.wire.reply_len(is_set)) else { break };
        if !plan.wire.is_reply(numbers, is_set, reply) {
            return Err(wrong(plan, reply));
        }
        used += reply.len();
        answered += numbers.len() as u64;
        connection.missing -= 1;
    }
    // Short replies never fill up: a miss, or an error.
    if used == 0 && bytes.len() < 64 && bytes.ends_with(b"\n") && bytes.starts_with(b"E") {
        return Err(wrong(plan, bytes));
    }
    if connection.missing == 0 && used < bytes.len() {
        return Err(wrong(plan, &bytes[used..]));
    }
    Ok((used, answered))
}

/// Writes all. A server that writes large replies may wait for them to be read before it reads on:
/// what has come is set aside. The last reply is still to come then, and with it the event upon
/// which all are looked at.
fn write_all(connection: &mut Connection, mut bytes: &[u8], buffer: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match connection.stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                match connection.stream.read(buffer) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(read) => connection.input.extend_from_slice(&buffer[..read]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::yield_now();
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets every key once.
pub(super) fn fill(address: SocketAddr, wire: &Wire, keys: usize) -> io::Result<()> {
    let mut wire = wire.clone();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut output, mut input) = (Vec::new(), Vec::new());
    for from in (0..keys).step_by(FILL) {
        let numbers = from as u32..(from + FILL).min(keys) as u32;
        output.clear();
        numbers.clone().for_each(|number| wire.push_request(&[number], true, &mut output));
        stream.write_all(&output)?;
        input.resize(numbers.len() * wire.reply_len(true), 0);
        stream.read_exact(&mut input)?;
        let mut replies = input.chunks_exact(wire.reply_len(true)).zip(numbers);
        if !replies.all(|(reply, number)| wire.is_reply(&[number], true, reply)) {
            return Err(io::Error::other(format!("{address} did not store a key")));
        }
    }
    Ok(())
}

/// Asks until so many keys were answered.
pub(super) fn probe(plan: Plan, keys: u64) -> io::Result<()> {
    let mut client = Client::connect(plan)?;
    client.begin()?;
    let mut answered = 0;
    while answered < keys {
        answered += client.turn()?;
    }
    Ok(())
}
