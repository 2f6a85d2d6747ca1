//! What memcached's recorded conversations do not show: limits, newer flags, conditions, times.

use crate::common::{Server, expect};
use manycored::server_state::{ServerState, Settings};
use manycored::session::{Context, Session, SessionAction};
use manycored::store::{Limits, Store};
use std::time::Duration;

#[test]
fn too_large_values_are_refused_and_what_was_there_goes() {
    let server = Server::new();
    expect(&server, "set a 0 0 1\nx\n", "STORED\n");
    let large = format!("set a 0 0 1048577\n{}\nget a\n", "y".repeat(1_048_577));
    expect(&server, &large, "SERVER_ERROR object too large for cache\nEND\n");
    expect(&server, "set a 0 0 1\nx\n", "STORED\n");
    let add = format!("add a 0 0 2000000\n{}\nget a\n", "y".repeat(2_000_000));
    let reply = "SERVER_ERROR object too large for cache\nVALUE a 0 1\nx\nEND\n";
    expect(&server, &add, reply);
    let meta = format!("ms a 2000000 q\n{}\nmg a v\n", "y".repeat(2_000_000));
    expect(&server, &meta, "SERVER_ERROR object too large for cache\nEN\n");
    let most = format!("set b 0 0 1000000\n{}\nmg b s\n", "z".repeat(1_000_000));
    expect(&server, &most, "STORED\nHD s1000000\n");
}

#[test]
fn claims_of_length_allocate_nothing_and_need_no_data() {
    let server = Server::new();
    let (reply, _) = server.talk([&b"set a 0 0 2147483645\r\n"[..]]);
    assert_eq!(reply, b"SERVER_ERROR object too large for cache\r\n");
    expect(&server, "set a 0 0 2147483646\n", "CLIENT_ERROR bad command line format\n");
    expect(&server, "set a 0 0 99999999999999999999\n", "CLIENT_ERROR bad command line format\n");
    expect(&server, "set a 0 0 1000000\nonly this", "");
}

#[test]
fn lines_without_an_end_close_the_connection() {
    let told = format!("{}\r\n", manycored::protocol::GET_LINE_TOO_LONG);
    for (line, reply) in [
        ("x".repeat(2_100), ""),
        (format!("set {}\r\n", "y".repeat(2_100)), ""),
        (format!("get {}", "k ".repeat(600_000)), &*told),
    ] {
        let (out, action) = Server::new().talk([line.as_bytes()]);
        assert_eq!((&*String::from_utf8_lossy(&out), action), (reply, SessionAction::Close));
    }
    let (out, action) = Server::new().talk([format!("get {}\r\n", "k ".repeat(9_000)).as_bytes()]);
    assert_eq!((&out[..], action), (&b"END\r\n"[..], SessionAction::Continue));
}

#[test]
fn flags_and_versions_chosen_by_clients_come_back() {
    let server = Server::new();
    expect(&server, "set a 4294967295 0 1\nx\nget a\n", "STORED\nVALUE a 4294967295 1\nx\nEND\n");
    expect(&server, "set a 4294967296 0 1\n", "CLIENT_ERROR bad command line format\n");
    expect(&server, "ms a 1 E777 c\nx\nmg a c v\n", "HD c777\nVA 1 c777\nx\n");
    expect(&server, "ms a 1 C776\ny\nms a 1 C777 E5\ny\nmg a c\n", "EX\nHD\nHD c5\n");
    expect(&server, "md a C777\nmd a I E9\nmg a c\n", "EX\nHD\nHD c9 X W\n");
    expect(
        &server,
        "ma n N0 J5 E3 c\nma n E4 c v\ncas n 0 0 1 4\n7\n",
        "HD c3\nVA 1 c4\n6\nSTORED\n",
    );
}

#[test]
fn appending_to_nothing_makes_an_item_if_asked_to() {
    let server = Server::new();
    expect(&server, "ms a 2 MA N30\nok\nmg a v t\n", "HD\nVA 2 t30\nok\n");
    expect(&server, "ms a 1 MP N90\n!\nmg a v t\n", "HD\nVA 3 t30\n!ok\n");
    expect(&server, "ms b 1 MA\nx\nms b 1 MR\nx\nms b 1 MS\nx\nms b 1 ME\nx\n", "NS\nNS\nHD\nNS\n");
}

