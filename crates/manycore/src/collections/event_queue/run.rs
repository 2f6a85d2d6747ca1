//! The events of one slot, and the queue that they are merged into.
//!
//! Owns: the kind of log behind the queue. The laws are in the parent module (Q numbers).

use super::merge::{Pending, merge_two};
use super::ring::{Ring, RingTail};
use super::signals::Signals;
use crate::clock::Stamp;
use crate::oplog::Log;
use crate::percpu::{barrier, thread_token};
use crate::policy::Streak;
use crate::sync::prefetch_for_write;
use std::cell::Cell;
use std::mem::{swap, take};
use std::sync::Arc;

/// An event on its way from its sender's frame to a log or to the inbox.
pub(super) struct Outgoing<'a, E> {
    /// Taken out by the code that keeps the event; still here afterwards if the queue is closed.
    event: Cell<Option<E>>,
    signals: &'a Signals,
}

impl<'a, E> Outgoing<'a, E> {
    pub(super) fn new(event: E, signals: &'a Signals) -> Self {
        Self { event: Cell::new(Some(event)), signals }
    }

    /// Returns the update to append. The event does not travel with it, and can come back.
    ///
    /// # Safety
    /// The call is used up (pushed or applied) before `self` moves or is dropped.
    pub(super) unsafe fn call(&self) -> Call<E> {
        Call(std::ptr::from_ref(self).cast())
    }

    /// Returns the event, if the queue did not take it.
    pub(super) fn refused(self) -> Option<E> {
        self.event.into_inner()
    }
}

/// Points to the [`Outgoing`] of the `append` that carries it (event_queue.Q1).
pub(super) struct Call<E>(*const Outgoing<'static, E>);

// SAFETY: event_queue.Q1 - used on the thread that made it alone, and an event may go to another
// thread.
unsafe impl<E: Send> Send for Call<E> {}

impl<E> Call<E> {
    /// Returns what the call points to.
    #[inline(always)]
    fn outgoing(&self) -> &Outgoing<'static, E> {
        // SAFETY: event_queue.Q1 - the sender's frame waits for the end of `append`.
        unsafe { &*self.0 }
    }
}

/// How many entries ahead of its writer a log's memory is prefetched. The receiver has read those
/// lines since they were last written here, and getting one back takes as long as a few sends. A
/// sole sender gets 1.4 times as many events through with this (58 against 41 million a second).
const AHEAD: usize = 32;

/// The events of one slot since the last merge, in the order sent, each with its key
/// (event_queue.Q2).
#[derive(Debug)]
pub(super) struct Run<E> {
    entries: Vec<(u64, E)>,
}

impl<E> Default for Run<E> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

/// The underlying queue: events in order, for the receivers to take all at once. The fields that
/// each sender changes come first, on one line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Inbox<E> {
    ready: Vec<E>,
    /// While fewer events than this are ready, an event may be appended with no further checks.
    /// Zero while others are pending.
    straight: usize,
    senders: Senders,
    /// Events that come after those in `ready`.
    pending: Pending<E>,
    /// Number of events that a receiver took last: it has at most that many in its hands.
    handed: usize,
    tail: RingTail,
    /// Merges in a row that found events of only one sender.
    single_merges: Streak,
    signals: Arc<Signals>,
}

/// The senders since the receiver last forgot them: one thread, two, or more.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Senders {
    /// Tokens of the last two threads that sent to the cold queue; 0 for none.
    last: usize,
    other: usize,
    is_crowd: bool,
}

impl Senders {
    #[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
    pub(super) const ONE: Self = Self { last: 16, other: 0, is_crowd: false };
    #[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
    pub(super) const TWO: Self = Self { other: 32, ..Self::ONE };
    #[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
    pub(super) const CROWD: Self = Self { is_crowd: true, ..Self::TWO };

