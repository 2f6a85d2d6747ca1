//! Call-backs in a thread of the library's own, in the order in which they were scheduled: what
//! `call_rcu` of `manycore/urcu.h` is.
//!
//! One list for the process, on the default domain. The helper takes the whole list, waits for a
//! grace period, and calls. So a call-back never runs in the thread that schedules it, which may
//! hold locks, and needs no other thread to come by.

use crate::call_list::{CallList, Link};
use crate::domain::mc_domain_default;
use crate::retire::{Callback, Head};
use libc::c_int;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

static CALLS: CallList<Head> = CallList::new();
/// Barriers that were asked for, and that are done.
static BARRIERS: Mutex<u64> = Mutex::new(0);
static BARRIERS_DONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_HELPER: Cell<bool> = const { Cell::new(false) };
}

impl Link for Head {
    fn next(&self) -> *mut Self {
        Self::next(self)
    }

    fn set_next(&mut self, next: *mut Self) {
        Self::set_next(self, next);
    }
}

/// # Safety
/// The head is valid until it has been called, and in no list.
unsafe fn push(head: *mut Head) {
    // SAFETY: what the caller promises.
    if unsafe { CALLS.push(head) } {
        start();
    }
}

#[cold]
fn start() {
    #[cfg(unix)]
    {
        extern "C" fn in_child() {
            CALLS.forget_helper();
        }
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: the function lives as long as the process and does not unwind.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            assert!(failed == 0, "manycore: no memory to register what a fork needs");
        });
    }
    if CALLS.claim() {
        let started = std::thread::Builder::new().name("manycore-call".to_owned()).spawn(help);
        assert!(started.is_ok(), "manycore: no thread for call-backs could be started");
    }
}

fn help() {
    #[cfg(unix)]
    // SAFETY: a set of signals on this frame; the program's handlers run in its own threads.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
    IS_HELPER.with(|is_helper| is_helper.set(true));
    CALLS.serve(|mut head| {
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
        true
    });
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
    // SAFETY: the caller promises that it stays until it has been called.
    unsafe { push(head) };
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
        // SAFETY: from a box, which `passed` frees.
        unsafe { push(Box::into_raw(Box::new(Head::queued(Some(passed))))) };
        *barriers
    };
    let mut pause = Duration::from_micros(1);
    // ORDER: Acquire; pairs with Release above.
    while BARRIERS_DONE.load(Ordering::Acquire) < number {
        crate::sync::pause(&mut pause);
    }
    0
}
