//! A soak of the program itself: clients of all kinds at once, good and bad, servers that end and
//! begin again, and what must hold.
//!
//! Memory is small, so that items of all sizes are evicted all the time. While some clients leave
//! in the middle of a command, never send the end of a value, never read, flood the server with
//! keys or send nonsense, others demand each reply, in order, and of every value that it is one of
//! those that the key may have ([`oracle`]).
//!
//! Amid that the server is killed, or ended so that it saves its items (`-e`), or killed while it
//! saves or while it begins. The next one has the items or none, and none that is wrong.
//!
//! Resident memory stays below 1.10 times the limit and [`BESIDE`], whatever the clients do: the
//! bound that docs/server.md states. The buffers of connections have [`BUFFERS`] of it.
//!
//! `MANYCORE_SOAK=600` runs it for ten minutes; `MANYCORE_SEED=0x12ab` asks the same again.
#![cfg(target_os = "linux")]

mod bad;
mod oracle;
mod strict;

use crate::common::running::{LONG, Running, ask, program, wait_for};
use crate::rng::Rng;
use oracle::Oracle;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use strict::Strict;

const SHARE: Duration = Duration::from_secs(3);
/// The longest that the first server's memory takes to be full.
const FILLED: Duration = Duration::from_secs(300);
const MB: u64 = 1 << 20;
/// The server's limit of memory for items: in a long soak, and one that is soon full.
const LIMITS: [u64; 2] = [32 * MB, 8 * MB];
const THREADS: u64 = 2;
/// What all connections' buffers may take.
const BUFFERS: u64 = 16 * MB;
/// What may be resident beside the limit and a tenth of it.
const BESIDE: u64 = 24 * MB + THREADS * 3 * MB;
/// Keys that all clients share.
const KEYS: usize = 3_000;
/// Clients that write them.
const STRICT: usize = 3;
const LARGE: usize = 1_000_000;
const SIZES: [usize; 12] = [100, 1000, 5000, 200, 30_000, 60, 12_000, 300, 100_000, 45, 2000, 700];

/// What the clients of all rounds share.
struct Soak {
    seed: u64,
    oracle: Oracle,
    /// The server's port.
    port: AtomicU16,
    /// The round is over, and the server ends.
    ends: AtomicBool,
    replies: AtomicU64,
    values: AtomicU64,
    /// Sets that were refused and good clients that were disconnected, for want of buffers.
    refused: AtomicUsize,
}

impl Soak {
    fn goes_on(&self) -> bool {
        !self.ends.load(Ordering::SeqCst)
    }

    /// A connection, while the round goes on.
    fn connect(&self) -> Option<TcpStream> {
        if !self.goes_on() {
            return None;
        }
        let stream = match TcpStream::connect(("127.0.0.1", self.port.load(Ordering::SeqCst))) {
            Ok(stream) => stream,
            Err(_) if !self.goes_on() => return None,
            Err(error) => panic!("{error}, seed {:#x}", self.seed),
        };
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Some(stream)
    }

    /// A good client lost its connection: for want of buffers, or the server has ended.
    fn was_disconnected(&self, error: &io::Error) {
        let is_closed =
            !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        assert!(is_closed || !self.goes_on(), "{error}, seed {:#x}", self.seed);
        if self.goes_on() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Tells the others to end, also if this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// How a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It saves its items.
    Saved,
    /// It is killed while it serves.
    Killed,
    /// It is killed while it saves, or a moment before or after that.
    KilledSaving,
    /// It saves, and the next one is killed while it begins, or a moment after that.
    KilledBeginning,
}

const ENDS: [End; 4] = [End::Saved, End::Killed, End::KilledSaving, End::KilledBeginning];

/// The most that was resident so far, but for pages of files; none of a process that has ended.
fn most_resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    Some((kilobytes("VmHWM:")? - kilobytes("RssFile:")?) << 10)
}

/// Servers, one after the other, with one file for their items.
struct Rounds<'a> {
    soak: &'a Soak,
    limit: u64,
    options: String,
    part: PathBuf,
    rng: Rng,
    /// How the last one ended.
    last: Option<End>,
    resident: u64,
    evictions: u64,
    /// Rounds, those of which the server had items, and those in which it was killed amid saving.
    counts: [u32; 3],
}

