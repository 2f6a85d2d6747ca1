//! A connection: its socket, its session, its unparsed input and its unsent replies.
//!
//! A connection's own buffers hold only bytes that outlast a turn. The worker's ledger counts them
//! (see [`crate::buffers`]). All other bytes pass through the worker's buffers:
//!
//! ```text
//! read -> worker's input -> session -> worker's output -> write
//!               |  rest is kept              |  rest is kept
//!         connection's input           connection's output
//! ```

use super::encrypted::{Outlet, write_encrypted};
use super::spares::Spares;
use crate::buffers::{Ledger, Use};
use crate::clients::{Entry, State};
use crate::session::{Context, OUT_MAX, Session, SessionAction};
use crate::tls::TlsSession;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use std::io::IoSlice;
use std::mem::take;

/// Bytes of one read.
const READ: usize = 64 << 10;
/// An incomplete request shorter than this is copied to the worker's buffer before the next read.
/// If it is longer, the next read appends to the connection's own buffer.
const MOVED: usize = 16 << 10;
/// Replies of several slices are batched up to this many bytes, and sent with one call.
const GATHERED: usize = 64 << 10;
/// Slices of one gathered write: the system refuses more than 1024 (`IOV_MAX`).
const SLICES: usize = 1024;

/// The capacity up to which a worker always keeps its output buffer.
const OUTPUT_KEPT: usize = 2 * OUT_MAX;
/// The capacity up to which it keeps the buffer while replies need it and memory is ample.
const OUTPUT_MAX: usize = 4 << 20;

/// What a connection waits for. It decides what the worker does next with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// Wait until the socket is readable.
    Read,
    /// Wait until the socket is writable.
    Write,
    /// Yield to other connections, then continue.
    Yielded,
    /// Close it.
    Close,
    /// Close it, and shut the server down.
    Shutdown,
}

/// One client's connection, served by one worker.
pub(super) struct Connection {
    /// The entry in the list of clients. It is declared before the socket, so that it is dropped
    /// before the socket is closed.
    pub(super) client: Option<Entry>,
    pub(super) socket: OwnedFd,
    tls: Option<TlsSession>,
    session: Session,
    /// Received bytes. Bytes from `taken` on are not consumed yet.
    input: Vec<u8>,
    taken: usize,
    /// Replies. Bytes from `written` on are not sent yet.
    output: Vec<u8>,
    written: usize,
    /// Bytes of both buffers that are counted in the worker's ledger.
    holds: usize,
    /// Whether the session paused with requests left in the input.
    is_paused: bool,
    /// What it waits for.
    pub(super) state: ConnectionState,
    /// The second of the store's clock at which bytes were last received or sent.
    pub(super) used: u32,
}

