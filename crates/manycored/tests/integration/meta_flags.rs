//! Every flag of every meta command, as memcached 1.6.45's `doc/protocol.txt` lists them: what is
//! taken is done, and what is not taken is an error.

use crate::common::{Server, expect};
use manycored::server_state::Settings;
use manycored::store::Limits;

/// A command, its flags, and what shows that each is done: a flag, requests and their replies.
struct Command {
    /// The line up to its flags, and what follows it.
    line: (&'static str, &'static str),
    /// The refusal of a flag that it does not take.
    refusal: &'static str,
    flags: &'static [(char, &'static str, &'static str)],
}

const INVALID: &str = "CLIENT_ERROR invalid flag\n";
const EITHER: &str = "CLIENT_ERROR invalid or duplicate flag\n";

const GET: Command = Command {
    line: ("mg k", ""),
    refusal: INVALID,
    flags: &[
        ('b', "mg a2V5 b k\nmg bm8= b k\n", "HD kkey\nEN kbm8= b\n"),
        ('c', "ms k 1 E7\nx\nmg k c\n", "HD\nHD c7\n"),
        ('C', "ms k 1 E7\nx\nmg k v C7 s\nmg k v C8\n", "HD\nHD s1\nVA 1\nx\n"),
        ('E', "mg new N0 E9 c\nmg new E5 c\n", "HD c9 W\nHD c9 Z\n"),
        ('f', "ms k 1 F4294967295\nx\nmg k f\n", "HD\nHD f4294967295\n"),
        ('h', "ms k 1\nx\nmg k h\nmg k h\n", "HD\nHD h0\nHD h1\n"),
        ('k', "mg k k\nmg none k\n", "HD kk\nEN knone\n"),
        ('l', "mg k l\n", "HD l0\n"),
        ('L', "mg k L Lpath\nmg k Lpath\n", "CLIENT_ERROR duplicate flag\nHD\n"),
        ('N', "mg new N30 t\nmg new v t\nmg new N60 t\n", "HD t30 W\nVA 0 t30 Z\n\nHD t30 Z\n"),
        ('O', "mg k Oabc\nmg none O1\n", "HD Oabc\nEN O1\n"),
        ('P', "mg k P/path/to v\n", "VA 1\nx\n"),
        ('q', "mg none q\nmg k q\nmn\n", "HD\nMN\n"),
        ('R', "ms k 1 T10\nx\nmg k R9\nmg k R30\nmg k R30\n", "HD\nHD\nHD W\nHD Z\n"),
        ('s', "ms k 3\nabc\nmg k s\n", "HD\nHD s3\n"),
        ('t', "ms k 1 T90\nx\nmg k t\nmg key t\n", "HD\nHD t90\nHD t-1\n"),
        ('T', "mg k T60\nmg k t\nmg k T-1\nmg k\n", "HD\nHD t60\nHD\nEN\n"),
        ('u', "ms k 1\nx\nmg k u\nmg k h u\nmg k h\nmg k h\n", "HD\nHD\nHD h0\nHD h0\nHD h1\n"),
        ('v', "ms k 4\na\nb\nmg k v\n", "HD\nVA 4\na\nb\n"),
    ],
};

const STORE: Command = Command {
    line: ("ms k 1", "x\n"),
    refusal: INVALID,
    flags: &[
        ('b', "ms Zm9v 1 b k\ny\nmg foo v k\n", "HD kZm9v b\nVA 1 kZm9v b\ny\n"),
        ('c', "ms k 1 c E8\ny\nms k 1 ME c\ny\n", "HD c8\nNS c0\n"),
        ('C', "ms k 1 E7\nx\nms k 1 C6\ny\nms k 1 C7\nz\nmg k v\n", "HD\nEX\nHD\nVA 1\nz\n"),
        ('E', "ms k 1 E5\ny\nmg k c\n", "HD\nHD c5\n"),
        ('F', "ms k 1 F9\ny\nmg k f\nms k 1\ny\nmg k f\n", "HD\nHD f9\nHD\nHD f0\n"),
        (
            'I',
            "ms k 1 E7\nx\nms k 1 I C6\ny\nmg k v\nms k 1 E9\nx\nms k 1 I C10\ny\n",
            "HD\nHD\nVA 1 X W\ny\nHD\nEX\n",
        ),
        ('k', "ms k 1 k\ny\n", "HD kk\n"),
        ('L', "ms k 1 Lpath\ny\n", "HD\n"),
        (
            'M',
            "ms k 1 ME\ny\nms k 1 MR\na\nms k 1 MA\nb\nms k 1 MP\nc\nmg k v\nms k 1 MS\ny\n",
            "NS\nHD\nHD\nHD\nVA 3\ncab\nHD\n",
        ),
        ('N', "ms new 1 MA N30\ny\nms new 1 MA N90\nz\nmg new v t\n", "HD\nHD\nVA 2 t30\nyz\n"),
        ('O', "ms k 1 Oabc\ny\nms k 1 ME O1\ny\n", "HD Oabc\nNS O1\n"),
        ('P', "ms k 1 P\ny\n", "HD\n"),
        ('q', "ms k 1 q\ny\nms k 1 q ME\ny\nmn\n", "NS\nMN\n"),
        ('s', "ms k 2 s\nab\nms k 3 MA s\ncde\nms k 4 ME s\nabcd\n", "HD s2\nHD s5\nNS s4\n"),
        ('T', "ms k 1 T30\ny\nmg k t\nms k 1 T-1\ny\nmg k\n", "HD\nHD t30\nHD\nEN\n"),
    ],
};

