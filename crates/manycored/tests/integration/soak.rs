//! A soak of the program itself: clients of all kinds at once, good and bad, and what must hold.
//!
//! Memory is small, so that items are evicted all the time. While some clients leave in the middle
//! of a command, read slowly, flood the server with keys or send nonsense, others demand each
//! reply, in order, and of every value that it is of its key: a value is its key over and over.
//!
//! Resident memory stays below [`LIMIT`] and [`OVERHEAD`], and as much for each connection as one
//! may make the server hold: [`CONNECTION`].
//!
//! `MANYCORE_SOAK=600` runs it for ten minutes; `MANYCORE_SEED=0x12ab` asks the same again.
#![cfg(target_os = "linux")]

use crate::common::running::{LONG, Running, ask, wait_for};
use crate::rng::Rng;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_secs(5);
/// The server's limit of memory for items.
const LIMIT: u64 = 32 << 20;
/// What the process needs besides: its buffers, and what its allocator keeps.
const OVERHEAD: u64 = 24 << 20;
/// What a connection may hold: a value that comes, a value and some replies that go, in buffers
/// that grow by doubling.
const CONNECTION: u64 = 3 << 20;
/// Connections that are open at once, at most.
const CLIENTS: u64 = 10;
/// Keys that all clients share.
const KEYS: usize = 3_000;
const LARGE: usize = 1_000_000;

/// What the clients share.
struct Soak<'a> {
    server: &'a Running,
    ends: AtomicBool,
    replies: AtomicU64,
    seed: u64,
}

fn key(number: usize) -> String {
    format!("key{number}")
}

/// A value of this key.
fn value(key: &str, length: usize) -> Vec<u8> {
    let pattern = format!("{key};");
    let mut value = pattern.repeat(length / pattern.len() + 1).into_bytes();
    value.truncate(length);
    value
}

fn assert_is_of(key: &str, value: &[u8], seed: u64) {
    let pattern = format!("{key};").into_bytes();
    let is_its = |part: &[u8]| pattern.starts_with(part);
    assert!(
        value.chunks(pattern.len()).all(is_its),
        "{key} got {:?}..., seed {seed:#x}",
        String::from_utf8_lossy(&value[..value.len().min(60)])
    );
}

/// What was asked, and so what must be answered.
enum Asked {
    Set,
    Get(Vec<String>),
    MetaGet(String),
    Delete,
    Noop,
}

/// A client that demands every reply.
struct Strict<'a> {
    soak: &'a Soak<'a>,
    stream: BufReader<TcpStream>,
}

impl Strict<'_> {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a reply");
        assert!(line.ends_with("\r\n"), "{line:?} is no line, seed {:#x}", self.soak.seed);
        line.truncate(line.len() - 2);
        line
    }

    fn body(&mut self, key: &str, length: usize) {
        let mut body = vec![0; length + 2];
        self.stream.read_exact(&mut body).expect("a value");
        assert_eq!(body.split_off(length), b"\r\n");
        assert_is_of(key, &body, self.soak.seed);
    }

    fn demand(&mut self, asked: &Asked) {
        let seed = self.soak.seed;
        match asked {
            Asked::Set => assert_eq!(self.line(), "STORED", "seed {seed:#x}"),
            Asked::Noop => assert_eq!(self.line(), "MN", "seed {seed:#x}"),
            Asked::Delete => {
                let line = self.line();
                assert!(line == "DELETED" || line == "NOT_FOUND", "{line}, seed {seed:#x}");
            }
            Asked::MetaGet(key) => {
                let line = self.line();
                if let Some(length) = line.strip_prefix("VA ") {
                    self.body(key, length.parse().unwrap());
                } else {
                    assert_eq!(line, "EN", "seed {seed:#x}");
                }
            }
            Asked::Get(keys) => {
                let mut left = keys.iter();
                loop {
                    let line = self.line();
                    if line == "END" {
                        break;
                    }
                    let words: Vec<&str> = line.split(' ').collect();
                    assert!(words.len() == 4 && words[0] == "VALUE", "{line}, seed {seed:#x}");
                    // In the order in which they were asked for.
                    let key = left.find(|key| *key == words[1]).expect("a key that was asked for");
                    self.body(key, words[3].parse().unwrap());
                }
            }
        }
        self.soak.replies.fetch_add(1, Ordering::Relaxed);
    }

    fn talk(&mut self, rng: &mut Rng) {
        let (mut sent, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..1 + rng.below(60) {
            let key = key(rng.below(KEYS));
            match rng.below(10) {
                0..3 => {
                    let large = rng.once_in(150);
                    let length = if large { LARGE + rng.below(40_000) } else { rng.below(3_000) };
                    let length_text = format!("set {key} 0 0 {length}\r\n");
                    sent.extend([length_text.as_bytes(), &value(&key, length), b"\r\n"].concat());
                    asked.push(Asked::Set);
                }
                3..6 => {
                    let mut keys = vec![key];
                    keys.extend((0..rng.below(20)).map(|_| self::key(rng.below(KEYS))));
                    sent.extend(format!("get {}\r\n", keys.join(" ")).into_bytes());
                    asked.push(Asked::Get(keys));
                }
                6..9 => {
                    sent.extend(format!("mg {key} v\r\n").into_bytes());
                    asked.push(Asked::MetaGet(key));
                }
                _ => {
                    sent.extend(format!("delete {key}\r\n").into_bytes());
                    asked.push(Asked::Delete);
                }
            }
        }
        sent.extend(b"mn\r\n");
        asked.push(Asked::Noop);
        // A client that only writes would wait for a server that waits for it.
        let mut writer = self.stream.get_ref().try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || writer.write_all(&sent).expect("it takes what is sent"));
            asked.iter().for_each(|asked| self.demand(asked));
        });
    }
}

