//! The binary protocol: every command, every error.

use crate::common::Server;
use crate::common::binary::{Reply, ask, bare, change, expect, only, packet, put, touch};
use manycored::auth::Auth;
use manycored::server_state::{Language, Settings};
use manycored::session::SessionAction;
use manycored::store::Limits;
use std::time::Duration;

const NEVER: u32 = u32::MAX;

fn noop() -> Vec<u8> {
    bare(0x0a, "")
}

#[test]
fn gets_give_flags_and_value_and_the_key_if_asked() {
    let server = Server::new();
    let set = put(0x01, "a", 0xdead_beef, 0, "hello");
    let gets = [set, bare(0x00, "a"), bare(0x09, "a"), bare(0x0c, "a"), bare(0x0d, "a")];
    let (plain, named) = ("deadbeef hello", "deadbeef a hello");
    let expected = [(0, 0, ""), (1, 0, plain), (2, 0, plain), (3, 0, named), (4, 0, named)];
    let replies = expect(&server, &gets, &expected);
    assert!(replies.iter().all(|reply| reply.cas == replies[0].cas && reply.cas != 0));
    // Those that are quiet about what is not there.
    let gets = [bare(0x00, "b"), bare(0x09, "b"), bare(0x0c, "b"), bare(0x0d, "b"), noop()];
    let replies = expect(&server, &gets, &[(0, 1, "Not found"), (2, 1, "b"), (4, 0, "")]);
    assert_eq!((&replies[1].key[..], replies[1].cas), (&b"b"[..], 0));
}

#[test]
fn set_add_and_replace_have_their_conditions() {
    let server = Server::new();
    let sent = [
        put(0x03, "a", 0, 0, "none"),
        put(0x02, "a", 1, 0, "added"),
        put(0x02, "a", 0, 0, "again"),
        put(0x03, "a", 2, 0, "replaced"),
        bare(0x00, "a"),
        put(0x01, "a", 3, 0, ""),
        bare(0x00, "a"),
    ];
    let (none, exists) = ("Not found", "Data exists for key.");
    let some = (4, 0, "00000002 replaced");
    expect(
        &server,
        &sent,
        &[
            (0, 1, none),
            (1, 0, ""),
            (2, 2, exists),
            (3, 0, ""),
            some,
            (5, 0, ""),
            (6, 0, "00000003"),
        ],
    );
    // Quiet: only what fails is told.
    let sent = [
        put(0x13, "b", 0, 0, "none"),
        put(0x12, "b", 1, 0, "added"),
        put(0x12, "b", 0, 0, "again"),
        put(0x13, "b", 2, 0, "replaced"),
        put(0x11, "b", 2, 0, "set"),
        bare(0x00, "b"),
    ];
    expect(&server, &sent, &[(0, 1, none), (2, 2, exists), (5, 0, "00000002 set")]);
}

#[test]
fn version_is_a_condition_of_whatever_changes() {
    let server = Server::new();
    let version = |server: &Server| ask(server, &[bare(0x00, "a")]).0[0].cas;
    let exists = "Data exists for key.";
    // Of an add, too, whose own condition does not count then.
    for opcode in [0x01, 0x02, 0x03, 0x0e, 0x0f] {
        let request = |cas| {
            let extras: &[u8] = if opcode > 3 { &[] } else { &[0; 8] };
            only(cas, packet(opcode, extras, "a", "1"))
        };
        ask(&server, &[put(0x01, "a", 0, 0, "0")]);
        let replies = expect(&server, &[request(1)], &[(0, 2, exists)]);
        assert_eq!(replies[0].cas, 0);
        let replies = expect(&server, &[request(version(&server))], &[(0, 0, "")]);
        assert_eq!(replies[0].cas, version(&server), "of {opcode:#x}");
    }
    let sum = |cas| only(cas, change(0x05, "a", 1, 0, NEVER));
    ask(&server, &[put(0x01, "a", 0, 0, "5")]);
    expect(&server, &[sum(1)], &[(0, 2, exists)]);
    let replies = expect(&server, &[sum(version(&server))], &[(0, 0, "\0\0\0\0\0\0\0\u{6}")]);
    let delete = |cas| only(cas, bare(0x04, "a"));
    expect(&server, &[delete(1)], &[(0, 2, exists)]);
    expect(&server, &[delete(replies[0].cas), bare(0x00, "a")], &[(0, 0, ""), (1, 1, "Not found")]);
    // Of what is not there.
    for opcode in [0x01, 0x02, 0x03] {
        expect(&server, &[only(1, put(opcode, "a", 0, 0, ""))], &[(0, 1, "Not found")]);
    }
    expect(&server, &[only(1, packet(0x0e, &[], "a", "1"))], &[(0, 5, "Not stored.")]);
}

