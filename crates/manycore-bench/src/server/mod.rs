//! Servers on loopback, under generated load: the library's, the usual ones, and a floor.
//!
//! Owns: the settings, the subject that puts the load on a server, and the table of servers.
//!
//! All servers get the same threads and the same memory, in the same run. By default there are a
//! million keys of 16 bytes, values of 32, zipfian requests generated beforehand, and 32
//! connections. The clients have the first core and the server the next ones, if there are enough;
//! otherwise the server is not pinned. Times are of batches: from the write of a batch to its last
//! reply. With a rate the loop is open, and times begin when the batch was due (see `client`).

mod client;
mod floor;
mod host;
mod wire;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use host::Which;
pub use wire::{Protocol, VALUE};

use crate::{
    kv::Keys,
    kv::trace::{KEYS, Trace, Wanted},
    latency::Latencies,
    limits,
    row::Kind,
    runner::{Case, Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, choose, threads_word},
};
use client::{Client, Plan};
use host::{Live, Size};
use manycore::percpu::pin;
use wire::Wire;

/// Client threads.
const CLIENTS: usize = 1;

/// What concerns `server` alone.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// A server that is there, instead of those that are started.
    pub connect: Option<SocketAddr>,
    /// What is spoken; Redis speaks its own.
    pub protocol: Protocol,
    /// Requests of a batch.
    pub pipeline: Vec<usize>,
    /// Connections.
    pub connections: usize,
    /// Keys of a get, in the group of gets with many keys; 1 leaves it out.
    pub multiget: usize,
    /// Bytes of a value, at least [`VALUE`].
    pub value: Vec<usize>,
    /// Requests of a connection before others have their turn (`-R`); none is what a server does
    /// itself.
    pub slice: Vec<Option<usize>>,
    /// Keys a second, for open loops; none is a closed one.
    pub rate: Vec<f64>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            connect: None,
            protocol: Protocol::Text,
            pipeline: vec![1, 16, 64],
            connections: 32,
            multiget: 64,
            value: vec![VALUE],
            slice: vec![None],
            rate: Vec::new(),
        }
    }
}

/// What a cell of the table asks for.
#[derive(Clone)]
pub struct Shape {
    fleet: Arc<Fleet>,
    threads: usize,
    keys: usize,
    set: u8,
    pipeline: usize,
    multiget: usize,
    value: usize,
    slice: Option<usize>,
    rate: Option<f64>,
    /// Whether a new server is started and filled, and nothing is asked.
    is_birth: bool,
}

impl Shape {
    /// Single gets.
    fn first(fleet: &Arc<Fleet>, threads: usize) -> Self {
        Self {
            fleet: fleet.clone(),
            threads,
            keys: KEYS,
            set: 0,
            pipeline: 1,
            multiget: 1,
            value: VALUE,
            slice: None,
            rate: None,
            is_birth: false,
        }
    }
}

/// What a server was started for: which, its threads, all its keys, the keys of a get, a value's
/// bytes, `-R`.
type Birthmark = (Which, usize, usize, usize, usize, Option<usize>);

