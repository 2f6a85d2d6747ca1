//! The binary protocol, without sockets: bytes in, requests out.
//!
//! A packet is a header of 24 bytes, then extras, key and value. Their lengths are in the header:
//!
//! ```text
//! 0 magic   1 opcode   2 length of the key   4 length of the extras   5 type of data (nothing)
//! 6 status (replies)   8 length of all three   12 opaque: echoed       16 version, or 0
//! ```
//!
//! Owns: what a header means, and which lengths a command may have. Does not own: buffers, items,
//! passwords, replies to well-formed requests. Its laws are those of the text parser (protocol.P1
//! to protocol.P3), and
//! - binary.B1 The parser waits for at most a header, extras, a key of 64 KiB, and a value
//!   within the limit.
//! - binary.B2 If authentication is required, the parser waits for no value of an
//!   unauthenticated client, except credentials.
//!
//! Source: memcached's `doc/protocol-binary.txt`; statuses and their texts as memcached 1.6 sends
//! them.

use super::{Arith, KEY_MAX, Mode, Store, meta::ITEM_HEADER};

/// The first byte of every request.
pub const MAGIC: u8 = 0x80;
/// The first byte of every reply.
pub const REPLY_MAGIC: u8 = 0x81;
/// Bytes before extras, key and value.
pub const HEADER: usize = 24;
/// The longest body. The connection of a packet that claims more is closed, as in memcached. (If
/// the body were dropped as it is received, it would take the requests behind it with it.)
const BODY_MAX: u64 = 1 << 30;
/// The longest name of a SASL mechanism.
const MECHANISM_MAX: usize = 32;
/// The longest credentials.
const PROOF_MAX: usize = 2048;

/// The status of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Success.
    Done = 0,
    /// There is no item.
    NotFound = 1,
    /// There is an item, or an item of another version.
    Exists = 2,
    /// The value is above the limit.
    TooLarge = 3,
    /// The lengths are not those of the command.
    Invalid = 4,
    /// There is no item to append to.
    NotStored = 5,
    /// The item's value is not a number.
    NoNumber = 6,
    /// Authentication failed, or is required.
    AuthFailed = 0x20,
    /// Authentication needs a further step.
    AuthGoesOn = 0x21,
    /// Unknown command.
    Unknown = 0x81,
    /// Out of memory.
    NoMemory = 0x82,
}

impl Status {
    /// Returns the text of the error reply.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Done | Self::AuthGoesOn => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NoNumber => "Non-numeric server-side value for incr or decr",
            Self::AuthFailed => "Auth failure.",
            Self::Unknown => "Unknown command",
            Self::NoMemory => "Out of memory",
        }
    }
}

/// The fields of a header that every command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The opcode.
    pub opcode: u8,
    /// Echoed in the reply.
    pub opaque: [u8; 4],
    /// The version that the item must have; 0 is any.
    pub cas: u64,
    /// Whether the usual outcome has no reply.
    pub quiet: bool,
}

/// What a look-up requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// A new TTL.
    pub touch: Option<u32>,
    /// The key in the reply.
    pub key: bool,
    /// The value in the reply.
    pub value: bool,
}