#[test]
fn append_and_prepend_need_something_to_add_to() {
    let server = Server::new();
    let more = |opcode, value| packet(opcode, &[], "a", value);
    let not = "Not stored.";
    let sent = [more(0x0e, "x"), more(0x0f, "x"), more(0x19, "x"), more(0x1a, "x")];
    expect(&server, &sent, &[(0, 5, not), (1, 5, not), (2, 5, not), (3, 5, not)]);
    let set = put(0x01, "a", 7, 0, "-");
    let sent = [set, more(0x0e, "3"), more(0x0f, "2"), more(0x19, "4"), more(0x1a, "1")];
    let sent = [&sent[..], &[bare(0x00, "a")]].concat();
    expect(&server, &sent, &[(0, 0, ""), (1, 0, ""), (2, 0, ""), (5, 0, "00000007 12-34")]);
}

#[test]
fn deletes_tell_whether_there_was_something() {
    let server = Server::new();
    let set = put(0x11, "a", 0, 0, "x");
    let sent =
        [set.clone(), bare(0x04, "a"), bare(0x04, "a"), set, bare(0x14, "a"), bare(0x14, "a")];
    expect(&server, &sent, &[(1, 0, ""), (2, 1, "Not found"), (5, 1, "Not found")]);
}

fn numbers(replies: &[Reply]) -> Vec<u64> {
    let number = |reply: &Reply| reply.value[..].try_into().map(u64::from_be_bytes);
    replies
        .iter()
        .filter(|reply| reply.status == 0)
        .filter_map(|reply| number(reply).ok())
        .collect()
}

#[test]
fn numbers_are_made_added_to_and_taken_from() {
    let server = Server::new();
    let sent = [
        change(0x05, "n", 5, 40, NEVER), // is not there, and is not made
        change(0x05, "n", 5, 40, 0),
        change(0x05, "n", 2, 0, 0),
        change(0x06, "n", 1, 0, NEVER),
        change(0x15, "n", 9, 0, 0), // quiet
        change(0x16, "n", 1, 0, 0),
        change(0x15, "m", 1, 0, NEVER),
        bare(0x00, "n"),
        change(0x06, "n", 1_000, 0, 0),
        change(0x05, "n", u64::MAX, 0, 0),
        change(0x05, "n", 2, 0, 0),
        change(0x06, "d", 1, 3, 0),
        put(0x11, "x", 0, 0, "12 apples"),
        put(0x11, "y", 0, 0, "apples"),
        change(0x05, "x", 1, 0, 0),
        change(0x16, "y", 1, 0, 0),
    ];
    let (replies, _) = ask(&server, &sent);
    assert_eq!(numbers(&replies), [40, 42, 41, 0, u64::MAX, 1, 3, 13]);
    let failed = replies.iter().filter(|r| r.status > 0).map(|r| (r.opaque, r.status));
    assert_eq!(failed.collect::<Vec<_>>(), [(0, 1), (6, 1), (15, 6)]);
    assert_eq!(replies.last().map(|r| r.value.len()), Some(46));
    assert_eq!(replies.iter().find(|r| r.opaque == 7).map(|r| &r.value[..]), Some(&b"49"[..]));
}

#[test]
fn touches_change_times_and_give_what_they_are_asked_for() {
    let server = Server::new();
    let all = |key| [0x1c, 0x1d, 0x1e, 0x23, 0x24].map(|opcode| touch(opcode, key, 0));
    let none = "Not found";
    let missed = [&all("a")[..], &[noop()]].concat();
    expect(&server, &missed, &[(0, 1, none), (1, 1, none), (3, 1, "a"), (5, 0, "")]);
    ask(&server, &[put(0x01, "a", 9, 0, "v")]);
    let (plain, named) = ((1, 0, "00000009 v"), (3, 0, "00000009 a v"));
    let expected = [(0, 0, "00000009"), plain, (2, 0, plain.2), named, (4, 0, named.2)];
    let replies = expect(&server, &all("a"), &expected);
    assert!(replies.iter().all(|reply| reply.cas == replies[0].cas && reply.cas > 0));
    // In the past.
    let past = 60 * 60 * 24 * 30 + 1;
    expect(&server, &[touch(0x1c, "a", past), bare(0, "a")], &[(0, 0, "00000009"), (1, 1, none)]);
}