#[test]
fn value_can_be_taken_out_of_an_item() {
    let server = Server::new();
    expect(&server, "ms a 3 F7 T60\nabc\nmd a x\nmg a v f t\n", "HD\nHD\nVA 0 f0 t-1\n\n");
    expect(&server, "ms a 3\nabc\nmd a x I T30\nmg a v t\n", "HD\nHD\nVA 0 t30 X W\n\n");
}

#[test]
fn only_one_of_many_is_told_to_make_the_value_anew() {
    let server = Server::new();
    expect(&server, "mg a N60 v\nmg a N60 v\n", "VA 0 W\n\nVA 0 Z\n\n");
    expect(&server, "ms a 1 T60\nx\nmg a R90\nmg a R90\nmg a R30\n", "HD\nHD W\nHD Z\nHD Z\n");
    expect(&server, "ms a 1\nx\nmg a R90\n", "HD\nHD\n");
    expect(&server, "md a I T20\nmg a t\nmg a t\n", "HD\nHD t20 X W\nHD t20 Z X\n");
    // The client with the token comes too late: its value is stored, and stays stale.
    expect(&server, "ms a 1 I C1\ny\nmg a v\n", "HD\nVA 1 Z X\ny\n");
    expect(&server, "ms a 1\nz\nmg a v\n", "HD\nVA 1\nz\n");
    expect(&server, "ms a 1 I C18446744073709551615\nx\n", "EX\n");
}

#[test]
fn items_end_when_their_time_is_over() {
    let server = Server::new();
    let set = "set a 0 2 1\nx\nset b 0 0 1\nx\nset c 0 2 1\nx\ntouch c 100\nset d 0 -1 1\nx\n";
    expect(&server, set, "STORED\nSTORED\nSTORED\nTOUCHED\nSTORED\n");
    expect(&server, "gat 2 b\nget a d\n", "VALUE b 0 1\nx\nEND\nVALUE a 0 1\nx\nEND\n");
    std::thread::sleep(Duration::from_millis(2_200));
    expect(&server, "get a b c d\n", "VALUE c 0 1\nx\nEND\n");
    expect(
        &server,
        "append a 0 0 1\ny\nadd b 0 0 1\ny\nget b\n",
        "NOT_STORED\nSTORED\nVALUE b 0 1\ny\nEND\n",
    );
}

#[test]
fn flush_in_a_second_spares_what_comes_later() {
    let server = Server::new();
    expect(&server, "set a 0 0 1\nx\nflush_all 1\nget a\n", "STORED\nOK\nVALUE a 0 1\nx\nEND\n");
    std::thread::sleep(Duration::from_millis(1_200));
    expect(&server, "get a\nset b 0 0 1\nx\nget b\n", "END\nSTORED\nVALUE b 0 1\nx\nEND\n");
    server.store.sweep(false);
    assert_eq!(server.store.len(), 1);
    let settings = Settings { flush_enabled: false, ..Settings::default() };
    let server = Server::with(Limits::default(), settings);
    expect(
        &server,
        "set a 0 0 1\nx\nflush_all\nget a\n",
        "STORED\nCLIENT_ERROR flush_all not allowed\nVALUE a 0 1\nx\nEND\n",
    );
}

