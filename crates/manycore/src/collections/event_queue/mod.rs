//! Many senders, one receiver at a time, events in the order in which they happened.
//!
//! Owns: [`EventQueue`]. Built on [`Deferred`] with a kind of log of its own (`run`), and flags
//! for waiters (`signals`). Source: OpLog, section 3 (inotify) and Figure 2.
//!
//! # The laws
//!
//! - **event_queue.Q1** What is appended is a pointer to the sender's frame
//!   ([`Log::push`](crate::oplog::Log) and `apply` run on the appending thread, before `append`
//!   returns). So an event is moved once, into the log, and a closed queue leaves it where it is.
//! - **event_queue.Q2** Order. A log's entries have keys, and a merge takes all logs at one moment
//!   and sorts by key. If send A returns before send B begins, then A is merged earlier than B, or
//!   in the same merge, and then A's key is lower, or both are in one run with A first:
//!   - As long as one thread alone has sent through logs, it is the *sole* sender and its keys
//!     count up. No clock is read.
//!   - A second thread first says that there are many, in sight of all, and then sends. From then
//!     on keys are stamps with the top bit set; a stamp taken after another send returned is higher
//!     (law clock.C2). A sole sender that has not heard yet gives a key below all
//!     stamps; it can't have begun after an event of the second thread was sent, or it would have
//!     heard. So every event from before is below, and whatever is after it sees `MANY` too.
//!   - While the queue is cold, events go to the inbox at once, in the order of the lock; and it
//!     becomes cold only after its logs have been merged.
//!
//!   A large merge of many logs is left to the receiver (`merge`): its logs are taken at that
//!   moment all the same, and whatever comes to the inbox later is put behind all of it.
//!
//!   There may be a sole sender again after the queue was cold: the receiver that holds the cold
//!   object forgets the senders, when it has merged. A thread that waits for the object may promote
//!   it in the receiver's hands (oplog.W2) and log an event at that moment: it sets `LOGGED` first,
//!   and then the receiver lets it be, or it finds that there are many.
//! - **event_queue.Q3** Closing. A sender looks at the flag inside `push` or `apply`, where merges
//!   are excluded. So a merge that begins after the flag was set has every event that was accepted:
//!   a receiver that saw the flag, merged, and found nothing may say `Closed`, and it stays true.
//! - **event_queue.Q4** No lost wake-up, and no shared write by senders without waiters. The
//!   receiver sets `SLEEPING`, then merges once more, then waits; the sender sends, then looks at
//!   `SLEEPING`. Each stores and then loads what the other stored, the race that a full fence on
//!   both sides decides. The sender has none when it publishes with plain stores: its event may
//!   still be in its store buffer when it reads the flag. What decides is law oplog.D1: a merge
//!   orders every publication against the later loads of its thread, by a `membarrier` on behalf
//!   of all threads where senders have no fence. Hence the second merge must come *after* the
//!   flag is set, and must be a whole one: looking at lengths or at events merged before would not
//!   do. Either it finds the event, or the sender sees the flag and wakes all waiters.
//! - **event_queue.Q5** The bound counts merged events (in the inbox, and taken by a receiver that
//!   hands them out one by one), those whose merge was left to the receiver, and those in the ring,
//!   which is used only where a whole ring stays below the bound. The merging thread sets `FULL`
//!   while something is merged, so that a receiver is to come, which clears it at half the bound.
//!   Events in logs come on top: at most one log's bound per sending thread.
//! - **event_queue.Q6** The list of waiters has one entry for each thread or future that waits, and
//!   at most 32 wakers of `poll_recv`, whose callers can't be told apart. A waker leaves the list
//!   in one of three ways: it is woken, its future is dropped or ready, or the same waiter has put
//!   a later one in its place. So no wake-up is lost. Wakers are woken and dropped without any
//!   lock, so they may use the queue; a panic in one keeps no other from being woken.
//!
//! - **event_queue.Q7** Senders that wait for room, threads and tasks, are in a list only while the
//!   queue is full and open: each looks at the state under the waiters' lock before it enters, and
//!   the receiver that clears `FULL`, or the thread that closes, takes the whole list under the
//!   same lock. So no wake-up is lost, and a future that is dropped takes none with it. The
//!   receiver wakes them after it has released its lock, and keeps their panics to itself: it has
//!   an event in its hands, which would be lost.
//! - **event_queue.Q8** The senders of a channel share a value whose destructor closes the queue.
//!   It runs once, after the last send of each of them (the standard library's `Arc` orders them).
//! - **event_queue.Q9** A receiver of single events that polls takes no lock of the senders', and
//!   writes none of their lines: where none is in the ring or merged, and none was logged
//!   (`LOGGED`) since the queue was cold, it is empty. Only a receiver, which holds the receivers'
//!   lock, makes merged events none or takes `LOGGED` back (under the cold object's lock, too); so
//!   the queue was empty at the first of these looks. The sender has a fence (or the instruction
//!   that releases the object's lock) after it has shown its event, the receiver has one before the
//!   looks: so if a thread sends and then looks elsewhere, and another one writes there and then
//!   polls, one of them finds what the other did. A receiver that is about to wait, or that finds
//!   the queue closed, looks under the lock instead (event_queue.Q3, event_queue.Q4).
//! - **event_queue.Q10** The ring has events between the senders' lock and the receivers': the
//!   holder of the cold object's lock puts them in, if a receiver has asked for single events and
//!   nothing is merged; the holder of the receivers' lock takes them. So they are before all that
//!   are merged or logged, and after all that a receiver has taken. A merge takes them first, under
//!   the object's lock: some may have come since the receiver looked. A place is written when its
//!   last event was taken, and read when its number says that the next one is there.
//!
//! Lock order: receivers' lock, object, waiters.

