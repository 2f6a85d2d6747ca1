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

use super::replace::{real, replace};
use super::waits::{self, ALL, ETIMEDOUT, exchange};
use super::{SEQ_CST, clock, locks};

/// Bytes from a condition variable to the count of waiters.
const WAITERS: usize = 8;

/// Instructions of glibc 2.41's functions without contention, counted by callgrind.
mod instructions {
    pub(super) const WAIT: u32 = 60;
    pub(super) const SIGNAL: u32 = 20;
}

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
    exchange(condition, instructions::WAIT);
    // SAFETY: the caller promises a live condition variable of libc, as `pthread_cond_wait`
    // requires. It is not destroyed while `waiters` counts this thread (conditions.C3).
    let [count, _, waiters] = unsafe { words(condition) };
    let seen = count.load(SEQ_CST);
    waiters.fetch_add(1, SEQ_CST);
    // SAFETY: the caller promises a mutex of libc, as `pthread_cond_wait` requires.
    let mut answer = unsafe { locks::unlock(mutex) };
    let mut is_in_time = true;
    if answer == 0 {
        is_in_time = waits::sleep(condition, until, ALL, || count.load(SEQ_CST) == seen);
    }
    exchange(condition, 0);
    if waiters.fetch_sub(1, SEQ_CST) == 1 {
        // Only a thread that destroys the variable waits there (conditions.C3).
        waits::wake(condition.wrapping_byte_add(WAITERS), 1, ALL);
    }
    if answer == 0 {
        // SAFETY: the mutex was unlocked above.
        answer = unsafe { locks::lock(mutex, None) };
    }
    if answer == 0 && !is_in_time { ETIMEDOUT } else { answer }
}

/// Counts a signal, and wakes up to `count` waiters.
///
/// # Safety
/// `condition` is one of libc's, and is alive.
unsafe fn signal(condition: *mut c_void, count: u32) -> c_int {
    waits::read(condition, instructions::SIGNAL);
    // SAFETY: the caller promises a live condition variable of libc (# Safety).
    let [signals, _, waiters] = unsafe { words(condition) };
    if waiters.load(SEQ_CST) > 0 {
        exchange(condition, 0);
        signals.fetch_add(1, SEQ_CST);
        waits::wake(condition, count, ALL);
    }
    0
}

/// Waits until no thread can look at the variable any more.
///
/// # Safety
/// `condition` is one of libc's, and is alive.
unsafe fn wait_for_the_last(condition: *mut c_void) {
    // SAFETY: the caller promises a live condition variable, which this call keeps so.
    let waiters = unsafe { &words(condition)[2] };
    // conditions.C3: the variable is destroyed only when no waiter is counted.
    while waiters.load(SEQ_CST) > 0 {
        let last = condition.wrapping_byte_add(WAITERS);
        waits::sleep(last, None, ALL, || waiters.load(SEQ_CST) > 0);
    }
}

replace! {
    /// Initializes a condition variable.
    pthread_cond_init(condition: *mut c_void, attributes: *mut c_void) {
        let real = real!(pthread_cond_init(*mut c_void, *mut c_void));
        let answer = real(condition, attributes);
        if answer == 0 && !attributes.is_null() {
            let mut clock: c_int = 0;
            let ask = real!(pthread_condattr_getclock(*mut c_void, *mut c_int));
            ask(attributes, &raw mut clock);
            // SAFETY: conditions.C2 - libc has just initialized the condition variable, for which
            // the caller gave the room.
            unsafe { words(condition)[1].store(clock as u32, SEQ_CST) };
        }
        answer
    }
    /// Destroys a condition variable, after the last waiter has read it.
    pthread_cond_destroy(condition: *mut c_void) {
        // SAFETY: the caller promises a live condition variable of libc, as libc's function
        // requires.
        unsafe { wait_for_the_last(condition) };
        real!(pthread_cond_destroy(*mut c_void))(condition)
    }
    /// Waits for a signal.
    pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) {
        // SAFETY: the caller promises a condition variable, and a mutex that it has locked, as
        // libc's function and `wait` require.
        unsafe { wait(condition, mutex, None) }
    }
    /// Waits for a signal, or until a time of the variable's clock.
    pthread_cond_timedwait(
        condition: *mut c_void, mutex: *mut c_void, time: *const [u64; 2]
    ) {
        // SAFETY: conditions.C2 - the caller promises a live condition variable of libc.
        let is_day = unsafe { words(condition)[1].load(SEQ_CST) == 0 };
        // SAFETY: the caller promises a condition variable, a mutex that it has locked, and a
        // timespec, as libc's function requires.
        unsafe { wait(condition, mutex, clock::moment(time, is_day)) }
    }
    /// Waits for a signal, or until a time of the clock `which`.
    pthread_cond_clockwait(
        condition: *mut c_void, mutex: *mut c_void, which: c_int, time: *const [u64; 2]
    ) {
        // SAFETY: the caller promises a condition variable, a mutex that it has locked, and a
        // timespec, as libc's function requires.
        unsafe { wait(condition, mutex, clock::moment(time, which == 0)) }
    }
    /// Wakes one waiter.
    pthread_cond_signal(condition: *mut c_void) {
        // SAFETY: the caller promises a live condition variable of libc, as libc's function
        // requires.
        unsafe { signal(condition, 1) }
    }
    /// Wakes all waiters.
    pthread_cond_broadcast(condition: *mut c_void) {
        // SAFETY: the caller promises a live condition variable of libc, as libc's function
        // requires.
        unsafe { signal(condition, u32::MAX) }
    }
}
