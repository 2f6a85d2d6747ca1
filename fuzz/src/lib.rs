//! What must hold whatever a client sends; called with bytes that a fuzzer makes.
//!
//! The first byte says how the server is set up, the second how the rest is cut into pieces, and
//! the rest is what the client sends. Demanded is:
//! - The replies, what the session wants, and what is in the store then do not depend on the cuts,
//!   nor on how much is answered at a time.
//! - Replies are whole, and have the form of the protocol.
//! - What waits to be read or written is bounded by the limits, whatever the lengths claim.
//! - The parser uses what it names, and changes nothing while it asks for more.
//! - Another client finds the server well.
//!
//! The server's ordinary tests call these with the inputs of `corpus`, too.

pub mod bounds;
pub mod corpus;
pub mod file;
mod replies;
pub mod users;

use manycored::auth::Auth;
use manycored::protocol::{self, GET_LINE_MAX, KEY_MAX, LINE_MAX, binary};
use manycored::server_state::{Language, ServerState, Settings};
use manycored::session::{Context, OUT_MAX, Session, SessionAction};
use manycored::store::{Limits, Store};
use replies::{masked, masked_packets};
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest item: small, so that inputs reach beyond it.
const ITEM: usize = 1024;
/// The most that a reply adds to what waits: an item, or all of `stats`.
const REPLY_MAX: usize = 16 << 10;
/// How often a difference is looked for again: the clock may have moved on.
const ATTEMPTS: usize = 3;

/// A server's settings.
#[derive(Debug, Clone, Copy)]
struct Setup(u8);

impl Setup {
    fn has(self, bit: u8) -> bool {
        self.0 & 1 << bit != 0
    }

    fn store(self) -> Store {
        let (evicts, delimiter) = (!self.has(0), self.has(1).then_some(b':'));
        Store::new(Limits { memory: 1 << 20, item: ITEM, evicts, delimiter, has_versions: true }, 1)
    }

    /// With the one user `a`, whose password is `b`, if authentication is required.
    fn state(self) -> ServerState {
        let language = if self.has(4) { Language::Text } else { Language::Any };
        let (flush_enabled, shutdown_enabled) = (!self.has(2), self.has(3));
        let settings =
            Settings { flush_enabled, shutdown_enabled, language, ..Settings::default() };
        let auth = self.has(5).then(|| {
            // A file of its own: inputs are tried by several threads.
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("manycored-fuzz-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, "a:b\n").expect("a file of users");
            let auth = Auth::read(path.clone()).expect("a user");
            std::fs::remove_file(path).expect("no other process removes it");
            auth
        });
        ServerState { settings, auth, ..ServerState::default() }
    }
}

/// What a conversation came to.
#[derive(Debug, PartialEq, Eq)]
struct Conversation {
    replies: String,
    action: SessionAction,
    items: String,
}

/// How much is answered at a time.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Requests.
    budget: usize,
    /// Bytes of replies until no more are made.
    room: usize,
}

/// As much as there is.
const WHOLE: Turn = Turn { budget: usize::MAX, room: OUT_MAX };

/// The replies to a client that sends these pieces, so much answered at a time.
fn talk(
    store: &Store,
    state: &ServerState,
    pieces: &[&[u8]],
    turn: Turn,
) -> (Vec<u8>, SessionAction) {
    let mut context = Context::new(store.handle(0), state);
    let mut session = Session::new(ITEM);
    // As if so much waited already.
    let before = OUT_MAX - turn.room;
    let (mut input, mut all, mut out) = (Vec::new(), Vec::new(), vec![0; before]);
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            out.truncate(before);
            let progress = session.feed(&mut context, &input, &mut out, turn.budget);
            assert!(out.len() <= OUT_MAX + REPLY_MAX, "{} bytes at once", out.len());
            assert!(progress.used <= input.len());
            input.drain(..progress.used);
            all.extend_from_slice(&out[before..]);
            if session.action() != SessionAction::Continue {
                return (all, session.action());
            }
            if !progress.is_paused {
                break;
            }
        }
        let most = if input.first() == Some(&binary::MAGIC) {
            binary::HEADER + usize::from(u8::MAX) + usize::from(u16::MAX) + ITEM
        } else {
            GET_LINE_MAX.max(LINE_MAX + ITEM + 2)
        };
        assert!(input.len() <= most, "{} bytes wait", input.len());
    }
    (all, session.action())
}

