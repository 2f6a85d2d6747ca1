//! Requests of the binary protocol in the log, in memcached's format at verbosity 2.

use super::BinarySession;
use crate::log;
use crate::protocol::Mode;
use crate::protocol::binary::{HEADER, Request, Step};
use crate::request_log::{Next, Replies, header_rows, line};
use std::io::Write;

impl BinarySession {
    /// Returns the next step. Appends the log lines of its request, if a request begins there,
    /// without values and credentials.
    pub(crate) fn next_logged(&self, rest: &[u8], client: i32, lines: &mut Vec<u8>) -> Next {
        let mut parser = self.parser;
        let (used, request) = match parser.next(rest) {
            Step::More(0) => return Next::silent(rest.len()),
            Step::More(gone) => return Next::silent(gone),
            Step::Request(used, _, request) => (used, request),
        };
        let header = &rest[..HEADER.min(rest.len())];
        header_rows(lines, '<', client, "Read binary protocol data:", header);
        match request {
            Request::Look(key, look) => {
                let name: &[u8] = if look.touch.is_some() { b"TOUCH " } else { b"GET " };
                line(lines, '<', client, &[name, key].concat());
            }
            Request::Stats(which) => line(lines, '<', client, &[b"STATS ", which].concat()),
            Request::Store(put) => {
                let name: &[u8] = match put.mode {
                    Mode::Add => b"ADD ",
                    Mode::Replace => b"REPLACE ",
                    Mode::Append | Mode::Prepend => b"",
                    _ => b"SET ",
                };
                let length = format!("Value len is {}", put.data.len());
                if name.is_empty() {
                    line_without_client(lines, b"", b"", &length);
                } else {
                    let text = [name, put.key, b" ", length.as_bytes()].concat();
                    line(lines, '<', client, &text);
                }
            }
            Request::Arith(key, delta) => {
                // As a signed number, because memcached prints it so.
                let exptime = delta.exptime.map_or(-1, |time| time as i32);
                let numbers = format!(" {}, {}, {exptime}", delta.by as i64, delta.initial);
                line_without_client(lines, b"incr ", key, &numbers);
            }
            Request::Delete(key) => line_without_client(lines, b"Deleting ", key, ""),
            _ => {}
        }
        Next { length: used, keys: 1, replies: Replies::Packets }
    }
}

/// Appends a line in which memcached does not name the client.
fn line_without_client(lines: &mut Vec<u8>, name: &[u8], key: &[u8], rest: &str) {
    lines.extend_from_slice(name);
    log::escape(lines, key);
    // Writing to a vector does not fail.
    let _ = writeln!(lines, "{rest}");
}
