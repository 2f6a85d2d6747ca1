//! A connection: its socket, its session, and what waits on either side.

use crate::clients::{Entry, State};
use crate::session::{Context, Session, Wish};
use crate::tls::Seal;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice, Write};

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
    /// Its place in the list of clients: left before the socket is closed, so it stands before it.
    pub(super) client: Option<Entry>,
    pub(super) socket: OwnedFd,
    seal: Option<Seal>,
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
    /// What came under a seal.
    sealed: Vec<u8>,
}

impl<'s> Desk<'s> {
    pub(super) fn new(context: Context<'s>, budget: usize) -> Self {
        let input = Vec::with_capacity(READ);
        Self { context, budget, input, output: Vec::new(), sealed: Vec::new() }
    }
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, seal: Option<Seal>, session: Session, second: u32) -> Self {
        Self {
            client: None,
            socket,
            seal,
            session,
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
        self.note_state();
        self.fate
    }

    /// Notes for the list of clients what it does.
    fn note_state(&self) {
        let state = match self.fate {
            Fate::Write => State::Write,
            Fate::Again => State::Parse,
            _ if self.session.is_watching() => State::Watch,
            _ if self.input.is_empty() => State::Read,
            _ => State::ReadRest,
        };
        if let Some(client) = &self.client {
            client.note(state, self.used);
        }
    }

    /// Whether its client is told of events.
    pub(super) fn is_watching(&self) -> bool {
        self.session.is_watching()
    }

    /// Has the next turn send events; false if what was sent before still waits.
    pub(super) fn resume_watch(&mut self) -> bool {
        self.is_paused = self.fate == Fate::Read && self.is_watching();
        self.is_paused
    }

    /// Why it ends, where that is the client's doing.
    pub(super) fn reason(&self) -> &'static str {
        if self.session.has_failed() { "error" } else { "normal" }
    }

    fn step(&mut self, desk: &mut Desk<'_>) -> Result<Fate, Errno> {
        if !self.output.is_empty() || self.seal.as_ref().is_some_and(Seal::waits) {
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
        let read = if self.seal.is_some() {
            desk.sealed.clear();
            desk.sealed.reserve(READ);
            recv(&self.socket, spare_capacity(&mut desk.sealed), RecvFlags::empty())
        } else {
            recv(&self.socket, spare_capacity(into), RecvFlags::empty())
        };
        match read.map(|(read, _)| read) {
            Ok(0) => Err(Errno::CONNRESET), // the client has gone
            Ok(read) => {
                if let Some(seal) = &mut self.seal {
                    let opened = seal.open(&desk.sealed, into);
                    if opened.is_err() {
                        // The client is told why.
                        let _ = seal.send(&mut Outlet(&self.socket));
                        return Err(Errno::PROTO);
                    }
                }
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
        // With nothing left there is nothing to go on with, least of all what others have read.
        self.is_paused = progress.is_paused && progress.used < input.len();
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

    /// Says good-bye, where there is a way to.
    pub(super) fn end(&mut self) {
        if let Some(seal) = &mut self.seal {
            seal.end(&mut Outlet(&self.socket));
        }
    }

    /// Writes what is there from `from` on; false if something is left, from `written` on.
    fn write(&mut self, bytes: &[u8], mut from: usize, desk: &Desk<'_>) -> Result<bool, Errno> {
        if let Some(seal) = &mut self.seal {
            let (end, is_sent) = write_sealed(seal, &self.socket, bytes, from)?;
            if end > from {
                self.used = desk.context.handle.store().clock().second();
                desk.context.handle.counters.bytes_written.add((end - from) as u64);
            }
            self.written = end;
            return Ok(is_sent);
        }
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

/// Seals and sends what is there from `from` on, as far as it goes. Where that ends, and whether
/// all of it was sent.
fn write_sealed(
    seal: &mut Seal,
    socket: &OwnedFd,
    bytes: &[u8],
    mut from: usize,
) -> Result<(usize, bool), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO);
    loop {
        if !seal.send(&mut Outlet(socket)).map_err(errno)? {
            return Ok((from, false));
        }
        if from == bytes.len() {
            return Ok((from, true));
        }
        match seal.seal(&bytes[from..]).map_err(errno)? {
            0 => return Err(Errno::PROTO), // before the client was heard: there is nothing to say
            sealed => from += sealed,
        }
    }
}

/// A socket to which records are written.
struct Outlet<'a>(&'a OwnedFd);

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let nothing = &mut SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, parts, nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
