//! The command line: memcached's, as far as it means something here.
//!
//! What is known and not built, or not known, is refused with a sentence; what tunes a mechanism
//! that this server has not got is accepted, and said to have no effect.

use crate::auth::Auth;
use crate::buffers;
use crate::config;
use crate::report::{Language, Settings, UDP_RATIO};
use crate::store::{Limits, WORKERS_MAX};
use crate::tls::{Files, Tls, Verify};
use clap::{ArgAction, CommandFactory, Parser};
use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::thread::available_parallelism;

/// The port of memcached.
const PORT: u16 = 11211;

/// A memcached-compatible cache server.
///
/// Started without options it listens on the loopback address, port 11211, and keeps up to 64
/// megabytes of items.
#[derive(Debug, Parser)]
#[command(name = "manycored", version, disable_version_flag = true, args_override_self = true)]
pub struct Args {
    /// TCP port to listen on; 0 is none, -1 lets the system choose
    #[arg(short = 'p', long = "port", value_name = "NUM", default_value_t = i32::from(PORT))]
    #[arg(allow_negative_numbers = true)]
    port: i32,
    /// Addresses to listen on: names or numbers, each with :PORT if it has its own
    #[arg(short = 'l', long = "listen", value_name = "ADDR", value_delimiter = ',')]
    listen: Vec<String>,
    /// Unix socket to listen on; there is no network then
    #[arg(short = 's', long = "unix-socket", value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Access mask of the Unix socket, octal
    #[arg(short = 'a', long = "unix-mask", value_name = "MASK", default_value = "700")]
    #[arg(value_parser = mask)]
    mask: u32,
    /// UDP port to take requests from, on the same addresses; 0 is none, -1 lets the system choose
    #[arg(short = 'U', long = "udp-port", value_name = "NUM", default_value_t = 0)]
    #[arg(allow_negative_numbers = true)]
    udp: i32,
    /// Allow the command "shutdown"
    #[arg(short = 'A', long = "enable-shutdown")]
    shutdown: bool,
    /// Run in the background
    #[arg(short = 'd', long = "daemon")]
    pub daemon: bool,
    /// Take the identity of this user, when started as root
    #[arg(short = 'u', long = "user", value_name = "NAME")]
    pub user: Option<String>,
    /// Memory for items, in megabytes
    #[arg(short = 'm', long = "memory-limit", value_name = "NUM", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    memory: u64,
    /// Refuse new items when memory is full, instead of evicting
    #[arg(short = 'M', long = "disable-evictions")]
    no_evictions: bool,
    /// Connections at once
    #[arg(short = 'c', long = "conn-limit", value_name = "NUM", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,
    /// Keep all memory from being swapped out
    #[arg(short = 'k', long = "lock-memory")]
    pub lock_memory: bool,
    /// Say more; twice: connections, too
    #[arg(short = 'v', long = "verbose", action = ArgAction::Count)]
    verbose: u8,
    /// Write the process id to this file
    #[arg(short = 'P', long = "pidfile", value_name = "FILE")]
    pub pidfile: Option<PathBuf>,
    /// Worker threads [default: one for each core]
    #[arg(short = 't', long = "threads", value_name = "NUM")]
    threads: Option<usize>,
    /// Keys of one connection before others have their turn; 0 is 64, or more if few are ready
    #[arg(short = 'R', long = "max-reqs-per-event", value_name = "NUM", default_value_t = 0)]
    requests: usize,
    /// Connections that may wait to be accepted
    #[arg(short = 'b', long = "listen-backlog", value_name = "NUM", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    backlog: i32,
    /// Size limit of an item, with k or m: 1k to 1024m
    #[arg(short = 'I', long = "max-item-size", value_name = "SIZE", default_value = "1m")]
    #[arg(value_parser = size)]
    item: usize,
    /// What ends a key's prefix: allows "flush_prefix PREFIX" and "mf PREFIX". (Counts by prefix,
    /// memcached's use of it, are not kept.)
    #[arg(short = 'D', long = "prefix-delimiter", value_name = "CHAR", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Refuse "flush_all" and "flush_prefix"
    #[arg(short = 'F', long = "disable-flush-all")]
    no_flush: bool,
    /// The protocol: ascii, which includes meta, binary, or auto, what a client begins with
    #[arg(short = 'B', long = "protocol", value_name = "NAME")]
    protocol: Option<String>,
    /// Ask who clients are by SASL, in the binary protocol alone; needs the users of -Y
    #[arg(short = 'S', long = "enable-sasl")]
    sasl: bool,
    /// No effect: items have no classes of sizes
    #[arg(short = 'n', long = "slab-min-size", value_name = "BYTES")]
    slab_min: Option<u64>,
    /// No effect: items have no classes of sizes
    #[arg(short = 'f', long = "slab-growth-factor", value_name = "NUM")]
    slab_factor: Option<f64>,
    /// TLS on TCP; needs -o ssl_chain_cert=FILE,ssl_key=FILE, which a hang-up (HUP) or the command
    /// 'refresh_certs' reads again
    #[arg(short = 'Z', long = "enable-ssl")]
    tls: bool,
    /// Further options: idle_timeout=SECONDS; read_buf_mem_limit=MB, for the buffers of all
    /// connections, beside -m (0 is no limit; default: a quarter of -m, and at least 32);
    /// buffer_timeout=SECONDS, after which a connection that stands still with something in its
    /// buffers is closed while more than half of that is taken (default: 30; 0 is never);
    /// udp_reply_ratio=NUM, how many times the bytes of its datagram a reply may have (default:
    /// 100; 0 is no limit); with -Z, ssl_chain_cert=FILE, ssl_key=FILE, ssl_ca_cert=FILE,
    /// ssl_verify_mode=NUM (0 asks clients for no certificate, 1 checks one that
    /// is shown, 2 demands one) and ssl_min_version=NUM (2 is TLS 1.2, 3 is 1.3); and names of
    /// memcached's that have no effect here
    #[arg(short = 'o', long = "extended", value_name = "OPTIONS", value_delimiter = ',')]
    extended: Vec<String>,
    /// Serve only clients that name a user and password of this file: lines 'user:password'
    #[arg(short = 'Y', long = "auth-file", value_name = "FILE")]
    auth: Option<PathBuf>,
    /// Address on which Prometheus reads the counts, at /metrics; only a port is on loopback
    #[arg(long = "metrics", value_name = "ADDR", value_parser = metrics)]
    metrics: Option<SocketAddr>,
    /// Read options from this file, one a line: 'threads = 4'; the command line's go before them
    #[arg(long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the version
    #[arg(short = 'V', long = "version", action = ArgAction::Version)]
    version: (),
    #[command(flatten)]
    not_built: NotBuilt,
}