/// What made room counts by what it was then: an item whose time was over is no loss.
#[test]
fn expired_items_that_make_room_count_as_reclaimed_and_not_as_evicted() {
    const OLD: usize = 3_000;
    const NEW: usize = 300;
    let limits = Limits { memory: 1 << 20, item: 100_000, ..Limits::default() };
    let server = Server::with(limits, Settings::default());
    let value = "v".repeat(1_000);
    let sets = |name: &str, time: u32, count: usize| -> String {
        (0..count).map(|n| format!("set {name}{n} 0 {time} 1000\n{value}\n")).collect()
    };
    assert_eq!(server.say(&sets("old", 1, OLD)), "STORED\n".repeat(OLD));
    std::thread::sleep(Duration::from_millis(1_200));
    let (before, full) = (server.store.departures(), server.store.len());
    assert_eq!(server.say(&sets("new", 0, NEW)), "STORED\n".repeat(NEW));
    let (gone, left) = (server.store.departures(), server.store.len());
    // Before any look-up, which would drop more.
    let (evicted, expired) = (gone.evicted - before.evicted, gone.expired - before.expired);
    assert_eq!((evicted + expired) as usize, full + NEW - left);
    let kept = (0..NEW).filter(|n| server.say(&format!("mg new{n}\n")) == "HD\n").count();
    assert_eq!(evicted as usize, NEW - kept, "{expired} of {} are told as expired", full);
    assert!(expired > 0, "nothing had to go");
    let stats = server.say("stats\n");
    let value = |name: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name} in {stats}")).parse().unwrap()
    };
    assert_eq!((value("evictions"), value("reclaimed")), (gone.evicted, gone.expired));
    assert_eq!(value("expired_unfetched"), gone.expired);
}

#[test]
fn memory_is_bounded_with_and_without_eviction() {
    let value = "v".repeat(10_000);
    let sets: String = (0..1_000).map(|n| format!("set k{n} 0 0 10000\n{value}\n")).collect();
    let limits = Limits { memory: 1 << 20, ..Limits::default() };
    let server = Server::with(limits.clone(), Settings::default());
    assert_eq!(server.say(&sets), "STORED\n".repeat(1_000));
    assert!(server.store.bytes() <= 1 << 20 && server.store.len() > 80);
    let server = Server::with(Limits { evicts: false, ..limits }, Settings::default());
    let replies = server.say(&sets);
    let full = "SERVER_ERROR out of memory storing object\n";
    assert!(replies.starts_with("STORED\n") && replies.ends_with(full));
    assert_eq!(replies.matches("STORED\n").count(), server.store.len());
    expect(&server, "get k0\n", &format!("VALUE k0 0 10000\n{value}\nEND\n"));
    expect(&server, &format!("set k0 0 0 10000\n{value}\nget k0\n"), &format!("{full}END\n"));
    expect(
        &server,
        "cache_memlimit 7\ncache_memlimit 64\n",
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\nOK\n",
    );
    expect(&server, &format!("set k0 0 0 10000\n{value}\n"), "STORED\n");
}

#[test]
fn shutdown_and_quit_are_what_the_session_wants() {
    let server = Server::new();
    assert_eq!(server.talk([&b"quit\r\nget a\r\n"[..]]), (Vec::new(), SessionAction::Close));
    let settings = Settings { shutdown_enabled: true, ..Settings::default() };
    let server = Server::with(Limits::default(), settings);
    assert_eq!(server.talk([&b"shutdown\r\n"[..]]), (Vec::new(), SessionAction::Shutdown));
}

#[test]
fn stats_count_what_was_done() {
    let server = Server::new();
    server.say("set a 0 0 1\n1\nget a b\nincr a 1\nincr b 1\n");
    server.say("delete b\ntouch a 0\ngets a\ncas a 0 0 1 1\n2\n");
    let stats = server.say("stats\n");
    for line in [
        "cmd_get 3",
        "cmd_set 2",
        "get_hits 2",
        "get_misses 1",
        "incr_hits 1",
        "incr_misses 1",
        "delete_misses 1",
        "touch_hits 1",
        "cas_badval 1",
        "curr_items 1",
        "limit_maxbytes 67108864",
        "evictions 0",
        "threads 1",
    ] {
        assert!(stats.contains(&format!("STAT {line}\n")), "{line} in {stats}");
    }
    assert!(stats.ends_with("\nEND\n"));
    assert!(server.say("stats settings\n").contains("STAT item_size_max 1048576\n"));
    assert_eq!(server.say("stats reset\n"), "RESET\n");
    assert!(server.say("stats\n").contains("STAT cmd_get 0\n"));
}