const DELETE: Command = Command {
    line: ("md k", ""),
    refusal: INVALID,
    flags: &[
        ('b', "md a2V5 b k\nmg key\n", "HD ka2V5 b\nEN\n"),
        ('C', "ms k 1 E7\nx\nmd k C6\nmg k\nmd k C7\nmg k\n", "HD\nEX\nHD\nHD\nEN\n"),
        ('E', "md k I E5\nmg k c\nmd k x E6\nmg k c\n", "HD\nHD c5 X W\nHD\nHD c6\n"),
        ('F', "md k x F9\nmg k f v\n", "HD\nVA 0 f9\n\n"),
        ('I', "md k I\nmg k v\nmg k v\n", "HD\nVA 1 X W\nx\nVA 1 Z X\nx\n"),
        ('k', "md k k\nmd k k\n", "HD kk\nNF kk\n"),
        ('L', "md k Lpath\nmg k\n", "HD\nEN\n"),
        ('O', "md k Oabc\nmd k O1\n", "HD Oabc\nNF O1\n"),
        ('P', "md k P5\n", "HD\n"),
        ('q', "md k q\nmd k q\nmn\n", "NF\nMN\n"),
        ('T', "md k I T30\nmg k t\nmd k T60\nmg k\n", "HD\nHD t30 X W\nHD\nEN\n"),
        ('x', "ms k 1 F3 T9 E7\ny\nmd k x\nmg k v f t c\n", "HD\nHD\nVA 0 f0 t-1 c7\n\n"),
    ],
};

const ARITH: Command = Command {
    line: ("ma n", ""),
    refusal: EITHER,
    flags: &[
        ('b', "ma bg== b v k\n", "VA 1 kbg== b\n6\n"),
        ('c', "ma n E9 c\n", "HD c9\n"),
        ('C', "ma n E7\nma n C6 v\nma n C7 v\n", "HD\nEX\nVA 1\n7\n"),
        ('D', "ma n D10 v\n", "VA 2\n15\n"),
        ('E', "ma n E4\nmg n c\nma new N0 E3 c\n", "HD\nHD c4\nHD c3\n"),
        ('J', "ma new J13 N0 v\nma new J50 v\n", "VA 2\n13\nVA 2\n14\n"),
        ('k', "ma n k\nma none k\n", "HD kn\nNF knone\n"),
        ('L', "ma n Lpath v\n", "VA 1\n6\n"),
        (
            'M',
            "ma n MI v\nma n M+ v\nma n MD v\nma n M- v\nma n MX\n",
            "VA 1\n6\nVA 1\n7\nVA 1\n6\nVA 1\n5\nCLIENT_ERROR invalid mode for ma M token\n",
        ),
        ('N', "ma none v\nma new N30 v t\nmg new t\n", "NF\nVA 1 t30\n0\nHD t30\n"),
        ('O', "ma n Oabc\nma none O1\n", "HD Oabc\nNF O1\n"),
        ('P', "ma n P\n", "HD\n"),
        ('q', "ma n q\nma none q\nma new N0 q\nmg new v\nmn\n", "NF\nVA 1\n0\nMN\n"),
        ('t', "ma n t\nma n T60\nma n t\n", "HD t-1\nHD\nHD t60\n"),
        ('T', "ma n T60 t\nmg n t\n", "HD t60\nHD t60\n"),
        ('v', "ma n v\n", "VA 1\n6\n"),
    ],
};

const DEBUG: Command = Command {
    line: ("me k", ""),
    refusal: INVALID,
    flags: &[
        ('b', "me bm9uZQ== b\n", "EN\n"),
        ('L', "me none L\n", "EN\n"),
        ('P', "me none P\n", "EN\n"),
    ],
};

