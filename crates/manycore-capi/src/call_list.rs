//! What waits for the helper of `mc_call`: a list that any thread pushes to, and that the helper
//! takes as a whole.
//!
//! The helper says where it is to be found, then takes lists; a thread pushes, then looks for the
//! helper. Both are read-modify-writes of the list, so one of the two sees the other: either
//! the helper takes what was pushed, or the thread wakes it (capi.A6).

use crate::sync::{self, AtomicBool, AtomicPtr, Ordering, Thread, seeded_bug, thread};
use std::ptr;

/// What is in the list: leads to what was pushed before.
pub(crate) trait Link {
    fn next(&self) -> *mut Self;
    fn set_next(&mut self, next: *mut Self);
}

/// The list, and where its helper is.
#[derive(Debug)]
pub(crate) struct CallList<L> {
    /// What was pushed last.
    last: AtomicPtr<L>,
    /// Whether there is a helper in this process.
    is_started: AtomicBool,
    /// From a box that is never freed.
    helper: AtomicPtr<Thread>,
}

impl<L: Link> CallList<L> {
    #[cfg(not(manycore_loom))]
    pub(crate) const fn new() -> Self {
        Self {
            last: AtomicPtr::new(ptr::null_mut()),
            is_started: AtomicBool::new(false),
            helper: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[cfg(manycore_loom)]
    pub(crate) fn new() -> Self {
        Self {
            last: AtomicPtr::new(ptr::null_mut()),
            is_started: AtomicBool::new(false),
            helper: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Pushes, and wakes the helper if it may have found the list empty. Whether there is none, so
    /// that the caller is to start one.
    ///
    /// # Safety
    /// Valid until the helper has called it, and in no list.
    pub(crate) unsafe fn push(&self, link: *mut L) -> bool {
        // BUG: a thread looks for the helper before it pushes, and wakes none (capi.A6).
        let early = seeded_bug!("call-early-look").then(|| self.helper.load(Ordering::SeqCst));
        // ORDER: Relaxed; the exchange decides.
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            // SAFETY: the link is the caller's own until the exchange publishes it.
            unsafe { (*link).set_next(last) };
            // ORDER: SeqCst; pairs with the swap in `take`: the link before its address, and what
            // the helper did before it took the list.
            let (change, keep) = (Ordering::SeqCst, Ordering::Relaxed);
            match self.last.compare_exchange_weak(last, link, change, keep) {
                Ok(_) => break,
                Err(found) => last = found,
            }
        }
        // ORDER: SeqCst; pairs with the swap in `claim`, and behind the exchange.
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

    /// Whether the caller is to start the helper: true for one thread.
    pub(crate) fn claim(&self) -> bool {
        // ORDER: SeqCst; one thread starts it.
        !self.is_started.swap(true, Ordering::SeqCst)
    }

    /// In the child of a fork, which has one thread and no helper.
    #[cfg(all(unix, not(manycore_loom)))]
    pub(crate) fn forget_helper(&self) {
        // ORDER: SeqCst; as elsewhere.
        self.helper.store(ptr::null_mut(), Ordering::SeqCst);
        self.is_started.store(false, Ordering::SeqCst);
    }

    /// Everything that waits, the first one first.
    fn take(&self) -> *mut L {
        // ORDER: SeqCst; pairs with the exchange in `push`.
        let mut last = self.last.swap(ptr::null_mut(), Ordering::SeqCst);
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

    /// The helper: calls `serve` with the first link of each list that it takes, until that says
    /// that it is over.
    pub(crate) fn serve(&self, mut serve: impl FnMut(*mut L) -> bool) {
        let own = Box::into_raw(Box::new(thread::current()));
        // ORDER: SeqCst; pairs with the load in `push`.
        self.helper.swap(own, Ordering::SeqCst);
        loop {
            let first = self.take();
            if first.is_null() {
                sync::park();
            } else if !serve(first) {
                return;
            }
        }
    }
}
