//! Waits for several files at once: `poll`, `select` and `epoll`.
//!
//! The sets of signals that these calls would block during the wait are ignored.

use std::ffi::c_int;

use super::file::{Answer, EAGAIN};
use crate::calls::{clock, signals};
use crate::host;
use crate::simulation::{self, Poll, WaitsFor};

/// The virtual time at which a wait ends by itself, in nanoseconds; `None` if it does not.
pub(super) type Until = Option<u64>;

/// Returns the virtual time so many milliseconds from now; `time` is an `int`. `None` if it is
/// negative.
pub(super) fn after_milliseconds(time: usize) -> Until {
    let time = u64::try_from(time as c_int).ok()?;
    Some(simulation::with(|sim| sim.nanoseconds()).saturating_add(time * 1_000_000))
}

/// Returns the virtual time that lies a `timespec` from now.
///
/// # Safety
/// `time` is null, or the address of a `timespec`.
pub(super) unsafe fn after_time(time: usize) -> Until {
    // SAFETY: the caller promises null or a timespec (# Safety).
    unsafe { clock::after(time as *const [u64; 2]) }
}

/// Returns the virtual time that lies a `timeval` from now.
///
/// # Safety
/// `time` is null, or the address of a `timeval`.
pub(super) unsafe fn after_timeval(time: usize) -> Until {
    // SAFETY: the caller promises null or a timeval (# Safety).
    let [seconds, microseconds] = unsafe { *(time as *const [u64; 2]).as_ref()? };
    let time = [seconds, microseconds * 1000];
    // SAFETY: the timespec is a local variable.
    unsafe { clock::after(&raw const time) }
}

/// Calls `look` until it returns something other than zero; waits in between for what `polls`
/// returns.
fn until_ready(
    call: &'static str,
    is_alone: bool,
    until: Until,
    mut look: impl FnMut() -> isize,
    polls: impl Fn() -> Vec<Poll>,
) -> isize {
    simulation::system_call();
    loop {
        simulation::with(simulation::Simulation::expire_timers);
        let answer = look();
        let now = simulation::with(|sim| sim.nanoseconds());
        if answer != 0 || until.is_some_and(|until| now >= until) {
            simulation::files_changed();
            return answer;
        }
        simulation::wait_outside(call, WaitsFor::Files(polls()), is_alone, until);
        signals::deliver();
    }
}

/// `poll`.
///
/// # Safety
/// `polls` is the address of `count` entries.
pub(super) unsafe fn poll(polls: usize, count: usize, until: Until) -> Answer {
    let look = || {
        // SAFETY: the caller promises that many entries (# Safety). The call does not wait.
        unsafe { host::look(libc::SYS_poll as usize, [polls, count, 0, 0, 0, 0]) }
    };
    let entries = || {
        if count == 0 {
            return Vec::new();
        }
        // SAFETY: the caller promises that many entries (# Safety); the kernel has just read them.
        let entries = unsafe { std::slice::from_raw_parts(polls as *const Poll, count) };
        entries.iter().map(|entry| Poll { found: 0, ..*entry }).collect()
    };
    Some(until_ready("poll", false, until, look, entries))
}

/// The number of words in the largest set that `select` takes.
const WORDS: usize = 16;
const BITS: usize = u64::BITS as usize;

/// `select`, with the number of files and the addresses of its sets.
///
/// # Safety
/// Each set is null, or has a bit for each file.
pub(super) unsafe fn select([count, sets @ ..]: [usize; 4], until: Until) -> Answer {
    let words = count.div_ceil(BITS).min(WORDS);
    let slices = sets.map(|set| {
        // SAFETY: not null, so it has a bit for each file, by the caller's promise (# Safety).
        (set != 0).then(|| unsafe { std::slice::from_raw_parts_mut(set as *mut u64, words) })
    });
    let asked = slices.each_ref().map(|set| {
        let mut copy = [0; WORDS];
        if let Some(set) = set {
            copy[..words].copy_from_slice(set);
        }
        copy
    });
    let mut found = asked;
    let answer = until_ready(
        "select",
        false,
        until,
        || {
            found = asked;
            let time = [0_u64; 2];
            let at =
                |index: usize| if sets[index] == 0 { 0 } else { found[index].as_ptr() as usize };
            let arguments = [count, at(0), at(1), at(2), time.as_ptr() as usize, 0];
            // SAFETY: the sets are local and large enough, and the call does not wait.
            unsafe { host::look(libc::SYS_select as usize, arguments) }
        },
        || polls(&asked, count),
    );
    if answer >= 0 {
        for (set, found) in slices.into_iter().zip(found) {
            if let Some(set) = set {
                set.copy_from_slice(&found[..words]);
            }
        }
    }
    Some(answer)
}

/// Returns the files of three sets: to read, to write, and with an exceptional condition.
fn polls(sets: &[[u64; WORDS]; 3], count: usize) -> Vec<Poll> {
    let events = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    let wanted = |file: usize| {
        let has = |set: &[u64; WORDS]| set[file / BITS] >> (file % BITS) & 1 == 1;
        let events = sets.iter().zip(events).filter(|(set, _)| has(set));
        let events = events.fold(0, |all, (_, event)| all | event);
        (events != 0).then_some(Poll { file: file as c_int, events, found: 0 })
    };
    (0..count.min(WORDS * BITS)).filter_map(wanted).collect()
}

/// `epoll_wait`, with its file, the address for the events, and their greatest number.
///
/// # Safety
/// There is room for that many events.
pub(super) unsafe fn epoll([file, events, count]: [usize; 3], until: Until) -> Answer {
    let look = || {
        // SAFETY: the caller promises room for that many events (# Safety). The call does not wait.
        unsafe { host::look(libc::SYS_epoll_wait as usize, [file, events, count, 0, 0, 0]) }
    };
    let file = file as c_int;
    let own = || vec![Poll { file, events: libc::POLLIN, found: 0 }];
    Some(until_ready("epoll_wait", true, until, look, own)).filter(|&answer| answer != EAGAIN)
}
