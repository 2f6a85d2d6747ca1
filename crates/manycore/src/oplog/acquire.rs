//! Acquiring an object: through its own lock while it is cold, and through its hot state's lock
//! while it is hot.
//!
//! Owns: taking either lock, and what a read does with it: it brings the object up to date, and
//! changes the object's state if a controller says so. Laws object.W1 to object.W3 are in the
//! header of `object`.

use super::contention::{Contention, Kind};
use super::guard::{Hold, Locked, ReadGuard};
use super::hot_state::HotState;
use super::log::Log;
use super::object::Deferred;
use super::promotion;
use crate::lock::{self, Refused, held, reservation};
use crate::percpu::{self, barrier};
use crate::profile::{self, EventKind, Of};
use crate::sync::{Backoff, seeded_bug};
use std::ptr;

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    /// Locks the object and brings it up to date (unless it is poisoned). Also changes its state if
    /// a policy says so.
    ///
    /// # Panics
    /// If the call would have to wait and the thread has a log in hand (`held`): the lock's holder
    /// might be waiting for that log.
    #[track_caller]
    pub(super) fn acquire(&self, wait: bool) -> Result<ReadGuard<'_, T, L>, Refused> {
        self.acquire_hold(wait).map(|hold| ReadGuard::of(self, hold))
    }

    /// As [`acquire`](Self::acquire), without access to the value, which readers may be inside.
    #[track_caller]
    pub(super) fn acquire_hold(&self, wait: bool) -> Result<Hold<T, L>, Refused> {
        match self.hold_cold().or_else(|| self.acquire_hot()) {
            Some(hold) => Ok(hold),
            None => self.acquire_slow(wait),
        }
    }

    /// As [`acquire_hold`](Self::acquire_hold), after the short paths have failed.
    #[track_caller]
    pub(super) fn acquire_slow(&self, wait: bool) -> Result<Hold<T, L>, Refused> {
        if percpu::has_log() {
            assert!(
                !wait,
                "manycore: an object was read from within Log::push or Log::absorb, where updates \
                 are allowed and reads are not"
            );
            return Err(Refused::Busy);
        }
        let mut backoff = Backoff::new();
        loop {
            if !self.word.hint().is_hot() {
                match self.lock_word(wait) {
                    Ok(()) => {
                        let contention = self.contention.load().unreserved().with(Kind::Read);
                        let is_due = contention.is_due(Kind::Read);
                        let seen = if is_due { self.looked_at(contention) } else { contention };
                        self.contention.store(seen);
                        return Ok(Hold::LOCKED);
                    }
                    Err(Refused::Hot) => continue,
                    Err(refused) => return Err(refused),
                }
            }
            match self.lock_hot_state(wait) {
                Ok(hot) => return Ok(self.merge_held(hot)),
                Err(Refused::Hot) => backoff.pause(),
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Takes the object's lock without bringing the object up to date; null means that it is cold.
    /// Fails if this thread holds it, or if the wait would be a deadlock.
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub(super) fn lock_as_it_is(&self) -> Result<Locked<'_, T, L>, Refused> {
        assert!(
            !percpu::has_log(),
            "manycore: an object is locked from within Log::push or Log::absorb, where updates are \
             allowed and this is not"
        );
        let mut backoff = Backoff::new();
        loop {
            let locked = if self.word.hint().is_hot() {
                self.lock_hot_state(true)
            } else {
                self.lock_word(true).map(|()| ptr::null())
            };
            match locked {
                Ok(hot) => return Ok(Locked::of(self, Hold::hot(hot))),
                Err(Refused::Hot) => backoff.pause(),
                Err(refused) => return Err(refused),
            }
        }
    }

    #[track_caller]
    pub(super) fn lock_word(&self, wait: bool) -> Result<(), Refused> {
        let token = percpu::thread_token();
        if wait {
            let of = Of::new(self.kind(), self);
            lock::lock_nested(self.lockable_word(), token, of, Some(self.contention.turns()))?;
        } else {
            lock::try_lock(self.lockable_word(), token)?;
        }
        held::enter();
        Ok(())
    }

    /// Takes the short path of a read: locks the object if it is cold, neither poisoned nor shared,
    /// and free or reserved for this thread.
    #[inline(always)]
    pub(super) fn hold_cold(&self) -> Option<Hold<T, L>> {
        let contention = self.contention.load();
        let token = percpu::thread_token();
        if contention.is_plain() {
            if !lock::try_lock_plain(self.word.raw(), token) {
                return None;
            }
            // Asked under the lock, which waits for the loads before it.
            let contention = self.contention.load();
            if !contention.is_plain() {
                self.let_go();
                return None;
            }
            if percpu::has_log() {
                self.let_go();
                return None;
            }
            held::enter();
            let contention = contention.with(Kind::Read);
            self.contention.store(contention);
            if contention.is_due(Kind::Read) {
                return Some(self.look());
            }
            return Some(Hold::LOCKED);
        }
        if !contention.is_reserved() || percpu::has_log() || !self.enter_reserved(token) {
            return None;
        }
        held::enter();
        Some(Hold::RESERVED)
    }

    /// Releases the word's lock, which this thread has just taken.
    #[cold]
    pub(super) fn let_go(&self) {
        drop(Locked::cold(self));
    }

    /// Returns true if a cold object that this thread has locked, and that is due, should be
    /// reserved for this thread.
    pub(super) fn wants_reservation(&self, contention: Contention) -> bool {
        contention.wants_reservation() && !profile::counts() // the profile needs to see each use
    }

    /// Returns the counts of a cold object that this thread has locked, after they were due.
    pub(super) fn looked_at(&self, contention: Contention) -> Contention {
        let next = contention.looked_at();
        let passed = |kind| u64::from(contention.count(kind) - next.count(kind));
        profile::operations(self.kind(), self, passed(Kind::Update), passed(Kind::Read));
        let reads = contention.is_due(Kind::Read) && contention.wants_readers();
        if reads && self.config.has_readers() { next.in_mode(true, false) } else { next }
    }

    /// Looks at the counts of the cold object, which are due, and may reserve the object. This
    /// thread holds the object's lock. Returns its hold from now on.
    #[cold]
    #[inline(never)]
    pub(super) fn look(&self) -> Hold<T, L> {
        let contention = self.contention.load();
        if self.wants_reservation(contention) {
            return self.reserve(contention);
        }
        self.contention.store(self.looked_at(contention));
        Hold::LOCKED
    }

    /// Reserves the object for this thread, which holds its lock, unless another thread waits for
    /// it. Returns its hold from now on.
    pub(super) fn reserve(&self, contention: Contention) -> Hold<T, L> {
        let reserves = barrier::is_asymmetric() && !barrier::is_denied();
        self.contention.store(contention.spent(reserves));
        let (word, token) = (self.word.raw(), percpu::thread_token());
        // A reader that finds the flag, and the word not reserved, takes the long path.
        Hold::cold(reserves && reservation::reserve_inside(word, &self.inside, token))
    }

    /// As [`hold_cold`](Self::hold_cold), in a guard.
    #[inline(always)]
    pub(crate) fn acquire_cold(&self) -> Option<ReadGuard<'_, T, L>> {
        self.hold_cold().map(|hold| ReadGuard::of_cold(self, hold))
    }

    /// Merges under the hot state's lock, which this thread has just taken.
    #[cold]
    #[inline(never)]
    fn merge_held(&self, hot: *const HotState<T, L>) -> Hold<T, L> {
        let release = Locked::of(self, Hold::hot(hot));
        // SAFETY: the lock is held, so the hot state is alive.
        let held = unsafe { &*hot };
        if !held.is_evicted() {
            // SAFETY: this thread has taken the hot state's lock, which `release` has.
            unsafe {
                held.merge();
                if let Some(biased) = held.wants_bias() {
                    self.set_biased(held, biased);
                }
            }
        }
        std::mem::forget(release);
        let contention = self.contention.load();
        // SAFETY: this thread has the hot state's lock.
        let idle = unsafe { held.wants_demotion() } && !self.keeps_logs(contention);
        // readers.A5: a shared object has logs for one update only.
        let is_over = contention.is_shared() || held.is_evicted() || held.is_without_place();
        self.end_read(hot, idle || is_over || self.config.never_logs())
    }

    fn keeps_logs(&self, contention: Contention) -> bool {
        self.config.always_logs() || contention.is_pinned()
    }

    /// Counts a read, and takes the object's logs away if they are no longer wanted.
    #[cold]
    #[inline(never)]
    fn end_read(&self, hot: *const HotState<T, L>, ends: bool) -> Hold<T, L> {
        let mut guard = ReadGuard::of(self, Hold::hot(hot));
        if ends {
            self.demote_guard(&mut guard);
        }
        if profile::counts() {
            let updates = guard.window().unwrap_or(0);
            profile::operations(self.kind(), self, updates, 1);
            profile::happened(EventKind::Merged, self.kind(), self, updates);
        }
        guard.into_hold()
    }

    /// Takes the short path of a read of an object with logs: takes the lock if it is free. Nearly
    /// always, it then finds updates only in the reader's own log.
    #[inline(always)]
    pub(super) fn acquire_hot(&self) -> Option<Hold<T, L>> {
        let word = self.word.load();
        // A thread with an idle slot has no log in hand.
        let slot = percpu::idle_slot().filter(|_| word.is_hot())?;
        // SAFETY: object.W3 - this is the object's word, and its hot states are freed only as
        // promotion.H4 allows.
        let hot =
            unsafe { promotion::enter_to_look::<HotState<T, L>>(slot, self.word.raw(), word) }?;
        hot.in_use();
        if !lock::try_lock_plain(&hot.lock, percpu::thread_token()) {
            return None;
        }
        fence_after_locking();
        let raw = ptr::from_ref::<HotState<T, L>>(&hot);
        drop(hot);
        held::enter();
        let release = Locked::of(self, Hold::hot(raw));
        let contention = self.contention.load();
        let is_plain = !contention.is_shared() && !self.config.never_logs() && !profile::counts();
        // SAFETY: this thread has taken the hot state's lock, so it is alive, and has no log in
        // hand.
        let merged = is_plain && unsafe { (*raw).merge_own() };
        std::mem::forget(release);
        if !merged {
            return self.merge_or_leave(raw);
        }
        // SAFETY: this thread still has the hot state's lock.
        if !self.keeps_logs(contention) && unsafe { (*raw).wants_demotion() } {
            return Some(self.end_read(raw, true));
        }
        Some(Hold::hot(raw))
    }

    /// As [`acquire_hot`](Self::acquire_hot), in a guard.
    #[inline(always)]
    pub(crate) fn acquire_hot_guard(&self) -> Option<ReadGuard<'_, T, L>> {
        self.acquire_hot().map(|hold| ReadGuard::of(self, hold))
    }

    /// Continues a read that needs more than [`merge_own`](HotState::merge_own). If the value has
    /// not come into the hot state yet (readers.A5), releases the lock instead.
    #[cold]
    #[inline(never)]
    fn merge_or_leave(&self, hot: *const HotState<T, L>) -> Option<Hold<T, L>> {
        let locked = Locked::of(self, Hold::hot(hot));
        // SAFETY: the lock is held, so the hot state is alive.
        if unsafe { (*hot).readers() }.is_some() {
            return None;
        }
        std::mem::forget(locked);
        Some(self.merge_held(hot))
    }

    /// Changes how updates publish. The caller holds the hot state's lock.
    fn set_biased(&self, hot: &HotState<T, L>, biased: bool) {
        self.word.set_bias(biased);
        if !biased {
            // An updater that announced under the bias may still have its announcement in a store
            // buffer. From here on readers pay no barrier that would flush it.
            barrier::heavy();
        }
        hot.note_bias(biased);
    }

    /// Takes the lock of the object's hot state. `Refused::Hot` means that the word has changed:
    /// load it again.
    #[track_caller]
    pub(super) fn lock_hot_state(&self, wait: bool) -> Result<*const HotState<T, L>, Refused> {
        let of = Of::new(self.kind(), self);
        let locked = self.with_hot_state(|hot, _| {
            let token = percpu::thread_token();
            if wait {
                lock::lock_nested(&hot.lock, token, of, None)?;
            } else {
                lock::try_lock(&hot.lock, token)?;
            }
            fence_after_locking();
            if let Err(refused) = self.part_from_readers(hot, wait) {
                // SAFETY: object.W3 - this thread has taken the lock just above, and the hot state
                // lives until its waiters have left.
                unsafe { lock::unlock(&hot.lock, 0) };
                return Err(refused);
            }
            held::enter();
            Ok(ptr::from_ref(hot))
        });
        locked.unwrap_or(Err(Refused::Hot))
    }

    /// Waits for the readers beside a hot state, if there are any, and moves the value into the hot
    /// state (readers.A5). This thread has just taken the hot state's lock.
    fn part_from_readers(&self, hot: &HotState<T, L>, wait: bool) -> Result<(), Refused> {
        let Some(readers) = hot.readers() else { return Ok(()) };
        // BUG: the value is moved while readers are inside (readers.A5).
        if !seeded_bug!("unparted-readers") {
            readers.close(wait)?;
        }
        // SAFETY: object.W1, readers.A2 - this thread has the lock, no reader is inside, and the
        // value was left in the object.
        unsafe { self.move_in(hot) };
        Ok(())
    }

    pub(super) fn is_held_by_this_thread(&self) -> bool {
        let token = percpu::thread_token();
        self.is_word_held_by(token)
            || self.with_hot_state(|hot, _| lock::is_held_by(&hot.lock, token)).unwrap_or(false)
    }
}

