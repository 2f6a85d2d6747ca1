//! A queue's large form: logs, a ring, and waiters.
//!
//! Owns: [`Full`]. Laws event_queue.Q2 to event_queue.Q10 of the parent module are about it.

use super::front::{Advice, Batch, Front};
use super::run::{Inbox, KEPT, Outgoing, Run, room};
use super::signals::Signals;
use super::waiter::Waiter;
use super::{RecvError, SendError};
use crate::clock::Clock;
use crate::collections::Line;
use crate::oplog::{Deferred, ReadGuard};
use crate::percpu::{barrier, thread_token};
use crate::sync::{self, Mutex, seeded_bug};
use std::collections::VecDeque;
use std::iter::from_fn;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// See the module header.
pub(super) struct Full<E: Send + 'static> {
    /// Apart from the inbox: a receiver that polls reads the signals, and would share the line of
    /// each sender's lock.
    signals: Line<Arc<Signals>>,
    pub(super) inbox: Deferred<Inbox<E>, Run<E>>,
    /// The receivers' side. Its lock makes receivers take turns. Apart from what senders read.
    front: Line<Mutex<Front<E>>>,
    /// True if the queue chooses when it has logs.
    tunes: bool,
}

impl<E: Send + 'static> Full<E> {
    pub(super) fn new(
        inbox: Deferred<Inbox<E>, Run<E>>,
        signals: Arc<Signals>,
        tunes: bool,
    ) -> Self {
        Self { signals: Line(signals), inbox, front: Line(Mutex::new(Front::default())), tunes }
    }

    #[inline(always)]
    pub(super) fn signals(&self) -> &Signals {
        &self.signals.0
    }

    /// Sends an event, whether or not the queue is full.
    ///
    /// Inlined, so that the caller writes the event where `append` finds it. A function that gets a
    /// pointer to the event copies it before the caller's stores are over, and waits for them (4
    /// ns).
    #[inline(always)]
    pub(super) fn put(&self, event: E) -> Result<(), SendError<E>> {
        let outgoing = Outgoing::new(event, self.signals());
        self.append(&outgoing);
        match outgoing.refused() {
            None => {
                self.signals().wake_receivers(); // after the append: event_queue.Q4
                Ok(())
            }
            Some(event) => Err(SendError::Closed(event)),
        }
    }

    #[inline(never)]
    fn append(&self, outgoing: &Outgoing<'_, E>) {
        // SAFETY: event_queue.Q1 - `append` pushes or applies the call before it returns, or
        // unwinds without keeping it.
        self.inbox.append(unsafe { outgoing.call() });
    }

    /// Takes the next event, if there is one. Makes a whole merge unless the receiver polls: a
    /// receiver that is about to wait needs it (event_queue.Q4).
    #[inline(never)]
    pub(super) fn receive(&self, polls: bool) -> Result<E, RecvError> {
        self.with_front(|front| {
            if let Some(event) = front.pop() {
                front.note_left(self.signals());
                return Ok(event);
            }
            if let Some(event) = front.pop_ring() {
                if self.signals().is_full() {
                    front.note_left(self.signals());
                }
                return Ok(event);
            }
            let closed = self.signals().is_closed(); // before the merge: event_queue.Q3
            // A merge that finds nothing gives the memory of a peak back.
            if polls && !closed && !front.is_roomy && self.is_surely_empty(front) {
                return Err(RecvError::Empty);
            }
            let next = self.next_merged(front);
            next.ok_or(if closed { RecvError::Closed } else { RecvError::Empty })
        })
    }

    /// Returns true if nothing is in the queue, without its lock (event_queue.Q9). Asks for the
    /// next event.
    fn is_surely_empty(&self, front: &mut Front<E>) -> bool {
        if self.signals().has_logged() {
            return false;
        }
        front.ask(self.signals());
        // BUG: a receiver looks for events before its own earlier stores are visible
        // (event_queue.Q9).
        if !seeded_bug!("unfenced-poll") {
            barrier::fence_full(); // pairs with the sender's: `Run::apply`
        }
        self.signals().has_none() && front.ring.as_ref().is_none_or(|ring| ring.is_empty())
    }

    /// Merges, because the front is empty, and takes the next event. An event that came alone is
    /// taken in place: no buffers change hands.
    #[inline(always)]
    fn next_merged(&self, front: &mut Front<E>) -> Option<E> {
        let mut inbox = match self.inbox.acquire_hot_guard() {
            Some(inbox) if !inbox.is_poisoned() => inbox,
            inbox => {
                drop(inbox);
                self.inbox.read()
            }
        };
        let has_ring = front.ring.as_ref().is_some_and(|ring| !ring.is_empty());
        if inbox.len() > 1 || front.is_roomy || has_ring || !inbox.is_hot() {
            self.fill(front, |front, events| self.take_from(inbox, front, events));
            let next = front.pop();
            if next.is_some() {
                front.note_left(self.signals());
            }
            return next;
        }
        let event = inbox.take_only();
        if self.signals().is_full() {
            front.note_left(self.signals());
        }
        event
    }

    /// Takes events into the front, which is empty.
    #[cold]
    fn fill(&self, front: &mut Front<E>, take: impl FnOnce(&mut Front<E>, &mut Vec<E>) -> Vec<E>) {
        front.events.clear(); // its first place is free: the vector below copies nothing
        let mut ready = Vec::from(std::mem::take(&mut front.events));
        let was_roomy = front.is_roomy;
        let first = take(front, &mut ready);
        if was_roomy && !front.is_roomy {
            ready = Vec::new(); // nothing came, and the other buffers are gone
        }
        front.events = VecDeque::from(ready);
        first.into_iter().rev().for_each(|event| front.events.push_front(event));
    }

    /// Merges and [takes](Self::take_from), for a receiver of batches. Rests first if the last
    /// merge brought little.
    fn take_batch(&self, front: &mut Front<E>, events: &mut Vec<E>) -> Vec<E> {
        self.signals().ask_no_more();
        front.pace.rest();
        let is_merge = self.inbox.is_hot() && self.signals().others_send();
        let began = is_merge.then(Instant::now);
        let inbox = self.inbox.read();
        let others_send = is_merge || inbox.senders().are_others_than(thread_token());
        let first = self.take_from(inbox, front, events);
        if others_send {
            front.pace.note(events.len() + front.pending.len(), began);
        }
        first
    }

    /// Moves what was merged to `events` and, coming later, `front.pending`. Both are empty.
    /// Returns the events of the ring, which are before all of these.
    fn take_from(
        &self,
        inbox: ReadGuard<'_, Inbox<E>, Run<E>>,
        front: &mut Front<E>,
        events: &mut Vec<E>,
    ) -> Vec<E> {
        let mut _unused = None; // freed without the object's lock
        let mut inbox = inbox;
        // BUG: a merge leaves events in the ring that were sent before (event_queue.Q10).
        let ring = if seeded_bug!("ring-after-merge") { &None } else { &front.ring };
        let first = match ring {
            Some(ring) if !ring.is_empty() => from_fn(|| ring.take()).collect(),
            _ => Vec::new(),
        };
        inbox.hand_over(events, &mut front.pending);
        if !self.inbox.has_hot_state() && self.signals().note_cold() {
            barrier::fence_full(); // pairs with the sender's look at `LOGGED`
            if self.inbox.has_hot_state() {
                self.signals().note_logged(); // promoted in this thread's hands (object.W2)
            }
        }
        let taken = first.len() + events.len() + front.pending.len();
        front.is_roomy |= room(events.capacity(), &front.pending).max(inbox.room()) > KEPT;
        if taken == 0 && front.is_roomy {
            front.is_roomy = false;
            front.events = VecDeque::new();
            _unused = Some((inbox.take_buffers(), std::mem::take(&mut front.pending)));
        }
        if self.tunes && taken > 0 {
            self.tune(front, taken, &mut inbox);
        }
        first
    }

    /// Gives the queue logs or none, as the policy says, after `taken` events were taken. What
    /// can't be done here is left to [`with_front`](Self::with_front).
    fn tune(
        &self,
        front: &mut Front<E>,
        taken: usize,
        inbox: &mut ReadGuard<'_, Inbox<E>, Run<E>>,
    ) {
        let is_hot = inbox.is_hot() || self.inbox.is_hot();
        if !is_hot && self.signals().has_many_senders() {
            self.signals().forget_senders();
        }
        let has_stamps = self.signals().has_many_senders();
        let seen = Batch {
            events: taken,
            is_hot,
            senders: inbox.senders(),
            has_stamps,
            single_merges: inbox.single_merges(),
        };
        match front.tuning.advise(seen, || Clock::system().ticks_now()) {
            Advice::Keep => {}
            Advice::Promote => front.promotes = true,
            Advice::Rest => inbox.rest(true),
            Advice::Contend => inbox.rest(false),
        }
        if front.tuning.begins() {
            inbox.forget_senders();
        }
    }

    /// Implements [`EventQueue::drain_into`](super::EventQueue::drain_into).
    pub(super) fn drain_into(&self, events: &mut Vec<E>) {
        self.with_front(|front| {
            front.move_to(usize::MAX, events);
            let mut ready = if events.is_empty() { std::mem::take(events) } else { Vec::new() };
            let first = self.take_batch(front, &mut ready);
            if events.is_empty() && first.is_empty() {
                *events = ready;
            } else {
                events.extend(first);
                events.append(&mut ready);
            }
            front.move_to(usize::MAX, events);
            front.note_left(self.signals());
        });
    }

    /// Implements [`EventQueue::drain_at_most`](super::EventQueue::drain_at_most).
    pub(super) fn drain_at_most(&self, most: usize, events: &mut Vec<E>) {
        self.with_front(|front| {
            if front.len() == 0 && most > 0 {
                self.fill(front, |front, events| self.take_batch(front, events));
            }
            front.move_to(most, events);
            front.note_left(self.signals());
        });
    }

    /// Implements [`EventQueue::len`](super::EventQueue::len).
    pub(super) fn len(&self) -> usize {
        let front = self.front();
        let mut inbox = self.inbox.read();
        let in_ring = front.ring.as_ref().map_or(0, |ring| inbox.len_of_ring(ring));
        in_ring + inbox.len() + front.len()
    }

    /// Runs `f` under the receivers' lock. Then, without the lock, does what a merge found
    /// advisable: a promotion may apply updates of another object, and these may use this queue.
    #[inline(always)]
    fn with_front<R>(&self, f: impl FnOnce(&mut Front<E>) -> R) -> R {
        let mut front = self.front();
        let result = f(&mut front);
        if !front.promotes && front.released.is_empty() {
            return result;
        }
        let promotes = std::mem::take(&mut front.promotes);
        let released = std::mem::take(&mut front.released);
        drop(front);
        self.follow(promotes, released);
        result
    }

    #[cold]
    fn follow(&self, promotes: bool, released: Vec<Waiter>) {
        if !released.is_empty() {
            wake_senders(released);
        }
        if promotes {
            self.inbox.promote();
        }
    }

    fn front(&self) -> impl std::ops::DerefMut<Target = Front<E>> + '_ {
        // No user code runs under it. After a panic for lack of memory it is still whole.
        self.front.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes senders. Their panics are contained: the caller has an event in its hands, and nothing to
/// do with them.
#[cold]
fn wake_senders(released: Vec<Waiter>) {
    sync::contain(|| sync::run_each(released, Waiter::wake));
}
