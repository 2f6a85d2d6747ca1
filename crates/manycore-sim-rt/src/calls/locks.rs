//! libc's own mutexes, which instrumented C code and a few crates use.
//!
//! libc's lock is not instrumented, and waiting in it would stop the whole simulation. A virtual
//! thread that finds one taken sleeps for a virtual microsecond and looks again. Rust's standard
//! library does not use them.

use std::ffi::{c_int, c_void};

use crate::host::Next;
use crate::world;

const EBUSY: c_int = 16;
/// How long to wait between two looks.
const LOOK_NS: u64 = 1000;

static LOCK: Next = Next::new(c"pthread_mutex_lock");
static TRY: Next = Next::new(c"pthread_mutex_trylock");

type Function = extern "C" fn(*mut c_void) -> c_int;

/// Takes a mutex.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut c_void) -> c_int {
    if !world::active() {
        // SAFETY: the type of the function.
        let lock: Function = unsafe { std::mem::transmute(LOCK.get()) };
        return lock(mutex);
    }
    // SAFETY: the type of the function.
    let try_lock: Function = unsafe { std::mem::transmute(TRY.get()) };
    loop {
        let answer = try_lock(mutex);
        if answer != EBUSY {
            return answer;
        }
        let until = world::with(|world| world.nanoseconds()) + LOOK_NS;
        world::sleep_until(until);
    }
}