/// An increment or decrement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    /// Whether it increments or decrements.
    pub arith: Arith,
    /// The difference.
    pub by: u64,
    /// The initial value if there is no item.
    pub initial: u64,
    /// The TTL of an item with the initial value. `None` creates no item.
    pub exptime: Option<u32>,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// The value of a key, or a new TTL.
    Look(&'a [u8], Look),
    /// A storage command; its condition on the version is in the head.
    Store(Store<'a>),
    /// Deletes a key.
    Delete(&'a [u8]),
    /// Increments or decrements a number.
    Arith(&'a [u8], Delta),
    /// Invalidates all items, now or after this many seconds.
    Flush(u32),
    /// No operation.
    Noop,
    /// The name and version of the server.
    Version,
    /// The verbosity of the log.
    Verbosity,
    /// Statistics of this name.
    Stats(&'a [u8]),
    /// Lists the SASL mechanisms.
    Mechanisms,
    /// Authentication: mechanism and credentials.
    Auth(&'a [u8], &'a [u8]),
    /// The next step of an authentication.
    AuthStep(&'a [u8]),
    /// Reply and close.
    Quit,
    /// Reply that the value is too large, and delete the item of this key.
    TooLarge(Option<&'a [u8]>),
    /// Reply with this error.
    Error(Status),
    /// Reply with this error, if any, and close.
    Close(Option<Status>),
}

/// A step of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// No whole request was received. This many bytes can be dropped nevertheless.
    More(usize),
    /// A request, and the bytes that it took.
    Request(usize, Head, Request<'a>),
}

impl Request<'_> {
    /// Asserts what callers rely on in a request of `used` bytes: its position in the input
    /// (protocol.P1), and the length of its key (protocol.P3).
    #[inline(always)]
    pub(crate) fn check(&self, used: usize, input: &[u8]) {
        debug_assert!(
            (1..=input.len()).contains(&used),
            "protocol.P1: a packet has {used} bytes of {}",
            input.len()
        );
        match self {
            Self::Look(key, _)
            | Self::Store(Store { key, .. })
            | Self::Delete(key)
            | Self::Arith(key, _)
            | Self::TooLarge(Some(key)) => debug_assert!(
                (1..=KEY_MAX).contains(&key.len()),
                "protocol.P3: a key has {} bytes",
                key.len()
            ),
            _ => {}
        }
    }
}

/// Whether a client is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No authentication is required or possible.
    Unrestricted,
    /// It is required, and this client is not authenticated.
    Denied,
    /// This client is authenticated.
    Granted,
}

/// The parser of a stream: its state between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parser {
    /// Bytes of a refused value that are still to be received and dropped.
    to_drop: u64,
    /// The largest value.
    value_max: usize,
    /// Whether the client is authenticated. The layer that replies sets it.
    pub access: Access,
}

/// The commands, without their quiet forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Get { key: bool },
    Gat { key: bool },
    Touch,
    Put(Mode),
    Extend(Mode),
    Delete,
    Arith(Arith),
    Flush,
    Noop,
    Version,
    Verbosity,
    Stats,
    Mechanisms,
    Auth,
    AuthStep,
    Quit,
}

/// Returns the command of an opcode, and true if it is the quiet form.
fn command(opcode: u8) -> Option<(Command, bool)> {
    let loud = |command| Some((command, false));
    let quiet = |command| Some((command, true));
    match opcode {
        0x00 => loud(Command::Get { key: false }),
        0x09 => quiet(Command::Get { key: false }),
        0x0c => loud(Command::Get { key: true }),
        0x0d => quiet(Command::Get { key: true }),
        0x01 => loud(Command::Put(Mode::Set)),
        0x11 => quiet(Command::Put(Mode::Set)),
        0x02 => loud(Command::Put(Mode::Add)),
        0x12 => quiet(Command::Put(Mode::Add)),
        0x03 => loud(Command::Put(Mode::Replace)),
        0x13 => quiet(Command::Put(Mode::Replace)),
        0x04 => loud(Command::Delete),
        0x14 => quiet(Command::Delete),
        0x05 => loud(Command::Arith(Arith::Incr)),
        0x15 => quiet(Command::Arith(Arith::Incr)),
        0x06 => loud(Command::Arith(Arith::Decr)),
        0x16 => quiet(Command::Arith(Arith::Decr)),
        0x07 => loud(Command::Quit),
        0x17 => quiet(Command::Quit),
        0x08 => loud(Command::Flush),
        0x18 => quiet(Command::Flush),
        0x0a => loud(Command::Noop),
        0x0b => loud(Command::Version),
        0x0e => loud(Command::Extend(Mode::Append)),
        0x19 => quiet(Command::Extend(Mode::Append)),
        0x0f => loud(Command::Extend(Mode::Prepend)),
        0x1a => quiet(Command::Extend(Mode::Prepend)),
        0x10 => loud(Command::Stats),
        0x1b => loud(Command::Verbosity),
        0x1c => loud(Command::Touch),
        0x1d => loud(Command::Gat { key: false }),
        0x1e => quiet(Command::Gat { key: false }),
        0x23 => loud(Command::Gat { key: true }),
        0x24 => quiet(Command::Gat { key: true }),
        0x20 => loud(Command::Mechanisms),
        0x21 => loud(Command::Auth),
        0x22 => loud(Command::AuthStep),
        _ => None,
    }
}

impl Command {
    /// Returns true if a packet with parts of these lengths can be this command.
    fn fits(self, extras: usize, key: usize, value: u64) -> bool {
        match self {
            Self::Get { .. } | Self::Delete => (extras, value) == (0, 0) && key > 0,
            Self::Gat { .. } | Self::Touch => (extras, value) == (4, 0) && key > 0,
            Self::Put(_) => extras == 8 && key > 0,
            Self::Extend(_) | Self::Auth | Self::AuthStep => extras == 0 && key > 0,
            Self::Arith(_) => (extras, value) == (20, 0) && key > 0,
            Self::Flush => matches!((extras, key, value), (0 | 4, 0, 0)),
            Self::Stats => (extras, value) == (0, 0),
            Self::Verbosity => (extras, key, value) == (4, 0, 0),
            Self::Noop | Self::Version | Self::Mechanisms | Self::Quit => {
                (extras, key, value) == (0, 0, 0)
            }
        }
    }

    /// Returns true if the command is allowed without authentication.
    fn is_for_all(self) -> bool {
        matches!(self, Self::Mechanisms | Self::Auth | Self::AuthStep | Self::Version)
    }

    /// Returns the request of a command that has no value.
    fn plain<'a>(self, extras: &[u8], key: &'a [u8]) -> Request<'a> {
        let time = || extras.first_chunk().map_or(0, |time| u32::from_be_bytes(*time));
        let look = |touch, key, value| Look { touch, key, value };
        match self {
            Self::Get { key: named } => Request::Look(key, look(None, named, true)),
            Self::Gat { key: named } => Request::Look(key, look(Some(time()), named, true)),
            Self::Touch => Request::Look(key, look(Some(time()), false, false)),
            Self::Delete => Request::Delete(key),
            Self::Arith(arith) => Request::Arith(key, delta(arith, extras)),
            Self::Flush => Request::Flush(time()),
            Self::Stats => Request::Stats(key),
            Self::Verbosity => Request::Verbosity,
            Self::Version => Request::Version,
            Self::Mechanisms => Request::Mechanisms,
            Self::Quit => Request::Quit,
            // All other commands have a value, except `Noop`.
            _ => Request::Noop,
        }
    }
}

