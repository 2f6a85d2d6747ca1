//! Adoption: the program's threads become virtual threads.
//!
//! This module owns `pthread_create`, `pthread_join`, `pthread_detach`, and thread-local
//! destructors.
//!
//! A new thread is a real thread at first: libc makes its stack and its thread-local storage. The
//! thread then parks on a small stack of its own. From there on, the one kernel thread that runs
//! the simulation uses its real stack and storage. It changes between virtual threads by changing
//! the stack and the thread pointer ([`crate::switch`]). When a virtual thread has ended and is
//! joined or detached, its real thread wakes up on its own stack and ends as libc does it.
//!
//! ```text
//! pthread_create --> real thread --park--> virtual thread, run by the simulating kernel thread
//!                    (sleeps on its              |
//!                     parking stack)             v
//!                    ends in libc <--join, detach-- ended
//! ```
//!
//! Laws:
//! - threads.S1 While a simulation is active, one kernel thread runs. Every adopted one is parked,
//!   or is ending while the simulating one waits for it.
//! - threads.S2 A thread's `place` is what `switch` saved when the thread last gave way, or what
//!   its trampoline left. It is used once.
//! - threads.S3 Destructors run on the virtual thread, before it ends for the engine.

use std::ffi::{c_int, c_void};

use crate::host;
use crate::interpose::Next;
use crate::simulation::{arrive, collect};
use crate::thread::{Destructor, Entry, Thread, join_real};
use crate::{rseq, simulation, switch};

/// The stack on which a parked kernel thread sleeps.
const PARKING_STACK: usize = 16 << 10;

static CREATE: Next = Next::new(c"pthread_create");
static DETACH: Next = Next::new(c"pthread_detach");
static ATEXIT: Next = Next::new(c"__cxa_thread_atexit_impl");

type Create = extern "C" fn(*mut usize, *const c_void, Entry, *mut c_void) -> c_int;

fn create(handle: *mut usize, attributes: *const c_void, entry: Entry, with: *mut c_void) -> c_int {
    // SAFETY: the type of pthread_create.
    let real: Create = unsafe { std::mem::transmute(CREATE.get()) };
    real(handle, attributes, entry, with)
}

/// The real thread's first function.
extern "C" fn trampoline(own: *mut c_void) -> *mut c_void {
    let own = own.cast::<Thread>();
    let stack = host::map(0, PARKING_STACK);
    if stack.is_null() {
        crate::diagnostics::fatal(format_args!("no memory for another thread"));
    }
    // SAFETY: threads.S1 - the creator waits until this thread is parked, so `own` is this thread's
    // alone. The stack is new, and `park` finds `own` in PARKING.
    unsafe {
        (*own).pointer = switch::thread_pointer();
        rseq::release((*own).pointer);
        PARKING.0.store(own, std::sync::atomic::Ordering::Relaxed);
        let parking = switch::prepare(stack.add(PARKING_STACK), park);
        switch::switch(&raw mut (*own).place, parking, 0);
    }
    arrive();
    live(own)
}

/// The thread that is about to park. Only that thread sets and reads it, while its creator waits.
struct Parking(std::sync::atomic::AtomicPtr<Thread>);
static PARKING: Parking = Parking(std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()));

/// Sleeps on the parking stack while the real stack is used elsewhere.
extern "C" fn park() -> ! {
    let own = PARKING.0.load(std::sync::atomic::Ordering::Relaxed);
    // SAFETY: threads are boxed and never dropped, and these words are atomic.
    let (parked, released) = unsafe { (&(*own).parked, &(*own).released) };
    host::wake(parked, 1);
    host::wait_while(released, 0);
    let mut nowhere = 0;
    // SAFETY: threads.S2 - `live` saved the place when the virtual thread gave way for good.
    unsafe { switch::switch(&raw mut nowhere, (*own).place, 0) };
    crate::diagnostics::fatal(format_args!("a parked thread went on"))
}

/// Runs the virtual thread, and ends the real thread.
fn live(own: *mut Thread) -> *mut c_void {
    // SAFETY: threads are boxed and never dropped; no other thread changes these fields
    // (threads.S1).
    let (entry, argument) = unsafe { ((*own).entry, (*own).argument) };
    let result = entry.map_or(std::ptr::null_mut(), |entry| entry(argument));
    // On the virtual thread, because destructors may run instrumented code (threads.S3).
    // SAFETY: threads.S1 - boxed, never dropped, and only this thread pushes and pops. A destructor
    // may register more, so the borrow ends with each pop.
    while let Some((destroy, object)) = unsafe { (*own).destructors.pop() } {
        destroy(object);
    }
    let next = simulation::with(|sim| sim.end_current(result));
    let next = simulation::chosen(next);
    let (save, to, pointer) = simulation::with(|sim| sim.change_to(next));
    // SAFETY: threads.S2, switch.W1 - `to` is where the thread that the engine chose gave way, and
    // the pointer is that thread's. This call returns on the real kernel thread, from `park`.
    unsafe { switch::switch(save, to, pointer) };
    result
}

