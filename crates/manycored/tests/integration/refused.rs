//! Refused storage requests whose values are requests themselves: none of these is ever done.
//!
//! Each conversation stores a canary, sends requests that must be refused, each with a value that
//! would flush, delete or store, and then asks. The canary must still be there, and nothing else,
//! and the connection must be either in step, so that a mark is answered, or closed.

use crate::common::Server;
use crate::common::binary::packet;
use manycored::session::SessionAction;
use manycored::store::{Limits, Store};
use proptest::prelude::*;

/// The largest item, so that values above it are short.
const ITEM: usize = 4096;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() }
}

fn server() -> Server {
    let mut server = Server::new();
    server.store = Store::new(Limits { item: ITEM, ..Limits::default() }, 2);
    server
}

/// Requests of the text and meta protocols that change something which can be seen.
fn commands() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just("flush_all"),
        Just("flush_all noreply"),
        Just("delete canary"),
        Just("md canary q"),
        Just("set canary 0 0 1\r\nx"),
        Just("set stray 0 0 1\r\nx"),
        Just("ms stray 1 q\r\nx"),
        Just("append canary 0 0 1\r\nx"),
        Just("touch canary -1"),
        Just("mg stray N30"),
        Just("ma stray N0"),
        Just("quit"),
        Just("shutdown"),
    ];
    prop::collection::vec(one, 1..4).prop_map(|all| all.join("\r\n").into_bytes())
}

fn long_key() -> impl Strategy<Value = String> {
    (251..600_usize).prop_map(|length| "k".repeat(length))
}

/// A token of a line that is no number.
fn no_number() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("x"),
        Just("1x"),
        Just("0x1"),
        Just("--1"),
        Just("flush_all"),
        Just("99999999999999999999999"),
    ]
}

/// How the client names the length of the value.
#[derive(Debug, Clone)]
enum Length {
    /// As it is.
    Right,
    /// So that it can't be known.
    Unknown(String),
}

impl Length {
    fn of(&self, value: &[u8]) -> String {
        match self {
            Self::Right => value.len().to_string(),
            Self::Unknown(word) => word.clone(),
        }
    }
}

fn unknown_length() -> impl Strategy<Value = Length> {
    const WORDS: &[&str] =
        &["x", "-1", "-9", "+9", "9x", "0x9", "9.0", "2147483646", "4294967305", ""];
    prop_oneof![
        3 => prop::sample::select(WORDS).prop_map(str::to_owned),
        1 => "[1-9][0-9]{11,30}",
    ]
    .prop_map(Length::Unknown)
}

/// A refused line, without its length: what stands before that, and behind.
fn classic() -> impl Strategy<Value = (String, Length, String)> {
    let word = prop::sample::select(&["set", "add", "replace", "append", "prepend", "cas"][..]);
    let noreply = prop::sample::select(&["", " noreply", " more", " noreply more"][..]);
    (word, noreply).prop_flat_map(|(word, noreply)| {
        let behind = if word == "cas" { format!(" 5{noreply}") } else { noreply.to_owned() };
        let line = move |key: &str, flags: &str, time: &str| {
            (format!("{word} {key} {flags} {time} "), Length::Right, behind.clone())
        };
        let (key, flags, time, length) = (line.clone(), line.clone(), line.clone(), line.clone());
        let version = no_number().prop_map(move |wrong| {
            // Without its version `cas` is refused, too; for the others it is a wrong key.
            let tail = if wrong == "x" { noreply.to_owned() } else { format!(" {wrong}{noreply}") };
            match word {
                "cas" => ("cas a 0 0 ".to_owned(), Length::Right, tail),
                _ => (format!("{word} {} 0 0 ", "k".repeat(251)), Length::Right, tail),
            }
        });
        prop_oneof![
            long_key().prop_map(move |wrong| key(&wrong, "0", "0")),
            no_number().prop_map(move |wrong| flags("a", wrong, "0")),
            no_number().prop_map(move |wrong| time("a", "0", wrong)),
            unknown_length().prop_map(move |wrong| {
                let (before, _, behind) = length("a", "0", "0");
                // Where the length is left out, what follows stands in its place.
                let is_out = matches!(&wrong, Length::Unknown(word) if word.is_empty());
                (before, wrong, if is_out { noreply.to_owned() } else { behind })
            }),
            version,
        ]
    })
}

fn meta() -> impl Strategy<Value = (String, Length, String)> {
    let flag = prop_oneof![
        prop::sample::select(
            &["Z", "!", "{", "5", "k k", "q Z", "v", "h", "D1", "T", "Tx", "Cx", "E", "Fx", "N-x"]
                [..]
        )
        .prop_map(str::to_owned),
        prop::sample::select(&["MX", "M", "Ms", "b", "q MZ", "b k"][..]).prop_map(str::to_owned),
        (32..80_usize).prop_map(|length| format!("O{}", "o".repeat(length))),
        Just("A B C D E F G H I J K L M N O P Q R S T".to_owned()),
    ];
    prop_oneof![
        flag.prop_map(|flag| ("ms !a! ".to_owned(), Length::Right, format!(" {flag}"))),
        (long_key(), prop::sample::select(&["", " q", " b"][..])).prop_map(|(key, flags)| (
            format!("ms {key} "),
            Length::Right,
            flags.to_owned()
        )),
        unknown_length().prop_map(|length| ("ms a ".to_owned(), length, String::new())),
    ]
}

