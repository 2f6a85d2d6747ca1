//! libc's own locks, condition variables, semaphores and pipes, as C code uses them; fails if one
//! of them does not do what it does on real cores. With `barrier` it calls what is not simulated,
//! with `pipe` it reads from a pipe without a writer.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_void},
    io::{Read, Write, pipe},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

unsafe extern "C" {
    fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
    fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int;
    fn pthread_cond_timedwait(
        condition: *mut c_void,
        mutex: *mut c_void,
        time: *const [u64; 2],
    ) -> c_int;
    fn pthread_cond_broadcast(condition: *mut c_void) -> c_int;
    fn pthread_cond_destroy(condition: *mut c_void) -> c_int;
    fn pthread_mutex_trylock(mutex: *mut c_void) -> c_int;
    fn pthread_rwlock_rdlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_wrlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_unlock(lock: *mut c_void) -> c_int;
    fn sem_init(semaphore: *mut c_void, shared: c_int, value: u32) -> c_int;
    fn sem_wait(semaphore: *mut c_void) -> c_int;
    fn sem_post(semaphore: *mut c_void) -> c_int;
    fn pthread_barrier_init(barrier: *mut c_void, attributes: *mut c_void, count: u32) -> c_int;
    fn pthread_barrier_wait(barrier: *mut c_void) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut [u64; 2]) -> c_int;
    fn getrandom(buffer: *mut u8, bytes: usize, flags: u32) -> isize;
    fn sched_getaffinity(thread: c_int, bytes: usize, mask: *mut u8) -> c_int;
    fn sched_setaffinity(thread: c_int, bytes: usize, mask: *const u8) -> c_int;
}

const ROUNDS: u64 = 20;
const ETIMEDOUT: c_int = 110;

/// Any of libc's objects: zeroed is how its macros initialize them; with what they guard.
#[repr(align(64))]
struct Shared {
    object: UnsafeCell<[u64; 8]>,
    condition: UnsafeCell<[u64; 8]>,
    value: UnsafeCell<u64>,
}

// SAFETY: the objects are libc's, made to be shared; the value is touched under them alone.
unsafe impl Sync for Shared {}

impl Shared {
    const fn new() -> Self {
        Self {
            object: UnsafeCell::new([0; 8]),
            condition: UnsafeCell::new([0; 8]),
            value: UnsafeCell::new(0),
        }
    }

    fn object(&self) -> *mut c_void {
        self.object.get().cast()
    }

    fn condition(&self) -> *mut c_void {
        self.condition.get().cast()
    }
}

fn main() {
    let cores = thread::available_parallelism().expect("a number of cores").get() as u64;
    match std::env::args().nth(1).as_deref() {
        Some("barrier") => barrier(),
        Some("pipe") => waits_at_a_pipe(),
        _ => {
            takes_turns(cores);
            times_out();
            destroys_after_the_last_wake_up();
            reads_and_writes(cores);
            posts();
            sends_through_a_pipe();
            takes_null_for_no_bytes();
            println!("{cores} cores: all well");
        }
    }
}

/// As the kernel does: crates ask so whether `getrandom` is there.
fn takes_null_for_no_bytes() {
    let (out, mask) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: no byte is read or written.
    unsafe {
        assert_eq!(getrandom(out, 0, 0), 0);
        assert_eq!(sched_getaffinity(0, 0, out), -1, "EINVAL");
        assert_eq!(sched_setaffinity(0, 0, mask), -1, "EINVAL");
    }
}

/// Each thread waits until it is its turn, under one condition variable.
fn takes_turns(threads: u64) {
    let shared = Shared::new();
    thread::scope(|scope| {
        for mine in 0..threads {
            let shared = &shared;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // SAFETY: a zeroed mutex and condition variable; the value is under the mutex.
                    unsafe {
                        pthread_mutex_lock(shared.object());
                        while *shared.value.get() % threads != mine {
                            assert_eq!(pthread_cond_wait(shared.condition(), shared.object()), 0);
                        }
                        *shared.value.get() += 1;
                        pthread_cond_broadcast(shared.condition());
                        pthread_mutex_unlock(shared.object());
                    }
                }
            });
        }
    });
    assert_eq!(shared.value.into_inner(), threads * ROUNDS);
}