impl<'a> Soak<'a> {
    fn goes_on(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }

    fn strict(&self, rng: &mut Rng) {
        let connect = || Strict { soak: self, stream: BufReader::new(self.server.connect()) };
        let mut client = connect();
        while self.goes_on() {
            client.talk(rng);
            if rng.once_in(50) {
                client = connect();
            }
        }
    }

    /// Leaves in the middle of a command, or of a reply.
    fn dropper(&self, rng: &mut Rng) {
        while self.goes_on() {
            let (key, mut stream) = (key(rng.below(KEYS)), self.server.connect());
            let whole = match rng.below(5) {
                0 => {
                    [format!("set {key} 0 0 {LARGE}\r\n").into_bytes(), value(&key, LARGE)].concat()
                }
                1 => format!("ms {key} 500\r\n{}", "x".repeat(500)).into_bytes(),
                2 => format!("get {key} {key} {key}\r\n").repeat(50).into_bytes(),
                3 => format!("mg {key} v t s k\r\n").into_bytes(),
                _ => [&b"\x80\x01\0\x04\x08\0\0\0\0\0\x01\0"[..], &[0; 20]].concat(),
            };
            let part = rng.below(whole.len() + 1);
            let _ = stream.write_all(&whole[..part]);
            if rng.once_in(2) {
                stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                let _ = stream.read(&mut [0; 10]);
            }
        }
    }

    /// Asks for much and takes it in small pieces, or not at all.
    fn slow(&self, rng: &mut Rng) {
        while self.goes_on() {
            let mut stream = self.server.connect();
            let keys: Vec<String> = (0..30).map(|_| key(rng.below(KEYS))).collect();
            // Some that are there, and large.
            for key in &keys[..2] {
                let head = format!("set {key} 0 0 {LARGE} noreply\r\n");
                let _ = stream.write_all(&[head.as_bytes(), &value(key, LARGE), b"\r\n"].concat());
            }
            let _ = stream.write_all(format!("get {}\r\n", keys.join(" ")).repeat(4).as_bytes());
            let mut buffer = vec![0; 1 + rng.below(8_000)];
            // Everything may be evicted, and there is no more to read.
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            for _ in 0..rng.below(60) {
                thread::sleep(Duration::from_millis(3));
                if !self.goes_on() || stream.read(&mut buffer).is_err() {
                    break;
                }
            }
        }
    }

    /// New keys, one after the other, without waiting for replies.
    fn flooder(&self, rng: &mut Rng) {
        let mut stream = self.server.connect();
        while self.goes_on() {
            let (first, mut sent) = (rng.next(), Vec::new());
            for number in 0..500 {
                let key = format!("flood{}", first.wrapping_add(number));
                let value = value(&key, rng.below(100));
                write!(sent, "set {key} 0 {} {} noreply\r\n", rng.below(3), value.len()).unwrap();
                sent.extend([&value[..], b"\r\n"].concat());
            }
            sent.extend(b"mn\r\n");
            ask(&mut stream, &sent, b"MN\r\n");
        }
    }

