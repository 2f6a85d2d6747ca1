//! The program itself, over its sockets.
#![cfg(target_os = "linux")]

use crate::common::binary::written;
use crate::common::running::{LONG, Running, ask, program, wait_for};
use crate::common::{binary, masked, recorded};
use manycored::session::SessionAction;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn recorded_conversations_get_the_same_bytes_over_tcp() {
    for (sent, reply) in recorded().iter().step_by(8) {
        let server = Running::start("-t 2");
        let expected = masked(reply).replace("<EOF>", "");
        assert_eq!(masked(&server.talk(sent)), expected, "{:?}", String::from_utf8_lossy(sent));
    }
}

#[test]
fn recorded_binary_conversations_get_the_same_bytes_over_tcp() {
    // One server: each conversation has keys of its own.
    let server = Running::start("-t 2");
    for conversation in binary::recorded().iter().filter(|recorded| recorded.is_fixed()) {
        let out = server.talk(&conversation.bytes());
        let end = if conversation.replies.ends_with("EOF") {
            SessionAction::Close
        } else {
            SessionAction::Continue
        };
        assert_eq!(written(&out, end), conversation.replies);
    }
}

#[test]
fn unix_socket_serves_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let start = || program().arg("-s").arg(&path).args(["-a", "750", "-t", "2"]).spawn().unwrap();
    let mut child = start();
    let mut stream = wait_for("the socket", || UnixStream::connect(&path).ok());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
    ask(&mut stream, b"set a 0 0 1\r\nx\r\nget a\r\n", b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    // A second one is told that the name is taken; a name left by the dead is not.
    assert_eq!(start().wait().unwrap().code(), Some(71));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(path.exists());
    let mut child = start();
    let mut stream = wait_for("the socket", || UnixStream::connect(&path).ok());
    ask(&mut stream, b"get a\r\n", b"END\r\n");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let code = wait_for("the end", || child.try_wait().unwrap()).code();
    assert_eq!((code, path.exists()), (Some(0), false));
}

#[test]
fn signals_end_it_after_what_came_whole_was_answered() {
    for signal in ["-TERM", "-INT", "-USR1"] {
        let mut server = Running::start("-t 2");
        let (mut busy, mut half) = (server.connect(), server.connect());
        ask(&mut half, b"set h 0 0 5\r\nab", b"");
        ask(&mut busy, b"mn\r\n", b"MN\r\n");
        server.signal("-HUP"); // ends nothing
        busy.write_all(&b"set a 0 0 1\r\nx\r\n".repeat(10_000)).unwrap();
        server.signal(signal);
        // The half request may come whole within the time of grace.
        half.write_all(b"cde\r\n").unwrap();
        let mut reply = Vec::new();
        busy.read_to_end(&mut reply).unwrap();
        assert_eq!(reply, b"STORED\r\n".repeat(10_000));
        ask(&mut half, b"", b"STORED\r\n");
        assert_eq!(server.end(), Some(0));
    }
}

#[test]
fn exit_codes_are_memcacheds() {
    let code = |options: &str| {
        let status = program().args(options.split_whitespace()).stdout(Stdio::null()).status();
        status.unwrap().code()
    };
    assert_eq!(code("--no-such-option"), Some(64));
    assert_eq!(code("-B nonsense"), Some(64));
    assert_eq!(code("-V"), Some(0));
    assert_eq!(code("-h"), Some(0));
    let server = Running::start("-t 1");
    assert_eq!(code(&format!("-p {}", server.port)), Some(71));
    assert_eq!(code("-l 192.0.2.1"), Some(71));
    let is_root = fs::metadata("/proc/self").unwrap().permissions().mode() != 0
        && Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if is_root {
        assert_eq!(code("-p -1 -u no_such_user_here"), Some(67));
        let mut bare = Command::new(env!("CARGO_BIN_EXE_manycored"));
        let output = bare.args(["-p", "-1"]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(64));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("can't run as root without the -u switch"), "{text}");
    }
}