mod channel;
mod errors;
mod front;
mod iter;
#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod merge;
mod receive;
mod ring;
mod run;
mod send;
#[cfg(all(test, manycore_shuttle))]
mod shuttle_tests;
mod signals;
mod waiter;

pub use channel::{Receiver, Sender};
pub use errors::{RecvError, SendError};
pub use iter::{EventQueueIntoIter, EventQueueIter, EventQueueTryIter};
pub use receive::RecvFuture;
pub use send::SendFuture;

use super::Line;
use crate::config;
use crate::oplog::{BuildError, Deferred, Logs, Publish, Stats, WhenFull};
use crate::percpu::barrier;
use crate::sync::{self, Mutex, seeded_bug};
use front::{Advice, Batch, Front};
use run::{Inbox, Run};
use signals::Signals;
use std::collections::VecDeque;
use std::fmt;
use std::iter::from_fn;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use waiter::Waiter;

/// A queue of events from many threads, received in the order in which they were sent.
///
/// For notifications, audit and change logs, trace points, work for one thread: much sent, received
/// in batches. If one event is sent after another one was, on whatever thread, it is received after
/// it ("created" before "deleted"). Nothing is absorbed, dropped or duplicated.
///
/// Shared by reference or [`Arc`], or as two halves that notice when the other one is gone:
/// [`channel`](Self::channel).
///
/// Not for spreading work over many receivers: they take turns on one lock.
///
/// Single events or batches: [`try_recv`](Self::try_recv), [`recv`](Self::recv) and the async
/// receives hand an event over as soon as it is sent. While the queue has no logs they take it from
/// a ring, in about the time of a lock-free queue; once it has logs, each receive that finds
/// nothing at hand gathers them, which costs some microseconds while senders run. The `drain` calls
/// ask for batches and get more events through: after a gathering that brought little, the next one
/// rests 16 times as long as that took, and at most 50 us (1 us while the queue has no logs), so
/// that senders get on. `manycore bench notify` has figures of both, `--gap` for single events.
///
/// - Consistency: linearizable; first in, first out, across all threads.
/// - Progress: a send waits while a merge takes its log, by the bound, or while the queue is cold
///   for its lock. Receivers wait for each other.
/// - Cost of a send: no shared line written, and no lock, once the queue has logs; the clock is
///   read (15 to 25 ns) if more than one thread sends. Cost of a merge: one `membarrier` and a
///   cache miss or three for each thread that has sent since, and some ns per event (a match for
///   each doubling of the senders). A receive of an event that was merged already costs an
///   uncontended lock.
/// - Memory: 1.4 KiB for an empty queue without logs, and with logs what [`Deferred`] says; 2 KiB
///   for the ring (or four events), once a receiver of single events has found none; up to
///   [`max_events`](EventQueueBuilder::max_events) merged events and one log for each sending
///   thread, with up to three more buffers of its size where more than two send. A log's entry is
///   the event and 8 bytes. Buffers stay as large as they grew.
/// - Panics: none of its own. The only user code inside are wakers: if one panics, the others are
///   woken all the same, and then the `send` or `close` that woke them panics, with its event sent
///   (unless its thread is unwinding already). A receive that wakes senders doesn't: it returns its
///   event. Wakers run without a lock of the queue's, so they may send, receive, poll, close the
///   queue, or drop their last handle of it. The same goes for an event's destructor: events are
///   dropped only with the queue or its [`Receiver`].
/// - Waiting tasks: one waker for each [`RecvFuture`] and [`SendFuture`], at most 32 of
///   [`poll_recv`](Self::poll_recv).
/// - Source: OpLog, section 3.
///
/// ```
/// use manycore::collections::EventQueue;
///
/// let queue = EventQueue::new();
/// std::thread::scope(|s| {
///     for worker in 0..3 {
///         let queue = &queue;
///         s.spawn(move || {
///             queue.send((worker, "started")).unwrap();
///             queue.send((worker, "done")).unwrap();
///         });
///     }
/// });
/// queue.close();
/// let mut seen = 0;
/// while let Some((worker, what)) = queue.recv() {
///     println!("{worker} {what}");
///     seen += 1;
/// }
/// assert_eq!(seen, 6);
/// ```
#[doc(alias = "event log")]
#[doc(alias = "notification")]
#[doc(alias = "channel")]
#[doc(alias = "MPSC")]
pub struct EventQueue<E: Send + 'static> {
    inbox: Deferred<Inbox<E>, Run<E>>,
    signals: Arc<Signals>,
    /// The receivers' side; its lock makes them take turns. Away from what senders read.
    front: Line<Mutex<Front<E>>>,
    /// Whether the queue chooses when it has logs.
    tunes: bool,
}

