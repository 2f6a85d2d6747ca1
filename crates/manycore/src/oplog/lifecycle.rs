//! The life of a core: promotion, demotion, and the end of an object.
//!
//! Laws W1 to W3 are in the header of `deferred`.

use super::Deferred;
use super::builder::{Config, Publish, Slots};
use super::core::{BIASED, CLOSING, Core, address_of};
use super::deferred::{LOGGED, POISONED};
use super::guard::ReadGuard;
use super::hold::ColdHold;
use super::log::Log;
use super::table::Eviction;
use crate::lock::{self, HOT, LOCKED};
use crate::percpu::{self, barrier};
use crate::sync::{AtomicUsize, Ordering};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Promotes the cold object that `hold` has locked, and gives the lock up.
    #[cold]
    pub(super) fn promote_held(&self, hold: ColdHold<'_, T, L>, admission: Admission) -> bool {
        let eviction = self.publish_core(&hold, admission);
        drop(hold);
        let admitted = eviction.is_some();
        drop(eviction); // runs the victim's updates, now that no lock of ours is held
        admitted
    }

    /// Publishes a core for the object that is cold and locked by this thread (W2).
    pub(super) fn publish_core(
        &self,
        _hold: &ColdHold<'_, T, L>,
        admission: Admission,
    ) -> Option<Option<Eviction>> {
        // ORDER: Relaxed; the word is locked by this thread. A second core would hide the first.
        assert!(self.word.load(Ordering::Relaxed) & HOT == 0, "manycore: promoted twice");
        let token = percpu::thread_token();
        let config: Arc<Config> = self.config.config();
        // `Auto` begins biased too: an object that is never read would never learn that it should
        // be.
        let wanted = config.publish != Publish::Locked || config.slots == Slots::Cpu;
        let biased = wanted && barrier::is_asymmetric();
        let core = Core::<T, L>::new_locked(config, token, biased);
        let eviction = match admission {
            Admission::Bypass => None,
            _ => match core.table().enter(&raw const *core, admission == Admission::Insist) {
                Ok(eviction) => {
                    // SAFETY: this thread has the core to itself, and its lock.
                    unsafe { core.count(|counts| counts.placed = true) };
                    Some(eviction)
                }
                Err(_) => return None,
            },
        };
        let flags = core.flags() | if biased { BIASED } else { 0 };
        let word = Box::into_raw(core) as usize | flags;
        // ORDER: Relaxed; a hint.
        self.heat.fetch_or(LOGGED, Ordering::Relaxed);
        // SAFETY: the word is locked by this thread. The core's lock takes over.
        unsafe { lock::unlock(&self.word, word) };
        Some(eviction)
    }

    /// Makes the object that `guard` holds cold, if it is hot and not poisoned.
    pub(super) fn demote_guard(&self, guard: &mut ReadGuard<'_, T, L>) {
        let core = guard.core;
        if core.is_null() {
            return;
        }
        guard.value = None;
        // SAFETY: the guard holds the core's lock, so it is alive.
        let held = unsafe { &*core };
        // SAFETY: the lock is held.
        if unsafe { self.close(held) } {
            // SAFETY: closed, drained, and held by this thread; nothing else refers to the value.
            unsafe { self.abandon(core) };
            guard.core = ptr::null();
            guard.value = Some(self.value.get_mut());
        } else {
            // SAFETY: the lock is held.
            unsafe { held.revive() };
            guard.value = Some(held.value.get_mut());
        }
    }

    /// Shuts updaters out and applies everything. Returns whether the core may be given up.
    ///
    /// # Safety
    /// This thread holds the core's lock.
    pub(super) unsafe fn close(&self, core: &Core<T, L>) -> bool {
        // ORDER: Relaxed; only the lock's holder changes a HOT word.
        let word = self.word.load(Ordering::Relaxed);
        // ORDER: Release; `drain_all` passes the barrier before it looks at the updaters.
        self.word.store(word | CLOSING, Ordering::Release);
        let reopen = Reopen { word: &self.word, to: word };
        // SAFETY: the lock is held, and CLOSING keeps new updaters out.
        let drained = unsafe {
            core.drain_all();
            !core.has_carry()
        };
        if drained {
            std::mem::forget(reopen);
        }
        drained
    }

    /// Moves the value back, leaves the word cold and locked by this thread, and frees the core.
    ///
    /// # Safety
    /// This thread holds the core's lock, and `close` returned true.
    pub(super) unsafe fn abandon(&self, core: *const Core<T, L>) {
        // SAFETY: the core is alive until this function frees it, last thing (W3).
        let held = unsafe { &*core };
        // SAFETY: W1 - the value is in the core and guarded by its lock.
        unsafe {
            held.value.with(|from| self.value.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        // ORDER: Relaxed (all); guarded by the core's lock.
        held.has_value.store(false, Ordering::Relaxed);
        held.closed.store(true, Ordering::Relaxed);
        let poisoned = if held.poisoned.load(Ordering::Relaxed) { POISONED } else { 0 };
        self.heat.store(poisoned, Ordering::Relaxed);
        // ORDER: Release; the value before the word that says where it is.
        self.word.store(percpu::thread_token() | LOCKED, Ordering::Release);
        // SAFETY: held by this thread. Waiters wake one by one, see `closed`, and leave.
        unsafe { lock::unlock(&raw const held.lock.0, 0) };
        held.leave_table();
        // Between the word's change and the look at the records; pairs with `announce`.
        barrier::fence_full();
        held.wait_until_unannounced();
        // SAFETY: W3 - nobody can reach it any more; it came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(core.cast_mut()) });
    }

    /// Makes the object cold and up to date, with no other thread at it. An update's panic comes
    /// back after everything is in its place.
    pub(super) fn settle_down(&mut self) -> Result<(), Box<dyn Any + Send>> {
        // ORDER: Relaxed (all); `&mut self` orders everything.
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
        self.heat.fetch_and(!LOGGED, Ordering::Relaxed);
        if word & HOT == 0 {
            return Ok(()); // at most locked by a guard that was leaked
        }
        // SAFETY: W3 - `&mut self`: an evictor apart (`leave_table` waits for it), nobody else can
        // reach the core. Its lock is held at most by a guard that was leaked.
        let core = unsafe { Box::from_raw(address_of(word) as *mut Core<T, L>) };
        core.leave_table();
        if !core.has_value.load(Ordering::Relaxed) {
            // Promoted under a guard that was leaked, so nobody finished that (W2).
            // SAFETY: W2 - the value is inline still, and `&mut self` is exclusive.
            unsafe { self.move_in(&core) };
        }
        // SAFETY: as above, which is more than the lock asks for.
        let drained = catch_unwind(AssertUnwindSafe(|| unsafe { core.drain_all() }));
        let poisoned = core.poisoned.load(Ordering::Relaxed);
        self.heat.store(if poisoned { POISONED } else { 0 }, Ordering::Relaxed);
        // SAFETY: W1 - the value is in the core, which is freed without dropping it.
        unsafe {
            core.value.with(|from| self.value.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        drained
    }
}

/// How a promotion asks the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Wait one's turn if the place is in use.
    Ask,
    /// Evict whoever has the place.
    Insist,
    /// Do not ask: the update has nowhere else to go. The next read asks (T1).
    Bypass,
}

/// Takes CLOSING back if the core stays.
struct Reopen<'a> {
    word: &'a AtomicUsize,
    to: usize,
}

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        // ORDER: Release; as `set_biased`.
        self.word.store(self.to, Ordering::Release);
    }
}
