//! libc's own locks and semaphores, which instrumented C code and a few crates use.
//!
//! libc's locks are not instrumented, and waiting in one would stop the whole simulation. A virtual
//! thread that finds a lock taken therefore sleeps, and then tries again. It sleeps for a virtual
//! microsecond first, and later for an eighth of the time that it has waited. Rust's standard
//! library does not use these locks.
//!
//! Law locks.L1: no wait here lasts forever. After [`GIVE_UP_NS`] of virtual time the run ends,
//! and reports what the thread waited for, most likely in a deadlock. The run also ends at a call
//! that waits inside libc and has no form that tells whether it would wait.

use std::ffi::{c_int, c_void};

use super::clock;
use crate::host::set_errno;
use crate::interpose::Next;
use crate::{diagnostics, simulation};

const EBUSY: c_int = 16;
const EAGAIN: c_int = 11;
const ETIMEDOUT: c_int = 110;
/// The shortest sleep between two attempts.
const LOOK_NS: u64 = 1000;
/// After this much virtual time, no thread is expected to release the lock any more.
const GIVE_UP_NS: u64 = 100_000_000_000;

type Function = extern "C" fn(*mut c_void) -> c_int;
type Timed = extern "C" fn(*mut c_void, *const [u64; 2]) -> c_int;
type Clocked = extern "C" fn(*mut c_void, c_int, *const [u64; 2]) -> c_int;

/// Calls `look` until it has an answer, or until a virtual time; `what` is for the message.
pub(super) fn look_until<T>(
    what: &str,
    until: Option<u64>,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let began = simulation::with(|sim| sim.nanoseconds());
    loop {
        if let Some(answer) = look() {
            return Some(answer);
        }
        let now = simulation::with(|sim| sim.nanoseconds());
        if until.is_some_and(|until| now >= until) {
            return None;
        }
        let waited = now - began;
        // locks.L1: a wait without an end ends the run.
        if waited >= GIVE_UP_NS {
            diagnostics::fatal(format_args!(
                "a thread has waited for {} virtual seconds {what}: a deadlock, it seems",
                waited / 1_000_000_000
            ));
        }
        let next = now + LOOK_NS.max(waited / 8);
        simulation::sleep_until(until.map_or(next, |until| next.min(until)));
    }
}

/// Returns the result of `try_it`, as soon as it is not that the lock is taken.
fn taken(what: &str, until: Option<u64>, lock: *mut c_void, try_it: &Next) -> c_int {
    // SAFETY: this is the type of every function that a caller passes as `try_it`.
    let try_lock: Function = unsafe { std::mem::transmute(try_it.get()) };
    let look = || Some(try_lock(lock)).filter(|&answer| answer != EBUSY);
    look_until(what, until, look).unwrap_or(ETIMEDOUT)
}

/// Replaces the functions that take a lock, by means of the function that tries to take it.
macro_rules! locks {
    ($(
        $what:literal: $($lock:ident)|+, $($timed:ident)?, $($clocked:ident)?, by $try:literal;
    )+) => {$(
        $(
            /// Takes the lock.
            ///
            /// # Safety
            /// As for libc's function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $lock(lock: *mut c_void) -> c_int {
                static TRY: Next = Next::new($try);
                static REAL: Next = Next::of(concat!(stringify!($lock), "\0"));
                if simulation::active() {
                    return taken($what, None, lock, &TRY);
                }
                // SAFETY: this is the function's type.
                let real: Function = unsafe { std::mem::transmute(REAL.get()) };
                real(lock)
            }
        )+
        $(
            /// Takes the lock, or stops waiting at a time of day.
            ///
            /// # Safety
            /// As for libc's function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $timed(lock: *mut c_void, time: *const [u64; 2]) -> c_int {
                static TRY: Next = Next::new($try);
                static REAL: Next = Next::of(concat!(stringify!($timed), "\0"));
                if simulation::active() {
                    // SAFETY: the caller promises a timespec, as libc's function requires.
                    return taken($what, unsafe { clock::moment(time, true) }, lock, &TRY);
                }
                // SAFETY: this is the function's type.
                let real: Timed = unsafe { std::mem::transmute(REAL.get()) };
                real(lock, time)
            }
        )?
        $(
            /// Takes the lock, or stops waiting at a time of the clock `clock`.
            ///
            /// # Safety
            /// As for libc's function.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $clocked(
                lock: *mut c_void,
                clock: c_int,
                time: *const [u64; 2],
            ) -> c_int {
                static TRY: Next = Next::new($try);
                static REAL: Next = Next::of(concat!(stringify!($clocked), "\0"));
                if simulation::active() {
                    // SAFETY: the caller promises a timespec, as libc's function requires.
                    let until = unsafe { clock::moment(time, clock == 0) };
                    return taken($what, until, lock, &TRY);
                }
                // SAFETY: this is the function's type.
                let real: Clocked = unsafe { std::mem::transmute(REAL.get()) };
                real(lock, clock, time)
            }
        )?
    )+};
}

