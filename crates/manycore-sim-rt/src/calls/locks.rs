//! libc's mutexes, read-write locks and spin locks, which C and C++ use. Rust's are futexes.
//!
//! libc's own functions change the lock, and this module adds costs and waits ([`super::waits`]). A
//! thread never calls one of them that might wait: it tries, and sleeps in virtual time if the lock
//! is taken. It then tries again, beside whoever comes meanwhile, as libc's do.
//!
//! Law locks.L1: a thread sleeps for a lock only while another holds it, and whoever releases it
//! wakes the sleeper. For a mutex, `contended` is what glibc writes as the value 2 into its word: a
//! thread that found the mutex taken sets it before it tries once more, and the release clears it
//! and wakes one. So the thread that was woken, which has set it again, makes a call of its own at
//! its release that may wake nobody; glibc's does, too.
//!
//! Law locks.L2: the offsets are those of glibc on x86-64, which are part of its binary interface.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::clock;
use super::replace::{real, replace};
use super::waits::{self, EBUSY, ETIMEDOUT, exchange};
use crate::simulation;

const EDEADLK: c_int = 35;

/// Bytes from a mutex to its owner's thread id and to its kind.
const OWNER: usize = 8;
const KIND: usize = 16;
/// The kind that checks for errors, and the bits that tell it from the others.
const ERROR_CHECKING: u32 = 2;
const KINDS: u32 = 3;
/// Bytes from a read-write lock to the thread id of its writer.
const WRITER: usize = 24;
/// The first word of a read-write lock: readers from this bit up, and the bit of a writer.
const ONE_READER: u32 = 8;
const WRITES: u32 = 2;

/// Those that wait to read under a read-write lock, and to write.
const READERS: u32 = 1;
const WRITERS: u32 = 2;

/// Instructions of glibc 2.41's functions without contention, counted by callgrind.
mod instructions {
    pub(super) const MUTEX: (u32, u32) = (32, 25);
    pub(super) const TO_READ: u32 = 23;
    pub(super) const TO_WRITE: u32 = 37;
    pub(super) const DONE: u32 = 38;
    pub(super) const SPIN: u32 = 4;
    /// From an attempt that failed to the next.
    pub(super) const AGAIN: u32 = 8;
}

/// Returns a word of one of libc's objects.
///
/// # Safety
/// The object is alive, and has an aligned word there.
unsafe fn word<'a>(object: *mut c_void, at: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's promise. libc writes the word atomically, or under its lock.
    unsafe { &*object.byte_add(at).cast() }
}

/// Returns the id that libc has for the calling thread: the owner it writes into a mutex.
fn own_id() -> u32 {
    let mut own = [0_u64; 5];
    let own = (&raw mut own).cast::<c_void>();
    real!(pthread_mutex_lock(*mut c_void))(own);
    // SAFETY: locks.L2 - 40 bytes of zeros are a mutex, here one that this thread holds.
    unsafe { word(own, OWNER) }.load(Relaxed)
}

/// Takes a mutex, or stops waiting at a virtual time.
///
/// # Safety
/// `mutex` is one of libc's, and is alive.
pub(super) unsafe fn lock(mutex: *mut c_void, until: Option<u64>) -> c_int {
    exchange(mutex, instructions::MUTEX.0);
    let mut answer = real!(pthread_mutex_trylock(*mut c_void))(mutex);
    // SAFETY: locks.L2 - the caller promises a live mutex.
    let (kind, owner) = unsafe { (word(mutex, KIND), word(mutex, OWNER)) };
    if answer == EBUSY
        && kind.load(Relaxed) & KINDS == ERROR_CHECKING
        && owner.load(Relaxed) == own_id()
    {
        return EDEADLK;
    }
    while answer == EBUSY {
        // locks.L1: from here on, a release wakes.
        simulation::with(|sim| sim.contended.insert(sim.line_address(mutex as usize)));
        exchange(mutex, instructions::AGAIN);
        answer = real!(pthread_mutex_trylock(*mut c_void))(mutex);
        if answer == EBUSY {
            let still = || {
                simulation::with(|sim| sim.contended.contains(&sim.line_address(mutex as usize)))
            };
            if !waits::sleep(mutex, until, waits::ALL, still) {
                return ETIMEDOUT;
            }
        }
    }
    if answer == 0 {
        waits::write(mutex, OWNER);
    }
    answer
}

