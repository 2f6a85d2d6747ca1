//! How much of a zipfian load of mixed sizes a server of `-m 64` answers from its memory, beside
//! other servers: to be run by hand.
//!
//! ```text
//! MANYCORE_SERVERS=/usr/bin/memcached \
//!     cargo test --release -p manycored --test integration hit_ratio:: -- --ignored --nocapture
//! ```
//!
//! A miss is followed by a set. The keys and their order are the same for each server; a key's
//! value has the same length each time. The first half of the requests warms the server up.
//! `MANYCORE_SEED=0x12ab` chooses other keys.
#![cfg(target_os = "linux")]

use std::env;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const MEGABYTES: &str = "64";
const KEYS: usize = 400_000;
const REQUESTS: usize = 4_000_000;
/// Keys of a get.
const BATCH: usize = 50;
/// The exponent of YCSB's zipfian requests.
const SKEW: f64 = 0.99;
/// What values' lengths are chosen from, each as often as the others.
const LENGTHS: [usize; 11] = [45, 60, 100, 200, 300, 700, 1_000, 2_000, 300, 5_000, 12_000];

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }
}

fn scramble(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The ranks' shares, summed up.
fn shares() -> Vec<f64> {
    let mut sum = 0.0;
    let shares = (1..=KEYS).map(|rank| {
        sum += (rank as f64).powf(-SKEW);
        sum
    });
    shares.collect()
}

struct Server(Child, u16);

impl Server {
    fn start(program: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["-l", "127.0.0.1", "-m", MEGABYTES, "-u", "root", "-t", "1"]);
        command.args(["-p", &port.to_string()]);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let server = Self(child, port);
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{program} does not start");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn length_of(key: usize) -> usize {
    LENGTHS[scramble(key as u64) as usize % LENGTHS.len()]
}

/// The share of the second half's requests that hit.
fn hit_ratio(server: &Server, seed: u64, shares: &[f64]) -> f64 {
    let mut stream = TcpStream::connect(("127.0.0.1", server.1)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut rng = Rng(seed);
    let mut draw = || {
        let at = rng.next() as f64 / u64::MAX as f64 * shares[KEYS - 1];
        shares.partition_point(|share| *share < at).min(KEYS - 1)
    };
    let (mut hits, mut line) = (0, String::new());
    let mut skipped = vec![0; LENGTHS[LENGTHS.len() - 1] + 2];
    for batch in 0..REQUESTS / BATCH {
        let mut keys: Vec<usize> = (0..BATCH).map(|_| draw()).collect();
        let request: String = keys.iter().map(|key| format!(" {key:016}")).collect();
        stream.write_all(format!("get{request}\r\n").as_bytes()).unwrap();
        let mut found = 0;
        loop {
            line.clear();
            replies.read_line(&mut line).unwrap();
            let Some(value) = line.strip_prefix("VALUE ") else { break };
            let key: usize = value[..16].parse().unwrap();
            replies.read_exact(&mut skipped[..length_of(key) + 2]).unwrap();
            keys.retain(|own| *own != key);
            found += 1;
        }
        assert_eq!(line, "END\r\n");
        keys.sort_unstable();
        keys.dedup();
        let mut sets = Vec::new();
        for key in keys {
            let length = length_of(key);
            sets.extend(format!("set {key:016} 0 0 {length} noreply\r\n").bytes());
            sets.resize(sets.len() + length, b'v');
            sets.extend(b"\r\n");
        }
        stream.write_all(&sets).unwrap();
        hits += if batch >= REQUESTS / BATCH / 2 { found } else { 0 };
    }
    hits as f64 / (REQUESTS / 2) as f64
}

#[test]
#[ignore = "a comparison of servers, by hand"]
fn zipfian_gets_of_mixed_sizes_hit_as_often_as_elsewhere() {
    let seed = std::env::var("MANYCORE_SEED").ok();
    let seed = seed.and_then(|seed| u64::from_str_radix(seed.trim_start_matches("0x"), 16).ok());
    let seed = seed.unwrap_or(1);
    let shares = shares();
    let own = env!("CARGO_BIN_EXE_manycored").to_owned();
    let others = std::env::var("MANYCORE_SERVERS").unwrap_or_default();
    let others = others.split(',').filter(|name| !name.is_empty()).map(str::to_owned);
    let mut ratios = Vec::new();
    for program in std::iter::once(own).chain(others) {
        let ratio = hit_ratio(&Server::start(&program), seed, &shares);
        println!("{program}: {ratio:.4} of the requests hit (MANYCORE_SEED={seed:#x})");
        ratios.push(ratio);
    }
    assert!(ratios[1..].iter().all(|other| ratios[0] >= other - 0.005), "{ratios:?}");
}
