//! Requests and replies in the log (`-vv`).

use crate::common::{Server, recorded};
use manycored::auth::Auth;
use manycored::log::Log;
use manycored::server_state::ServerState;
use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A stream that is read while it is written.
#[derive(Default, Clone)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server that logs requests, and its log.
fn logging() -> (Server, Lines) {
    let (mut server, lines) = (Server::new(), Lines::default());
    server.state.log = Log::to(lines.clone());
    server.state.set_verbosity(2);
    (server, lines)
}

fn logged(server: &Server, lines: &Lines) -> String {
    server.state.log.flush(Duration::from_secs(20));
    String::from_utf8(std::mem::take(&mut lines.0.lock().unwrap())).unwrap()
}

const SENT: &[u8] = b"set a 3 0 12\r\nget a\r\nbcdef\r\nget a b a\r\n\
    set b 0 0 1 noreply\r\nx\r\ngats 9 a b\r\nincr a 1\r\ntouch a 9\r\ndelete b\r\n\
    mg a v t\r\nms a 2 T0\r\nhi\r\nmn\r\nbogus\r\nset d 0 0 2000000000\r\nversion\r\n";

const LOGGED: &str = "<0 set a 3 0 12\n>0 STORED\n\
    <0 get a b a\n>0 sending key a\n>0 sending key a\n>0 END\n<0 set b 0 0 1 noreply\n\
    <0 gats 9 a b\n>0 sending key a\n>0 sending key b\n>0 END\n<0 incr a 1\n<0 touch a 9\n\
    <0 delete b\n<0 mg a v t\n<0 ms a 2 T0\n<0 mn\n>0 MN\n<0 bogus\n>0 ERROR\n\
    <0 set d 0 0 2000000000\n>0 SERVER_ERROR object too large for cache\n";

#[test]
fn requests_and_replies_are_logged_as_memcached_does_without_values() {
    let (server, lines) = logging();
    server.talk([SENT]);
    assert_eq!(logged(&server, &lines), LOGGED);
}

#[test]
fn what_is_logged_does_not_depend_on_how_requests_arrive() {
    for length in [1, 2, 7] {
        let (server, lines) = logging();
        server.talk(SENT.chunks(length));
        assert_eq!(logged(&server, &lines), LOGGED, "in pieces of {length}");
    }
}

#[test]
fn logged_conversations_have_the_same_replies() {
    for (at, (sent, _)) in recorded().into_iter().enumerate() {
        let (quiet, (server, lines)) = (Server::new(), logging());
        let (expected, got) = (quiet.talk([&sent[..]]), server.talk([&sent[..]]));
        let masked = |reply: &[u8]| crate::common::masked(reply).replace("time ", "");
        if !sent.windows(5).any(|part| part == b"stats") {
            assert_eq!((masked(&got.0), got.1), (masked(&expected.0), expected.1), "{at}");
        }
        logged(&server, &lines);
    }
}

#[test]
fn packets_are_logged_with_headers_and_without_values() {
    let (server, lines) = logging();
    let packet = |opcode, key: &[u8], extras: &[u8], value: &[u8]| {
        let body = extras.len() + key.len() + value.len();
        let mut packet = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
        packet.extend_from_slice(&[0, 0, 0, body as u8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        [&packet, extras, key, value].concat()
    };
    let none = packet(0, b"no\nne", &[], &[]);
    let sent = [packet(0x11, b"a", &[0; 8], b"value"), none, packet(4, b"b", &[], &[])].concat();
    let header = |mark: char, space: &str, bytes: &[u8]| -> String {
        let mut text = String::new();
        for row in bytes.chunks(4) {
            let row: String = row.iter().map(|byte| format!(" 0x{byte:02x}")).collect();
            text += &format!("{mark}0{space}{row}\n");
        }
        text
    };
    let reply = |opcode| {
        let mut bytes = [0; 24];
        (bytes[0], bytes[1], bytes[7], bytes[11], bytes[15]) = (0x81, opcode, 1, 9, 7);
        let rows = header('>', "  ", &bytes);
        format!(">0 Writing an error: Not found\n>0 Writing bin response:\n{rows}")
    };
    let read = |packet: &[u8]| {
        format!("<0 Read binary protocol data:\n{}", header('<', "   ", &packet[..24]))
    };
    let (set, get) = (read(&sent), read(&sent[24 + 14..]));
    let expected = format!(
        "{set}<0 SET a Value len is 5\n{get}<0 GET no\\x0ane\n{}{}Deleting b\n{}",
        reply(0),
        read(&packet(4, b"b", &[], &[])),
        reply(4)
    );
    server.talk([&sent[..]]);
    assert_eq!(logged(&server, &lines), expected);
    let (server, lines) = logging();
    server.talk(sent.chunks(5));
    assert_eq!(logged(&server, &lines), expected);
}

#[test]
fn passwords_and_control_bytes_are_not_logged_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    fs::write(&path, "ann:secret\n").unwrap();
    let (server, lines) = logging();
    let state = ServerState { auth: Some(Auth::read(path).unwrap()), ..server.state };
    let server = Server { state, ..server };
    server.talk([&b"get a\r\nset x 0 0 10\r\nann secret\r\nget \x1b[2J\x00\r\r\n"[..]]);
    let text = logged(&server, &lines);
    let end = ">0 CLIENT_ERROR unauthenticated\n>0 STORED\n<0 get \\x1b[2J\\x00\\x0d\n>0 END\n";
    assert!(text.ends_with(end), "{text}");
    assert!(!text.contains("secret"), "{text}");
    let mut sent = packet_of_proof();
    sent.extend_from_slice(b"ann\0ann\0secret");
    server.talk([&sent[..]]);
    let text = logged(&server, &lines);
    assert!(text.contains("Writing bin response:") && !text.contains("secret"), "{text}");
}

/// The header and the key of a proof of 14 bytes.
fn packet_of_proof() -> Vec<u8> {
    let mut packet = vec![0x80, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0, 19];
    packet.resize(24, 0);
    packet.extend_from_slice(b"PLAIN");
    packet
}

#[test]
fn the_command_verbosity_switches_the_log() {
    let (server, lines) = logging();
    server.state.set_verbosity(1);
    server.talk([&b"get a\r\nverbosity 2\r\n"[..], b"get b\r\nverbosity 1\r\n", b"get c\r\n"]);
    assert_eq!(logged(&server, &lines), "<0 get b\n>0 END\n<0 verbosity 1\n>0 OK\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_answers_while_its_log_is_not_read_and_tells_what_was_dropped() {
    use crate::common::running::{Running, ask, program};
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let mut command = program();
    command.stderr(Stdio::piped());
    let mut server = Running::spawn(command, "-t 2 -vv");
    let mut client = server.connect();
    let gets = format!("get {}\r\n", "k".repeat(200)).repeat(500);
    for _ in 0..20 {
        ask(&mut client, gets.as_bytes(), "END\r\n".repeat(500).as_bytes());
    }
    let mut lines = BufReader::new(server.child.stderr.take().unwrap()).lines();
    let dropped = lines.find(|line| line.as_ref().unwrap().ends_with("of the log were dropped"));
    let dropped = dropped.unwrap().unwrap();
    let count = dropped.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
    assert!(count.is_some_and(|count| (1000..20_000).contains(&count)), "{dropped}");
}
