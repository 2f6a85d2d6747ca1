//! Before `main`: decides whether this process is simulated, and on which machine.
//!
//! The command passes one variable, [`VARIABLE`]. It is removed from the environment at once, so
//! processes that the program starts run as usual. If these are instrumented they load this library
//! too, and it then does only what the hardware does (law callbacks.B1).

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use manycore_sim::{Engine, Machine};

use crate::interpose::Next;
use crate::simulation::{self, Hooks, result};
use crate::{arguments, callbacks, calls, diagnostics, instruction_stubs, switch, watchdog};

/// The command's settings, separated by bars: cores, seed, how many waits to keep, the day at whose
/// beginning the run starts, where to write the result, and the machine.
const VARIABLE: &CStr = c"MANYCORE_SIM_RUN";

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn unsetenv(name: *const c_char) -> c_int;
    fn atexit(act: extern "C" fn()) -> c_int;
    fn mallopt(parameter: c_int, value: c_int) -> c_int;
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        in_parent: Option<extern "C" fn()>,
        in_child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// Runs before the program's own initializers.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
#[cfg_attr(test, allow(dead_code))]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: before `main` there is one thread, so the environment does not change concurrently.
    let text = unsafe {
        let text = getenv(VARIABLE.as_ptr());
        if text.is_null() {
            return;
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    };
    // SAFETY: before `main` there is one thread, and the texts are copied: no pointer into the
    // environment remains.
    unsafe {
        let map = getenv(calls::MAP.as_ptr());
        if !map.is_null() {
            calls::set_map(CStr::from_ptr(map));
        }
        unsetenv(VARIABLE.as_ptr());
    }
    if !switch::is_supported() {
        diagnostics::fatal(format_args!(
            "this processor or kernel does not let a program set its thread pointer (fsgsbase); \
             Linux 5.9 on a processor from 2012 or later does"
        ));
    }
    let Some((engine, seed, out)) = parse(&text) else {
        diagnostics::fatal(format_args!("{} makes no sense: {text}", VARIABLE.to_string_lossy()));
    };
    prepare_libc();
    let hooks =
        Hooks { block_callback: callbacks::block_callback(), replaced: instruction_stubs::TARGETS };
    simulation::start(engine, seed, out, hooks);
    watchdog::start();
}

fn parse(text: &str) -> Option<(Engine, u64, String)> {
    let mut parts = text.splitn(6, '|');
    let cores = parts.next()?.parse().ok()?;
    let seed = parts.next()?.parse().ok()?;
    let waits = parts.next()?.parse().ok()?;
    // Not after the year 9999, which the command takes at most.
    let day = parts.next()?.parse().ok().filter(|day| *day < 3_000_000)?;
    let out = parts.next()?.to_string();
    let machine = Machine::decode(parts.next()?);
    match machine.and_then(|machine| Engine::new(machine, cores, seed)) {
        Ok(mut engine) => {
            engine.keep_waits(waits);
            calls::set_day(day);
            Some((engine, seed, out))
        }
        Err(error) => diagnostics::fatal(format_args!("{error}")),
    }
}

fn prepare_libc() {
    const ARENA_MAX: c_int = -8;
    const MMAP_THRESHOLD: c_int = -3;
    const ARENAS: c_int = 4096;
    const THRESHOLD: c_int = 128 << 10;
    // SAFETY: sets numbers of libc's allocator and registers functions that stay.
    unsafe {
        // As many arenas as threads, however many cores the host has.
        mallopt(ARENA_MAX, ARENAS);
        // Fixed, because libc would adapt it to what is freed.
        mallopt(MMAP_THRESHOLD, THRESHOLD);
        atexit(result::at_exit);
        pthread_atfork(None, None, Some(in_child));
    }
}

/// Ends the simulation in the child of a fork, which has only the caller's thread.
extern "C" fn in_child() {
    simulation::stop();
}

/// The program's `main`.
static MAIN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static START_MAIN: Next = Next::new(c"__libc_start_main");

type Main = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Act = extern "C" fn();

/// Stands in front of libc's function, which a program's first instructions call, and passes a
/// `main` of ours.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __libc_start_main(
    main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    init: Option<Act>,
    fini: Option<Act>,
    linker_fini: Option<Act>,
    stack_end: *mut c_void,
) -> c_int {
    type Start = unsafe extern "C" fn(
        Main,
        c_int,
        *mut *mut c_char,
        Option<Act>,
        Option<Act>,
        Option<Act>,
        *mut c_void,
    ) -> c_int;
    let (main, argv) = if simulation::active() {
        MAIN.store(main as *mut c_void, Ordering::Relaxed);
        // SAFETY: the program's first instructions pass what the kernel gave, and there is one
        // thread.
        (main_at_a_fixed_place as Main, unsafe { arguments::relocated(argc, argv) })
    } else {
        (main, argv)
    };
    // SAFETY: this is the type of libc's function. It gets the arguments that this one got, with
    // the program's own `main`, or ours, which calls it.
    unsafe {
        let start: Start = std::mem::transmute(START_MAIN.get());
        start(main, argc, argv, init, fini, linker_fini, stack_end)
    }
}

/// Calls `main` with its stack at a multiple of a megabyte. The environment, the arguments and the
/// kernel's facts lie above the stack. Their size differs from place to place, and would decide
/// which of `main`'s data share a cache line.
#[unsafe(naked)]
extern "C" fn main_at_a_fixed_place(_: c_int, _: *mut *mut c_char, _: *mut *mut c_char) -> c_int {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "and rsp, -1048576",
        "call [rip + {main}]",
        "mov rsp, rbp",
        "pop rbp",
        "ret",
        main = sym MAIN,
    )
}
