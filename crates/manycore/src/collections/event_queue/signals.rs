//! Signals between senders and receivers besides events.
//!
//! Owns: the flags that a send reads, the lists of waiters, and the order of events. The laws are
//! in the parent module (Q numbers).

use super::ring::{RING_MAX, Ring};
use super::waiter::{Key, Waiter, replace_or_push};
use crate::clock::Clock;
use crate::collections::Line;
use crate::config::SMALL;
use crate::percpu::{self, barrier};
use crate::sync::seeded_bug;
use crate::sync::{self, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, thread};
use std::ptr;
use std::sync::PoisonError;
use std::time::Instant;

/// The queue takes no more events.
const CLOSED: u32 = 1;
/// A receiver waits, or is about to.
const SLEEPING: u32 = 2;
/// The bound is reached: senders wait.
const FULL: u32 = 4;
/// Events may be in logs (event_queue.Q9).
const LOGGED: u32 = 8;
/// A receiver asks for single events (event_queue.Q10).
const ASKED: u32 = 16;

/// No thread has sent through a log yet.
const NO_SENDER: usize = 0;
/// More than one thread has. Not a thread's token: those are multiples of 16.
const MANY: usize = 1;
/// More than one thread has, and a receiver is about to forget it. A sender treats it as `MANY`,
/// and stores `MANY` then.
const FORGETTING: usize = 2;
/// Greater than every key of a sole sender, less than every stamp.
const STAMPED: u64 = 1 << 63;

/// Fields that every send reads and nearly no send writes.
#[derive(Debug)]
struct Flags {
    state: AtomicU32,
    sole: AtomicUsize,
    /// The `Ring<E>` for the next events, if a receiver asks for single events; null before the
    /// first such receiver.
    ring: AtomicPtr<()>,
    clock: &'static Clock,
    max_events: usize,
}

/// Wakers of [`poll_recv`](super::EventQueue::poll_recv) that a queue keeps (event_queue.Q6).
pub(super) const POLLED_MAX: usize = if SMALL { 1 } else { 32 };

/// Waiting threads and tasks.
#[derive(Debug, Default)]
struct Waiters {
    receivers: Vec<Waiter>,
    /// Empty unless the queue is full and open (event_queue.Q7).
    senders: Vec<Waiter>,
    /// Number of tickets given to [`Waiter::Task`].
    tickets: u64,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Signals {
    flags: Line<Flags>,
    /// Last key of a sole sender, which alone writes it.
    sequence: Line<AtomicU64>,
    /// Number of merged events that no receiver has taken. Written under the object's lock, read by
    /// any thread. It has a line of its own: receivers poll it (event_queue.Q9).
    merged: Line<AtomicUsize>,
    /// Number of events that a receiver has taken to hand them out one by one. Written under the
    /// receivers' lock. It lies beside what senders hardly ever read.
    taken: AtomicUsize,
    waiters: Mutex<Waiters>,
}

impl Signals {
    pub(super) fn new(max_events: usize) -> Self {
        Self {
            flags: Line(Flags {
                state: AtomicU32::new(0),
                sole: AtomicUsize::new(NO_SENDER),
                ring: AtomicPtr::new(ptr::null_mut()),
                clock: Clock::system(),
                max_events,
            }),
            sequence: Line(AtomicU64::new(0)),
            merged: Line(AtomicUsize::new(0)),
            taken: AtomicUsize::new(0),
            waiters: Mutex::default(),
        }
    }

    #[inline(always)]
    fn state(&self) -> u32 {
        // ORDER: Acquire; pairs with the AcqRel updates of the flags. What event_queue.Q3 and
        // event_queue.Q4 need beyond that, the log gives.
        self.flags.0.state.load(Ordering::Acquire)
    }

