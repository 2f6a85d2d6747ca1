//! The protocol state of a connection, apart from its socket: bytes in, replies out.
//!
//! Owns: the reply to each request. Laws:
//! - session.Q1 Replies are in the order of the requests, each whole.
//! - session.Q2 Unsent replies never exceed [`OUT_MAX`] bytes and one item: a request that was not
//!   answered is not consumed, and is parsed again when the replies have been sent.
//! - session.Q3 Gets, plain sets, and `mg`s that change nothing are batched if they arrive
//!   together, and executed in one batch, in their order; the keys of requests that are answered
//!   one by one are prefetched together.

mod admin;
mod classic;
pub(crate) mod logged;
mod refusal;

use self::classic::{change, get_and_touch, set, store, touch, value, value_line};
use crate::ahead::{fetch_ahead, glance};
use crate::binary::Talk;
use crate::meta;
use crate::operator::Task;
use crate::protocol::{
    Gets, KeyRoom, Mode, Parser, Request, Step, Store as Put, TOO_LARGE, binary,
};
use crate::reply::say;
use crate::report::{Facts, Language};
use crate::store::{Handle, Outcome, Turn};

/// Bytes of unsent replies at which the session stops answering until they are sent.
pub const OUT_MAX: usize = 256 << 10;
/// Keys that are looked up in one batch.
const TOGETHER: usize = 64;

const END: &[u8] = b"END\r\n";

/// What the session needs from its connection once its replies are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Continue.
    Stay,
    /// Close the connection.
    Close,
    /// Shut the server down.
    Shutdown,
}

/// A parsed request, or a key of one, that is not answered yet.
#[derive(Debug, Clone, Copy)]
struct Pending {
    /// The offset of the key in the input.
    from: u32,
    length: u8,
    kind: Kind,
    /// The parser's state before this request, and the bytes consumed by then.
    before: Parser,
    used: u32,
}

/// The kind of a pending request.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A key of a get, and whether it is the last one, after which the reply ends.
    Get { with_cas: bool, ends: bool },
    /// The end of a get.
    End,
    /// A plain `mg`.
    Meta(meta::Plain),
    /// A plain set, and the range of its value in the input.
    Set { flags: u32, exptime: i64, data: (u32, u32), quiet: bool },
}

/// The state that a worker's sessions share.
pub struct Context<'s> {
    /// The items.
    pub handle: Handle<'s>,
    /// The state of the server.
    pub facts: &'s Facts,
    pending: Vec<Pending>,
}

impl<'s> Context<'s> {
    /// Whether the replies are so long that they must be sent before more requests are answered.
    #[inline]
    pub(crate) fn is_full(&self, out: &[u8]) -> bool {
        out.len() + self.handle.pinned.bytes() >= OUT_MAX
    }

    /// The context of one worker.
    pub fn new(handle: Handle<'s>, facts: &'s Facts) -> Self {
        Self { handle, facts, pending: Vec::with_capacity(2 * TOGETHER) }
    }
}

/// The protocol that a client speaks.
#[derive(Debug)]
enum Spoken {
    /// Not known: no byte was received.
    Nothing,
    /// The text and meta protocols.
    Text,
    /// The binary protocol.
    Binary(Talk),
}

/// One client's session.
#[derive(Debug)]
pub struct Session {
    /// The protocol of its listener, if that has one of its own.
    language: Option<Language>,
    /// The descriptor of its client; 0 for a session without a connection.
    client: i32,
    /// Whether it ends because of an error in the client's input.
    has_failed: bool,
    /// A task that it runs instead of reading requests: a list, or a watch.
    task: Option<Box<Task>>,
    spoken: Spoken,
    parser: Parser,
    wish: Wish,
    /// Whether the client is authenticated, where that is required.
    is_known: bool,
}

/// How far a call to the session came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the input that are consumed.
    pub used: usize,
    /// Whether it stopped although a request may be left: at the bound on replies, or of the
    /// budget.
    pub is_paused: bool,
}

impl Session {
    /// A new session.
    #[must_use]
    pub fn new(item_max: usize) -> Self {
        let (spoken, parser) = (Spoken::Nothing, Parser::new(item_max));
        Self {
            language: None,
            client: 0,
            has_failed: false,
            task: None,
            spoken,
            parser,
            wish: Wish::Stay,
            is_known: false,
        }
    }

    /// The same on a listener with a protocol of its own.
    #[must_use]
    pub fn speaking(self, language: Option<Language>) -> Self {
        Self { language, ..self }
    }

