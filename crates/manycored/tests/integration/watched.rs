//! What watchers are told of single requests, in memcached's form. Each line was compared with
//! those of memcached 1.6.45.

use crate::common::{Server, binary::packet};
use manycored::store::events::{DELETIONS, FETCHERS, MUTATIONS};

/// What a watcher is told of this, but for times, numbers, classes and clients.
fn told(server: &Server, sent: &[u8]) -> String {
    let events = server.store.events();
    let watch = events.watch(FETCHERS | MUTATIONS | DELETIONS, 1 << 20).unwrap();
    server.talk([sent]);
    let mut out = Vec::new();
    watch.take(&mut out);
    let text = String::from_utf8(out).unwrap();
    let known =
        |word: &&str| !["ts=", "gid=", "clsid=", "cfd="].iter().any(|w| word.starts_with(w));
    let line = |line: &str| line.split(' ').filter(known).collect::<Vec<_>>().join(" ") + "\n";
    text.lines().map(line).collect()
}

#[track_caller]
fn expect(server: &Server, sent: &str, lines: &[&str]) {
    let sent = sent.replace('\n', "\r\n");
    let lines: String = lines.iter().map(|line| format!("type={line}\n")).collect();
    assert_eq!(told(server, sent.as_bytes()), lines, "of {sent:?}");
}

#[test]
fn a_touch_is_a_look_up_and_so_is_a_get_that_touches() {
    let server = Server::new();
    server.say("set a 0 0 2\nhi\n");
    let (found, none) =
        ("item_get key=a status=found size=2", "item_get key=none status=not_found size=0");
    for sent in ["touch KEY 50\n", "gat 50 KEY\n", "gats 0 KEY\n", "mg KEY T30\n", "me KEY\n"] {
        expect(&server, &sent.replace("KEY", "a"), &[found]);
        expect(&server, &sent.replace("KEY", "none"), &[none]);
    }
    for opcode in [0x1c, 0x1d, 0x1e, 0x23, 0x24] {
        let look = |key: &str| told(&server, &packet(opcode, &[0, 0, 0, 9], key, ""));
        assert_eq!(look("a"), format!("type={found}\n"), "{opcode}");
        assert_eq!(look("none"), format!("type={none}\n"), "{opcode}");
    }
}

#[test]
fn changes_in_place_are_told_with_what_they_found() {
    let server = Server::new();
    let get = |status: &str, size: usize| format!("item_get key=n status={status} size={size}");
    let stored = |command: &str, ttl: u32, size: usize| {
        format!("item_store key=n status=stored cmd={command} ttl={ttl} size={size}")
    };
    let none = get("not_found", 0);
    for sent in ["incr n 1\n", "decr n 1\n", "ma n\n", "delete n\n", "md n\n", "md n I\n"] {
        expect(&server, sent, &[&none]);
    }
    let is_made = stored("add", 60, 1);
    expect(&server, "ma n N60 J5\n", &[&none, &none, &is_made]);
    for (sent, size) in [("incr n 95\n", 1), ("decr n 1\n", 3), ("ma n D8 T50\n", 3)] {
        expect(&server, sent, &[&get("found", size)]);
    }
    expect(&server, "append n 0 0 2\nab\n", &[&get("found", 3), &stored("append", 50, 5)]);
    expect(&server, "prepend n 0 9 1\nc\n", &[&get("found", 5), &stored("prepend", 50, 6)]);
    expect(&server, "ms n 1 MA\nd\n", &[&get("found", 6), &stored("append", 50, 7)]);
    expect(&server, "md n I T30\n", &[&get("found", 7)]);
    let emptied = [get("found", 7), get("found", 0), stored("set", 0, 0)];
    let emptied = emptied.each_ref().map(String::as_str);
    let deleted = ["deleted key=n cmd=md size=0"];
    expect(&server, "md n x\n", &[&emptied[..], &deleted].concat());
    expect(&server, "md n C1\n", &[&get("found", 0)]);
    expect(&server, "delete n\n", &[&get("found", 0), "deleted key=n cmd=delete size=0"]);
}