impl Rounds<'_> {
    fn most(&self) -> u64 {
        self.limit + self.limit / 10 + BESIDE
    }

    fn watch(&mut self, server: &Running) {
        let Some(resident) = most_resident(server.child.id()) else { return };
        let (most, seed) = (self.most(), self.soak.seed);
        assert!(resident <= most, "{resident} of {most} bytes are resident, seed {seed:#x}");
        self.resident = resident.max(self.resident);
    }

    /// Starts a server, and demands of what it has that it is right.
    fn begin(&mut self) -> Running {
        let server = Running::start(&self.options);
        self.soak.port.store(server.port, Ordering::SeqCst);
        self.soak.ends.store(false, Ordering::SeqCst);
        let (found, last) = (Strict::read_all(self.soak), self.last);
        let is_right = match last {
            None | Some(End::Killed) => found == 0,
            Some(End::Saved) => found > 0,
            Some(End::KilledSaving | End::KilledBeginning) => true,
        };
        assert!(is_right, "{found} values after {last:?}, seed {:#x}", self.soak.seed);
        self.counts[0] += 1;
        self.counts[1] += u32::from(found > 0);
        self.watch(&server);
        server
    }

    /// Clients of all kinds at once, until then; at the end of which the server has the signal.
    fn serve(&mut self, server: &Running, until: Instant, signal: &str) {
        type Work = fn(&Soak, usize, &mut Rng);
        const KINDS: [(Work, usize); 7] = [
            (|soak, at, rng| Strict::run(soak, at, rng), STRICT),
            (|soak, _, rng| bad::dropper(soak, rng), 1),
            (|soak, _, rng| bad::halves(soak, rng), 1),
            (|soak, _, rng| bad::slow(soak, rng), 2),
            (|soak, _, rng| bad::hog(soak, rng), 1),
            (|soak, _, rng| bad::flooder(soak, rng), 1),
            (|soak, _, rng| bad::babbler(soak, rng), 1),
        ];
        let (soak, seed) = (self.soak, self.rng.next());
        let refused = soak.refused.load(Ordering::SeqCst);
        thread::scope(|scope| {
            let all = KINDS.iter().flat_map(|(work, count)| (0..*count).map(move |at| (work, at)));
            for (number, (work, at)) in all.enumerate() {
                scope.spawn(move || {
                    let _ends = Ends(&soak.ends);
                    work(soak, at, &mut Rng::part(seed, number as u64));
                });
            }
            let _ends = Ends(&soak.ends);
            // On a busy machine the first round lasts until the memory is full.
            let full = Instant::now() + if self.counts[0] == 1 { FILLED } else { Duration::ZERO };
            let fills = || Instant::now() < full && server.stat("evictions") == 0;
            while (Instant::now() < until || fills()) && soak.goes_on() {
                self.watch(server);
                thread::sleep(Duration::from_millis(20));
            }
            self.evictions += server.stat("evictions");
            assert!(server.stat("bytes") <= self.limit, "seed {:#x}", soak.seed);
            // Good clients are refused nothing while there are buffers.
            let refused = soak.refused.load(Ordering::SeqCst) - refused;
            let scarce = server.stat("read_buf_oom") + server.stat("store_no_memory");
            assert!(refused == 0 || scarce > 0, "{refused} are refused, seed {:#x}", soak.seed);
            soak.ends.store(true, Ordering::SeqCst);
            server.signal(signal);
        });
    }

    /// Waits for the end of a server that saves its items.
    fn wait(&mut self, server: &mut Running) {
        let code = wait_for("the end", || {
            self.watch(server);
            server.child.try_wait().unwrap()
        });
        assert!(code.success(), "{code:?}, seed {:#x}", self.soak.seed);
    }

    /// Starts one, and kills it soon.
    fn kill_while_it_begins(&mut self) {
        let mut child = program().args(["-p", "-1"]).args(self.options.split(' ')).spawn().unwrap();
        thread::sleep(Duration::from_micros(self.rng.next() % 60_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn round(&mut self, end: End, until: Instant) {
        let mut server = self.begin();
        let signal = if end == End::Killed { "-KILL" } else { "-USR1" };
        self.serve(&server, until, signal);
        match end {
            End::Killed => assert_eq!(server.end(), None, "it was a signal"),
            End::Saved => self.wait(&mut server),
            End::KilledSaving => {
                thread::sleep(Duration::from_micros(self.rng.next() % 60_000));
                let _ = server.child.kill();
                let is_killed = !server.child.wait().unwrap().success();
                let is_begun = fs::metadata(&self.part).is_ok_and(|part| part.len() > 0);
                self.counts[2] += u32::from(is_killed && is_begun);
            }
            End::KilledBeginning => {
                self.wait(&mut server);
                self.kill_while_it_begins();
            }
        }
        self.last = Some(end);
    }
}

#[test]
fn good_clients_are_served_and_memory_is_kept_whatever_bad_ones_do() {
    let seed = crate::env::seed();
    println!("seed {seed:#x}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items");
    let buffers = BUFFERS / MB;
    let is_long = crate::env::number("MANYCORE_SOAK").is_some();
    let (limit, longest) = if is_long { (LIMITS[0], 12_000) } else { (LIMITS[1], 800) };
    let soak = Soak {
        seed,
        oracle: Oracle::new(KEYS),
        port: AtomicU16::new(0),
        ends: AtomicBool::new(false),
        replies: AtomicU64::new(0),
        values: AtomicU64::new(0),
        refused: AtomicUsize::new(0),
    };
    let mut rounds = Rounds {
        soak: &soak,
        limit,
        options: format!(
            "-t {THREADS} -m {} -c 300 -o read_buf_mem_limit={buffers} -e {}",
            limit / MB,
            file.display()
        ),
        part: folder.path().join("items.part"),
        rng: Rng::new(seed),
        last: None,
        resident: 0,
        evictions: 0,
        counts: [0; 3],
    };
    let until = crate::env::soak(SHARE);
    for end in ENDS.iter().cycle() {
        // A round that is killed too soon leaves nothing for the next one.
        let is_enough = rounds.counts[1] > 0 || rounds.counts[0] >= 40;
        if Instant::now() > until && rounds.counts[0] >= 4 && is_enough {
            break;
        }
        let length = 300 + rounds.rng.below(longest);
        rounds.round(*end, Instant::now() + Duration::from_millis(length as u64));
    }
    let most = rounds.most();
    let Rounds { resident, evictions, counts: [all, warm, amid], .. } = rounds;
    println!(
        "SUMMARY {all} rounds, {warm} warm, {amid} killed while saving, {} replies, {} values, {} \
         refused, {evictions} evictions, {:.1} of {:.1} MB resident at most, seed {seed:#x}",
        soak.replies.into_inner(),
        soak.values.into_inner(),
        soak.refused.into_inner(),
        resident as f64 / MB as f64,
        most as f64 / MB as f64,
    );
    assert!(warm > 0 && evictions > 0, "seed {seed:#x}");
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
