//! Replies in the binary protocol.

mod logging;

use crate::auth::Auth;
use crate::context::{Context, Progress, SessionAction};
use crate::prefetch::prefetch_keys;
use crate::protocol::binary::{
    Access, Delta, HEADER, Head, Look, Parser, REPLY_MAGIC, Request, Status, Step, scan_key,
};
use crate::protocol::{Mode, Store as Put, Words};
use crate::reply::OUT_MAX;
use crate::server_state::{ServerState, VERSION};
use crate::stats_command;
use crate::store::{Change, Counters, Handle, Item, NewItem, Outcome, StoreCondition};

/// The only SASL mechanism: a user and a password in plain text.
const PLAIN: &[u8] = b"PLAIN";

/// The binary protocol's part of a client's session.
#[derive(Debug)]
pub(crate) struct BinarySession {
    parser: Parser,
    action: SessionAction,
    /// Whether the client has begun an authentication.
    has_begun: bool,
}

impl BinarySession {
    /// Returns a new session.
    pub(crate) fn new(context: &Context<'_>) -> Self {
        let access =
            if context.server.auth.is_some() { Access::Denied } else { Access::Unrestricted };
        let parser = Parser::new(context.handle.store().limits().item, access);
        Self { parser, action: SessionAction::Continue, has_begun: false }
    }

    /// Returns what it needs from its connection.
    pub(crate) fn action(&self) -> SessionAction {
        self.action
    }

    /// Returns true if it is between two requests, so that its end cuts off no request.
    pub(crate) fn is_between(&self) -> bool {
        self.parser.is_between()
    }

    /// Returns the total length of the incomplete request that begins here, if it is known.
    pub(crate) fn whole_length(&self, input: &[u8]) -> Option<usize> {
        let mut parser = self.parser;
        let Some(Step::Request(used, ..)) = parser.refuse_value(input) else { return None };
        Some(used + parser.awaited())
    }