// Said here so that an event may refer to its own queue: the compiler can't derive it in a cycle
// through the bounds of `Deferred`. `_SHARED` has it look at the fields.
// SAFETY: every field is `Send` and `Sync` if `E` is `Send`.
unsafe impl<E: Send + 'static> Send for EventQueue<E> {}
// SAFETY: every field is `Sync` if `E` is `Send`: no two threads reach an event at a time.
unsafe impl<E: Send + 'static> Sync for EventQueue<E> {}

const _SHARED: () = {
    const fn is_shareable<T: Send + Sync>() {}
    type Event = std::cell::Cell<u8>; // `Send` and not `Sync`
    is_shareable::<(Deferred<Inbox<Event>, Run<Event>>, Arc<Signals>, Line<Mutex<Front<Event>>>)>();
};

impl<E: Send + 'static> EventQueue<E> {
    /// An empty queue with the default bound of 2^20 merged events.
    ///
    /// In a `static` it needs a `LazyLock`: senders and receiver share a part on the heap, so it
    /// can't be made at compile time.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    /// use std::sync::LazyLock;
    ///
    /// static LOG: LazyLock<EventQueue<String>> = LazyLock::new(EventQueue::new);
    /// LOG.send("started".to_owned()).unwrap();
    /// assert_eq!(LOG.try_recv().unwrap(), "started");
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_bound(DEFAULT_MAX_EVENTS)
    }

    /// An empty queue that is bounded by memory alone: for senders that must never wait.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::with_bound(usize::MAX)
    }

    fn with_bound(max_events: usize) -> Self {
        Self::builder().max_events(max_events).build_checked().expect("the defaults are valid")
    }

    /// Starts a queue with other bounds and policies.
    #[must_use]
    pub fn builder() -> EventQueueBuilder<E> {
        EventQueueBuilder {
            max_events: DEFAULT_MAX_EVENTS,
            logs: Logs::Auto,
            publish: Publish::Auto,
            queue: PhantomData,
        }
    }

    /// Takes no more events. What was sent before can still be received; waiting receivers and
    /// senders wake. Returns whether the queue was open.
    pub fn close(&self) -> bool {
        self.signals.close()
    }

    /// Whether the queue is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.signals.is_closed()
    }

    /// Receives the next event, if one is there.
    ///
    /// # Errors
    /// [`RecvError::Empty`], or [`RecvError::Closed`] if moreover no event can come any more.
    pub fn try_recv(&self) -> Result<E, RecvError> {
        self.receive(true)
    }

    /// As [`try_recv`](Self::try_recv), by a whole merge: for a receiver that is about to wait
    /// (event_queue.Q4).
    fn try_recv_merging(&self) -> Result<E, RecvError> {
        self.receive(false)
    }

    fn receive(&self, polls: bool) -> Result<E, RecvError> {
        self.with_front(|front| {
            let event = match front.pop().or_else(|| front.pop_ring()) {
                Some(event) => event,
                None => {
                    let closed = self.is_closed(); // before the merge: event_queue.Q3
                    if polls && !closed && self.is_surely_empty(front) {
                        return Err(RecvError::Empty);
                    }
                    self.fill(front, Self::take_merged);
                    front.pop().ok_or(if closed { RecvError::Closed } else { RecvError::Empty })?
                }
            };
            front.note_left(&self.signals);
            Ok(event)
        })
    }

    /// Whether nothing is in the queue; without its lock (event_queue.Q9). Asks for the next event.
    fn is_surely_empty(&self, front: &mut Front<E>) -> bool {
        front.ask(&self.signals);
        // BUG: a receiver looks for events before its own earlier stores are visible
        // (event_queue.Q9).
        if !seeded_bug!("unfenced-poll") {
            barrier::fence_full(); // pairs with the sender's: `Run::apply`
        }
        self.signals.has_none() && front.ring.as_ref().is_none_or(|ring| ring.is_empty())
    }

    /// Merges, by `take`, because the front is empty.
    #[cold]
    fn fill(&self, front: &mut Front<E>, take: fn(&Self, &mut Front<E>, &mut Vec<E>) -> Vec<E>) {
        let mut ready = Vec::from(std::mem::take(&mut front.events));
        let first = take(self, front, &mut ready);
        front.events = VecDeque::from(ready);
        first.into_iter().rev().for_each(|event| front.events.push_front(event));
    }

    /// As [`take_merged`](Self::take_merged), for a receiver of batches: not soon after a merge
    /// that brought little.
    fn take_batch(&self, front: &mut Front<E>, events: &mut Vec<E>) -> Vec<E> {
        self.signals.use_ring::<E>(std::ptr::null()); // no single events any more
        front.pace.rest();
        let others_send = self.signals.others_send();
        let began = (others_send && self.inbox.is_hot()).then(Instant::now);
        let first = self.take_merged(front, events);
        if others_send {
            front.pace.note(events.len() + front.pending.len(), began);
        }
        first
    }

    /// Merges and moves what is there to `events` and, coming later, `front.pending`. Both are
    /// empty. What was in the ring comes back: it is before all.
    fn take_merged(&self, front: &mut Front<E>, events: &mut Vec<E>) -> Vec<E> {
        let mut inbox = self.inbox.read();
        // BUG: a merge leaves events in the ring that were sent before (event_queue.Q10).
        let ring = if seeded_bug!("ring-after-merge") { &None } else { &front.ring };
        let first: Vec<E> = ring.iter().flat_map(|ring| from_fn(|| ring.take())).collect();
        inbox.hand_over(events, &mut front.pending);
        if !self.inbox.has_hot_state() && self.signals.note_cold() {
            barrier::fence_full(); // pairs with the sender's look at `LOGGED`
            if self.inbox.has_hot_state() {
                self.signals.note_logged(); // promoted in this thread's hands (oplog.W2)
            }
        }
        let taken = first.len() + events.len() + front.pending.len();
        if !self.tunes {
            return first;
        }
        let seen = Batch {
            events: taken,
            is_hot: self.inbox.is_hot(),
            many_senders: self.signals.has_many_senders(),
            single_merges: inbox.single_merges(),
        };
        let advice = front.tuning.advise(seen);
        if advice == Advice::ForgetSenders && !self.inbox.is_hot() {
            self.signals.forget_senders();
        }
        front.advice = advice;
        first
    }

    /// Receives all events that are there. One merge, one lock.
    pub fn drain(&self) -> Vec<E> {
        let mut events = Vec::new();
        self.drain_into(&mut events);
        events
    }

    /// Receives all events that are there, to the end of `events`, and returns how many came. If
    /// `events` is empty, its buffer is exchanged for the queue's and no event is copied: the
    /// fastest way to receive from one or two senders. With many, see
    /// [`drain_at_most`](Self::drain_at_most).
    pub fn drain_into(&self, events: &mut Vec<E>) -> usize {
        let before = events.len();
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
            front.note_left(&self.signals);
        });
        events.len() - before
    }

    /// Receives up to `most` events, to the end of `events`, and returns how many came: none only
    /// if none are there, but perhaps fewer than there are. With many senders, what comes first is
    /// to be had long before the last of a large merge has found its place.
    ///
    /// ```
    /// use manycore::collections::EventQueue;
    ///
    /// let queue = EventQueue::new();
    /// (0..5).for_each(|event| queue.send(event).unwrap());
    /// let mut batch = Vec::new();
    /// while queue.drain_at_most(2, &mut batch) > 0 {
    ///     batch.drain(..).for_each(|event| println!("{event}"));
    /// }
    /// ```
    pub fn drain_at_most(&self, most: usize, events: &mut Vec<E>) -> usize {
        let before = events.len();
        self.with_front(|front| {
            if front.len() == 0 && most > 0 {
                self.fill(front, Self::take_batch);
            }
            front.move_to(most, events);
            front.note_left(&self.signals);
        });
        events.len() - before
    }

    /// Events that are there. Gathers the logs, so not for hot paths.
    #[must_use]
    pub fn len(&self) -> usize {
        let front = self.front();
        let mut inbox = self.inbox.read();
        let in_ring = front.ring.as_ref().map_or(0, |ring| inbox.len_of_ring(ring));
        in_ring + inbox.len() + front.len()
    }

    /// Whether the queue is at its bound, so that a send would wait. Full is a state: it begins
    /// with the merge that reaches the bound, and ends when half of that has been received.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.signals.is_full() && !self.is_closed()
    }

    /// Whether no event is there. As [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts of what happened to the logs. Takes the queue's lock, so not for hot paths.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inbox.stats()
    }

    /// Runs `f` under the receivers' lock, and does without it what a merge found advisable: a
    /// promotion may apply updates of another object, and these may use this queue.
    #[inline(always)]
    fn with_front<R>(&self, f: impl FnOnce(&mut Front<E>) -> R) -> R {
        let mut front = self.front();
        let result = f(&mut front);
        let advice = std::mem::take(&mut front.advice);
        let released = std::mem::take(&mut front.released);
        drop(front);
        if !released.is_empty() {
            wake_senders(released);
        }
        match advice {
            Advice::Promote => drop(self.inbox.promote()),
            Advice::Demote => self.inbox.demote(),
            Advice::Keep | Advice::ForgetSenders => {}
        }
        result
    }

    fn front(&self) -> impl std::ops::DerefMut<Target = Front<E>> + '_ {
        // Nothing of the user's runs under it; after a panic for want of memory it is still whole.
        self.front.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Contained, because the caller has an event in its hands, and nothing to do with them.
