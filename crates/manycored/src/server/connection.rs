//! A connection: its socket, its session, and what waits on either side.

use crate::session::{Context, Session, Wish};
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Bytes that are read at once.
pub(super) const READ: usize = 64 << 10;
/// The largest buffer that a quiet connection keeps.
const KEEP: usize = 4 << 10;

/// What is to be done with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Wait until something comes.
    Read,
    /// Wait until something can be written.
    Write,
    /// Give others a turn, and then go on.
    Again,
    /// Close it.
    Close,
    /// Close it, and end the server.
    Shutdown,
}

/// A connection.
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    session: Session,
    /// What came and was not used up.
    input: Vec<u8>,
    /// What was not written, from `written` on.
    output: Vec<u8>,
    written: usize,
    /// Whether the session stopped with requests left.
    is_paused: bool,
    /// What it is waiting for.
    pub(super) fate: Fate,
    /// The second of the store's clock at which something came or went.
    pub(super) used: u32,
}

/// What a worker's connections share.
pub(super) struct Desk<'s> {
    pub(super) context: Context<'s>,
    pub(super) budget: usize,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl<'s> Desk<'s> {
    pub(super) fn new(context: Context<'s>, budget: usize) -> Self {
        Self { context, budget, input: Vec::with_capacity(READ), output: Vec::new() }
    }
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, item_max: usize, second: u32) -> Self {
        Self {
            socket,
            session: Session::new(item_max),
            input: Vec::new(),
            output: Vec::new(),
            written: 0,
            is_paused: false,
            fate: Fate::Read,
            used: second,
        }
    }

    /// Whether nothing was asked that was not answered.
    pub(super) fn is_done(&self) -> bool {
        self.input.is_empty() && self.fate == Fate::Read && self.session.is_between()
    }

    /// Does what can be done: writes what waits, reads once, answers, writes once.
    pub(super) fn serve(&mut self, desk: &mut Desk<'_>) -> Fate {
        self.fate = self.step(desk).unwrap_or(Fate::Close);
        self.fate
    }

    fn step(&mut self, desk: &mut Desk<'_>) -> Result<Fate, Errno> {
        if !self.output.is_empty() {
            let waiting = std::mem::take(&mut self.output);
            let from = self.written;
            if !self.write(&waiting, from, desk)? {
                self.output = waiting;
                return Ok(Fate::Write);
            }
            self.written = 0;
            match self.session.wish() {
                Wish::Stay => {}
                Wish::Close => return Ok(Fate::Close),
                Wish::Shutdown => return Ok(Fate::Shutdown),
            }
        }
        if !self.is_paused && !self.read(desk)? {
            return Ok(Fate::Read);
        }
        self.answer(desk)
    }

    /// False if nothing was there to be read.
    fn read(&mut self, desk: &mut Desk<'_>) -> Result<bool, Errno> {
        let into = if self.input.is_empty() {
            desk.input.clear();
            &mut desk.input
        } else {
            self.input.reserve(READ);
            &mut self.input
        };
        let read = recv(&self.socket, spare_capacity(into), RecvFlags::empty());
        match read.map(|(read, _)| read) {
            Ok(0) => Err(Errno::CONNRESET), // the client has gone
            Ok(read) => {
                self.used = desk.context.handle.store().clock().second();
                desk.context.handle.counters.bytes_read.add(read as u64);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn answer(&mut self, desk: &mut Desk<'_>) -> Result<Fate, Errno> {
        let is_own = !self.input.is_empty();
        let input = if is_own { &self.input } else { &desk.input };
        let mut output = std::mem::take(&mut desk.output);
        output.clear();
        let progress = self.session.feed(&mut desk.context, input, &mut output, desk.budget);
        self.is_paused = progress.is_paused;
        if !is_own {
            self.input.extend_from_slice(&desk.input[progress.used..]);
        } else if progress.used == self.input.len() {
            self.input.clear();
            self.input.shrink_to(KEEP);
        } else {
            self.input.drain(..progress.used);
        }
        let written = self.write(&output, 0, desk);
        if !matches!(written, Ok(true)) {
            self.output = output;
            return written.map(|_| Fate::Write);
        }
        if output.capacity() <= 2 * crate::session::OUT_MAX {
            desk.output = output;
        }
        Ok(match self.session.wish() {
            Wish::Close => Fate::Close,
            Wish::Shutdown => Fate::Shutdown,
            Wish::Stay if self.is_paused => Fate::Again,
            Wish::Stay => Fate::Read,
        })
    }

    /// Writes what is there from `from` on; false if something is left, from `written` on.
    fn write(&mut self, bytes: &[u8], mut from: usize, desk: &Desk<'_>) -> Result<bool, Errno> {
        while from < bytes.len() {
            match send(&self.socket, &bytes[from..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    from += sent;
                    self.used = desk.context.handle.store().clock().second();
                    desk.context.handle.counters.bytes_written.add(sent as u64);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.written = from;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
