//! Call-backs in a thread of the library's own, in the order in which they were scheduled: what
//! `call_rcu` of `manycore/urcu.h` is.
//!
//! One queue for the process, on the default domain. A call pushes the head on a list; the helper
//! takes the whole list, waits for a grace period, and calls. So a call-back never runs in the
//! thread that schedules it, which may hold locks, and needs no other thread to come by.
//!
//! The helper wakes up for a list that was empty: it says where it is to be found, then takes the
//! list; a caller pushes, then looks for it. Both are read-modify-writes, so one sees the other.

use crate::handle::mc_domain_default;
use crate::retire::{Callback, Head};
use libc::c_int;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// What was scheduled last, and leads to what was scheduled before.
static LAST: AtomicPtr<Head> = AtomicPtr::new(ptr::null_mut());
/// Whether there is a helper in this process.
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// The helper, from a box that is never freed.
static HELPER: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
/// Barriers that were asked for, and that are done.
static BARRIERS: Mutex<u64> = Mutex::new(0);
static BARRIERS_DONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
}

fn push(head: *mut Head) {
    // ORDER: Relaxed; the exchange decides.
    let mut last = LAST.load(Ordering::Relaxed);
    loop {
        // SAFETY: the head is the caller's own until the exchange publishes it.
        unsafe { (*head).set_next(last) };
        // ORDER: SeqCst; pairs with the swap in `take`: the head before its address; and see above.
        match LAST.compare_exchange_weak(last, head, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => break,
            Err(found) => last = found,
        }
    }
    // ORDER: SeqCst; see above.
    if !IS_STARTED.load(Ordering::SeqCst) {
        return start();
    }
    if last.is_null() {
        // ORDER: SeqCst; pairs with the swap in `help`.
        // SAFETY: null, or a box that is never freed.
        if let Some(helper) = unsafe { HELPER.load(Ordering::SeqCst).as_ref() } {
            helper.unpark();
        }
    }
}

#[cold]
fn start() {
    #[cfg(unix)]
    {
        extern "C" fn in_child() {
            // ORDER: SeqCst; as elsewhere. The child has one thread.
            HELPER.store(ptr::null_mut(), Ordering::SeqCst);
            IS_STARTED.store(false, Ordering::SeqCst);
        }
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the function lives as long as the process and does not unwind.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert!(failed == 0, "manycore: no memory to register what a fork needs");
        });
    }
    // ORDER: SeqCst; one thread starts it.
    if !IS_STARTED.swap(true, Ordering::SeqCst) {
        let started = thread::Builder::new().name("manycore-call".to_owned()).spawn(help);
        assert!(started.is_ok(), "manycore: no thread for call-backs could be started");
    }
}

/// Everything that waits, the first one first.
fn take() -> *mut Head {
    // ORDER: SeqCst; pairs with the exchange in `push`.
    let mut last = LAST.swap(ptr::null_mut(), Ordering::SeqCst);
    let mut first = ptr::null_mut();
    while !last.is_null() {
        // SAFETY: taken from the list, so this thread's alone.
        let next = unsafe { (*last).next() };
        // SAFETY: this thread's alone, and read above.
        unsafe { (*last).set_next(first) };
        first = last;
        last = next;
    }
    first
}

fn help() {
    #[cfg(unix)]
    // SAFETY: a set of signals on this frame; the program's handlers run in its own threads.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
    }
    IS_HELPER.with(|is_helper| is_helper.set(true));
    // ORDER: SeqCst; pairs with the load in `push`.
    HELPER.swap(Box::into_raw(Box::new(thread::current())), Ordering::SeqCst);
    loop {
        let mut head = take();
        if head.is_null() {
            // A wake-up can be lost to a fork alone; so the time is long.
            thread::park_timeout(Duration::from_secs(1));
            continue;
        }
        // SAFETY: the default domain is never freed.
        unsafe { &*mc_domain_default() }.sections.synchronize();
        while !head.is_null() {
            // SAFETY: in the list that was taken; read before the call-back frees it.
            let (next, function) = unsafe { ((*head).next(), (*head).function()) };
            if let Some(function) = function {
                // SAFETY: the grace period is over, and the caller of `mc_call` promised that any
                // thread may call it then.
                unsafe { function(head) };
            }
            head = next;
        }
    }
}

/// Calls `function(head)` in a thread of the library's own, once every section of the default
/// domain that is open now has been closed.
///
/// # Safety
/// As for `mc_retire_`, of the default domain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_call(head: *mut Head, function: Option<Callback>) -> c_int {
    if head.is_null() || function.is_none() {
        return -libc::EINVAL;
    }
    // SAFETY: the object is the caller's own, unlinked, and not retired before.
    unsafe { head.write(Head::queued(function)) };
    push(head);
    0
}

/// Waits until every call-back that was scheduled by `mc_call` before has returned.
#[unsafe(no_mangle)]
pub extern "C" fn mc_call_barrier() -> c_int {
    unsafe extern "C-unwind" fn passed(head: *mut Head) {
        // SAFETY: from the box below; comes back once.
        drop(unsafe { Box::from_raw(head) });
        // ORDER: Release; pairs with Acquire below: what the call-backs before have done.
        BARRIERS_DONE.fetch_add(1, Ordering::Release);
    }
    // SAFETY: the default domain is never freed.
    if IS_HELPER.with(Cell::get) || unsafe { &*mc_domain_default() }.sections.is_inside() {
        return -libc::EDEADLK;
    }
    let _no_cancel = crate::cancel::disable();
    let number = {
        // Markers are in the list in the order of their numbers.
        let mut barriers = BARRIERS.lock().unwrap_or_else(PoisonError::into_inner);
        *barriers += 1;
        push(Box::into_raw(Box::new(Head::queued(Some(passed)))));
        *barriers
    };
    let mut pause = Duration::from_micros(1);
    // ORDER: Acquire; pairs with Release above.
    while BARRIERS_DONE.load(Ordering::Acquire) < number {
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(1));
    }
    0
}
