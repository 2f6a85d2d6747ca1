//! The program itself, ended and started again with `-e`.
//!
//! What is demanded whatever happens: a value that a client reads is the one that was last stored,
//! or there is none. `MANYCORE_SOAK=600` has servers killed for ten minutes; `MANYCORE_SEED=0x12ab`
//! asks the same again.
#![cfg(target_os = "linux")]

use crate::common::running::{LONG, Running, ask, program, wait_for};
use crate::rng::Rng;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SHARE: Duration = Duration::from_secs(2);

/// A folder for a memory file, and what servers that have it say.
struct Warm {
    folder: TempDir,
    more: String,
}

/// One of these servers.
struct Server {
    running: Running,
    said: PathBuf,
}

impl Warm {
    fn new(more: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), more: more.into() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let found = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "said");
        names.sort();
        names
    }

    fn spawn(&self, more: &str) -> Child {
        let said = File::create(self.path("said")).unwrap();
        let mut program = program();
        program.args(["-t", "2", "-p", "-1", "-e"]).arg(self.path("items"));
        program.args(self.more.split_whitespace()).args(more.split_whitespace());
        let told = self.path("port");
        program.env("MEMCACHED_PORT_FILENAME", told).stderr(said).spawn().unwrap()
    }

    fn start(&self) -> Server {
        self.start_with("")
    }

    fn start_with(&self, more: &str) -> Server {
        let child = self.spawn(more);
        let text = wait_for("the port", || fs::read_to_string(self.path("port")).ok());
        fs::remove_file(self.path("port")).unwrap();
        let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")).unwrap();
        let running = Running::of(child, port.parse().unwrap());
        Server { running, said: self.path("said") }
    }

    /// What a server says that does not start; and its exit code.
    fn refused(&self) -> (Option<i32>, String) {
        let mut child = self.spawn("");
        let code = wait_for("the end", || child.try_wait().unwrap()).code();
        (code, fs::read_to_string(self.path("said")).unwrap())
    }
}

