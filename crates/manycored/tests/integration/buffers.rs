//! What the buffers of all connections take together is bounded, and others are served.
#![cfg(target_os = "linux")]

use crate::common::running::{Running, ask, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const VALUE: usize = 1_000_000;
const NO_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";

/// A `set` of a large value but for its last bytes, and these.
fn halves(key: &str) -> (Vec<u8>, Vec<u8>) {
    let mut set = format!("set {key} 0 0 {VALUE}\r\n").into_bytes();
    set.resize(set.len() + VALUE, b'v');
    let last = [set.split_off(set.len() - 3), b"\r\n".to_vec()].concat();
    (set, last)
}

fn is_there(server: &Running, key: &str) -> bool {
    let reply = server.talk(format!("mg {key} s\r\n").as_bytes());
    match &reply[..] {
        b"HD s1000000\r\n" => true,
        b"EN\r\n" => false,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

/// Sends, with short waits, what the server takes.
fn push(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("the server reads on");
}

#[test]
fn unfinished_requests_of_100_clients_take_no_more_than_their_share() {
    const CLIENTS: usize = 100;
    let server = Running::start("-t 2 -m 256 -o read_buf_mem_limit=16,buffer_timeout=0");
    let mut other = server.connect();
    ask(&mut other, b"set small 0 0 1\r\nx\r\n", b"STORED\r\n");
    let before = server.resident();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for (number, stream) in clients.iter_mut().enumerate() {
        push(stream, &halves(&format!("k{number}")).0);
        if number % 20 == 0 {
            ask(&mut other, b"get small\r\n", b"VALUE small 0 1\r\nx\r\nEND\r\n");
        }
    }
    let held = server.stat("read_buf_bytes");
    let grown = server.resident().saturating_sub(before);
    assert!((4 << 20..=16 << 20).contains(&held), "{held} bytes are reserved");
    assert!(grown < 24 << 20, "{grown} bytes more are resident");
    // A short request that comes in two parts is served all the same.
    ask(&mut other, b"set cut 0 0 5\r\nab", b"");
    thread::sleep(Duration::from_millis(20));
    ask(&mut other, b"cde\r\n", b"STORED\r\n");
    let mut stored = 0;
    for (number, stream) in clients.iter_mut().enumerate() {
        push(stream, &halves("").1);
        push(stream, b"mn\r\n");
        let mut reply = [0; 8];
        stream.read_exact(&mut reply).unwrap();
        let is_stored = reply == *b"STORED\r\n";
        let rest: &[u8] = if is_stored { b"" } else { &NO_MEMORY[8..] };
        assert!(is_stored || reply == NO_MEMORY[..8], "{}", String::from_utf8_lossy(&reply));
        // What follows is read as what it is.
        ask(stream, b"", &[rest, b"MN\r\n"].concat());
        assert_eq!(is_there(&server, &format!("k{number}")), is_stored);
        stored += usize::from(is_stored);
    }
    assert!((8..=16).contains(&stored), "{stored} are stored");
    assert_eq!(server.stat("store_no_memory"), (CLIENTS - stored) as u64);
    // Nothing is left of it but a chunk or two.
    assert!(server.stat("read_buf_bytes") <= 4 << 20);
}

#[test]
fn requests_within_the_limit_are_all_served() {
    const CLIENTS: usize = 10;
    let server = Running::start("-t 2 -m 64 -o read_buf_mem_limit=16");
    for round in 0..3 {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for (number, stream) in clients.iter_mut().enumerate() {
            push(stream, &halves(&format!("r{round}k{number}")).0);
        }
        for stream in &mut clients {
            ask(stream, &halves("").1, b"STORED\r\n");
        }
        let is_there = |number: usize| is_there(&server, &format!("r{round}k{number}"));
        assert!((0..CLIENTS).all(is_there));
    }
    assert_eq!((server.stat("store_no_memory"), server.stat("read_buf_oom")), (0, 0));
}

#[test]
fn a_refused_set_forgets_the_old_value_and_one_without_reply_gets_none() {
    let server = Running::start("-t 1 -m 64 -o read_buf_mem_limit=2");
    let (mut one, mut other) = (server.connect(), server.connect());
    ask(&mut one, b"set old 0 0 1\r\nx\r\n", b"STORED\r\n");
    push(&mut other, &halves("first").0);
    wait_for("the first", || (server.stat("read_buf_bytes") > VALUE as u64).then_some(()));
    let set =
        |line: String| [line.into_bytes(), vec![b'v'; VALUE], b"\r\nmn\r\n".to_vec()].concat();
    ask(&mut one, &set(format!("set old 0 0 {VALUE}\r\n")), &[NO_MEMORY, b"MN\r\n"].concat());
    ask(&mut one, b"get old\r\n", b"END\r\n");
    ask(&mut one, &set(format!("set old 0 0 {VALUE} noreply\r\n")), b"MN\r\n");
    ask(&mut one, &set(format!("ms old {VALUE}\r\n")), &[NO_MEMORY, b"MN\r\n"].concat());
    // The binary protocol: a set of a key of 1, 8 bytes of extras, and then no operation.
    let mut binary = server.connect();
    let body = (1 + 8 + VALUE) as u32;
    let head = [&[0x80, 1, 0, 1, 8, 0, 0, 0][..], &body.to_be_bytes(), b"abcd", &[0; 8]].concat();
    push(&mut binary, &[&head[..], &[0; 8], b"k", &vec![b'v'; VALUE]].concat());
    push(&mut binary, &[&[0x80, 10][..], &[0; 22]].concat());
    let words = b"Out of memory allocating item";
    let mut reply = vec![0; 24 + words.len() + 24];
    binary.read_exact(&mut reply).unwrap();
    assert_eq!(
        (reply[0], reply[1], &reply[6..8], &reply[12..16]),
        (0x81, 1, &[0, 0x82][..], &b"abcd"[..])
    );
    assert_eq!((&reply[24..][..words.len()], reply[24 + words.len() + 1]), (&words[..], 10));
    // The first one is not touched by all this.
    ask(&mut other, &halves("").1, b"STORED\r\n");
}

#[test]
fn buffers_of_large_values_go_when_their_clients_are_quiet() {
    let server = Running::start("-t 1 -m 64");
    let mut stream = server.connect();
    for _ in 0..3 {
        let (start, end) = halves("large");
        ask(&mut stream, &[start, end].concat(), b"STORED\r\n");
        let length = b"VA 1000000\r\n\r\n".len() + VALUE;
        stream.write_all(b"mg large v\r\n").unwrap();
        stream.read_exact(&mut vec![0; length]).unwrap();
    }
    let used = server.stat("read_buf_bytes");
    assert!((VALUE as u64..=8 << 20).contains(&used), "{used} bytes are kept");
    // No client asks for anything.
    thread::sleep(Duration::from_secs(4));
    let kept = server.stat("read_buf_bytes");
    assert!(kept < VALUE as u64, "{kept} bytes are kept");
}

#[test]
fn a_long_line_without_memory_is_refused_and_ends_the_connection() {
    let server = Running::start("-t 1 -m 64 -o read_buf_mem_limit=2");
    let mut first = server.connect();
    push(&mut first, &halves("first").0);
    wait_for("the first", || (server.stat("read_buf_bytes") > VALUE as u64).then_some(()));
    let mut get = server.connect();
    let _ = get.write_all(&[&b"get"[..], &b" key".repeat(200_000)].concat());
    let mut reply = Vec::new();
    let read = get.read_to_end(&mut reply);
    assert!(read.is_ok() || read.unwrap_err().kind() == ErrorKind::ConnectionReset);
    let expected = b"SERVER_ERROR out of memory reading request\r\n";
    assert_eq!(String::from_utf8_lossy(&reply), String::from_utf8_lossy(expected));
    assert_eq!(server.stat("read_buf_oom"), 1);
    ask(&mut first, &halves("").1, b"STORED\r\n");
}

#[test]
fn slow_readers_take_no_more_than_the_limit_and_others_are_served() {
    const READERS: usize = 100;
    let server = Running::start("-t 2 -m 64 -o read_buf_mem_limit=8");
    let mut fast = server.connect();
    let (start, end) = halves("large");
    ask(&mut fast, &[start, end].concat(), b"STORED\r\n");
    let before = server.resident();
    let mut slow: Vec<_> = (0..READERS).map(|_| server.connect()).collect();
    for stream in &mut slow {
        // More than the system's buffers take.
        push(stream, &b"get large\r\n".repeat(30));
    }
    for _ in 0..200 {
        ask(&mut fast, b"mn\r\n", b"MN\r\n");
    }
    wait_for("refusals", || (server.stat("read_buf_oom") > 0).then_some(()));
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 20 << 20, "{grown} bytes more are resident");
    assert!(server.stat("read_buf_bytes") <= 8 << 20);
    ask(&mut fast, b"mn\r\n", b"MN\r\n");
}

#[test]
fn while_buffers_are_scarce_those_who_stand_still_are_closed() {
    let server = Running::start("-t 1 -m 64 -o read_buf_mem_limit=2,buffer_timeout=1");
    let (mut still, mut quiet) = (server.connect(), server.connect());
    ask(&mut quiet, b"mn\r\n", b"MN\r\n");
    push(&mut still, &halves("still").0);
    // With this more than half is taken.
    let mut second = server.connect();
    push(&mut second, &[&b"set second 0 0 300000\r\n"[..], &[b'v'; 299_999]].concat());
    let mut reply = Vec::new();
    let closed = still.read_to_end(&mut reply);
    assert!(closed.is_ok() || closed.unwrap_err().kind() == ErrorKind::ConnectionReset);
    assert!(reply.is_empty());
    wait_for("an end", || (server.stat("curr_connections") <= 3).then_some(()));
    assert!((1..=2).contains(&server.stat("read_buf_oom")));
    // A connection without anything in its buffers stays, and there is room again.
    let (start, end) = halves("next");
    ask(&mut quiet, &[start, end].concat(), b"STORED\r\n");
}
