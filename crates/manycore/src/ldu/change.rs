//! A change: an insertion or a removal of one member, from the member's word to its queue.
//!
//! ```text
//! change:  load epoch --> change the word, noting the epoch --> push? --> full fence --> return
//! read:    epoch = cut + 1 --> full fence --> look at queues and words
//! ```
//!
//! Why the epoch suffices for ldu.U6:
//! - *A change that the read misses.* The read looked at the word, or at the queue, before the
//!   change got there. So the read's fence comes before the change's fence, and whatever follows
//!   the change's return finds the raised epoch: it notes more than `cut`, and the read leaves it
//!   out.
//! - *A change that the read takes.* It found `cut` or less. So every change that had returned
//!   before this one began has its fence before the read's fence, and the read looks after that.
//! - *A late change*, which loaded the epoch long ago. If the read misses it, the first point
//!   covers it; if not, the second does. The word may have a higher epoch than the one that the
//!   change found; then the change takes the word's (ldu_word.M3 of `word`).

use super::links::{Linked, Links, links_of};
use super::queue::Stack;
use super::state::{EAGER, Held, State};
use super::structure::Structure;
use super::word::{Change, TOGGLE, Word};
use crate::clock::Clock;
use crate::config::{DEFAULT_GROWTH, SMALL};
use crate::lock::held;
use crate::percpu::barrier;
use crate::sync::{self, Ordering, seeded_bug};
use std::ptr::NonNull;

/// How far a queue grows over its bound while a reader holds the set.
pub(super) const GROWTH: u64 = if SMALL { 2 } else { DEFAULT_GROWTH as u64 };

impl<T: Structure<E>, E: Linked> State<T, E> {
    /// Makes a change and returns the new word. If the member is in that state already, returns
    /// `Err` with the word.
    ///
    /// # Safety
    /// ldu.U1, ldu.U3: `member` is alive, is in no queue of another set, its owner makes one change
    /// at a time, and its memory is held until a drain has let it go. If the change gives the
    /// member up, the member may be gone afterwards.
    #[inline(always)]
    pub(super) unsafe fn change(&self, member: NonNull<E>, change: Change) -> Result<Word, Word> {
        // SAFETY: the caller's promises are the same.
        unsafe { self.defer(member, change, self.epoch()) }
    }

    /// As [`change`](Self::change), for a set that may be eager.
    ///
    /// # Safety
    /// As [`change`](Self::change).
    #[inline(always)]
    pub(super) unsafe fn change_at_pace(
        &self,
        member: NonNull<E>,
        change: Change,
    ) -> Result<Word, Word> {
        let mut epoch = self.epoch();
        if epoch & EAGER != 0 {
            // SAFETY: ldu.U1, ldu.U3 - the caller promises a live member of its own, one change at
            // a time (# Safety).
            if let Some(word) = unsafe { self.change_eagerly(member, change) } {
                return Ok(word);
            }
            epoch &= !EAGER;
        }
        // SAFETY: the caller's promises are the same; nothing was done yet.
        unsafe { self.defer(member, change, epoch) }
    }

    #[inline(always)]
    pub(super) fn epoch(&self) -> u64 {
        // ORDER: Acquire; pairs with the Release in `raise`. The fences of the changes that came
        // before this one make it new enough (see the header).
        self.update_side.epoch.load(Ordering::Acquire)
    }

    /// Makes a change that found `epoch`.
    ///
    /// # Safety
    /// As [`change`](Self::change).
    #[inline(always)]
    unsafe fn defer(&self, member: NonNull<E>, change: Change, epoch: u64) -> Result<Word, Word> {
        // SAFETY: ldu.U3 - the caller promises that `member` is alive, and that its memory is held
        // until a drain has let it go (# Safety). After the change that gives the member up,
        // `marks` is not used.
        let (links, marks) = unsafe {
            let links = links_of(member);
            (links, &*links.as_ptr())
        };
        let mut word = marks.load_for_change();
        let next = loop {
            if word.is_attached() == (change == Change::Insert) {
                return Err(word);
            }
            // Nearly always true: then the new word need not be computed before the instruction.
            if word.is_plain(epoch) && matches!(change, Change::Insert | Change::Remove) {
                word = marks.toggle(change == Change::Insert);
                let next = word.after(change, 0);
                if word.is_queued() {
                    break next;
                }
                // A drain let the member go between the look and the toggle; no other thread has it
                // now.
                let toggled = Word(word.0 ^ TOGGLE);
                let queued = marks.change(toggled, toggled.queued_again());
                debug_assert!(
                    queued.is_ok(),
                    "queue.Q1: another thread changes a member in no queue"
                );
                break next;
            }
            let next = word.after(change, epoch);
            match marks.change(word, next) {
                Ok(()) => break next,
                Err(now) => word = now,
            }
        };
        // From here on the member may be gone, if it was queued and was given up.
        barrier::full_after_rmw();
        if !word.is_queued() {
            // SAFETY: queue.Q1 - this change made it queued.
            unsafe { self.push(links) };
        }
        Ok(next)
    }

    /// # Safety
    /// As [`Queues::push`].
    #[inline(never)]
    unsafe fn push(&self, links: NonNull<Links>) {
        // SAFETY: queue.Q1 - the caller promises that it made the member queued (# Safety); its
        // memory lives until a drain has let it go.
        let (pushed, overdue) = unsafe {
            self.update_side.queues.push(links, |stack, first| self.is_overdue(stack, first))
        };
        if pushed.len >= self.update_side.max_queued || overdue {
            self.relieve(pushed.len >= self.update_side.max_queued.saturating_mul(GROWTH));
        }
    }

    #[inline(always)]
    fn is_overdue(&self, stack: &Stack, first: bool) -> bool {
        if self.update_side.max_delay == u64::MAX {
            return false;
        }
        let now = Clock::system().ticks_now();
        if first {
            // ORDER: Relaxed (both); an estimate.
            stack.since.store(now, Ordering::Relaxed);
            return false;
        }
        now.saturating_sub(stack.since.load(Ordering::Relaxed)) > self.update_side.max_delay
    }

    /// Drains the set because a queue is at its bound: this change becomes the reader. A panic of
    /// the structure stays here; the poison tells the next reader.
    ///
    /// If the thread holds an object, or holds or shares a set (this one or another), it does not
    /// wait: the reader that it would wait for may wait for this thread. Its queue grows instead.
    #[cold]
    fn relieve(&self, wait: bool) {
        // BUG: a change of a set waits for the set's reader although its thread holds another set
        // (`ldu`).
        let wait = wait && (!held::is_inside() || seeded_bug!("waiting-holder"));
        if self.lock(wait).is_err() {
            return; // busy, or held by this thread: the queue grows
        }
        let mut held = Held { state: self, poison: false };
        sync::contain(|| {
            // SAFETY: the lock is held.
            unsafe { self.drain(true) };
        });
        let garbage = held.garbage();
        drop(held);
        sync::contain(|| sync::drop_each(garbage));
    }
}