/// The full fence of a read, together with the lock of a hot state just before: oplog.D1, late.L2.
/// Pairs with those of `mark_dirty` and of `Late::push`.
#[inline(always)]
fn fence_after_locking() {
    // BUG: a reader looks for updates before its own earlier stores are visible (oplog.D1).
    if !seeded_bug!("unfenced-read") {
        barrier::full_after_rmw();
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use crate::config::USES_FOR_RESERVATION;
    use crate::oplog::{Commuting, Op};
    use crate::sync::thread;

    struct Add(u64);

    impl Op<u64> for Add {
        fn apply(self, sum: &mut u64) {
            *sum += self.0;
        }
    }

    /// Tests each state that a reader may find: free, reserved for the reader, and with logs.
    #[test]
    fn panic_of_a_reader_poisons_if_it_has_changed_the_value() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        for state in 0..3 {
            let sum = Deferred::<u64, Commuting<Add>>::new(7);
            match state {
                1 => (0..2 * USES_FOR_RESERVATION).for_each(|_| sum.synchronize()),
                2 => assert!(sum.promote()),
                _ => {}
            }
            let fails = |changes: bool| {
                let read = || {
                    let mut guard = sum.read();
                    assert_eq!(*guard, 7);
                    if changes {
                        *guard = 8;
                    }
                    panic!("planned");
                };
                assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
                sum.is_poisoned()
            };
            assert_eq!([fails(false), fails(true)], [false, true], "state {state}");
            sum.clear_poison();
            assert_eq!(*sum.read(), 8);
        }
    }

    #[test]
    fn reads_alone_reserve_an_object_and_another_thread_ends_that() {
        let sum = Deferred::<u64, Commuting<Add>>::new(7);
        (1..USES_FOR_RESERVATION).for_each(|_| assert_eq!(*sum.read(), 7));
        assert!(!sum.contention.load().is_reserved());
        let mut guard = sum.read();
        let is_reserved = sum.contention.load().is_reserved();
        assert_eq!(is_reserved, barrier::is_asymmetric() && !barrier::is_denied());
        *guard += 1;
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                sum.append(Add(2));
                *sum.read()
            });
            thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(*guard, 8, "an update under a reader");
            drop(guard);
            assert_eq!(other.join().unwrap(), 10);
        });
        assert_eq!(*sum.read(), 10);
    }
}
