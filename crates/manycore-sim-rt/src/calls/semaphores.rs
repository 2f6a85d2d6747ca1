//! libc's semaphores and barriers, and its functions that run something once.
//!
//! Semaphores are libc's own, with costs and waits added as for its locks. Barriers are written
//! here, in the memory of libc's, because libc has no form that does not wait. What runs once runs
//! from here, and is marked as libc marks it.
//!
//! Law semaphores.B1: while a simulation runs, the first two words of a barrier are how many
//! threads have come and how many rounds have ended; the third, how many have to come, is libc's. A
//! thread touches the barrier no more after it was woken, so it may be destroyed as soon as all
//! were woken.
//!
//! Law semaphores.B2: 2 in the word of a `pthread_once_t` says that its function has run. One that
//! runs is in `Simulation::at_once`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU32;

use super::replace::{real, replace};
use super::waits::{self, ALL, ETIMEDOUT, exchange};
use super::{SEQ_CST, clock};
use crate::host::{errno, set_errno};
use crate::simulation;

const EAGAIN: c_int = 11;
/// What one thread of each round gets from a barrier.
const SERIAL: c_int = -1;
const HAS_RUN: u32 = 2;

/// Instructions of glibc 2.41's functions without contention, counted by callgrind.
mod instructions {
    pub(super) const POST: u32 = 11;
    pub(super) const TAKE: u32 = 18;
    pub(super) const COME: u32 = 62;
    pub(super) const ONCE: u32 = 5;
}

/// Takes one from a semaphore, or stops waiting at a virtual time. Returns what libc's function
/// does.
fn take(semaphore: *mut c_void, until: Option<u64>) -> c_int {
    let attempt = || match real!(sem_trywait(*mut c_void))(semaphore) {
        -1 if errno() == EAGAIN => None,
        answer => Some(answer),
    };
    loop {
        exchange(semaphore, instructions::TAKE);
        let mut found = attempt();
        if found.is_none() {
            let still = || {
                found = attempt();
                found.is_none()
            };
            if !waits::sleep(semaphore, until, ALL, still) {
                set_errno(ETIMEDOUT);
                return -1;
            }
        }
        if let Some(answer) = found {
            return answer;
        }
    }
}

/// Returns the words of a barrier.
///
/// # Safety
/// `barrier` is one of libc's, and is alive.
unsafe fn words<'a>(barrier: *mut c_void) -> &'a [AtomicU32; 3] {
    // SAFETY: the caller promises a live barrier. It is aligned for its words and longer than three
    // of them; all access to these is atomic (semaphores.B1).
    unsafe { &*barrier.cast() }
}

/// Waits until as many threads have come as the barrier is for.
///
/// # Safety
/// `barrier` is one of libc's, and is alive.
unsafe fn come(barrier: *mut c_void) -> c_int {
    // SAFETY: the caller promises a live barrier (# Safety).
    let [come, rounds, all] = unsafe { words(barrier) };
    exchange(barrier, instructions::COME);
    let round = rounds.load(SEQ_CST);
    if come.fetch_add(1, SEQ_CST) + 1 == all.load(SEQ_CST) {
        come.store(0, SEQ_CST);
        rounds.store(round.wrapping_add(1), SEQ_CST);
        waits::wake(barrier, u32::MAX, ALL);
        return SERIAL;
    }
    // semaphores.B1: the round goes on, so the barrier is alive until this thread sleeps, and is
    // not looked at when it was woken.
    waits::sleep(barrier, None, ALL, || rounds.load(SEQ_CST) == round);
    0
}

/// Ends a run of the function behind a `pthread_once_t`, also if that function unwinds.
struct Runs(*mut c_void);

impl Drop for Runs {
    fn drop(&mut self) {
        simulation::with(|sim| sim.at_once.remove(&(self.0 as usize)));
        waits::wake(self.0, u32::MAX, ALL);
    }
}

/// Runs `function` unless that was done; waits if another thread is doing it.
///
/// # Safety
/// As for libc's `pthread_once`.
unsafe fn once(control: *mut c_void, function: extern "C-unwind" fn()) -> c_int {
    // SAFETY: the caller promises a live control, which is one word.
    let done: &AtomicU32 = unsafe { &*control.cast() };
    waits::read(control, instructions::ONCE);
    loop {
        if done.load(SEQ_CST) & HAS_RUN != 0 {
            return 0;
        }
        exchange(control, instructions::ONCE);
        // semaphores.B2: it runs in one thread at a time.
        if simulation::with(|sim| sim.at_once.insert(control as usize)) {
            let runs = Runs(control);
            if done.load(SEQ_CST) & HAS_RUN == 0 {
                function();
                exchange(control, instructions::ONCE);
                done.store(HAS_RUN, SEQ_CST);
            }
            drop(runs);
            return 0;
        }
        let still = || simulation::with(|sim| sim.at_once.contains(&(control as usize)));
        waits::sleep(control, None, ALL, still);
    }
}

replace! {
    /// Takes one from the semaphore.
    sem_wait(semaphore: *mut c_void) {
        take(semaphore, None)
    }
    /// Takes one from the semaphore, or stops waiting at a time of day.
    sem_timedwait(semaphore: *mut c_void, time: *const [u64; 2]) {
        // SAFETY: the caller promises a timespec, as libc's function requires.
        take(semaphore, unsafe { clock::moment(time, true) })
    }
    /// Takes one from the semaphore, or stops waiting at a time of the clock `clock`.
    sem_clockwait(semaphore: *mut c_void, clock: c_int, time: *const [u64; 2]) {
        // SAFETY: the caller promises a timespec, as libc's function requires.
        take(semaphore, unsafe { clock::moment(time, clock == 0) })
    }
    /// Takes one from the semaphore if it has one.
    sem_trywait(semaphore: *mut c_void) {
        exchange(semaphore, instructions::TAKE);
        real!(sem_trywait(*mut c_void))(semaphore)
    }
    /// Gives one to the semaphore.
    sem_post(semaphore: *mut c_void) {
        exchange(semaphore, instructions::POST);
        let answer = real!(sem_post(*mut c_void))(semaphore);
        if answer == 0 {
            waits::wake(semaphore, 1, ALL);
        }
        answer
    }
    /// Waits for the others.
    pthread_barrier_wait(barrier: *mut c_void) {
        // SAFETY: the caller promises a live barrier, as libc's function requires.
        unsafe { come(barrier) }
    }
    /// Ends the barrier. There is nothing to wait for (semaphores.B1).
    pthread_barrier_destroy(_barrier: *mut c_void) {
        0
    }
    /// Runs a function once.
    pthread_once(control: *mut c_void, function: extern "C-unwind" fn()) {
        // SAFETY: the caller promises a live control, as libc's function requires.
        unsafe { once(control, function) }
    }
    /// C11's name for it.
    call_once(control: *mut c_void, function: extern "C-unwind" fn()) {
        // SAFETY: the caller promises a live control, as libc's function requires.
        unsafe { once(control, function) }
    }
}