#[test]
fn corners_found_by_generated_conversations_are_memcacheds() {
    let server = Server::new();
    // Flags before N and T tell of the time before; the last of the two counts.
    let sent = "mg a t N30 T50\nmg a t\nmg b T50 N30 t\n";
    expect(&server, sent, "HD t-1 W\nHD t50 Z\nHD t30 W\n");
    expect(&server, "ma n t k N60 J7\nma n T90 t v\n", "HD t-1 kn\nVA 1 t90\n8\n");
    // Of wrong tokens the last is told, but for F.
    let key = "CLIENT_ERROR error decoding key\n";
    let token = "CLIENT_ERROR bad token in command line format\n";
    expect(&server, "mg x Tx b\nmg x b Tx\n", &format!("{key}{token}"));
    expect(&server, "ms x 1 Fx b\n1\nms x 1 b Fx\n1\n", &format!("{key}{key}"));
    // Version 0 is any for what is added to, and none for the others.
    let sent = "ms c 1\n1\nms c 1 MP C0\n2\nma c C0 v\nms c 1 C0\n1\nms c 1 C0 I\n1\nmd c C0\n";
    expect(&server, sent, "HD\nHD\nVA 2\n22\nEX\nEX\nEX\n");
    expect(&server, "set d 0 0 4\n10 7\nincr d 1\n", "STORED\n11\n");
    expect(&server, "mg e h N30\nmg e h\n", "HD h0 W\nHD h1 Z\n");
    let not = "CLIENT_ERROR cannot increment or decrement non-numeric value\n";
    expect(&server, "set f 0 0 0\n\nma f C1\n", &format!("STORED\n{not}"));
    // A version is told only of what was stored; of what is wrong with flags a long opaque is told
    // last, and `ma` has one word for the rest.
    expect(&server, "ms none 1 C5 c\n1\nms none 1 MR c\n1\n", "NF c0\nNS c0\n");
    let (long, either) = ("o".repeat(32), "CLIENT_ERROR invalid or duplicate flag\n");
    for (flags, words) in [
        ("k", "CLIENT_ERROR opaque token too long\n"),
        ("Mx", "CLIENT_ERROR invalid mode for ma M token\n"),
        ("Jx", either),
        ("Fx", either),
        ("k k", either),
    ] {
        expect(&server, &format!("ma a O{long} {flags}\nma a {flags} O{long}\n"), &words.repeat(2));
    }
    expect(&server, "ms x 1 Mset Tx\n1\n", token);
    // A longer number is not stale any more.
    let sent = "set s 0 0 1\n5\nmd s I T0\nincr s 1\nmg s\nincr s 9\nmg s h\n";
    expect(&server, sent, "STORED\nHD\n6\nHD X W\n15\nHD h0\n");
    // What is a number, and what room it leaves.
    let sent = "set g 0 0 25\n4611686018427387903 50007\nincr g 1\nget g\n";
    let room = "VALUE g 0 25\n4611686018427387904      \nEND\n";
    expect(&server, sent, &format!("STORED\n4611686018427387904\n{room}"));
    for (text, sum) in [
        ("-14611686018427387904", "3835058055282163713\n"),
        ("\x0b5\0x", "6\n"),
        ("-0", "1\n"),
        ("-1", not),
        ("5-1", not),
        ("-+5", not),
    ] {
        let sent = format!("set h 0 0 {}\n{text}\nincr h 1\n", text.len());
        expect(&server, &sent, &format!("STORED\n{sum}"));
    }
}

