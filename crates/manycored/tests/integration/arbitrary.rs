//! Arbitrary bytes: no panic, no reply that depends on how they are cut, no get beyond its bounds.

use crate::common::Server;
use crate::common::binary::{packet, written};
use manycored::protocol::{Parser, Step, binary};
use manycored::session::{Context, OUT_MAX, Session};
use proptest::prelude::*;

/// Lines that mean something, nearly mean something, or nothing.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("get"),
        Just("gets"),
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

/// A binary request that means something, nearly does so, or means nothing.
fn binary_request() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![4 => 0x00..0x25_u8, 1 => any::<u8>()];
    let value = prop_oneof![Just(""), Just("7"), Just("some"), Just("\0ann\0secret")];
    let right = (opcode, "[ab]", value, prop::bool::weighted(0.9), 0..3_u8);
    let request = right.prop_map(|(opcode, key, value, is_right, number)| {
        // Other reports have the time in them.
        let key = if opcode == 0x10 { "sizes" } else { &key };
        let (extras, key, value) = match opcode {
            0x01..=0x03 | 0x11..=0x13 => (8, key, value),
            0x05 | 0x06 | 0x15 | 0x16 => (20, key, ""),
            0x07 | 0x0a | 0x0b | 0x17 | 0x20 => (0, "", ""),
            0x08 | 0x18 => (4, "", ""),
            0x0e | 0x0f | 0x19 | 0x1a | 0x21 | 0x22 => (0, key, value),
            0x1b..=0x1e | 0x23 | 0x24 => (4, key, ""),
            _ => (0, key, if is_right { "" } else { value }),
        };
        packet(
            opcode,
            &[&vec![0; extras][..], &vec![number; usize::from(!is_right)]].concat(),
            key,
            value,
        )
    });
    let spoilt = (request.clone(), any::<prop::sample::Index>(), any::<u8>());
    let spoilt = spoilt.prop_map(|(mut request, at, byte)| {
        let at = at.index(request.len());
        request[at] = if at == 1 && byte == 0x10 { 0 } else { byte };
        request
    });
    prop_oneof![30 => request, 1 => spoilt, 1 => prop::collection::vec(any::<u8>(), 0..60)]
}

/// A stream of them, or of values above the limit and what follows. It begins as what it is.
fn binary_stream() -> impl Strategy<Value = Vec<u8>> {
    let large =
        (0..3_000_usize).prop_map(|more| packet(0x01, &[0; 8], "a", vec![0x80; (1 << 20) + more]));
    let one = prop_oneof![200 => binary_request(), 1 => large];
    let first = packet(0x0a, &[], "", "");
    prop::collection::vec(one, 0..25).prop_map(move |all| [&first[..], &all.concat()].concat())
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

/// The stream in pieces of these sizes, again and again.
fn cut<'s>(stream: &'s [u8], sizes: &[usize]) -> Vec<&'s [u8]> {
    let (mut pieces, mut rest) = (Vec::new(), stream);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn replies_do_not_depend_on_the_cuts(stream in stream(), sizes in sizes()) {
        let whole = Server::new().talk([&stream[..]]);
        let cut = Server::new().talk(cut(&stream, &sizes));
        prop_assert_eq!(without_versions(&cut.0), without_versions(&whole.0));
        prop_assert_eq!(cut.1, whole.1);
    }

    #[test]
    fn binary_replies_do_not_depend_on_the_cuts(
        stream in binary_stream(),
        sizes in prop::collection::vec(1..90_usize, 1..8),
    ) {
        let told = |(replies, action): (Vec<u8>, _)| written(&replies, action);
        // Only the beginning in small pieces, so that large values do not take long.
        let (front, back) = stream.split_at(stream.len().min(2_000));
        let pieces = [&cut(front, &sizes)[..], &back.chunks(50_000).collect::<Vec<_>>()].concat();
        prop_assert_eq!(
            told(Server::new().talk(pieces)),
            told(Server::new().talk([&stream[..]])),
        );
    }

    #[test]
    fn binary_parser_uses_what_it_names_and_no_more(
        stream in binary_stream(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_shut in any::<bool>(),
    ) {
        let access = if is_shut { binary::Access::Denied } else { binary::Access::Unrestricted };
        for stream in [&stream[..], &bytes, &[&[binary::MAGIC][..], &bytes].concat()] {
            let (mut parser, mut rest) = (binary::Parser::new(1 << 20, access), stream);
            loop {
                let before = parser;
                match parser.next(rest) {
                    binary::Step::More(0) => { prop_assert_eq!(parser, before); break }
                    binary::Step::More(used) => rest = &rest[used..],
                    binary::Step::Request(used, ..) => {
                        prop_assert!(used > 0);
                        rest = &rest[used..];
                    }
                }
            }
        }
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
    let mut context = Context::new(server.store.handle(0), &server.state);
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
    let mut context = Context::new(server.store.handle(0), &server.state);
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