    /// Sends what no client should.
    fn babbler(&self, rng: &mut Rng) {
        while self.goes_on() {
            let mut stream = self.server.connect();
            let noise: Vec<u8> = (0..rng.below(3_000)).map(|_| rng.next() as u8).collect();
            let sent = match rng.below(9) {
                0 => b"set k 0 0 99999999999\r\nabc\r\n".to_vec(),
                1 => b"set k 0 0 4294967295 noreply\r\nabc\r\n".to_vec(),
                2 => b"set k 0 0 -1\r\nset k 0 0 3\r\nabcdefghijk\r\n".to_vec(),
                3 => format!("get {}\r\n", "k".repeat(300)).into_bytes(),
                4 => vec![b'x'; 70_000],
                5 => [&b"\x80"[..], &noise].concat(),
                6 => b"\x80\x01\xff\xff\xff\0\0\0\xff\xff\xff\xff".repeat(3),
                7 => b"ms k 5000000000 T1\r\nmg\r\nmg \x01 v\r\nincr k x\r\n".to_vec(),
                _ => noise,
            };
            let _ = stream.write_all(&sent);
            let _ = stream.shutdown(Shutdown::Write);
            // It answers what it will, and closes.
            let mut reply = Vec::new();
            if let Err(error) = stream.read_to_end(&mut reply) {
                let is_reset = error.kind() == ErrorKind::ConnectionReset;
                assert!(is_reset, "{error} after {sent:?}, seed {:#x}", self.seed);
            }
        }
    }

    /// Looks at the server's memory; the most there was.
    fn watch(&self, until: Instant) -> u64 {
        let most = LIMIT + OVERHEAD + CLIENTS * CONNECTION;
        let mut seen = 0;
        while Instant::now() < until {
            let resident = self.server.resident();
            assert!(resident <= most, "{resident} bytes are resident, seed {:#x}", self.seed);
            seen = seen.max(resident);
            thread::sleep(Duration::from_millis(50));
        }
        seen
    }
}

/// Tells the others to end, also if this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn good_clients_are_served_and_memory_is_kept_whatever_bad_ones_do() {
    let seed = crate::env::seed();
    println!("seed {seed:#x}");
    let server = Running::start("-t 2 -m 32 -c 200");
    let (ends, replies) = (AtomicBool::new(false), AtomicU64::new(0));
    let soak = Soak { server: &server, ends, replies, seed };
    type Work = fn(&Soak<'_>, &mut Rng);
    let kinds: [(Work, usize); 5] = [
        (|soak, rng| soak.strict(rng), 3),
        (|soak, rng| soak.dropper(rng), 1),
        (|soak, rng| soak.slow(rng), 3),
        (|soak, rng| soak.flooder(rng), 1),
        (|soak, rng| soak.babbler(rng), 1),
    ];
    let until = crate::env::deadline("MANYCORE_SOAK", SHARE);
    let seen = thread::scope(|scope| {
        let soak = &soak;
        let all = kinds.iter().flat_map(|(work, count)| std::iter::repeat_n(*work, *count));
        for (number, work) in all.enumerate() {
            scope.spawn(move || {
                let _ends = Ends(&soak.ends);
                work(soak, &mut Rng::part(seed, number as u64));
            });
        }
        let _ends = Ends(&soak.ends);
        soak.watch(until)
    });
    wait_for("the clients' end", || (server.stat("curr_connections") == 1).then_some(()));
    let (evictions, replies) = (server.stat("evictions"), soak.replies.into_inner());
    println!("{replies} replies, {evictions} evictions, {} MB resident at most", seen >> 20);
    assert!(replies > 0 && evictions > 0, "seed {seed:#x}");
    assert!(server.stat("bytes") <= LIMIT, "seed {seed:#x}");
}

#[test]
fn a_server_that_is_killed_at_work_starts_again_with_nothing() {
    let mut server = Running::start("-t 2 -m 32");
    let options = format!("-t 2 -m 32 -p {}", server.port);
    for round in 0..3 {
        let (mut busy, mut other) = (server.connect(), server.connect());
        ask(&mut other, b"get a b\r\nset a 0 0 1\r\nx\r\n", b"END\r\nSTORED\r\n");
        let feeder = thread::spawn(move || {
            let batch = format!("set b 0 0 1000 noreply\r\n{:1000}\r\n", round).repeat(100);
            while busy.write_all(batch.as_bytes()).is_ok() {}
        });
        ask(&mut other, b"get a\r\n", b"VALUE a 0 1\r\nx\r\nEND\r\n");
        server.signal("-KILL");
        assert_eq!(server.end(), None, "it was a signal");
        feeder.join().unwrap();
        // Its clients are told, and do not wait.
        other.set_read_timeout(Some(LONG)).unwrap();
        assert!(matches!(other.read(&mut [0; 8]), Ok(0) | Err(_)));
        server = Running::start(&options);
    }
}

#[test]
#[should_panic(expected = "key2 got")]
fn another_keys_value_is_noticed() {
    assert_is_of("key2", &value("key1", 100), 0);
}
