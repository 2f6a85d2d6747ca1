//! Handlers of signals, between two blocks of the program.
//!
//! A signal comes at any moment of real time, most likely while the runtime is at work for a
//! virtual thread; a handler that ran then would come back to it. So the kernel is given a handler
//! of ours, which keeps the signal, and the program's runs when the next block of any virtual
//! thread begins: on that thread, at no cost but its own. A call that the signal would have
//! interrupted goes on.
//!
//! Law sim_rt.G1: the program's handler is called on the simulating kernel thread alone, outside of
//! the simulation's own code. Signals of faults are the exception: they belong to the instruction
//! at which they come, which is the program's.
//!
//! Law sim_rt.G2: a signal that comes while its handler runs waits for the handler's end.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::SEQ_CST;
use crate::interpose::Next;
use crate::simulation::Signal;
use crate::{diagnostics, host, simulation};

/// Numbers of signals, from 1.
const SIGNALS: usize = 65;
/// Signals that an instruction causes.
const FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);
type Action = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

static ACTION: Next = Next::new(c"sigaction");

/// The program's handlers; 0 is none.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// A bit for each signal that has come, and whose handler has not run.
static PENDING: AtomicU64 = AtomicU64::new(0);

/// A bit for each signal whose handler runs.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// What the kernel said with each signal.
struct Told([UnsafeCell<std::mem::MaybeUninit<libc::siginfo_t>>; SIGNALS]);

// SAFETY: one is written by `keep` while its bit is clear, and read by `deliver` while it is set.
unsafe impl Sync for Told {}

static TOLD: Told = Told([const { UnsafeCell::new(std::mem::MaybeUninit::uninit()) }; SIGNALS]);

/// What the kernel calls.
extern "C" fn keep(signal: c_int, told: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let bit = 1 << (signal - 1);
    if !simulation::active() {
        if let Some(handler) = handler(signal) {
            handler(signal, told, context);
        }
    } else if PENDING.load(SEQ_CST) & bit == 0 {
        // SAFETY: the bit is clear, so nothing reads it; the kernel gives what it says.
        unsafe { (*TOLD.0[signal as usize].get()).write(*told) };
        PENDING.fetch_or(bit, SEQ_CST);
        simulation::interrupt();
    }
}

fn handler(signal: c_int) -> Option<Handler> {
    let address = HANDLERS[signal as usize].load(SEQ_CST);
    // SAFETY: what `sigaction` was given, for one of its two forms; the shorter takes the first
    // argument and does not look at the others.
    (address != 0).then(|| unsafe { std::mem::transmute::<usize, Handler>(address) })
}

/// What a handler is told of a timer's signal: `siginfo_t` in words of four bytes.
fn told(timer: usize, signal: &Signal, overrun: u64) -> libc::siginfo_t {
    let mut words = [0_u32; size_of::<libc::siginfo_t>() / 4];
    (words[0], words[2]) = (signal.number as u32, signal.code as u32);
    if signal.code == libc::SI_TIMER {
        let value = signal.value as u64;
        words[4..8].copy_from_slice(&[
            timer as u32,
            overrun.min(i32::MAX as u64) as u32,
            value as u32,
            (value >> 32) as u32,
        ]);
    }
    // SAFETY: both have this size, and numbers are what it consists of.
    unsafe { std::mem::transmute(words) }
}

/// Sends a timer's signal to the program itself.
fn send(signal: c_int, mut told: libc::siginfo_t) {
    if handler(signal).is_some() && !is_blocked(signal) {
        keep(signal, &raw mut told, std::ptr::null_mut());
        call_pending();
    } else {
        // To this kernel thread, whose mask is the one that the program has set.
        let here = std::process::id() as usize;
        // SAFETY: the kernel reads the `siginfo_t`, and does what the program has asked for.
        unsafe {
            let thread = host::call(host::SYS_GETTID, [0; 6]) as usize;
            let arguments = [here, thread, signal as usize, (&raw const told) as usize, 0, 0];
            host::call(libc::SYS_rt_tgsigqueueinfo as usize, arguments);
        };
    }
}