/// A value above the limit, with commands all over it.
fn too_large() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![Just("set big 0 0 "), Just("ms big "), Just("add big 0 0 ")];
    (line, commands()).prop_map(|(line, value)| {
        let value = [&value[..], b"\r\n"].concat().repeat(ITEM / value.len() + 2);
        [line.as_bytes(), value.len().to_string().as_bytes(), b"\r\n", &value, b"\r\n"].concat()
    })
}

fn refused_text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![3 => classic(), 2 => meta()];
    let small = (line, commands()).prop_map(|((before, length, behind), value)| {
        let line = format!("{before}{}{behind}\r\n", length.of(&value));
        [line.as_bytes(), &value, b"\r\n"].concat()
    });
    prop_oneof![20 => small, 1 => too_large()]
}

/// Packets that change something, as a value.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(packet(0x08, &[], "", "")),
        Just(packet(0x18, &[], "", "")),
        Just(packet(0x04, &[], "canary", "")),
        Just(packet(0x14, &[], "canary", "")),
        Just(packet(0x01, &[0; 8], "stray", "x")),
        Just(packet(0x11, &[0; 8], "canary", "x")),
        Just(packet(0x19, &[], "canary", "x")),
        Just(packet(0x07, &[], "", "")),
    ];
    prop::collection::vec(one, 1..4).prop_map(|all| all.concat())
}

/// A storage request, or one that must not have a value, which is refused.
fn refused_packet() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![
        2 => prop::sample::select(&[1_u8, 2, 3, 0x0e, 0x0f, 0x11, 0x12, 0x13, 0x19, 0x1a][..]),
        1 => prop::sample::select(&[0_u8, 4, 5, 0x0a, 0x1c, 0x1f, 0x99][..]),
    ];
    let extras = prop::sample::select(&[0_usize, 1, 4, 7, 9, 20, 255][..]);
    let key = prop_oneof![Just(String::new()), Just("a".to_owned()), long_key()];
    let small = (opcode, extras, key, packets()).prop_map(|(opcode, extras, key, value)| {
        // What would be stored as it is gets a key that can't be one.
        let fits = match opcode {
            0x0e | 0x0f | 0x19 | 0x1a => extras == 0,
            _ => false,
        };
        let key = if fits { "k".repeat(251) } else { key };
        packet(opcode, &vec![0; extras], &key, value)
    });
    let large = (prop::sample::select(&[1_u8, 2, 3, 0x11, 0x0e][..]), packets());
    let large = large.prop_map(|(opcode, value)| {
        let extras = if opcode == 0x0e { 0 } else { 8 };
        packet(opcode, &vec![0; extras], "big", value.repeat(ITEM / value.len() + 1))
    });
    prop_oneof![10 => small, 1 => large]
}

/// What is left when a client has sent this behind its canary; and its own replies.
fn outcome(sent: &[u8], mark: &[u8], sizes: &[usize]) -> (Server, Vec<u8>, SessionAction) {
    let server = server();
    server.say("set canary 0 0 5\nalive\n");
    let stream = [sent, mark].concat();
    let (mut pieces, mut rest) = (Vec::new(), &stream[..]);
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, more) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    let (replies, action) = server.talk(pieces);
    (server, replies, action)
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        Just(vec![usize::MAX]),
        prop::collection::vec(1..60_usize, 1..6),
        prop::collection::vec(100..3000_usize, 1..4),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn refused_values_are_never_requests(
        requests in prop::collection::vec(refused_text(), 1..4),
        sizes in sizes(),
    ) {
        let (server, replies, action) = outcome(&requests.concat(), b"mn\r\n", &sizes);
        let seen = server.say("get canary stray a k\n");
        prop_assert_eq!(seen, "VALUE canary 0 5\nalive\nEND\n");
        prop_assert_eq!(server.store.len(), 1);
        let text = String::from_utf8_lossy(&replies);
        match action {
            SessionAction::Continue => prop_assert!(text.ends_with("MN\r\n"), "{}", text),
            SessionAction::Close => {
                prop_assert!(text.ends_with("ERROR bad command line format\r\n"));
            }
            SessionAction::Shutdown => prop_assert!(false, "a value has shut the server down"),
        }
        // Refusals are all that is said.
        let refusals = text.strip_suffix("MN\r\n").unwrap_or(&text);
        for line in refusals.split_terminator("\r\n") {
            prop_assert!(line.contains("_ERROR "), "{}", line);
        }
    }

    #[test]
    fn refused_values_are_never_requests_in_the_binary_protocol(
        requests in prop::collection::vec(refused_packet(), 1..4),
        sizes in sizes(),
    ) {
        let begin = packet(0x0a, &[], "", "");
        let mark = packet(0x0b, &[], "", "");
        let sent = [&begin[..], &requests.concat()].concat();
        let (server, replies, action) = outcome(&sent, &mark, &sizes);
        let seen = server.say("get canary stray a big\n");
        prop_assert_eq!(seen, "VALUE canary 0 5\nalive\nEND\n");
        prop_assert_eq!(server.store.len(), 1);
        prop_assert!(action != SessionAction::Shutdown);
        let version = manycored::server_state::VERSION.as_bytes();
        prop_assert!(action == SessionAction::Close || replies.ends_with(version), "out of step");
    }
}

#[test]
fn the_canary_tells_a_value_that_is_a_request() {
    // The length is that of something else, which is the client's own mistake: the rest is read.
    let sent = b"set a x 0 1\r\n1\r\nflush_all\r\n";
    let (server, ..) = outcome(sent, b"mn\r\n", &[usize::MAX]);
    assert_eq!(server.say("get canary\n"), "END\n");
}
