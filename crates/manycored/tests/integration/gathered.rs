//! Replies whose values are sent from the items' own memory: the client gets the same bytes,
//! however slowly it reads, and whatever becomes of the items.
#![cfg(target_os = "linux")]

use crate::common::running::{Running, ask, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A value that no other has.
fn value(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + ((number * 131 + at + at / 251) % 26) as u8).collect()
}

fn set(stream: &mut TcpStream, key: usize, value: &[u8]) {
    let line = format!("set {key} 7 0 {}\r\n", value.len());
    ask(stream, &[line.as_bytes(), value, b"\r\n"].concat(), b"STORED\r\n");
}

fn found(key: usize, value: &[u8]) -> Vec<u8> {
    let line = format!("VALUE {key} 7 {}\r\n", value.len());
    [line.as_bytes(), value, b"\r\nEND\r\n"].concat()
}

#[track_caller]
fn expect(stream: &mut TcpStream, reply: &[u8]) {
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap();
    let differs = got.iter().zip(reply).position(|(got, wanted)| got != wanted);
    assert_eq!(differs, None, "of {} bytes", reply.len());
}

#[test]
fn values_of_all_lengths_come_whole_among_others_in_text_and_meta() {
    let server = Running::start("-t 1 -m 64 -I 4m");
    let mut stream = server.connect();
    let lengths = [0, 1, 40, 900, 8191, 8192, 8193, 8300, 16_000, 70_000, 300_000, 2_500_000];
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for round in 0..3 {
        for (key, length) in lengths.into_iter().enumerate() {
            let value = value(key, length);
            if round == 0 {
                set(&mut stream, key, &value);
            }
            write!(asked, "get {key}\r\nmg {key} v f\r\nget absent {key}\r\n").unwrap();
            expected.extend(found(key, &value));
            write!(expected, "VA {length} f7\r\n").unwrap();
            expected.extend([&value[..], b"\r\n"].concat());
            expected.extend(found(key, &value));
        }
    }
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&asked).unwrap());
    expect(&mut stream, &expected);
    writing.join().unwrap();
}

#[test]
fn a_reply_on_its_way_keeps_its_bytes_when_items_are_replaced_removed_and_evicted() {
    const COUNT: usize = 40;
    const LENGTH: usize = 200_000;
    let server = Running::start("-t 1 -m 16");
    let mut other = server.connect();
    for key in 0..COUNT {
        set(&mut other, key, &value(key, LENGTH));
    }
    // More than the socket takes: the rest waits in the server, which has read it all.
    let mut slow = server.connect();
    let asked: String = (0..COUNT).map(|key| format!("get {key}\r\n")).collect();
    slow.write_all(asked.as_bytes()).unwrap();
    let mut first = vec![0; found(0, &value(0, LENGTH)).len()];
    slow.read_exact(&mut first).unwrap();
    wait_for("replies that wait", || (server.stat("read_buf_bytes") > 0).then_some(()));
    let before = server.stat("bytes_written");
    assert!(before < (COUNT * LENGTH) as u64);
    // What was answered stays; what was not is answered as it is then.
    ask(&mut other, b"flush_all\r\n", b"OK\r\n");
    for key in 0..2000 {
        set(&mut other, 1000 + key, &value(key, 20_000));
    }
    let mut rest = Vec::new();
    slow.shutdown(std::net::Shutdown::Write).unwrap();
    slow.read_to_end(&mut rest).unwrap();
    let all = [first, rest].concat();
    let mut at = 0;
    let mut hits = 0;
    for key in 0..COUNT {
        let found = found(key, &value(key, LENGTH));
        let is_hit = all[at..].starts_with(&found);
        assert!(is_hit || all[at..].starts_with(b"END\r\n"), "key {key} at {at} of {}", all.len());
        hits += usize::from(is_hit);
        at += if is_hit { found.len() } else { 5 };
    }
    assert_eq!(at, all.len());
    assert!((2..COUNT).contains(&hits), "{hits} of {COUNT} were answered before");
}
