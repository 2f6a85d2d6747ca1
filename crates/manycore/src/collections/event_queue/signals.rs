//! What senders and receivers tell each other besides events.
//!
//! Owns: the flags that a send reads, the lists of waiters, and the order of events. The
//! laws are in the parent module (Q numbers).

use super::waiter::{Key, Waiter, replace_or_push};
use crate::clock::Clock;
use crate::collections::Line;
use crate::config::SMALL;
use crate::percpu;
use crate::sync::seeded_bug;
use crate::sync::{self, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, thread};
use std::sync::PoisonError;
use std::time::Instant;

/// No more events are taken.
const CLOSED: u32 = 1;
/// A receiver waits, or is about to.
const SLEEPING: u32 = 2;
/// The bound is reached: senders wait.
const FULL: u32 = 4;

/// No thread has sent through a log yet.
const NOBODY: usize = 0;
/// More than one thread has. Not a thread's token: those are multiples of 16.
const MANY: usize = 1;
/// Above every key of a sole sender, below every stamp.
const STAMPED: u64 = 1 << 63;

/// What every send reads and nearly none writes.
#[derive(Debug)]
struct Flags {
    state: AtomicU32,
    sole: AtomicUsize,
    clock: &'static Clock,
}

/// How many events are where. Written under the lock of the place, read by any thread.
#[derive(Debug)]
struct Lengths {
    /// Merged, and not taken by a receiver.
    merged: AtomicUsize,
    /// Taken by a receiver to be handed out one by one.
    taken: AtomicUsize,
}

/// Wakers of [`poll_recv`](super::EventQueue::poll_recv) that a queue keeps (event_queue.Q6).
pub(super) const POLLED_MAX: usize = if SMALL { 1 } else { 32 };

/// Threads and tasks that wait.
#[derive(Debug, Default)]
struct Waiters {
    receivers: Vec<Waiter>,
    /// None unless the queue is full and open (event_queue.Q7).
    senders: Vec<Waiter>,
    /// Tickets given out to [`Waiter::Task`].
    tickets: u64,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Signals {
    flags: Line<Flags>,
    /// Written by a sole sender alone.
    sequence: Line<AtomicU64>,
    lengths: Line<Lengths>,
    max_events: usize,
    waiters: Mutex<Waiters>,
}

impl Signals {
    pub(super) fn new(max_events: usize) -> Self {
        Self {
            flags: Line(Flags {
                state: AtomicU32::new(0),
                sole: AtomicUsize::new(NOBODY),
                clock: Clock::system(),
            }),
            sequence: Line(AtomicU64::new(0)),
            lengths: Line(Lengths { merged: AtomicUsize::new(0), taken: AtomicUsize::new(0) }),
            max_events,
            waiters: Mutex::default(),
        }
    }

    fn state(&self) -> u32 {
        // ORDER: Acquire; pairs with the AcqRel updates of the flags. What event_queue.Q3 and
        // event_queue.Q4 need beyond that, the log gives.
        self.flags.0.state.load(Ordering::Acquire)
    }

    fn set(&self, flag: u32) {
        // ORDER: SeqCst; the receiver's half of event_queue.Q4 goes on with the merge's own
        // barrier, and a cold queue's with its lock.
        self.flags.0.state.fetch_or(flag, Ordering::SeqCst);
    }

    fn clear(&self, flag: u32) {
        // ORDER: AcqRel; pairs with `state`.
        self.flags.0.state.fetch_and(!flag, Ordering::AcqRel);
    }

    #[inline(always)]
    pub(super) fn is_closed(&self) -> bool {
        self.state() & CLOSED != 0
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.state() & FULL != 0
    }

    // ---- order ----

    /// Whether the calling thread is the sole sender so far (event_queue.Q2). From within `push` or
    /// `apply`.
    #[inline(always)]
    pub(super) fn is_sole_sender(&self) -> bool {
        // ORDER: Acquire; a sender that comes after the second one's first event sees `MANY`
        // (event_queue.Q2).
        let sole = self.flags.0.sole.load(Ordering::Acquire);
        sole != MANY && (sole == percpu::thread_token() || self.claim(sole))
    }

    /// The place of the event that the calling thread is about to log (event_queue.Q2). From within
    /// `push`.
    #[inline(always)]
    pub(super) fn key(&self) -> u64 {
        if self.is_sole_sender() {
            // ORDER: Relaxed (both); one writer.
            let next = self.sequence.0.load(Ordering::Relaxed) + 1;
            debug_assert!(next < STAMPED, "event_queue.Q2: a sole sender's key above the stamps");
            self.sequence.0.store(next, Ordering::Relaxed);
            return next;
        }
        let clock = self.flags.0.clock;
        let stamp = clock.stamp();
        debug_assert!(stamp.ticks() < STAMPED, "event_queue.Q2: a stamp beyond the keys");
        // The wait belongs here and not after the publication: a merge takes all logs at one moment
        // and needs no cut, so all that counts is that later events have higher stamps.
        clock.commit_wait(stamp);
        STAMPED | stamp.ticks()
    }

