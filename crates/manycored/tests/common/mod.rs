//! A conversation without a socket.
#![allow(dead_code)]

use manycored::report::{Facts, Settings};
use manycored::session::{Context, Session, Wish};
use manycored::store::{Limits, Store};

/// A server without sockets.
pub struct Server {
    pub store: Store,
    pub facts: Facts,
}

impl Server {
    pub fn new() -> Self {
        Self::with(Limits::default(), Settings::default())
    }

    pub fn with(limits: Limits, settings: Settings) -> Self {
        Self { store: Store::new(limits, 2), facts: Facts { settings, ..Facts::default() } }
    }

    /// The replies to a client that sends this in these pieces, and what its session wants then.
    pub fn talk<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Wish) {
        self.store.tick();
        let mut context = Context::new(self.store.handle(0), &self.facts);
        let mut session = Session::new(self.store.limits().item);
        let (mut input, mut out) = (Vec::new(), Vec::new());
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                let mut some = Vec::new();
                let progress = session.feed(&mut context, &input, &mut some, usize::MAX);
                input.drain(..progress.used);
                out.extend_from_slice(&some);
                if !progress.is_paused || session.wish() != Wish::Stay {
                    break;
                }
            }
        }
        (out, session.wish())
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