    /// The same for the client with this descriptor, which may request lists and events.
    #[must_use]
    pub fn of_client(self, client: i32) -> Self {
        Self { client, ..self }
    }

    /// Whether it ends because of an error in the client's input.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether its client watches events.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.is_watch())
    }

    /// What it needs from its connection.
    #[must_use]
    pub fn wish(&self) -> Wish {
        self.wish
    }

    /// Whether it is between two requests, so that its end cuts none off.
    #[must_use]
    pub fn is_between(&self) -> bool {
        match &self.spoken {
            Spoken::Binary(talk) => talk.is_between(),
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
        let (mut used, mut fetched) = match self.before_requests(context, input, out, budget) {
            Ok(used) => (used, 0),
            Err(progress) => return progress,
        };
        loop {
            if context.is_full(out) || self.wish != Wish::Stay {
                self.look_up(context, input, out, &mut used);
                return Progress { used, is_paused: true };
            }
            let before = self.parser;
            match self.parser.next(&input[used..]) {
                Step::More(gone) => {
                    if self.look_up(context, input, out, &mut used) {
                        return Progress { used, is_paused: true };
                    }
                    used += gone;
                    if gone == 0 {
                        return Progress { used, is_paused: false };
                    }
                }
                // By reference: a request is large, and most are only looked at here.
                Step::Request { used: more, ref request, quiet } => {
                    let at = used;
                    used += more;
                    let pending = pending(input, request, quiet, before, at);
                    // The end of a get whose keys were the last within the budget belongs to them.
                    if budget == 0 && pending.is_none_or(Pending::has_key) {
                        (self.parser, used) = (before, at);
                        self.look_up(context, input, out, &mut used);
                        return Progress { used, is_paused: true };
                    }
                    if at >= fetched && pending.is_none() && breaks_batches(request) {
                        fetched = fetch_ahead(context, input, at, glance);
                    }
                    if let Some(pending) = pending {
                        budget -= usize::from(pending.has_key());
                        context.pending.push(pending);
                        if context.pending.len() < TOGETHER {
                            continue;
                        }
                    }
                    // The request was parsed before the batch is executed: if the batch stops, it
                    // is parsed again.
                    let after = self.parser;
                    if self.look_up(context, input, out, &mut used) {
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

    /// The steps before text requests: returns the bytes that they consumed, or `Err` if they were
    /// all that can be done now.
    #[inline]
    fn before_requests(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Result<usize, Progress> {
        // session.Q1: a list that is not complete was requested before this input.
        let mut used = self.go_on(context, input, out)?;
        if let Some(progress) = self.feed_binary(context, input, out, budget) {
            return Err(progress);
        }
        if let Some(auth) = context.facts.auth.as_ref().filter(|_| !self.is_known) {
            let admission = auth.admit(context, &input[used..], out);
            used += admission.used;
            self.is_known = admission.is_known;
            if admission.ends {
                self.wish = Wish::Close;
            }
            if !self.is_known {
                return Err(Progress { used, is_paused: out.len() >= OUT_MAX });
            }
        }
        Ok(used)
    }

    /// Chooses the protocol by the client's first byte, unless the listener allows only one.
    #[inline]
    fn choose(&mut self, context: &Context<'_>, input: &[u8]) {
        if let (Spoken::Nothing, Some(first)) = (&self.spoken, input.first()) {
            let is_binary = match self.language.unwrap_or(context.facts.settings.language) {
                Language::Any => *first == binary::MAGIC,
                Language::Text => false,
                Language::Binary => true,
            };
            self.spoken = if is_binary { Spoken::Binary(Talk::new(context)) } else { Spoken::Text };
        }
    }

    /// As [`feed`](Self::feed) in the binary protocol; `None` if the client speaks the other.
    #[inline]
    fn feed_binary(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Option<Progress> {
        self.choose(context, input);
        match &mut self.spoken {
            Spoken::Binary(talk) => {
                let progress = talk.feed(context, input, out, budget);
                self.wish = talk.wish();
                Some(progress)
            }
            _ => None,
        }
    }

    /// Answers the batch of pending requests. True if it stopped: then the parser and `used` are
    /// reset to the first request that was not answered (session.Q2).
    fn look_up(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        used: &mut usize,
    ) -> bool {
        // session.Q3: in the order of the requests.
        if context.pending.is_empty() {
            return false;
        }
        let pending = std::mem::take(&mut context.pending);
        let mut keys = pending.iter().filter(|p| p.has_key()).map(|p| p.key(input));
        let mut answered = 0;
        let ends = |out: &mut Vec<u8>, answered: &mut usize| {
            while pending.get(*answered).is_some_and(|p| !p.has_key()) && out.len() < OUT_MAX {
                out.extend_from_slice(END);
                *answered += 1;
            }
        };
        ends(out, &mut answered);
        context.handle.each_of(&mut keys, |handle, turn| {
            if out.len() + handle.pinned.bytes() >= OUT_MAX {
                return;
            }
            pending[answered].answer(handle, turn, input, out);
            answered += 1;
            ends(out, &mut answered);
        });
        let stopped = pending.get(answered).copied();
        if let Some(first) = stopped {
            self.parser = first.before;
            *used = first.used as usize;
        }
        context.pending = pending;
        context.pending.clear();
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
        let (handle, facts) = (&mut context.handle, context.facts);
        match request {
            Request::Get(key, gets) => get_and_touch(handle, key, gets, out),
            // Too large for the fields of a pending request: answered alone.
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
            Request::Error(words) => say(out, words),
            Request::TooLarge(named, forget) => {
                handle.counters.store_too_large.inc();
                if forget {
                    handle.delete(named.key(&mut [0; size_of::<KeyRoom>()]), None);
                }
                say(out, TOO_LARGE);
            }
            Request::Close(words) => {
                if !words.is_empty() {
                    say(out, words);
                }
                self.wish = Wish::Close;
                self.has_failed = true;
            }
            Request::Quit => self.wish = Wish::Close,
            Request::MetaFlush(_) if !facts.settings.flush_enabled => {
                say(out, admin::no_flush_of_prefixes(handle));
            }
            request => meta::answer(handle, request, out),
        }
        if quiet {
            out.truncate(start);
        }
    }
}

impl Pending {
    fn key(self, input: &[u8]) -> &[u8] {
        &input[self.from as usize..][..usize::from(self.length)]
    }

    #[inline]
    fn has_key(self) -> bool {
        !matches!(self.kind, Kind::End)
    }

    /// Answers this pending request, which has a key.
    #[inline]
    fn answer(self, handle: &mut Handle<'_>, turn: Turn<'_>, input: &[u8], out: &mut Vec<u8>) {
        match self.kind {
            Kind::Get { with_cas, ends } => {
                if let Some(item) = handle.get(turn) {
                    let view = item.view();
                    value_line(out, &view, with_cas.then(|| handle.cas(item)));
                    if view.has_tail() {
                        handle.write_value(turn, item, out);
                    } else {
                        view.write_value(out);
                    }
                    out.extend_from_slice(b"\r\n");
                }
                if ends {
                    out.extend_from_slice(END);
                }
            }
            Kind::Set { flags, exptime, data: (from, length), quiet } => {
                let data = &input[from as usize..][..length as usize];
                let said = set(handle, turn, (self.key(input), data), flags, exptime);
                if !quiet {
                    out.extend_from_slice(said);
                }
            }
            Kind::Meta(plain) => plain.answer(handle, turn, (self.key(input), input), out),
            Kind::End => {}
        }
    }
}

/// Whether a request is answered alone, and is of a kind that clients send in series.
fn breaks_batches(request: &Request<'_>) -> bool {
    match request {
        Request::MetaGet(..) | Request::MetaStore(..) => true,
        Request::Store(put) => put.mode != Mode::Set,
        _ => false,
    }
}

/// The request as a pending one, if it can be batched.
#[inline]
fn pending(
    input: &[u8],
    request: &Request<'_>,
    quiet: bool,
    before: Parser,
    used: usize,
) -> Option<Pending> {
    let place = |part: &[u8]| u32::try_from(part.as_ptr() as usize - input.as_ptr() as usize).ok();
    let used = u32::try_from(used).ok()?;
    let (key, kind) = match *request {
        Request::GetOne(key) => (key, Kind::Get { with_cas: false, ends: true }),
        Request::Get(key, Gets { cas, touch: None }) => {
            (key, Kind::Get { with_cas: cas, ends: false })
        }
        Request::GetEnd => {
            return Some(Pending { from: 0, length: 0, kind: Kind::End, before, used });
        }
        Request::Store(Put { key, flags, exptime, mode: Mode::Set, data }) => {
            let data = (place(data)?, u32::try_from(data.len()).ok()?);
            (key, Kind::Set { flags, exptime, data, quiet })
        }
        Request::MetaGet(named, ref flags) => {
            (named.sent, Kind::Meta(meta::Plain::new(input, named, flags)?))
        }
        _ => return None,
    };
    Some(Pending { from: place(key)?, length: key.len() as u8, kind, before, used })
}
