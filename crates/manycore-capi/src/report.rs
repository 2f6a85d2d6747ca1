//! `mc_backlog`: what waits to be freed, and the threads that hold it up.

use crate::handle::Domain;
use crate::versioned::{self, Versioned};
use libc::c_int;
use manycore::section;
use std::ffi::c_char;
use std::time::Duration;

/// Bytes of a thread's name in a report, including the zero at the end.
pub const STALLED_NAME: usize = 32;

/// `struct mc_backlog`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Backlog {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Objects that wait.
    pub nodes: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// Threads that hold something up. May be more than there was room for.
    pub stalled: u64,
}

/// `struct mc_stalled`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Stalled {
    /// The thread's number in the operating system, or zero.
    pub os_id: u64,
    /// The time for which it has been seen in its section, at least.
    pub at_least_ns: u64,
    /// The thread's slot.
    pub slot: u64,
    /// The thread's name, if Rust knows it.
    pub name: [c_char; STALLED_NAME],
}

// SAFETY: `repr(C)`, the size first; then numbers.
unsafe impl Versioned for Backlog {}

impl From<&section::Backlog> for Backlog {
    fn from(backlog: &section::Backlog) -> Self {
        Self {
            size: size_of::<Self>(),
            nodes: backlog.nodes as u64,
            bytes: backlog.bytes as u64,
            stalled: backlog.stalled.len() as u64,
        }
    }
}

impl From<&section::Stalled> for Stalled {
    fn from(stalled: &section::Stalled) -> Self {
        let mut name = [0; STALLED_NAME];
        let text = stalled.name.as_deref().unwrap_or_default().bytes();
        for (to, from) in name.iter_mut().zip(text.take(STALLED_NAME - 1)) {
            *to = from as c_char;
        }
        Self {
            os_id: stalled.os_id.unwrap_or(0),
            at_least_ns: u64::try_from(stalled.at_least.as_nanos()).unwrap_or(u64::MAX),
            slot: stalled.slot as u64,
            name,
        }
    }
}

/// Reports what waits to be freed, and the threads that have held it up for `stalled_for_ns` or
/// longer.
///
/// # Safety
/// The domain is not freed; `out` has as many bytes as its first field says; `stalled` has room for
/// `room` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_backlog(
    domain: *const Domain,
    stalled_for_ns: u64,
    out: *mut Backlog,
    stalled: *mut Stalled,
    room: usize,
) -> c_int {
    // SAFETY: the caller promises that a domain that is not null has not been freed.
    let Some(domain) = (unsafe { domain.as_ref() }) else { return -libc::EINVAL };
    if stalled.is_null() && room != 0 {
        return -libc::EINVAL;
    }
    let found = domain.sections.backlog(Duration::from_nanos(stalled_for_ns));
    // SAFETY: the caller promises as many bytes as the first field says.
    if !unsafe { versioned::write(out, Backlog::from(&found)) } {
        return -libc::EINVAL;
    }
    for (at, found) in found.stalled.iter().take(room).enumerate() {
        // SAFETY: the index is below `room`, and the caller promises room for that many.
        unsafe { stalled.add(at).write(Stalled::from(found)) };
    }
    0
}