#[test]
fn shutdown_command_ends_it_if_allowed() {
    let mut server = Running::start("-A -t 2");
    assert_eq!(server.talk(b"shutdown\r\n"), b"");
    assert_eq!(server.end(), Some(0));
    let server = Running::start("-t 1");
    assert_eq!(server.talk(b"shutdown\r\n"), b"SERVER_ERROR: shutdown not enabled\r\n");
}

#[test]
fn refused_clients_are_counted_and_logged_where_more_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, "ann:secret\n").unwrap();
    let told = folder.path().join("port");
    let mut child = program()
        .args(["-p", "-1", "-t", "1", "-v", "-Y"])
        .arg(&users)
        .env("MEMCACHED_PORT_FILENAME", &told)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = wait_for("the port", || fs::read_to_string(&told).ok());
    let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    ask(&mut stream, b"get key\r\n", b"CLIENT_ERROR unauthenticated\r\n");
    let wrong = b"set x 0 0 9\r\nann wrong\r\n";
    ask(&mut stream, wrong, b"CLIENT_ERROR authentication failure\r\n");
    ask(&mut stream, b"set x 0 0 10\r\nann secret\r\n", b"STORED\r\n");
    ask(&mut stream, b"stats reset\r\n", b"RESET\r\n");
    // An orderly end writes the log to its end; a kill may come before.
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(status.unwrap().success());
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    child.wait().unwrap();
    assert!(log.contains("authentication refused: unauthenticated\n"), "{log}");
    assert!(log.contains("authentication refused: no such user, or another password\n"), "{log}");
    assert!(!log.contains("secret") && !log.contains("wrong"), "{log}");
}