/// Parses the extras of a change: the difference, the initial number and its TTL.
fn delta(arith: Arith, extras: &[u8]) -> Delta {
    let long = |at: usize| {
        let bytes = extras.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |long| u64::from_be_bytes(*long))
    };
    let exptime = extras.last_chunk().map_or(u32::MAX, |time| u32::from_be_bytes(*time));
    let exptime = (exptime != u32::MAX).then_some(exptime);
    Delta { arith, by: long(0), initial: long(8), exptime }
}

/// A packet. Its header, extras and key were received, and perhaps not its value.
struct Packet<'a> {
    head: Head,
    extras: &'a [u8],
    key: &'a [u8],
    /// The length of the value; `None` if the header contradicts itself.
    value: Option<u64>,
    /// Bytes of the packet before the value.
    used: usize,
}

impl<'a> Packet<'a> {
    fn read(header: &[u8; HEADER], input: &'a [u8]) -> Option<Self> {
        let [_, opcode, k0, k1, extras, _, _, _, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] = header;
        let extras = usize::from(*extras);
        let key = usize::from(u16::from_be_bytes([*k0, *k1]));
        let body = u32::from_be_bytes([*b0, *b1, *b2, *b3]);
        let used = HEADER + extras + key;
        let (extras, key) = input.get(HEADER..used)?.split_at(extras);
        let value = u64::from(body).checked_sub((used - HEADER) as u64);
        let opaque = [*o0, *o1, *o2, *o3];
        let quiet = command(*opcode).is_some_and(|(_, quiet)| quiet);
        let head = Head { opcode: *opcode, opaque, cas: u64::from_be_bytes(*cas), quiet };
        Some(Self { head, extras, key, value, used })
    }