#[test]
fn items_and_numbers_end_and_flushes_wait() {
    let server = Server::new();
    let sent = [
        put(0x01, "a", 0, 1, "x"),
        put(0x01, "b", 0, 100, "x"),
        change(0x05, "n", 0, 0, 1),
        touch(0x1d, "b", 1),
        put(0x01, "c", 0, 0, "x"),
        packet(0x08, &2_u32.to_be_bytes(), "", ""),
        bare(0x00, "a"),
        bare(0x00, "c"),
    ];
    assert!(ask(&server, &sent).0.iter().all(|reply| reply.status == 0));
    std::thread::sleep(Duration::from_millis(1_300));
    let sent = ["a", "b", "n", "c"].map(|key| bare(0x0d, key));
    expect(&server, &sent, &[(3, 0, "00000000 c x")]);
    std::thread::sleep(Duration::from_millis(900));
    expect(&server, &sent, &[]);
}

#[test]
fn flush_forgets_unless_it_is_not_allowed() {
    let server = Server::new();
    let set = put(0x11, "a", 0, 0, "x");
    for flush in [bare(0x08, ""), packet(0x08, &[0; 4], "", "")] {
        let sent = [set.clone(), flush, bare(0x09, "a"), noop()];
        expect(&server, &sent, &[(1, 0, ""), (3, 0, "")]);
    }
    let sent = [set.clone(), bare(0x18, ""), bare(0x09, "a"), set.clone(), bare(0x00, "a")];
    expect(&server, &sent, &[(4, 0, "00000000 x")]);
    let settings = Settings { flush_enabled: false, ..Settings::default() };
    let server = Server::with(Limits::default(), settings);
    let (not, got) = ("Auth failure.", "00000000 x");
    let sent = [set, bare(0x08, ""), bare(0x18, ""), bare(0x00, "a")];
    expect(&server, &sent, &[(1, 0x20, not), (2, 0x20, not), (3, 0, got)]);
}

#[test]
fn quit_says_so_and_its_quiet_form_does_not() {
    for (opcode, said) in [(0x07, 1), (0x17, 0)] {
        let (replies, action) = ask(&Server::new(), &[bare(opcode, ""), noop()]);
        assert_eq!((replies.len(), action), (said, SessionAction::Close));
        assert!(replies.iter().all(|reply| reply.status == 0));
    }
}

#[test]
fn noop_version_and_verbosity_are_answered() {
    let sent = [noop(), bare(0x0b, ""), touch(0x1b, "", 1)];
    let replies = ask(&Server::new(), &sent).0;
    assert!(replies.iter().all(|reply| reply.status == 0 && reply.cas == 0));
    assert_eq!(replies.len(), 3);
    assert!(replies[1].value.starts_with(b"1.6."), "{:?}", replies[1]);
}

#[test]
fn stats_are_packets_with_an_empty_one_at_the_end() {
    let server = Server::new();
    ask(&server, &[put(0x01, "a", 0, 0, "x"), bare(0x00, "a"), bare(0x00, "b")]);
    let get = |which: &str, name: &str| {
        let replies = ask(&server, &[bare(0x10, which), noop()]).0;
        assert!(replies.iter().all(|reply| reply.status == 0), "{which}");
        let [.., end, noop] = &replies[..] else { panic!("{which}") };
        assert!(end.key.is_empty() && end.value.is_empty() && noop.opcode == 0x0a);
        let found = replies.iter().find(|reply| reply.key == name.as_bytes());
        found.map(|reply| String::from_utf8_lossy(&reply.value).into_owned())
    };
    assert_eq!(get("", "get_hits").as_deref(), Some("1"));
    assert_eq!(get("", "cmd_set").as_deref(), Some("1"));
    assert_eq!(get("settings", "binding_protocol").as_deref(), Some("auto-negotiate"));
    assert_eq!(get("items", "items:1:number").as_deref(), Some("1"));
    assert_eq!(get("sizes", "sizes_status").as_deref(), Some("disabled"));
    assert_eq!(get("detail dump", "detailed").as_deref(), Some("END\r\n"));
    assert_eq!((get("detail on", "x"), get("slabs", "x")), (None, None));
    assert_eq!((get("reset", "x"), get("", "get_hits").as_deref()), (None, Some("0")));
    for which in ["nonsense", "detail", "cachedump 1 1", "conns"] {
        expect(&server, &[bare(0x10, which)], &[(0, 1, "Not found")]);
    }
}