/// Whether the program keeps a signal for later.
fn is_blocked(signal: c_int) -> bool {
    let mut mask = 0_u64;
    let arguments = [libc::SIG_BLOCK as usize, 0, (&raw mut mask) as usize, 8, 0, 0];
    // SAFETY: no new mask; the kernel writes 8 bytes.
    unsafe { host::call(libc::SYS_rt_sigprocmask as usize, arguments) };
    mask & 1 << (signal - 1) != 0
}

/// Calls the handlers of the signals that have come.
pub(crate) fn deliver() {
    if simulation::has_rung() {
        let next = || simulation::with(|sim| sim.take_alarm(HANDLED.load(SEQ_CST)));
        while let Some((timer, signal, overrun)) = next() {
            send(signal.number, told(timer, &signal, overrun));
        }
    }
    call_pending();
}

/// Calls the handlers of the signals that are kept.
fn call_pending() {
    loop {
        // sim_rt.G2
        let pending = PENDING.load(SEQ_CST) & !HANDLED.load(SEQ_CST);
        if pending == 0 {
            return;
        }
        let signal = pending.trailing_zeros() as c_int + 1;
        let bit = 1 << (signal - 1);
        // SAFETY: the bit is set, so it is written, and `keep` does not write it now.
        let mut told = unsafe { (*TOLD.0[signal as usize].get()).assume_init_read() };
        PENDING.fetch_and(!bit, SEQ_CST);
        // sim_rt.G1: between two blocks, or in a call that has waited.
        if let Some(handler) = handler(signal) {
            HANDLED.fetch_or(bit, SEQ_CST);
            handler(signal, &raw mut told, std::ptr::null_mut());
            HANDLED.fetch_and(!bit, SEQ_CST);
        }
    }
}

/// Sets what a signal does.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the type of libc's function.
    let real: Action = unsafe { std::mem::transmute(ACTION.get()) };
    if !(1..SIGNALS as c_int).contains(&signal) || FAULTS.contains(&signal) {
        // SAFETY: the caller promises what libc's function asks.
        return unsafe { real(signal, new, old) };
    }
    // SAFETY: the caller promises null or an action, as libc's function asks.
    let mut action = unsafe { new.as_ref() }.copied();
    let mut wanted = 0;
    if let Some(action) = &mut action {
        let is_handler = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        if is_handler {
            wanted = std::mem::replace(&mut action.sa_sigaction, keep as *const () as usize);
            action.sa_flags |= libc::SA_SIGINFO | libc::SA_RESTART;
        }
    }
    let given = action.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an action of our own, or null; the caller promises that `old` is null or good for
    // one.
    let answer = unsafe { real(signal, given, old) };
    if answer == 0 {
        let before = HANDLERS[signal as usize].load(SEQ_CST);
        // SAFETY: not null, and libc has written to it.
        if let Some(old) = unsafe { old.as_mut() }
            && old.sa_sigaction == keep as *const () as usize
        {
            old.sa_sigaction = before;
        }
        if action.is_some() {
            HANDLERS[signal as usize].store(wanted, SEQ_CST);
            if wanted != 0 && simulation::active() {
                simulation::with(|sim| sim.files.takes_signals = true);
            }
        }
    }
    answer
}

/// Sets what a signal does; returns what it did.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: numbers and a set, for which zero is a value.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    (new.sa_sigaction, new.sa_flags) = (handler, libc::SA_RESTART);
    let mut old = new;
    // SAFETY: two actions of our own; the caller promises a handler, as libc's function asks.
    let answer = unsafe { sigaction(signal, &raw const new, &raw mut old) };
    if answer == 0 { old.sa_sigaction } else { libc::SIG_ERR }
}

/// Sends a signal to a thread: to a virtual one, only by itself.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_kill(thread: usize, signal: c_int) -> c_int {
    static REAL: Next = Next::new(c"pthread_kill");
    if simulation::active() && signal != 0 && thread != crate::switch::thread_pointer() {
        let place = simulation::with(|sim| sim.place());
        diagnostics::fatal(format_args!(
            "the program calls pthread_kill at {place}: signals to another thread are not simulated"
        ));
    }
    // SAFETY: the type of the function.
    let real: extern "C" fn(usize, c_int) -> c_int = unsafe { std::mem::transmute(REAL.get()) };
    real(thread, signal)
}
