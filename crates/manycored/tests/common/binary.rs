//! Packets of the binary protocol: requests and replies.

use super::{Server, pairs};
use manycored::session::{Context, Session, SessionAction};

/// Bytes before extras, key and value.
pub const HEADER: usize = 24;
/// Where the version stands.
pub const CAS: std::ops::Range<usize> = 16..24;
/// Where the opaque stands.
const OPAQUE: std::ops::Range<usize> = 12..16;

/// A request.
pub fn packet(opcode: u8, extras: &[u8], key: &str, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend([0; 12]);
    [&bytes[..], extras, key.as_bytes(), value].concat()
}

/// A `get` or the like.
pub fn bare(opcode: u8, key: &str) -> Vec<u8> {
    packet(opcode, &[], key, "")
}

/// A `set` or the like.
pub fn put(opcode: u8, key: &str, flags: u32, exptime: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    packet(opcode, &words([flags, exptime]), key, value)
}

/// An `increment` or `decrement`.
pub fn change(opcode: u8, key: &str, by: u64, initial: u64, exptime: u32) -> Vec<u8> {
    let extras = [&by.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
    packet(opcode, &extras, key, "")
}

/// A `touch` or the like.
pub fn touch(opcode: u8, key: &str, exptime: u32) -> Vec<u8> {
    packet(opcode, &words([exptime]), key, "")
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The same for this version alone.
pub fn only(cas: u64, mut packet: Vec<u8>) -> Vec<u8> {
    packet[CAS].copy_from_slice(&cas.to_be_bytes());
    packet
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub opcode: u8,
    pub status: u16,
    pub opaque: u32,
    pub cas: u64,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The replies that these bytes are, all of them.
#[track_caller]
pub fn replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let number = |at: usize, length: usize| {
            header[at..at + length].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        assert_eq!((header[0], header[5]), (0x81, 0));
        let (body, rest) = rest.split_at(number(8, 4) as usize);
        let (extras, body) = body.split_at(header[4].into());
        let (key, value) = body.split_at(number(2, 2) as usize);
        all.push(Reply {
            opcode: header[1],
            status: number(6, 2) as u16,
            opaque: number(12, 4) as u32,
            cas: number(16, 8),
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
        });
        bytes = rest;
    }
    assert_eq!(bytes, b"");
    all
}

/// The replies to these requests of one client, each with its number as the opaque, and what the
/// session wants then.
#[track_caller]
pub fn ask(server: &Server, packets: &[Vec<u8>]) -> (Vec<Reply>, SessionAction) {
    let mut sent = packets.to_vec();
    for (number, packet) in sent.iter_mut().enumerate() {
        packet[OPAQUE].copy_from_slice(&(number as u32).to_be_bytes());
    }
    let (out, action) = server.talk([&sent.concat()[..]]);
    let replies = replies(&out);
    for reply in &replies {
        assert_eq!(sent[reply.opaque as usize][1], reply.opcode, "another request's number");
    }
    (replies, action)
}

/// Demands these replies: for each the number of its request, its status, and its text, which is
/// extras in hexadecimal digits, key and value where there are any.
#[track_caller]
pub fn expect(server: &Server, packets: &[Vec<u8>], expected: &[(u32, u16, &str)]) -> Vec<Reply> {
    let (replies, action) = ask(server, packets);
    let told: Vec<(u32, u16, String)> =
        replies.iter().map(|reply| (reply.opaque, reply.status, text(reply))).collect();
    let expected: Vec<(u32, u16, String)> =
        expected.iter().map(|(at, status, text)| (*at, *status, (*text).to_owned())).collect();
    assert_eq!(told, expected);
    assert_eq!(action, SessionAction::Continue);
    replies
}

fn text(reply: &Reply) -> String {
    let extras: String = reply.extras.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [extras, lossy(&reply.key), lossy(&reply.value)];
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What stands for a version in a recorded conversation, and where in a packet's digits.
const DOTS: &str = "................";
const DIGITS: std::ops::Range<usize> = 2 * CAS.start..2 * CAS.end;

/// A recorded conversation: packets that were sent, in hexadecimal digits, and the replies.
pub struct Recorded {
    pub sent: Vec<String>,
    pub replies: String,
}

/// All of them.
pub fn recorded() -> Vec<Recorded> {
    let all = pairs(include_str!("../binary.txt"));
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    all.map(|(sent, replies)| Recorded { sent: words(sent), replies: replies.into() }).collect()
}

impl Recorded {
    /// Whether all of it can be sent at once: nothing in it depends on replies.
    pub fn is_fixed(&self) -> bool {
        !self.sent.iter().any(|packet| packet.contains(DOTS))
    }

    /// The bytes of all packets, if it is fixed.
    pub fn bytes(&self) -> Vec<u8> {
        self.sent.iter().flat_map(|packet| bytes_of(packet)).collect()
    }

    /// What this server says packet by packet, as it would be recorded.
    pub fn replayed(&self, server: &Server) -> String {
        server.store.tick();
        let mut context = Context::new(server.store.handle(0), &server.state);
        let mut session = Session::new(server.store.limits().item);
        let (mut all, mut input, mut last) = (Vec::new(), Vec::new(), 0);
        for packet in &self.sent {
            let mut packet = packet.clone();
            if packet.contains(DOTS) {
                packet.replace_range(DIGITS, &format!("{last:016x}"));
            }
            input.extend(bytes_of(&packet));
            let mut out = Vec::new();
            let progress = session.feed(&mut context, &input, &mut out, usize::MAX);
            input.drain(..progress.used);
            let versions = replies(&out).iter().map(|reply| reply.cas).collect::<Vec<_>>();
            last = versions.into_iter().rfind(|cas| *cas > 0).unwrap_or(last);
            all.extend(out);
        }
        written(&all, session.action())
    }
}

/// Replies as they are recorded, and how a conversation ended.
pub fn written(out: &[u8], action: SessionAction) -> String {
    let mut words = Vec::new();
    let mut rest = out;
    while rest.len() >= HEADER {
        let body = u32::from_be_bytes(*rest[8..].first_chunk().unwrap()) as usize;
        let (packet, more) = rest.split_at(HEADER + body);
        let mut digits: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        if packet[CAS] != [0; 8] {
            digits.replace_range(DIGITS, DOTS);
        }
        words.push(digits);
        rest = more;
    }
    if action == SessionAction::Close {
        words.push("EOF".into());
    }
    words.join(" ")
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(pair).collect()
}
