//! Call-backs in a thread of the library's own, in the order in which they were scheduled:
//! `call_rcu` of `manycore/urcu.h`.
//!
//! The process has one list, for the default domain. The helper thread takes the whole list, waits
//! for a grace period, and calls the call-backs. So a call-back never runs in the thread that
//! scheduled it, which may hold locks, and it needs no other thread to retire anything.

use crate::call_list::{CallList, Link};
use crate::domain::mc_domain_default;
use crate::retire::{Callback, Head};
use libc::c_int;
use manycore::percpu::AtFork;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static CALLS: CallList<Head> = CallList::new();

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
/// The head stays valid until it has been called, and is in no list.
unsafe fn push(head: *mut Head) {
    // SAFETY: what the caller promises.
    if unsafe { CALLS.push(head) } {
        start();
    }
}

#[cold]
fn start() {
    AT_FORK.list();
    if CALLS.claim() {
        let started = std::thread::Builder::new().name("manycore-call".to_owned()).spawn(help);
        assert!(started.is_ok(), "manycore: no thread for call-backs could be started");
    }
}

static AT_FORK: AtFork = AtFork::new(|| Box::new(hold()), in_child);

/// Locks the taking of the list. The helper holds it while it takes the list, and a fork holds it
/// too.
fn hold() -> MutexGuard<'static, ()> {
    static TAKES: Mutex<()> = Mutex::new(());
    TAKES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs in the child of a fork, which has no helper, unless the helper forked.
fn in_child() {
    if !IS_HELPER.with(Cell::get) {
        CALLS.forget_helper();
    }
}

fn help() {
    #[cfg(unix)]
    // SAFETY: the set of signals is on this frame. The program's handlers run in its own threads.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
    IS_HELPER.with(|is_helper| is_helper.set(true));
    CALLS.serve(hold, |mut head| {
        // SAFETY: the default domain is never freed.
        unsafe { &*mc_domain_default() }.sections.synchronize();
        while !head.is_null() {
            // SAFETY: in the list that was taken, and read before the call-back frees it.
            let (next, function) = unsafe { ((*head).next(), (*head).function()) };
            CALLS.calls_before(next);
            if let Some(function) = function {
                // SAFETY: the grace period is over, and the caller of `mc_call` promised that any
                // thread may then call it.
                unsafe { function(head) };
            }
            head = next;
        }
        true
    });
}

/// Calls `function(head)` in a thread of the library once every section of the default domain that
/// is open now has been closed.
///
/// # Safety
/// As for `mc_retire_`, in the default domain.
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

/// An object that a barrier lets the helper call. The last of the two frees it. (A count of
/// barriers would lose those of threads that the child of a fork does not have, and so would a mark
/// on their stacks.)
#[repr(C)]
struct Mark {
    head: Head,
    is_passed: AtomicBool,
}

// SAFETY: the head is written before it is in the list, and only the helper reads it.
unsafe impl Send for Mark {}
// SAFETY: as for `Send`: one thread reads the head, and the rest is an atomic.
unsafe impl Sync for Mark {}

unsafe extern "C-unwind" fn pass(head: *mut Head) {
    // SAFETY: the head is the first field of a mark, and the list had a count of its own.
    let mark = unsafe { Arc::from_raw(head.cast::<Mark>().cast_const()) };
    // ORDER: Release; pairs with Acquire in `mc_call_barrier`: the effects of the call-backs
    // before.
    mark.is_passed.store(true, Ordering::Release);
}

/// Waits until every call-back that `mc_call` scheduled before has returned.
#[unsafe(no_mangle)]
pub extern "C" fn mc_call_barrier() -> c_int {
    // SAFETY: the default domain is never freed.
    if IS_HELPER.with(Cell::get) || unsafe { &*mc_domain_default() }.sections.is_inside() {
        return -libc::EDEADLK;
    }
    let _no_cancel = crate::cancel::disable();
    let mark = Arc::new(Mark { head: Head::queued(Some(pass)), is_passed: AtomicBool::new(false) });
    // SAFETY: one count of the mark, which `pass` takes back.
    unsafe { push(Arc::into_raw(Arc::clone(&mark)).cast_mut().cast()) };
    let mut pause = Duration::from_micros(1);
    // ORDER: Acquire; pairs with Release in `pass`.
    while !mark.is_passed.load(Ordering::Acquire) {
        crate::sync::pause(&mut pause);
    }
    0
}
