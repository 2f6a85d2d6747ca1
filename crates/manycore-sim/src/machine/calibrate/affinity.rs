//! The processors of this process, their place in the machine, and pinning a thread to one of them.

use std::{fs, path::Path};

/// One processor that the process may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cpu {
    pub(super) number: usize,
    pub(super) package: u32,
    /// The first processor that shares its core, and the first that shares its last-level cache.
    pub(super) core: usize,
    pub(super) complex: usize,
}

/// Words of a processor mask.
#[cfg(target_os = "linux")]
const WORDS: usize = 64;

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn sched_setaffinity(thread: i32, bytes: usize, mask: *const u64) -> i32;
    fn sched_getaffinity(thread: i32, bytes: usize, mask: *mut u64) -> i32;
}

/// Pins the calling thread to a processor. Returns true if the system allowed it.
#[cfg(target_os = "linux")]
pub(super) fn pin(cpu: usize) -> bool {
    let mut mask = [0_u64; WORDS];
    mask[cpu / 64] |= 1 << (cpu % 64);
    // SAFETY: the mask is a local array, and the call gets its true size.
    unsafe { sched_setaffinity(0, size_of_val(&mask), mask.as_ptr()) == 0 }
}

/// Returns the processors that the calling thread may use; none if the system does not say.
#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    let mut mask = [0_u64; WORDS];
    // SAFETY: the mask is a local array, and the call gets its true size.
    if unsafe { sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    (0..WORDS * 64).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1).collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn pin(_: usize) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

/// The processors of the process, by number.
pub(super) fn cpus() -> Vec<Cpu> {
    let described = |number: usize| {
        let folder = format!("/sys/devices/system/cpu/cpu{number}");
        let read = |name: &str| fs::read_to_string(Path::new(&folder).join(name)).ok();
        let first = |name: &str| {
            let list = read(name)?;
            list.split([',', '-']).next()?.trim().parse().ok()
        };
        let package = read("topology/physical_package_id");
        Cpu {
            number,
            package: package.and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            core: first("topology/thread_siblings_list").unwrap_or(number),
            complex: first("cache/index3/shared_cpu_list").unwrap_or(0),
        }
    };
    allowed().into_iter().map(described).collect()
}

/// Returns the size of a processor's cache of level 1 to 3 in KiB, as the system reports it.
pub(super) fn cache_kib(cpu: usize, level: u32) -> Option<u32> {
    (0..8).find_map(|index| {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let read = |name: &str| fs::read_to_string(Path::new(&folder).join(name)).ok();
        let found = read("level")?.trim().parse::<u32>().ok()?;
        if found != level || read("type")?.trim() == "Instruction" {
            return None;
        }
        read("size")?.trim().strip_suffix('K')?.parse().ok()
    })
}