/// Servers that were started for some options, each filled once.
struct Fleet {
    options: Options,
    live: Mutex<HashMap<Birthmark, Arc<Live>>>,
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fleet {
    fn protocol(&self, which: Which) -> Protocol {
        match which {
            Which::Redis => Protocol::Resp,
            Which::Floor => Protocol::Text,
            _ => self.options.own.get::<ServerOptions>().protocol,
        }
    }

    /// A new server with all keys in it; and bytes that each made it grow.
    fn bear(&self, which: Which, shape: &Shape) -> io::Result<(Live, f64)> {
        let keys = shape.keys;
        let cores = pin::allowed().unwrap_or_default();
        let own = cores.get(CLIENTS..CLIENTS + shape.threads).filter(|_| self.options.pin);
        let cores = own.map(<[_]>::to_vec).unwrap_or_default();
        let Shape { threads, multiget, value, slice, .. } = *shape;
        let size = Size { threads, keys, value, multiget, slice, cores };
        let protocol = self.protocol(which);
        let live = which.start(protocol, &size)?;
        let before = live.resident();
        if which != Which::Floor {
            client::fill(live.address, &Wire::new(protocol, 1, value, true), keys)?;
        }
        let grown = live.resident().zip(before).map_or(0, |(now, then)| now.saturating_sub(then));
        Ok((live, grown as f64 / keys as f64))
    }

    fn get(&self, which: Which, shape: &Shape) -> io::Result<Arc<Live>> {
        // The floor's requests must all be alike.
        let multiget = if which == Which::Floor { shape.multiget } else { 0 };
        let key = (which, shape.threads, shape.keys, multiget, shape.value, shape.slice);
        let mut all = unpoisoned(&self.live);
        if let Some(live) = all.get(&key) {
            return Ok(live.clone());
        }
        let live = Arc::new(self.bear(which, shape)?.0);
        all.insert(key, live.clone());
        Ok(live)
    }
}

/// What a run saw.
#[derive(Default)]
struct Seen {
    times: Latencies,
    /// Nanoseconds of the server's processors.
    processor: Option<u64>,
    problem: Option<String>,
}

/// Puts a load on a server.
struct Load {
    live: Option<Arc<Live>>,
    plan: Option<Plan>,
    seen: Mutex<Seen>,
}

impl Load {
    fn new(which: Which, shape: &Shape) -> Self {
        let options = &shape.fleet.options;
        let live = shape.fleet.get(which, shape);
        let problem = live.as_ref().err().map(ToString::to_string);
        let live = live.ok();
        let plan = live.as_ref().map(|live| {
            let keys = shape.keys;
            let (set, requests) = (shape.set, options.ops);
            let trace = Trace::shared(Wanted { set, requests, order: Keys::Zipf, keys });
            let protocol = shape.fleet.protocol(which);
            let wire = Wire::new(protocol, shape.multiget, shape.value, which != Which::Floor);
            let connections = options.own.get::<ServerOptions>().connections;
            let (depth, rate, address) = (shape.pipeline, shape.rate, live.address);
            Plan { address, wire, depth, connections, rate, trace }
        });
        Self { live, plan, seen: Mutex::new(Seen { problem, ..Seen::default() }) }
    }

    fn load(&self, control: &Control) -> io::Result<Tally> {
        let (Some(live), Some(plan)) = (&self.live, &self.plan) else {
            control.finish();
            return Ok(Tally::default());
        };
        let client = Client::connect(plan.clone())?;
        let before = live.processor_time();
        let (tally, times) = client.run(control)?;
        let spent = live.processor_time().zip(before).map(|(now, then)| now - then);
        let mut seen = unpoisoned(&self.seen);
        (seen.times, seen.processor) = (times, spent);
        Ok(tally)
    }
}

impl Subject for Load {
    fn workers(&self, _: usize) -> usize {
        CLIENTS
    }

    fn work(&self, _: usize, control: &Control) -> Tally {
        self.load(control).unwrap_or_else(|error| {
            control.finish();
            unpoisoned(&self.seen).problem = Some(error.to_string());
            Tally::default()
        })
    }

    fn figure(&self, metric: &str, tallies: &[Tally]) -> Option<f64> {
        let seen = unpoisoned(&self.seen);
        let micros = |share| Some(seen.times.quantile_ns(share) / 1e3);
        match metric {
            "p50" => micros(0.5),
            "p99" => micros(0.99),
            "p99.9" => micros(0.999),
            "server_cpu" => {
                let keys: u64 = tallies.iter().map(|tally| tally.ops).sum();
                Some(seen.processor.unwrap_or(0) as f64 / 1e3 / keys.max(1) as f64)
            }
            _ => None,
        }
    }

    fn problem(&self) -> Option<String> {
        unpoisoned(&self.seen).problem.clone()
    }
}

/// A server's start, and what its items take.
struct Birth(Result<(f64, f64), String>);

impl Birth {
    fn new(which: Which, shape: &Shape) -> Self {
        let born = shape.fleet.bear(which, shape);
        let figures = |(live, bytes): (Live, f64)| (live.first_reply.as_secs_f64() * 1e3, bytes);
        Self(born.map(figures).map_err(|error| error.to_string()))
    }
}

impl Subject for Birth {
    fn workers(&self, _: usize) -> usize {
        1
    }

    fn work(&self, _: usize, control: &Control) -> Tally {
        control.finish();
        Tally::default()
    }

    fn figure(&self, metric: &str, _: &[Tally]) -> Option<f64> {
        let (start, memory) = self.0.as_ref().ok()?;
        Some(if metric == "start" { *start } else { *memory })
    }