impl simulation::Simulation {
    /// Records the end of the running thread and asks the engine which thread is next.
    fn end_current(&mut self, result: *mut c_void) -> manycore_sim::Outcome {
        let number = self.current;
        let thread = &mut self.threads[number];
        debug_assert!(!thread.ended, "a thread ends once");
        thread.result = result;
        thread.ended = true;
        if thread.detached {
            self.leaving = Some(number);
        }
        self.engine.exit()
    }

    /// Returns the virtual thread with this handle, if it still has a real thread.
    fn by_handle(&self, handle: usize) -> Option<usize> {
        let fits = |thread: &Thread| thread.handle == handle && !thread.collected;
        self.threads.iter().skip(1).position(|thread| fits(thread)).map(|index| index + 1)
    }
}

/// Returns the size of the stack of a thread with these attributes.
fn stack_bytes(attributes: *const c_void) -> usize {
    unsafe extern "C" {
        fn pthread_attr_getstacksize(attributes: *const c_void, bytes: *mut usize) -> c_int;
    }
    let mut bytes = 8 << 20;
    if !attributes.is_null() {
        // SAFETY: the caller of `pthread_create` passed these attributes, which libc has just read;
        // the word is ours.
        unsafe { pthread_attr_getstacksize(attributes, &mut bytes) };
    }
    bytes
}

/// Creates a thread. While a simulation runs, it becomes a virtual thread.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    handle: *mut usize,
    attributes: *const c_void,
    entry: Entry,
    argument: *mut c_void,
) -> c_int {
    if !simulation::active() {
        return create(handle, attributes, entry, argument);
    }
    let thread = Box::into_raw(Thread::new(Some(entry), argument));
    let error = simulation::paused(|| {
        let error = create(handle, attributes, trampoline, thread.cast());
        if error == 0 {
            // SAFETY: the box is not dropped; the word is atomic.
            host::wait_while(unsafe { &(*thread).parked }, 0);
        }
        error
    });
    // SAFETY: threads.S1 - the new thread is parked, or was not made; the box is ours again.
    let mut thread = unsafe { Box::from_raw(thread) };
    if error != 0 {
        return error;
    }
    // SAFETY: libc has written the handle.
    thread.handle = unsafe { *handle };
    thread.stack = stack_bytes(attributes);
    simulation::begin(thread);
    0
}

/// Waits for a thread.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_join(handle: usize, result: *mut *mut c_void) -> c_int {
    let number =
        if simulation::active() { simulation::with(|sim| sim.by_handle(handle)) } else { None };
    let Some(number) = number else {
        return join_real(handle, result);
    };
    simulation::join(number);
    let ended_with = simulation::with(|sim| sim.threads[number].result);
    collect(number);
    if !result.is_null() {
        // SAFETY: not null, and the caller promises room for a pointer, as libc's `pthread_join`
        // requires.
        unsafe { *result = ended_with };
    }
    0
}

/// Detaches a thread: it will not be joined.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_detach(handle: usize) -> c_int {
    let number =
        if simulation::active() { simulation::with(|sim| sim.by_handle(handle)) } else { None };
    let Some(number) = number else {
        // SAFETY: the type of pthread_detach.
        let real: extern "C" fn(usize) -> c_int = unsafe { std::mem::transmute(DETACH.get()) };
        return real(handle);
    };
    let ended = simulation::with(|sim| {
        sim.threads[number].detached = true;
        sim.threads[number].ended
    });
    if ended {
        collect(number);
    }
    0
}

/// Registers the destructor of a thread-local value.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __cxa_thread_atexit_impl(
    destroy: Destructor,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    let adopted = simulation::active()
        && simulation::with(|sim| {
            let thread = &mut sim.threads[sim.current];
            if thread.entry.is_some() {
                thread.destructors.push((destroy, object));
            }
            thread.entry.is_some()
        });
    if adopted {
        return 0;
    }
    type Register = extern "C" fn(Destructor, *mut c_void, *mut c_void) -> c_int;
    // SAFETY: the type of the function.
    let real: Register = unsafe { std::mem::transmute(ATEXIT.get()) };
    real(destroy, object, library)
}
