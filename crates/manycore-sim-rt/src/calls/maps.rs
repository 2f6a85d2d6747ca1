//! Calls that map files, to learn which addresses are the same memory ([`crate::mappings`]).
//!
//! The kernel makes the calls. They cost nothing here, as page faults cost nothing.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host::{self, as_libc};
use crate::mappings::File;
use crate::simulation;

const PAGE: usize = 4096;
const FAILED: std::ops::Range<isize> = -4095..0;

/// True once the program has mapped a file. Until then no call here touches the simulation. Only
/// virtual threads call the functions here, and none within [`simulation::with`]: the runtime maps
/// memory by [`host::map`](crate::host::map), and files only while the simulation is off.
static HAS_FILES: AtomicBool = AtomicBool::new(false);

fn knows_files() -> bool {
    // ORDER: Relaxed; stored by the kernel thread on which all virtual threads run, and only they
    // need to see it.
    simulation::active() && HAS_FILES.load(Ordering::Relaxed)
}

fn forget(start: usize, bytes: usize) {
    if knows_files() {
        simulation::with(|sim| sim.unmapped(start, whole_pages(bytes)));
    }
}

fn whole_pages(bytes: usize) -> usize {
    bytes.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Returns the file behind a descriptor, if it is one whose pages all mappings share.
fn file_of(descriptor: usize) -> Option<File> {
    // SAFETY: the fields are numbers, for which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let arguments = [descriptor, (&raw mut stat) as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a `stat`, to a local variable.
    let answer = unsafe { host::call(libc::SYS_fstat as usize, arguments) };
    let is_regular = answer == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    is_regular.then_some((stat.st_dev, stat.st_ino))
}

/// `mmap`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn map_call(arguments: [usize; 6]) -> isize {
    let [_, bytes, _, flags, descriptor, offset] = arguments;
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { host::call(host::SYS_MMAP, arguments) };
    if !simulation::active() || FAILED.contains(&answer) {
        return answer;
    }
    let flags = flags as c_int;
    // The mapping may replace others.
    forget(answer as usize, bytes);
    let kind = flags & libc::MAP_TYPE;
    let is_shared = kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE;
    if is_shared
        && flags & libc::MAP_ANONYMOUS == 0
        && let Some(file) = file_of(descriptor)
    {
        // ORDER: Relaxed; see `knows_files`.
        HAS_FILES.store(true, Ordering::Relaxed);
        let (start, bytes) = (answer as usize, whole_pages(bytes));
        simulation::with(|sim| sim.mappings.add(start, bytes, file, offset as u64));
    }
    answer
}

/// `munmap`.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn unmap_call(arguments: [usize; 6]) -> isize {
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { host::call(host::SYS_MUNMAP, arguments) };
    if answer == 0 {
        forget(arguments[0], arguments[1]);
    }
    answer
}

/// `mremap`, which moves a mapping, or makes a second one if the old size is zero.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn remap_call(arguments: [usize; 6]) -> isize {
    let [old, old_bytes, new_bytes, ..] = arguments;
    // SAFETY: the caller promises what the call requires of its arguments (# Safety).
    let answer = unsafe { host::call(host::SYS_MREMAP, arguments) };
    if knows_files() && !FAILED.contains(&answer) {
        simulation::with(|sim| {
            let file = sim.mappings.file_at(old);
            let (start, bytes) = (answer as usize, whole_pages(new_bytes));
            let old_bytes = whole_pages(old_bytes);
            // What stays in its place keeps its lines.
            let kept = if start == old { bytes.min(old_bytes) } else { 0 };
            sim.unmapped(old + kept, old_bytes - kept);
            sim.unmapped(start + kept, bytes - kept);
            if let Some((file, offset)) = file
                && bytes > kept
            {
                sim.mappings.add(start + kept, bytes - kept, file, offset + kept as u64);
            }
        });
    }
    answer
}

/// Maps memory or a file.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap(
    near: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let kinds = [protection, flags, file].map(|number| number as usize);
    let arguments = [near as usize, bytes, kinds[0], kinds[1], kinds[2], offset as usize];
    // SAFETY: the function's own system call, for which the caller promises what it requires.
    as_libc(unsafe { map_call(arguments) }) as *mut c_void
}

/// Maps memory or a file, as [`mmap`] does.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mmap64(
    near: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the same function, with the same promises.
    unsafe { mmap(near, bytes, protection, flags, file, offset) }
}

/// Removes mappings.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the function's own system call, for which the caller promises what it requires.
    as_libc(unsafe { unmap_call([start as usize, bytes, 0, 0, 0, 0]) }) as c_int
}

/// Moves or resizes a mapping. `to` is read only with `MREMAP_FIXED`.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let arguments = [old as usize, old_bytes, new_bytes, flags as usize, to as usize, 0];
    // SAFETY: the function's own system call, for which the caller promises what it requires.
    as_libc(unsafe { remap_call(arguments) }) as *mut c_void
}
