//! libc's condition variables, built on virtual futexes.
//!
//! Law conditions.C1: while a simulation runs, the first word of a condition variable counts its
//! signals. All waiters and signallers go through this module, so libc's own records in the other
//! words show no waiter. A waiter reads the count while it holds the mutex, and then releases the
//! mutex. It sleeps only if the count has not changed, so no signal in between is lost. POSIX
//! allows spurious wake-ups, so a wrong guess costs only a check.
//!
//! Law conditions.C2: the second word holds the clock that the variable's attributes name. It is
//! zero, the time of day, in a variable that no call has initialized.
//!
//! Law conditions.C3: the third word counts the waiters that may still read the first word.
//! `pthread_cond_destroy` returns when it is zero. POSIX lets a program destroy the variable and
//! free its memory as soon as all waiters are woken.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU32;

use super::{SEQ_CST, clock, futex, locks};
use crate::interpose::Next;
use crate::simulation;

const ALL_WAITERS: u32 = u32::MAX;
const ETIMEDOUT: c_int = 110;

type One = extern "C" fn(*mut c_void) -> c_int;
type Two = extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Three = extern "C" fn(*mut c_void, *mut c_void, *const [u64; 2]) -> c_int;
type Four = extern "C" fn(*mut c_void, *mut c_void, c_int, *const [u64; 2]) -> c_int;

/// Returns the three words that the laws speak of.
///
/// # Safety
/// `condition` is one of libc's, and is alive.
unsafe fn words<'a>(condition: *mut c_void) -> &'a [AtomicU32; 3] {
    // SAFETY: the caller promises a live condition variable of libc (# Safety). It is aligned for
    // its words and longer than three of them; all access to these is atomic (conditions.C1).
    unsafe { &*condition.cast() }
}

/// Waits for a signal, or until a virtual time.
///
/// # Safety
/// As for libc's `pthread_cond_wait`.
unsafe fn wait(condition: *mut c_void, mutex: *mut c_void, until: Option<u64>) -> c_int {
    static UNLOCK: Next = Next::new(c"pthread_mutex_unlock");
    // SAFETY: the caller promises a live condition variable of libc, as `pthread_cond_wait`
    // requires. It is not destroyed while `waiters` counts this thread (conditions.C3).
    let [count, _, waiters] = unsafe { words(condition) };
    let seen = count.load(SEQ_CST);
    waiters.fetch_add(1, SEQ_CST);
    // SAFETY: this is the function's type.
    let unlock: One = unsafe { std::mem::transmute(UNLOCK.get()) };
    let answer = unlock(mutex);
    if answer != 0 {
        waiters.fetch_sub(1, SEQ_CST);
        return answer;
    }
    // SAFETY: the word belongs to a condition variable that is not destroyed while this thread is
    // counted (conditions.C3).
    let woken = unsafe { futex::wait(condition as usize, seen, until, u32::MAX) };
    waiters.fetch_sub(1, SEQ_CST);
    // SAFETY: the caller promises a mutex of libc, as `pthread_cond_wait` requires; it was unlocked
    // above.
    let answer = unsafe { locks::pthread_mutex_lock(mutex) };
    match (answer, woken) {
        (0, Err(ETIMEDOUT)) => ETIMEDOUT,
        _ => answer,
    }
}

/// Counts a signal, and wakes up to `count` waiters.
///
/// # Safety
/// `condition` is one of libc's, and is alive.
unsafe fn signal(condition: *mut c_void, count: u32) -> c_int {
    // SAFETY: the caller promises a live condition variable of libc (# Safety).
    unsafe { words(condition)[0].fetch_add(1, SEQ_CST) };
    simulation::wake(condition as usize, count, u32::MAX);
    0
}

/// Initializes a condition variable.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_init(
    condition: *mut c_void,
    attributes: *mut c_void,
) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_init");
    static CLOCK: Next = Next::new(c"pthread_condattr_getclock");
    // SAFETY: this is the function's type.
    let real: Two = unsafe { std::mem::transmute(REAL.get()) };
    let answer = real(condition, attributes);
    if answer == 0 && simulation::active() && !attributes.is_null() {
        let mut clock: c_int = 0;
        // SAFETY: this is the function's type.
        let ask: Two = unsafe { std::mem::transmute(CLOCK.get()) };
        ask(attributes, (&raw mut clock).cast());
        // SAFETY: libc has just initialized the condition variable, for which the caller gave the
        // room.
        unsafe { words(condition)[1].store(clock as u32, SEQ_CST) };
    }
    answer
}

/// Destroys a condition variable, after the last waiter has read it.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_destroy(condition: *mut c_void) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_destroy");
    if simulation::active() {
        // SAFETY: the caller promises a live condition variable of libc, as libc's function
        // requires.
        let waiters = unsafe { &words(condition)[2] };
        let what = "for the last waiters of a condition variable that it destroys";
        // conditions.C3: the variable is destroyed only when no waiter is counted.
        locks::look_until(what, None, || (waiters.load(SEQ_CST) == 0).then_some(()));
    }
    // SAFETY: this is the function's type.
    let real: One = unsafe { std::mem::transmute(REAL.get()) };
    real(condition)
}

/// Waits for a signal.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_wait");
    if simulation::active() {
        // SAFETY: the caller promises a condition variable, and a mutex that it has locked, as
        // libc's function and `wait` require.
        return unsafe { wait(condition, mutex, None) };
    }
    // SAFETY: this is the function's type.
    let real: Two = unsafe { std::mem::transmute(REAL.get()) };
    real(condition, mutex)
}

/// Waits for a signal, or until a time of the variable's clock.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    time: *const [u64; 2],
) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_timedwait");
    if simulation::active() {
        // SAFETY: conditions.C2 - the caller promises a live condition variable of libc.
        let is_day = unsafe { words(condition)[1].load(SEQ_CST) == 0 };
        // SAFETY: the caller promises a condition variable, a mutex that it has locked, and a
        // timespec, as libc's function requires.
        return unsafe { wait(condition, mutex, clock::moment(time, is_day)) };
    }
    // SAFETY: this is the function's type.
    let real: Three = unsafe { std::mem::transmute(REAL.get()) };
    real(condition, mutex, time)
}

/// Waits for a signal, or until a time of the clock `which`.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_clockwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    which: c_int,
    time: *const [u64; 2],
) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_clockwait");
    if simulation::active() {
        // SAFETY: the caller promises a condition variable, a mutex that it has locked, and a
        // timespec, as libc's function requires.
        return unsafe { wait(condition, mutex, clock::moment(time, which == 0)) };
    }
    // SAFETY: this is the function's type.
    let real: Four = unsafe { std::mem::transmute(REAL.get()) };
    real(condition, mutex, which, time)
}

/// Wakes one waiter.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_signal(condition: *mut c_void) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_signal");
    if simulation::active() {
        // SAFETY: the caller promises a live condition variable of libc, as libc's function
        // requires.
        return unsafe { signal(condition, 1) };
    }
    // SAFETY: this is the function's type.
    let real: One = unsafe { std::mem::transmute(REAL.get()) };
    real(condition)
}

/// Wakes all waiters.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_cond_broadcast(condition: *mut c_void) -> c_int {
    static REAL: Next = Next::new(c"pthread_cond_broadcast");
    if simulation::active() {
        // SAFETY: the caller promises a live condition variable of libc, as libc's function
        // requires.
        return unsafe { signal(condition, ALL_WAITERS) };
    }
    // SAFETY: this is the function's type.
    let real: One = unsafe { std::mem::transmute(REAL.get()) };
    real(condition)
}