#[cold]
fn wake_senders(released: Vec<Waiter>) {
    sync::contain(|| sync::run_each(released, Waiter::wake));
}

impl<E: Send + 'static> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Send + 'static> fmt::Debug for EventQueue<E> {
    /// Prints the state, not the events: that would take a merge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue")
            .field("closed", &self.is_closed())
            .field("full", &self.signals.is_full())
            .field("hot", &self.inbox.is_hot())
            .finish_non_exhaustive()
    }
}

/// A receiver that polls finds the queue empty many times while senders pause for a moment.
const IDLE_FACTOR: u32 = if config::SMALL { 1 } else { 32 };

/// Merges are kept apart by many times their own time (`front`), so a barrier in them takes little
/// of the senders' time, and pays from so many times fewer updates on.
const BIAS_PART: u64 = if config::SMALL { 1 } else { 3 };

/// Merged events that a queue holds by default.
const DEFAULT_MAX_EVENTS: usize = 1 << 20;

/// Collects how a queue is to behave, checks it, and makes the queue.
///
/// ```
/// use manycore::collections::{EventQueue, SendError};
///
/// let queue = EventQueue::builder().max_events(2).build().unwrap();
/// queue.try_send("one").unwrap();
/// queue.try_send("two").unwrap();
/// assert_eq!(queue.try_send("three"), Err(SendError::Full("three")));
/// assert_eq!(queue.try_recv(), Ok("one"));
/// queue.try_send("three").unwrap();
///
/// let error = EventQueue::<u32>::builder().max_events(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "max_events must not be zero: no update would fit");
/// ```
#[derive(Debug)]
pub struct EventQueueBuilder<E> {
    max_events: usize,
    logs: Logs,
    publish: Publish,
    queue: PhantomData<fn() -> E>,
}

