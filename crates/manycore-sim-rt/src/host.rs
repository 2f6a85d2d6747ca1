//! The real system underneath: its system calls and its clock.
//!
//! This module owns the way to the kernel past our own interposers. A call of `syscall` from this
//! crate would come back to this crate, because our symbols come first.

use std::arch::asm;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) const SYS_OPEN: usize = 2;
pub(crate) const SYS_MMAP: usize = 9;
pub(crate) const SYS_MPROTECT: usize = 10;
pub(crate) const SYS_MUNMAP: usize = 11;
pub(crate) const SYS_MREMAP: usize = 25;
pub(crate) const SYS_NANOSLEEP: usize = 35;
pub(crate) const SYS_EXIT_GROUP: usize = 231;
pub(crate) const SYS_GETTID: usize = 186;
pub(crate) const SYS_FUTEX: usize = 202;
pub(crate) const SYS_SETAFFINITY: usize = 203;
pub(crate) const SYS_GETAFFINITY: usize = 204;
pub(crate) const SYS_CLOCK_GETTIME: usize = 228;
pub(crate) const SYS_CLOCK_NANOSLEEP: usize = 230;
pub(crate) const SYS_SCHED_YIELD: usize = 24;
pub(crate) const SYS_OPENAT: usize = 257;
pub(crate) const SYS_GETCPU: usize = 309;
pub(crate) const SYS_GETRANDOM: usize = 318;
pub(crate) const SYS_MEMBARRIER: usize = 324;
pub(crate) const SYS_RSEQ: usize = 334;
pub(crate) const SYS_OPENAT2: usize = 437;

pub(crate) const PROT_READ: usize = 1;
pub(crate) const PROT_WRITE: usize = 2;
pub(crate) const PROT_EXEC: usize = 4;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;

/// True while the kernel thread waits on purpose, for something outside the simulation.
static IS_WAITING: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Makes a system call. Returns the kernel's answer: an error is a number between -4095 and -1.
///
/// # Safety
/// As for the system call of that number.
pub(crate) unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let answer: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the convention of x86-64 Linux; the kernel changes only rax, rcx and r11. The caller
    // promises that the call itself is safe.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            out("rcx") _, out("r11") _,
            options(nostack)
        );
    }
    answer
}

/// Makes a call that checks files without waiting.
///
/// A signal can still interrupt it, and the timer of [`crate::uninstrumented`] sends signals that
/// the program does not know of. So it is repeated.
///
/// # Safety
/// As for the system call of that number.
pub(crate) unsafe fn look(number: usize, arguments: [usize; 6]) -> isize {
    loop {
        // SAFETY: the caller's promise (# Safety).
        let answer = unsafe { call(number, arguments) };
        if answer != -(libc::EINTR as isize) {
            return answer;
        }
    }
}

/// Converts the kernel's answer to libc's: -1, with the error in `errno`.
pub(crate) fn as_libc(answer: isize) -> isize {
    if (-4095..0).contains(&answer) {
        set_errno(-answer as c_int);
        return -1;
    }
    answer
}

/// Sets `errno`.
pub(crate) fn set_errno(error: c_int) {
    // SAFETY: libc returns the address of this thread's own word.
    unsafe { *__errno_location() = error }
}

/// Returns `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: libc returns the address of this thread's own word.
    unsafe { *__errno_location() }
}

/// Maps fresh, zeroed memory, or returns null. `near` is only a hint.
pub(crate) fn map(near: usize, bytes: usize) -> *mut u8 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS;
    // SAFETY: a private anonymous mapping without MAP_FIXED replaces nothing.
    let start =
        unsafe { call(SYS_MMAP, [near, bytes, PROT_READ | PROT_WRITE, flags, usize::MAX, 0]) };
    if start < 0 { std::ptr::null_mut() } else { start as *mut u8 }
}

/// Runs `act`, which may block the kernel thread ([`crate::watchdog`]).
pub(crate) fn waiting<R>(act: impl FnOnce() -> R) -> R {
    // ORDER: Relaxed; the watchdog reads it several times before it acts.
    IS_WAITING.store(true, Ordering::Relaxed);
    let result = act();
    IS_WAITING.store(false, Ordering::Relaxed);
    result
}

/// Returns true while the simulating kernel thread is in [`waiting`].
pub(crate) fn is_waiting() -> bool {
    // ORDER: Relaxed; see `waiting`.
    IS_WAITING.load(Ordering::Relaxed)
}

/// Returns the real time in nanoseconds.
pub(crate) fn nanoseconds() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: CLOCK_MONOTONIC; the kernel writes the two words.
    unsafe { call(SYS_CLOCK_GETTIME, [1, time.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Waits on the real kernel until `word` differs from `value`.
pub(crate) fn wait_while(word: &AtomicU32, value: u32) {
    const WAIT_PRIVATE: usize = 128;
    // ORDER: Acquire; pairs with `wake`: what was done before it is visible after this.
    while word.load(Ordering::Acquire) == value {
        let address = std::ptr::from_ref(word) as usize;
        // SAFETY: the kernel reads the word, which lives as long as the reference.
        unsafe { call(SYS_FUTEX, [address, WAIT_PRIVATE, value as usize, 0, 0, 0]) };
    }
}

/// Stores `value` and wakes the waiters on the real kernel.
pub(crate) fn wake(word: &AtomicU32, value: u32) {
    const WAKE_PRIVATE: usize = 129;
    // ORDER: Release; pairs with `wait_while`.
    word.store(value, Ordering::Release);
    let address = std::ptr::from_ref(word) as usize;
    // SAFETY: wakes waiters; touches no memory.
    unsafe { call(SYS_FUTEX, [address, WAKE_PRIVATE, usize::MAX >> 33, 0, 0, 0]) };
}
