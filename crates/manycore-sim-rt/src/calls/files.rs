//! Shows a program the virtual machine where Linux shows the real one.
//!
//! Programs count cores, and read their names and loads, in files of `/proc` and `/sys`. A path of
//! such a file leads elsewhere in a simulation:
//!
//! - `/proc/cpuinfo`, and all in `/sys/devices/system/cpu` and `node`: into the folder that the
//!   command filled for the run ([`MAP`]).
//! - `/proc/stat`: to a file that is written when it is opened.
//! - `/proc/self/cgroup`: nowhere. Rust's standard library finds the quota of a process through
//!   this file, and bounds the number of cores by it. That quota belongs to the real machine.
//!
//! Only the functions and system calls below are redirected, and only for whole paths. `stat`,
//! `access`, and paths that begin at an open folder of the real machine, show the real machine.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt::Write;
use std::sync::OnceLock;

use super::clock;
use crate::interpose::Next;
use crate::{host, simulation};

/// The variable with the folder that shows the virtual machine. The library of this project reads
/// it as well.
pub(crate) const MAP: &CStr = c"MANYCORE_TOPOLOGY";

const NOWHERE: isize = libc::ENOENT as isize;

/// The folder; empty if there is none.
static FOLDER: OnceLock<Vec<u8>> = OnceLock::new();

/// Sets the folder that shows the virtual machine.
pub(crate) fn set_map(folder: &CStr) {
    FOLDER.get_or_init(|| folder.to_bytes().to_vec());
}

/// What a path of the program leads to.
#[derive(Debug, PartialEq)]
enum Place {
    /// What the program named.
    Same,
    Other(CString),
    Nowhere,
    /// The processors' times, as of now.
    Times,
}

/// Returns what a path leads to, if `folder` shows the virtual machine.
fn place(path: &CStr, folder: &[u8]) -> Place {
    const SYSTEM: &[u8] = b"/sys/devices/system";
    let path = path.to_bytes();
    let within =
        |rest: &[u8]| Place::Other(CString::new([folder, rest].concat()).unwrap_or_default());
    match path {
        b"/proc/self/cgroup" => Place::Nowhere,
        b"/proc/stat" => Place::Times,
        b"/proc/cpuinfo" if !folder.is_empty() => within(b"/cpuinfo"),
        _ if !folder.is_empty() => match path.strip_prefix(SYSTEM) {
            Some(rest) if is_in(rest, b"/cpu") || is_in(rest, b"/node") => within(rest),
            _ => Place::Same,
        },
        _ => Place::Same,
    }
}

/// Returns true if a path is a folder, or in it.
fn is_in(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first().is_none_or(|next| *next == b'/'))
}

/// Calls `open` with the path that the program's path leads to. `None` if it leads nowhere.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn opened<R>(path: *const c_char, open: impl FnOnce(*const c_char) -> R) -> Option<R> {
    if !simulation::active() || path.is_null() {
        return Some(open(path));
    }
    let folder = FOLDER.get().map_or(&[][..], |folder| folder);
    // SAFETY: not null, so a C string, by the caller's promise (# Safety).
    match place(unsafe { CStr::from_ptr(path) }, folder) {
        Place::Same => Some(open(path)),
        Place::Other(other) => Some(open(other.as_ptr())),
        Place::Nowhere => None,
        Place::Times => {
            let Some((file, other)) = in_memory(times().as_bytes()) else {
                return Some(open(path));
            };
            let result = open(other.as_ptr());
            // SAFETY: the file was made for this call, which has opened it anew.
            unsafe { host::call(libc::SYS_close as usize, [file, 0, 0, 0, 0, 0]) };
            Some(result)
        }
    }
}

/// Makes a file in memory. Returns its descriptor, and a path to open it anew.
fn in_memory(content: &[u8]) -> Option<(usize, CString)> {
    let name = c"stat".as_ptr() as usize;
    let arguments = [name, libc::MFD_CLOEXEC as usize, 0, 0, 0, 0];
    // SAFETY: the call reads a C string.
    let file = unsafe { host::call(libc::SYS_memfd_create as usize, arguments) };
    let file = usize::try_from(file).ok()?;
    let arguments = [file, content.as_ptr() as usize, content.len(), 0, 0, 0];
    // SAFETY: the kernel reads the bytes of a slice. A file in memory takes them all.
    unsafe { host::call(libc::SYS_write as usize, arguments) };
    Some((file, CString::new(format!("/proc/self/fd/{file}")).ok()?))
}

/// Returns the text of `/proc/stat`: for each core, the time that it computed and was idle, in
/// hundredths of a second.
fn times() -> String {
    let (now, idle, switches, live) = simulation::with(|sim| {
        let idle: Vec<u64> =
            sim.engine.idle().iter().map(|cycles| sim.engine.machine().nanos(*cycles)).collect();
        let live = sim.threads.iter().filter(|thread| !thread.ended).count();
        (sim.nanoseconds(), idle, sim.engine.totals().switches, live)
    });
    stat_text(now, &idle, switches, live)
}