    fn step(&self, request: Request<'a>) -> Step<'a> {
        Step::Request(self.used, self.head, request)
    }

    fn close(&self, status: Status) -> Step<'a> {
        self.step(Request::Close(Some(status)))
    }
}

impl Parser {
    /// Makes the parser of a new stream, for values of at most `value_max` bytes.
    #[must_use]
    pub fn new(value_max: usize, access: Access) -> Self {
        Self { to_drop: 0, value_max: value_max.min(i32::MAX as usize - 2), access }
    }

    /// Returns true if the stream may end here without cutting off a request.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.to_drop == 0
    }

    /// Bytes of a refused value that are still to come.
    pub(crate) fn awaited(&self) -> usize {
        usize::try_from(self.to_drop).unwrap_or(usize::MAX)
    }

    /// Refuses the value of the incomplete request that begins here. The step is a
    /// [`Request::TooLarge`], and the value is dropped as it is received. Returns `None` if no
    /// value is awaited.
    pub fn refuse_value<'a>(&mut self, input: &'a [u8]) -> Option<Step<'a>> {
        let mut refusing = Self { value_max: 0, ..*self };
        let step = refusing.next(input);
        let is_refused = matches!(step, Step::Request(_, _, Request::TooLarge(_)));
        self.to_drop = if is_refused { refusing.to_drop } else { self.to_drop };
        is_refused.then_some(step)
    }

    /// Returns the next request. The input begins where the last step's bytes ended.
    // Always inlined into the loop over requests, although the log of requests calls it, too.
    #[inline(always)]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if self.to_drop > 0 {
            let gone = self.to_drop.min(input.len() as u64);
            self.to_drop -= gone;
            return Step::More(gone as usize);
        }
        let Some(header) = input.first_chunk() else { return Step::More(0) };
        if header[0] != MAGIC {
            let head = Head { opcode: header[1], opaque: [0; 4], cas: 0, quiet: false };
            return Step::Request(HEADER, head, Request::Close(None));
        }
        let Some(packet) = Packet::read(header, input) else { return Step::More(0) };
        let Some(length) = packet.value else { return packet.close(Status::Unknown) };
        if (packet.used - HEADER) as u64 + length > BODY_MAX {
            return packet.close(Status::Invalid);
        }
        let command = command(packet.head.opcode).map(|(command, _)| command);
        if self.access == Access::Denied && !command.is_some_and(Command::is_for_all) {
            return packet.close(Status::AuthFailed);
        }
        if packet.key.len() > KEY_MAX {
            return packet.close(Status::Invalid);
        }
        let Some(command) = command else {
            return self.refuse(&packet, length, Request::Error(Status::Unknown));
        };
        if !command.fits(packet.extras.len(), packet.key.len(), length) {
            return packet.close(Status::Invalid);
        }
        match command {
            Command::Put(mode) | Command::Extend(mode) => self.store(&packet, mode, length, input),
            Command::Mechanisms if self.access == Access::Unrestricted => {
                packet.step(Request::Error(Status::Unknown))
            }
            Command::Auth | Command::AuthStep => self.auth(&packet, command, length, input),
            command => packet.step(command.plain(packet.extras, packet.key)),
        }
    }

    fn store<'a>(
        &mut self,
        packet: &Packet<'a>,
        mode: Mode,
        length: u64,
        input: &'a [u8],
    ) -> Step<'a> {
        let key = packet.key;
        // binary.B1: a value beyond the limit is dropped as it is received.
        if (key.len() + ITEM_HEADER) as u64 + length > self.value_max as u64 {
            let gone = (mode == Mode::Set).then_some(key);
            return self.refuse(packet, length, Request::TooLarge(gone));
        }
        let used = packet.used + length as usize;
        let Some(data) = input.get(packet.used..used) else { return Step::More(0) };
        let word = |at: usize| {
            let bytes = packet.extras.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |word| u32::from_be_bytes(*word))
        };
        let (flags, exptime) = (word(0), i64::from(word(4)));
        let store = Store { key, flags, exptime, mode, data };
        Step::Request(used, packet.head, Request::Store(store))
    }

    fn auth<'a>(
        &mut self,
        packet: &Packet<'a>,
        command: Command,
        length: u64,
        input: &'a [u8],
    ) -> Step<'a> {
        // binary.B2: credentials are the only value that an unauthenticated client may send.
        let status = match () {
            () if self.access == Access::Unrestricted => Status::Unknown,
            () if packet.key.len() > MECHANISM_MAX => Status::Invalid,
            () if length > PROOF_MAX as u64 => {
                self.access = Access::Denied;
                Status::AuthFailed
            }
            () => {
                let used = packet.used + length as usize;
                let Some(proof) = input.get(packet.used..used) else { return Step::More(0) };
                let request = match command {
                    Command::Auth => Request::Auth(packet.key, proof),
                    _ => Request::AuthStep(proof),
                };
                return Step::Request(used, packet.head, request);
            }
        };
        self.refuse(packet, length, Request::Error(status))
    }

    /// Refuses a value after its packet has begun. The bytes that follow are not a request.
    fn refuse<'a>(&mut self, packet: &Packet<'a>, length: u64, request: Request<'a>) -> Step<'a> {
        self.to_drop = length;
        packet.step(request)
    }
}