    /// Refuses the incomplete request that begins here, for lack of memory. The rest of its value
    /// is dropped as it is received, or the connection is closed. Returns the bytes used.
    pub(crate) fn refuse(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> usize {
        let step = self.parser.refuse_value(input);
        let Some(Step::Request(used, head, Request::TooLarge(gone))) = step else {
            self.action = SessionAction::Close;
            return input.len();
        };
        debug_assert!(used <= input.len(), "protocol.P1: a refusal takes {used} bytes too many");
        context.handle.counters.store_no_memory.inc();
        if let Some(key) = gone {
            // The item in the store would be out of date.
            context.handle.delete(key, None);
        }
        no_room(out, head, "Out of memory allocating item");
        used
    }

    /// Answers the requests in the input, up to `budget` requests.
    pub(crate) fn feed(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        mut budget: usize,
    ) -> Progress {
        let (mut used, mut prefetched) = (0, 0);
        loop {
            if out.len() >= OUT_MAX || budget == 0 || self.action != SessionAction::Continue {
                return Progress { used, is_paused: true };
            }
            match self.parser.next(&input[used..]) {
                Step::More(0) => return Progress { used, is_paused: false },
                Step::More(gone) => {
                    used += gone;
                    debug_assert!(
                        used <= input.len(),
                        "protocol.P1: more is dropped than is there"
                    );
                }
                Step::Request(more, head, request) => {
                    request.check(more, &input[used..]);
                    if used >= prefetched {
                        prefetched = prefetch_keys(&context.handle, input, used, scan_key);
                    }
                    used += more;
                    budget -= 1;
                    self.answer(context, head, request, out);
                }
            }
        }
    }

    fn answer(
        &mut self,
        context: &mut Context<'_>,
        head: Head,
        request: Request<'_>,
        out: &mut Vec<u8>,
    ) {
        let server = context.server;
        let handle = &mut context.handle;
        match request {
            Request::Look(key, want) => look(handle, head, key, want, out),
            Request::Store(put) => store(handle, head, &put, out),
            Request::Delete(key) => match handle.delete(key, head.wanted()) {
                Outcome::Stored => done(out, head, 0, &[]),
                Outcome::Exists => fail(out, head, Status::Exists),
                _ => fail(out, head, Status::NotFound),
            },
            Request::Arith(key, delta) => change(handle, head, key, delta, out),
            Request::Flush(_) if !server.settings.flush_enabled => {
                fail(out, head, Status::AuthFailed);
            }
            Request::Flush(delay) => {
                handle.flush(i64::from(delay));
                done(out, head, 0, &[]);
            }
            Request::Noop | Request::Verbosity => done(out, head, 0, &[]),
            Request::Version => done(out, head, 0, VERSION.as_bytes()),
            Request::Stats(which) => stats(context, head, which, out),
            Request::Mechanisms => done(out, head, 0, PLAIN),
            Request::Auth(mechanism, proof) => {
                self.has_begun = mechanism.eq_ignore_ascii_case(PLAIN);
                let begins = self.has_begun && proof.is_empty();
                self.authenticate(context, head, (!begins).then_some(proof), out);
            }
            Request::AuthStep(proof) => self.authenticate(context, head, Some(proof), out),
            Request::TooLarge(gone) => {
                handle.counters.store_too_large.inc();
                if let Some(key) = gone {
                    handle.delete(key, None);
                }
                fail(out, head, Status::TooLarge);
            }
            Request::Error(status) => {
                if status == Status::AuthFailed {
                    count_refusal(handle.counters, server, "a proof that is too long");
                }
                fail(out, head, status);
            }
            Request::Quit => {
                done(out, head, 0, &[]);
                self.action = SessionAction::Close;
            }
            Request::Close(status) => {
                if let Some(status) = status {
                    fail(out, head, status);
                }
                self.action = SessionAction::Close;
            }
        }
    }

    /// Authenticates the client, refuses it, or asks for missing credentials. A client that
    /// authenticates again loses its access until the new credentials are accepted.
    fn authenticate(
        &mut self,
        context: &Context<'_>,
        head: Head,
        proof: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) {
        let (counters, server) = (context.handle.counters, context.server);
        self.parser.access = Access::Denied;
        let Some(proof) = proof else {
            return packet(out, head, Status::AuthGoesOn, 0, [&[]; 3]);
        };
        let has_begun = std::mem::take(&mut self.has_begun);
        let users = server.auth.as_ref();
        let is_known = |(user, password): (&[u8], &[u8])| {
            users.is_some_and(|users: &Auth| {
                server.refresh_users();
                users.knows(user, password)
            })
        };
        let refusal = match pair(proof) {
            _ if !has_begun => "another mechanism than PLAIN, or none begun",
            None => "no user and password",
            Some(pair) if !is_known(pair) => "no such user, or another password",
            Some(_) => "",
        };
        if refusal.is_empty() {
            counters.auth_cmds.inc();
            self.parser.access = Access::Granted;
            done(out, head, 0, b"Authenticated");
        } else {
            count_refusal(counters, server, refusal);
            fail(out, head, Status::AuthFailed);
        }
    }
}

/// Counts and logs a refused authentication.
fn count_refusal(counters: &Counters, server: &ServerState, reason: &str) {
    counters.auth_cmds.inc();
    counters.auth_errors.inc();
    server.log_refusal(reason);
}

impl Head {
    /// Returns the version that the item must have (compare-and-swap).
    fn wanted(self) -> Option<u64> {
        (self.cas != 0).then_some(self.cas)
    }
}

/// Returns the user and the password of PLAIN credentials. The authorization identity before them
/// must be empty or the user itself.
fn pair(proof: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = proof.splitn(3, |byte| *byte == 0);
    let (name, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    (name.is_empty() || name == user).then_some((user, password))
}

/// Writes a reply packet; its parts are extras, key and value.
fn packet(out: &mut Vec<u8>, head: Head, status: Status, cas: u64, parts: [&[u8]; 3]) {
    header(out, head, status, cas, parts.map(<[u8]>::len));
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Writes the header before extras, a key and a value of these lengths.
fn header(out: &mut Vec<u8>, head: Head, status: Status, cas: u64, lengths: [usize; 3]) {
    let [extras, key, value] = lengths;
    debug_assert!(
        extras <= 4 && u16::try_from(key).is_ok() && u32::try_from(extras + key + value).is_ok(),
        "a reply's lengths do not fit its header: {lengths:?}"
    );
    let body = extras + key + value;
    out.reserve(HEADER + body);
    out.extend_from_slice(&[REPLY_MAGIC, head.opcode]);
    // The casts are lossless: extras have at most 4 bytes, a key 250, and a value is far below 4
    // GB.
    out.extend_from_slice(&(key as u16).to_be_bytes());
    out.extend_from_slice(&[extras as u8, 0]);
    out.extend_from_slice(&(status as u16).to_be_bytes());
    out.extend_from_slice(&(body as u32).to_be_bytes());
    out.extend_from_slice(&head.opaque);
    out.extend_from_slice(&cas.to_be_bytes());
}

/// Replies success, unless the command is quiet.
fn done(out: &mut Vec<u8>, head: Head, cas: u64, value: &[u8]) {
    if !head.quiet {
        packet(out, head, Status::Done, cas, [&[], &[], value]);
    }
}

/// Replies an error, even if the command is quiet.
fn fail(out: &mut Vec<u8>, head: Head, status: Status) {
    packet(out, head, status, 0, [&[], &[], status.text().as_bytes()]);
}

/// Replies that there is no room. `words` name the cause.
fn no_room(out: &mut Vec<u8>, head: Head, words: &str) {
    packet(out, head, Status::NoMemory, 0, [&[], &[], words.as_bytes()]);
}

fn look(handle: &mut Handle<'_>, head: Head, key: &[u8], want: Look, out: &mut Vec<u8>) {
    let Some(exptime) = want.touch else {
        return handle.each_of([key], |handle, turn| match handle.get(turn) {
            Some(item) => hit(out, head, want, item, handle.cas(item)),
            None => miss(out, head, want, key),
        });
    };
    let clock = handle.store().clock();
    let counters = handle.counters;
    counters.cmd_touch.inc();
    let found = handle.touch(key, clock.deadline(i64::from(exptime)));
    handle.note_get(key, found.as_ref().map(|found| found.key()));
    if let Some(found) = found {
        handle.bump(key);
        counters.touch_hits.inc();
        found.key().touch(clock.second());
        hit(out, head, want, found.key(), handle.cas(found.key()));
    } else {
        counters.touch_misses.inc();
        miss(out, head, want, key);
    }
}

fn hit(out: &mut Vec<u8>, head: Head, want: Look, item: &Item, cas: u64) {
    let key = if want.key { item.key() } else { &[] };
    let value = if want.value { item.value_len() } else { 0 };
    let flags = item.flags().to_be_bytes();
    header(out, head, Status::Done, cas, [flags.len(), key.len(), value]);
    out.extend_from_slice(&flags);
    out.extend_from_slice(key);
    if want.value {
        item.write_value(out);
    }
}

fn miss(out: &mut Vec<u8>, head: Head, want: Look, key: &[u8]) {
    if head.quiet {
        return;
    }
    if want.key {
        // The key takes the place of the error text.
        packet(out, head, Status::NotFound, 0, [&[], key, &[]]);
    } else {
        fail(out, head, Status::NotFound);
    }
}

fn store(handle: &mut Handle<'_>, head: Head, put: &Put<'_>, out: &mut Vec<u8>) {
    handle.counters.cmd_set.inc();
    let deadline = handle.store().clock().deadline(put.exptime);
    let new_item = NewItem { flags: put.flags, deadline, ..NewItem::new(put.key, put.data) };
    let extends = matches!(put.mode, Mode::Append | Mode::Prepend);
    let cas = head.wanted();
    // A version is a condition of its own, and replaces the command's condition.
    let mode = if cas.is_some() && !extends { Mode::Set } else { put.mode };
    let written = handle.put(&new_item, StoreCondition { cas, ..StoreCondition::plain(mode) });
    let status = match written.outcome {
        Outcome::Stored => return done(out, head, written.cas, &[]),
        Outcome::NoMemory if !extends => {
            return no_room(out, head, "Out of memory allocating item");
        }
        Outcome::Exists => Status::Exists,
        Outcome::NotFound => Status::NotFound,
        Outcome::NotStored | Outcome::NoMemory => match mode {
            Mode::Add => Status::Exists,
            Mode::Replace => Status::NotFound,
            _ => Status::NotStored,
        },
    };
    fail(out, head, status);
}

fn change(handle: &mut Handle<'_>, head: Head, key: &[u8], delta: Delta, out: &mut Vec<u8>) {
    let [hits, misses] = handle.counters.of_change(delta.arith);
    loop {
        match handle.change(key, (delta.arith, delta.by), head.wanted(), None, None) {
            Change::Done(number, cas, _) => {
                hits.inc();
                return done(out, head, cas, &number.to_be_bytes());
            }
            Change::NoNumber => return fail(out, head, Status::NoNumber),
            Change::Exists => return fail(out, head, Status::Exists),
            Change::NoMemory => return no_room(out, head, "Out of memory incrementing value"),
            Change::Missing => {}
        }
        let Some(exptime) = delta.exptime else {
            misses.inc();
            return fail(out, head, Status::NotFound);
        };
        let mut digits = itoa::Buffer::new();
        let text = digits.format(delta.initial).as_bytes();
        let deadline = handle.store().clock().deadline(i64::from(exptime));
        let new_item = NewItem { deadline, ..NewItem::new(key, text) };
        let written = handle.put(&new_item, StoreCondition::plain(Mode::Add));
        match written.outcome {
            Outcome::Stored => {
                return done(out, head, written.cas, &delta.initial.to_be_bytes());
            }
            // Another client has created the item meanwhile: try again.
            Outcome::NotStored => {}
            _ => return no_room(out, head, "Out of memory allocating new item"),
        }
    }
}

/// Sends the text protocol's report, with a packet for each line and an empty packet at the end.
fn stats(context: &Context<'_>, head: Head, which: &[u8], out: &mut Vec<u8>) {
    let mut text = Vec::new();
    match which {
        // Only in the text protocol.
        b"conns" => {}
        which if which.starts_with(b"cachedump") => {}
        // The text protocol's report, unchanged.
        b"detail dump" => {
            context.handle.store().events().dump_details(&mut text);
            text.extend_from_slice(b"END\r\n");
            packet(out, head, Status::Done, 0, [&[], b"detailed", &text]);
        }
        _ => stats_command::stats(&context.handle, context.server, Words::new(which), &mut text),
    }
    if ![&b"END\r\n"[..], b"OK\r\n", b"RESET\r\n"].iter().any(|end| text.ends_with(end)) {
        return fail(out, head, Status::NotFound);
    }
    for line in text.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"STAT ")) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (name, value) = line.split_at(end);
        packet(out, head, Status::Done, 0, [&[], name, value.strip_prefix(b" ").unwrap_or(value)]);
    }
    packet(out, head, Status::Done, 0, [&[]; 3]);
}