/// Options of memcached's that are refused.
#[derive(Debug, clap::Args)]
struct NotBuilt {
    #[arg(short = 'e', long = "memory-file", value_name = "FILE", hide = true)]
    memory_file: Option<String>,
    #[arg(short = 'L', long = "enable-largepages", hide = true)]
    large_pages: bool,
    #[arg(short = 'C', long = "disable-cas", hide = true)]
    no_cas: bool,
    #[arg(short = 'r', long = "enable-coredumps", hide = true)]
    core_dumps: bool,
}

impl NotBuilt {
    /// The first of them that was given.
    fn first(&self) -> Option<&'static str> {
        let all = [
            (self.memory_file.is_some(), "-e: memory in a file"),
            (self.large_pages, "-L: large pages"),
            (self.no_cas, "-C: items without versions"),
            (self.core_dumps, "-r: the limit of core dumps"),
        ];
        all.iter().find(|(given, _)| *given).map(|(_, what)| *what)
    }
}

/// Names that `-o` accepts, because they only tune what is done otherwise here.
const NO_EFFECT: &[&str] = &[
    "hashpower",
    "hash_algorithm",
    "hashexpand",
    "hot_lru_pct",
    "hot_max_factor",
    "lru_crawler",
    "lru_crawler_sleep",
    "lru_crawler_tocrawl",
    "lru_maintainer",
    "lru_maintainer_thread",
    "lru_segmented",
    "maxconns_fast",
    "modern",
    "slab_automove",
    "slab_automove_freeratio",
    "slab_automove_ratio",
    "slab_automove_window",
    "slab_chunk_max",
    "slab_reassign",
    "tail_repair_time",
    "temporary_ttl",
    "warm_lru_pct",
    "warm_max_factor",
    "watcher_logbuf_size",
    "worker_logbuf_size",
];

fn delimiter(text: &str) -> Result<u8, String> {
    let byte = text.bytes().next().filter(|byte| text.len() == 1 && byte.is_ascii_graphic());
    byte.ok_or_else(|| "one character is wanted".into())
}

fn mask(text: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| "an octal number up to 777 is wanted".into())
}

fn metrics(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let found = text.to_socket_addrs().map_err(|error| error.to_string())?.next();
    found.ok_or_else(|| "an address with a port is wanted".into())
}

fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let size = digits.parse::<usize>().ok().and_then(|size| size.checked_mul(unit));
    let size = size.filter(|size| (1 << 10..=1 << 30).contains(size));
    size.ok_or_else(|| "a size from 1k to 1024m is wanted".into())
}

/// What follows `-o`.
struct Extended {
    idle_timeout: u64,
    buffers: buffers::Options,
    udp_ratio: usize,
    tls: Files,
}

/// What the server is to do.
#[derive(Debug)]
pub struct Plan {
    /// What it tells of itself.
    pub settings: Settings,
    /// The store's limits.
    pub limits: Limits,
    /// Addresses to listen on.
    pub addresses: Vec<SocketAddr>,
    /// Addresses to take datagrams from.
    pub datagrams: Vec<SocketAddr>,
    /// The Unix socket to listen on.
    pub socket: Option<(PathBuf, u32)>,
    /// Who may talk to it.
    pub auth: Option<Auth>,
    /// What TLS begins with, if it is wanted.
    pub tls: Option<Tls>,
    /// Where the counts are read by HTTP.
    pub metrics: Option<SocketAddr>,
    /// Bytes of the buffers of all connections; 0 is no limit.
    pub buffers: usize,
    /// Requests of one connection at a time.
    pub budget: usize,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl Args {
    /// Reads a command line, whose first word is the program's name, and the file that it names.
    ///
    /// # Errors
    /// What is wrong with either, or a request for help.
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
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let own = config::words(&text, &Self::command()).map_err(|error| failed(&error))?;
        let (program, rest) = words.split_at(words.len().min(1));
        let is_moot = |word: &String| !first.listen.is_empty() && word.starts_with("--listen=");
        let own = own.into_iter().filter(|word| !is_moot(word)).map(OsString::from);
        Self::try_parse_from(program.iter().cloned().chain(own).chain(rest.iter().cloned()))
    }

    /// Says what is to be done.
    ///
    /// # Errors
    /// What is wrong with the options, as a sentence.
    pub fn plan(&self) -> Result<Plan, String> {
        if let Some(what) = self.not_built.first() {
            return Err(format!("{what} is not built; manycored would not do what you ask for"));
        }
        let language = self.language()?;
        let mut warnings = Vec::new();
        if self.slab_min.is_some() || self.slab_factor.is_some() {
            warnings.push("-n and -f have no effect: items have no classes of sizes".to_string());
        }
        let Extended { idle_timeout, buffers, udp_ratio, tls } = self.extended(&mut warnings)?;
        let cores = available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or(cores.min(WORKERS_MAX));
        if !(1..=WORKERS_MAX).contains(&threads) {
            return Err(format!("-t: 1 to {WORKERS_MAX} threads are possible"));
        }
        let memory = self.memory << 20;
        if self.item as u64 > memory / 2 {
            return Err("-I: an item may have at most half of the memory (-m)".into());
        }
        let (addresses, datagrams) = self.all_addresses()?;
        let settings = Settings {
            flush_enabled: !self.no_flush,
            shutdown_enabled: self.shutdown,
            connections_max: self.connections,
            threads,
            port: addresses.first().map_or(0, SocketAddr::port),
            udp_port: datagrams.first().map_or(0, SocketAddr::port),
            socket: self.socket.as_ref().map(|path| path.display().to_string()),
            idle_timeout,
            buffer_timeout: buffers.timeout,
            udp_ratio,
            verbosity: self.verbose,
            backlog: self.backlog,
            listen: self.listen.join(","),
            language,
            is_sealed: self.tls,
        };
        Ok(Plan {
            settings,
            limits: Limits {
                memory,
                item: self.item,
                evicts: !self.no_evictions,
                delimiter: self.delimiter,
            },
            addresses,
            datagrams,
            socket: self.socket.clone().map(|path| (path, self.mask)),
            auth: self.auth.clone().map(Auth::read).transpose()?,
            tls: self.tls(tls)?,
            metrics: self.metrics,
            buffers: buffers.limit,
            budget: if self.requests == 0 { usize::MAX } else { self.requests },
            warnings,
        })
    }