#[test]
fn connections_above_the_limit_are_told_so() {
    let server = Running::start("-c 2 -t 1");
    let (mut first, mut second) = (server.connect(), server.connect());
    ask(&mut first, b"mn\r\n", b"MN\r\n");
    ask(&mut second, b"mn\r\n", b"MN\r\n");
    assert_eq!(server.talk(b""), b"ERROR Too many open connections\r\n");
    drop(second);
    wait_for("a free place", || (server.talk(b"mn\r\n") == b"MN\r\n").then_some(()));
    assert!(server.stat("rejected_connections") >= 1);
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    let server = Running::start("-o idle_timeout=2 -t 1");
    let (mut idle, mut busy) = (server.connect(), server.connect());
    ask(&mut idle, b"mn\r\n", b"MN\r\n");
    let closed = thread::spawn(move || idle.read(&mut [0; 8]).unwrap());
    while !closed.is_finished() {
        ask(&mut busy, b"mn\r\n", b"MN\r\n");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(closed.join().unwrap(), 0);
    ask(&mut busy, b"mn\r\n", b"MN\r\n");
    assert_eq!(server.stat("idle_kicks"), 1);
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing_behind() {
    let server = Running::start("-t 2");
    for round in 0..300 {
        let mut stream = server.connect();
        let sent: &[u8] = match round % 4 {
            0 => b"set a 0 0 1000\r\nabc",
            1 => b"get a b",
            2 => b"ms k 900000 T0\r\n",
            _ => b"",
        };
        stream.write_all(sent).unwrap();
    }
    wait_for("their end", || (server.stat("curr_connections") == 1).then_some(()));
    assert_eq!(server.talk(b"get a k\r\nmn\r\n"), b"END\r\nMN\r\n");
}

#[test]
fn slow_reader_holds_up_nobody_and_gets_everything() {
    const KEYS: usize = 20;
    const GETS: usize = 6;
    let server = Running::start("-t 1 -m 64");
    let value = vec![b'v'; 500_000];
    let mut fast = server.connect();
    for key in 0..KEYS {
        let mut sent = format!("set k{key} 0 0 {}\r\n", value.len()).into_bytes();
        sent.extend_from_slice(&value);
        sent.extend_from_slice(b"\r\n");
        ask(&mut fast, &sent, b"STORED\r\n");
    }
    let before = server.resident();
    let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
    let get = format!("get {}\r\n", keys.join(" "));
    let mut slow: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(get.repeat(GETS).as_bytes()).unwrap(); // 60 MB each, and reads nothing
    }
    for _ in 0..200 {
        ask(&mut fast, b"mn\r\n", b"MN\r\n");
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    let mut reader = slow.swap_remove(0);
    let one: usize = (0..KEYS)
        .map(|key| format!("VALUE k{key} 0 {}\r\n\r\n", value.len()).len() + value.len())
        .sum();
    let mut left = GETS * (one + b"END\r\n".len());
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let read = reader.read(&mut buffer).unwrap();
        assert!(read > 0 && read <= left, "{read} of {left}");
        left -= read;
    }
    ask(&mut reader, b"mn\r\n", b"MN\r\n");
}

#[test]
fn memory_stays_within_the_limit_and_some() {
    // Large values and small, several times what there is room for.
    let server = Running::start("-t 2 -m 16");
    let mut stream = server.connect();
    let value = vec![b'v'; 1_000_000];
    for round in 0..50 {
        let mut sent = format!("set large{round} 0 0 {}\r\n", value.len()).into_bytes();
        sent.extend_from_slice(&value);
        sent.extend_from_slice(b"\r\n");
        ask(&mut stream, &sent, b"STORED\r\n");
    }
    let large = server.resident();
    let mut batch = Vec::new();
    for round in 0..200 {
        batch.clear();
        for item in 0..1_000 {
            write!(batch, "set small{round}_{item} 0 0 32 noreply\r\n{:032}\r\n", item).unwrap();
        }
        batch.extend_from_slice(b"mn\r\n");
        ask(&mut stream, &batch, b"MN\r\n");
    }
    let small = server.resident();
    let (items, bytes) = (server.stat("curr_items"), server.stat("bytes"));
    println!("{items} items of {bytes} bytes");
    // Hardly any large value is left (segment.G7 of the cache).
    assert!(bytes <= 16 << 20 && items > 100_000, "{items} items of {bytes} bytes");
    let evictions = server.stat("evictions");
    assert!(evictions > 9_000, "{evictions} evictions, {items} items of {bytes} bytes");
    let most = (16 << 20) + (24 << 20);
    assert!(large < most && small < most, "{large} and {small} bytes are resident");
}

#[test]
fn an_item_takes_a_line_and_its_part_of_the_table() {
    // The table is as full as with a million. What a server needs anyway, some 7 bytes of each
    // here, is less than one of each then; and a debug build's slabs take one more. A system that
    // gives huge pages to all processes may take two megabytes more.
    const ITEMS: u64 = 125_000;
    let server = Running::start("-t 1 -m 64");
    let mut stream = server.connect();
    ask(&mut stream, b"mn\r\n", b"MN\r\n");
    let before = server.resident();
    let mut batch = Vec::new();
    for first in (0..ITEMS).step_by(1_000) {
        batch.clear();
        for item in first..first + 1_000 {
            write!(batch, "set {item:016} 0 0 32 noreply\r\n{item:032}\r\n").unwrap();
        }
        batch.extend_from_slice(b"mn\r\n");
        ask(&mut stream, &batch, b"MN\r\n");
    }
    let grown = (server.resident() - before) as f64 / ITEMS as f64;
    let counted = server.stat("bytes") as f64 / ITEMS as f64;
    println!("{grown:.1} bytes of an item are resident, {counted:.1} are counted");
    assert_eq!((server.stat("curr_items"), server.stat("evictions")), (ITEMS, 0));
    assert!((70.0..=105.0).contains(&grown), "{grown} bytes of an item are resident");
    assert!(
        (0.8 * grown..1.25 * grown).contains(&counted),
        "{counted} bytes are counted for {grown}"
    );
}

/// A worker that stopped because the requests were many, or the replies, and had used up all that
/// the client sent, took what it had read last, from whomever, for more of the client's.
#[test]
fn worker_that_stops_at_the_end_of_what_was_sent_answers_once() {
    let server = Running::start("-t 1 -m 64 -R 3");
    let value = "v".repeat(300_000);
    let mut one = server.connect();
    ask(&mut one, format!("set large 0 0 300000\r\n{value}\r\n").as_bytes(), b"STORED\r\n");
    // Answered alone, and so the last thing that is done with this input.
    let reply = format!("VA 300000\r\n{value}\r\n");
    let mut other = server.connect();
    for _ in 0..3 {
        ask(&mut one, b"mg large v T0\r\n", reply.as_bytes());
        ask(&mut other, b"set other 0 0 1\r\nx\r\n", b"STORED\r\n");
        ask(&mut one, b"mn\r\n", b"MN\r\n");
        ask(&mut one, &b"mn\r\n".repeat(3), &b"MN\r\n".repeat(3));
        ask(&mut other, b"get other\r\n", b"VALUE other 0 1\r\nx\r\nEND\r\n");
        ask(&mut one, b"get none\r\n", b"END\r\n");
    }
}

#[test]
fn many_clients_get_their_own_values() {
    let server = Running::start("-t 2 -m 64 -R 7");
    thread::scope(|scope| {
        for client in 0..8 {
            let mut stream = server.connect();
            scope.spawn(move || {
                for round in 0..30 {
                    let (mut sent, mut reply) = (Vec::new(), Vec::new());
                    for item in 0..20 {
                        let key = format!("c{client}i{item}");
                        let value = format!("{key}r{round}").repeat(1 + item * 5);
                        let length = value.len();
                        write!(sent, "set {key} {client} 0 {length}\r\n{value}\r\n").unwrap();
                        write!(sent, "get {key}\r\nmg {key} v f\r\n").unwrap();
                        write!(
                            reply,
                            "STORED\r\nVALUE {key} {client} {length}\r\n{value}\r\nEND\r\n"
                        )
                        .unwrap();
                        write!(reply, "VA {length} f{client}\r\n{value}\r\n").unwrap();
                    }
                    ask(&mut stream, &sent, &reply);
                }
            });
        }
    });
}

#[test]
fn metrics_are_read_by_http_and_a_stalled_reader_holds_nobody_up() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Running::start(&format!("-t 1 --metrics {port}"));
    let mut stream = server.connect();
    ask(&mut stream, b"set a 0 0 1\r\nx\r\nget a b\r\n", b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    let page = || {
        let mut web = TcpStream::connect(("127.0.0.1", port)).unwrap();
        web.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut page = String::new();
        web.read_to_string(&mut page).unwrap();
        page
    };
    let text = page();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "memcached_current_items 1",
        "memcached_commands_total{command=\"get\",status=\"hit\"} 1",
        "memcached_commands_total{command=\"get\",status=\"miss\"} 1",
        "memcached_current_connections 1",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} in {text}");
    }
    // One that says nothing, and one that is no HTTP, are dropped; others get their page.
    let silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut other = TcpStream::connect(("127.0.0.1", port)).unwrap();
    other.write_all(b"get a\r\n\r\n").unwrap();
    assert!(page().contains("memcached_up 1"));
    assert_eq!(other.read(&mut [0; 8]).unwrap(), 0);
    drop(silent);
}