    fn set(&self, flag: u32) {
        // ORDER: SeqCst; the receiver's half of event_queue.Q4 goes on with the merge's own
        // barrier, and a cold queue's with its lock. LOGGED is seen by every poll that begins after
        // the event was sent (event_queue.Q9).
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

    /// Returns true if the next event goes to the merged ones, if the bound allows it. Called from
    /// within `apply`.
    #[inline(always)]
    pub(super) fn is_straight(&self) -> bool {
        self.state() & (CLOSED | ASKED) == 0
    }

    /// Returns true if an event may be logged: the queue is not closed (event_queue.Q3). Sets
    /// `LOGGED` before the first event is logged (event_queue.Q9). Called from within `push`.
    #[inline(always)]
    pub(super) fn accepts_logged(&self) -> bool {
        let state = self.state();
        if state & LOGGED == 0 {
            self.note_logged();
        }
        state & CLOSED == 0
    }

    /// Returns true if events may be in logs. A hint.
    #[inline]
    pub(super) fn has_logged(&self) -> bool {
        self.state() & LOGGED != 0
    }

    /// Notes that events may be in logs.
    #[cold]
    pub(super) fn note_logged(&self) {
        self.set(LOGGED);
        barrier::fence_full(); // before the key is taken: pairs with `forget_senders`
    }

    /// Clears `LOGGED`: no event is in a log. Returns true if it was set. The caller has both locks
    /// and found the object cold, and looks again.
    pub(super) fn note_cold(&self) -> bool {
        let was_logged = self.state() & LOGGED != 0;
        if was_logged {
            self.clear(LOGGED);
        }
        was_logged
    }

    // ---- order ----

    /// Returns true if the calling thread is the sole sender so far (event_queue.Q2). Called from
    /// within `push` or `apply`.
    #[inline(always)]
    pub(super) fn is_sole_sender(&self) -> bool {
        // ORDER: Acquire; a sender that comes after the second one's first event sees `MANY`
        // (event_queue.Q2).
        let sole = self.flags.0.sole.load(Ordering::Acquire);
        sole != MANY && (sole == percpu::thread_token() || self.claim(sole))
    }

    /// Returns the key of the event that the calling thread is about to log (event_queue.Q2).
    /// Called from within `push`.
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
        // The wait belongs here, not after the publication. A merge takes all logs at one moment
        // and needs no cut, so all that counts is that later events have higher stamps.
        clock.commit_wait(stamp);
        STAMPED | stamp.ticks()
    }