    fn problem(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }
}

fn build(which: Which, shape: &Shape) -> Box<dyn Subject> {
    if shape.is_birth {
        return Box::new(Birth::new(which, shape));
    }
    Box::new(Load::new(which, shape))
}

/// Every server.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        name: "manycored",
        kind: Kind::Ours,
        about: "ours, beside this command or by the path",
        threads_max: usize::MAX,
        build: |shape| build(Which::Manycored, &shape),
        conform: || conform(Which::Manycored),
    },
    Entry {
        name: "memcached",
        kind: Kind::Rival,
        about: "memcached, as it is installed",
        threads_max: usize::MAX,
        build: |shape| build(Which::Memcached, &shape),
        conform: || conform(Which::Memcached),
    },
    Entry {
        name: "redis",
        kind: Kind::Rival,
        about: "Redis, as it is installed, without persistence; its own protocol",
        threads_max: usize::MAX,
        build: |shape| build(Which::Redis, &shape),
        conform: || conform(Which::Redis),
    },
    Entry {
        name: "floor",
        kind: Kind::Floor,
        about: "one epoll loop with canned replies: what the sockets cost",
        threads_max: 1,
        build: |shape| build(Which::Floor, &shape),
        conform: || conform(Which::Floor),
    },
];

/// The server that an entry is about.
fn which(entry: &Entry<Shape>) -> Which {
    match entry.name {
        "manycored" => Which::Manycored,
        "memcached" => Which::Memcached,
        "redis" => Which::Redis,
        _ => Which::Floor,
    }
}

const LOAD: [Metric; 5] = [
    Metric { name: "throughput", unit: "Mkeys/s", of: |tallies| total_rate(tallies) / 1e6 },
    Metric::of_subject("p50", "us"),
    Metric::of_subject("p99", "us"),
    Metric::of_subject("p99.9", "us"),
    Metric::of_subject("server_cpu", "us/key"),
];

const BIRTH: [Metric; 2] =
    [Metric::of_subject("start", "ms"), Metric::of_subject("memory", "B/item")];

/// The groups for some options.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("server", ENTRIES, &options.impls)?;
    let server: ServerOptions = options.own.get();
    let live = Mutex::new(HashMap::new());
    let fleet = Arc::new(Fleet { options: options.clone(), live });
    let mut groups = Vec::new();
    let threads: &[usize] = if server.connect.is_some() { &[1] } else { &options.threads };
    for &keys in options.keys_or(&[KEYS]) {
        for &threads in threads {
            for &value in &server.value {
                let first = Shape { keys, value, ..Shape::first(&fleet, threads) };
                for &slice in &server.slice {
                    loads(&chosen, &Shape { slice, ..first.clone() }, &mut groups);
                }
                if server.connect.is_none() && server.rate.is_empty() {
                    groups.push(group(&chosen, Shape { is_birth: true, ..first }));
                }
            }
        }
    }
    Ok(groups)
}

