//! The protocol state of a connection, without its socket: bytes in, replies out.
//!
//! Owns: the reply to each request. Laws:
//! - session.Q1 Replies are whole, and in the order of the requests.
//! - session.Q2 Unsent replies never exceed [`OUT_MAX`] bytes and one item. A request that was
//!   not answered is not consumed, and is parsed again when the replies have been sent.
//! - session.Q3 Gets, plain sets, and `mg`s that change nothing are executed in one batch if they
//!   arrive together, in their order. All other requests are answered one by one, but their keys
//!   are prefetched together.

mod admin;
mod admission;
pub(crate) mod batch;
mod classic;
mod logging;
mod refusal;

pub use crate::context::{Context, Progress, SessionAction};
pub use crate::reply::OUT_MAX;

use self::batch::Pending;
use self::classic::{END, change, get_and_touch, store, touch, value};
use crate::binary::BinarySession;
use crate::meta;
use crate::operator::Task;
use crate::prefetch::{prefetch_keys, scan_key};
use crate::protocol::{GET_LINE_TOO_LONG, KeyRoom, Mode, Parser, Request, Step, TOO_LARGE, binary};
use crate::reply::write_reply;
use crate::server_state::Language;
use crate::store::Outcome;
use std::sync::atomic::Ordering;

/// The protocol that a client speaks.
#[derive(Debug)]
enum Protocol {
    /// Unknown, because no byte was received.
    Unknown,
    /// The text and meta protocols.
    Text,
    /// The binary protocol.
    Binary(BinarySession),
}

/// One client's session.
#[derive(Debug)]
pub struct Session {
    /// The protocol of its listener, if the listener fixes a protocol.
    language: Option<Language>,
    /// The descriptor of its client; 0 for a session without a connection.
    client: i32,
    /// Whether it ends because of an error in the client's input.
    has_failed: bool,
    /// A task that runs instead of reading requests: a list, or a watch.
    task: Option<Box<Task>>,
    protocol: Protocol,
    parser: Parser,
    action: SessionAction,
    /// Whether the client is authenticated, if authentication is required.
    is_known: bool,
}

impl Session {
    /// Returns a new session.
    #[must_use]
    pub fn new(item_max: usize) -> Self {
        let (protocol, parser) = (Protocol::Unknown, Parser::new(item_max));
        Self {
            language: None,
            client: 0,
            has_failed: false,
            task: None,
            protocol,
            parser,
            action: SessionAction::Continue,
            is_known: false,
        }
    }

    /// Sets the longest line of a `get`, in bytes.
    #[must_use]
    pub fn with_get_line_max(self, bytes: usize) -> Self {
        Self { parser: self.parser.with_get_line_max(bytes), ..self }
    }

    /// Sets the protocol of the listener, if the listener fixes one.
    #[must_use]
    pub fn speaking(self, language: Option<Language>) -> Self {
        Self { language, ..self }
    }

    /// Sets the descriptor of the client. Such a client may request lists and events.
    #[must_use]
    pub fn of_client(self, client: i32) -> Self {
        Self { client, ..self }
    }

