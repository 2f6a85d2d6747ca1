//! The list of call-backs that wait for the helper of `mc_call`. Any thread pushes to it, and the
//! helper takes all of it at once.
//!
//! The helper announces itself, then takes lists. A thread pushes, then looks for the helper. Both
//! are read-modify-writes of the list, so one of the two sees the other: either the helper takes
//! what was pushed, or the thread wakes the helper (capi.A6).

use crate::sync::{self, AtomicBool, AtomicPtr, Ordering, Thread, seeded_bug, thread};
use std::ptr;

/// An element of the list. It leads to the element that was pushed before.
pub(crate) trait Link {
    fn next(&self) -> *mut Self;
    fn set_next(&mut self, next: *mut Self);
}

/// The list, and its helper.
#[derive(Debug)]
pub(crate) struct CallList<L> {
    /// The last element pushed.
    last: AtomicPtr<L>,
    /// True if this process has a helper.
    is_started: AtomicBool,
    /// The helper's thread, in a box that is never freed.
    helper: AtomicPtr<Thread>,
    /// Elements that the helper has taken and not called yet, the first pushed first.
    taken: AtomicPtr<L>,
}

impl<L: Link> CallList<L> {
    #[cfg(not(manycore_loom))]
    pub(crate) const fn new() -> Self {
        Self {
            last: AtomicPtr::new(ptr::null_mut()),
            is_started: AtomicBool::new(false),
            helper: AtomicPtr::new(ptr::null_mut()),
            taken: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[cfg(manycore_loom)]
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicPtr::new(ptr::null_mut()),
            is_started: AtomicBool::new(false),
            helper: AtomicPtr::new(ptr::null_mut()),
            taken: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Pushes an element, and wakes the helper if it may have found the list empty.
    ///
    /// Returns true if there is no helper: the caller must then start one.
    ///
    /// # Safety
    /// The element stays valid until the helper has called it, and is in no list.
    pub(crate) unsafe fn push(&self, link: *mut L) -> bool {
        // BUG: a thread looks for the helper before it pushes, and wakes none (capi.A6).
        let early = seeded_bug!("call-early-look").then(|| self.helper.load(Ordering::SeqCst));
        // ORDER: Relaxed; the exchange decides.
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            // SAFETY: the element belongs to the caller until the exchange publishes it.
            unsafe { (*link).set_next(last) };
            // ORDER: SeqCst; pairs with the swap in `take`: the element before its address, and
            // what the helper did before it took the list.
            let (change, keep) = (Ordering::SeqCst, Ordering::Relaxed);
            match self.last.compare_exchange_weak(last, link, change, keep) {
                Ok(_) => break,
                Err(found) => last = found,
            }
        }
        // ORDER: SeqCst; pairs with the swap in `claim`, and comes after the exchange.
        if !self.is_started.load(Ordering::SeqCst) {
            return true;
        }
        if last.is_null() {
            // ORDER: SeqCst; pairs with the swap in `serve`.
            let helper = early.unwrap_or_else(|| self.helper.load(Ordering::SeqCst));
            // SAFETY: null, or a box that is never freed.
            if let Some(helper) = unsafe { helper.as_ref() } {
                helper.unpark();
            }
        }
        false
    }

    /// Returns true to one thread, which must start the helper.
    pub(crate) fn claim(&self) -> bool {
        // ORDER: SeqCst; one thread starts it.
        !self.is_started.swap(true, Ordering::SeqCst)
    }

    /// Runs in the child of a fork, which has one thread and no helper. What the helper had taken
    /// waits again, before everything else.
    #[cfg(not(manycore_loom))]
    pub(crate) fn forget_helper(&self) {
        // ORDER: Relaxed (all); there is one thread.
        self.helper.store(ptr::null_mut(), Ordering::Relaxed);
        self.is_started.store(false, Ordering::Relaxed);
        // SAFETY: no other thread has the list.
        let mut first = unsafe { reversed(self.last.load(Ordering::Relaxed)) };
        let taken = self.taken.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: as above. The last element is now the first.
        let mut taken = unsafe { reversed(taken) };
        while !taken.is_null() {
            // SAFETY: the list is this thread's alone, as above.
            let before = unsafe { (*taken).next() };
            // SAFETY: the list is this thread's alone, as above.
            unsafe { (*taken).set_next(first) };
            (first, taken) = (taken, before);
        }
        // SAFETY: no other thread has the list.
        self.last.store(unsafe { reversed(first) }, Ordering::Relaxed);
    }

    /// Takes everything that waits, the first pushed first.
    fn take(&self) -> *mut L {
        // ORDER: SeqCst; pairs with the exchange in `push`.
        let last = self.last.swap(ptr::null_mut(), Ordering::SeqCst);
        // SAFETY: taken from the list, so it is this thread's alone.
        unsafe { reversed(last) }
    }

    /// Notes that the helper is about to call what comes before `next`.
    pub(crate) fn calls_before(&self, next: *mut L) {
        // ORDER: Relaxed; only a child of a fork reads it, and this thread does not run there.
        self.taken.store(next, Ordering::Relaxed);
    }

    /// Runs the helper: calls `serve` with the first element of each list that it takes, until
    /// `serve` returns false. While it takes a list, it holds the result of `hold`.
    pub(crate) fn serve<G>(&self, hold: impl Fn() -> G, mut serve: impl FnMut(*mut L) -> bool) {
        let own = Box::into_raw(Box::new(thread::current()));
        // ORDER: SeqCst; pairs with the load in `push`.
        self.helper.swap(own, Ordering::SeqCst);
        loop {
            let held = hold();
            let first = self.take();
            self.calls_before(first);
            drop(held);
            if first.is_null() {
                sync::park();
            } else if !serve(first) {
                return;
            }
        }
    }
}

/// Reverses a list.
///
/// # Safety
/// No other thread has it.
unsafe fn reversed<L: Link>(mut link: *mut L) -> *mut L {
    let mut before = ptr::null_mut();
    while !link.is_null() {
        // SAFETY: the caller promises that no other thread has the list.
        let next = unsafe { (*link).next() };
        // SAFETY: no other thread has it, and its link was read.
        unsafe { (*link).set_next(before) };
        (before, link) = (link, next);
    }
    before
}
