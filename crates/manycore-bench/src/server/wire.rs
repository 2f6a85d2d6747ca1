//! The bytes on the wire: requests, and the replies that they must get.
//!
//! Owns: the form of both in each protocol. Keys have 16 bytes, and values begin and end with their
//! key. Every message of a kind therefore has the same length, and each reply can be compared with
//! the expected one. A reply under another key, or with another key's value, is noticed.

use std::{fmt, str::FromStr};

/// Bytes of a key.
const KEY: usize = 16;
/// Bytes of a value by default: its key twice.
pub const VALUE: usize = 2 * KEY;

/// A key, as it is sent.
type Key = [u8; KEY];

/// The language of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// memcached's words: `get` and `set`.
    #[default]
    Text,
    /// memcached's meta commands: `mg` and `ms`.
    Meta,
    /// Redis's.
    Resp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Meta => "meta",
            Self::Resp => "resp",
        })
    }
}

impl FromStr for Protocol {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "meta" => Ok(Self::Meta),
            "resp" => Ok(Self::Resp),
            _ => Err("say 'text', 'meta' or 'resp'"),
        }
    }
}

/// The key of a number: a word, and eight letters for its nibbles.
#[inline(always)]
fn key_of(number: u32) -> Key {
    let mut spread = u64::from(number);
    spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    spread = (spread | spread << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let mut key = *b"manycore........";
    key[8..].copy_from_slice(&(spread + 0x6161_6161_6161_6161).to_be_bytes());
    key
}

/// A message in which some places hold the key.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Frame {
    /// Of a text in which each `@` stands for the key.
    fn new(text: &str) -> Self {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for byte in text.bytes() {
            if byte == b'@' {
                places.push(bytes.len());
                bytes.extend_from_slice(&[b'.'; KEY]);
            } else {
                bytes.push(byte);
            }
        }
        Self { bytes, places }
    }

    /// Its length.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The message about the key of this number.
    #[inline(always)]
    pub(super) fn of(&mut self, number: u32) -> &[u8] {
        let key = key_of(number);
        for place in &self.places {
            self.bytes[*place..*place + KEY].copy_from_slice(&key);
        }
        &self.bytes
    }
}

/// A request about one key or many, or its reply: what comes before, once for each key, behind.
#[derive(Clone, Debug)]
pub(super) struct Message {
    head: Vec<u8>,
    each: Frame,
    tail: Vec<u8>,
    /// How many keys.
    keys: usize,
}

impl Message {
    fn new(head: &str, each: &str, tail: &str, keys: usize) -> Self {
        Self { head: head.into(), each: Frame::new(each), tail: tail.into(), keys }
    }

    fn single(text: &str) -> Self {
        Self::new("", text, "", 1)
    }

    /// Its length.
    #[inline(always)]
    fn len(&self) -> usize {
        self.head.len() + self.keys * self.each.len() + self.tail.len()
    }

    #[inline(always)]
    fn push(&mut self, numbers: &[u32], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        for number in numbers {
            out.extend_from_slice(self.each.of(*number));
        }
        out.extend_from_slice(&self.tail);
    }

    /// Whether these bytes, as many as it has, are it.
    #[inline(always)]
    fn is(&mut self, numbers: &[u32], bytes: &[u8]) -> bool {
        let length = self.each.len();
        let (head, rest) = bytes.split_at(self.head.len());
        let (items, tail) = rest.split_at(self.keys * length);
        let mut pairs = items.chunks_exact(length).zip(numbers);
        head == self.head
            && pairs.all(|(item, number)| item == self.each.of(*number))
            && tail == self.tail
    }
}

/// A protocol's messages.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    get: [Message; 2],
    set: [Message; 2],
    /// Whether a reply is compared with what it must be, beyond its length.
    checks: bool,
}

impl Wire {
    /// Gets of so many keys each, with values of so many bytes, at least [`VALUE`].
    pub(super) fn new(protocol: Protocol, keys: usize, length: usize, checks: bool) -> Self {
        let value = format!("@{}@", ".".repeat(length - VALUE));
        let text = format!("VALUE @ 0 {length}\r\n{value}\r\n");
        let bulk = format!("${length}\r\n{value}\r\n");
        let (get, get_reply) = match (protocol, keys) {
            (Protocol::Text, 1) => {
                (Message::single("get @\r\n"), Message::single(&format!("{text}END\r\n")))
            }
            (Protocol::Text, _) => {
                (Message::new("get", " @", "\r\n", keys), Message::new("", &text, "END\r\n", keys))
            }
            // Several keys are as many requests.
            (Protocol::Meta, _) => (
                Message::new("", "mg @ v\r\n", "", keys),
                Message::new("", &format!("VA {length}\r\n{value}\r\n"), "", keys),
            ),
            (Protocol::Resp, 1) => {
                (Message::single("*2\r\n$3\r\nGET\r\n$16\r\n@\r\n"), Message::single(&bulk))
            }
            (Protocol::Resp, _) => {
                let head = format!("*{}\r\n$4\r\nMGET\r\n", keys + 1);
                (
                    Message::new(&head, "$16\r\n@\r\n", "", keys),
                    Message::new(&format!("*{keys}\r\n"), &bulk, "", keys),
                )
            }
        };
        let (set, set_reply) = match protocol {
            Protocol::Text => (format!("set @ 0 0 {length}\r\n{value}\r\n"), "STORED\r\n"),
            Protocol::Meta => (format!("ms @ {length}\r\n{value}\r\n"), "HD\r\n"),
            Protocol::Resp => (format!("*3\r\n$3\r\nSET\r\n$16\r\n@\r\n{bulk}"), "+OK\r\n"),
        };
        let set = [Message::single(&set), Message::single(set_reply)];
        Self { get: [get, get_reply], set, checks }
    }