impl Server {
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    #[track_caller]
    fn expect(&self, sent: &str, reply: &str) {
        let got = self.running.talk(sent.replace('\n', "\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&got).replace("\r\n", "\n"), reply, "to {sent:?}");
    }

    /// Ends it, and demands that the items are saved.
    #[track_caller]
    fn end_gracefully(mut self) {
        self.running.signal("-USR1");
        let code = self.running.end();
        assert!(code == Some(0) && self.said().contains("are saved"), "{code:?}: {}", self.said());
    }
}

#[test]
fn graceful_end_saves_what_the_next_start_has_once() {
    let warm = Warm::new("-A");
    let server = warm.start();
    assert_eq!(warm.names(), ["items.part"]);
    server.expect("set a 5 0 1\nx\nset b 0 100 1\ny\nms Zm9v 1 b\nz\n", "STORED\nSTORED\nHD\n");
    let cas = server.running.talk(b"mg a c\r\n");
    server.end_gracefully();
    assert_eq!(warm.names(), ["items"]);
    assert_eq!(fs::metadata(warm.path("items")).unwrap().permissions().mode() & 0o777, 0o600);
    let mut server = warm.start();
    assert!(server.said().contains("3 items are there again"), "{}", server.said());
    assert_eq!(
        (warm.names(), server.running.talk(b"mg a c\r\n")),
        (vec!["items.part".into()], cas)
    );
    server.expect("get a b\nmg Zm9v b k v\n", {
        "VALUE a 5 1\nx\nVALUE b 0 1\ny\nEND\nVA 1 kZm9v b\nz\n"
    });
    // As a signal, and with what was changed.
    server.expect("set a 0 0 1\nX\ndelete b\nshutdown graceful\n", "STORED\nDELETED\n");
    assert_eq!(server.running.end(), Some(0));
    let mut server = warm.start();
    server.expect("get a b\n", "VALUE a 0 1\nX\nEND\n");
    // Other ends save nothing, as in memcached, and leave nothing.
    server.running.signal("-TERM");
    assert_eq!((server.running.end(), warm.names()), (Some(0), vec![]));
    let mut server = warm.start();
    server.expect("get a\nset a 0 0 1\ny\nshutdown\n", "END\nSTORED\n");
    assert_eq!((server.running.end(), warm.names()), (Some(0), vec![]));
}

#[test]
fn file_that_cannot_be_used_is_named_and_the_start_is_cold() {
    let warm = Warm::new("");
    let server = warm.start();
    server.expect("set a 0 0 1\nx\n", "STORED\n");
    server.end_gracefully();
    let file = fs::read(warm.path("items")).unwrap();
    let flipped = |at: usize| {
        let mut other = file.clone();
        other[at] ^= 1;
        other
    };
    for (content, why) in [
        (flipped(file.len() - 1), "it is damaged: block 0"),
        (flipped(100), "the header's checksum"),
        (file[..file.len() - 1].to_vec(), "not what its header says"),
        (file[..2000].to_vec(), "it ends within its header"),
    ] {
        fs::write(warm.path("items"), content).unwrap();
        let server = warm.start();
        assert!(server.said().contains(why), "{why} is not in {}", server.said());
        assert_eq!(warm.names(), ["items.part"], "{why}");
        server.expect("get a\n", "END\n");
    }
    // Another program's is not this server's to remove.
    fs::write(warm.path("items"), "my letters").unwrap();
    let server = warm.start();
    assert!(server.said().contains("not a file of this server"), "{}", server.said());
    assert_eq!(warm.names(), ["items.foreign", "items.part"]);
    assert_eq!(fs::read(warm.path("items.foreign")).unwrap(), b"my letters");
    drop(server);
    std::os::unix::fs::symlink(warm.path("items.foreign"), warm.path("items")).unwrap();
    let server = warm.start();
    assert!(server.said().contains("it cannot be read"), "{}", server.said());
}

#[test]
fn start_that_could_not_save_is_refused() {
    let warm = Warm::new("");
    let server = warm.start();
    let (code, said) = warm.refused();
    assert!(code == Some(71) && said.contains("another server uses it"), "{code:?}: {said}");
    drop(server);
    fs::write(warm.path("items.meta"), "").unwrap();
    let (code, said) = warm.refused();
    assert!(code == Some(64) && said.contains("memcached has left"), "{code:?}: {said}");
    fs::remove_file(warm.path("items.meta")).unwrap();
    fs::create_dir(warm.path("items")).unwrap();
    let (code, said) = warm.refused();
    assert!(code == Some(64) && said.contains("this is a folder"), "{code:?}: {said}");
    let none = Warm { folder: tempfile::tempdir().unwrap(), more: "-e /proc/no/file".into() };
    let (code, said) = none.refused();
    assert!(code == Some(71) && said.contains("/proc/no/file"), "{code:?}: {said}");
}

/// In a file system of its own, where the system lets this test make one.
#[test]
fn items_that_find_no_room_are_not_saved_and_it_is_said() {
    let warm = Warm::new("");
    let (said, told) = (File::create(warm.path("said")).unwrap(), warm.path("port"));
    let small = warm.path("small");
    fs::create_dir(&small).unwrap();
    let words = "mount -t tmpfs -o size=600k none $1 && exec $0 -u root -p -1 -t 1 -e $1/items";
    let child = Command::new("unshare")
        .args(["-m", "sh", "-c", words, env!("CARGO_BIN_EXE_manycored")])
        .arg(&small)
        .env("MEMCACHED_PORT_FILENAME", &told)
        .stderr(said)
        .spawn();
    let Ok(mut child) = child else { return println!("SKIPPED: no unshare") };
    let started = wait_for("the start", || match child.try_wait().unwrap() {
        Some(_) => Some(None),
        None => fs::read_to_string(&told).ok().map(Some),
    });
    let Some(text) = started else { return println!("SKIPPED: no mounts of its own") };
    let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: ")).unwrap();
    let running = Running::of(child, port.parse().unwrap());
    let mut server = Server { running, said: warm.path("said") };
    assert!(server.said().contains("smaller than -m"), "{}", server.said());
    server.expect(&format!("set a 0 0 900000\n{}\n", "x".repeat(900_000)), "STORED\n");
    server.running.signal("-USR1");
    assert_eq!(server.running.end(), Some(71));
    assert!(server.said().contains("the items are not saved"), "{}", server.said());
}

/// Starts a server, stores values of the round and ends it, or kills it anywhere in between: what
/// any server has is what was stored last.
#[test]
fn kill_at_any_moment_leaves_the_last_value_or_none() {
    let seed = crate::env::seed();
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    let warm = Warm::new("-m 64");
    let until = crate::env::soak(SHARE);
    let (mut rounds, mut warm_starts, mut killed, mut amid) = (0_u32, 0, [0; 3], [0; 2]);
    // The round in which keys were stored last, by all of which the server knew.
    let mut last = 0;
    while Instant::now() < until {
        rounds += 1;
        let mut server = warm.start();
        let found = read(&server, last, seed);
        warm_starts += u32::from(found > 0);
        store(&server, rounds);
        last = rounds;
        match rng.below(5) {
            // Killed while it serves.
            0 => {
                server.running.signal("-KILL");
                killed[0] += 1;
            }
            // Killed while it ends, or a moment after that.
            1 | 2 => {
                server.running.signal("-USR1");
                thread::sleep(Duration::from_micros(rng.next() % 25_000));
                let _ = server.running.child.kill();
                killed[1] += 1;
                amid[0] += u32::from(fs::metadata(part(&warm)).is_ok_and(|part| part.len() > 0));
            }
            // Ended, and the next one is killed while it begins, or a moment after that.
            3 => {
                server.running.signal("-USR1");
                server.running.end();
                let mut next = warm.spawn("");
                thread::sleep(Duration::from_micros(rng.next() % 25_000));
                let _ = next.kill();
                let _ = next.wait();
                let has_begun = warm.names() == ["items.part"];
                amid[1] += u32::from(has_begun && fs::metadata(warm.path("port")).is_err());
                let _ = fs::remove_file(warm.path("port"));
                killed[2] += 1;
            }
            _ => server.running.signal("-USR1"),
        }
        let _ = server.running.child.wait();
    }
    println!("{rounds} rounds, {warm_starts} warm starts, killed {killed:?}, amid {amid:?}");
    assert!(rounds > 1 && (warm_starts > 0 || rounds < 10), "seed {seed:#x}");
}

const KEYS: usize = 4000;

fn value(round: u32, key: usize) -> String {
    format!("{round}.{key};").repeat(20 + key % 50)
}

fn store(server: &Server, round: u32) {
    let mut sent = String::new();
    for key in 0..KEYS {
        let value = value(round, key);
        sent.push_str(&format!("set key{key} 0 0 {} noreply\r\n{value}\r\n", value.len()));
    }
    sent.push_str("mn\r\n");
    ask(&mut server.running.connect(), sent.as_bytes(), b"MN\r\n");
}

/// Demands that each value is of this round; how many there are.
fn read(server: &Server, round: u32, seed: u64) -> usize {
    let keys: String = (0..KEYS).map(|key| format!("get key{key}\r\n")).collect();
    let mut found = 0;
    let text = String::from_utf8(server.running.talk(keys.as_bytes())).unwrap();
    let mut lines = text.split("\r\n");
    while let Some(line) = lines.next() {
        let Some(words) = line.strip_prefix("VALUE key") else { continue };
        let key = words.split(' ').next().unwrap().parse().unwrap();
        let there = lines.next().unwrap();
        assert!(there == value(round, key), "{there} of {key} in {round}, seed {seed:#x}");
        found += 1;
    }
    found
}

#[test]
fn second_signal_ends_a_save_and_what_is_left_is_not_taken() {
    let warm = Warm::new("");
    let mut server = warm.start();
    store(&server, 1);
    // The client keeps it from saving, until the second signal.
    let mut half = server.running.connect();
    ask(&mut half, b"mn\r\nset h 0 0 5\r\nab", b"MN\r\n");
    server.running.signal("-USR1");
    server.running.signal("-USR1"); // one more of these changes nothing
    wait_for("the end's beginning", || {
        std::net::TcpStream::connect(("127.0.0.1", server.running.port)).is_err().then_some(())
    });
    let start = Instant::now();
    server.running.signal("-TERM");
    assert_eq!(server.running.end(), None, "it was a signal");
    assert!(start.elapsed() < LONG);
    half.set_read_timeout(Some(LONG)).unwrap();
    let _ = half.read(&mut [0; 8]);
    // As if it had written half of the items.
    File::options().write(true).open(part(&warm)).unwrap().write_all_at(b"items", 5000).unwrap();
    let server = warm.start();
    assert_eq!((read(&server, 1, 0), fs::metadata(part(&warm)).unwrap().len()), (0, 0));
}

fn part(warm: &Warm) -> impl AsRef<Path> {
    warm.path("items.part")
}