    /// What `-B` and `-S` say of the protocol.
    fn language(&self) -> Result<Language, String> {
        if self.sasl && self.auth.is_none() {
            return Err("-S: there are no users; name their file with -Y".into());
        }
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

    /// What TLS begins with.
    fn tls(&self, files: Files) -> Result<Option<Tls>, String> {
        if !self.tls {
            let is_moot = files.chain == PathBuf::new() && files.key == PathBuf::new();
            let moot = "-o ssl_chain_cert and ssl_key are of TLS; ask for it with -Z";
            return if is_moot { Ok(None) } else { Err(moot.into()) };
        }
        if files.verify != Verify::No && files.clients.is_none() {
            return Err("-o ssl_verify_mode: ssl_ca_cert=FILE says who may sign".into());
        }
        Tls::read(files).map(Some)
    }

    /// What follows `-o`.
    fn extended(&self, warnings: &mut Vec<String>) -> Result<Extended, String> {
        let (mut idle_timeout, mut tls) = (0, Files::default());
        let mut udp_ratio = UDP_RATIO;
        let mut buffers = buffers::Options::new(self.memory << 20, self.item);
        for option in &self.extended {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if name == "idle_timeout" {
                let seconds = value.parse();
                idle_timeout = seconds.map_err(|_| "-o idle_timeout: a number is wanted")?;
            } else if name == "udp_reply_ratio" {
                udp_ratio = value.parse().map_err(|_| "-o udp_reply_ratio: a number is wanted")?;
            } else if buffers.take(name, value, warnings)? {
                // It was one of these.
            } else if let Some(name) = name.strip_prefix("ssl_") {
                tls.take(name, value, warnings)?;
            } else if name == "no_maxconns_fast" {
                return Err("-o no_maxconns_fast: connections above the limit are refused".into());
            } else if NO_EFFECT.contains(&name.strip_prefix("no_").unwrap_or(name)) {
                warnings.push(format!("-o {name} has no effect"));
            } else if name.starts_with("ext_") {
                return Err(format!("-o {name}: this is not built"));
            } else {
                return Err(format!("-o {name}: there is no such option"));
            }
        }
        Ok(Extended { idle_timeout, buffers, udp_ratio, tls })
    }

    /// Where to listen, and where to take datagrams from.
    fn all_addresses(&self) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>), String> {
        if self.udp != 0 && (self.socket.is_some() || self.auth.is_some()) {
            return Err("-U: datagrams say nothing of who sends them; not with -s or -Y".into());
        }
        let datagrams = match self.udp {
            0 => Vec::new(),
            port => self.addresses(port, "-U")?,
        };
        let addresses = match self.port {
            _ if self.socket.is_some() => Vec::new(),
            0 if !datagrams.is_empty() => Vec::new(),
            0 if self.listen.is_empty() => return Err("-p 0: there is nothing to listen on".into()),
            port => self.addresses(port, "-p")?,
        };
        Ok((addresses, datagrams))
    }

    /// Those that `-l` names, with this port unless they have their own.
    fn addresses(&self, port: i32, option: &str) -> Result<Vec<SocketAddr>, String> {
        let port = match port {
            -1 => 0,
            port => u16::try_from(port).map_err(|_| format!("{option}: 1 to 65535, or -1"))?,
        };
        if self.listen.is_empty() {
            return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
        }
        let mut all = Vec::new();
        for text in &self.listen {
            all.extend(resolve(text, port).ok_or_else(|| format!("-l {text}: no such address"))?);
        }
        all.dedup();
        Ok(all)
    }
}