/// The groups of one server, length of values and `-R`.
fn loads(chosen: &[&'static Entry<Shape>], first: &Shape, groups: &mut Vec<Group>) {
    let options = &first.fleet.options;
    let server: ServerOptions = options.own.get();
    let rates: Vec<_> = match &server.rate[..] {
        [] => vec![None],
        rates => rates.iter().map(|rate| Some(*rate)).collect(),
    };
    for rate in rates {
        for &pipeline in &server.pipeline {
            for &set in &options.set {
                groups.push(group(chosen, Shape { pipeline, set, rate, ..first.clone() }));
            }
        }
        if server.multiget > 1 {
            let multiget = server.multiget;
            groups.push(group(chosen, Shape { multiget, rate, ..first.clone() }));
        }
    }
}

fn group(chosen: &[&'static Entry<Shape>], shape: Shape) -> Group {
    let options = &shape.fleet.options;
    let server: ServerOptions = options.own.get();
    let (mut cases, mut left_out) = (Vec::new(), Vec::new());
    if let Some(address) = server.connect {
        let shape = shape.clone();
        cases.push(Case {
            impl_name: "connected",
            kind: Kind::Rival,
            threads: shape.threads,
            build: Box::new(move || build(Which::There(address), &shape)),
        });
    }
    for entry in chosen.iter().filter(|_| server.connect.is_none()) {
        let is_floor = which(entry) == Which::Floor;
        if is_floor && shape.is_birth {
            continue;
        }
        let is_fit = shape.slice.is_none() || which(entry).has_slices();
        if shape.threads > entry.threads_max || !is_fit || !which(entry).is_here() {
            left_out.push(entry.name);
            continue;
        }
        let (entry, shape) = (*entry, shape.clone());
        cases.push(Case {
            impl_name: entry.name,
            kind: entry.kind,
            threads: shape.threads,
            build: Box::new(move || (entry.build)(shape.clone())),
        });
    }
    let mut metrics = if shape.is_birth { BIRTH.to_vec() } else { LOAD.to_vec() };
    if server.connect.is_some() {
        metrics.retain(|metric| metric.name != "server_cpu");
    }
    let params = options.params([
        ("keys", shape.keys.into()),
        ("connections", server.connections.into()),
        ("protocol", server.protocol.to_string().into()),
        ("set", shape.set.into()),
        ("pipeline", shape.pipeline.into()),
        ("multiget", shape.multiget.into()),
        ("value", shape.value.into()),
        ("slice", shape.slice.map_or("default".into(), Into::into)),
        ("rate", shape.rate.map_or("closed".into(), Into::into)),
    ]);
    Group { bench: "server", title: title(&shape), params, metrics, cases, left_out }
}

/// The length of values, if it is not the usual one.
fn values_of(shape: &Shape) -> String {
    if shape.value == VALUE {
        return String::new();
    }
    format!(", values of {} bytes", shape.value)
}

fn title(shape: &Shape) -> String {
    let threads = threads_word(shape.threads) + &Wanted::keys_word(shape.keys);
    if shape.is_birth {
        return format!("{threads}, first reply, and memory of the items{}", values_of(shape));
    }
    let what = match shape.multiget {
        1 => format!("pipeline {}, {} % sets", shape.pipeline, shape.set),
        keys => format!("gets of {keys} keys"),
    };
    let rate = shape.rate.map_or(String::new(), |rate| format!(", {rate} keys/s (open loop)"));
    let slice = shape.slice.map_or(String::new(), |slice| format!(", -R {slice}"));
    format!("{threads}, {what}{}{slice}{rate}", values_of(shape))
}

/// Every key is found with its own value, singly and many at a time, among sets. A server that is
/// not installed is no failure.
fn conform(which: Which) -> Result<(), String> {
    if !which.is_here() {
        return Ok(());
    }
    let pin = limits::cores() > CLIENTS;
    let options = Options { ops: 4_096, pin, ..Options::default() };
    let fleet = Arc::new(Fleet { options, live: Mutex::new(HashMap::new()) });
    let first = Shape { keys: 1_000, ..Shape::first(&fleet, 1) };
    for (pipeline, multiget, set, value, slice) in [
        (1, 1, 0, VALUE, None),
        (16, 1, 20, VALUE, Some(500)),
        (1, 16, 0, VALUE, None),
        (64, 1, 50, 10_000, None),
        (1, 16, 0, 1_000, None),
    ] {
        let slice = slice.filter(|_| which.has_slices());
        let shape = Shape { set, pipeline, multiget, value, slice, ..first.clone() };
        let load = Load::new(which, &shape);
        let Some(plan) = load.plan.clone() else {
            return Err(load.problem().unwrap_or_default());
        };
        client::probe(plan, 2_000).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ServerOptions, VALUE};
    use crate::workload::{Options, OwnOptions};

    #[test]
    fn a_server_that_is_there_is_the_only_one_asked() {
        let connect = Some("127.0.0.1:1".parse().unwrap());
        let server = ServerOptions { connect, rate: vec![1e3], ..ServerOptions::default() };
        let chosen = |server: ServerOptions| {
            let own = OwnOptions::default().with(server);
            super::groups(&Options { own, ..Options::default() }).unwrap()
        };
        let each = ServerOptions {
            value: vec![VALUE, 1000],
            slice: vec![None, Some(9)],
            ..server.clone()
        };
        assert_eq!(chosen(each).len(), 40);
        let groups = chosen(server);
        assert_eq!(groups.len(), 10);
        for group in groups {
            assert_eq!((group.cases.len(), group.cases[0].impl_name), (1, "connected"));
            assert!(group.metrics.iter().all(|metric| metric.name != "server_cpu"));
            let problem = (group.cases[0].build)().problem();
            assert!(problem.is_some(), "no server listens there");
        }
    }
}
