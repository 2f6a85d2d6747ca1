//! C11's threads, mutexes and condition variables. In glibc they are those of POSIX under other
//! names, with other answers.

use std::ffi::{c_int, c_void};

use super::replace::replace;
use super::waits::{EBUSY, ETIMEDOUT};
use super::{clock, conditions, cores, locks};
use crate::thread::Entry;
use crate::threads;

const ENOMEM: c_int = 12;
const EAGAIN: c_int = 11;

/// Returns C11's answer for POSIX's: success, busy, error, no memory, timed out.
fn answer(error: c_int) -> c_int {
    match error {
        0 => 0,
        EBUSY => 1,
        ENOMEM | EAGAIN => 3,
        ETIMEDOUT => 4,
        _ => 2,
    }
}

type Object = *mut c_void;
type Time = *const [u64; 2];
type Start = extern "C" fn(*mut c_void) -> c_int;

/// Gives functions of POSIX their names of C11.
macro_rules! names {
    ($($name:ident($($argument:ident: $type:ty),*) = $module:ident::$function:ident;)+) => {
        replace! {$(
            /// The function of C11.
            $name($($argument: $type),*) {
                // SAFETY: glibc's objects of C11 are those of POSIX, and the caller's promises for
                // the one function are those for the other.
                answer(unsafe { $module::$function($($argument),*) })
            }
        )+}
    };
}

names! {
    mtx_lock(mutex: Object) = locks::pthread_mutex_lock;
    mtx_timedlock(mutex: Object, time: Time) = locks::pthread_mutex_timedlock;
    mtx_trylock(mutex: Object) = locks::pthread_mutex_trylock;
    mtx_unlock(mutex: Object) = locks::pthread_mutex_unlock;
    cnd_wait(condition: Object, mutex: Object) = conditions::pthread_cond_wait;
    cnd_timedwait(condition: Object, mutex: Object, time: Time) =
        conditions::pthread_cond_timedwait;
    cnd_signal(condition: Object) = conditions::pthread_cond_signal;
    cnd_broadcast(condition: Object) = conditions::pthread_cond_broadcast;
    cnd_destroy(condition: Object) = conditions::pthread_cond_destroy;
    thrd_detach(handle: usize) = threads::pthread_detach;
    thrd_yield() = cores::sched_yield;
}

replace! {
    /// Creates a thread.
    thrd_create(handle: *mut usize, start: Start, argument: Object) {
        // SAFETY: an `int` is returned in the low half of the register of a pointer, so the
        // function may be called as one that returns a pointer.
        let entry: Entry = unsafe { std::mem::transmute::<Start, Entry>(start) };
        // SAFETY: C11's handle is one of POSIX; the caller promises room for it.
        answer(unsafe { threads::pthread_create(handle, std::ptr::null(), entry, argument) })
    }
    /// Waits for a thread.
    thrd_join(handle: usize, result: *mut c_int) {
        let mut ended_with = std::ptr::null_mut();
        // SAFETY: C11's handle is one of POSIX; the word is this function's.
        let error = unsafe { threads::pthread_join(handle, &raw mut ended_with) };
        if error == 0 && !result.is_null() {
            // SAFETY: not null, and the caller promises room for an `int`.
            unsafe { *result = ended_with as usize as c_int };
        }
        answer(error)
    }
    /// Sleeps.
    thrd_sleep(time: Time, left: *mut [u64; 2]) {
        // SAFETY: the caller promises a time, and room for another one or null.
        unsafe { clock::nanosleep(time, left) }
    }
}