    #[inline(always)]
    fn note(&mut self, token: usize) {
        if token != self.last {
            self.note_change(token);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_change(&mut self, token: usize) {
        self.is_crowd |= self.other != 0 && self.other != token;
        (self.last, self.other) = (token, self.last);
    }

    /// Returns true if there were more than two.
    pub(super) fn are_crowd(self) -> bool {
        self.is_crowd
    }

    /// Returns true if there was at most one.
    pub(super) fn are_one(self) -> bool {
        self.other == 0 && !self.is_crowd
    }

    /// Returns true if a thread other than this one has sent to the cold queue.
    pub(super) fn are_others_than(self, token: usize) -> bool {
        self.last != 0 && (self.last != token || self.other != 0)
    }
}

/// Events of many logs from which their merge is left to the receiver. The first event is available
/// at once then, not only after a merge of two hundred thousand.
const MANY_EVENTS: usize = if cfg!(miri) { 4 } else { 4096 };

/// Bytes that the buffers of an empty queue may keep. Larger buffers are from a peak, and are given
/// back when a receiver finds the queue empty.
pub(super) const KEPT: usize = if cfg!(miri) { 0 } else { 1 << 20 };

/// Returns the bytes of a buffer for `events` events and of a merge's buffers.
pub(super) fn room<E>(events: usize, pending: &Pending<E>) -> usize {
    events.saturating_mul(size_of::<E>()).saturating_add(pending.room())
}

impl<E> Inbox<E> {
    /// Makes an inbox with the events of the queue's small form.
    pub(super) fn new(signals: Arc<Signals>, ready: Vec<E>) -> Self {
        let mut inbox = Self {
            ready,
            straight: 0,
            pending: Pending::default(),
            handed: 0,
            tail: RingTail::default(),
            single_merges: Streak::NONE,
            senders: Senders::default(),
            signals,
        };
        inbox.look_ahead();
        inbox.note_merged();
        inbox
    }

    pub(super) fn senders(&self) -> Senders {
        self.senders
    }

    pub(super) fn forget_senders(&mut self) {
        self.senders = Senders::default();
    }

    /// Sets `straight`, after a change of what it depends on.
    #[inline]
    fn look_ahead(&mut self) {
        let is_settled = self.pending.len() == 0;
        self.straight = if is_settled { self.signals.unwatched(self.handed) } else { 0 };
    }

    pub(super) fn single_merges(&self) -> Streak {
        self.single_merges
    }

    /// Moves all events to two empty containers, `into` before `pending`, by exchanging buffers if
    /// there are any events. The caller also holds the receivers' lock, and has emptied the ring.
    pub(super) fn hand_over(&mut self, into: &mut Vec<E>, pending: &mut Pending<E>) {
        debug_assert!(
            into.is_empty() && pending.len() == 0,
            "event_queue.Q2: events are passed by"
        );
        if self.len() > 0 {
            swap(&mut self.ready, into);
            swap(&mut self.pending, pending);
        }
        self.handed = into.len() + pending.len();
        self.look_ahead();
        self.signals.note_handed_over(self.handed);
    }

    /// Takes the only event that is here, if there is one. The caller is a receiver that gives it
    /// away at once, has no other, and has emptied the ring.
    pub(super) fn take_only(&mut self) -> Option<E> {
        self.settle();
        debug_assert!(self.ready.len() <= 1, "event_queue.Q2: events are passed by");
        if self.handed != 0 {
            self.handed = 0;
            self.look_ahead();
        }
        self.signals.note_handed_over(0);
        self.ready.pop()
    }

    /// Returns the bytes that the buffers have room for.
    pub(super) fn room(&self) -> usize {
        room(self.ready.capacity(), &self.pending)
    }

    /// Returns the buffers, which are empty.
    pub(super) fn take_buffers(&mut self) -> (Vec<E>, Pending<E>) {
        debug_assert!(self.len() == 0, "event_queue.Q2: events are given away with their memory");
        (take(&mut self.ready), take(&mut self.pending))
    }

    /// Puts an event into the ring, if a receiver has asked for that and no event is before it here
    /// (event_queue.Q10).
    #[inline]
    fn put_in_ring(&mut self, event: E, signals: &Signals) -> Result<(), E> {
        match signals.asked_ring() {
            Some(ring) if self.len() == 0 && signals.has_room_for_ring(self.handed) => {
                ring.put(&mut self.tail, event)
            }
            _ => Err(event),
        }
    }

    /// Takes an event from its sender, in any state of the queue.
    #[inline(never)]
    fn take_rarely(&mut self, event: &Cell<Option<E>>, signals: &Signals) {
        if signals.is_closed() {
            return; // event_queue.Q3
        }
        let Some(event) = event.take() else { return };
        self.senders.note(thread_token());
        if let Err(event) = self.put_in_ring(event, signals) {
            self.settle();
            self.ready.push(event);
            self.note_merged();
        }
    }

    /// Stores how many merged events there are, and checks the bound (event_queue.Q5).
    #[inline]
    fn note_merged(&mut self) {
        let (merged, in_ring) = (self.len(), self.tail.len_most());
        if self.signals.note_merged(merged, self.handed + in_ring) {
            let ring = self.signals.ring::<E>();
            let in_ring = ring.map_or(in_ring, |ring| ring.len(&mut self.tail));
            self.signals.look_at_bound(merged, in_ring);
        }
    }

    /// Returns the number of events in the ring.
    pub(super) fn len_of_ring(&mut self, ring: &Ring<E>) -> usize {
        ring.len(&mut self.tail)
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + self.pending.len()
    }

    /// Makes all pending events ready, because an event is to come after them.
    #[inline]
    fn settle(&mut self) {
        if self.pending.len() > 0 {
            self.pending.move_to(usize::MAX, &mut self.ready);
            self.look_ahead();
        }
    }
}

impl<E: Send + 'static> Log<Inbox<E>> for Run<E> {
    type Op = Call<E>;
    /// Logs are collected all at one moment. Keys, not the object's stamps, give the order.
    const ORDERED: bool = false;

    #[inline(always)]
    fn apply(call: Call<E>, inbox: &mut Inbox<E>) {
        let Outgoing { event, signals } = call.outgoing();
        if inbox.ready.len() < inbox.straight && signals.is_straight() {
            if let Some(event) = event.take() {
                inbox.senders.note(thread_token());
                inbox.ready.push(event);
                signals.show_merged(inbox.ready.len());
            }
        } else {
            inbox.take_rarely(event, signals);
        }
        barrier::full_by_next_rmw(); // the lock's release: event_queue.Q9
    }

    #[inline(always)]
    fn push(&mut self, call: Call<E>, _: Stamp) {
        prefetch_for_write(self.entries.as_ptr().wrapping_add(self.entries.len() + AHEAD));
        let Outgoing { event, signals } = call.outgoing();
        if !signals.accepts_logged() {
            return; // event_queue.Q3
        }
        if let Some(event) = event.take() {
            self.entries.push((signals.key(), event));
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.entries.len() * size_of::<(u64, E)>()
    }

    #[inline(always)]
    fn merge(runs: &mut [Self], inbox: &mut Inbox<E>) -> usize {
        match runs {
            [Run { entries }] if entries.len() == 1 && inbox.pending.len() == 0 => {
                inbox.single_merges.observe(true);
                inbox.ready.extend(entries.pop().map(|(_, event)| event));
                inbox.note_merged();
                1
            }
            runs => Self::merge_all(runs, inbox),
        }
    }
}

impl<E> Run<E> {
    /// Merges logs of any number and length.
    #[inline(never)]
    fn merge_all(runs: &mut [Self], inbox: &mut Inbox<E>) -> usize {
        inbox.settle();
        let before = inbox.len();
        inbox.single_merges.observe(runs.len() == 1);
        inbox.senders.is_crowd |= runs.len() > 2;
        match runs {
            [] => {}
            [only] => inbox.ready.extend(only.entries.drain(..).map(|(_, event)| event)),
            [low, high] => merge_two(&mut low.entries, &mut high.entries, &mut inbox.ready),
            many => {
                inbox.pending.begin(many.iter_mut().map(|run| &mut run.entries));
                if inbox.pending.len() < MANY_EVENTS {
                    inbox.settle();
                }
                inbox.look_ahead();
            }
        }
        inbox.note_merged();
        inbox.len() - before
    }
}
