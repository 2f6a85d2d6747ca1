//! What an operator asks of a running server.
#![cfg(target_os = "linux")]

use crate::common::running::{LONG, Running, ask, wait_for};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// The lines of a reply up to this one.
fn lines_to(reader: &mut impl BufRead, end: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the end, before {end}: {lines:?}");
        let line = line.trim_end_matches(['\r', '\n']).to_owned();
        if line == end {
            return lines;
        }
        lines.push(line);
    }
}

fn say(stream: &TcpStream, sent: &[u8]) {
    let mut stream = stream;
    stream.write_all(sent).unwrap();
}

#[test]
fn lists_of_keys_have_all_of_them_while_others_are_served() {
    let server = Running::start("-t 1 -m 64");
    let (lister, mut other) = (server.connect(), server.connect());
    let mut sent = Vec::new();
    for key in 0..20_000 {
        write!(sent, "set key{key} {} 0 1 noreply\r\nx\r\n", key % 7).unwrap();
    }
    sent.extend_from_slice(b"mn\r\n");
    ask(&mut other, &sent, b"MN\r\n");
    // More than the system takes at once, and not read yet: no other client is held up by it.
    say(&lister, b"lru_crawler metadump all\r\nmn\r\n");
    ask(&mut other, b"get key7\r\n", b"VALUE key7 0 1\r\nx\r\nEND\r\n");
    let mut reader = BufReader::new(lister.try_clone().unwrap());
    assert_eq!(lines_to(&mut reader, "OK"), Vec::<String>::new());
    let lines = lines_to(&mut reader, "END");
    let keys: BTreeSet<&str> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(keys.len(), 20_000);
    let line = lines.iter().find(|line| line.starts_with("key=key9 ")).unwrap();
    let names: Vec<&str> = line.split(' ').map(|word| word.split('=').next().unwrap()).collect();
    assert_eq!(names, ["key", "exp", "la", "cas", "fetch", "cls", "size", "flags", ""]);
    assert!(line.contains(" exp=-1 ") && line.ends_with(" flags=2 "), "{line}");
    // What was asked behind the list is answered behind it.
    assert_eq!(lines_to(&mut reader, "MN"), Vec::<String>::new());
    say(&lister, b"lru_crawler mgdump hash\r\n");
    assert_eq!(lines_to(&mut reader, "OK"), Vec::<String>::new());
    let lines = lines_to(&mut reader, "EN");
    assert!(lines.len() == 20_000 && lines.iter().all(|line| line.starts_with("mg key")));
}

#[test]
fn lists_are_refused_where_they_cannot_be() {
    let server = Running::start("-t 1");
    let talk = |sent: &[u8]| String::from_utf8(server.talk(sent)).unwrap();
    let refused = "ERROR cannot pipeline other commands before metadump\r\n";
    assert_eq!(talk(b"mn\r\nlru_crawler metadump all\r\n"), format!("MN\r\n{refused}"));
    assert_eq!(talk(b"lru_crawler metadump x\r\n"), "BADCLASS invalid class id\r\n");
    assert_eq!(talk(b"lru_crawler metadump 2,3\r\n"), "OK\r\nEND\r\n");
    let disabled = "OK\r\nCLIENT_ERROR lru crawler disabled\r\n";
    assert_eq!(talk(b"lru_crawler disable\r\nlru_crawler metadump all\r\n"), disabled);
    let server = Running::start("-t 1 -X -W");
    let talk = |sent: &[u8]| String::from_utf8(server.talk(sent)).unwrap();
    assert_eq!(talk(b"lru_crawler metadump all\r\n"), "ERROR metadump not allowed\r\n");
    assert_eq!(talk(b"stats detail on\r\n"), "CLIENT_ERROR stats detail not allowed\r\n");
    assert_eq!(talk(b"stats cachedump 1 1\r\n"), "CLIENT_ERROR stats cachedump not allowed\r\n");
    assert_eq!(talk(b"watch\r\n"), "CLIENT_ERROR watch commands not allowed\r\n");
}