/// Buffers and settings that a worker's connections share.
pub(super) struct WorkerBuffers<'s> {
    pub(super) context: Context<'s>,
    pub(super) ledger: Ledger<'s>,
    /// Keys of one connection before the other connections have their turn.
    pub(super) slice: usize,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` in the ledger: its whole capacity if the capacity is above
    /// [`OUTPUT_KEPT`].
    output_holds: usize,
    /// Whether replies have needed so large a buffer since the last second.
    uses_output: bool,
    spares: Spares,
    /// Bytes of TLS records, as received.
    records: Vec<u8>,
}

impl<'s> WorkerBuffers<'s> {
    pub(super) fn new(context: Context<'s>, ledger: Ledger<'s>) -> Self {
        let input = Vec::with_capacity(MOVED + READ);
        let (output, records, spares) = (Vec::new(), Vec::new(), Spares::default());
        Self {
            context,
            ledger,
            slice: usize::MAX,
            input,
            output,
            output_holds: 0,
            uses_output: false,
            spares,
            records,
        }
    }

    /// Takes the output buffer back. A large buffer is kept only while memory is ample.
    fn give_back(&mut self, mut output: Vec<u8>) {
        if self.output.capacity() > 0 {
            return self.spares.give(output, &mut self.ledger);
        }
        let bytes = output.capacity();
        let counted = if bytes > OUTPUT_KEPT { bytes } else { 0 };
        let is_kept = counted == 0 || bytes <= OUTPUT_MAX && self.ledger.budget().is_ample();
        self.uses_output |= output.len() > OUTPUT_KEPT;
        if is_kept && self.ledger.set(&mut self.output_holds, counted, Use::Replies) {
            output.clear();
            self.output = output;
        } else {
            let _ = self.ledger.set(&mut self.output_holds, 0, Use::Replies);
        }
    }

    /// Frees the buffers that were not used for a second. The worker calls this once a second.
    pub(super) fn age(&mut self) {
        self.spares.age(&mut self.ledger);
        if !take(&mut self.uses_output) && self.output_holds > 0 {
            self.output = Vec::new();
            let _ = self.ledger.set(&mut self.output_holds, 0, Use::Replies);
        }
    }
}

impl Connection {
    pub(super) fn new(
        socket: OwnedFd,
        tls: Option<TlsSession>,
        session: Session,
        second: u32,
    ) -> Self {
        Self {
            client: None,
            socket,
            tls,
            session,
            input: Vec::new(),
            taken: 0,
            output: Vec::new(),
            written: 0,
            holds: 0,
            is_paused: false,
            state: ConnectionState::Read,
            used: second,
        }
    }

    /// Returns true if every received request is answered and every reply is sent.
    pub(super) fn is_done(&self) -> bool {
        self.input.is_empty() && self.state == ConnectionState::Read && self.session.is_between()
    }

    /// Returns true if it holds memory of its own: an incomplete request, or unsent replies.
    pub(super) fn holds_memory(&self) -> bool {
        self.holds > 0
    }

    /// Serves one turn: sends pending replies, reads once, answers a slice, sends once.
    pub(super) fn serve(&mut self, buffers: &mut WorkerBuffers<'_>) -> ConnectionState {
        // server.V2: each step returns at once, whatever the socket offers or accepts.
        if self.tls.is_none() {
            buffers.context.handle.pinned.begin();
        }
        self.state = self.step(buffers).unwrap_or(ConnectionState::Close);
        buffers.context.handle.pinned.end();
        self.check();
        self.note_state();
        self.state
    }

    /// Asserts the invariants between two turns: what each state means for the buffers, and that
    /// the ledger counts the buffers.
    #[inline(always)]
    fn check(&self) {
        use ConnectionState::{Read, Write, Yielded};
        if matches!(self.state, ConnectionState::Close | ConnectionState::Shutdown) {
            return;
        }
        debug_assert!(
            self.taken <= self.input.len() && self.written <= self.output.len(),
            "server.V2: positions {} and {} are behind the input or the output",
            self.taken,
            self.written
        );
        debug_assert_eq!(
            self.holds,
            self.input.capacity() + self.output.capacity(),
            "buffers.B1: a connection's buffers are not those counted"
        );
        debug_assert!(
            self.state == Write || self.session.action() == SessionAction::Continue,
            "server.V2: a connection goes on although its session has ended"
        );
        debug_assert!(
            self.state != Read || self.output.is_empty() && !self.is_paused,
            "server.V2: a connection waits for input with replies or requests left"
        );
        debug_assert!(
            self.state != Write
                || !self.output.is_empty()
                || self.tls.as_ref().is_some_and(TlsSession::waits),
            "server.V2: a connection waits to write nothing"
        );
        debug_assert!(
            self.state != Yielded || self.is_paused && self.taken < self.input.len(),
            "server.V2: a connection yields without a request left"
        );
    }

    /// Updates the state that the list of clients shows.
    fn note_state(&self) {
        let state = match self.state {
            ConnectionState::Write => State::Write,
            ConnectionState::Yielded => State::Parse,
            _ if self.session.is_watching() => State::Watch,
            _ if self.input.is_empty() => State::Read,
            _ => State::ReadRest,
        };
        if let Some(client) = &self.client {
            client.note(state, self.used);
        }
    }

    /// Returns true if its client has subscribed to events (`watch`).
    pub(super) fn is_watching(&self) -> bool {
        self.session.is_watching()
    }

    /// Makes the next turn send events. Returns false if earlier output is still pending.
    pub(super) fn resume_watch(&mut self) -> bool {
        self.is_paused = self.state == ConnectionState::Read && self.is_watching();
        self.is_paused
    }

    /// Returns the log's name of the reason for the end, if the client caused it.
    pub(super) fn reason(&self) -> &'static str {
        if self.session.has_failed() { "error" } else { "normal" }
    }

    fn step(&mut self, buffers: &mut WorkerBuffers<'_>) -> Result<ConnectionState, Errno> {
        let waits = !self.output.is_empty() || self.tls.as_ref().is_some_and(TlsSession::waits);
        // Between two slices replies are batched, and the connection does not wait for the socket.
        if waits && self.state != ConnectionState::Yielded {
            if !self.flush(buffers)? {
                return Ok(ConnectionState::Write);
            }
            match self.session.action() {
                SessionAction::Continue => {}
                SessionAction::Close => return Ok(ConnectionState::Close),
                SessionAction::Shutdown => return Ok(ConnectionState::Shutdown),
            }
        }
        if !self.is_paused && !self.read(buffers)? {
            return Ok(ConnectionState::Read);
        }
        self.answer(buffers)
    }

    /// Reads once. Returns false if the socket had nothing to read.
    fn read(&mut self, buffers: &mut WorkerBuffers<'_>) -> Result<bool, Errno> {
        let is_moved = self.input.len() < MOVED;
        let into = if is_moved {
            buffers.input.clear();
            buffers.input.extend_from_slice(&self.input);
            &mut buffers.input
        } else {
            &mut self.input
        };
        let read = if self.tls.is_some() {
            buffers.records.clear();
            buffers.records.reserve(READ);
            recv(&self.socket, spare_capacity(&mut buffers.records), RecvFlags::empty())
        } else {
            recv(&self.socket, spare_capacity(into), RecvFlags::empty())
        };
        match read.map(|(read, _)| read) {
            Ok(0) => Err(Errno::CONNRESET), // the client has closed the connection
            Ok(read) => {
                if let Some(tls) = &mut self.tls {
                    let decrypted = tls.decrypt(&buffers.records, into);
                    if decrypted.is_err() {
                        // The alert tells the client the reason.
                        let _ = tls.send(&mut Outlet(&self.socket));
                        return Err(Errno::PROTO);
                    }
                }
                if is_moved {
                    buffers.spares.give(take(&mut self.input), &mut buffers.ledger);
                }
                self.used = buffers.context.handle.store().clock().second();
                buffers.context.handle.counters.bytes_read.add(read as u64);
                Ok(true)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Answers the requests that were received, and keeps the rest of the input.
    fn answer(&mut self, buffers: &mut WorkerBuffers<'_>) -> Result<ConnectionState, Errno> {
        let is_own = !self.input.is_empty();
        let input = take(if is_own { &mut self.input } else { &mut buffers.input });
        // Appended to the replies of earlier slices, if there are any.
        let is_gathered = !self.output.is_empty();
        let mut output = take(if is_gathered { &mut self.output } else { &mut buffers.output });
        let kept = if is_own { input.capacity() } else { 0 };
        let answered = self.answer_all(&input, kept, &mut output, buffers);
        if is_own {
            if let Ok(rest) = &answered {
                self.keep_own_input(input, rest, buffers);
            }
        } else {
            if let Ok(rest) = &answered {
                self.copy_input(&input, rest, buffers);
            }
            buffers.input = input;
        }
        if let Ok(Rest { from, .. }) = answered
            && self.is_paused
            && self.gather(&mut output, is_gathered, from, buffers)
        {
            return Ok(ConnectionState::Yielded);
        }
        let state = answered.and_then(|_| self.conclude(&output, buffers));
        buffers.give_back(output);
        state
    }

    /// Keeps what is left of the connection's own input for the next turn, in the same buffer if
    /// nothing has to be moved in it.
    fn keep_own_input(&mut self, mut input: Vec<u8>, rest: &Rest, buffers: &mut WorkerBuffers<'_>) {
        self.taken = 0;
        if rest.from == input.len() {
            buffers.spares.give(input, &mut buffers.ledger);
        } else if self.is_paused {
            (self.input, self.taken) = (input, rest.from);
        } else if rest.from == 0 {
            input.reserve_exact(rest.room.saturating_sub(input.len()));
            self.input = input;
        } else {
            return self.copy_input(&input, rest, buffers);
        }
        self.hold_input(buffers);
    }

    /// Copies what is left of the input into a buffer of the connection's own, if anything is.
    fn copy_input(&mut self, input: &[u8], rest: &Rest, buffers: &mut WorkerBuffers<'_>) {
        self.taken = 0;
        let left = &input[rest.from..];
        if !left.is_empty() {
            // One spare buffer for all bytes to come is cheaper than a buffer that grows.
            let whole = self.session.whole_length(&buffers.context, left).unwrap_or(rest.room);
            self.input = buffers.spares.take(rest.room, whole, &mut buffers.ledger);
            self.input.extend_from_slice(left);
        }
        self.hold_input(buffers);
    }

    /// Counts the input's buffer in the ledger: what was allowed, or a little more, because a spare
    /// buffer may have a larger capacity.
    fn hold_input(&mut self, buffers: &mut WorkerBuffers<'_>) {
        let _ = self.hold(self.input.capacity(), Use::Bounded, buffers);
    }

    /// Answers a slice of the input, or more if there is no memory to keep the rest: then what
    /// cannot be kept is refused. `kept` is the capacity of the connection's own buffer if that
    /// holds the input, else 0.
    fn answer_all(
        &mut self,
        input: &[u8],
        kept: usize,
        output: &mut Vec<u8>,
        buffers: &mut WorkerBuffers<'_>,
    ) -> Result<Rest, Errno> {
        let (mut from, mut slice) = (take(&mut self.taken), buffers.slice);
        loop {
            let progress = self.session.feed(&mut buffers.context, &input[from..], output, slice);
            from += progress.used;
            debug_assert!(from <= input.len(), "session.Q2: more is consumed than was received");
            let rest = &input[from..];
            // Without input there is nothing to continue with: the shared buffer may already hold
            // bytes of other connections.
            self.is_paused = progress.is_paused && !rest.is_empty();
            if rest.is_empty() || self.session.action() != SessionAction::Continue {
                let _ = self.hold(0, Use::Replies, buffers);
                return Ok(Rest { from: input.len(), room: 0 });
            }
            if self.is_paused {
                let room = kept.max(rest.len());
                if self.hold(room, Use::Replies, buffers) {
                    return Ok(Rest { from, room });
                }
                if !buffers.context.is_full(output) {
                    slice = usize::MAX;
                } else if self.send(output, buffers)? {
                    output.clear();
                } else {
                    buffers.ledger.budget().count_closed();
                    return Err(Errno::NOBUFS);
                }
                continue;
            }
            let has_room = from == 0 && kept > rest.len() && rest.len() >= MOVED;
            let room = if has_room { kept } else { self.room_for(rest, buffers) };
            if self.hold(room, Use::Unfinished, buffers) {
                return Ok(Rest { from, room });
            }
            let refused = self.session.refuse(&mut buffers.context, rest, output);
            debug_assert!(refused > 0, "buffers.B2: a refusal consumes nothing");
            from += refused;
            if self.session.action() == SessionAction::Close {
                buffers.ledger.budget().count_closed();
            }
        }
    }

    /// Returns the capacity that an incomplete request needs. If its bytes are copied before the
    /// next read, that is their number. Otherwise it is at most twice as much, and no more than the
    /// whole request.
    fn room_for(&self, rest: &[u8], buffers: &WorkerBuffers<'_>) -> usize {
        if rest.len() < MOVED {
            return rest.len();
        }
        let whole = self.session.whole_length(&buffers.context, rest).unwrap_or(usize::MAX);
        (rest.len() + rest.len().max(READ)).min(whole).max(rest.len() + 1)
    }

    /// Reserves `input` bytes of input besides the replies. Returns false if that is refused.
    fn hold(&mut self, input: usize, what: Use, buffers: &mut WorkerBuffers<'_>) -> bool {
        // server.V3: no buffer grows without this check.
        buffers.ledger.set(&mut self.holds, input + self.output.capacity(), what)
    }

    /// Keeps replies until the replies of the next slices follow. Returns false if they are too
    /// many, or if there is no memory for them.
    fn gather(
        &mut self,
        output: &mut Vec<u8>,
        is_gathered: bool,
        used: usize,
        buffers: &mut WorkerBuffers<'_>,
    ) -> bool {
        let is_pinned = !buffers.context.handle.pinned.is_empty();
        if is_pinned || output.len() >= GATHERED || self.session.action() != SessionAction::Continue
        {
            return false;
        }
        if !is_gathered {
            // Room for the replies of all remaining slices. The estimate takes this slice's ratio
            // of replies to requests, because requests of one client are alike.
            let left = self.input.len() - self.taken;
            let seems = output.len().saturating_mul(2 + left / used.max(1));
            let mut longer =
                buffers.spares.take(seems.min(GATHERED), GATHERED, &mut buffers.ledger);
            longer.extend_from_slice(output);
            output.clear();
            buffers.output = std::mem::replace(output, longer);
        }
        let holds = self.input.capacity() + output.capacity();
        if !buffers.ledger.set(&mut self.holds, holds, Use::Replies) {
            return false;
        }
        self.output = take(output);
        true
    }

    /// Sends the replies, and decides what the connection waits for.
    fn conclude(
        &mut self,
        output: &[u8],
        buffers: &mut WorkerBuffers<'_>,
    ) -> Result<ConnectionState, Errno> {
        if !self.send(output, buffers)? {
            return Ok(ConnectionState::Write);
        }
        Ok(match self.session.action() {
            SessionAction::Close => ConnectionState::Close,
            SessionAction::Shutdown => ConnectionState::Shutdown,
            SessionAction::Continue if self.is_paused => ConnectionState::Yielded,
            SessionAction::Continue => ConnectionState::Read,
        })
    }

    /// Sends replies. Returns false if some are left; these are kept.
    fn send(&mut self, output: &[u8], buffers: &mut WorkerBuffers<'_>) -> Result<bool, Errno> {
        if !buffers.context.handle.pinned.is_empty() {
            return self.send_pinned(output, buffers);
        }
        let Some(end) = self.write(output, 0, buffers)? else { return Ok(true) };
        self.keep(output.len() - end, [&output[end..]], buffers)?;
        Ok(false)
    }

    /// Sends replies with pinned values. Values that cannot be sent now are copied.
    fn send_pinned(
        &mut self,
        output: &[u8],
        buffers: &mut WorkerBuffers<'_>,
    ) -> Result<bool, Errno> {
        let mut pinned = take(&mut buffers.context.handle.pinned);
        let mut slices: Vec<_> = pinned.pieces(output).map(IoSlice::new).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let first = &rest[..rest.len().min(SLICES)];
            let nothing = &mut SendAncillaryBuffer::default();
            match sendmsg(&self.socket, first, nothing, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    debug_assert!(sent > 0, "server.V2: a gathered write sends nothing");
                    IoSlice::advance_slices(&mut rest, sent);
                    self.note_written(sent, buffers);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error),
            }
        }
        let left = rest.iter().map(|slice| slice.len()).sum();
        if left > 0 {
            self.keep(left, rest.iter().map(|slice| &**slice), buffers)?;
        }
        drop(slices);
        pinned.end();
        buffers.context.handle.pinned = pinned;
        Ok(left == 0)
    }

    /// Keeps the replies that the socket does not accept now.
    fn keep<'b>(
        &mut self,
        left: usize,
        parts: impl IntoIterator<Item = &'b [u8]>,
        buffers: &mut WorkerBuffers<'_>,
    ) -> Result<(), Errno> {
        if !buffers.ledger.set(&mut self.holds, self.input.capacity() + left, Use::Replies) {
            buffers.ledger.budget().count_closed();
            return Err(Errno::NOBUFS);
        }
        self.output = buffers.spares.take(left, left, &mut buffers.ledger);
        parts.into_iter().for_each(|part| self.output.extend_from_slice(part));
        let _ = self.hold(self.input.capacity(), Use::Bounded, buffers);
        Ok(())
    }

    fn note_written(&mut self, bytes: usize, buffers: &WorkerBuffers<'_>) {
        self.used = buffers.context.handle.store().clock().second();
        buffers.context.handle.counters.bytes_written.add(bytes as u64);
    }

    /// Sends the kept replies. Returns false if some are left.
    fn flush(&mut self, buffers: &mut WorkerBuffers<'_>) -> Result<bool, Errno> {
        let (kept, from) = (take(&mut self.output), take(&mut self.written));
        let end = self.write(&kept, from, buffers)?;
        match end {
            None => buffers.spares.give(kept, &mut buffers.ledger),
            // If the rest is small compared to its buffer's capacity, it moves to a smaller buffer.
            Some(end) if kept.len() - end < kept.capacity() / 2 => {
                self.output = kept[end..].to_vec();
            }
            Some(end) => (self.output, self.written) = (kept, end),
        }
        // Never refused: the connection holds no more than before.
        let _ = self.hold(self.input.capacity(), Use::Bounded, buffers);
        Ok(end.is_none())
    }

    /// Closes the TLS session in order, if there is one.
    pub(super) fn end(&mut self, buffers: &mut WorkerBuffers<'_>) {
        if let Some(tls) = &mut self.tls {
            tls.end(&mut Outlet(&self.socket));
        }
        let _ = buffers.ledger.set(&mut self.holds, 0, Use::Bounded);
    }

    /// Sends the pieces from `from` on. Returns the position reached if some are left.
    fn write(
        &mut self,
        bytes: &[u8],
        mut from: usize,
        buffers: &WorkerBuffers<'_>,
    ) -> Result<Option<usize>, Errno> {
        if let Some(tls) = &mut self.tls {
            let (end, is_sent) = write_encrypted(tls, &self.socket, bytes, from)?;
            if end > from {
                self.note_written(end - from, buffers);
            }
            return Ok((!is_sent).then_some(end));
        }
        while from < bytes.len() {
            match send(&self.socket, &bytes[from..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    from += sent;
                    self.note_written(sent, buffers);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Some(from)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The remaining input, and the capacity of the buffer that keeps it.
#[derive(Debug, Clone, Copy)]
struct Rest {
    from: usize,
    room: usize,
}