#[test]
fn too_large_values_are_refused_and_what_was_there_goes() {
    let server = Server::new();
    let large = vec![b'x'; (1 << 20) + 1];
    let set = put(0x01, "a", 0, 0, "x");
    for (opcode, is_there) in [(0x01, false), (0x11, false), (0x02, true), (0x13, true)] {
        let sent = [set.clone(), put(opcode, "a", 0, 0, &large), bare(0x00, "a")];
        let rest = if is_there { (2, 0, "00000000 x") } else { (2, 1, "Not found") };
        expect(&server, &sent, &[(0, 0, ""), (1, 3, "Too large."), rest]);
    }
    let sent = [set, packet(0x0e, &[], "a", &large), bare(0x00, "a")];
    expect(&server, &sent, &[(0, 0, ""), (1, 3, "Too large."), (2, 0, "00000000 x")]);
    // What append makes of two that are not.
    let half = vec![b'x'; 600_000];
    let sent = [put(0x01, "a", 0, 0, &half), packet(0x0e, &[], "a", &half), noop()];
    expect(&server, &sent, &[(0, 0, ""), (1, 5, "Not stored."), (2, 0, "")]);
}

/// The reply does not wait for what is claimed, and nothing is reserved for it.
#[test]
fn claims_of_length_are_not_believed() {
    for (opcode, status) in [(0x01, 3), (0x0e, 3), (0x70, 0x81), (0x21, 0x81)] {
        let extras: &[u8] = if opcode == 0x01 { &[0; 8] } else { &[] };
        let claim = |body: u32| {
            let mut sent = packet(opcode, extras, "PLAIN", "");
            sent[8..12].copy_from_slice(&body.to_be_bytes());
            let (replies, action) = ask(&Server::new(), &[sent]);
            (replies.len(), replies[0].status, action)
        };
        assert_eq!(claim(1 << 30), (1, status, SessionAction::Continue));
        // Beyond that, nothing behind the packet would be answered for long.
        assert_eq!(claim((1 << 30) + 1), (1, 4, SessionAction::Close));
        assert_eq!(claim(u32::MAX), (1, 4, SessionAction::Close));
    }
}

#[test]
fn where_memory_is_full_new_items_are_refused() {
    let limits = Limits { memory: 100_000, evicts: false, ..Limits::default() };
    let server = Server::with(limits, Settings::default());
    let value = vec![b'x'; 80_000];
    let sent = [
        put(0x01, "a", 0, 0, &value),
        put(0x02, "b", 0, 0, &value),
        packet(0x0e, &[], "a", &value),
        bare(0x0b, ""),
    ];
    let expected = [(0, 0), (1, 0x82), (2, 5), (3, 0)];
    let replies = ask(&server, &sent).0;
    let told: Vec<_> = replies.iter().map(|reply| (reply.opaque, reply.status)).collect();
    assert_eq!(told, expected);
    assert_eq!(replies[1].value, b"Out of memory allocating item");
    let limits = Limits { memory: 10, evicts: false, ..Limits::default() };
    let server = Server::with(limits, Settings::default());
    let sent = [change(0x05, "n", 1, 1, 0)];
    expect(&server, &sent, &[(0, 0x82, "Out of memory allocating new item")]);
}

/// What each command must be made of: extras, whether a key, whether a value may be.
fn shape(opcode: u8) -> Option<(&'static [usize], bool, bool)> {
    Some(match opcode {
        0x00 | 0x09 | 0x0c | 0x0d | 0x04 | 0x14 => (&[0], true, false),
        0x01..=0x03 | 0x11..=0x13 => (&[8], true, true),
        0x05 | 0x06 | 0x15 | 0x16 => (&[20], true, false),
        0x07 | 0x17 | 0x0a | 0x0b | 0x20 => (&[0], false, false),
        0x08 | 0x18 => (&[0, 4], false, false),
        0x0e | 0x0f | 0x19 | 0x1a | 0x21 | 0x22 => (&[0], true, true),
        0x1b => (&[4], false, false),
        0x1c..=0x1e | 0x23 | 0x24 => (&[4], true, false),
        _ => return None,
    })
}