    /// What a server answers that is there, whatever it holds.
    pub(super) fn greeting(protocol: Protocol) -> (&'static [u8], &'static [u8]) {
        match protocol {
            Protocol::Text => (b"version\r\n", b"VERSION "),
            Protocol::Meta => (b"mn\r\n", b"MN\r\n"),
            Protocol::Resp => (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
        }
    }

    /// How many keys a get has.
    #[inline(always)]
    pub(super) fn keys(&self) -> usize {
        self.get[0].keys
    }

    /// Bytes of a request: of a set, or of a get.
    #[inline(always)]
    pub(super) fn request_len(&self, is_set: bool) -> usize {
        if is_set { self.set[0].len() } else { self.get[0].len() }
    }

    /// Bytes of a reply.
    #[inline(always)]
    pub(super) fn reply_len(&self, is_set: bool) -> usize {
        if is_set { self.set[1].len() } else { self.get[1].len() }
    }

    /// Adds a request about these keys.
    #[inline(always)]
    pub(super) fn push_request(&mut self, numbers: &[u32], is_set: bool, out: &mut Vec<u8>) {
        let message = if is_set { &mut self.set } else { &mut self.get };
        message[0].push(numbers, out);
    }

    /// Adds the reply to it.
    pub(super) fn push_reply(&mut self, numbers: &[u32], is_set: bool, out: &mut Vec<u8>) {
        let message = if is_set { &mut self.set } else { &mut self.get };
        message[1].push(numbers, out);
    }

    /// Whether these bytes, as many as a reply has, are the reply to it.
    #[inline(always)]
    pub(super) fn is_reply(&mut self, numbers: &[u32], is_set: bool, bytes: &[u8]) -> bool {
        let message = if is_set { &mut self.set } else { &mut self.get };
        !self.checks || message[1].is(numbers, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{Protocol, VALUE, Wire, key_of};

    #[test]
    fn keys_are_words_and_differ() {
        assert_eq!(&key_of(0), b"manycoreaaaaaaaa");
        assert_eq!(&key_of(0x0123_4567), b"manycoreabcdefgh");
        assert_eq!(&key_of(u32::MAX), b"manycorepppppppp");
    }

    #[test]
    fn requests_and_replies_are_those_of_the_protocols() {
        let text = |protocol, keys, numbers: &[u32], is_set| {
            let mut wire = Wire::new(protocol, keys, VALUE, true);
            let (mut request, mut reply) = (Vec::new(), Vec::new());
            wire.push_request(numbers, is_set, &mut request);
            wire.push_reply(numbers, is_set, &mut reply);
            assert_eq!(wire.request_len(is_set), request.len());
            assert_eq!(wire.reply_len(is_set), reply.len());
            assert!(wire.is_reply(numbers, is_set, &reply));
            let short = |bytes| {
                let text = String::from_utf8(bytes).unwrap();
                let text = text.replace("manycoreaaaaaaaa", "A").replace("manycoreaaaaaaab", "B");
                text.replace("\r\n", "|")
            };
            (short(request), short(reply))
        };
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let get = text(Protocol::Text, 1, &[0], false);
        assert_eq!(get, pair("get A|", "VALUE A 0 32|AA|END|"));
        let gets = text(Protocol::Text, 2, &[0, 1], false);
        assert_eq!(gets, pair("get A B|", "VALUE A 0 32|AA|VALUE B 0 32|BB|END|"));
        let set = text(Protocol::Text, 1, &[1], true);
        assert_eq!(set, pair("set B 0 0 32|BB|", "STORED|"));
        assert_eq!(text(Protocol::Meta, 1, &[0], false), pair("mg A v|", "VA 32|AA|"));
        assert_eq!(text(Protocol::Meta, 1, &[0], true), pair("ms A 32|AA|", "HD|"));
        let get = text(Protocol::Resp, 1, &[1], false);
        assert_eq!(get, pair("*2|$3|GET|$16|B|", "$32|BB|"));
        let gets = text(Protocol::Resp, 2, &[0, 1], false);
        assert_eq!(gets, pair("*3|$4|MGET|$16|A|$16|B|", "*2|$32|AA|$32|BB|"));
        let set = text(Protocol::Resp, 1, &[0], true);
        assert_eq!(set, pair("*3|$3|SET|$16|A|$32|AA|", "+OK|"));
    }

    #[test]
    fn a_reply_with_anothers_value_is_noticed() {
        for protocol in [Protocol::Text, Protocol::Meta, Protocol::Resp] {
            for keys in [1, 2] {
                for length in [VALUE, 100] {
                    let mut wire = Wire::new(protocol, keys, length, true);
                    let mut reply = Vec::new();
                    wire.push_reply(&[5, 6][..keys], false, &mut reply);
                    assert!(reply.len() >= keys * length);
                    assert!(wire.is_reply(&[5, 6][..keys], false, &reply));
                    assert!(!wire.is_reply(&[7, 6][..keys], false, &reply));
                    for place in [3, length / 2] {
                        let mut wrong = reply.clone();
                        let place = wrong.len() - place;
                        wrong[place] ^= 1;
                        assert!(!wire.is_reply(&[5, 6][..keys], false, &wrong));
                    }
                }
            }
        }
    }
}
