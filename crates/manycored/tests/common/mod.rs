//! A conversation without a socket.
#![allow(dead_code)]

pub mod binary;
#[cfg(target_os = "linux")]
pub mod running;

use manycored::server_state::{ServerState, Settings};
use manycored::session::{Context, Session, SessionAction};
use manycored::store::{Limits, Store};
use std::str::FromStr;

/// A server without sockets.
pub struct Server {
    pub store: Store,
    pub state: ServerState,
}

impl Server {
    pub fn new() -> Self {
        Self::with(Limits::default(), Settings::default())
    }

    pub fn with(limits: Limits, settings: Settings) -> Self {
        Self {
            store: Store::new(limits, 2),
            state: ServerState { settings, ..ServerState::default() },
        }
    }

    /// The replies to a client that sends this in these pieces, and what its session wants then.
    pub fn talk<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, SessionAction) {
        self.store.tick();
        let mut context = Context::new(self.store.handle(0), &self.state);
        let mut session = Session::new(self.store.limits().item);
        let (mut input, mut out) = (Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                let mut some = Vec::new();
                let progress = session.feed(&mut context, &input, &mut some, usize::MAX);
                input.drain(..progress.used);
                out.extend_from_slice(&some);
                if !progress.is_paused || session.action() != SessionAction::Continue {
                    break;
                }
            }
        }
        (out, session.action())
    }

    /// The replies to a text, in which a line ends with a line.
    pub fn say(&self, text: &str) -> String {
        let sent = text.replace('\n', "\r\n");
        let (reply, _) = self.talk([sent.as_bytes()]);
        String::from_utf8_lossy(&reply).replace("\r\n", "\n")
    }
}

/// Demands this reply to this text, in which a line ends with a line.
#[track_caller]
pub fn expect(server: &Server, text: &str, reply: &str) {
    assert_eq!(server.say(text), reply, "to {text:?}");
}

/// Conversations: what was sent, what came back.
pub fn recorded() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = pairs(include_str!("../conversations.txt"));
    all.map(|(sent, replies)| (unescape(sent), unescape(replies))).collect()
}

/// The lines of a file of conversations.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let (sent, replies): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('>'));
    assert_eq!(sent.len(), replies.len());
    sent.into_iter().zip(replies).map(|(s, r)| (s[1..].trim_start(), r[1..].trim_start()))
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
pub fn masked(reply: &[u8]) -> String {
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