/// Pieces of one length, or at places that a byte chooses.
fn cut(stream: &[u8], variant: u8) -> Vec<&[u8]> {
    let (mut pieces, mut rest, mut state) = (Vec::new(), stream, u32::from(variant));
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size =
            if variant < 128 { usize::from(variant) + 1 } else { (state >> 25) as usize + 1 };
        let (piece, more) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

/// What is in the store under words that the client sent.
fn items(store: &Store, stream: &[u8]) -> String {
    let state = ServerState::default();
    let words = stream.split(|byte| !byte.is_ascii_graphic());
    let mut asked = Vec::new();
    for word in words.filter(|word| (1..=KEY_MAX).contains(&word.len())).take(32) {
        asked.extend_from_slice(b"mg ");
        asked.extend_from_slice(word);
        asked.extend_from_slice(b" t f s h v k\r\n");
    }
    asked.extend_from_slice(b"mn\r\n");
    let (replies, action) = talk(store, &state, &[&asked], WHOLE);
    assert!(
        replies.ends_with(b"MN\r\n") && action == SessionAction::Continue,
        "another client is not served"
    );
    masked(&replies)
}

fn converse(
    setup: Setup,
    stream: &[u8],
    pieces: &[&[u8]],
    turn: Turn,
    is_binary: bool,
) -> Conversation {
    let (store, state) = (setup.store(), setup.state());
    store.tick();
    let (replies, action) = talk(&store, &state, pieces, turn);
    let replies = if is_binary { masked_packets(&replies) } else { masked(&replies) };
    assert!(store.bytes() <= store.memory() + ITEM as u64 + 256, "{} bytes", store.bytes());
    let items = items(&store, stream);
    Conversation { replies, action, items }
}

/// Demands the same of the stream however it is cut.
fn demand(data: &[u8], is_binary: bool) {
    let [setup, variant, stream @ ..] = data else { return };
    let setup = Setup(*setup);
    let run = |pieces: &[&[u8]], turn| converse(setup, stream, pieces, turn, is_binary);
    let little = match variant % 2 {
        0 => Turn { budget: usize::from(variant % 7) + 1, ..WHOLE },
        _ => Turn { room: usize::from(*variant), ..WHOLE },
    };
    let mut attempt = 1;
    loop {
        let whole = run(&[stream], WHOLE);
        let pieces = run(&cut(stream, *variant), WHOLE);
        let paused = run(&[stream], little);
        if whole == pieces && whole == paused {
            return;
        }
        if attempt == ATTEMPTS {
            assert_eq!(whole, pieces, "whole and cut");
            assert_eq!(whole, paused, "at once and {little:?} at a time");
        }
        attempt += 1;
    }
}

/// The text and meta protocols.
pub fn text(data: &[u8]) {
    let stream = data.get(2..).unwrap_or_default();
    // The first byte would make it the other protocol.
    if stream.first() == Some(&binary::MAGIC) {
        return;
    }
    let (mut parser, mut rest) = (protocol::Parser::new(ITEM), stream);
    loop {
        let before = parser;
        match parser.next(rest) {
            protocol::Step::More(0) => break assert_eq!(parser, before),
            protocol::Step::More(used) => rest = &rest[used..],
            protocol::Step::Request { used, .. } => {
                assert!(used > 0);
                rest = &rest[used..];
            }
        }
    }
    demand(data, false);
}

/// The binary protocol.
pub fn binary(data: &[u8]) {
    let stream = data.get(2..).unwrap_or_default();
    if stream.first() != Some(&binary::MAGIC) {
        return;
    }
    for access in [binary::Access::Unrestricted, binary::Access::Denied, binary::Access::Granted] {
        let (mut parser, mut rest) = (binary::Parser::new(ITEM, access), stream);
        loop {
            let before = parser;
            match parser.next(rest) {
                binary::Step::More(0) => break assert_eq!(parser, before),
                binary::Step::More(used) => rest = &rest[used..],
                binary::Step::Request(used, ..) => {
                    assert!(used > 0);
                    rest = rest.get(used..).unwrap_or_default();
                }
            }
        }
    }
    let data = [&[data[0] & !(1 << 4)], &data[1..]].concat();
    demand(&data, true);
}