#[test]
fn sockets_of_the_service_manager_are_served_by_all_workers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The shell hands its input over as descriptor 3, to the process that it becomes.
    let script =
        "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" -u root -t 2 3<&0 </dev/null 2>/dev/null";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_manycored")])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
        .spawn()
        .unwrap();
    for number in 0..20 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let set = format!("set k{number} 0 0 1\r\nx\r\n");
        ask(&mut stream, set.as_bytes(), b"STORED\r\n");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What is no socket is refused, and said to be.
    let script = "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" -u root 3</dev/null 2>/dev/null";
    let status = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_manycored")]).status();
    assert_eq!(status.unwrap().code(), Some(71));
}

/// Connections in each of the process's epolls.
fn connections_by_worker(server: &Running) -> Vec<usize> {
    let process = format!("/proc/{}", server.child.id());
    let mut counts = Vec::new();
    for file in fs::read_dir(format!("{process}/fd")).unwrap().flatten() {
        if !fs::read_link(file.path()).is_ok_and(|path| path.ends_with("anon_inode:[eventpoll]")) {
            continue;
        }
        let number = file.file_name().into_string().unwrap();
        let watched = fs::read_to_string(format!("{process}/fdinfo/{number}")).unwrap();
        let data = |line: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != "data:").skip(1);
            words.next().and_then(|data| u64::from_str_radix(data, 16).ok())
        };
        // Small numbers are those of the worker's own descriptors.
        counts.push(watched.lines().filter_map(data).filter(|data| *data >= 1 << 32).count());
    }
    counts
}