    /// Makes the calling thread the sole sender, or ends that there is one.
    #[cold]
    fn claim(&self, seen: usize) -> bool {
        let sole = &self.flags.0.sole;
        let token = percpu::thread_token();
        // ORDER: SeqCst on success; visible to all threads before this event is sent
        // (event_queue.Q2).
        let claimed = seen == NOBODY
            && sole.compare_exchange(NOBODY, token, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if !claimed {
            sole.swap(MANY, Ordering::SeqCst);
        }
        claimed
    }

    /// Whether other threads than the calling one have sent.
    pub(super) fn others_send(&self) -> bool {
        // ORDER: Relaxed; a hint.
        let sole = self.flags.0.sole.load(Ordering::Relaxed);
        sole != NOBODY && sole != percpu::thread_token()
    }

    /// Whether several threads have sent since the last [`forget_senders`](Self::forget_senders).
    pub(super) fn has_many_senders(&self) -> bool {
        // ORDER: Relaxed; a hint.
        self.flags.0.sole.load(Ordering::Relaxed) == MANY
    }

    /// Lets a sole sender come up again. Only while the caller holds the object and it is cold:
    /// then no thread is inside `push` and no log has entries (event_queue.Q2).
    pub(super) fn forget_senders(&self) {
        // ORDER: Release; the next sender takes the object's lock first, or reads a word that
        // was written under it.
        self.flags.0.sole.store(NOBODY, Ordering::Release);
    }

    // ---- the bound ----

    /// Says how many merged events there are. Under the object's lock.
    pub(super) fn note_merged(&self, merged: usize) {
        let lengths = &self.lengths.0;
        // ORDER: Relaxed (both); a thread that acts on it takes the waiters' lock, and looks again.
        lengths.merged.store(merged, Ordering::Relaxed);
        let taken = lengths.taken.load(Ordering::Relaxed);
        // Where no event came, `taken` may be out of date, and no receiver need come after this.
        if merged > 0 && merged.saturating_add(taken) >= self.max_events && !self.is_full() {
            // event_queue.Q5: the thread that merged finds the bound reached; a receiver clears it.
            self.set(FULL);
        }
    }

    /// Says that all merged events were taken, and that there are so many. Under both locks: a
    /// merge that came between the two counts would find the queue empty (event_queue.Q5).
    pub(super) fn note_handed_over(&self, taken: usize) {
        let lengths = &self.lengths.0;
        // ORDER: Relaxed (both); as in `note_merged`.
        lengths.taken.store(taken, Ordering::Relaxed);
        lengths.merged.store(0, Ordering::Relaxed);
    }

    /// Says how many taken events there are. If there is room again, the senders that wait for it
    /// come back, to be woken without a lock. Under the receivers' lock.
    pub(super) fn note_taken(&self, taken: usize) -> Option<Vec<Waiter>> {
        let lengths = &self.lengths.0;
        // ORDER: Relaxed (both); as in `note_merged`.
        lengths.taken.store(taken, Ordering::Relaxed);
        if !self.is_full() {
            return None;
        }
        let merged = lengths.merged.load(Ordering::Relaxed);
        (merged.saturating_add(taken) <= self.max_events / 2).then(|| self.make_room())
    }

    #[cold]
    fn make_room(&self) -> Vec<Waiter> {
        let mut waiters = self.waiters();
        debug_assert!(self.is_full(), "event_queue.Q5: two receivers clear the bound");
        self.clear(FULL);
        std::mem::take(&mut waiters.senders)
    }

    /// Has `sender` woken when there is room, or the queue is closed. `false` if it need not wait:
    /// then it is not in the list, under whatever waker.
    pub(super) fn await_room(&self, sender: Waiter) -> bool {
        // BUG: a sender enters the list though there is room by now (event_queue.Q7).
        let skips_look = seeded_bug!("late-sender");
        let dropped = {
            let mut waiters = self.waiters();
            match self.state() & (FULL | CLOSED) == FULL || skips_look {
                true => Ok(replace_or_push(&mut waiters.senders, sender)),
                false => Err(sender),
            }
        };
        let waits = dropped.is_ok();
        sync::contain(|| drop(dropped)); // a waker is user code
        waits
    }

    /// A sender waits no more for room.
    pub(super) fn forget_sender(&self, key: &Key<'_>) {
        let removed = {
            let mut waiters = self.waiters();
            let at = waiters.senders.iter().position(|other| other.is(key));
            at.map(|at| waiters.senders.swap_remove(at))
        };
        sync::contain(|| drop(removed));
    }

    /// Waits until the queue is not full, or closed. `false` if it was not before `deadline`.
    #[cold]
    pub(super) fn wait_for_room(&self, deadline: Option<Instant>) -> bool {
        while self.await_room(Waiter::Thread(thread::current())) {
            if !sync::park_until(deadline) {
                self.forget_sender(&Key::Thread(thread::current().id()));
                return self.state() & (FULL | CLOSED) != FULL;
            }
        }
        true
    }

    // ---- waiting for events ----

    /// A number for a future that waits.
    pub(super) fn ticket(&self) -> u64 {
        let mut waiters = self.waiters();
        waiters.tickets += 1;
        waiters.tickets
    }

    /// Announces that a receiver is about to wait. It must look for events once more after this.
    pub(super) fn arm(&self, waiter: Waiter) {
        let mut displaced = Vec::new();
        let replaced = {
            let mut waiters = self.waiters();
            let receivers = &mut waiters.receivers;
            if waiter.is_polled() && !receivers.iter().any(|other| other.is(&waiter.key())) {
                displaced = displace(receivers);
            }
            let replaced = replace_or_push(receivers, waiter);
            debug_assert!(
                receivers.iter().filter(|waiter| waiter.is_polled()).count() <= POLLED_MAX,
                "event_queue.Q6: too many wakers of poll_recv"
            );
            self.set(SLEEPING);
            replaced
        };
        // Without the lock, because wakers are user code; and contained, because the caller, a
        // task of its own, has nothing to do with them (event_queue.Q6).
        sync::contain(|| drop(replaced));
        // BUG: a waker that makes room for another one is not woken (event_queue.Q6).
        if !seeded_bug!("silent-displacement") {
            sync::contain(|| sync::run_each(displaced, Waiter::wake));
        }
    }

    /// Removes a receiver from the list of waiters.
    pub(super) fn disarm(&self, key: &Key<'_>) {
        let removed = {
            let mut waiters = self.waiters();
            let at = waiters.receivers.iter().position(|other| other.is(key));
            let removed = at.map(|at| waiters.receivers.swap_remove(at));
            // BUG: a receiver that waits no more says that none does (event_queue.Q4).
            if waiters.receivers.is_empty() || seeded_bug!("deaf-disarm") {
                self.clear(SLEEPING);
            }
            removed
        };
        sync::contain(|| drop(removed));
    }

    /// After an event has been sent: wakes a waiter, if there is one (event_queue.Q4).
    #[inline(always)]
    pub(super) fn wake_receivers(&self) {
        if self.state() & SLEEPING != 0 {
            self.wake_all_receivers();
        }
    }

    #[cold]
    fn wake_all_receivers(&self) {
        let receivers = {
            let mut waiters = self.waiters();
            self.clear(SLEEPING);
            std::mem::take(&mut waiters.receivers)
        };
        sync::run_each(receivers, Waiter::wake);
    }

    /// Takes no more events. Returns whether it did before.
    pub(super) fn close(&self) -> bool {
        let (receivers, senders) = {
            let mut waiters = self.waiters();
            if self.is_closed() {
                return false;
            }
            self.set(CLOSED);
            self.clear(SLEEPING);
            (std::mem::take(&mut waiters.receivers), std::mem::take(&mut waiters.senders))
        };
        sync::run_each(senders.into_iter().chain(receivers), Waiter::wake);
        true
    }

    fn waiters(&self) -> impl std::ops::DerefMut<Target = Waiters> + '_ {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the wakers of `poll_recv` out if there are as many as a queue keeps: they are to be woken.
fn displace(receivers: &mut Vec<Waiter>) -> Vec<Waiter> {
    if receivers.iter().filter(|other| other.is_polled()).count() < POLLED_MAX {
        return Vec::new();
    }
    let (displaced, kept) = std::mem::take(receivers).into_iter().partition(Waiter::is_polled);
    *receivers = kept;
    displaced
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    /// A merge that brings nothing may have read the count before a receiver took the last event.
    #[test]
    fn merge_of_nothing_leaves_no_empty_queue_full() {
        let signals = Signals::new(4);
        signals.note_handed_over(4); // what such a merge still sees
        signals.note_merged(0);
        assert!(!signals.is_full(), "no receiver would clear it");
        signals.note_merged(1);
        assert!(signals.is_full());
        assert!(signals.note_taken(3).is_none());
        signals.note_handed_over(2);
        assert!(signals.note_taken(2).is_some_and(|senders| senders.is_empty()));
        assert!(!signals.is_full());
    }
}
