//! The slow paths of an update: what it does if it can't append to its log at once.
//!
//! Owns: waiting for a collection, making room, and not waiting at all while the thread is inside
//! an object or log: the rules are in the header of the parent module.

use super::acquire::ColdHold;
use super::builder::WhenFull;
use super::hot_state::{ANY_GROWTH, Refusal};
use super::lifecycle::Admission;
use super::promotion::Word;
use super::{Deferred, Log};
use crate::lock::{self, Refused, held};
use crate::percpu;
use crate::profile::{Of, Wait};
use crate::sync::{self, Backoff, Ordering};

impl<T: Send + 'static, L: Log<T>> Deferred<T, L> {
    #[cold]
    #[track_caller]
    pub(super) fn append_slow(&self, op: L::Op, refusal: Refusal) {
        let done = self.append_while_logged(op, refusal);
        debug_assert!(done.is_ok(), "only a managed object gives updates back");
    }

    /// Retries until the update is done. For a managed object that has become cold, returns it.
    ///
    /// A thread that is inside (`held`) never waits here: the holder of the lock or log may be
    /// waiting for this thread, or be this thread.
    #[track_caller]
    pub(super) fn append_while_logged(
        &self,
        mut op: L::Op,
        mut refusal: Refusal,
    ) -> Result<(), L::Op> {
        let is_inside = held::is_inside();
        let mut backoff = Backoff::new();
        let mut growth = 1;
        loop {
            match refusal {
                Refusal::Closed | Refusal::Evicted if is_inside => {
                    op = match self.append_late(op) {
                        Ok(()) => return Ok(()),
                        Err(op) => op,
                    };
                    backoff.pause(); // the hot state is about to be freed, and runs no user code
                }
                Refusal::Closed => {
                    let wait = Wait::begin();
                    self.with_hot_state(|hot, slot| hot.wait_for_collection(slot, &mut backoff));
                    wait.end(Of::new("Deferred", self), 1);
                }
                Refusal::Stale => {}
                Refusal::Full | Refusal::Overdue => {
                    growth = self.make_room(refusal, growth, is_inside, &mut backoff);
                }
                // The panic is another update's, applied here: it has poisoned the object.
                Refusal::Evicted => sync::contain(|| drop(self.acquire(true))),
                Refusal::Cold => return Err(op),
            }
            (op, refusal) = match self.try_append(op, growth, is_inside) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
        }
    }

    #[track_caller]
    fn try_append(
        &self,
        op: L::Op,
        growth: usize,
        is_inside: bool,
    ) -> Result<(), (L::Op, Refusal)> {
        // ORDER: Acquire; as in `append`.
        let word = Word::load(&self.word, Ordering::Acquire);
        if word.is_hot() {
            if !word.is_open() {
                return Err((op, Refusal::Closed));
            }
            return percpu::with_slot(|slot| self.append_hot(slot, word, op, growth));
        }
        if self.config.is_managed() {
            return Err((op, Refusal::Cold));
        }
        let token = percpu::thread_token();
        let locked = if is_inside {
            lock::try_lock(&self.word, token).map(|()| false)
        } else {
            lock::lock(&self.word, token, Of::new("Deferred", self))
        };
        match locked {
            // With a log in hand, no update is applied: it might read.
            Ok(_) if percpu::is_announcing() => {
                self.promote_held(ColdHold::of(self), Admission::Bypass);
            }
            Ok(contended) => return self.apply_locked(op, contended),
            // This thread is reading the object or applying an update of it; or another thread is,
            // for which a thread that is inside does not wait (oplog.W2).
            Err(Refused::HeldBySelf | Refused::Busy) => self.publish_for_holder(),
            Err(Refused::Hot | Refused::Circle) => {}
        }
        Err((op, Refusal::Stale))
    }

    /// The log is at its bound: follows the `WhenFull` policy, and returns the growth to try next
    /// (oplog.D6).
    fn make_room(
        &self,
        refusal: Refusal,
        growth: usize,
        is_inside: bool,
        backoff: &mut Backoff,
    ) -> usize {
        let policy = self.config.config().when_full;
        let allowed = match policy {
            WhenFull::Drain { growth } | WhenFull::Grow { growth } => growth,
            WhenFull::Wait => 1,
        };
        match (policy, refusal) {
            (WhenFull::Wait, Refusal::Overdue) => return 2,
            (WhenFull::Wait, _) => {
                if is_inside {
                    return ANY_GROWTH; // the reader may wait for this thread, or be this thread
                }
                backoff.pause();
                return 1;
            }
            (WhenFull::Grow { .. }, Refusal::Full) if growth < allowed => return allowed,
            _ => {}
        }
        // If applying panics, the panic is another update's and has poisoned the object; this
        // update is logged regardless of the bounds.
        let mut next = ANY_GROWTH;
        sync::contain(|| {
            next = match self.acquire(growth >= allowed && !is_inside) {
                Ok(_) => 1,
                Err(_) if is_inside && growth >= allowed => ANY_GROWTH,
                Err(Refused::HeldBySelf) => ANY_GROWTH,
                // Busy: another thread is reading; grow until it is done.
                Err(_) => allowed.max(2),
            };
        });
        next
    }
}