/// An address, a name, or one of these with a port.
fn resolve(text: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(ip, port)]);
    }
    let found = if text.contains(':') {
        text.to_socket_addrs().ok()?.collect()
    } else {
        (text, port).to_socket_addrs().ok()?.collect::<Vec<_>>()
    };
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &str) -> Result<Plan, String> {
        let args = Args::try_parse_from(format!("manycored {words}").split_whitespace());
        args.map_err(|error| error.to_string())?.plan()
    }

    #[test]
    fn nothing_said_means_loopback_and_memcacheds_numbers() {
        let plan = plan("").unwrap();
        assert_eq!(plan.addresses, ["127.0.0.1:11211".parse().unwrap()]);
        assert_eq!((plan.limits.memory, plan.limits.item), (64 << 20, 1 << 20));
        assert_eq!((plan.settings.connections_max, plan.limits.evicts), (1024, true));
        assert!(plan.warnings.is_empty() && plan.socket.is_none());
    }

    #[test]
    fn options_come_as_memcacheds_do() {
        let plan = plan(
            "-p 1234 -l 127.0.0.1,::1,127.0.0.2:99 -m 100 -I 2m -c 5 -t 3 -vv -M -F -A \
                         -R 20 -b 7 -U 0 -o idle_timeout=9,modern -n 48 --metrics 9150",
        )
        .unwrap();
        let expected = ["127.0.0.1:1234", "[::1]:1234", "127.0.0.2:99"];
        assert_eq!(plan.addresses, expected.map(|text| text.parse().unwrap()));
        let settings = &plan.settings;
        assert_eq!((plan.limits.memory, plan.limits.item), (100 << 20, 2 << 20));
        assert_eq!((settings.threads, settings.verbosity, settings.idle_timeout), (3, 2, 9));
        assert_eq!(plan.metrics, Some("127.0.0.1:9150".parse().unwrap()));
        assert!(settings.shutdown_enabled && !settings.flush_enabled && !plan.limits.evicts);
        assert_eq!((plan.budget, plan.warnings.len()), (20, 2));
    }

    #[test]
    fn datagrams_come_on_the_same_addresses() {
        let plan = plan("-p 0 -U 99 -l 127.0.0.1,::1").unwrap();
        assert!(plan.addresses.is_empty());
        let expected = ["127.0.0.1:99", "[::1]:99"].map(|text| text.parse().unwrap());
        assert_eq!((plan.datagrams, plan.settings.udp_port), (expected.to_vec(), 99));
    }

    #[test]
    fn protocol_is_that_of_the_client_unless_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "ann:secret\n").unwrap();
        let language = |words: &str| {
            let words = words.replace("USERS", path.to_str().unwrap());
            plan(&words).map(|plan| plan.settings.language)
        };
        for (words, expected) in [
            ("", Language::Any),
            ("-B auto", Language::Any),
            ("-B ascii", Language::Text),
            ("-B binary", Language::Binary),
            ("-B binary -Y USERS", Language::Binary),
            ("-S -Y USERS", Language::Binary),
            ("-Y USERS", Language::Any),
        ] {
            assert_eq!(language(words), Ok(expected), "{words}");
        }
        assert!(language("-S -B auto -Y USERS").is_err());
    }

    #[test]
    fn what_is_not_built_is_refused_with_a_sentence() {
        for words in [
            "-e file",
            "-L",
            "-C",
            "-r",
            "-o ext_path=x",
            "-o ssl_ciphers=x",
            "-o ssl_keyformat=DER",
            "-o no_maxconns_fast",
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains("buil") || error.contains("refused"), "{words}: {error}");
        }
    }

    #[test]
    fn a_files_options_count_unless_the_command_line_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("options");
        fs::write(&path, "threads = 3\nlisten = 127.0.0.1:5,127.0.0.1:6\nm = 99\n").unwrap();
        let read = |more: &[&str]| {
            let words = ["manycored", "--config", path.to_str().unwrap()];
            let words = words.iter().chain(more).map(OsString::from);
            Args::from_command_line(words).map(|args| args.plan().unwrap())
        };
        let plan = read(&[]).unwrap();
        assert_eq!((plan.settings.threads, plan.limits.memory), (3, 99 << 20));
        assert_eq!(plan.addresses.len(), 2);
        let plan = read(&["-m", "77", "-l", "127.0.0.1:7"]).unwrap();
        assert_eq!((plan.settings.threads, plan.limits.memory), (3, 77 << 20));
        assert_eq!(plan.addresses, ["127.0.0.1:7".parse().unwrap()]);
        fs::write(&path, "threads = many\n").unwrap();
        assert!(read(&[]).is_err());
        fs::remove_file(&path).unwrap();
        assert!(read(&[]).is_err());
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for words in [
            "-o nonsense",
            "-I 1023",
            "-I 2048m",
            "-I x",
            "-t 0",
            "-t 257",
            "-m 0",
            "-c 0",
            "-Z",
            "-Z -o ssl_chain_cert=/no/such/file,ssl_key=/no/such/file",
            "-Z -o ssl_verify_mode=2",
            "-o ssl_verify_mode=x",
            "-o ssl_min_version=4",
            "-o ssl_key=x",
            "-p 70000",
            "-U 70000",
            "-U 11211 -s some.socket",
            "-U 11211 -Y /no/such/file",
            "-p 0",
            "-a 8",
            "-D ::",
            "-o idle_timeout=x",
            "-o udp_reply_ratio=x",
            "-o read_buf_mem_limit",
            "-I 40m",
            "-l no.such.name.invalid",
            "--metrics nowhere",
            "-Y /no/such/file",
            "-B nonsense",
            "-S",
            "-S -B ascii -Y /no/such/file",
            "--nonsense",
            "extra",
        ] {
            assert!(plan(words).is_err(), "{words}");
        }
    }
}