fn stat_text(now: u64, idle: &[u64], switches: u64, live: usize) -> String {
    const TICK_NS: u64 = 10_000_000;
    let mut text = String::new();
    let line = |text: &mut String, name: &str, busy: u64, idle: u64| {
        let (busy, idle) = (busy / TICK_NS, idle / TICK_NS);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "cpu{name} {busy} 0 0 {idle} 0 0 0 0 0 0");
    };
    let busy = |idle: u64| now.saturating_sub(idle);
    line(&mut text, " ", idle.iter().map(|idle| busy(*idle)).sum(), idle.iter().sum());
    for (core, idle) in idle.iter().enumerate() {
        line(&mut text, &core.to_string(), busy(*idle), *idle);
    }
    let _ = write!(
        text,
        "intr 0\nctxt {switches}\nbtime {}\nprocesses 1\nprocs_running {live}\nprocs_blocked 0\n\
         softirq 0 0 0 0 0 0 0 0 0 0 0\n",
        clock::booted()
    );
    text
}

/// `open`, `openat` or `openat2` of a simulated program; `path` is the number of the argument that
/// is the path.
///
/// # Safety
/// As for the system call of that number.
pub(crate) unsafe fn open_call(number: usize, mut arguments: [usize; 6], path: usize) -> isize {
    let given = arguments[path] as *const c_char;
    // SAFETY: the caller promises a C string, and what else the call requires (# Safety). The
    // kernel gets a C string in its place.
    unsafe {
        opened(given, |other| {
            arguments[path] = other as usize;
            host::call(number, arguments)
        })
    }
    .unwrap_or(-NOWHERE)
}

/// Defines functions that open a path: with the arguments before and after it, and what they
/// return if it leads nowhere. They may unwind, because libc ends cancelled threads so.
macro_rules! openers {
    ($(
        $name:ident($($before:ident: $first:ty,)* [path] $(, $after:ident: $last:ty)*)
            -> $answer:ty, or $failed:expr;
    )*) => {$(
        /// Opens a path; in a simulation some paths show the virtual machine.
        ///
        /// # Safety
        /// As for libc's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C-unwind" fn $name(
            $($before: $first,)* path: *const c_char $(, $after: $last)*
        ) -> $answer {
            static REAL: Next = Next::of(concat!(stringify!($name), "\0"));
            type Real =
                unsafe extern "C-unwind" fn($($first,)* *const c_char $(, $last)*) -> $answer;
            // SAFETY: this is the type of libc's function. Only the mode may be missing, and libc
            // does not read it then. The caller promises a C string.
            unsafe {
                let real: Real = std::mem::transmute(REAL.get());
                opened(path, |path| real($($before,)* path $(, $after)*))
            }
            .unwrap_or_else(|| {
                host::set_errno(NOWHERE as c_int);
                $failed
            })
        }
    )*};
}

openers! {
    open([path], flags: c_int, mode: c_uint) -> c_int, or -1;
    open64([path], flags: c_int, mode: c_uint) -> c_int, or -1;
    openat(folder: c_int, [path], flags: c_int, mode: c_uint) -> c_int, or -1;
    openat64(folder: c_int, [path], flags: c_int, mode: c_uint) -> c_int, or -1;
    fopen([path], mode: *const c_char) -> *mut c_void, or std::ptr::null_mut();
    fopen64([path], mode: *const c_char) -> *mut c_void, or std::ptr::null_mut();
    opendir([path]) -> *mut c_void, or std::ptr::null_mut();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_machine_lead_to_the_virtual_one_and_no_others() {
        let of = |path: &CStr| place(path, b"/map");
        let other = |path: &CStr| Place::Other(path.to_owned());
        assert_eq!(of(c"/proc/cpuinfo"), other(c"/map/cpuinfo"));
        assert_eq!(of(c"/sys/devices/system/cpu"), other(c"/map/cpu"));
        assert_eq!(of(c"/sys/devices/system/cpu/online"), other(c"/map/cpu/online"));
        assert_eq!(
            of(c"/sys/devices/system/node/node1/cpulist"),
            other(c"/map/node/node1/cpulist")
        );
        assert_eq!(of(c"/proc/stat"), Place::Times);
        assert_eq!(of(c"/proc/self/cgroup"), Place::Nowhere);
        for path in
            [c"/sys/devices/system/cpufreq", c"/proc/cpuinfo2", c"/proc/self/stat", c"cpuinfo"]
        {
            assert_eq!(of(path), Place::Same);
        }
        assert_eq!(place(c"/proc/cpuinfo", b""), Place::Same, "no map");
    }

    #[test]
    fn times_of_cores_are_in_hundredths_of_a_second() {
        let text = stat_text(3_000_000_000, &[1_000_000_000, 3_000_000_000], 7, 2);
        let lines: Vec<&str> = text.lines().take(3).collect();
        let expected = [
            "cpu  200 0 0 400 0 0 0 0 0 0",
            "cpu0 200 0 0 100 0 0 0 0 0 0",
            "cpu1 0 0 0 300 0 0 0 0 0 0",
        ];
        assert_eq!(lines, expected);
        assert!(text.contains("ctxt 7\n") && text.ends_with('\n'), "{text}");
    }
}