/// Returns the key of a packet that begins at `from`, and the start of the next packet, if the
/// input reaches so far. Both are guesses, which only prefetches use.
pub(crate) fn scan_key(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let header = rest.first_chunk().filter(|header: &&[u8; HEADER]| header[0] == MAGIC)?;
    let packet = Packet::read(header, rest)?;
    if packet.key.is_empty() {
        return None;
    }
    Some((packet.key, from.checked_add(packet.used)?.checked_add(packet.value? as usize)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn packet(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
        let body = extras.len() + key.len() + value.len();
        let mut packet = vec![MAGIC, opcode, 0, 0, extras.len() as u8, 0, 0, 0];
        packet[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
        packet.extend_from_slice(&(body as u32).to_be_bytes());
        packet.extend_from_slice(&[0; 12]);
        [&packet, extras, key, value].concat()
    }

    fn request<'a>(parser: &mut Parser, input: &'a [u8]) -> (usize, Request<'a>) {
        match parser.next(input) {
            Step::Request(used, _, request) => (used, request),
            more @ Step::More(_) => panic!("{more:?}"),
        }
    }

    #[test]
    fn a_request_that_breaks_a_law_is_caught() {
        let is_caught = |request: Request<'_>, used| {
            catch_unwind(AssertUnwindSafe(|| request.check(used, &[0; 9]))).is_err()
        };
        assert_eq!(
            [0, 1, 9, 10].map(|used| is_caught(Request::Noop, used)),
            [true, false, false, true]
        );
        let look = Look { touch: None, key: false, value: true };
        let requests: [&dyn Fn(&'static [u8]) -> Request<'static>; 5] = [
            &|key| Request::Look(key, look),
            &|key| Request::Store(Store { key, flags: 0, exptime: 0, mode: Mode::Set, data: b"" }),
            &|key| Request::Delete(key),
            &|key| Request::Arith(key, delta(Arith::Incr, &[])),
            &|key| Request::TooLarge(Some(key)),
        ];
        for request in requests {
            let caught =
                [0, 1, 250, 251].map(|length| is_caught(request(&[b'k'; 251][..length]), 9));
            assert_eq!(caught, [true, false, false, true], "{:?}", request(b"k"));
        }
    }

    #[test]
    fn an_awaited_value_can_be_refused_and_is_dropped_as_it_comes() {
        let set = packet(0x01, &[0; 8], b"k", b"value");
        let head = set.len() - 5;
        let mut parser = Parser::new(100, Access::Unrestricted);
        assert_eq!(parser.next(&set[..head + 2]), Step::More(0));
        assert_eq!((parser.is_between(), parser.awaited()), (true, 0));
        let Some(Step::Request(used, _, refused)) = parser.refuse_value(&set[..head + 2]) else {
            panic!("no value is awaited");
        };
        assert_eq!((used, refused), (head, Request::TooLarge(Some(b"k"))));
        assert_eq!((parser.is_between(), parser.awaited()), (false, 5));
        assert_eq!(parser.next(&set[head..head + 2]), Step::More(2));
        assert_eq!((parser.is_between(), parser.awaited()), (false, 3));
        assert_eq!(parser.next(&[b"lue", &set[..]].concat()), Step::More(3));
        assert_eq!((parser.is_between(), parser.awaited()), (true, 0));
        for none in [&set[..head - 1], &packet(0x00, b"", b"k", b""), b""] {
            assert_eq!(parser.refuse_value(none), None);
            assert!(parser.is_between());
        }
    }

    #[test]
    fn an_item_of_just_the_limit_is_taken() {
        // Key, value and header are 100 bytes.
        let set = packet(0x01, &[0; 8], b"kk", &[b'x'; 48]);
        let (used, taken) = request(&mut Parser::new(100, Access::Unrestricted), &set);
        assert!(used == set.len() && matches!(taken, Request::Store(_)), "{taken:?}");
        let (used, refused) = request(&mut Parser::new(99, Access::Unrestricted), &set);
        assert_eq!((used, refused), (set.len() - 48, Request::TooLarge(Some(b"kk"))));
    }

    #[test]
    fn credentials_have_at_most_2048_bytes_and_mechanisms_32() {
        let name = |length| [b'M'; 33][..length].to_vec();
        for access in [Access::Denied, Access::Granted] {
            for (mechanism, length, expected) in [
                (32, 2048, None),
                (33, 2048, Some(Status::Invalid)),
                (32, 2049, Some(Status::AuthFailed)),
            ] {
                let (mechanism, proof) = (name(mechanism), vec![b'p'; length]);
                let auth = packet(0x21, b"", &mechanism, &proof);
                let mut parser = Parser::new(100, access);
                let (used, found) = request(&mut parser, &auth);
                let (taken, is_left) = match expected {
                    None => (Request::Auth(&mechanism, &proof), 0),
                    Some(status) => (Request::Error(status), length),
                };
                assert_eq!((used, found), (auth.len() - is_left, taken));
                let after =
                    if expected == Some(Status::AuthFailed) { Access::Denied } else { access };
                assert_eq!(parser.access, after);
            }
        }
    }

    #[test]
    fn verbosity_is_told_from_a_noop() {
        let verbosity = packet(0x1b, &[0; 4], b"", b"");
        let mut parser = Parser::new(100, Access::Unrestricted);
        assert_eq!(request(&mut parser, &verbosity), (28, Request::Verbosity));
        assert_eq!(request(&mut parser, &packet(0x0a, b"", b"", b"")), (24, Request::Noop));
    }

    #[test]
    fn keys_are_guessed_only_where_a_packet_begins() {
        let get = packet(0x00, b"", b"key", b"");
        let two = [&get[..], &packet(0x01, &[0; 8], b"k", b"value")].concat();
        assert_eq!(scan_key(&two, 0), Some((&b"key"[..], get.len())));
        assert_eq!(scan_key(&two, get.len()), Some((&b"k"[..], two.len())));
        assert_eq!(scan_key(&two, 1), None);
        assert_eq!(scan_key(&two, two.len()), None);
        assert_eq!(scan_key(&packet(0x0a, b"", b"", b""), 0), None);
    }
}