#[test]
fn lengths_that_no_command_has_end_the_conversation() {
    let server = Server::new();
    for opcode in 0..=u8::MAX {
        let Some((extras, key, value)) = shape(opcode) else { continue };
        for (length, has_key, has_value) in (0..30)
            .flat_map(|n| [(n, true, true), (n, true, false), (n, false, true), (n, false, false)])
        {
            let (name, data) = (if has_key { "k" } else { "" }, if has_value { "v" } else { "" });
            let sent = packet(opcode, &vec![0; length], name, data);
            let (replies, action) = ask(&server, &[sent, noop()]);
            let fits = extras.contains(&length) && has_key == key && (value || !has_value);
            let is_refused = replies.first().is_some_and(|reply| reply.status == 4);
            assert_eq!(is_refused, !fits, "{opcode:#x} {length} {has_key} {has_value}");
            if is_refused {
                let words = &replies[0].value[..];
                assert_eq!((words, replies.len()), (&b"Invalid arguments"[..], 1));
                assert_eq!(action, SessionAction::Close);
            }
        }
    }
    let (replies, action) = ask(&server, &[packet(0x10, &[0], "", "")]);
    assert_eq!((replies[0].status, action), (4, SessionAction::Close));
}

#[test]
fn unknown_commands_are_passed_over() {
    let server = Server::new();
    for opcode in (0x25..=u8::MAX).chain([0x1f]) {
        let sent = [packet(opcode, &[1, 2, 3], "key", "value"), noop()];
        expect(&server, &sent, &[(0, 0x81, "Unknown command"), (1, 0, "")]);
    }
    // Without users, the commands of authentication are unknown.
    let sent =
        [bare(0x20, ""), packet(0x21, &[], "PLAIN", "\0a\0b"), packet(0x22, &[], "X", ""), noop()];
    let not = "Unknown command";
    expect(&server, &sent, &[(0, 0x81, not), (1, 0x81, not), (2, 0x81, not), (3, 0, "")]);
}

#[test]
fn what_is_no_request_ends_the_conversation() {
    let server = Server::new();
    let ends = |first: Vec<u8>, status, words: &str| {
        let (replies, action) = ask(&server, &[first, noop()]);
        assert_eq!((replies.len(), action), (1, SessionAction::Close));
        assert_eq!((replies[0].status, &replies[0].value[..]), (status, words.as_bytes()));
    };
    let long = "k".repeat(251);
    ends(bare(0x00, &long), 4, "Invalid arguments");
    ends(bare(0x70, &long), 4, "Invalid arguments");
    expect(&server, &[bare(0x09, &long[1..])], &[]);
    let mut short = bare(0x00, "abc");
    short[11] = 2;
    ends(short, 0x81, "Unknown command");
    let mut wrong = noop();
    wrong[0] = 0x81;
    let sent = [noop(), wrong, noop()].concat();
    let (out, action) = server.talk([&sent[..]]);
    assert_eq!((crate::common::binary::replies(&out).len(), action), (1, SessionAction::Close));
    // Only a whole header is looked at.
    assert_eq!(server.talk([&[&noop()[..], &[0; 23]].concat()[..]]).1, SessionAction::Continue);
}

#[test]
fn first_byte_tells_what_a_client_speaks_unless_the_server_does() {
    let talk = |language, sent: &[u8]| {
        let settings = Settings { language, ..Settings::default() };
        let (out, action) = Server::with(Limits::default(), settings).talk([sent]);
        (out.first().copied(), action)
    };
    let (text, binary) = (&b"mn\r\n--------------------"[..], &noop()[..]);
    assert_eq!(talk(Language::Any, text), (Some(b'M'), SessionAction::Continue));
    assert_eq!(talk(Language::Any, binary), (Some(0x81), SessionAction::Continue));
    assert_eq!(talk(Language::Text, text), (Some(b'M'), SessionAction::Continue));
    assert_eq!(
        talk(Language::Text, &[b"--", binary, b"\r\n"].concat()),
        (Some(b'E'), SessionAction::Continue)
    );
    assert_eq!(talk(Language::Binary, text), (None, SessionAction::Close));
    assert_eq!(talk(Language::Binary, binary), (Some(0x81), SessionAction::Continue));
}

/// A server that requires authentication, and the folder of its file.
fn asking() -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    std::fs::write(&path, "ann:secret\n").unwrap();
    let mut server = Server::new();
    server.state.auth = Some(Auth::read(path).unwrap());
    (server, folder)
}