/// Releases a mutex.
///
/// # Safety
/// `mutex` is one of libc's, and is alive.
pub(super) unsafe fn unlock(mutex: *mut c_void) -> c_int {
    waits::write(mutex, OWNER);
    exchange(mutex, instructions::MUTEX.1);
    let answer = real!(pthread_mutex_unlock(*mut c_void))(mutex);
    // A recursive mutex is still held until its last release.
    // SAFETY: locks.L2 - the caller promises a live mutex, and no thread has run since the release.
    let is_free = answer == 0 && unsafe { word(mutex, 0) }.load(Relaxed) == 0;
    // locks.L1: whoever sleeps, or is about to, has set the mark.
    if is_free && simulation::with(|sim| sim.contended.remove(&sim.line_address(mutex as usize))) {
        simulation::wake(mutex as usize, 1, waits::ALL);
    }
    answer
}

/// Takes a read-write lock for [`READERS`] or [`WRITERS`], or stops waiting at a virtual time.
///
/// # Safety
/// `lock` is one of libc's, and is alive.
unsafe fn take(lock: *mut c_void, until: Option<u64>, bits: u32) -> c_int {
    let (attempt, cost) = match bits {
        READERS => (real!(pthread_rwlock_tryrdlock(*mut c_void)), instructions::TO_READ),
        _ => (real!(pthread_rwlock_trywrlock(*mut c_void)), instructions::TO_WRITE),
    };
    exchange(lock, cost);
    let mut answer = attempt(lock);
    // SAFETY: locks.L2 - the caller promises a live lock.
    if answer == EBUSY && unsafe { word(lock, WRITER) }.load(Relaxed) == own_id() {
        return EDEADLK;
    }
    while answer == EBUSY {
        // locks.L1: the last attempt is in the turn in which the thread falls asleep.
        let still = || {
            answer = attempt(lock);
            answer == EBUSY
        };
        if !waits::sleep(lock, until, bits, still) {
            return ETIMEDOUT;
        }
        if answer == EBUSY {
            exchange(lock, instructions::AGAIN);
            answer = attempt(lock);
        }
    }
    answer
}

/// Releases a read-write lock. As glibc's, it prefers those that wait to read.
///
/// # Safety
/// `lock` is one of libc's, and is alive.
unsafe fn give_back(lock: *mut c_void) -> c_int {
    exchange(lock, instructions::DONE);
    let answer = real!(pthread_rwlock_unlock(*mut c_void))(lock);
    if answer != 0 {
        return answer;
    }
    // SAFETY: locks.L2 - the caller promises a live lock, and no thread has run since the release.
    let now = unsafe { word(lock, 0) }.load(Relaxed);
    if simulation::any_waits(lock as usize, READERS) {
        waits::wake(lock, u32::MAX, READERS);
    } else if now < ONE_READER && now & WRITES == 0 {
        waits::wake(lock, 1, WRITERS);
    }
    0
}

