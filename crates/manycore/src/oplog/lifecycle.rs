//! The life of a core: promotion, demotion, and the drop of an object.
//!
//! Laws oplog.W1 to oplog.W3 are in the header of `deferred`.

use super::Deferred;
use super::builder::{Config, Publish, Slots};
use super::core::Core;
use super::deferred::{LOGGED, POISONED};
use super::guard::ReadGuard;
use super::hold::ColdHold;
use super::log::Log;
use super::promotion::{self, Word};
use super::table::Eviction;
use crate::lock::{self, LOCKED};
use crate::percpu::{self, barrier};
use crate::sync::{self, AtomicUsize, MutPtr, Ordering, Panic, seeded_bug};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Promotes the cold object that `hold` has locked, and releases the lock.
    #[cold]
    pub(super) fn promote_held(&self, hold: ColdHold<'_, T, L>, admission: Admission) -> bool {
        let eviction = self.publish_core(&hold, admission);
        drop(hold);
        let admitted = eviction.is_some();
        drop(eviction); // runs the victim's updates, now that this thread holds no lock
        admitted
    }

    /// A core for this object, locked by `token`, and the word that leads to it.
    fn new_core(&self, token: usize) -> (*mut Core<T, L>, Word) {
        let config: Arc<Config> = self.config.config();
        // `Auto` starts biased, too: only a read switches, and an object may never be read.
        let wanted = config.publish != Publish::Locked || config.slots == Slots::Cpu;
        let biased = wanted && barrier::is_asymmetric();
        let core = Core::<T, L>::new_locked(config, token, biased);
        // SAFETY: made just above.
        let slow_path = unsafe { (*core).needs_slow_path() };
        (core, Word::hot(core, biased, slow_path))
    }

    /// Publishes a core for the object that is cold and locked by this thread, unless another
    /// thread has done so first (oplog.W2). `None`: the table has no place for it.
    pub(super) fn publish_core(
        &self,
        _hold: &ColdHold<'_, T, L>,
        admission: Admission,
    ) -> Option<Option<Eviction>> {
        let (core, word) = self.new_core(percpu::thread_token());
        let eviction = match admission {
            Admission::Bypass => None,
            _ => {
                // SAFETY: not published yet, so this thread has exclusive access to the core.
                match unsafe { (*core).enter_table(admission == Admission::Insist) } {
                    Ok(eviction) => Some(eviction),
                    Err(_) => {
                        // SAFETY: made above by `Box::into_raw` (`new_core`), and neither published
                        // nor in the table.
                        drop(unsafe { Box::from_raw(core) });
                        return None;
                    }
                }
            }
        };
        if self.publish(core, word) {
            return Some(eviction);
        }
        // Another thread has published a core first, without a place (oplog.T1).
        // SAFETY: published nowhere but in the table, which it leaves here.
        unsafe {
            (*core).leave_table();
            drop(Box::from_raw(core));
        }
        Some(eviction)
    }

    /// Gives logs to an object whose word is locked by another thread or by this one: for an update
    /// that must not wait (oplog.W2). Does nothing if the word is not locked, or the object has
    /// logs.
    pub(super) fn publish_for_holder(&self) {
        let (core, word) = self.new_core(0);
        if !self.publish(core, word) {
            // SAFETY: made above by `Box::into_raw` (`new_core`), and neither published nor in the
            // table.
            drop(unsafe { Box::from_raw(core) });
        }
    }

    fn publish(&self, core: *mut Core<T, L>, word: Word) -> bool {
        // SAFETY: not published yet; at most the table leads to the core, and evictors only try its
        // lock.
        let lock = unsafe { &(*core).lock };
        // ORDER: Relaxed; published with the core.
        let in_name_of = |token| lock.store(token | LOCKED, Ordering::Relaxed);
        let published = lock::redirect(&self.word, word.raw(), in_name_of);
        if published {
            // ORDER: Relaxed; a hint.
            self.heat.fetch_or(LOGGED, Ordering::Relaxed);
        }
        published
    }

    /// Makes the object that `guard` holds cold, if it is hot and not poisoned. If an update that
    /// must not wait comes in between, the object stays hot, with that update queued.
    pub(super) fn demote_guard(&self, guard: &mut ReadGuard<'_, T, L>) {
        let core = guard.core;
        if core.is_null() {
            return;
        }
        guard.value = None;
        let revive = Revive { core };
        // SAFETY: the guard holds the core's lock, so it is alive.
        if unsafe { self.close(&*core) } {
            std::mem::forget(revive);
            // SAFETY: oplog.W3 - `close` returned true, this thread holds the core's lock, and the
            // guard's reference to the value is gone.
            unsafe { self.abandon(core) };
            guard.core = ptr::null();
            guard.value = Some(self.value.get_mut());
        } else {
            drop(revive);
            // SAFETY: oplog.W3 - the core was not closed, so the object keeps it, and the guard
            // still holds its lock.
            guard.value = Some(unsafe { (*core).value.get_mut() });
        }
    }

    /// Excludes updaters and applies everything. Returns whether the core may be freed.
    ///
    /// # Safety
    /// This thread holds the core's lock.
    pub(super) unsafe fn close(&self, core: &Core<T, L>) -> bool {
        // ORDER: Relaxed; only the lock's holder changes a HOT word.
        let word = Word::load(&self.word, Ordering::Relaxed);
        debug_assert!(ptr::eq(word.state(), core), "oplog.W1: the object has another core");
        // ORDER: Release; `drain_all` passes the barrier before it looks at the updaters.
        self.word.store(word.closing().raw(), Ordering::Release);
        let reopen = Reopen { word: &self.word, to: word };
        // SAFETY: the lock is held, and CLOSING keeps new updaters out.
        let drained = unsafe {
            core.drain_all();
            // BUG: a core is freed whatever its queue of late updates holds (oplog.L5's late
            // updates).
            !core.has_carry() && (core.late.seal() || seeded_bug!("unsealed-late"))
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
        // SAFETY: the core is alive until this function frees it at its end (oplog.W3).
        let held = unsafe { &*core };
        // ORDER: Relaxed (both); guarded by the core's lock.
        debug_assert!(held.has_value.load(Ordering::Relaxed), "oplog.W1: the value is elsewhere");
        debug_assert!(!held.closed.load(Ordering::Relaxed), "oplog.W3: a core is given up twice");
        // SAFETY: oplog.W1 - the value is in the core and guarded by its lock.
        unsafe {
            held.value.with(|from| self.value.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        // ORDER: Relaxed (all); guarded by the core's lock.
        held.has_value.store(false, Ordering::Relaxed);
        held.closed.store(true, Ordering::Relaxed);
        let poisoned = if held.poisoned.load(Ordering::Relaxed) { POISONED } else { 0 };
        self.heat.store(poisoned, Ordering::Relaxed);
        // ORDER: Release; the value before the word that makes it inline.
        self.word.store(percpu::thread_token() | LOCKED, Ordering::Release);
        // SAFETY: oplog.W3 - this thread holds the lock, and the core is freed below only after its
        // waiters have left: they wake one by one, find `closed` set, and leave.
        unsafe { lock::unlock(&raw const held.lock, 0) };
        held.leave_table();
        promotion::wait_until_left(core);
        // SAFETY: oplog.W3 - no thread can reach it any more; it came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(promotion::freed_by(core)) });
    }

    /// Whether this thread is running an eviction of this very object further up the stack
    /// (oplog.W4).
    pub(crate) fn is_in_own_eviction(&mut self) -> bool {
        // ORDER: Relaxed (both); `&mut self`, and a thread sees its own claim.
        let word = Word::load(&self.word, Ordering::Relaxed);
        if !word.is_hot() {
            return false;
        }
        // SAFETY: oplog.W3 - the object has this core.
        let core = unsafe { &*word.state::<Core<T, L>>() };
        // An evictor holds the lock and the claim while it runs user code.
        lock::is_held_by(&core.lock, percpu::thread_token()) && core.membership.is_claimed()
    }

    #[track_caller]
    pub(super) fn assert_not_in_own_eviction(&mut self) {
        assert!(
            !self.is_in_own_eviction(),
            "manycore: an object was taken apart from within its own updates or logs"
        );
    }

    /// Leaves the value and the core to the evictor up the stack (oplog.W4).
    pub(super) fn leave_to_evictor(&mut self) {
        // ORDER: Relaxed (all); the evictor is this very thread.
        let word = Word::load(&self.word, Ordering::Relaxed);
        debug_assert!(word.is_open(), "oplog.W4: an end within the eviction of a cold object");
        self.word.store(0, Ordering::Relaxed);
        // SAFETY: oplog.W4 - the evictor, further up this stack, frees it after this has returned.
        let core = unsafe { &*word.state::<Core<T, L>>() };
        debug_assert!(core.has_value.load(Ordering::Relaxed), "oplog.W2: its lock has been free");
        core.orphaned.store(true, Ordering::Relaxed);
    }

    /// Brings the object, to which no other thread has access, up to date, and makes it cold;
    /// unless it is poisoned and updates are queued: then these stay, and the value stays in the
    /// core. An update's panic is returned after the object is in a consistent state (oplog.D11).
    pub(super) fn settle_down(&mut self) -> Result<(), Panic> {
        // ORDER: Relaxed (all); `&mut self` orders everything.
        let word = Word::load(&self.word, Ordering::Relaxed);
        if !word.is_hot() {
            self.word.store(0, Ordering::Relaxed); // at most locked by a guard that was leaked
            return Ok(());
        }
        let raw: *mut Core<T, L> = word.state();
        // SAFETY: oplog.W3 - the object has this core. `&mut self`: except an evictor, no other
        // thread can reach it.
        let core = unsafe { &*raw };
        core.leave_table(); // waits for that evictor
        core.lock.store(0, Ordering::Relaxed); // held at most by a guard that was leaked
        if !core.has_value.load(Ordering::Relaxed) {
            // Promoted under a guard that was leaked, so the promotion was not finished (oplog.W2).
            // SAFETY: oplog.W2 - the value is inline still, and `&mut self` is exclusive.
            unsafe { self.move_in(core) };
        }
        // SAFETY: `&mut self`, and `leave_table` has waited for the evictor: no other thread takes
        // the lock or announces the core, so none is inside and none will be.
        let drained = sync::caught(|| unsafe { core.drain_all() });
        // SAFETY: `&mut self`, and the core has left the table: no other thread takes its lock.
        if unsafe { core.has_carry() } || !core.late.is_empty() || core.has_dirty() {
            // SAFETY: `&mut self`, and the core has left the table: no other thread takes its lock.
            unsafe { core.revive() };
            return drained;
        }
        self.word.store(0, Ordering::Relaxed);
        let poisoned = core.poisoned.load(Ordering::Relaxed);
        self.heat.store(if poisoned { POISONED } else { 0 }, Ordering::Relaxed);
        // SAFETY: oplog.W1 - the value is in the core, which is freed without dropping it.
        unsafe {
            core.value.with(|from| self.value.with_mut(|to| ptr::copy_nonoverlapping(from, to, 1)));
        }
        // SAFETY: oplog.W3 - the word and the table no longer lead to the core, and it came from
        // `Box::into_raw`.
        drop(unsafe { Box::from_raw(raw) });
        drained
    }

    /// The value, after [`settle_down`](Self::settle_down): inline, or in the core that stayed.
    pub(super) fn settled_value(&mut self) -> MutPtr<MaybeUninit<T>> {
        // ORDER: Relaxed; `&mut self`.
        let word = Word::load(&self.word, Ordering::Relaxed);
        if !word.is_hot() {
            return self.value.get_mut();
        }
        // SAFETY: oplog.W3 - the object has this core.
        unsafe { (*word.state::<Core<T, L>>()).value.get_mut() }
    }

    /// Moves the value out for good, and frees the core, if there is one, with its queued updates.
    ///
    /// # Safety
    /// `settle_down` ran, and the object is not used again.
    pub(super) unsafe fn take_value(&mut self) -> T {
        // SAFETY: oplog.W1 - `settled_value` is where the value is, and it is not used there again.
        let value = self.settled_value().with(|value| unsafe { ptr::read(value).assume_init() });
        // ORDER: Relaxed; `&mut self`.
        let word = Word::load(&self.word, Ordering::Relaxed);
        self.word.store(0, Ordering::Relaxed);
        if word.is_hot() {
            // SAFETY: it has left the table (`settle_down`); no other thread can reach it.
            drop(unsafe { Box::from_raw(word.state::<Core<T, L>>()) });
        }
        value
    }
}

/// How a promotion asks for a place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Do not promote now if the place is in use.
    Ask,
    /// Evict the object that has the place.
    Insist,
    /// Promote without a place: the update can't be kept otherwise. The next read asks (oplog.T1).
    Bypass,
}

/// Lets an evicted core have logs again if it can't be freed, also when user code panics.
struct Revive<T: Send + 'static, L: Log<T>> {
    core: *const Core<T, L>,
}

impl<T: Send + 'static, L: Log<T>> Drop for Revive<T, L> {
    fn drop(&mut self) {
        // SAFETY: the function that made this `Revive` holds the core's lock until after its drop.
        unsafe { (*self.core).revive() };
    }
}

/// Clears CLOSING if the core stays.
struct Reopen<'a> {
    word: &'a AtomicUsize,
    to: Word,
}

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        // ORDER: Release; as `set_biased`.
        self.word.store(self.to.raw(), Ordering::Release);
    }
}
