//! The server: sockets, workers, signals and shutdown.
//!
//! ```text
//! main thread:  start, housekeeping (sweeps, metrics), signals, shutdown
//! worker 0..n:  epoll --ready--> connections, one slice of keys each, then epoll again
//!               accept --> inbox of the worker with the fewest connections
//! ```
//!
//! Laws:
//! - server.V1 A connection belongs to one worker for its whole life: the worker that had the
//!   fewest connections when it was accepted. Apart from the items, workers share nothing that is
//!   written at each request.
//! - server.V2 A worker never blocks on one client. Reads and writes return at once. While a
//!   client's replies cannot be sent, its next requests are not read (backpressure). No client
//!   waits for all requests of another client: in each round, every ready connection has a slice of
//!   keys, and the worker fetches new events between rounds.
//! - server.V3 Memory is bounded for each client: on the way in by a request's line or value, and
//!   on the way out by `session`'s bound. The memory of all clients together is bounded, too:
//!   [`crate::buffers`].
//! - server.V4 At shutdown every request that was received whole is answered.

mod accept;
mod connection;
mod connection_events;
mod descriptors;
mod encrypted;
mod handover;
mod inherit;
mod listen;
mod memory_file;
mod process;
mod scrape;
mod spares;
mod udp;
mod worker;

use crate::args::{Args, Plan};
use crate::auth::Auth;
use crate::buffers::Budget;
use crate::server_state::ServerState;
use crate::store::Store;
use crate::tls::Tls;
use crate::trace;
use descriptors::Spare;
use handover::Inbox;
use listen::Queues;
use manycore_trace::Recording;
use memory_file::MemoryFile;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use worker::Worker;

/// How long the shutdown waits for incomplete requests, and for slow readers.
const GRACE: Duration = Duration::from_secs(5);
/// How long the shutdown waits for the log to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The period of the sweep for dead items, while there may be some.
const TICK: Duration = Duration::from_millis(900);
/// The period of the sweep of the whole table for expired items.
const SWEEP: Duration = Duration::from_secs(60);

/// The reason why the server did not start, or ended.
#[derive(Debug)]
pub enum Failure {
    /// The options cannot be followed.
    Usage(String),
    /// The user does not exist.
    NoUser(String),
    /// A system call failed.
    System(String, io::Error),
}

impl Failure {
    /// Returns the exit code, as in memcached.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 64,
            Self::NoUser(_) => 67,
            Self::System(..) => 71,
        }
    }

    fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |error| Self::System(what.into(), error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => write!(f, "{what}"),
            Self::NoUser(name) => write!(f, "can't find the user {name} to switch to"),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

/// The state that all workers share.
struct Shared {
    store: Store,
    server: ServerState,
    /// The longest slice of keys of one connection (`-R`).
    slice_max: usize,
    /// The inbox of each worker, in their order.
    inboxes: Vec<Inbox>,
    draining: AtomicBool,
    spare: Spare,
}

/// Serves until a signal ends it.
///
/// # Errors
/// The reason why it could not start.
pub fn run(args: &Args, mut plan: Plan) -> Result<(), Failure> {
    process::check_user(args.user.as_deref())?;
    plan.warnings.iter().for_each(|words| eprintln!("manycored: {words}"));
    process::prepare(args)?;
    process::return_large_memory();
    let shares = descriptors::prepare(&mut plan)?;
    let mut queues = listen::queues(&plan, shares)?;
    let (mut datagrams, udp_port) = udp::sockets(&plan)?;
    plan.settings.udp_port = udp_port;
    let metrics = plan.metrics.map(scrape::listen).transpose()?;
    if let Some(port) = queues.port {
        plan.settings.port = port;
    }
    let has_network = !(plan.listeners.is_empty() && plan.datagrams.is_empty());
    if has_network && plan.settings.listen.is_empty() && !inherit::is_given() {
        eprintln!(
            "manycored: listening on 127.0.0.1 only, where memcached listens on all addresses; for \
             that, -l 0.0.0.0 (and -l 127.0.0.1 to listen there without this line)"
        );
    }
    if args.daemon {
        process::daemonize(plan.settings.verbosity > 0)?;
    }
    let pidfile = process::Pidfile::write(args.pidfile.as_deref())?;
    process::drop_privileges(args.user.as_deref())?;
    if args.lock_memory {
        process::lock_memory()?;
    }
    let saved = |path: &PathBuf| MemoryFile::claim(path, plan.limits.memory);
    let saved = plan.memory_file.as_ref().map(saved).transpose()?;
    // Only now: after the change of user, and in the process that stays after a `daemonize`.
    let recording = record(&plan)?;
    // Blocked before the first thread is started, so that no other thread is ever interrupted.
    let signals = signals()?;
    let store = begin(saved.as_ref(), &plan)?;
    if let Err(failure) = queues.listen(plan.settings.backlog) {
        // Another program has taken the port meanwhile: write the items back to the file.
        saved.map_or(Ok(()), |file| file.save(&store))?;
        return Err(failure);
    }
    let threads = plan.settings.threads;
    let shared = Shared {
        store,
        server: ServerState {
            settings: plan.settings,
            auth: plan.auth,
            tls: plan.tls,
            buffers: Budget::new(plan.buffers),
            ..ServerState::default()
        },
        slice_max: plan.budget,
        inboxes: (0..threads)
            .map(|_| Inbox::new())
            .collect::<Result<_, _>>()
            .map_err(Failure::system("an eventfd"))?,
        draining: AtomicBool::new(false),
        spare: Spare::new()?,
    };
    queues.list(&shared.server.clients);
    for socket in datagrams.first().into_iter().flatten() {
        udp::list(socket, &shared.server.clients);
    }
    shared.store.set_crawls(shared.server.settings.crawls);
    let traced = plan.trace.as_ref().map_or(0, |(_, selection)| trace::wanted(selection));
    shared.store.events().set_traced(traced);
    process::die_of_panics();
    let served = serve(&shared, &signals, &mut queues, &mut datagrams, metrics.as_ref());
    queues.remove_socket();
    let served = match (served, saved) {
        (Ok(End::Graceful), Some(file)) => file.save(&shared.store),
        (served, _) => served.map(drop),
    };
    shared.server.log.flush(LAST_WORDS);
    drop(recording);
    drop(pidfile);
    served
}

/// Starts the recording, if `--trace` asks for it.
fn record(plan: &Plan) -> Result<Option<Recording>, Failure> {
    let start = |(path, selection): &(PathBuf, trace::Selection)| {
        let what = format!("--trace {}", path.display());
        trace::start(path, selection).map_err(Failure::system(what))
    };
    plan.trace.as_ref().map(start).transpose()
}

/// Makes the store that the server starts with. While items are read, a signal ends the server at
/// once; only the signal for a graceful shutdown stays pending.
fn begin(saved: Option<&MemoryFile>, plan: &Plan) -> Result<Store, Failure> {
    let threads = plan.settings.threads;
    let Some(file) = saved else { return Ok(Store::new(plan.limits.clone(), threads)) };
    let (ending, failed) = (at_once(), || Failure::system("signals"));
    ending.thread_unblock().map_err(failed())?;
    let store = file.store(&plan.limits, threads);
    ending.thread_block().map_err(failed())?;
    Ok(store)
}

/// Serves until a signal arrives and the requests received by then are answered.
fn serve(
    shared: &Shared,
    signals: &SignalFd,
    queues: &mut Queues,
    datagrams: &mut [Vec<OwnedFd>],
    metrics: Option<&TcpListener>,
) -> Result<End, Failure> {
    thread::scope(|scope| {
        let started = (0..shared.inboxes.len()).try_for_each(|number| {
            let datagrams = std::mem::take(&mut datagrams[number]);
            let worker = Worker::prepare(number, shared, queues.take(number), datagrams);
            let worker = worker.map_err(Failure::system("a worker's epoll"))?;
            let named = thread::Builder::new().name(format!("worker{number}"));
            let spawned = named.spawn_scoped(scope, worker);
            spawned.map(drop).map_err(Failure::system("a thread"))
        });
        let served = started.and_then(|()| {
            process::tell_ports(&shared.server.settings);
            process::notify(&format!("READY=1\nMAINPID={}\n", std::process::id()));
            keep_house(shared, signals, metrics)
        });
        process::notify("STOPPING=1\n");
        drain(shared);
        // A second signal does not wait for slow clients, nor for the items to be saved.
        let _ = at_once().thread_unblock();
        served
    })
}

/// The kind of shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Plain,
    /// The items are saved, if there is a file for them.
    Graceful,
}

