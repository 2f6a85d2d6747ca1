//! Starts servers on loopback, and reads what the system reports about them.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use std::io::{Read, Write};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};

use super::{
    floor::Floor,
    wire::{Protocol, VALUE, Wire},
};

/// How long a server may take until its first reply.
const PATIENCE: Duration = Duration::from_secs(10);
/// Memory for items, as all servers are told: so much for each key with a value of [`VALUE`] bytes.
const MEMORY_PER_KEY: usize = 512;
/// And at least so many megabytes.
const MEGABYTES_MIN: usize = 64;

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Ours.
    Manycored,
    /// memcached, as it is installed.
    Memcached,
    /// Redis, as it is installed.
    Redis,
    /// Canned replies.
    Floor,
    /// One that runs already.
    There(SocketAddr),
}

/// With how much a server is started.
#[derive(Clone, Debug)]
pub(super) struct Size {
    pub(super) threads: usize,
    pub(super) keys: usize,
    /// Bytes of a value.
    pub(super) value: usize,
    /// Keys of a get, which the floor must know.
    pub(super) multiget: usize,
    /// Requests of a connection before others have their turn, if not what the server does itself.
    pub(super) slice: Option<usize>,
    /// Where it runs, if it has cores of its own.
    pub(super) cores: Vec<usize>,
}

enum Body {
    Process(Child),
    Floor(Floor),
    Foreign,
}

/// A server that answers. One that was started here ends when this is dropped.
pub(super) struct Live {
    body: Body,
    pub(super) address: SocketAddr,
    /// From its start to its first reply.
    pub(super) first_reply: Duration,
}

/// Where a program is: beside this one, or where the shell finds programs.
fn program(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).map(|folder| folder.join(name));
    beside.into_iter().chain(others).find(|file| file.is_file())
}

impl Which {
    fn program(self) -> Option<PathBuf> {
        match self {
            Self::Manycored => program("manycored"),
            Self::Memcached => program("memcached"),
            Self::Redis => program("redis-server"),
            Self::Floor | Self::There(_) => None,
        }
    }

    /// Whether requests of a connection before others have their turn can be chosen (`-R`).
    pub(super) fn has_slices(self) -> bool {
        matches!(self, Self::Manycored | Self::Memcached)
    }

    /// Whether it can be started here, or is there.
    pub(super) fn is_here(self) -> bool {
        matches!(self, Self::Floor | Self::There(_)) || self.program().is_some()
    }

    fn command(self, port: u16, size: &Size) -> Option<Command> {
        let megabytes =
            ((size.keys * (MEMORY_PER_KEY + size.value - VALUE)) >> 20).max(MEGABYTES_MIN);
        let mut command = Command::new(self.program()?);
        match self {
            Self::Redis => {
                command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command.args(["--maxmemory", &format!("{megabytes}mb"), "--port"]);
                command.args([&port.to_string(), "--io-threads", &size.threads.to_string()]);
            }
            _ => {
                command.args(["-l", "127.0.0.1", "-U", "0", "-p", &port.to_string()]);
                command.args(["-m", &megabytes.to_string(), "-t", &size.threads.to_string()]);
                if let Some(slice) = size.slice {
                    command.args(["-R", &slice.to_string()]);
                }
            }
        }
        if self != Self::Redis && rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        Some(command)
    }

    /// Starts it, and waits until it answers.
    pub(super) fn start(self, protocol: Protocol, size: &Size) -> io::Result<Live> {
        let started = Instant::now();
        let (body, address) = match self {
            Self::There(address) => (Body::Foreign, address),
            Self::Floor => {
                let floor = Floor::start(size.multiget, size.value, size.cores.first().copied())?;
                let address = floor.address;
                (Body::Floor(floor), address)
            }
            _ => {
                let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
                let command = self.command(address.port(), size);
                let mut command = command.ok_or(io::ErrorKind::NotFound)?;
                (Body::Process(spawn(&mut command, &size.cores)?), address)
            }
        };
        let mut live = Live { body, address, first_reply: Duration::ZERO };
        if self != Self::Floor {
            live.greet(protocol, started)?;
        }
        live.first_reply = started.elapsed();
        Ok(live)
    }
}

fn spawn(command: &mut Command, cores: &[usize]) -> io::Result<Child> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    let is_bound = !cores.is_empty();
    let prepare = move || {
        // No server is left running if this program is killed.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if is_bound {
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec only system calls may be made, and this makes two: rustix calls
    // the system itself, and nothing here allocates.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

impl Live {
    /// Asks until there is an answer.
    fn greet(&mut self, protocol: Protocol, started: Instant) -> io::Result<()> {
        let (question, answer) = Wire::greeting(protocol);
        loop {
            let asked = TcpStream::connect(self.address).and_then(|mut stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(question)?;
                let mut got = vec![0; answer.len()];
                stream.read_exact(&mut got).map(|()| got)
            });
            match asked {
                Ok(got) if got == answer => return Ok(()),
                Ok(got) => {
                    let text = String::from_utf8_lossy(&got).into_owned();
                    let error = format!("{} does not speak {protocol}: {text:?}", self.address);
                    return Err(io::Error::other(error));
                }
                Err(error) if started.elapsed() > PATIENCE => return Err(error),
                Err(error) if matches!(self.body, Body::Foreign) => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_micros(100)),
            }
            if let Body::Process(child) = &mut self.body
                && let Some(status) = child.try_wait()?
            {
                return Err(io::Error::other(format!("it ended at once: {status}")));
            }
        }
    }

    /// Processor time that it has used, in nanoseconds, if the system tells.
    pub(super) fn processor_time(&self) -> Option<u64> {
        match &self.body {
            Body::Foreign => None,
            Body::Floor(floor) => {
                time_of(&PathBuf::from(format!("/proc/self/task/{}", floor.thread)))
            }
            Body::Process(child) => {
                let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
                tasks.flatten().map(|task| time_of(&task.path())).sum()
            }
        }
    }

    /// Resident bytes, if it is a process of its own.
    pub(super) fn resident(&self) -> Option<u64> {
        let Body::Process(child) = &self.body else { return None };
        let statm = fs::read_to_string(format!("/proc/{}/statm", child.id())).ok()?;
        let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }
}

/// Processor time of a thread: in nanoseconds where the scheduler tells, else by the hundredth of a
/// second.
fn time_of(task: &Path) -> Option<u64> {
    let exact = fs::read_to_string(task.join("schedstat")).ok();
    let exact = exact.and_then(|text| text.split(' ').next()?.parse().ok());
    exact.filter(|nanos| *nanos > 0).or_else(|| {
        let stat = fs::read_to_string(task.join("stat")).ok()?;
        // The name, in brackets, may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks: u64 = fields.get(11..13)?.iter().filter_map(|f| f.parse::<u64>().ok()).sum();
        Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
    })
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Body::Process(child) = &mut self.body {
            // It holds nothing that would have to be kept.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
