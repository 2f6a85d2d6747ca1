//! The reader's side: the cut, draining the queues, and what happens to each member.
//!
//! Everything here runs with the set's lock held.
//!
//! ```text
//! each queued member:  structure out of date at the cut?  tell it; let it go if nothing newer came
//!                      changed after the cut?             carry: the next read looks again
//!                      given up by its owner?             free it
//!                      changed in one of the last reads?  carry (drain.R3)
//!                      otherwise                          let it go
//! ```
//!
//! Laws:
//! - drain.R1 A queued member is in exactly one place: a queue, one of the lists of [`Pending`], or
//!   the hands of the drain that looks at it. A panic leaves it in a list.
//! - drain.R2 After a drain has let a member go, it does not touch the member (ldu.U3).
//! - drain.R3 If a member's changes since the last read came to nothing, the member stays queued,
//!   in `carry`, as long as it goes on changing. So its next changes need no push, and its queue's
//!   line stays where it is. The first read that finds it unchanged for some reads lets it go.
//! - drain.R4 While the set is poisoned, its structure is told nothing. Members that came and went
//!   leave the queues all the same, and are freed. So what waits is bounded by what is in the set,
//!   or was when the structure panicked.

use super::links::{Linked, Links, member_of};
use super::pending::Pending;
use super::state::{EAGER, State};
use super::structure::Structure;
use crate::config;
use crate::percpu::barrier;
use crate::sync::{AtomicBool, Ordering, seeded_bug};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

impl<T: Structure<E>, E: Linked> State<T, E> {
    /// Tells the structure everything that a read must see by the laws. With `keep`, busy members
    /// stay queued (drain.R3). In a poisoned set, members that the structure need not hear of are
    /// let go, and the rest stays queued (drain.R4).
    ///
    /// # Safety
    /// The caller alone has the structure: by the lock, taken by [`lock`](State::lock) or as the
    /// first by [`enter`](State::enter), or by `&mut self`.
    ///
    /// # Panics
    /// If the structure does. What it was not told yet stays queued, and the set is poisoned
    /// (ldu.U7).
    pub(super) unsafe fn drain(&self, keep: bool) {
        // SAFETY: the caller promises that it has the structure alone (# Safety).
        let _ = unsafe { self.drain_to(keep, false) };
    }

    /// As [`drain`](Self::drain), and returns the cut, or `None` if there was none. With `always`,
    /// makes a cut although no member has changed.
    ///
    /// # Safety
    /// As [`drain`](Self::drain).
    ///
    /// # Panics
    /// As [`drain`](Self::drain).
    pub(super) unsafe fn drain_to(&self, keep: bool, always: bool) -> Option<u64> {
        self.pending.with_mut(|pending| {
            // SAFETY: the lock is held, and guards `pending`.
            let pending = unsafe { &mut *pending };
            if self.is_poisoned() {
                // SAFETY: the caller promises that it has the structure alone (# Safety).
                unsafe { self.visit_all(pending, keep, false) };
                return None;
            }
            if self.read_side.rounds.is_kept() {
                // No reader waits for a round, and the lock was taken with a full fence.
                barrier::full_after_rmw();
                if !always && pending.is_clean() && self.update_side.queues.is_empty() {
                    return None;
                }
                pending.drains += 1;
                // SAFETY: the caller promises that it has the structure alone (# Safety).
                return Some(unsafe { self.visit_all(pending, keep, true) });
            }
            let round = self.read_side.rounds.begin();
            // A change that has returned has its member in a queue or here (drain.R1), and its
            // fence comes before the round's fence. So a look suffices, and no cut is needed.
            if !always && pending.is_clean() && self.update_side.queues.is_empty() {
                self.read_side.rounds.end(round);
                return None;
            }
            pending.drains += 1;
            // SAFETY: the caller promises that it has the structure alone (# Safety).
            let cut = unsafe { self.visit_all(pending, keep, true) };
            self.read_side.rounds.end(round);
            Some(cut)
        })
    }

    /// Makes a cut and looks at each queued member; tells the structure only with `tell`. Returns
    /// the cut.
    ///
    /// # Safety
    /// As [`drain`](Self::drain).
    unsafe fn visit_all(&self, pending: &mut Pending<E>, keep: bool, tell: bool) -> u64 {
        // ORDER: Relaxed; guarded by the lock. (It stays false if the structure panics.)
        self.read_side.is_clean.store(false, Ordering::Relaxed);
        let cut = self.raise();
        self.update_side.queues.take_all(&mut pending.chains);
        pending.old.append(&mut pending.carry);
        let mut visited = 0;
        while let Some(links) = pending.old.pop() {
            visited += 1;
            // SAFETY: drain.R1 - queued, so its memory is held.
            unsafe { self.visit(pending, links, cut, keep, tell) };
        }
        while let Some(links) = pending.chains.pop() {
            visited += 1;
            let next = || {
                // SAFETY: drain.R1 - queued, so its memory is held; `visit` comes later, planted
                // bugs apart (ldu.U3).
                let next = unsafe { &(*links.as_ptr()).next };
                // ORDER: Relaxed; shown by the Acquire of `take`.
                NonNull::new(next.load(Ordering::Relaxed))
            };
            // BUG: a drain reads where its queue goes on after it has let a member go (`ldu`,
            // ldu.U3).
            if seeded_bug!("next-after-clear") {
                // SAFETY: drain.R1 - queued, so its memory is held; it has just left `chains`.
                unsafe { self.visit(pending, links, cut, keep, tell) };
                pending.chains.extend(next());
                continue;
            }
            pending.chains.extend(next());
            // SAFETY: drain.R1 - queued, so its memory is held.
            unsafe { self.visit(pending, links, cut, keep, tell) };
        }
        pending.visited += visited;
        // ORDER: Relaxed; guarded by the lock.
        self.read_side.is_clean.store(pending.is_clean(), Ordering::Relaxed);
        cut
    }