#[test]
fn connections_are_spread_evenly_over_the_workers() {
    let server = Running::start("-t 3");
    let connect = |count: usize| -> Vec<TcpStream> {
        let connected = |_| {
            let mut stream = server.connect();
            ask(&mut stream, b"mn\r\n", b"MN\r\n");
            stream
        };
        (0..count).map(connected).collect()
    };
    let mut streams = connect(12);
    assert_eq!(connections_by_worker(&server), [4, 4, 4]);
    // The next ones go where connections have ended.
    streams.truncate(2);
    wait_for("their end", || (server.stat("curr_connections") == 3).then_some(()));
    wait_for("the last", || {
        (connections_by_worker(&server).iter().sum::<usize>() == 2).then_some(())
    });
    let more = connect(10);
    assert_eq!(connections_by_worker(&server), [4, 4, 4]);
    drop((streams, more));
}

#[test]
fn a_client_waits_for_a_slice_of_what_others_have_sent_and_not_for_all() {
    const REQUESTS: usize = 9_000;
    let server = Running::start("-t 1");
    let (served, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for line in [&b"get k\r\n"[..], b"mg k v\r\n", b"get k\r\n", b"mg k v\r\n"] {
            let (batch, mut stream) = (line.repeat(REQUESTS), server.connect());
            let reply = if line[0] == b'g' { "END\r\n".len() } else { "EN\r\n".len() };
            let (served, ends) = (&served, &ends);
            scope.spawn(move || {
                let mut buffer = vec![0; 1 << 12];
                while !ends.load(Ordering::Relaxed) {
                    stream.write_all(&batch).unwrap();
                    let mut left = reply * REQUESTS;
                    while left > 0 {
                        let read = stream.read(&mut buffer).unwrap();
                        left -= read;
                        served.fetch_add(read / reply, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut lone = server.connect();
        let mut others: Vec<usize> = (0..101)
            .map(|_| {
                thread::sleep(Duration::from_millis(2));
                let before = served.load(Ordering::Relaxed);
                ask(&mut lone, b"mn\r\n", b"MN\r\n");
                served.load(Ordering::Relaxed) - before
            })
            .collect();
        ends.store(true, Ordering::Relaxed);
        others.sort_unstable();
        println!("{} to {} of others, {} at the median", others[0], others[100], others[50]);
        // A turn without slices is four times as many.
        assert!(others[50] < REQUESTS, "{} requests of others", others[50]);
    });
}

#[test]
fn items_that_are_touched_outlive_those_that_are_not() {
    let server = Running::start("-t 1 -m 8");
    let mut stream = server.connect();
    let mut batch = Vec::new();
    for round in 0..300 {
        // Into a full cache: what came while there was room has proved itself.
        let keys = ["touched", "gotten", "cold", "colder", "coldest"];
        for key in keys.iter().filter(|_| round == 150) {
            ask(&mut stream, format!("set {key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
        }
        batch.clear();
        for item in 0..1_000 {
            write!(batch, "set flood{round}_{item} 0 0 32 noreply\r\n{item:032}\r\n").unwrap();
        }
        if round < 150 {
            batch.extend_from_slice(b"mn\r\n");
            ask(&mut stream, &batch, b"MN\r\n");
        } else {
            // First of all, as the items are on probation until they are used.
            let mut uses = b"touch touched 0\r\ngat 0 gotten\r\n".to_vec();
            uses.extend_from_slice(&batch);
            ask(&mut stream, &uses, b"TOUCHED\r\nVALUE gotten 0 1\r\nx\r\nEND\r\n");
        }
    }
    stream.write_all(b"get cold colder coldest\r\n").unwrap();
    let (mut reply, mut part) = (Vec::new(), [0; 256]);
    while !reply.ends_with(b"END\r\n") {
        let read = stream.read(&mut part).unwrap();
        reply.extend(&part[..read]);
    }
    // One in 128 stays by chance.
    let left = reply.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"VALUE"));
    assert!(left.count() < 3, "{}", String::from_utf8_lossy(&reply));
}
