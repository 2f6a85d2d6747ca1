//! The recording of `--trace`.

use crate::common::running::{Running, ask};
use manycore_trace::convert::{Filter, Summary};
use manycore_trace::{Kind, Trace};
use std::collections::BTreeMap;

/// Each event of connections and requests, without the client.
fn recorded(path: &std::path::Path) -> Vec<String> {
    let mut trace = Trace::open(path).unwrap();
    let (mut merge, mut lines) = (trace.merge(), Vec::new());
    while let Some(record) = merge.next() {
        if record.info.kind == Kind::Instant && record.info.class_name != "library" {
            let fields = record.fields().filter(|(name, _)| *name != "client");
            let fields: Vec<_> = fields.map(|(name, value)| format!("{name}={value}")).collect();
            lines.push(format!("{} {}", record.info.name, fields.join(" ")));
        }
    }
    assert!(merge.into_account().is_closed());
    lines
}

#[test]
fn requests_are_in_the_recording_of_a_server_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.mctrace");
    let options = format!("-t 1 --trace {} --trace-classes all", path.display());
    let mut server = Running::start(&options);
    let mut stream = server.connect();
    ask(
        &mut stream,
        b"set a 0 0 2\r\n17\r\nget a b\r\nadd a 0 0 1\r\nx\r\nincr a 1\r\ndelete a\r\ndelete a\r\n",
        b"STORED\r\nVALUE a 0 2\r\n17\r\nEND\r\nNOT_STORED\r\n18\r\nDELETED\r\nNOT_FOUND\r\n",
    );
    ask(&mut stream, b"mn\r\n", b"MN\r\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let expected = [
        "Opened ",
        "Store size=2 is_stored=true command=\"set\" key=\"a\"",
        "Get size=2 is_hit=true key=\"a\"",
        "Get size=0 is_hit=false key=\"b\"",
        "Store size=1 is_stored=false command=\"add\" key=\"a\"",
        "Change key=\"a\"",
        "Delete is_hit=true key=\"a\"",
        "Delete is_hit=false key=\"a\"",
    ];
    assert_eq!(recorded(&path), expected);
}

#[test]
fn connections_and_timed_turns_alone_are_recorded_unless_more_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.mctrace");
    let server = Running::start(&format!("-t 1 --trace {}", path.display()));
    let mut stream = server.connect();
    for _ in 0..64 {
        ask(&mut stream, b"get a\r\n", b"END\r\n");
    }
    let mut trace = Trace::open(&path).unwrap();
    let (mut merge, mut turns) = (trace.merge(), 0);
    while let Some(record) = merge.next() {
        turns += usize::from(record.info.kind == Kind::Begin && record.info.name == "Turn");
    }
    assert!((2..=8).contains(&turns), "{turns} turns");
    assert_eq!(recorded(&path), ["Opened "]);
}

#[test]
fn one_in_so_many_gets_is_recorded_and_the_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.mctrace");
    let options = format!("-t 1 --trace {} --trace-classes gets:10,deletes", path.display());
    let server = Running::start(&options);
    let mut stream = server.connect();
    for _ in 0..200 {
        ask(&mut stream, &b"get a\r\n".repeat(16), &b"END\r\n".repeat(16));
    }
    ask(&mut stream, b"delete a\r\n", b"NOT_FOUND\r\n");
    let mut trace = Trace::open(&path).unwrap();
    let summary = Summary::of(&mut trace, &Filter::default());
    let count = |class: &str, name: &str| summary.events[&(class.to_owned(), name.to_owned())];
    let gets = count("gets", "Get");
    assert!((220..=420).contains(&gets), "{gets} of 3,200 gets");
    assert_eq!(count("deletes", "Delete"), 1);
    assert_eq!(summary.sampled, BTreeMap::from([("gets".to_owned(), 10)]));
    let text = format!("{gets:>12}  gets Get   one in 10 was recorded: about {}\n", gets * 10);
    assert!(summary.to_string().contains(&text), "{summary}");
}
