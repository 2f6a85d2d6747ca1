//! The end of an object, and the methods of its exclusive owner.

use super::Adaptive;
use super::access::poisoned;
use crate::oplog::Log;
use crate::sync::{self, Ordering, panicking};
use std::mem::ManuallyDrop;
use std::ptr;

impl<T: Send + Sync + 'static, L: Log<T>> Adaptive<T, L> {
    /// Applies the deferred updates, unless the object is poisoned. With `&mut`, there are no
    /// readers and no holders.
    fn settle(&mut self) {
        let _: &mut T = self.object.get_mut();
        let Some(side) = self.side_state() else { return };
        while side.late_count() > 0 {
            let Ok((mut hold, _)) = self.object.lock_cold(true) else { return };
            if hold.is_poisoned() {
                return;
            }
            side.apply_late(&mut hold);
        }
    }

    /// The value, up to date. Cheap, because `&mut self` is exclusive.
    ///
    /// A poisoned object's value is as the panic left it; its deferred updates stay deferred (see
    /// [`repair`](Self::repair)).
    ///
    /// # Panics
    /// If an update panics while it is applied; the object is poisoned then.
    pub fn get_mut(&mut self) -> &mut T {
        self.settle();
        self.object.get_mut()
    }

    /// The value, up to date.
    ///
    /// # Panics
    /// If the object is poisoned, or an update panics while it is applied: then the value and the
    /// deferred updates are dropped. [`try_into_inner`](Self::try_into_inner) keeps them.
    #[must_use]
    pub fn into_inner(self) -> T {
        match self.try_into_inner() {
            Ok(value) => value,
            Err(object) => {
                drop(object);
                poisoned()
            }
        }
    }

    /// The value, up to date, unless the object is poisoned.
    ///
    /// # Errors
    /// The object, if it is poisoned, with its deferred updates: see [`repair`](Self::repair).
    ///
    /// # Panics
    /// If an update panics while it is applied: the value and the updates after it are dropped.
    pub fn try_into_inner(mut self) -> Result<T, Self> {
        self.settle();
        if self.is_poisoned() {
            return Err(self);
        }
        let mut this = ManuallyDrop::new(self);
        this.free_side_state();
        // SAFETY: `this` is not used again and not dropped; the side state is gone.
        Ok(unsafe { ptr::read(&raw const this.object) }.into_inner())
    }

    fn free_side_state(&mut self) {
        // ORDER: Relaxed; `&mut self` orders everything.
        let side = self.side_state.swap(ptr::null_mut(), Ordering::Relaxed);
        if !side.is_null() {
            // SAFETY: from a box, and `&mut self` is exclusive.
            drop(unsafe { Box::from_raw(side) });
        }
    }
}

impl<T: Send + Sync + 'static, L: Log<T>> Drop for Adaptive<T, L> {
    /// Applies the deferred updates, then drops the value. If an update panics, the value is
    /// dropped first and the panic is resumed (unless the thread is unwinding already).
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        // In an eviction by this thread, the remaining work is the evictor's, and with logs nothing
        // is deferred (adaptive.A12).
        let is_evicted_here = self.object.is_in_own_eviction();
        let settled = if is_evicted_here { Ok(()) } else { sync::caught(|| self.settle()) };
        self.free_side_state();
        if let (Err(panic), false) = (settled, panicking()) {
            std::panic::resume_unwind(panic);
        }
    }
}