impl<E: Send + 'static> EventQueueBuilder<E> {
    /// How many events wait for the receiver before the queue is full (default 2^20).
    ///
    /// The count is taken when logs are merged: beyond it, each sending thread may have as many
    /// events in its log as an eighth of the bound (at least one, at most 4,096).
    #[must_use]
    pub fn max_events(mut self, events: usize) -> Self {
        self.max_events = events;
        self
    }

    /// When the queue has logs (default: when senders contend for it).
    #[must_use]
    pub fn logs(mut self, logs: Logs) -> Self {
        self.logs = logs;
        self
    }

    /// How a send publishes its event (default: as the ratio of sends to merges asks).
    #[must_use]
    pub fn publish(mut self, publish: Publish) -> Self {
        self.publish = publish;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// If the bound is zero or absurdly large ([`unbounded`](EventQueue::unbounded) has none).
    pub fn build(&self) -> Result<EventQueue<E>, BuildError> {
        match self.max_events {
            0 => Err(BuildError::Zero("max_events")),
            events if events > config::MAX_BOUND => Err(BuildError::TooLarge("max_events")),
            _ => self.build_checked(),
        }
    }

    fn build_checked(&self) -> Result<EventQueue<E>, BuildError> {
        let signals = Arc::new(Signals::new(self.max_events));
        let inbox = Deferred::builder()
            .max_entries((self.max_events / 8).clamp(1, config::DEFAULT_MAX_ENTRIES))
            .when_full(WhenFull::Drain { growth: 2 })
            .logs(self.logs)
            .publish(self.publish)
            .idle_reads(config::IDLE_READS * IDLE_FACTOR)
            .ratio_for_bias(config::RATIO_FOR_BIAS / BIAS_PART)
            .build(Inbox::new(Arc::clone(&signals)))?;
        let tunes = self.logs == Logs::Auto;
        Ok(EventQueue { inbox, signals, front: Line(Mutex::new(Front::default())), tunes })
    }
}