replace! {
    /// Takes the mutex.
    pthread_mutex_lock(mutex: *mut c_void) {
        // SAFETY: the caller promises a live mutex, as libc's function requires.
        unsafe { lock(mutex, None) }
    }
    /// Takes the mutex, or stops waiting at a time of day.
    pthread_mutex_timedlock(mutex: *mut c_void, time: *const [u64; 2]) {
        // SAFETY: the caller promises a live mutex and a timespec, as libc's function requires.
        unsafe { lock(mutex, clock::moment(time, true)) }
    }
    /// Takes the mutex, or stops waiting at a time of the clock `clock`.
    pthread_mutex_clocklock(mutex: *mut c_void, clock: c_int, time: *const [u64; 2]) {
        // SAFETY: the caller promises a live mutex and a timespec, as libc's function requires.
        unsafe { lock(mutex, clock::moment(time, clock == 0)) }
    }
    /// Takes the mutex if no other thread holds it.
    pthread_mutex_trylock(mutex: *mut c_void) {
        exchange(mutex, instructions::MUTEX.0);
        real!(pthread_mutex_trylock(*mut c_void))(mutex)
    }
    /// Releases the mutex.
    pthread_mutex_unlock(mutex: *mut c_void) {
        // SAFETY: the caller promises a live mutex, as libc's function requires.
        unsafe { unlock(mutex) }
    }
    /// Takes the lock to read.
    pthread_rwlock_rdlock(lock: *mut c_void) {
        // SAFETY: the caller promises a live lock, as libc's function requires.
        unsafe { take(lock, None, READERS) }
    }
    /// Takes the lock to read, or stops waiting at a time of day.
    pthread_rwlock_timedrdlock(lock: *mut c_void, time: *const [u64; 2]) {
        // SAFETY: the caller promises a live lock and a timespec, as libc's function requires.
        unsafe { take(lock, clock::moment(time, true), READERS) }
    }
    /// Takes the lock to read, or stops waiting at a time of the clock `clock`.
    pthread_rwlock_clockrdlock(lock: *mut c_void, clock: c_int, time: *const [u64; 2]) {
        // SAFETY: the caller promises a live lock and a timespec, as libc's function requires.
        unsafe { take(lock, clock::moment(time, clock == 0), READERS) }
    }
    /// Takes the lock to read if no thread writes.
    pthread_rwlock_tryrdlock(lock: *mut c_void) {
        exchange(lock, instructions::TO_READ);
        real!(pthread_rwlock_tryrdlock(*mut c_void))(lock)
    }
    /// Takes the lock to write.
    pthread_rwlock_wrlock(lock: *mut c_void) {
        // SAFETY: the caller promises a live lock, as libc's function requires.
        unsafe { take(lock, None, WRITERS) }
    }
    /// Takes the lock to write, or stops waiting at a time of day.
    pthread_rwlock_timedwrlock(lock: *mut c_void, time: *const [u64; 2]) {
        // SAFETY: the caller promises a live lock and a timespec, as libc's function requires.
        unsafe { take(lock, clock::moment(time, true), WRITERS) }
    }
    /// Takes the lock to write, or stops waiting at a time of the clock `clock`.
    pthread_rwlock_clockwrlock(lock: *mut c_void, clock: c_int, time: *const [u64; 2]) {
        // SAFETY: the caller promises a live lock and a timespec, as libc's function requires.
        unsafe { take(lock, clock::moment(time, clock == 0), WRITERS) }
    }
    /// Takes the lock to write if no thread holds it.
    pthread_rwlock_trywrlock(lock: *mut c_void) {
        exchange(lock, instructions::TO_WRITE);
        real!(pthread_rwlock_trywrlock(*mut c_void))(lock)
    }
    /// Releases the lock.
    pthread_rwlock_unlock(lock: *mut c_void) {
        // SAFETY: the caller promises a live lock, as libc's function requires.
        unsafe { give_back(lock) }
    }
    /// Takes the spin lock. Reads it until it is free, as libc's does.
    pthread_spin_lock(lock: *mut c_void) {
        loop {
            exchange(lock, instructions::SPIN);
            let answer = real!(pthread_spin_trylock(*mut c_void))(lock);
            if answer != EBUSY {
                break answer;
            }
            // SAFETY: the caller promises a live lock, which is one word, as libc's function
            // requires.
            while unsafe { word(lock, 0) }.load(Relaxed) as i32 <= 0 {
                simulation::pause();
                waits::read(lock, instructions::SPIN);
            }
        }
    }
    /// Takes the spin lock if it is free.
    pthread_spin_trylock(lock: *mut c_void) {
        exchange(lock, instructions::SPIN);
        real!(pthread_spin_trylock(*mut c_void))(lock)
    }
    /// Releases the spin lock.
    pthread_spin_unlock(lock: *mut c_void) {
        waits::write(lock, 0);
        real!(pthread_spin_unlock(*mut c_void))(lock)
    }
}
