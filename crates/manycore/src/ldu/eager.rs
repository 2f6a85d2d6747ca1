//! Eager changes: applied under the set's lock, at once.
//!
//! For an owner that finds out whether they are faster. If reads are about as frequent as changes,
//! nothing cancels. Then a deferred change costs its queue and a reader's visit on top of the
//! structure's own work.
//!
//! Owns: the eager change, and the switch between the two. Does not own: when to switch, which the
//! set's owner decides in its reads.
//!
//! Laws:
//! - eager.E1 A set is *eager* while its lock is kept from sharers (rounds.V7). Only the lock's
//!   holder applies a change eagerly, and only if the set is then eager and not poisoned, and the
//!   member is in no queue. In every other case it is deferred, as usual. So an eager change never
//!   has to wait for anything, and the two kinds may mix.
//! - eager.E2 An eager change leaves the member's word as a deferred change would, after a drain
//!   has told the structure and let the member go (ldu_word.M1).
//!
//! Why reads stay linearizable (ldu.U6). An eager change takes effect under the lock. A read holds
//! the lock from before its cut to its end, since nothing is shared while a set is eager.
//! - Let a read see an eager change A. Then A released the lock before the read acquired it. So
//!   every deferred change that had returned before A began has its fence before the read's look at
//!   the queues.
//! - Let a deferred change D begin after an eager change A had returned, and let a read see D. If
//!   the read did not see A, A would have acquired the lock after the read released it, and D would
//!   have begun after that. So the read sees A.

use super::links::{Linked, links_of};
use super::pending::Look;
use super::set::DeferredSet;
use super::state::{EAGER, Held, State};
use super::structure::Structure;
use super::word::{Change, Word};
use crate::sync::{self, Ordering};
use std::ptr::NonNull;

/// Number of eager changes without a read after which the set stops being eager.
const UNREAD_MAX: u32 = 1024;

impl<T: Structure<E>, E: Linked> State<T, E> {
    /// Makes a change eagerly if eager.E1 admits that, and then returns the member's word.
    ///
    /// A panic of the structure is contained; the poison tells the next reader.
    ///
    /// # Safety
    /// As for [`change`](Self::change); the change does not give the member up.
    #[inline(never)]
    pub(super) unsafe fn change_eagerly(&self, member: NonNull<E>, change: Change) -> Option<Word> {
        if !self.read_side.rounds.lock_kept() {
            return None;
        }
        let mut held = Held { state: self, poison: false };
        // SAFETY: ldu.U3 - the caller promises that the member is alive, and makes one change of it
        // at a time.
        let marks = unsafe { &*links_of(member).as_ptr() };
        let word = marks.load();
        if self.is_poisoned() || word.is_queued() {
            return None;
        }
        let word = word.after_eager(change);
        marks.set(word);
        held.poison = true;
        sync::contain(|| {
            self.value.with_mut(|value| {
                // SAFETY: eager.E1 - the lock is held, and guards the structure. The member is in
                // no queue, and its owner, which is the caller, does not change its data now
                // (ldu.U4).
                unsafe {
                    match change {
                        Change::Insert => (*value).insert_at(member),
                        _ => (*value).remove_at(member),
                    }
                }
            });
            held.poison = false;
        });
        let unread = self.read_side.turn.with_mut(|turn| {
            // SAFETY: the lock is held, and guards it.
            let turn = unsafe { &mut *turn };
            turn.unread += 1;
            turn.unread
        });
        if unread >= UNREAD_MAX {
            self.set_eager(false);
        }
        Some(word)
    }

    /// Switches between eager and deferred changes. The caller alone has the structure.
    fn set_eager(&self, eager: bool) {
        if self.read_side.rounds.is_kept() != eager {
            self.read_side.rounds.keep(eager);
            let epoch = &self.update_side.epoch;
            // ORDER: Relaxed (load); written only under the lock. Release (store), as in `raise`;
            // this store leaves that epoch as it is. The bit is a hint: `change_eagerly` looks
            // again under the lock.
            let now = epoch.load(Ordering::Relaxed);
            epoch.store(if eager { now | EAGER } else { now & !EAGER }, Ordering::Release);
        }
    }

    /// Counts a read. Now and then calls `pace` with the structure. `pace` returns whether changes
    /// are to be eager, and after how many reads it wants to be called again.
    ///
    /// # Safety
    /// The caller alone has the structure, as in [`drain`](Self::drain).
    pub(super) unsafe fn set_pace(&self, pace: impl FnOnce(&mut T, Look) -> (bool, u32)) {
        let reads = self.read_side.turn.with_mut(|turn| {
            // SAFETY: the caller alone has the structure, and with it the turn (# Safety).
            let turn = unsafe { &mut *turn };
            (turn.reads, turn.unread) = (turn.reads + 1, 0);
            (turn.reads >= turn.next).then(|| std::mem::take(&mut turn.reads))
        });
        let Some(reads) = reads else { return };
        // SAFETY: the caller alone has the structure, and with it `pending` (# Safety).
        let visited = self.pending.with(|pending| unsafe { (*pending).visited });
        let look = Look { reads, visited, is_eager: self.read_side.rounds.is_kept() };
        // SAFETY: the caller alone has the structure (# Safety).
        let (eager, next) = self.value.with_mut(|value| pace(unsafe { &mut *value }, look));
        // SAFETY: the caller alone has the structure, and with it the turn (# Safety).
        self.read_side.turn.with_mut(|turn| unsafe { (*turn).next = next });
        self.set_eager(eager);
    }
}

impl<T: Structure<E>, E: Linked> DeferredSet<T, E> {
    /// Returns true if changes are to be tried eagerly; a hint.
    #[cfg(all(test, not(manycore_shuttle)))]
    pub(crate) fn is_eager(&self) -> bool {
        // ORDER: Relaxed; as in `set_eager`.
        self.state.update_side.epoch.load(Ordering::Relaxed) & EAGER != 0
    }

    /// As [`insert_raw`](Self::insert_raw), for a set that may be eager.
    ///
    /// # Safety
    /// As [`insert_raw`](Self::insert_raw).
    #[inline(always)]
    pub(crate) unsafe fn insert_at_pace(&self, member: NonNull<E>) {
        // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member of its own, in no other set.
        let changed = unsafe { self.state.change_at_pace(member, Change::Insert) };
        debug_assert!(changed.is_ok(), "ldu.U1: a member is inserted that is in the set");
    }

    /// As [`recycle_raw`](Self::recycle_raw), for a set that may be eager.
    ///
    /// # Safety
    /// As [`recycle_raw`](Self::recycle_raw).
    #[inline(always)]
    pub(crate) unsafe fn recycle_at_pace(&self, member: NonNull<E>) -> bool {
        // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member of its own, in this set, and
        // no use afterwards if the result is false.
        let changed = unsafe { self.state.change_at_pace(member, Change::Recycle) };
        debug_assert!(changed.is_ok(), "ldu.U1: a member is removed that is not in the set");
        changed.is_ok_and(Word::is_idle)
    }
}
