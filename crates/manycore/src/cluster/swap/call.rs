//! Calls of an object, and how they wait while it is closed.

use super::admission::Admission;
use super::protocol::Held;
use super::transfer::Transfer;
use super::{Family, Rest, Swappable, Top, is_closed, top_of};
use crate::percpu::calls::{self, Call, Depth, LEAF};
use crate::percpu::{self, barrier};
use crate::sync::{AtomicBool, AtomicPtr, Backoff, Ordering, UnsafeCell, seeded_bug};
use std::ptr;
use std::sync::Arc;

/// A call that is counted in the object.
struct Counted<'a> {
    door: &'a Admission,
    _depth: Depth,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.door.dismiss();
    }
}

/// Returns how many calls the thread is inside of. Panics if the thread must not call.
fn assert_may_call() -> usize {
    let depth = calls::depth();
    assert!(
        depth != LEAF,
        "manycore: a transfer calls an exchangeable object: the swap that runs it would wait for \
         itself"
    );
    depth
}

impl<F: Family + ?Sized> Swappable<F> {
    /// Makes an object with this implementation.
    #[must_use]
    pub fn new(first: Arc<F>) -> Self {
        let top = Box::new(Top(Arc::clone(&first)));
        Self {
            gate: AtomicPtr::new(Box::into_raw(top)),
            biased: barrier::is_asymmetric(),
            rest: Box::new(Rest {
                door: Admission::new(),
                transfer: Transfer::new(),
                claimed: AtomicBool::new(false),
                held: UnsafeCell::new(Held { base: first, wrap: None }),
            }),
        }
    }

    /// Returns the word that calls announce.
    #[inline(always)]
    pub(super) fn number(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Calls the implementation. A panic of the call passes to the caller.
    ///
    /// # Panics
    /// If it is called from within a transfer.
    #[inline]
    pub fn call<R>(&self, call: impl FnOnce(&F) -> R) -> R {
        match self.enter_announced() {
            Some((_announced, top)) => call(top),
            None => self.call_slow(call),
        }
    }

    /// Announces a call, if the object is open (swap.W1). The returned reference must not be used
    /// after the announcement is dropped.
    #[inline(always)]
    fn enter_announced(&self) -> Option<(Call, &F)> {
        let announced = calls::enter(self.number(), self.biased)?;
        // ORDER: Acquire; pairs with Release in `Swappable::open` (gate.E3): the implementation
        // before its address. Behind the announcement by gate.E1.
        let gate = self.gate.load(Ordering::Acquire);
        if is_closed(gate) {
            return None;
        }
        // SAFETY: swap.W1 - announced while open: no swap frees it before `announced` is dropped.
        Some((announced, unsafe { &(*gate).0 }))
    }

    #[cold]
    #[inline(never)]
    fn call_slow<R>(&self, call: impl FnOnce(&F) -> R) -> R {
        let mut backoff = Backoff::new();
        loop {
            let depth = assert_may_call();
            // BUG: a thread inside a call waits at a closed object as all others do (cluster.H2).
            let is_insider = depth > 0 && !seeded_bug!("unadmitted-insider");
            // After the thread's destructors there is no slot to announce in.
            if is_insider || percpu::own_slot().is_none() {
                if self.rest.door.admit() {
                    let _counted = Counted { door: &self.rest.door, _depth: calls::deeper() };
                    // ORDER: Acquire; as in `enter_announced`. The count, too, was read with
                    // Acquire.
                    let gate = self.gate.load(Ordering::Acquire);
                    // SAFETY: admission.W2 - not sealed before this call is counted out, so no
                    // swapper exchanges it.
                    return call(unsafe { &(*top_of(gate)).0 });
                }
            // Looks before the announcement, which would delay the swapper.
            // ORDER: Relaxed; looked at again below.
            } else if !is_closed(self.gate.load(Ordering::Relaxed)) {
                if let Some((_announced, top)) = self.enter_announced() {
                    return call(top);
                }
            }
            if !self.rest.transfer.help() {
                backoff.pause();
            }
        }
    }
}