#[test]
fn watchers_are_told_what_others_do() {
    let server = Running::start("-t 2");
    let watcher = server.connect();
    let mut reader = BufReader::new(watcher.try_clone().unwrap());
    say(&watcher, b"watch fetchers mutations deletions connevents\r\n");
    assert_eq!(lines_to(&mut reader, "OK"), Vec::<String>::new());
    server.talk(b"set a#b 0 60 3\r\nxyz\r\nget a#b\r\nmg none\r\nmd a#b\r\nquit\r\n");
    let mut next = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("ts=") && line.contains(" gid="), "{line}");
        line.split_once(" type=").unwrap().1.trim_end().to_owned()
    };
    assert!(next().starts_with("conn_new rip=127.0.0.1 rport="));
    assert!(next().starts_with("item_get key=a%23b status=not_found clsid=0 cfd="));
    let line = next();
    let start = "item_store key=a%23b status=stored cmd=set ttl=60 clsid=1 cfd=";
    assert!(line.starts_with(start) && line.ends_with(" size=3"), "{line}");
    let line = next();
    assert!(line.starts_with("item_get key=a%23b status=found") && line.ends_with(" size=3"));
    assert!(next().starts_with("item_get key=none status=not_found"));
    assert!(next().starts_with("item_get key=a%23b status=found")); // by `md`
    assert_eq!(next(), "deleted key=a%23b cmd=md clsid=1 size=3");
    let line = next();
    assert!(line.starts_with("conn_close ") && line.contains(" reason=normal "), "{line}");
    assert_eq!(server.stat("log_watchers"), 1);
    drop((reader, watcher));
    wait_for("the watcher's end", || (server.stat("log_watchers") == 0).then_some(()));
}

#[test]
fn a_watcher_that_reads_nothing_is_told_how_much_it_missed() {
    let server = Running::start("-t 1 -o watcher_logbuf_size=8");
    let watcher = server.connect();
    let mut reader = BufReader::new(watcher.try_clone().unwrap());
    say(&watcher, b"watch\r\n");
    assert_eq!(lines_to(&mut reader, "OK"), Vec::<String>::new());
    let mut other = server.connect();
    let long = "k".repeat(240);
    let gets = format!("get {long}\r\n").repeat(1000) + "mn\r\n";
    for _ in 0..100 {
        ask(&mut other, gets.as_bytes(), ("END\r\n".repeat(1000) + "MN\r\n").as_bytes());
    }
    assert!(server.stat("log_watcher_skipped") > 1000);
    let mut line = String::new();
    while !line.starts_with("skipped=") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
}

#[test]
fn connections_are_listed_with_what_they_do() {
    let server = Running::start("-t 2");
    let idle = server.connect();
    idle.set_read_timeout(Some(LONG)).unwrap();
    let half = server.connect();
    say(&half, b"set a 0 0 100\r\nhalf");
    let (idle, half) = (idle.local_addr().unwrap(), half.local_addr().unwrap());
    wait_for("both", || {
        let reply = String::from_utf8(server.talk(b"stats conns\r\n")).unwrap();
        let state_of = |address| {
            let addr = format!(":addr tcp:{address}\r\n");
            let at = reply.find(&addr)?;
            let start = reply[..at].rfind("STAT ")? + 5;
            let name = format!("STAT {}:state ", &reply[start..at]);
            let rest = &reply[reply.find(&name)? + name.len()..];
            rest.split("\r\n").next().map(str::to_owned)
        };
        let own = format!("listen_addr tcp:127.0.0.1:{}\r\n", server.port);
        assert!(reply.contains("state conn_listening\r\n"), "{reply}");
        let is_right = state_of(idle).as_deref() == Some("conn_read")
            && state_of(half).as_deref() == Some("conn_nread")
            && reply.contains(&own)
            && reply.contains("state conn_parse_cmd\r\n");
        is_right.then_some(())
    });
}

#[test]
fn requests_are_counted_by_prefix() {
    let server = Running::start("-t 2 -D /");
    let sent = b"set a/1 0 0 1\r\nx\r\nget a/1 a/2 b/1 none\r\ndelete a/1\r\nstats detail dump\r\n";
    let reply = String::from_utf8(server.talk(sent)).unwrap();
    let counts = "PREFIX a get 2 hit 1 set 1 del 1\r\nPREFIX b get 1 hit 0 set 0 del 0\r\nEND\r\n";
    assert!(reply.ends_with(counts), "{reply}");
}

#[test]
fn what_became_of_items_is_counted() {
    let server = Running::start("-t 1");
    server
        .talk(b"set a 0 -1 1\r\nx\r\nget a\r\nset b 0 0 1\r\nx\r\nflush_all\r\nget b\r\nget c\r\n");
    let counts = ["get_expired", "get_flushed", "get_misses"].map(|name| server.stat(name));
    assert_eq!(counts, [1, 1, 3]);
    server.talk(b"set a 0 1 1\r\nx\r\n");
    std::thread::sleep(std::time::Duration::from_millis(1300));
    assert_eq!(server.talk(b"lru_crawler crawl all\r\n"), b"OK\r\n");
    // The flushed item, too.
    wait_for("the crawler", || (server.stat("crawler_reclaimed") == 2).then_some(()));
    assert_eq!((server.stat("reclaimed"), server.stat("curr_items")), (1, 0));
}
