//! The form of replies, and what is compared of them.

use manycored::protocol::binary::{HEADER, REPLY_MAGIC};
use std::fmt::Write;

/// Digits from which on a number is a version: these are stamps of the clock.
const VERSION: usize = 9;
/// First words of lines that stand alone.
const LINES: &[&str] = &[
    "END",
    "STORED",
    "NOT_STORED",
    "EXISTS",
    "NOT_FOUND",
    "DELETED",
    "TOUCHED",
    "OK",
    "RESET",
    "VERSION",
    "ERROR",
    "CLIENT_ERROR",
    "SERVER_ERROR",
    "SERVER_ERROR:",
    "MEMLIMIT_TOO_SMALL",
    "MEMLIMIT_ADJUST_FAILED",
    "HD",
    "EN",
    "NF",
    "NS",
    "EX",
    "MN",
    "ME",
];

/// The replies of the text and meta protocols, each whole and of a known form; versions are marked,
/// and reports left out, which have the time in them.
pub fn masked(mut replies: &[u8]) -> String {
    let mut told = String::new();
    while !replies.is_empty() {
        let end = replies.windows(2).position(|pair| pair == b"\r\n");
        let end = end.unwrap_or_else(|| panic!("cut off: {}", lossy(replies)));
        let line = &replies[..end];
        replies = &replies[end + 2..];
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let number = |at: usize| -> usize {
            let word = words.get(at).and_then(|word| std::str::from_utf8(word).ok());
            let number = word.and_then(|word| word.parse().ok());
            number.unwrap_or_else(|| panic!("no number in {}", lossy(line)))
        };
        let length = match words[0] {
            b"STAT" => continue,
            b"VALUE" => {
                assert!(matches!(words.len(), 4 | 5), "{}", lossy(line));
                Some(number(3))
            }
            b"VA" => Some(number(1)),
            word => {
                let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
                let is_known = LINES.iter().any(|known| known.as_bytes() == word);
                assert!(is_known || is_number && words.len() == 1, "what is {}", lossy(line));
                None
            }
        };
        // What is in it after this differs with the clock.
        told.push_str(&without_versions(&lossy(line)));
        told.push('\n');
        if let Some(length) = length {
            assert!(replies.len() >= length + 2, "a value is cut off");
            let (value, rest) = replies.split_at(length);
            told.push_str(&lossy(value));
            told.push('\n');
            replies = rest.strip_prefix(b"\r\n").expect("a value's end");
        }
    }
    told
}

/// The same in the binary protocol.
pub fn masked_packets(mut replies: &[u8]) -> String {
    let mut told = String::new();
    while !replies.is_empty() {
        let (header, rest) = replies.split_first_chunk::<HEADER>().expect("a whole header");
        assert_eq!((header[0], header[5]), (REPLY_MAGIC, 0));
        let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let parts =
            usize::from(header[4]) + usize::from(u16::from_be_bytes([header[2], header[3]]));
        assert!(parts <= length && length <= rest.len(), "a packet is cut off");
        let (body, rest) = rest.split_at(length);
        replies = rest;
        if header[1] != 0x10 {
            let has_version = header[16..].iter().any(|byte| *byte != 0);
            let _ = writeln!(told, "{:?} {has_version} {}", &header[..16], lossy(body));
        }
    }
    told
}

fn without_versions(text: &str) -> String {
    let mut without = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        without.push_str(if digits < VERSION { &part[..digits] } else { "#" });
        without.push_str(&part[digits..]);
    }
    without
}

fn lossy(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
