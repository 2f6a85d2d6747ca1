//! A mount that ends with the test, and commands that end in time.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a test with a mount may take, on a busy machine.
const TEST: Duration = Duration::from_secs(150);
/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(60);

/// A mount, and the folder that it is in.
pub struct Mount {
    folder: TempDir,
    pub point: PathBuf,
    pub daemon: u32,
    /// Ends the watchdog when it is dropped.
    _done: Sender<()>,
}

/// The command, with these words.
pub fn command<I: AsRef<OsStr>>(words: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manycore-fs"));
    command.args(words).env_remove("MANYCORE_FS_BRANCH");
    command
}

/// Runs a command to its end, or kills it.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    let words = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{words}: {error}"));
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = thread::spawn(move || read_all(&mut out));
    let err = thread::spawn(move || read_all(&mut err));
    let until = Instant::now() + COMMAND;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{words} takes longer than {COMMAND:?}");
        }
        thread::sleep(Duration::from_millis(2));
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    bytes
}

/// What a command prints, which must succeed.
#[track_caller]
pub fn printed(command: &mut Command) -> String {
    let output = output(command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// What a command says on standard error, which must fail.
#[track_caller]
pub fn refusal(command: &mut Command) -> String {
    let output = output(command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "{command:?} succeeds:\n{out}{err}");
    err
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Says why a test is skipped, past the harness, which shows no output of tests that pass.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Whether the tests can mount here.
fn is_possible() -> bool {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => true,
        Err(error) => {
            skipped(&format!("/dev/fuse can't be opened: {error}"));
            false
        }
    }
}

impl Mount {
    /// An empty file system; nothing if that is not possible here.
    #[track_caller]
    pub fn new() -> Option<Mount> {
        Mount::with(&[])
    }

    /// With these options of `mount`.
    #[track_caller]
    pub fn with(options: &[&str]) -> Option<Mount> {
        if !is_possible() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        // A name that has to be escaped in the kernel's table.
        let point = folder.path().join("mount point");
        fs::create_dir(&point).unwrap();
        let mut mount = command(["mount"]);
        let output = output(mount.args(options).arg(&point));
        if !output.status.success() {
            let words = text(&output.stderr);
            assert!(words.contains("mounting needs root"), "{words}");
            skipped(&words);
            return None;
        }
        let point = point.canonicalize().unwrap();
        let daemon = daemon_of(&point);
        let (done, ended) = channel::<()>();
        thread::spawn(move || {
            if ended.recv_timeout(TEST) == Err(RecvTimeoutError::Timeout) {
                skipped(&format!("not at all: a test takes longer than {TEST:?}; its mount ends"));
                kill(daemon, "KILL");
            }
        });
        Some(Mount { folder, point, daemon, _done: done })
    }

    /// A path in the mount.
    pub fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.point.join(below)
    }

    /// A path in a branch.
    pub fn branch(&self, name: &str, below: impl AsRef<Path>) -> PathBuf {
        self.point.join(".manycore-fs/branches").join(name).join(below)
    }

    /// A path beside the mount.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command in the mount, which finds it by its current directory.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = command(words);
        command.current_dir(&self.point);
        command
    }

    #[track_caller]
    pub fn printed(&self, words: &[&str]) -> String {
        printed(&mut self.command(words))
    }

    #[track_caller]
    pub fn refusal(&self, words: &[&str]) -> String {
        refusal(&mut self.command(words))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The test may have unmounted it. `umount` is there if the command is what fails.
        let _ = command(["unmount", "--lazy"]).arg(&self.point).output();
        let _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        let until = Instant::now() + Duration::from_secs(10);
        while is_alive(self.daemon) {
            if Instant::now() > until {
                kill(self.daemon, "KILL");
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Asks the daemon for its process number.
#[track_caller]
fn daemon_of(point: &Path) -> u32 {
    let mut options = OpenOptions::new();
    let path = point.join(".manycore-fs/control");
    let mut control = options.read(true).write(true).create(true).open(path).expect("the control");
    control.write_all(b"info\n").unwrap();
    let answer = text(&read_all(&mut control));
    let line = answer.lines().find_map(|line| line.strip_prefix("process "));
    line.and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

/// Sends a signal.
pub fn kill(process: u32, signal: &str) {
    let _ = Command::new("kill").arg(format!("-{signal}")).arg(process.to_string()).status();
}

/// Whether a process is there, and not only its status.
pub fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Waits until something holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "{what}: not in 30 seconds");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether something of ours is mounted there, as the kernel says.
pub fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let escaped = point.to_str().unwrap().replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}
