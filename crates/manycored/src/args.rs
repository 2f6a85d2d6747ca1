//! The command line: memcached's options.
//!
//! An option that is unknown, or that this server does not implement, is refused with a message. If
//! an option tunes a mechanism that does not exist here, it is accepted with a warning that it has
//! no effect.

mod extended;
mod listeners;
#[cfg(test)]
mod tests;

pub use listeners::Listener;

use crate::auth::Auth;
use crate::buffers;
use crate::config;
use crate::server_state::{Language, Settings};
use crate::store::{Limits, WORKERS_MAX};
use crate::system;
use crate::tls::Tls;
use crate::trace;
use clap::{ArgAction, CommandFactory, Parser};
use extended::Extended;
use std::ffi::OsString;
use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::thread::available_parallelism;

/// The port of memcached.
const PORT: i32 = 11211;
/// The most bytes of the file of `--config`. Each line is checked as a command line of its own.
const CONFIG_MAX: u64 = 64 << 10;

/// The licence of the program.
pub const LICENSE: &str = concat!(
    "manycored ",
    env!("CARGO_PKG_VERSION"),
    ": licensed under the Apache License, Version 2.0, or the MIT license, at your option."
);

/// A memcached-compatible cache server.
///
/// Started without options it listens on the loopback address, port 11211, and keeps up to 64
/// megabytes of items.
#[derive(Debug, Parser)]
#[command(name = "manycored", version, disable_version_flag = true, args_override_self = true)]
pub struct Args {
    /// TCP port to listen on; 0 is none, -1 lets the system choose [default: 11211, or the port of
    /// -U]
    #[arg(short = 'p', long = "port", value_name = "NUM", allow_negative_numbers = true)]
    port: Option<i32>,
    /// Addresses to listen on: names or numbers, each with :PORT if it has its own. Prefixes of an
    /// address, in this order and each with a colon: with -Z, notls, btls (no client certificate)
    /// or mtls (a client certificate is required); proto[ascii], proto[binary] or
    /// proto[negotiating]; and tag[NAME]
    #[arg(short = 'l', long = "listen", value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<String>,
    /// Unix socket to listen on, instead of the network
    #[arg(short = 's', long = "unix-socket", value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Access mode of the Unix socket, octal
    #[arg(short = 'a', long = "unix-mask", value_name = "MASK", default_value = "700")]
    #[arg(value_parser = mask)]
    mask: u32,
    /// UDP port to listen on, at the same addresses; 0 is none, -1 lets the system choose
    #[arg(short = 'U', long = "udp-port", value_name = "NUM", default_value_t = 0)]
    #[arg(allow_negative_numbers = true)]
    udp: i32,
    /// Allow the command "shutdown"
    #[arg(short = 'A', long = "enable-shutdown")]
    shutdown: bool,
    /// Run in the background
    #[arg(short = 'd', long = "daemon")]
    pub daemon: bool,
    /// User to run as; required when started as root
    #[arg(short = 'u', long = "user", value_name = "NAME")]
    pub user: Option<String>,
    /// Memory for items, in megabytes
    #[arg(short = 'm', long = "memory-limit", value_name = "NUM", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    memory: u64,
    /// Refuse new items when memory is full, instead of evicting others
    #[arg(short = 'M', long = "disable-evictions")]
    no_evictions: bool,
    /// Most concurrent connections; if the limit of open files can't be raised for them, as many as
    /// fit, with a warning
    #[arg(short = 'c', long = "conn-limit", value_name = "NUM", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,
    /// Lock all memory, so that it is not swapped out
    #[arg(short = 'k', long = "lock-memory")]
    pub lock_memory: bool,
    /// Log more: once, refusals of clients; twice, also connections, requests and replies
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    verbose: u8,
    /// Write the process id to this file
    #[arg(short = 'P', long = "pidfile", value_name = "FILE")]
    pub pidfile: Option<PathBuf>,
    /// Worker threads [default: one for each core]
    #[arg(short = 't', long = "threads", value_name = "NUM", value_parser = threads)]
    threads: Option<usize>,
    /// Most keys of one connection in a turn; 0 is 64, or more if few connections are ready
    #[arg(short = 'R', long = "max-reqs-per-event", value_name = "NUM", default_value_t = 0)]
    requests: usize,
    /// Backlog of connections to be accepted
    #[arg(short = 'b', long = "listen-backlog", value_name = "NUM", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    backlog: i32,
    /// Size limit of an item, with k or m: 1k to 1024m
    #[arg(short = 'I', long = "max-item-size", value_name = "SIZE", default_value = "1m")]
    #[arg(value_parser = size)]
    item: usize,
    /// Delimiter of key prefixes: enables counts by prefix for "stats detail dump" (without it,
    /// "stats detail on" does), and "flush_prefix PREFIX" and "mf PREFIX"
    #[arg(short = 'D', long = "prefix-delimiter", value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Refuse "flush_all" and "flush_prefix"
    #[arg(short = 'F', long = "disable-flush-all")]
    no_flush: bool,
    /// The protocol: ascii (which includes meta), binary, or auto, which goes by a client's first
    /// byte
    #[arg(short = 'B', long = "protocol", value_name = "NAME")]
    protocol: Option<String>,
    /// SASL authentication, in the binary protocol only: the users of -Y, else of
    /// MEMCACHED_SASL_PWDB, else of saslpasswd2; these may be made after the start
    #[arg(short = 'S', long = "enable-sasl")]
    sasl: bool,
    /// Refuse "stats cachedump", "stats detail" and "lru_crawler metadump"
    #[arg(short = 'X', long = "disable-dumping")]
    no_dump: bool,
    /// Refuse "watch"
    #[arg(short = 'W', long = "disable-watch")]
    no_watch: bool,
    /// Keep no versions of items: "gets" returns 0, and "cas" compares with 0
    #[arg(short = 'C', long = "disable-cas")]
    no_cas: bool,
    /// Raise the limit of core files to its maximum
    #[arg(short = 'r', long = "enable-coredumps")]
    pub core_dumps: bool,
    /// Warm restart: save all items in this file at a graceful shutdown (the signal USR1), and
    /// restore them at the next start, which removes it; best on a tmpfs with room for all of -m
    #[arg(short = 'e', long = "memory-file", value_name = "FILE")]
    memory_file: Option<PathBuf>,
    /// Warn if the system does not allow huge pages; if it does, the server always uses them
    #[arg(short = 'L', long = "enable-largepages")]
    pub large_pages: bool,
    /// No effect: connections stay with the worker that accepted them
    #[arg(short = 'N', long = "napi-ids", value_name = "NUM")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    napi_ids: Option<u64>,
    /// No effect: there are no slab classes
    #[arg(short = 'n', long = "slab-min-size", value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    slab_min: Option<u64>,
    /// No effect: there are no slab classes
    #[arg(short = 'f', long = "slab-growth-factor", value_name = "NUM")]
    slab_factor: Option<f64>,
    /// TLS on TCP; needs -o ssl_chain_cert=FILE,ssl_key=FILE, which SIGHUP or the command
    /// 'refresh_certs' reloads
    #[arg(short = 'Z', long = "enable-ssl")]
    tls: bool,
    /// Further options: idle_timeout=SECONDS; read_buf_mem_limit=MB, for the buffers of all
    /// connections, beside -m (0 is no limit; default: a quarter of -m, and at least 32);
    /// buffer_timeout=SECONDS, after which an idle connection with buffered data is closed while
    /// more than half of that is taken (default: 30; 0 is never); udp_reply_ratio=NUM, the largest
    /// ratio of a UDP reply to its request, in bytes (default: 100, and no limit on loopback; 0 is
    /// no limit); get_line_max=BYTES, the longest line of a get (default: 1048576; at most
    /// 16777216); watcher_logbuf_size=KB, the buffer of a slow "watch" client; track_sizes for
    /// "stats sizes"; no_lru_crawler, no sweep for expired items; with -Z, ssl_chain_cert=FILE,
    /// ssl_key=FILE, ssl_ca_cert=FILE, ssl_verify_mode=NUM (client certificates: 0 not requested, 1
    /// verified if sent, 2 required), ssl_min_version=NUM (2 is TLS 1.2, 3 is 1.3) and
    /// ssl_session_cache; and names of memcached's that have no effect here, such as
    /// no_drop_privileges
    #[arg(short = 'o', long = "extended", value_name = "OPTIONS", value_delimiter = ',')]
    extended: Vec<String>,
    /// Require authentication: a file of lines 'user:password'
    #[arg(short = 'Y', long = "auth-file", value_name = "FILE")]
    auth: Option<PathBuf>,
    /// Address of the metrics for Prometheus, at /metrics; a bare port is on loopback
    #[arg(long = "metrics", value_name = "ADDR", value_parser = metrics)]
    metrics: Option<SocketAddr>,
    /// Record the last events of each worker in this file, for the command 'manycore trace'; a file
    /// of that name is replaced
    #[arg(long = "trace", value_name = "FILE")]
    trace: Option<PathBuf>,
    /// What --trace records: connections, turns (of a connection, one in 16), gets, stores,
    /// deletes, library (waits at locks, grace periods), or all; 'gets:100' is one in 100 of them
    #[arg(long = "trace-classes", value_name = "NAMES", value_delimiter = ',')]
    #[arg(default_value = "connections,turns,library")]
    trace_classes: Vec<String>,
    /// Read options from this file, one a line: 'threads = 4'; the command line takes precedence
    #[arg(long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'V', long = "version", action = ArgAction::Version)]
    version: (),
    /// Print the license
    #[arg(short = 'i', long = "license")]
    pub license: bool,
}

