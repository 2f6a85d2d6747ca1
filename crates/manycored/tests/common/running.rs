//! The program itself, started and asked.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take that should take no time.
pub const LONG: Duration = Duration::from_secs(20);

/// A running server.
pub struct Running {
    pub child: Child,
    pub port: u16,
    pub udp_port: u16,
    _folder: Option<TempDir>,
}

pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manycored"));
    command.stderr(Stdio::null()).stdin(Stdio::null());
    // As root it needs a user; others need none.
    command.args(["-u", "root"]);
    command
}

/// Waits until this gives something.
#[track_caller]
pub fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < LONG, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

impl Running {
    /// Starts one on a port of the system's choice.
    pub fn start(options: &str) -> Self {
        Self::spawn(program(), options)
    }

    /// The same by a command of one's own.
    pub fn spawn(mut command: Command, options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("port");
        let child = command
            .args(["-p", "-1"])
            .args(options.split_whitespace())
            .env("MEMCACHED_PORT_FILENAME", &told)
            .spawn()
            .unwrap();
        let text = wait_for("the port", || fs::read_to_string(&told).ok());
        let port = |name: &str| {
            let text = text.lines().find_map(|line| line.strip_prefix(name));
            text.map_or(0, |port| port.parse().unwrap())
        };
        let (port, udp_port) = (port("TCP INET: "), port("UDP INET: "));
        Self { child, port, udp_port, _folder: Some(folder) }
    }

    /// One that was started elsewhere.
    pub fn of(child: Child, port: u16) -> Self {
        Self { child, port, udp_port: 0, _folder: None }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// All replies to this, up to the end.
    pub fn talk(&self, sent: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        // A server that closes with something unread resets; what came before counts.
        let _ = stream.read_to_end(&mut reply);
        reply
    }

    pub fn stat(&self, name: &str) -> u64 {
        let stats = String::from_utf8(self.talk(b"stats\r\n")).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name} in {stats}")).parse().unwrap()
    }

    /// Resident memory, in bytes, but for pages of files.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// The exit code, soon.
    pub fn end(&mut self) -> Option<i32> {
        wait_for("the end", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
pub fn ask(stream: &mut (impl Read + Write), sent: &[u8], reply: &[u8]) {
    stream.write_all(sent).unwrap();
    let mut got = vec![0; reply.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(reply));
}
