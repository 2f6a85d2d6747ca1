//! Loads of one thread on a server with one worker, beside other servers.
//!
//! ```text
//! MANYCORE_SERVERS=/usr/bin/memcached,old/manycored taskset -c 1 \
//!     cargo bench -p manycored --bench load
//! ```
//!
//! `MANYCORE_LENGTHS` are those of the values, with commas, and `MANYCORE_DEPTHS` how many requests
//! a client sends at once.
//!
//! Servers run in turn on core 0, with as many repeats as `MANYCORE_REPEATS` says; medians are
//! printed, with the least and the most.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_millis(700);
const KEYS: usize = 10_000;

/// Keys that are set to values of this length.
fn keys_of(length: usize) -> usize {
    KEYS.min((50 << 20) / length).max(120)
}

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(program: &str, threads: usize, cores: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("taskset");
        command.args(["-c", cores, program, "-l", "127.0.0.1", "-m", "1024", "-u", "root"]);
        command.args(["-p", &port.to_string(), "-t", &threads.to_string()]);
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{program} does not start");
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Time of the processor that the server has used.
    fn busy(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().flatten();
        let nanos = tasks.map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap();
            text.split(' ').next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// Sets all keys to values of this length.
    fn fill(&self, length: usize) {
        let mut stream = self.connect();
        for key in 0..keys_of(length) {
            let line = format!("set {key:016} 0 0 {length} noreply\r\n");
            stream.write_all(&[line.as_bytes(), &vec![b'v'; length], b"\r\n"].concat()).unwrap();
        }
        stream.write_all(b"mn\r\n").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client whose requests, all of them, are sent again when all replies are there.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    reply: usize,
    left: usize,
    sent: Instant,
    /// How long it waits before it sends again.
    pause: Duration,
    done: Instant,
}

impl Client {
    fn new(server: &Server, request: Vec<u8>, reply: usize) -> Self {
        let stream = server.connect();
        stream.set_nonblocking(true).unwrap();
        let (sent, pause) = (Instant::now(), Duration::ZERO);
        let mut client = Self { stream, request, reply, left: reply, sent, pause, done: sent };
        client.send();
        client
    }

    fn gets(server: &Server, first: usize, count: usize, length: usize) -> Self {
        let mut request = String::new();
        for key in first..first + count {
            write!(request, "get {:016}\r\n", key * 7 % keys_of(length)).unwrap();
        }
        let one = format!("VALUE {:016} 0 {length}\r\n\r\nEND\r\n", 0).len() + length;
        Self::new(server, request.into_bytes(), one * count)
    }

    fn send(&mut self) {
        (self.left, self.sent) = (self.reply, Instant::now());
        let mut rest = &self.request[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    }

    /// Reads once. How long the replies took, if they are all there; then all is sent again.
    fn poll(&mut self, buffer: &mut [u8]) -> Option<Duration> {
        if self.left == 0 {
            if self.done.elapsed() >= self.pause {
                self.send();
            }
            return None;
        }
        match self.stream.read(buffer) {
            Ok(0) => panic!("the server has gone"),
            Ok(read) => self.left -= read,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        (self.left == 0).then(|| {
            self.done = Instant::now();
            let took = self.done - self.sent;
            if self.pause.is_zero() {
                self.send();
            }
            took
        })
    }
}

/// The figures of one run.
type Figures = [f64; 4];

fn quantile(all: &mut [Duration], part: f64) -> f64 {
    all.sort_unstable();
    let at = ((all.len() - 1) as f64 * part) as usize;
    all[at].as_nanos() as f64 / 1000.0
}

/// Runs all servers in turn, several times, and prints the figures.
fn compare(names: [&str; 4], threads: usize, cores: &str, run: impl Fn(&Server) -> Figures) {
    let others = std::env::var("MANYCORE_SERVERS").unwrap_or_default();
    let own = env!("CARGO_BIN_EXE_manycored");
    let programs: Vec<&str> =
        [own].into_iter().chain(others.split(',').filter(|name| !name.is_empty())).collect();
    let repeats = std::env::var("MANYCORE_REPEATS").map_or(5, |text| text.parse().unwrap());
    let mut found: Vec<Vec<Figures>> = programs.iter().map(|_| Vec::new()).collect();
    for _ in 0..repeats {
        for (program, found) in programs.iter().zip(&mut found) {
            found.push(run(&Server::start(program, threads, cores)));
        }
    }
    for (program, found) in programs.iter().zip(&found) {
        let mut line = format!("{:>12}", program.rsplit('/').next().unwrap());
        for (at, name) in names.iter().enumerate() {
            let mut all: Vec<f64> = found.iter().map(|figures| figures[at]).collect();
            all.sort_by(f64::total_cmp);
            let (least, most) = (all[0], all[all.len() - 1]);
            let median = all[all.len() / 2];
            write!(line, "  {name} {median:.1} ({least:.1} to {most:.1})").unwrap();
        }
        println!("{line}");
    }
}

/// How long a client waits for others.
fn lone_client_beside_eight_that_send_500_gets_at_once() {
    const LENGTH: usize = 32;
    compare(["lone p50 us", "p99 us", "pipelined k/s", "server ns/key"], 1, "0", |server| {
        server.fill(LENGTH);
        let mut lone = Client::gets(server, 0, 1, LENGTH);
        // A share of the server's time that is the same, however quick its replies are.
        lone.pause = Duration::from_micros(200);
        let mut pipelined: Vec<_> =
            (0..8).map(|number| Client::gets(server, number * 500, 500, LENGTH)).collect();
        let (mut buffer, mut took, mut batches) = (vec![0; 1 << 16], Vec::new(), 0);
        let (start, before) = (Instant::now(), server.busy());
        while start.elapsed() < RUN {
            for client in &mut pipelined {
                batches += u32::from(client.poll(&mut buffer).is_some());
                took.extend(lone.poll(&mut buffer));
            }
        }
        let busy = (server.busy() - before).as_nanos() as f64 / f64::from(batches * 500);
        let rate = f64::from(batches) * 0.5 / RUN.as_secs_f64();
        [quantile(&mut took, 0.5), quantile(&mut took, 0.99), rate, busy]
    });
}

/// The numbers in a variable, with commas.
fn numbers(name: &str, default: &str) -> Vec<usize> {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    text.split(',').map(|number| number.parse().unwrap()).collect()
}

/// Sends so many sets of one key.
fn sets(server: &Server, number: usize, depth: usize, length: usize) -> Client {
    let line = format!("set {number:016} 0 0 {length}\r\n");
    let set = [line.as_bytes(), &vec![b'w'; length], b"\r\n"].concat();
    Client::new(server, set.repeat(depth), depth * b"STORED\r\n".len())
}

/// What the bytes of a value cost.
fn gets_and_sets_of_larger_values() {
    const CLIENTS: usize = 32;
    let load = |length: usize, depth: usize, is_set: bool| {
        println!("{} of {length} bytes, {depth} at once", if is_set { "sets" } else { "gets" });
        compare(["k/s", "p50 us", "p99 us", "server ns"], 1, "0", |server| {
            server.fill(length);
            let client = |number: usize| match is_set {
                true => sets(server, number, depth, length),
                false => Client::gets(server, number * depth, depth, length),
            };
            let mut clients: Vec<_> = (0..CLIENTS).map(client).collect();
            let (mut buffer, mut took) = (vec![0; 1 << 18], Vec::new());
            let (start, before) = (Instant::now(), server.busy());
            while start.elapsed() < RUN {
                for client in &mut clients {
                    took.extend(client.poll(&mut buffer));
                }
            }
            let count = (took.len() * depth) as f64;
            let busy = (server.busy() - before).as_nanos() as f64 / count;
            let rate = count / 1000.0 / RUN.as_secs_f64();
            [rate, quantile(&mut took, 0.5), quantile(&mut took, 0.99), busy]
        });
    };
    for length in numbers("MANYCORE_LENGTHS", "32,1000,10000") {
        for depth in numbers("MANYCORE_DEPTHS", "1,16") {
            load(length, depth, false);
            load(length, depth, true);
        }
    }
}

fn main() {
    if !cfg!(target_os = "linux") {
        return println!("the server's processor time is read from Linux");
    }
    lone_client_beside_eight_that_send_500_gets_at_once();
    gets_and_sets_of_larger_values();
}
