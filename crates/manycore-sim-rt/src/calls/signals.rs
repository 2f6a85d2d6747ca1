//! Runs signal handlers between two blocks of the program.
//!
//! A signal comes at any moment of real time, most likely while the runtime works for a virtual
//! thread. A handler that ran then would call back into the runtime. The kernel is therefore given
//! the handler of this module, which stores the signal. The program's handler runs when the next
//! block of any virtual thread begins. It runs on that thread, and costs only its own instructions.
//! A call that the signal would have interrupted continues.
//!
//! Law signals.G1: the program's handler is called only on the simulating kernel thread, outside
//! the simulation's own code. Signals of faults are the exception: they belong to the instruction
//! that causes them, which is the program's.
//!
//! Law signals.G2: a signal that comes while its handler runs waits for the handler's end.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::SEQ_CST;
use crate::interpose::Next;
use crate::simulation::Signal;
use crate::{diagnostics, host, simulation};

/// The number of signals, plus one: they are numbered from 1.
const SIGNALS: usize = 65;
/// The signals that an instruction causes.
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

/// The program's handlers; 0 means none.
static HANDLERS: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
/// A bit for each signal that has come and whose handler has not run.
static PENDING: AtomicU64 = AtomicU64::new(0);

/// A bit for each signal whose handler is running.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// What the kernel reported with each signal.
struct Told([UnsafeCell<std::mem::MaybeUninit<libc::siginfo_t>>; SIGNALS]);

// SAFETY: `keep` writes an element while its bit is clear; `deliver` reads it while the bit is set.
unsafe impl Sync for Told {}

static TOLD: Told = Told([const { UnsafeCell::new(std::mem::MaybeUninit::uninit()) }; SIGNALS]);

/// Stores a signal; the kernel calls this handler.
extern "C" fn keep(signal: c_int, told: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let bit = 1 << (signal - 1);
    if !simulation::active() {
        if let Some(handler) = handler(signal) {
            handler(signal, told, context);
        }
    } else if PENDING.load(SEQ_CST) & bit == 0 {
        // SAFETY: the bit is clear, so nothing reads the element; the kernel passes a valid
        // `siginfo_t`.
        unsafe { (*TOLD.0[signal as usize].get()).write(*told) };
        PENDING.fetch_or(bit, SEQ_CST);
        simulation::interrupt();
    }
}

fn handler(signal: c_int) -> Option<Handler> {
    let address = HANDLERS[signal as usize].load(SEQ_CST);
    // SAFETY: this address was given to `sigaction`, for one of its two forms. The shorter form
    // takes the first argument and ignores the others.
    (address != 0).then(|| unsafe { std::mem::transmute::<usize, Handler>(address) })
}

/// Returns what a handler is told of a timer's signal: a `siginfo_t`, built from words of four
/// bytes.
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
    // SAFETY: both types have this size, and consist of numbers.
    unsafe { std::mem::transmute(words) }
}

/// Sends a timer's signal to the program itself.
fn send(signal: c_int, mut told: libc::siginfo_t) {
    if handler(signal).is_some() && !is_blocked(signal) {
        keep(signal, &raw mut told, std::ptr::null_mut());
        call_pending();
    } else {
        // The signal goes to this kernel thread, whose mask is the one that the program has set.
        let here = std::process::id() as usize;
        // SAFETY: the kernel reads the `siginfo_t`, and does what the program has asked for.
        unsafe {
            let thread = host::call(host::SYS_GETTID, [0; 6]) as usize;
            let arguments = [here, thread, signal as usize, (&raw const told) as usize, 0, 0];
            host::call(libc::SYS_rt_tgsigqueueinfo as usize, arguments);
        };
    }
}

/// Tells whether the program has blocked a signal.
fn is_blocked(signal: c_int) -> bool {
    let mut mask = 0_u64;
    let arguments = [libc::SIG_BLOCK as usize, 0, (&raw mut mask) as usize, 8, 0, 0];
    // SAFETY: no new mask is given; the kernel writes 8 bytes.
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

/// Calls the handlers of the stored signals.
fn call_pending() {
    loop {
        // signals.G2: a signal whose handler runs stays pending.
        let pending = PENDING.load(SEQ_CST) & !HANDLED.load(SEQ_CST);
        if pending == 0 {
            return;
        }
        let signal = pending.trailing_zeros() as c_int + 1;
        let bit = 1 << (signal - 1);
        // SAFETY: the bit is set, so the element is written, and `keep` does not write it now.
        let mut told = unsafe { (*TOLD.0[signal as usize].get()).assume_init_read() };
        PENDING.fetch_and(!bit, SEQ_CST);
        // signals.G1: this is between two blocks, or in a call that has waited.
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
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: this is the type of libc's function.
    let real: Action = unsafe { std::mem::transmute(ACTION.get()) };
    if !(1..SIGNALS as c_int).contains(&signal) || FAULTS.contains(&signal) {
        // SAFETY: the caller promises what libc's function requires.
        return unsafe { real(signal, new, old) };
    }
    // SAFETY: the caller promises null or an action, as libc's function requires.
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
    // SAFETY: `given` is null or a local action. The caller promises that `old` is null or valid
    // for an action.
    let answer = unsafe { real(signal, given, old) };
    if answer == 0 {
        let before = HANDLERS[signal as usize].load(SEQ_CST);
        // SAFETY: if it is not null, libc has written to it.
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

/// Sets what a signal does; returns what it did before.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: the fields are numbers and a set, for which zero is a value.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    (new.sa_sigaction, new.sa_flags) = (handler, libc::SA_RESTART);
    let mut old = new;
    // SAFETY: both actions are local variables; the caller promises a handler, as libc's function
    // requires.
    let answer = unsafe { sigaction(signal, &raw const new, &raw mut old) };
    if answer == 0 { old.sa_sigaction } else { libc::SIG_ERR }
}

/// Sends a signal to a thread. A virtual thread can only send one to itself.
///
/// # Safety
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_kill(thread: usize, signal: c_int) -> c_int {
    static REAL: Next = Next::new(c"pthread_kill");
    if simulation::active() && signal != 0 && thread != crate::switch::thread_pointer() {
        let place = simulation::with(|sim| sim.place());
        diagnostics::fatal(format_args!(
            "the program calls pthread_kill at {place}: signals to another thread are not simulated"
        ));
    }
    // SAFETY: this is the function's type.
    let real: extern "C" fn(usize, c_int) -> c_int = unsafe { std::mem::transmute(REAL.get()) };
    real(thread, signal)
}