/// A server on which `k` and `key` are `x`, and `n` is 5.
fn server() -> Server {
    let server = Server::new();
    expect(&server, "ms k 1\nx\nms key 1\nx\nms n 1\n5\n", "HD\nHD\nHD\n");
    server
}

#[test]
fn every_flag_is_done_or_refused() {
    for command in [GET, STORE, DELETE, ARITH, DEBUG] {
        let (before, behind) = command.line;
        for letter in ('0'..='9').chain('A'..='z') {
            let known = command.flags.iter().find(|(flag, ..)| *flag == letter);
            match known {
                Some((_, sent, reply)) => expect(&server(), sent, reply),
                // With a token or without one, and also if it asks for silence.
                None => {
                    for flags in [format!("{letter}"), format!("{letter}1"), format!("{letter} q")]
                    {
                        let sent = format!("{before} {flags}\n{behind}mn\n");
                        expect(&server(), &sent, &format!("{}MN\n", command.refusal));
                    }
                }
            }
        }
    }
}

#[test]
fn duplicates_and_what_is_no_flag_are_refused() {
    let format = "CLIENT_ERROR bad command line format\n";
    for (command, duplicate) in [
        (GET, "CLIENT_ERROR duplicate flag\n"),
        (STORE, "CLIENT_ERROR duplicate flag\n"),
        (DELETE, "CLIENT_ERROR duplicate flag\n"),
        (ARITH, EITHER),
        (DEBUG, "CLIENT_ERROR duplicate flag\n"),
    ] {
        let (before, behind) = command.line;
        for (flag, ..) in command.flags {
            let token = if "CDEFJNRT".contains(*flag) { "1" } else { "" };
            let sent = format!("{before} {flag}{token} {flag}{token}\n{behind}mn\n");
            expect(&server(), &sent, &format!("{duplicate}MN\n"));
        }
        for mark in ["!", "-", "{", "~", "\u{7f}", "\u{e9}"] {
            let sent = format!("{before} {mark}\n{behind}mn\n");
            expect(&server(), &sent, &format!("{format}MN\n"));
        }
    }
}

#[test]
fn tokens_that_are_no_numbers_are_refused() {
    let bad = "CLIENT_ERROR bad token in command line format\n";
    for (command, flags, refusal) in [
        (GET, "CENRT", bad),
        (STORE, "CENT", bad),
        (STORE, "F", "CLIENT_ERROR bad command line format\n"),
        (DELETE, "CET", bad),
        (ARITH, "CDEJNT", EITHER),
    ] {
        let (before, behind) = command.line;
        for flag in flags.chars() {
            let is_time = "NRT".contains(flag);
            let largest = match flag {
                'F' => "4294967296",
                'N' | 'R' | 'T' => "2147483648",
                _ => "18446744073709551616",
            };
            let wrong = ["", "x", "1x", "+1", " 1", "00000000000000000000001", largest];
            for token in wrong.into_iter().chain((!is_time).then_some("-1")) {
                // A token of its own is a flag of its own, and told first.
                let is_apart = token.starts_with(' ');
                let refusal = if is_apart { command.refusal } else { refusal };
                let sent = format!("{before} {flag}{token}\n{behind}mn\n");
                expect(&server(), &sent, &format!("{refusal}MN\n"));
            }
        }
    }
}

#[test]
fn where_there_is_no_room_each_command_says_so_in_its_way() {
    let limits = Limits { memory: 10, evicts: false, ..Limits::default() };
    let server = Server::with(limits, Settings::default());
    let full = "SERVER_ERROR out of memory storing object\n";
    let sent = "set a 0 0 1\nx\nadd a 0 0 1\nx\nappend a 0 0 1\nx\ncas a 0 0 1 1\nx\nms a 1 q\nx\n";
    expect(&server, sent, &full.repeat(5));
    expect(&server, "mg a N30 k\nmg a N30 q\nmn\n", "EN ka\nMN\n");
    expect(&server, "ma a N0 q\n", "SERVER_ERROR Out of memory allocating new item\n");
    // A value that grows beyond the limit of an item is not there for lack of room.
    let server = Server::with(Limits { item: 1024, ..Limits::default() }, Settings::default());
    let half = "v".repeat(600);
    let sent = format!("set a 0 0 600\n{half}\nappend a 0 0 600\n{half}\nms a 600 MP s\n{half}\n");
    expect(&server, &sent, "STORED\nNOT_STORED\nNS s600\n");
    let sent = format!("ms a 1025 MA\n{}\nmg a\n", "v".repeat(1025));
    expect(&server, &sent, "SERVER_ERROR object too large for cache\nEN\n");
}