/// Returns an error's first line, without the advice that follows it.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

fn delimiter(text: &str) -> Result<u8, String> {
    let byte = text.bytes().next().filter(|byte| text.len() == 1 && byte.is_ascii_graphic());
    byte.ok_or_else(|| "one character is expected".into())
}

fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=WORKERS_MAX).contains(number));
    number.ok_or_else(|| format!("1 to {WORKERS_MAX} threads are possible"))
}

fn mask(text: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| "an octal number up to 777 is expected".into())
}

fn metrics(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let found = text.to_socket_addrs().map_err(|error| error.to_string())?.next();
    found.ok_or_else(|| "an address with a port is expected".into())
}

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let size = digits.parse::<usize>().ok().and_then(|size| size.checked_mul(unit));
    let size = size.filter(|size| (1 << 10..=1 << 30).contains(size));
    size.ok_or_else(|| "a size from 1k to 1024m is expected".into())
}

/// The configuration of the server.
#[derive(Debug)]
pub struct Plan {
    /// Settings that `stats` reports.
    pub settings: Settings,
    /// The store's limits.
    pub limits: Limits,
    /// Listeners.
    pub listeners: Vec<Listener>,
    /// UDP addresses.
    pub datagrams: Vec<SocketAddr>,
    /// The Unix socket to listen on.
    pub socket: Option<(PathBuf, u32)>,
    /// Authentication of clients.
    pub auth: Option<Auth>,
    /// The TLS configuration, if TLS is enabled.
    pub tls: Option<Tls>,
    /// The address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// The file of a warm restart.
    pub memory_file: Option<PathBuf>,
    /// The file of the recording, and what is recorded.
    pub trace: Option<(PathBuf, trace::Selection)>,
    /// Bytes of the buffers of all connections; 0 is no limit.
    pub buffers: usize,
    /// Requests of one connection at a time.
    pub budget: usize,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Args {
    /// Reads a command line, and the file that it names. The first word is the program's name.
    ///
    /// # Errors
    /// What is wrong with the command line or the file, or a request for help.
    pub fn from_command_line(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let words: Vec<OsString> = words.into_iter().collect();
        let first = Self::try_parse_from(&words)?;
        let Some(path) = &first.config else { return Ok(first) };
        let failed = |error: &dyn Display| {
            let text = format!("--config {}: {error}\n", path.display());
            clap::Error::raw(clap::error::ErrorKind::Io, text)
        };
        let bytes = system::file(path, CONFIG_MAX).map_err(|error| failed(&error))?;
        let text = String::from_utf8(bytes).map_err(|error| failed(&error))?;
        let lines = config::lines(&text, &Self::command()).map_err(|error| failed(&error))?;
        // Each line alone, so that an error names its line.
        for line in &lines {
            let alone = words.iter().take(1).cloned().chain(line.words.iter().map(Into::into));
            let checked = Self::try_parse_from(alone).map_err(|error| first_line(&error));
            let checked = checked.and_then(|args| args.check_alone());
            checked.map_err(|error| failed(&line.wrong(&error)))?;
        }
        let own = lines.into_iter().flat_map(|line| line.words);
        let (program, rest) = words.split_at(words.len().min(1));
        let is_moot = |word: &String| !first.listen.is_empty() && word.starts_with("--listen=");
        let own = own.filter(|word| !is_moot(word)).map(OsString::from);
        Self::try_parse_from(program.iter().cloned().chain(own).chain(rest.iter().cloned()))
    }

    /// Checks each option by itself.
    fn check_alone(&self) -> Result<(), String> {
        self.extended(&mut Vec::new())?;
        self.warnings()?;
        self.trace()?;
        self.listen.iter().try_for_each(|text| listeners::read(text, 0, true).map(drop))
    }

    /// Returns the configuration that the options describe.
    ///
    /// # Errors
    /// A message that says what is wrong with the options.
    pub fn plan(&self) -> Result<Plan, String> {
        let language = self.language()?;
        let mut warnings = self.warnings()?;
        let extended = self.extended(&mut warnings)?;
        let cores = available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or(cores.min(WORKERS_MAX));
        let memory = self.memory << 20;
        if self.item as u64 > memory / 2 {
            return Err("-I: an item may have at most half of the memory (-m)".into());
        }
        let (listeners, datagrams) = self.all_addresses()?;
        if listeners.is_empty() && datagrams.is_empty() && self.socket.is_none() {
            warnings.push("-p 0: there is nothing to listen on".into());
        }
        let tls = self.tls(&extended, &listeners, &mut warnings)?;
        // An absolute path, because in the background the server's working directory is another.
        let memory_file = self.memory_file.as_ref().map(std::path::absolute).transpose();
        let memory_file = memory_file.map_err(|error| format!("-e: {error}"))?;
        let settings = Settings {
            flush_enabled: !self.no_flush,
            shutdown_enabled: self.shutdown,
            dump_enabled: !self.no_dump,
            watch_enabled: !self.no_watch,
            connections_max: self.connections,
            threads,
            port: listeners.first().map_or(0, |listener| listener.address.port()),
            udp_port: datagrams.first().map_or(0, SocketAddr::port),
            socket: self.socket.as_ref().map(|path| path.display().to_string()),
            socket_mask: self.mask,
            idle_timeout: extended.idle_timeout,
            buffer_timeout: extended.buffers.timeout,
            udp_ratio: extended.udp_ratio,
            get_line_max: extended.get_line_max,
            verbosity: self.verbose,
            backlog: self.backlog,
            listen: self.listen.join(","),
            language,
            has_tls: self.tls,
            tls: extended.tls,
            requests: self.requests,
            crawls: extended.crawls,
            has_lru_fields: extended.has_lru_fields,
            tracks_sizes: extended.tracks_sizes,
            watcher_buffer: extended.watcher_buffer,
            memory_file: memory_file.as_ref().map(|path| path.display().to_string()),
        };
        Ok(Plan {
            settings,
            limits: Limits {
                memory,
                item: self.item,
                evicts: !self.no_evictions,
                delimiter: self.delimiter,
                has_versions: !self.no_cas,
            },
            listeners,
            datagrams,
            socket: self.socket.clone().map(|path| (path, self.mask)),
            auth: match &self.auth {
                Some(path) => Some(Auth::read(path.clone())?),
                None => self.sasl.then(|| Auth::read_sasl(&mut warnings)).transpose()?,
            },
            tls,
            metrics: self.metrics,
            memory_file,
            trace: self.trace()?,
            buffers: extended.buffers.limit,
            budget: if self.requests == 0 { usize::MAX } else { self.requests },
            warnings,
        })
    }

    /// Returns the warnings of options that have no effect here.
    fn warnings(&self) -> Result<Vec<String>, String> {
        let mut warnings = Vec::new();
        if self.slab_factor.is_some_and(|factor| factor.is_nan() || factor <= 1.0) {
            return Err("-f: a number greater than 1 is expected".into());
        }
        if self.slab_min.is_some() || self.slab_factor.is_some() {
            warnings.push("-n and -f have no effect: there are no slab classes".to_string());
        }
        if self.napi_ids.is_some() {
            let why = "connections stay with the worker that accepted them";
            warnings.push(format!("-N has no effect: {why}"));
        }
        Ok(warnings)
    }

    /// Returns the recording of `--trace`.
    fn trace(&self) -> Result<Option<(PathBuf, trace::Selection)>, String> {
        let selection = trace::Selection::new(self.trace_classes.iter().map(String::as_str));
        let selection = selection.map_err(|error| format!("--trace-classes {error}"))?;
        let path = self.trace.as_ref().map(std::path::absolute).transpose();
        let path = path.map_err(|error| format!("--trace: {error}"))?;
        Ok(path.map(|path| (path, selection)))
    }

    /// Returns the arguments of `-o`.
    fn extended(&self, warnings: &mut Vec<String>) -> Result<Extended, String> {
        let buffers = buffers::Options::new(self.memory << 20, self.item);
        Extended::read(&self.extended, buffers, warnings)
    }

    /// Returns the protocol, by `-B` and `-S`.
    fn language(&self) -> Result<Language, String> {
        match (self.protocol.as_deref(), self.sasl) {
            (None | Some("binary"), true) | (Some("binary"), false) => Ok(Language::Binary),
            (None | Some("auto" | "auto-negotiate"), false) => Ok(Language::Any),
            (Some("ascii"), false) => Ok(Language::Text),
            (Some("auto" | "auto-negotiate" | "ascii"), true) => {
                Err("-S: SASL is of the binary protocol alone; use -B binary, or no -S".into())
            }
            (Some(name), _) => Err(format!("-B {name}: this is not auto, binary or ascii")),
        }
    }

    /// Returns the TLS configuration.
    fn tls(
        &self,
        extended: &Extended,
        listeners: &[Listener],
        warnings: &mut Vec<String>,
    ) -> Result<Option<Tls>, String> {
        let files = &extended.tls;
        if !self.tls {
            let is_moot = files.chain == PathBuf::new() && files.key == PathBuf::new();
            let moot = "-o ssl_chain_cert and ssl_key are of TLS; ask for it with -Z";
            return if is_moot { Ok(None) } else { Err(moot.into()) };
        }
        if self.udp != 0 {
            return Err("-U: datagrams are not encrypted; leave it out beside -Z, or start a \
                        second server for them"
                .into());
        }
        if files.asks_clients() && files.clients.is_none() {
            return Err("-o ssl_verify_mode: ssl_ca_cert=FILE says who may sign".into());
        }
        if listeners.iter().any(Listener::demands_certificate) && files.clients.is_none() {
            let why = "without -o ssl_ca_cert=FILE no certificate is right";
            warnings.push(format!("-l mtls: all clients are refused: {why}"));
        }
        Tls::read(files.clone()).map(Some)
    }

    /// Returns the listeners, TCP and UDP.
    fn all_addresses(&self) -> Result<(Vec<Listener>, Vec<SocketAddr>), String> {
        if self.udp != 0 && (self.socket.is_some() || self.auth.is_some() || self.sasl) {
            return Err("-U: datagrams do not tell who sends them; not with -s, -S or -Y".into());
        }
        let datagrams = match self.udp {
            0 => Vec::new(),
            port => self.listeners(port, "-U")?.into_iter().map(|found| found.address).collect(),
        };
        // As in memcached: if only a UDP port is given, TCP has the same port.
        let port = self.port.unwrap_or(if self.udp == 0 { PORT } else { self.udp });
        let listeners = match port {
            _ if self.socket.is_some() => Vec::new(),
            0 => Vec::new(),
            port => self.listeners(port, "-p")?,
        };
        Ok((listeners, datagrams))
    }

    /// Returns the addresses of `-l`, with this port unless they have their own.
    fn listeners(&self, port: i32, option: &str) -> Result<Vec<Listener>, String> {
        let wrong =
            |_| format!("{option} {port}: a port is 1 to 65535, or -1 for any, or 0 for none");
        let port = if port == -1 { 0 } else { u16::try_from(port).map_err(wrong)? };
        if self.listen.is_empty() {
            return Ok(vec![Listener::plain(SocketAddr::from(([127, 0, 0, 1], port)))]);
        }
        let mut all = Vec::new();
        for text in self.listen.iter().flat_map(|text| text.split(';')) {
            all.extend(listeners::read(text, port, self.tls)?);
        }
        all.dedup();
        Ok(all)
    }
}