fn times_out() {
    let shared = Shared::new();
    let mut time = [0; 2];
    // SAFETY: a zeroed mutex and condition variable, and a timespec of our own.
    unsafe {
        clock_gettime(0, &raw mut time);
        time[0] += 1;
        pthread_mutex_lock(shared.object());
        let answer = pthread_cond_timedwait(shared.condition(), shared.object(), &raw const time);
        assert_eq!(answer, ETIMEDOUT);
        pthread_mutex_unlock(shared.object());
    }
}

/// The condition variable's memory is used again at once. Whether a waiter that was woken has not
/// yet looked at it depends on the machine's costs: this may pass where destroying does not wait.
fn destroys_after_the_last_wake_up() {
    let (shared, ready) = (&Shared::new(), &AtomicBool::new(false));
    // SAFETY: zeroed, and not shared yet. This makes the line this thread's.
    unsafe { (*shared.condition.get())[7] = 1 };
    thread::scope(|scope| {
        // SAFETY: a zeroed mutex and condition variable; a waiter may be woken once without reason.
        scope.spawn(move || unsafe {
            pthread_mutex_lock(shared.object());
            ready.store(true, Ordering::Release);
            assert_eq!(pthread_cond_wait(shared.condition(), shared.object()), 0);
            pthread_mutex_unlock(shared.object());
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the same mutex and condition variable; the memory of one that is destroyed may be
        // written.
        unsafe {
            while pthread_mutex_trylock(shared.object()) != 0 {
                std::hint::spin_loop();
            }
            pthread_cond_broadcast(shared.condition());
            pthread_mutex_unlock(shared.object());
            assert_eq!(pthread_cond_destroy(shared.condition()), 0);
            shared.condition.get().write_volatile([0; 8]);
        }
    });
}

fn reads_and_writes(threads: u64) {
    let shared = Shared::new();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    // SAFETY: a zeroed lock; the value is read and written under it.
                    unsafe {
                        pthread_rwlock_rdlock(shared.object());
                        assert!(*shared.value.get() < threads * ROUNDS);
                        pthread_rwlock_unlock(shared.object());
                        pthread_rwlock_wrlock(shared.object());
                        *shared.value.get() += 1;
                        pthread_rwlock_unlock(shared.object());
                    }
                }
            });
        }
    });
    assert_eq!(shared.value.into_inner(), threads * ROUNDS);
}

fn posts() {
    let shared = Shared::new();
    // SAFETY: a semaphore fits, and is initialized before it is shared.
    unsafe { sem_init(shared.object(), 0, 0) };
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_micros(50));
            // SAFETY: the semaphore above.
            unsafe { sem_post(shared.object()) };
        });
        // SAFETY: the semaphore above.
        assert_eq!(unsafe { sem_wait(shared.object()) }, 0);
    });
}

/// More than a pipe holds.
fn sends_through_a_pipe() {
    let (mut reader, mut writer) = pipe().expect("a pipe");
    let sent = vec![7_u8; 200_000];
    let length = sent.len();
    let other = thread::spawn(move || writer.write_all(&sent).expect("a reader"));
    let mut received = Vec::new();
    reader.read_to_end(&mut received).expect("a pipe");
    other.join().expect("no panic");
    assert_eq!(received, vec![7; length]);
}

fn barrier() {
    let shared = Shared::new();
    // SAFETY: a barrier fits, and is initialized before it is shared.
    unsafe { pthread_barrier_init(shared.object(), std::ptr::null_mut(), 2) };
    thread::scope(|scope| {
        for _ in 0..2 {
            // SAFETY: the barrier above.
            scope.spawn(|| unsafe { pthread_barrier_wait(shared.object()) });
        }
    });
}

fn waits_at_a_pipe() {
    let (mut reader, _writer) = pipe().expect("a pipe");
    reader.read_exact(&mut [0]).expect("a byte");
}