/// Returns the signals that end the server. A second signal ends it at once.
fn at_once() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}

/// Returns all signals that the server handles: those of `at_once`, USR1 for a graceful shutdown,
/// and HUP, which reloads users and certificates.
fn all() -> SigSet {
    at_once().iter().chain([Signal::SIGUSR1, Signal::SIGHUP]).collect()
}

/// Blocks all handled signals, and opens a descriptor to read them.
fn signals() -> Result<SignalFd, Failure> {
    let mask = all();
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let blocked = mask.thread_block().and_then(|()| SignalFd::with_flags(&mask, flags));
    blocked.map_err(Failure::system("signals"))
}

/// Removes dead items periodically, and serves the metrics, until a signal arrives.
fn keep_house(
    shared: &Shared,
    signals: &SignalFd,
    metrics: Option<&TcpListener>,
) -> Result<End, Failure> {
    let (mut swept, mut ticked, mut accepts) = (Instant::now(), Instant::now(), true);
    loop {
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut polled = vec![PollFd::new(signals, PollFlags::IN)];
        let watched = metrics.filter(|_| accepts);
        polled.extend(watched.map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut polled, Some(&second)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::system("poll")(error)),
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            if signal.ssi_signo != Signal::SIGHUP as u32 {
                let is_graceful =
                    signal.ssi_signo == Signal::SIGUSR1 as u32 || shared.server.is_end_graceful();
                return Ok(if is_graceful { End::Graceful } else { End::Plain });
            }
            let users = shared.server.auth.as_ref().map_or(Ok(()), Auth::reload);
            let certificate = shared.server.tls.as_ref().map_or(Ok(()), Tls::reload);
            for error in [users, certificate].into_iter().filter_map(Result::err) {
                shared.server.log.message(&error);
            }
        }
        // After a failed accept, the next try is in a second.
        accepts = metrics.is_none_or(|listener| scrape::serve(listener, shared));
        shared.store.tick();
        if ticked.elapsed() < TICK {
            continue;
        }
        ticked = Instant::now();
        let is_time = swept.elapsed() >= SWEEP && shared.store.crawls();
        let all = is_time || shared.store.is_crawl_wanted();
        if all {
            swept = Instant::now();
        }
        shared.store.sweep(all);
    }
}

/// Tells the workers to drain.
fn drain(shared: &Shared) {
    // ORDER: Relaxed; the eventfd below publishes it.
    shared.draining.store(true, Ordering::Relaxed);
    shared.inboxes.iter().for_each(Inbox::call);
}
