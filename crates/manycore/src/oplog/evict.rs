//! Eviction: the logs of a hot state are freed because another object needs its place, or because
//! it has been idle.
//!
//! Runs in a thread that promotes another object (the newcomer), with the hot state's lock held and
//! without access to the victim, which may be moved at any time. So the value stays in the hot
//! state until the victim's next use, which demotes it. The eviction frees what only an object with
//! logs needs (`log_set`).

use super::hot_state::HotState;
use super::log::Log;
use super::promotion::{self, Membership};
use super::table::Evictable;
use crate::lock::{self, held};
use crate::percpu;
use crate::sync;

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Lets an evicted hot state have logs again, because it can't be freed.
    ///
    /// # Safety
    /// The caller holds the hot state's lock.
    pub(super) unsafe fn revive(&self) {
        if self.is_evicted() {
            self.logs(); // the log set exists before the gate is open (oplog.C10)
            self.gate.revive();
        }
    }

    /// Frees the logs of a hot state whose lock `try_claim` has taken. Never unwinds.
    fn evict(&self) {
        self.gate.evict();
        // A panic here is the *victim's*: it must not unwind the newcomer's thread. The victim is
        // poisoned, its updates stay queued, and its next reader finds it poisoned (oplog.D7).
        let collected = sync::caught(|| {
            // SAFETY: the lock is held and the gate closed for good.
            let _merging = unsafe { self.begin_merging() };
            // SAFETY: oplog.C7 - the lock is held, and the gate says `EVICTED`: updaters that
            // announce the hot state from now on touch no log.
            unsafe { self.collect_all() };
        });
        if let Err(panic) = collected {
            sync::contain(|| drop(panic));
            self.poison();
            // Updates are still in the logs, so these stay until the next read (oplog.T1).
            // SAFETY: `try_claim` has taken the hot state's lock, which `finish_eviction` releases
            // after this.
            return unsafe { self.revive() };
        }
        sync::contain(|| {
            // SAFETY: `try_claim` has taken the hot state's lock, which `finish_eviction` releases
            // after this.
            let _merging = unsafe { self.begin_merging() };
            // SAFETY: the lock is held, which guards `inner` and the value; user code that runs in
            // here finds `inner` closed (`begin_merging`).
            self.logs().inner.with_mut(|inner| unsafe { self.apply(&mut *inner) });
        });
        // SAFETY: the lock is held, and the collection has waited for the updaters.
        unsafe {
            self.count(|counts| counts.evictions += 1);
            self.free_logs();
        }
        self.late.trim();
    }
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Applies the remaining updates of an object that was dropped, and frees its value and its hot
    /// state (oplog.W4). Never unwinds: this thread is none of the object's users.
    ///
    /// # Safety
    /// `hot` came from `Box::into_raw`, and nothing else refers to it.
    unsafe fn bury(hot: *mut Self) {
        // SAFETY: oplog.W4 - the caller promises that nothing else refers to the hot state (#
        // Safety): its lock has no other taker, and no updater can announce it.
        sync::contain(|| unsafe { (*hot).drain_all() });
        // SAFETY: oplog.W4 - the caller promises that nothing else refers to the hot state (#
        // Safety).
        let value = unsafe { (*hot).take_value() };
        sync::contain(|| drop(value));
        // SAFETY: the caller promises a hot state from `Box::into_raw` to which nothing else refers
        // (# Safety), and this is its last use.
        sync::contain(|| drop(unsafe { Box::from_raw(hot) }));
    }
}

impl<T: Send + 'static, L: Log<T>> Evictable for HotState<T, L> {
    const RUNS_USER_CODE: bool = true;

    fn try_claim(&self) -> bool {
        let free = lock::try_lock(&self.lock, percpu::thread_token()).is_ok();
        if free {
            self.membership.claim();
        }
        free
    }

    fn activity(&self) -> u64 {
        // oplog.T2: the hot state is in the table, so no thread has begun to free its logs.
        self.appended()
    }

    unsafe fn finish_eviction(this: *const Self) {
        // SAFETY: `try_claim` took the hot state's lock, so the hot state lives until `unlock`
        // below.
        unsafe { (*this).evict() };
        // SAFETY: `try_claim` took the hot state's lock and it is claimed, so the hot state lives
        // until both are released below; an orphaned one (oplog.W4) until `bury`.
        if unsafe { (*this).is_orphaned() } {
            held::leave();
            // SAFETY: oplog.W4 - the object was dropped, and has left value and hot state to this
            // eviction.
            return unsafe { Self::bury(promotion::freed_by(this)) };
        }
        // SAFETY: locked by `try_claim`; the claim keeps the hot state alive until it ends.
        unsafe {
            lock::unlock(&raw const (*this).lock, 0);
            Membership::end_claim(&raw const (*this).membership);
        }
    }
}
