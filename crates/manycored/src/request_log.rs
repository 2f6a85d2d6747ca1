//! Requests and replies in the log, in memcached's format at verbosity 2.
//!
//! Laws:
//! - request_log.Y1 While requests are not logged, a slice of them costs one check of the
//!   verbosity.
//! - request_log.Y2 A request is logged once, when it was received whole, and before its replies.
//!   Values, passwords and the bytes of refused values are not logged.
//! - request_log.Y3 Each line of the log is one request, reply or row of a header
//!   ([`log::escape`]).

use crate::log;
use crate::protocol::binary::HEADER;
use crate::protocol::number;
use memchr::memchr;
use std::io::Write;

/// The opcode of `stat` in the binary protocol.
const STAT: u8 = 0x10;

/// The part of the replies that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replies {
    /// No part.
    None,
    /// The lines of the text protocol.
    Lines,
    /// The headers of packets.
    Packets,
}

/// The next step of a logged session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next {
    /// Bytes of one request, or of all the input if it has no whole request.
    pub(crate) length: usize,
    /// Keys of the request, or 1.
    pub(crate) keys: usize,
    /// The part of its replies that is logged.
    pub(crate) replies: Replies,
}

impl Next {
    /// Returns a step of `length` bytes of which nothing is logged.
    pub(crate) fn silent(length: usize) -> Self {
        Self { length, keys: 1, replies: Replies::None }
    }
}

/// Appends a line of the log about a client.
pub(crate) fn line(lines: &mut Vec<u8>, mark: char, client: i32, text: &[u8]) {
    // request_log.Y3: the text is escaped, and the line ends only here.
    // Writing to a vector does not fail.
    let _ = write!(lines, "{mark}{client} ");
    log::escape(lines, text.strip_suffix(b"\r").unwrap_or(text));
    lines.push(b'\n');
}

/// Appends the lines for replies of the text protocol. Of a value, only the key is logged.
pub(crate) fn text_replies(lines: &mut Vec<u8>, client: i32, mut replies: &[u8]) {
    while let Some(end) = memchr(b'\n', replies) {
        let reply = &replies[..end];
        replies = &replies[end + 1..];
        let Some(value) = reply.strip_prefix(b"VALUE ") else {
            line(lines, '>', client, reply);
            continue;
        };
        let mut words = value.split(|byte| matches!(byte, b' ' | b'\r'));
        let key = words.next().unwrap_or_default();
        line(lines, '>', client, &[b"sending key ", key].concat());
        let length = words.nth(1).and_then(number).and_then(|length| usize::try_from(length).ok());
        let Some(rest) = length.and_then(|length| replies.get(length + 2..)) else { return };
        replies = rest;
    }
}

/// Appends the lines for replies of the binary protocol: their headers, and the texts of errors. As
/// in memcached, the packets of `stat` are left out.
pub(crate) fn packets(lines: &mut Vec<u8>, client: i32, mut replies: &[u8]) {
    while let Some((header, rest)) = replies.split_first_chunk::<HEADER>() {
        let pair = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (key, status) = (pair(2), pair(6));
        let length = usize::from(pair(8)) << 16 | usize::from(pair(10));
        let Some((body, rest)) = rest.split_at_checked(length) else { return };
        replies = rest;
        if header[1] == STAT && status == 0 {
            continue;
        }
        if status != 0 && key == 0 && !body.is_empty() {
            line(lines, '>', client, &[b"Writing an error: ", body].concat());
        }
        header_rows(lines, '>', client, "Writing bin response:", header);
    }
}

/// Appends the bytes of a packet's header in rows of four, in memcached's format.
pub(crate) fn header_rows(
    lines: &mut Vec<u8>,
    mark: char,
    client: i32,
    title: &str,
    header: &[u8],
) {
    let _ = writeln!(lines, "{mark}{client} {title}");
    let indent = if mark == '<' { "   " } else { "  " };
    for row in header.chunks(4) {
        let _ = write!(lines, "{mark}{client}{indent}");
        row.iter().for_each(|byte| {
            let _ = write!(lines, " 0x{byte:02x}");
        });
        lines.push(b'\n');
    }
}