#[test]
fn where_users_are_asked_for_nothing_is_done_before_they_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    std::fs::write(&path, "ann:secret\n").unwrap();
    let mut server = Server::new();
    server.state.auth = Some(manycored::auth::Auth::read(path.clone()).unwrap());
    // Each conversation is another client's.
    expect(
        &server,
        "get a\nset x 0 0 9\nann wrong\nset x 0 0 10\nann secret\nget a\nset a 0 0 1\nb\n",
        "CLIENT_ERROR unauthenticated\nCLIENT_ERROR authentication failure\nSTORED\nEND\nSTORED\n",
    );
    let stranger = "CLIENT_ERROR unauthenticated\n";
    expect(&server, "get a\nflush_all\n", &stranger.repeat(2));
    let (long, end, pair) = (
        "CLIENT_ERROR auth token too long\n",
        "CLIENT_ERROR bad command line termination\n",
        "CLIENT_ERROR bad authentication token format\n",
    );
    expect(
        &server,
        "set x 0 0 2147483646\nset x 0 0 8\nann secretset x 0 0 3\nann\nget a\n",
        &[long, end, pair, stranger].concat(),
    );
    assert_eq!(server.talk([&b"mn\r\nget a\r\n"[..]]), (Vec::new(), SessionAction::Close));
    let counts = server.store.totals();
    assert_eq!((counts.auth_cmds, counts.auth_errors), (2, 1));
    // More than is answered at a time.
    let replies = "CLIENT_ERROR unauthenticated\n".repeat(20_000) + "STORED\nEND\n";
    let many = "strange\n".repeat(20_000) + "set a 0 0 10\nann secret\nget b\n";
    assert!(server.say(&many) == replies, "some got no answer");
    let (reply, action) = server.talk([&[b'a'; 3000][..]]);
    assert_eq!((&reply[..], action), (&b""[..], SessionAction::Close));
    // Other users, without a new start; a file that is wrong changes nothing.
    let auth = server.state.auth.as_ref().unwrap();
    std::fs::write(&path, "bob:new\n").unwrap();
    auth.reload().unwrap();
    std::fs::write(&path, "nonsense\n").unwrap();
    assert!(auth.reload().is_err());
    expect(
        &server,
        "set x 0 0 10\nann secret\nset x 0 0 7\nbob new\nget b\n",
        "CLIENT_ERROR authentication failure\nSTORED\nEND\n",
    );
}

/// Also where the replies stop in between, because they are many: a set is done in its turn, once.
#[test]
fn gets_and_sets_of_one_key_keep_their_order() {
    let server = Server::new();
    let (large, stored) = ("x".repeat(300_000), "STORED\n");
    expect(&server, &format!("set a 0 0 300000\n{large}\n"), stored);
    let set = |value: char, more| format!("set a {} 0 1{more}\n{value}\n", value as u32);
    let sent = ["get a\n", &set('b', ""), "get a\n", &set('c', " noreply"), "gets b a a\n"];
    let reply = format!("VALUE a 0 300000\n{large}\nEND\n{stored}VALUE a 98 1\nb\nEND\n");
    let (got, _) = server.talk([sent.concat().replace('\n', "\r\n").as_bytes()]);
    let got = String::from_utf8_lossy(&got).replace("\r\n", "\n");
    let rest = got.strip_prefix(&reply).expect("the beginning");
    let ends = rest.starts_with("VALUE a 99 1 ") && rest.ends_with("\nc\nEND\n");
    assert!(ends && rest.matches("VALUE").count() == 2, "{rest:?}");
    let sets = server.say("stats\n").lines().find(|l| l.contains("cmd_set")).map(str::to_owned);
    assert_eq!(sets.as_deref(), Some("STAT cmd_set 3"));
}

/// A server on which prefixes end with this.
fn with_prefixes(delimiter: u8) -> Server {
    let limits = Limits { delimiter: Some(delimiter), ..Limits::default() };
    Server::with(limits, Settings::default())
}

#[test]
fn flush_of_a_prefix_spares_all_others_and_what_comes_later() {
    let server = with_prefixes(b':');
    for key in ["a:1", "a:b:2", "ab:3", "a", "b:a:4", ":5"] {
        expect(&server, &format!("set {key} 0 0 1\nx\n"), "STORED\n");
    }
    let left = |server: &Server| {
        let reply = server.say("get a:1 a:b:2 ab:3 a b:a:4 :5\n");
        let keys = reply.lines().filter_map(|line| line.strip_prefix("VALUE "));
        keys.map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>().join(" ")
    };
    expect(&server, "flush_prefix a:b\n", "OK\n");
    assert_eq!(left(&server), "a:1 ab:3 a b:a:4 :5");
    expect(&server, "flush_prefix a\nset a:b:2 0 0 1\ny\n", "OK\nSTORED\n");
    assert_eq!(left(&server), "a:b:2 ab:3 a b:a:4 :5");
    expect(&server, "flush_prefix none noreply\nflush_prefix b noreply\nmn\n", "MN\n");
    assert_eq!(left(&server), "a:b:2 ab:3 a :5");
    // It is gone for every command.
    let gone = "add a:1 0 0 1\nz\nincr b:a:4 1\ntouch b:a:4 1\nmg b:a:4\n";
    expect(&server, gone, "STORED\nNOT_FOUND\nNOT_FOUND\nEN\n");
    let before = server.store.len();
    server.store.sweep(false);
    assert_eq!((before, server.store.len()), (6, 5), "the add took one's place");
    assert_eq!(left(&server), "a:1 a:b:2 ab:3 a :5");
    expect(&server, "flush_prefix a\ndelete a:1\n", "OK\nNOT_FOUND\n");
}