#[test]
fn where_users_are_asked_for_only_these_are_served() {
    let (server, _folder) = asking();
    let auth = |proof: &str| packet(0x21, &[], "PLAIN", proof);
    let step = |proof: &str| packet(0x22, &[], "PLAIN", proof);
    let (known, not) = ("Authenticated", "Auth failure.");
    // Each is another client, which sends nothing else when refused.
    expect(&server, &[bare(0x20, "")], &[(0, 0, "PLAIN")]);
    expect(&server, &[auth("\0ann\0secret"), noop()], &[(0, 0, known), (1, 0, "")]);
    expect(&server, &[auth("ann\0ann\0secret"), noop()], &[(0, 0, known), (1, 0, "")]);
    let sent = [auth(""), step("\0ann\0secret"), noop()];
    expect(&server, &sent, &[(0, 0x21, ""), (1, 0, known), (2, 0, "")]);
    let sent = [auth("\0ann\0wrong"), auth("\0ann\0secret"), noop()];
    expect(&server, &sent, &[(0, 0x20, not), (1, 0, known), (2, 0, "")]);
    for proof in ["bob\0ann\0secret", "\0bob\0secret", "ann\0secret", "\0ann\0", "\0\0", "x"] {
        expect(&server, &[auth(proof)], &[(0, 0x20, not)]);
    }
    expect(&server, &[step("\0ann\0secret")], &[(0, 0x20, not)]);
    expect(&server, &[packet(0x21, &[], "OTHER", "\0ann\0secret")], &[(0, 0x20, not)]);
    expect(&server, &[packet(0x21, &[], "OTHER", ""), step("")], &[(0, 0x20, not), (1, 0x20, not)]);
    let long = packet(0x21, &[], &"X".repeat(33), "\0ann\0secret");
    expect(&server, &[long], &[(0, 4, "Invalid arguments")]);
    expect(
        &server,
        &[auth(&"x".repeat(5_000)), bare(0x20, "")],
        &[(0, 0x20, not), (1, 0, "PLAIN")],
    );
    // All are counted but those that were only asked for a proof.
    let counts = server.store.totals();
    assert_eq!((counts.auth_cmds, counts.auth_errors), (16, 12));
}

#[test]
fn who_is_not_known_is_told_so_and_nothing_is_done() {
    let (server, _folder) = asking();
    let auth = |proof: &str| packet(0x21, &[], "PLAIN", proof);
    for opcode in (0..=u8::MAX).filter(|opcode| ![0x0b, 0x20, 0x21, 0x22].contains(opcode)) {
        let (replies, action) = ask(&server, &[bare(opcode, ""), noop()]);
        assert_eq!((replies.len(), replies[0].status, action), (1, 0x20, SessionAction::Close));
    }
    // No value is waited for.
    let mut set = put(0x11, "a", 0, 0, "");
    set[11] = 200;
    assert_eq!(ask(&server, &[set]).1, SessionAction::Close);
    assert!(server.store.is_empty());
    assert_eq!(ask(&server, &[bare(0x0b, "")]).0[0].status, 0);
    // A client that authenticates again, and fails, is not authenticated any more.
    for second in [auth("\0ann\0wrong"), auth(&"x".repeat(5_000)), auth("")] {
        let (replies, action) = ask(&server, &[auth("\0ann\0secret"), noop(), second, noop()]);
        let last = replies.last().map(|reply| (reply.opaque, reply.status));
        assert_eq!((last, action), (Some((3, 0x20)), SessionAction::Close));
    }
    // The text protocol's clients are asked, too.
    crate::common::expect(&server, "get a\n", "CLIENT_ERROR unauthenticated\n");
}

#[test]
#[cfg(target_os = "linux")]
fn users_that_are_made_after_the_start_are_known() {
    use crate::common::{
        binary::replies,
        running::{Running, program},
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    let mut command = program();
    command.env("MEMCACHED_SASL_PWDB", &path);
    let server = Running::spawn(command, "-S -t 1");
    let sent = [packet(0x21, &[], "PLAIN", "\0ann\0secret"), noop()].concat();
    let statuses = || {
        let bytes = server.talk(&sent);
        replies(&bytes).iter().map(|reply| reply.status).collect::<Vec<_>>()
    };
    assert_eq!(statuses(), [0x20, 0x20]);
    std::fs::write(&path, "ann:secret\n").unwrap();
    assert_eq!(statuses(), [0, 0]);
    // Another password counts at once as well.
    std::fs::write(&path, "ann:other\n").unwrap();
    assert_eq!(statuses(), [0x20, 0x20]);
}