    /// Makes the calling thread the sole sender, or notes that there are many.
    #[cold]
    fn claim(&self, seen: usize) -> bool {
        let sole = &self.flags.0.sole;
        let token = percpu::thread_token();
        // ORDER: SeqCst on success; visible to all threads before this event is sent
        // (event_queue.Q2).
        let claimed = seen == NO_SENDER
            && sole.compare_exchange(NO_SENDER, token, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if !claimed {
            sole.swap(MANY, Ordering::SeqCst);
        }
        claimed
    }

    /// Returns true if threads other than the calling one have sent.
    #[inline]
    pub(super) fn others_send(&self) -> bool {
        // ORDER: Relaxed; a hint.
        let sole = self.flags.0.sole.load(Ordering::Relaxed);
        sole != NO_SENDER && sole != percpu::thread_token()
    }

    /// Returns true if several threads have sent since the last
    /// [`forget_senders`](Self::forget_senders).
    pub(super) fn has_many_senders(&self) -> bool {
        // ORDER: Relaxed; a hint.
        matches!(self.flags.0.sole.load(Ordering::Relaxed), MANY | FORGETTING)
    }

    /// Allows a sole sender again, unless a thread logs an event at this moment. The caller holds
    /// the object, and has merged. So no log has an event from before `LOGGED` was last cleared
    /// (event_queue.Q2).
    pub(super) fn forget_senders(&self) {
        let sole = &self.flags.0.sole;
        // BUG: an event that is logged at that time, in the receiver's hands, may have a key above
        // those of the next sole sender (event_queue.Q2).
        if seeded_bug!("forget-at-once") {
            sole.store(NO_SENDER, Ordering::Release);
            return;
        }
        // ORDER: Relaxed; the fence is what decides. A sender sets `LOGGED`, has a fence, and reads
        // `sole` for its key; so it reads this, or the look below sees the flag.
        sole.store(FORGETTING, Ordering::Relaxed);
        barrier::fence_full();
        if self.state() & LOGGED == 0 {
            // ORDER: Release on success; the next sender takes the object's lock first, or reads a
            // word that was written under it. Relaxed on failure: a sender has stored `MANY`.
            let (forgotten, kept) = (Ordering::Release, Ordering::Relaxed);
            let _ = sole.compare_exchange(FORGETTING, NO_SENDER, forgotten, kept);
        }
    }

    // ---- the bound ----

    /// Returns how many events may be merged without a look at the bound. The queue stays below its
    /// bound with these, with `handed` events that a receiver took last, and with a whole ring
    /// (event_queue.Q5).
    pub(super) fn unwatched(&self, handed: usize) -> usize {
        self.flags.0.max_events.saturating_sub(handed.saturating_add(RING_MAX + 1))
    }

    /// Returns true if a whole ring of events, with those that a receiver took last, stays below
    /// the bound. Events are put into the ring without a look at the bound then (event_queue.Q5).
    pub(super) fn has_room_for_ring(&self, handed: usize) -> bool {
        handed.saturating_add(RING_MAX) < self.flags.0.max_events
    }

    /// Stores how many merged events there are. The caller has the object's lock.
    #[inline(always)]
    pub(super) fn show_merged(&self, merged: usize) {
        // ORDER: Relaxed; a thread that acts on the bound takes the waiters' lock and looks again.
        // A receiver that polls it orders it by fences (event_queue.Q9).
        self.merged.0.store(merged, Ordering::Relaxed);
    }

    /// Same as [`show_merged`](Self::show_merged). `before` is an upper bound of the events that a
    /// receiver has in its hands or finds in the ring. Returns true if all together may reach the
    /// bound: call [`look_at_bound`](Self::look_at_bound) then.
    #[inline]
    pub(super) fn note_merged(&self, merged: usize, before: usize) -> bool {
        self.show_merged(merged);
        merged.saturating_add(before) >= self.flags.0.max_events
    }

    /// Sets `FULL` if the merged events and those in the ring, with those that a receiver has in
    /// its hands, reach the bound. The caller has the object's lock.
    #[cold]
    pub(super) fn look_at_bound(&self, merged: usize, in_ring: usize) {
        // ORDER: Relaxed; as in `note_merged`.
        let taken = self.taken.load(Ordering::Relaxed);
        let all = merged.saturating_add(in_ring).saturating_add(taken);
        // If no event is merged, no receiver need come afterwards to clear the flag.
        if merged > 0 && all >= self.flags.0.max_events && !self.is_full() {
            // event_queue.Q5: the thread that merged finds the bound reached; a receiver clears it.
            self.set(FULL);
        }
    }

    // ---- the ring ----

    /// Returns the ring for the next event, if a receiver asks for single events (event_queue.Q10).
    #[inline]
    pub(super) fn asked_ring<E>(&self) -> Option<&Ring<E>> {
        if self.state() & ASKED == 0 {
            return None;
        }
        self.ring()
    }

    /// Returns the ring, if a receiver has made one.
    pub(super) fn ring<E>(&self) -> Option<&Ring<E>> {
        // ORDER: Acquire; pairs with Release in `ask`: the ring before its address.
        let ring: *const Ring<E> = self.flags.0.ring.load(Ordering::Acquire).cast_const().cast();
        // SAFETY: event_queue.Q10 - null, or a ring that the receivers' side keeps as long as the
        // queue, made for this queue's events.
        unsafe { ring.as_ref() }
    }

    /// Asks for events in this ring, the only one of this queue. The caller has the receivers'
    /// lock.
    #[inline]
    pub(super) fn ask<E>(&self, ring: &Ring<E>) {
        // Not set again: every sender reads this line.
        if self.state() & ASKED == 0 {
            // ORDER: Release; pairs with `ring`. (A sender that does not see it yet goes on as
            // before.)
            self.flags.0.ring.store(ptr::from_ref(ring).cast_mut().cast(), Ordering::Release);
            self.set(ASKED);
        }
    }

    /// Asks for no more events in a ring. The caller has the receivers' lock.
    pub(super) fn ask_no_more(&self) {
        if self.state() & ASKED != 0 {
            self.clear(ASKED);
        }
    }

    /// Returns true if no event is merged or in a log. The caller has the receivers' lock, and has
    /// made a fence (event_queue.Q9).
    #[inline]
    pub(super) fn has_none(&self) -> bool {
        // ORDER: Relaxed; the caller's fence comes before it, and the load above is before it, too.
        self.state() & LOGGED == 0 && self.merged.0.load(Ordering::Relaxed) == 0
    }

    /// Notes that a receiver has taken all merged events, `taken` of them. The caller has both
    /// locks: a merge between the two stores would find the queue empty (event_queue.Q5).
    #[inline]
    pub(super) fn note_handed_over(&self, taken: usize) {
        // ORDER: Relaxed (both); as in `note_merged`.
        self.taken.store(taken, Ordering::Relaxed);
        self.merged.0.store(0, Ordering::Relaxed);
    }

    /// Notes how many taken events are left; `ring(n)` returns true if the ring has more than `n`
    /// events. If there is room again, returns the senders that wait for it, to be woken without a
    /// lock. The caller has the receivers' lock.
    pub(super) fn note_taken(
        &self,
        taken: usize,
        ring: impl FnOnce(usize) -> bool,
    ) -> Option<Vec<Waiter>> {
        // ORDER: Relaxed (both); as in `note_merged`.
        self.taken.store(taken, Ordering::Relaxed);
        if !self.is_full() {
            return None;
        }
        let merged = self.merged.0.load(Ordering::Relaxed);
        let left = (self.flags.0.max_events / 2).checked_sub(merged.saturating_add(taken));
        left.is_some_and(|left| !ring(left)).then(|| self.make_room())
    }

    #[cold]
    fn make_room(&self) -> Vec<Waiter> {
        let mut waiters = self.waiters();
        debug_assert!(self.is_full(), "event_queue.Q5: two receivers clear the bound");
        self.clear(FULL);
        std::mem::take(&mut waiters.senders)
    }

    /// Enters `sender` to be woken when there is room, or the queue is closed. Returns false if it
    /// need not wait: then it is not in the list, under whatever waker.
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

    /// Removes a sender that gives up waiting for room.
    pub(super) fn forget_sender(&self, key: &Key<'_>) {
        let removed = {
            let mut waiters = self.waiters();
            let at = waiters.senders.iter().position(|other| other.is(key));
            at.map(|at| waiters.senders.swap_remove(at))
        };
        sync::contain(|| drop(removed));
    }

    /// Waits until the queue is not full, or closed. Returns false if that did not happen before
    /// `deadline`.
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

    /// Returns a ticket for a future that waits.
    pub(super) fn ticket(&self) -> u64 {
        let mut waiters = self.waiters();
        waiters.tickets += 1;
        waiters.tickets
    }

    /// Announces that a receiver is about to wait. The receiver must look for events once more
    /// after this.
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
        // Wakers are user code, so they are dropped without the lock. Their panics are contained,
        // because the caller, a task of its own, has nothing to do with them (event_queue.Q6).
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

    /// Wakes the waiters, if there are any, after an event has been sent (event_queue.Q4).
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

    /// Closes the queue. Returns true if it was open.
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

/// Takes the wakers of `poll_recv` out if there are as many as a queue keeps: the caller wakes
/// them.
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
        assert!(signals.note_merged(0, 4));
        signals.look_at_bound(0, 0);
        assert!(!signals.is_full(), "no receiver would clear it");
        assert!(signals.note_merged(1, 4));
        signals.look_at_bound(1, 0);
        assert!(signals.is_full());
        let ring_has = |events: usize| move |than| events > than;
        assert!(signals.note_taken(3, ring_has(0)).is_none());
        signals.note_handed_over(2);
        assert!(signals.note_taken(2, ring_has(1)).is_none());
        assert!(signals.note_taken(1, ring_has(2)).is_none());
        assert!(signals.note_taken(1, ring_has(1)).is_some_and(|senders| senders.is_empty()));
        assert!(!signals.is_full());
    }
}
