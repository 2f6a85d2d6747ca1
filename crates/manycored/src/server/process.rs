//! The process as a whole: user, resource limits, and files that describe it.

use super::Failure;
use crate::args::Args;
use crate::server_state::Settings;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::unistd::{User, daemon, initgroups, setgid, setuid};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

/// Detaches from the terminal and continues in the background.
pub(super) fn daemonize(keep_output: bool) -> Result<(), Failure> {
    daemon(false, keep_output).map_err(Failure::system("cannot run in the background"))
}

/// Refuses to run as root unless a user, possibly root, is named, as memcached does.
pub(super) fn check_user(user: Option<&str>) -> Result<(), Failure> {
    if geteuid().is_root() && user.is_none_or(str::is_empty) {
        return Err(Failure::Usage(
            "can't run as root without the -u switch; name a user without rights of its own, or \
             say -u root"
                .into(),
        ));
    }
    Ok(())
}

/// Switches to this user, if the process may do so.
pub(super) fn drop_privileges(user: Option<&str>) -> Result<(), Failure> {
    let Some(name) = user.filter(|_| geteuid().is_root()) else { return Ok(()) };
    let found = User::from_name(name).map_err(Failure::system("the list of users"))?;
    let user = found.ok_or_else(|| Failure::NoUser(name.into()))?;
    let text = CString::new(name).map_err(|_| Failure::NoUser(name.into()))?;
    let changed = initgroups(&text, user.gid).and_then(|()| setgid(user.gid));
    let changed = changed.and_then(|()| setuid(user.uid));
    changed.map_err(Failure::system(format!("cannot become the user {name}")))
}

/// Applies `-L` and `-r`.
pub(super) fn prepare(args: &Args) -> Result<(), Failure> {
    if args.large_pages {
        tell_of_huge_pages();
    }
    if args.core_dumps {
        allow_core_files()?;
    }
    Ok(())
}

/// Raises the limit of core files to its maximum, for `-r`.
fn allow_core_files() -> Result<(), Failure> {
    let everything = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Core, everything).is_err() {
        let maximum = getrlimit(Resource::Core).maximum;
        // The result is checked below.
        let _ = setrlimit(Resource::Core, Rlimit { current: maximum, maximum });
    }
    if getrlimit(Resource::Core).current == Some(0) {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(Failure::System("-r: the system allows no core files".into(), error));
    }
    Ok(())
}

/// Logs the reason if `-L` asked for huge pages and the system forbids them. Otherwise items and
/// tables always use them (`madvise`).
fn tell_of_huge_pages() {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match fs::read_to_string(path) {
        Ok(text) if text.contains("[never]") => {
            eprintln!("manycored: -L: the system allows no huge pages; write 'madvise' to {path}");
        }
        Ok(_) => {}
        Err(error) => eprintln!("manycored: -L: huge pages: {path}: {error}"),
    }
}

/// Makes glibc return large values and buffers to the system as soon as they are freed. By default,
/// when glibc sees a large block freed, it raises its threshold and keeps later blocks, so
/// fragmentation grows. The number of large blocks is bounded, because each is a mapping, and the
/// system allows 65,530 of them. Other allocators are not changed.
pub(super) fn return_large_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets two parameters of the allocator, which guards them itself.
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, 128 << 10);
        nix::libc::mallopt(nix::libc::M_MMAP_MAX, 16 << 10);
    }
}

/// Keeps all memory from being swapped out.
pub(super) fn lock_memory() -> Result<(), Failure> {
    let all = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE;
    mlockall(all).map_err(Failure::system("-k: memory cannot be locked"))
}

/// Makes a panic end the process. A worker's panic is a defect, and no server is better than a
/// server without one of its workers.
pub(super) fn die_of_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::exit(70);
    }));
}

/// The file with the process id, removed at the end.
pub(super) struct Pidfile(Option<PathBuf>);

impl Pidfile {
    pub(super) fn write(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self(None)) };
        let text = format!("{}\n", std::process::id());
        fs::write(path, text).map_err(Failure::system(format!("-P {}", path.display())))?;
        Ok(Self(Some(path.into())))
    }
}

impl Drop for Pidfile {
    fn drop(&mut self) {
        // The removal may fail, because the file may belong to another user after a change of user.
        let _ = self.0.as_ref().map(fs::remove_file);
    }
}

/// Tells the service manager that has started the server, if it wants to know: `state` as in
/// `sd_notify(3)`.
pub(super) fn notify(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = address.as_bytes();
    let target = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(Path::new(&address)),
    };
    let told = target.and_then(|to| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to));
    if let Err(error) = told {
        eprintln!("manycored: NOTIFY_SOCKET {}: {error}", address.display());
    }
}

/// Writes the ports to the file that `MEMCACHED_PORT_FILENAME` names, for memcached's tests. Prints
/// the ports at verbosity 1.
pub(super) fn tell_ports(settings: &Settings) {
    if let Some(path) = std::env::var_os("MEMCACHED_PORT_FILENAME") {
        let ports = [("TCP", settings.port), ("UDP", settings.udp_port)];
        let used = ports.into_iter().filter(|(name, port)| *name == "TCP" || *port != 0);
        let text: String = used.map(|(name, port)| format!("{name} INET: {port}\n")).collect();
        let told = write_whole(Path::new(&path), &text);
        told.unwrap_or_else(|error| eprintln!("manycored: {}: {error}", path.display()));
    }
    if settings.verbosity > 0 {
        let socket = settings.socket.as_deref().unwrap_or("");
        let (port, threads) = (settings.port, settings.threads);
        eprintln!("manycored: ready; port {port}, socket {socket:?}, {threads} workers");
    }
}

/// Writes a file under another name and renames it, so that a reader finds the whole text or no
/// file.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut other = path.as_os_str().to_owned();
    other.push(".tmp");
    fs::write(&other, text)?;
    fs::rename(&other, path)
}
