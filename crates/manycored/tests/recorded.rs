//! Every recorded conversation with memcached gets the same bytes, however it is cut into pieces.

mod common;

use common::Server;
use manycored::session::Wish;
use std::str::FromStr;

/// Conversations: what was sent, what came back.
fn recorded() -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines = include_str!("conversations.txt").lines().filter(|line| !line.starts_with('#'));
    let (sent, replies): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("> "));
    assert_eq!(sent.len(), replies.len());
    sent.iter().zip(replies).map(|(s, r)| (unescape(&s[2..]), unescape(&r[2..]))).collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        let escaped = (byte == b'\\').then(|| rest.next().expect("a letter follows"));
        bytes.push(match escaped {
            None => byte,
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(letter) => letter,
        });
    }
    bytes
}

/// The reply without what differs between servers: versions and sizes of items.
fn masked(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let has_cas = words[0] == "VALUE" && words.len() == 5;
        let mask = |(at, word): (usize, &&str)| {
            let number =
                |name| word.strip_prefix(name).is_some_and(|n: &str| u64::from_str(n).is_ok());
            let is_own = has_cas && at == 4 || ["c", "cas=", "size="].into_iter().any(number);
            if is_own { "#" } else { *word }.to_string()
        };
        words.iter().enumerate().map(mask).collect::<Vec<_>>().join(" ")
    };
    text.split("\r\n").map(line).collect::<Vec<_>>().join("\r\n")
}

fn replies(pieces: &[&[u8]]) -> String {
    let (mut out, wish) = Server::new().talk(pieces.iter().copied());
    if wish == Wish::Close {
        out.extend_from_slice(b"<EOF>");
    }
    masked(&out)
}

#[test]
fn recorded_conversations_get_the_same_bytes() {
    let recorded = recorded();
    assert!(recorded.len() > 150, "{}", recorded.len());
    for (sent, reply) in recorded {
        let text = String::from_utf8_lossy(&sent);
        assert_eq!(replies(&[&sent]), masked(&reply), "to {text:?}");
    }
}

#[test]
fn recorded_conversations_in_pieces_get_the_same_bytes() {
    for (sent, _) in recorded().iter().filter(|(sent, _)| sent.len() < 300) {
        let whole = replies(&[sent]);
        let bytes: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(replies(&bytes), whole, "{:?} byte by byte", String::from_utf8_lossy(sent));
        for at in (1..sent.len()).step_by(5) {
            let (front, back) = sent.split_at(at);
            assert_eq!(replies(&[front, back]), whole, "cut at {at}");
        }
    }
}

#[test]
fn masks_hide_versions_and_nothing_else() {
    assert_eq!(masked(b"VALUE a 0 1 77\r\n5\r\nEND\r\n"), "VALUE a 0 1 #\r\n5\r\nEND\r\n");
    assert_eq!(masked(b"VALUE a 0 1\r\nHD c12 t5 cx"), "VALUE a 0 1\r\nHD # t5 cx");
}