locks! {
    "for a mutex of libc":
        pthread_mutex_lock, pthread_mutex_timedlock, pthread_mutex_clocklock,
        by c"pthread_mutex_trylock";
    "to read under a read-write lock of libc":
        pthread_rwlock_rdlock, pthread_rwlock_timedrdlock, pthread_rwlock_clockrdlock,
        by c"pthread_rwlock_tryrdlock";
    "to write under a read-write lock of libc":
        pthread_rwlock_wrlock, pthread_rwlock_timedwrlock, pthread_rwlock_clockwrlock,
        by c"pthread_rwlock_trywrlock";
    "for a spin lock of libc": pthread_spin_lock, , , by c"pthread_spin_trylock";
}

/// Waits for a semaphore, until a virtual time; returns what libc's function returns.
fn semaphore(semaphore: *mut c_void, until: Option<u64>) -> c_int {
    static TRY: Next = Next::new(c"sem_trywait");
    // SAFETY: this is the function's type.
    let try_wait: Function = unsafe { std::mem::transmute(TRY.get()) };
    let look = || match try_wait(semaphore) {
        -1 if crate::host::errno() == EAGAIN => None,
        answer => Some(answer),
    };
    look_until("for a semaphore of libc", until, look).unwrap_or_else(|| {
        set_errno(ETIMEDOUT);
        -1
    })
}

/// Waits for a semaphore.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sem_wait(which: *mut c_void) -> c_int {
    static REAL: Next = Next::new(c"sem_wait");
    if simulation::active() {
        return semaphore(which, None);
    }
    // SAFETY: this is the function's type.
    let real: Function = unsafe { std::mem::transmute(REAL.get()) };
    real(which)
}

/// Waits for a semaphore, or until a time of day.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sem_timedwait(which: *mut c_void, time: *const [u64; 2]) -> c_int {
    static REAL: Next = Next::new(c"sem_timedwait");
    if simulation::active() {
        // SAFETY: the caller promises a timespec, as libc's `sem_timedwait` requires.
        return semaphore(which, unsafe { clock::moment(time, true) });
    }
    // SAFETY: this is the function's type.
    let real: Timed = unsafe { std::mem::transmute(REAL.get()) };
    real(which, time)
}

/// Replaces functions that wait inside libc, and have no form that does not wait.
macro_rules! not_simulated {
    ($($name:ident: $what:literal;)+) => {$(
        /// Ends a simulation, with the reason.
        ///
        /// # Safety
        /// As for libc's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            a: *mut c_void,
            b: *mut c_void,
            c: *mut c_void,
        ) -> c_int {
            static REAL: Next = Next::of(concat!(stringify!($name), "\0"));
            if simulation::active() {
                diagnostics::fatal(format_args!(
                    "the program calls {}: {} is not simulated, and would wait for ever",
                    stringify!($name),
                    $what
                ));
            }
            type Three = extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int;
            // SAFETY: the function has at most three arguments, each a pointer.
            let real: Three = unsafe { std::mem::transmute(REAL.get()) };
            real(a, b, c)
        }
    )+};
}

not_simulated! {
    pthread_barrier_wait: "libc's barrier";
    mtx_lock: "C11's mutex";
    mtx_timedlock: "C11's mutex";
    cnd_wait: "C11's condition variable";
    cnd_timedwait: "C11's condition variable";
}