#[test]
fn flush_of_a_prefix_has_a_meta_form() {
    let server = with_prefixes(b'/');
    expect(&server, "ms a/1 1\nx\nms b/1 1\nx\n", "HD\nHD\n");
    expect(&server, "mf a O77 k\nmg a/1\nmg b/1\n", "HD O77 ka\nEN\nHD\n");
    expect(&server, "mf Yg== b q\nmn\nmg b/1\n", "MN\nEN\n");
    let (format, flag) = ("CLIENT_ERROR bad command line format\n", "CLIENT_ERROR invalid flag\n");
    expect(&server, "mf\nmf a !\nmf a v\n", &format!("{format}{format}{flag}"));
    let long = "k".repeat(251);
    expect(&server, &format!("mf {long}\n"), "CLIENT_ERROR bad command line format\n");
    expect(&server, &format!("flush_prefix {long}\nflush_prefix\n"), "ERROR\nERROR\n");
}

#[test]
fn prefixes_are_unknown_where_nobody_asked_for_them() {
    let server = Server::new();
    expect(&server, "flush_prefix a\nflush_prefix a noreply\n", "ERROR\nERROR\n");
    expect(&server, "mf a\nmf a q\nmf a !\n", "ERROR\nERROR\nERROR\n");
    let limits = Limits { delimiter: Some(b':'), ..Limits::default() };
    let settings = Settings { flush_enabled: false, ..Settings::default() };
    let server = Server::with(limits, settings);
    let refused = "CLIENT_ERROR flush_prefix not allowed\n";
    expect(&server, "set a:1 0 0 1\nx\nflush_prefix a\n", &format!("STORED\n{refused}"));
    expect(&server, "mf a q\nmg a:1\n", &format!("{refused}HD\n"));
}

#[test]
fn a_get_with_a_key_that_is_too_long_gets_nothing_wherever_that_stands() {
    let server = Server::new();
    for at in 0..3 {
        for (length, reply) in [(250, "END\n"), (251, "CLIENT_ERROR bad command line format\n")] {
            let mut keys = ["a", "b", "c"].map(str::to_owned);
            keys[at] = "k".repeat(length);
            expect(&server, &format!("get {}\n", keys.join(" ")), reply);
            expect(&server, &format!("gets  {}  \n", keys.join("  ")), reply);
        }
    }
    expect(&server, "get \ngat 1 \n", &"CLIENT_ERROR bad command line format\n".repeat(2));
}

#[test]
fn the_end_of_a_get_needs_no_slice_of_its_own() {
    let (store, state) = (Store::new(Limits::default(), 1), ServerState::default());
    let mut context = Context::new(store.handle(0), &state);
    let mut session = Session::new(store.limits().item);
    let mut feed = |input: &str, budget| {
        let mut out = Vec::new();
        let progress = session.feed(&mut context, input.as_bytes(), &mut out, budget);
        (progress.used, progress.is_paused, String::from_utf8(out).unwrap())
    };
    assert_eq!(feed("get a b\r\n", 2), (9, false, "END\r\n".to_owned()));
    assert_eq!(feed("get a b c\r\nget d\r\n", 2), (7, true, String::new()));
    assert_eq!(feed(" c\r\nget d\r\n", 1), (4, true, "END\r\n".to_owned()));
    assert_eq!(feed("get d\r\n", 1), (7, false, "END\r\n".to_owned()));
}