    /// Begins a read: changes that begin from here on note more than the cut (ldu.U6). Returns the
    /// cut.
    fn raise(&self) -> u64 {
        // BUG: readers collect whatever they find, queue after queue or log after log: no cut
        // (`ldu`, ldu.U6; oplog.D2).
        if seeded_bug!("no-cut") {
            return u64::MAX;
        }
        // ORDER: Relaxed; written under the lock alone.
        let epoch = self.update_side.epoch.load(Ordering::Relaxed);
        // ORDER: a full fence after the store and before the looks; pairs with the fences in
        // `change` and `push`. Release, because a change that finds it goes on from here.
        let before = self.update_side.epoch.swap(epoch + 1, Ordering::SeqCst);
        debug_assert_eq!(before, epoch, "ldu.U6: two reads make a cut at a time");
        barrier::full_after_rmw();
        epoch & !EAGER
    }

    /// Looks at one queued member, which this drain has in hand.
    ///
    /// # Safety
    /// The lock is held, and the member is queued and in none of the lists.
    unsafe fn visit(
        &self,
        pending: &mut Pending<E>,
        links: NonNull<Links>,
        cut: u64,
        keep: bool,
        tell: bool,
    ) {
        // SAFETY: ldu.U3 - held while it is queued.
        let marks = unsafe { &*links.as_ptr() };
        marks.in_use();
        let mut word = marks.load();
        debug_assert!(word.is_queued(), "drain.R1: a drain has a member that is in no queue");
        loop {
            let there = word.at(cut);
            let next = if there != word.is_applied() {
                if !tell {
                    pending.carry.push(links); // drain.R4
                    return;
                }
                word.telling(there)
            } else if !word.is_settled() {
                pending.carry.push(links); // changed after the cut
                return;
            } else if word.is_dead() {
                // SAFETY: ldu_word.M4 - its owner has gone, and it is in no list any more.
                unsafe { pending.free(links) };
                return;
            } else if keep && word.changed_since(cut.saturating_sub(config::READS_KEPT)) {
                pending.carry.push(links); // drain.R3
                return;
            } else {
                word.let_go()
            };
            match marks.change(word, next) {
                Ok(()) if !next.is_queued() => return, // drain.R2
                Ok(()) => break,
                Err(now) => word = now,
            }
        }
        let there = word.at(cut);
        let mut telling =
            Telling { pending, links, poisoned: &self.read_side.poisoned, panics: true };
        self.value.with_mut(|value| {
            // SAFETY: the lock is held, and guards the structure. The member is held while it is
            // queued. Only its owner could change its data, and does not until the member is let go
            // (ldu.U4).
            unsafe {
                let (value, member) = (&mut *value, member_of::<E>(links));
                if there { value.insert_at(member) } else { value.remove_at(member) }
            }
        });
        telling.panics = false;
    }

    /// Lets go of everything without telling the structure, because the set is about to go.
    pub(super) fn abandon(&mut self) {
        self.pending.with_mut(|pending| {
            // SAFETY: `&mut self`.
            let pending = unsafe { &mut *pending };
            self.update_side.queues.take_all(&mut pending.chains);
            pending.old.append(&mut pending.carry);
            let mut last = Vec::new();
            while let Some(links) = pending.chains.pop() {
                // SAFETY: drain.R1 - queued, so its memory is held until the loop below lets it go.
                let next = unsafe { (*links.as_ptr()).next.load(Ordering::Relaxed) };
                pending.chains.extend(NonNull::new(next));
                last.push(links);
            }
            for links in last.into_iter().chain(pending.old.drain(..).collect::<Vec<_>>()) {
                // SAFETY: drain.R1 - queued, so its memory is held. No handle of it is left except
                // leaked ones: handles borrow the set.
                unsafe {
                    let marks = &*links.as_ptr();
                    let word = marks.load();
                    if word.is_dead() {
                        pending.free(links);
                    } else {
                        let _ = marks.change(word, word.let_go());
                    }
                }
            }
        });
    }

    /// Empties all queues for the last time. If the structure panics, the panic is returned after
    /// every member has been let go.
    pub(super) fn finish(&mut self) -> Result<(), Box<dyn Any + Send>> {
        let drained = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: `&mut self` is more than the lock.
            unsafe { self.drain(false) };
        }));
        if self.is_poisoned() {
            self.abandon();
        }
        drained
    }
}

/// Takes care of a member while the structure is told about it, also if the structure panics.
struct Telling<'a, E: Linked> {
    pending: &'a mut Pending<E>,
    links: NonNull<Links>,
    poisoned: &'a AtomicBool,
    panics: bool,
}

impl<E: Linked> Drop for Telling<'_, E> {
    fn drop(&mut self) {
        self.pending.applied += 1;
        if self.panics {
            // ORDER: Relaxed; guarded by the lock.
            self.poisoned.store(true, Ordering::Relaxed);
        }
        // SAFETY: queued, so its memory is held until the change below.
        let marks = unsafe { &*self.links.as_ptr() };
        let mut word = marks.load();
        let told = loop {
            let told = word.told();
            match marks.change(word, told) {
                Ok(()) => break told,
                Err(now) => word = now,
            }
        };
        if told.is_queued() {
            self.pending.carry.push(self.links);
        } else if told.is_dead() {
            // SAFETY: ldu_word.M4 - no other thread has it.
            unsafe { self.pending.free(self.links) };
        }
    }
}
