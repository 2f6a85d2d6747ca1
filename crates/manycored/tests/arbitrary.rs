//! Arbitrary bytes: no panic, no reply that depends on how they are cut, no get beyond its bounds.

mod common;

use common::Server;
use manycored::protocol::{Parser, Step};
use manycored::session::{Context, OUT_MAX, Session};
use proptest::prelude::*;

/// Lines that mean something, nearly mean something, or nothing.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("get"),
        Just("bget"),
        Just("gat"),
        Just("set"),
        Just("cas"),
        Just("append"),
        Just("incr"),
        Just("delete"),
        Just("touch"),
        Just("mg"),
        Just("ms"),
        Just("md"),
        Just("ma"),
        Just("mn"),
        Just("flush_all"),
        Just("noreply"),
        Just("a"),
        Just("b"),
        Just("Zm9v"),
        Just("0"),
        Just("1"),
        Just("3"),
        Just("-1"),
        Just("70000"),
        Just("v"),
        Just("q"),
        Just("k"),
        Just("b"),
        Just("T30"),
        Just("N9"),
        Just("C1"),
        Just("MA"),
        Just("Oab"),
        Just(""),
    ];
    let end =
        prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r\nx\r\n"), 1 => Just("")];
    let words = (prop::collection::vec(word, 0..7), end)
        .prop_map(|(words, end)| (words.join(" ") + end).into_bytes());
    let set = ("[ab]", 0..40_usize, prop::bool::weighted(0.9)).prop_map(|(key, length, right)| {
        let end = if right { "\r\n" } else { "?" };
        format!("set {key} 0 0 {length}\r\n{}{end}", "v".repeat(length)).into_bytes()
    });
    prop_oneof![5 => words, 3 => set, 1 => prop::collection::vec(any::<u8>(), 0..30)]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(line(), 0..25).prop_map(|lines| lines.concat())
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..40_usize, 1..8)
}

/// The replies, with a mark in place of each version: two servers' versions differ, since they are
/// stamps of the clock. No other number of a reply is that long.
fn without_versions(replies: &[u8]) -> String {
    const SHORTEST: usize = 9;
    let text = String::from_utf8_lossy(replies);
    let mut without = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        without.push_str(if digits < SHORTEST { &part[..digits] } else { "<version>" });
        without.push_str(&part[digits..]);
    }
    without
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn replies_do_not_depend_on_the_cuts(stream in stream(), sizes in sizes()) {
        let whole = Server::new().talk([&stream[..]]);
        let (mut pieces, mut rest) = (Vec::new(), &stream[..]);
        for size in sizes.iter().cycle() {
            if rest.is_empty() { break; }
            let (piece, more) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        let cut = Server::new().talk(pieces);
        prop_assert_eq!(without_versions(&cut.0), without_versions(&whole.0));
        prop_assert_eq!(cut.1, whole.1);
    }

    #[test]
    fn parser_uses_what_it_names_and_no_more(stream in stream()) {
        let (mut parser, mut rest) = (Parser::new(1 << 20), &stream[..]);
        loop {
            let before = parser;
            match parser.next(rest) {
                Step::More(0) => { prop_assert_eq!(parser, before); break }
                Step::More(used) => rest = &rest[used..],
                Step::Request { used, .. } => { prop_assert!(used > 0); rest = &rest[used..] }
            }
        }
    }
}

/// A client that asks for much and reads nothing.
#[test]
fn replies_that_wait_are_bounded_and_come_all() {
    let server = Server::new();
    let value = "v".repeat(100_000);
    let sets: String = (0..50).map(|n| format!("set k{n} 0 0 100000\n{value}\n")).collect();
    assert_eq!(server.say(&sets), "STORED\n".repeat(50));
    let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    let sent = format!("mn\r\nget {}\r\nmn\r\ngets k1\r\n", keys.join(" "));
    let mut context = Context::new(server.store.handle(0), &server.facts);
    let mut session = Session::new(1 << 20);
    let (mut input, mut all, mut rounds) = (sent.into_bytes(), Vec::new(), 0);
    loop {
        let mut out = Vec::new();
        let progress = session.feed(&mut context, &input, &mut out, usize::MAX);
        assert!(out.len() < OUT_MAX + 101_000, "{}", out.len());
        input.drain(..progress.used);
        all.extend_from_slice(&out);
        rounds += 1;
        if !progress.is_paused {
            break;
        }
    }
    assert!(rounds > 10 && input.is_empty(), "{rounds}");
    let text = String::from_utf8(all).unwrap();
    assert_eq!(text.matches("VALUE ").count(), 51);
    let seen: Vec<&str> =
        text.split("VALUE ").skip(1).map(|v| v.split(' ').next().unwrap()).collect();
    assert_eq!(seen[..50], keys[..]);
    assert_eq!((text.matches("END\r\n").count(), text.matches("MN\r\n").count()), (2, 2));
}

#[test]
fn versions_of_two_servers_are_told_from_other_numbers() {
    let sent = b"set a 0 0 2\r\n77\r\ngets a\r\nmg a c s v\r\n";
    let seen = without_versions(&Server::new().talk([&sent[..]]).0);
    let told = "STORED\r\nVALUE a 0 2 <version>\r\n77\r\nEND\r\nVA 2 c<version> s2\r\n77\r\n";
    assert_eq!(seen, told);
}

#[test]
fn budget_of_requests_pauses_and_loses_nothing() {
    let server = Server::new();
    let sent = b"set a 0 0 1\r\nx\r\nget a a\r\nmg a v\r\nget a\r\n".repeat(5);
    let whole = server.talk([&sent[..]]).0;
    let mut context = Context::new(server.store.handle(0), &server.facts);
    let (mut session, mut input, mut all) = (Session::new(1 << 20), sent, Vec::new());
    let mut rounds = 0;
    while session.feed_all(&mut context, &mut input, &mut all) {
        rounds += 1;
    }
    assert!(rounds >= 10);
    assert_eq!(String::from_utf8(all), String::from_utf8(whole));
}

trait FeedAll {
    fn feed_all(
        &mut self,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> bool;
}

impl FeedAll for Session {
    /// Two requests; whether there may be more.
    fn feed_all(
        &mut self,
        context: &mut Context<'_>,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut some = Vec::new();
        let progress = self.feed(context, input, &mut some, 2);
        input.drain(..progress.used);
        out.extend_from_slice(&some);
        progress.is_paused
    }
}
