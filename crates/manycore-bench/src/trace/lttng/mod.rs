//! LTTng-UST: tracepoints in C, compiled when they are first needed.
//!
//! If the command were linked with the library, the library would start its threads in each run.
//! The tracepoints are therefore a shared library, which is loaded when this row is measured. A
//! call goes through a pointer, as in any program whose tracepoints lie in a library: about 1 ns of
//! each figure.
//!
//! The session is in snapshot mode, which overwrites the oldest sub-buffers, as the library's
//! recorder does.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    fs,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::{Kept, TraceHandle, TraceImpl, rivals::fields};

/// How long the daemon and the registration may take.
const PATIENCE: Duration = Duration::from_secs(10);

const SOURCES: [(&str, &str); 2] =
    [("probe.c", include_str!("probe.c")), ("events.h", include_str!("events.h"))];

/// The system has one daemon for a user.
static ALONE: Mutex<()> = Mutex::new(());

type Record = unsafe extern "C" fn(u64, u64);

/// The library's functions.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    event: Record,
    span: Record,
    off: Record,
    is_on: unsafe extern "C" fn() -> c_int,
}

/// Runs a program; its output, or what it says of its failure.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", said.lines().next().unwrap_or("failed")))
}

/// A folder that goes with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self, String> {
        let name = format!("manycore-bench-lttng-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether this row can be measured here, or what is missing. Nothing is loaded.
pub(super) fn check() -> Result<(), String> {
    if manycore_sim::is_simulated() {
        return Err("its daemon is not on the virtual cores".to_owned());
    }
    for program in ["lttng", "lttng-sessiond", "babeltrace2"] {
        run(Command::new(program).arg("--version"))?;
    }
    compile().map(drop)
}

/// A folder with the library.
fn compile() -> Result<Folder, String> {
    let folder = Folder::new("probe")?;
    for (name, text) in SOURCES {
        fs::write(folder.0.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    let mut cc = Command::new("cc");
    cc.current_dir(&folder.0).args(["-O2", "-shared", "-fPIC", "-I.", "-o", "probe.so"]);
    run(cc.args(["probe.c", "-llttng-ust", "-ldl"]))?;
    Ok(folder)
}

/// The library, loaded once. It finds the daemon that runs, and later ones.
fn probe() -> Result<Probe, String> {
    static LOADED: OnceLock<Result<Probe, String>> = OnceLock::new();
    LOADED
        .get_or_init(|| {
            let folder = compile()?;
            let path = folder.0.join("probe.so");
            let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
            // SAFETY: the path ends with a zero byte. The library's initializers are LTTng's, which
            // may run in any thread.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            if handle.is_null() {
                return Err("the tracepoints can't be loaded".to_owned());
            }
            let find = |name: &CStr| {
                // SAFETY: `dlopen` has just returned the handle, which is never closed.
                let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
                if found.is_null() { Err(format!("no {name:?}")) } else { Ok(found) }
            };
            let record = |name| {
                // SAFETY: `probe.c` defines the three names asked for below with these arguments.
                find(name).map(|found| unsafe { std::mem::transmute::<*mut c_void, Record>(found) })
            };
            let is_on = find(c"manycore_is_on")?;
            Ok(Probe {
                event: record(c"manycore_event")?,
                span: record(c"manycore_span")?,
                off: record(c"manycore_off")?,
                // SAFETY: `probe.c` defines it without arguments, and it returns an `int`.
                is_on: unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(is_on)
                },
            })
        })
        .clone()
}

/// A daemon with a session that records.
struct Session {
    daemon: Child,
    home: Folder,
    _alone: MutexGuard<'static, ()>,
}

impl Session {
    fn start() -> Result<Self, String> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let home = Folder::new("home")?;
        let mut command = Command::new("lttng-sessiond");
        command.arg("--no-kernel").env("LTTNG_HOME", &home.0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec it makes one system call, and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let daemon = command.spawn().map_err(|error| format!("lttng-sessiond: {error}"))?;
        let mut own = Self { daemon, home, _alone: alone };
        own.wait("the daemon does not answer", |own| own.lttng(&["list"]).is_ok())?;
        own.lttng(&["create", "bench", "--snapshot"])?;
        let sizes = ["--subbuf-size=256k", "--num-subbuf=4"];
        own.lttng(&["enable-channel", "--userspace", sizes[0], sizes[1], "--session=bench", "c"])?;
        let events = "manycore:sample,manycore:part_begin,manycore:part_end";
        own.lttng(&["enable-event", "--userspace", events, "--session=bench", "--channel=c"])?;
        own.lttng(&["start", "bench"])?;
        Ok(own)
    }

    fn wait(&mut self, otherwise: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let since = Instant::now();
        while !is_so(self) {
            if since.elapsed() > PATIENCE || matches!(self.daemon.try_wait(), Ok(Some(_))) {
                return Err(otherwise.to_owned());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn lttng(&self, args: &[&str]) -> Result<String, String> {
        run(Command::new("lttng").env("LTTNG_HOME", &self.home.0).args(args))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.lttng(&["destroy", "bench"]);
        if let Some(pid) = i32::try_from(self.daemon.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.daemon.wait();
    }
}

/// LTTng-UST.
pub(super) struct Lttng {
    probe: Probe,
    session: Session,
}

impl Lttng {
    fn start() -> Result<Self, String> {
        let mut session = Session::start()?;
        // Behind the daemon's start, which its initializers wait for.
        let probe = probe()?;
        // SAFETY: a function of the loaded library, which only reads whether tracepoints are on.
        session.wait("the process is not registered", |_| unsafe { (probe.is_on)() != 0 })?;
        Ok(Self { probe, session })
    }
}

impl TraceImpl for Lttng {
    type Handle<'a> = Probe;

    fn new(_keeps: bool) -> Self {
        Self::start().unwrap_or_else(|error| panic!("LTTng: {error}"))
    }

    fn handle(&self) -> Probe {
        self.probe
    }

    fn kept(self) -> Kept {
        let home = &self.session.home.0;
        let recorded = self.session.lttng(&["snapshot", "record", "--session=bench"]);
        let text = recorded.and_then(|_| run(Command::new("babeltrace2").arg(home)));
        let text = text.unwrap_or_else(|error| panic!("LTTng: {error}"));
        let mut kept = Kept::default();
        text.lines().filter_map(|line| fields(line, [" a = ", " b = "])).for_each(|n| kept.add(n));
        kept
    }
}

impl TraceHandle for Probe {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        // SAFETY: a tracepoint of the loaded library; it takes any numbers, in any thread.
        unsafe { (self.event)(a, b) }
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        // SAFETY: two tracepoints of the loaded library, which take any numbers, in any thread.
        unsafe { (self.span)(a, b) }
    }

    #[inline(always)]
    fn off(&mut self, a: u64, b: u64) {
        // SAFETY: a tracepoint that no session has enabled; it takes any numbers, in any thread.
        unsafe { (self.off)(a, b) }
    }
}