    /// Returns true if it ends because of an error in the client's input.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns true if its client watches events.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.is_watch())
    }

    /// Returns what it needs from its connection.
    #[must_use]
    pub fn action(&self) -> SessionAction {
        self.action
    }

    /// Returns true if it is between two requests, so that its end cuts off no request.
    #[must_use]
    pub fn is_between(&self) -> bool {
        match &self.protocol {
            Protocol::Binary(binary) => binary.is_between(),
            _ => self.parser.is_between(),
        }
    }

    /// As [`feed`](Self::feed), without logging.
    fn feed_all(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        mut budget: usize,
    ) -> Progress {
        let (mut used, mut prefetched) = match self.before_requests(context, input, out, budget) {
            Ok(used) => (used, 0),
            Err(progress) => return progress,
        };
        loop {
            if context.is_full(out) || self.action != SessionAction::Continue {
                self.answer_batch(context, input, out, &mut used);
                return Progress { used, is_paused: true };
            }
            let before = self.parser;
            match self.parser.next(&input[used..]) {
                Step::More(gone) => {
                    debug_assert!(gone <= input.len() - used, "protocol.P1: too much is dropped");
                    if self.answer_batch(context, input, out, &mut used) {
                        return Progress { used, is_paused: true };
                    }
                    used += gone;
                    if gone == 0 {
                        return Progress { used, is_paused: false };
                    }
                }
                // By reference, because a request is large, and most requests are only inspected
                // here.
                Step::Request { used: more, ref request, quiet } => {
                    request.check(more, &input[used..]);
                    let at = used;
                    used += more;
                    let pending = Pending::new(input, request, quiet, before, at);
                    // If a get's keys were the last within the budget, its end belongs to them.
                    if budget == 0 && pending.is_none_or(Pending::has_key) {
                        (self.parser, used) = (before, at);
                        self.answer_batch(context, input, out, &mut used);
                        return Progress { used, is_paused: true };
                    }
                    if at >= prefetched && pending.is_none() && breaks_batches(request) {
                        prefetched = prefetch_keys(&context.handle, input, at, scan_key);
                    }
                    if let Some(pending) = pending {
                        budget -= usize::from(pending.has_key());
                        if !context.batch.push(pending) {
                            continue;
                        }
                    }
                    // The request was parsed before the batch is executed. If the batch stops, the
                    // request is parsed again.
                    let after = self.parser;
                    if self.answer_batch(context, input, out, &mut used) {
                        return Progress { used, is_paused: true };
                    }
                    if pending.is_none() {
                        self.parser = after;
                        budget -= 1;
                        self.answer(context, *request, quiet, out);
                        if let Some(task) = &mut self.task {
                            return task.begin(at, used);
                        }
                    }
                }
            }
        }
    }

    /// Runs the steps before text requests. Returns the bytes that they consumed, or `Err` if
    /// nothing else can be done now.
    #[inline]
    fn before_requests(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Result<usize, Progress> {
        // session.Q1: an unfinished list was requested before this input.
        let mut used = self.go_on(context, input, out)?;
        if let Some(progress) = self.feed_binary(context, input, out, budget) {
            return Err(progress);
        }
        used += self
            .admit(context, &input[used..], out)
            .map_err(|progress| Progress { used: used + progress.used, ..progress })?;
        Ok(used)
    }

    /// Chooses the protocol by the client's first byte, unless the listener allows only one.
    #[inline]
    fn choose(&mut self, context: &Context<'_>, input: &[u8]) {
        if let (Protocol::Unknown, Some(first)) = (&self.protocol, input.first()) {
            let is_binary = match self.language.unwrap_or(context.server.settings.language) {
                Language::Any => *first == binary::MAGIC,
                Language::Text => false,
                Language::Binary => true,
            };
            self.protocol = if is_binary {
                Protocol::Binary(BinarySession::new(context))
            } else {
                Protocol::Text
            };
        }
    }

    /// As [`feed`](Self::feed), in the binary protocol. `None` if the client speaks another
    /// protocol.
    #[inline]
    fn feed_binary(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Option<Progress> {
        self.choose(context, input);
        match &mut self.protocol {
            Protocol::Binary(binary) => {
                let progress = binary.feed(context, input, out, budget);
                self.action = binary.action();
                Some(progress)
            }
            _ => None,
        }
    }

    /// Answers the batch of pending requests. Returns true if it stopped. Then the parser and
    /// `used` are reset to the first unanswered request (session.Q2).
    fn answer_batch(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        used: &mut usize,
    ) -> bool {
        let stopped = context.batch.answer(&mut context.handle, input, out);
        if let Some(first) = stopped {
            (self.parser, *used) = first.start();
        }
        stopped.is_some()
    }

    fn answer(
        &mut self,
        context: &mut Context<'_>,
        request: Request<'_>,
        quiet: bool,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let (handle, server) = (&mut context.handle, context.server);
        match request {
            Request::Get(key, gets) => get_and_touch(handle, key, gets, out),
            // Too large for the fields of a pending request, so answered alone.
            Request::GetOne(key) => handle.each_of([key], |handle, turn| {
                if let Some(item) = handle.get(turn) {
                    value(out, item, None);
                }
                out.extend_from_slice(END);
            }),
            Request::GetEnd => out.extend_from_slice(END),
            Request::Store(put) => store(handle, &put, out),
            Request::Delete(key) => out.extend_from_slice(match handle.delete(key, None) {
                Outcome::Stored => b"DELETED\r\n",
                _ => b"NOT_FOUND\r\n",
            }),
            Request::Arith(key, arith, delta) => change(handle, key, arith, delta, out),
            Request::Touch(key, exptime) => touch(handle, key, exptime, out),
            Request::Admin(admin) => self.admin(context, admin, out),
            Request::Error(words) => write_reply(out, words),
            Request::TooLarge(named, forget) => {
                handle.counters.store_too_large.inc();
                if forget {
                    handle.delete(named.key(&mut [0; size_of::<KeyRoom>()]), None);
                }
                write_reply(out, TOO_LARGE);
            }
            Request::Close(words) => {
                if words == GET_LINE_TOO_LONG {
                    // ORDER: Relaxed; a number.
                    server.long_lines.fetch_add(1, Ordering::Relaxed);
                }
                if !words.is_empty() {
                    write_reply(out, words);
                }
                self.action = SessionAction::Close;
                self.has_failed = true;
            }
            Request::Quit => self.action = SessionAction::Close,
            Request::MetaFlush(_) if !server.settings.flush_enabled => {
                write_reply(out, admin::no_flush_of_prefixes(handle));
            }
            request => meta::answer(handle, request, out),
        }
        if quiet {
            out.truncate(start);
        }
    }
}

/// Returns true if a request is answered alone, and is of a kind that clients send in series.
fn breaks_batches(request: &Request<'_>) -> bool {
    match request {
        Request::MetaGet(..) | Request::MetaStore(..) => true,
        Request::Store(put) => put.mode != Mode::Set,
        _ => false,
    }
}
