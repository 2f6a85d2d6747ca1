//! Many senders, one receiver at a time, events in the order in which they happened.
//!
//! Owns: [`EventQueue`]. Built on [`Deferred`] with its own kind of log (`run`), and flags for
//! waiters (`signals`). Source: OpLog, section 3 (inotify) and Figure 2.
//!
//! ```text
//! small form:  senders --lock--> VecDeque --lock--> receiver            (`few`)
//!
//! large form:  senders --log of each slot--.
//!                                          > merge --> inbox --> front --> receiver
//!              senders --lock (cold)-------'                       |
//!                      --lock--> ring -----------------------------'   (single events)
//! ```
//!
//! # The laws
//!
//! - **event_queue.Q1** What is appended is a pointer to the sender's frame
//!   ([`Log::push`](crate::oplog::Log) and `apply` run on the appending thread, before `append`
//!   returns). So an event is moved once, into the log, and a closed queue leaves it where it is.
//! - **event_queue.Q2** Order. A log's entries have keys, and a merge takes all logs at one moment
//!   and sorts by key. If send A returns before send B begins, then A is merged earlier than B, or
//!   in the same merge. In the same merge, A's key is lower, or both are in one run with A first:
//!   - As long as only one thread has sent through logs, it is the *sole* sender and its keys count
//!     up. It reads no clock.
//!   - A second thread first says that there are many, visible to all, and then sends. From then on
//!     keys are stamps with the top bit set. A stamp taken after another send returned is higher
//!     (law clock.C2). A sole sender that has not seen `MANY` yet gives a key below all stamps. Its
//!     send can't have begun after an event of the second thread was sent, or it would have seen
//!     `MANY`. So every event from before is below, and every later send sees `MANY` too.
//!   - While the queue is cold, events go to the inbox at once, in the order of the lock, and need
//!     no key. The queue becomes cold only after its logs have been merged.
//!
//!   A large merge of many logs is left to the receiver (`merge`). Its logs are taken at that
//!   moment all the same, and whatever comes to the inbox later is put behind all of it.
//!
//!   There may be a sole sender again after the queue was cold. The receiver that holds the cold
//!   object forgets the senders, once it has merged. A thread that waits for the object may promote
//!   it in the receiver's hands (object.W2) and log an event at that moment. That thread sets
//!   `LOGGED` first. Then either the receiver sees `LOGGED` and forgets nobody, or the thread finds
//!   that there are many.
//! - **event_queue.Q3** Closing. A sender looks at the flag inside `push` or `apply`, where merges
//!   are excluded. So a merge that begins after the flag was set has every event that was accepted.
//!   A receiver that saw the flag, merged, and found nothing may say `Closed`, and it stays true.
//! - **event_queue.Q4** No lost wake-up, and no shared write by senders without waiters. The
//!   receiver sets `SLEEPING`, then merges once more, then waits; the sender sends, then looks at
//!   `SLEEPING`. Each stores and then loads what the other stored, a race that a full fence on both
//!   sides decides. The sender has no fence when it publishes with plain stores: its event may
//!   still be in its store buffer when it reads the flag. Then law oplog.D1 decides: a merge orders
//!   every publication against the later loads of its thread. If senders have no fence, a
//!   `membarrier` does so on behalf of all threads. Hence the second merge must come *after* the
//!   flag is set, and must be a whole merge: a look at lengths, or at events merged before, would
//!   not do. Either the merge finds the event, or the sender sees the flag and wakes all waiters.
//! - **event_queue.Q5** The bound counts merged events, events left to the receiver to merge, and
//!   events in the ring. Merged events are in the inbox, or taken by a receiver that hands them out
//!   one by one. The ring is used only if a whole ring stays below the bound. The merging thread
//!   sets `FULL` while something is merged, so that a receiver is sure to come; the receiver clears
//!   it at half the bound. Events in logs come on top: at most one log's bound per sending thread.
//! - **event_queue.Q6** The list of waiters has one entry for each waiting thread or future, and at
//!   most 32 wakers of `poll_recv`, whose callers can't be told apart. A waker leaves the list when
//!   it is woken, when its future is dropped or ready, or when the same waiter puts a later waker
//!   in its place. So no wake-up is lost. Wakers are woken and dropped without any lock, so they
//!   may use the queue. A panic in one keeps no other from being woken.
//! - **event_queue.Q7** Senders that wait for room, threads and tasks, are in a list only while the
//!   queue is full and open. Each looks at the state under the waiters' lock before it enters. The
//!   receiver that clears `FULL`, or the thread that closes, takes the whole list under the same
//!   lock. So no wake-up is lost, and a future that is dropped takes none with it. The receiver
//!   wakes the senders after it has released its lock, and keeps their panics to itself: it has an
//!   event in its hands, which would be lost.
//! - **event_queue.Q8** The senders of a channel share a value whose destructor closes the queue.
//!   It runs once, after the last send of each of them (the standard library's `Arc` orders them).
//! - **event_queue.Q9** A receiver of single events that polls takes no lock of the senders, and
//!   writes none of their lines. The queue is empty if no event is in the ring or merged, and none
//!   was logged (`LOGGED`) since the queue was cold. Only a receiver, which holds the receivers'
//!   lock, removes the last merged event or clears `LOGGED` (under the cold object's lock, too). So
//!   the queue was empty at the first of these looks. The sender has a fence (or the instruction
//!   that releases the object's lock) after it has published its event; the receiver has a fence
//!   before the looks. Suppose one thread sends and then reads elsewhere, and another writes there
//!   and then polls: one of them finds what the other did. A receiver that is about to wait, or
//!   that finds the queue closed, looks under the lock instead (event_queue.Q3, event_queue.Q4).
//! - **event_queue.Q10** The ring has events between the senders' lock and the receivers'. The
//!   holder of the cold object's lock puts them in, if a receiver has asked for single events and
//!   nothing is merged; the holder of the receivers' lock takes them. So they are before all events
//!   that are merged or logged, and after all that a receiver has taken. A merge takes them first,
//!   under the object's lock: some may have come since the receiver looked. A place is written when
//!   its last event was taken, and read when its number says that the next event is there.
//! - **event_queue.Q11** A queue begins in its small form (`few`); the laws above are about the
//!   large form. The large form begins with the small form's events merged, so they are before all
//!   that it gets itself. Law promoted.P1 makes every thread use it from then on. Whatever the
//!   small form can't do promotes first: to wait, to close, to reach the bound. So a queue in its
//!   small form is open, not full, and has no waiters.
//!
//! Lock order: small form's, or receivers' lock, object, waiters.
//! Lock order: small form's, or receivers' lock, object, waiters.

mod channel;
mod errors;
mod few;
mod front;
mod full;
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

use super::promoted::Promotable;
use crate::config;
use crate::oplog::{BuildError, Deferred, Logs, Publish, Stats};
use few::Few;
use full::Full;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

/// A queue of events from many threads, received in the order in which they were sent.
///
/// For notifications, audit and change logs, trace points, work for one thread: much is sent, and
/// received in batches. If one event is sent after another, on whatever threads, it is received
/// after it ("created" before "deleted"). Nothing is absorbed, dropped or duplicated.
///
/// Share it by reference or [`Arc`](std::sync::Arc), or as two halves that each notice when the
/// other is gone: [`channel`](Self::channel).
///
/// When not: for spreading work over many receivers, because they take turns on one lock.
///
/// **Single events or batches.** [`try_recv`](Self::try_recv), [`recv`](Self::recv) and the async
/// receives return an event as soon as it is sent. While the queue has no logs they take it from a
/// ring, in about the time of a lock-free queue. Once the queue has logs, each receive that finds
/// nothing at hand gathers them, which costs some microseconds while senders run.
///
/// The `drain` calls take batches and get more events through, because they leave the senders time:
/// the next gathering comes after a rest. The rest is the duration of the last gathering for each
/// event that it brought, at most 16 times that and 50 us. While the queue has no logs, it is 1 us.
/// `manycore-bench bench notify` has figures of both, `--gap` for single events.
///
/// - Consistency: linearizable; first in, first out, across all threads.
/// - Progress: a send waits while a merge takes its log, at the bound, or, while the queue is small
///   or cold, for its lock. Receivers wait for each other.
/// - Cost of a send or receive while the queue is small: an uncontended lock, as of a
///   `Mutex<VecDeque>`, and some ten instructions more.
/// - Cost of a send once the queue has logs: no shared line written, and no lock. The clock is read
///   (15 to 25 ns) if more than one thread sends.
/// - Cost of a merge: one `membarrier`, and a cache miss or three for each thread that has sent
///   since. Also some ns per event (a comparison for each doubling of the senders). A receive of an
///   event that was merged already costs an uncontended lock.
/// - Memory of a small queue: 128 bytes, beside its events, for a queue that one thread uses (and
///   250 that queues with the same settings share). When threads meet at its lock, or a thread
///   waits for an event, it becomes large, for good.
/// - Memory of a large queue: 1.5 KiB without logs, and with logs what [`Deferred`] says. The ring
///   takes 2 KiB (or four events), once a receiver of single events has found none. Up to
///   [`max_events`](EventQueueBuilder::max_events) merged events, and one log for each sending
///   thread, with up to three more buffers of its size if more than two send. A log's entry is the
///   event and 8 bytes. The receive that finds the queue empty gives the memory of a peak back: all
///   buffers for merged events, if one of them is larger than 1 MiB. Logs keep theirs.
/// - Panics: none of its own. The only user code inside are wakers. If a waker panics, the others
///   are woken all the same. Then the `send` or `close` that woke them panics, with its event sent
///   (unless its thread is unwinding already). A receive that wakes senders doesn't panic: it
///   returns its event. Wakers run without a lock of the queue, so they may send, receive, poll,
///   close the queue, or drop their last handle of it. The same goes for an event's destructor:
///   events are dropped only with the queue or its [`Receiver`].
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
    forms: Promotable<Few<E>>,
}

// Said here so that an event may refer to its own queue: in a cycle, the compiler can't derive it
// through the bounds of `Deferred`. `_SHARED` makes it check the fields.
// SAFETY: every field is `Send` and `Sync` if `E` is `Send`.
unsafe impl<E: Send + 'static> Send for EventQueue<E> {}
// SAFETY: every field is `Sync` if `E` is `Send`: no two threads reach an event at a time.
unsafe impl<E: Send + 'static> Sync for EventQueue<E> {}

const _SHARED: () = {
    const fn is_shareable<T: Send + Sync>() {}
    type Event = std::cell::Cell<u8>; // `Send` and not `Sync`
    is_shareable::<(Promotable<Few<Event>>, Full<Event>)>();
};

impl<E: Send + 'static> EventQueue<E> {
    /// Makes an empty queue with the default bound of 2^20 merged events.
    ///
    /// In a `static` it needs a `LazyLock`: queues share their settings, so they can't be made at
    /// compile time.
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

    /// Makes an empty queue bounded only by memory: for senders that must never wait.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::with_bound(usize::MAX)
    }

    fn with_bound(max_events: usize) -> Self {
        Self::builder().max_events(max_events).build_checked().expect("the defaults are valid")
    }

    /// Starts a builder for a queue with other bounds and policies.
    #[must_use]
    pub fn builder() -> EventQueueBuilder<E> {
        EventQueueBuilder {
            max_events: DEFAULT_MAX_EVENTS,
            logs: Logs::Auto,
            publish: Publish::Auto,
            queue: PhantomData,
        }
    }

    /// Returns the large form; makes it if there is none.
    fn full(&self) -> &Full<E> {
        self.forms.promote()
    }

    /// Promotes the queue to its large form.
    #[cfg(all(test, manycore_loom))]
    fn promoted(self) -> Self {
        self.full();
        self
    }

    /// Closes the queue: it takes no more events. Events sent before can still be received; waiting
    /// receivers and senders wake. Returns true if the queue was open.
    pub fn close(&self) -> bool {
        self.full().signals().close()
    }

    /// Returns true if the queue is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.forms.large().is_some_and(|full| full.signals().is_closed())
    }

    /// Receives the next event, if there is one.
    ///
    /// # Errors
    /// [`RecvError::Empty`], or [`RecvError::Closed`] if no event can come any more.
    #[inline]
    pub fn try_recv(&self) -> Result<E, RecvError> {
        match self.forms.small() {
            Ok(mut few) => few.pop(),
            Err(full) => full.receive(true),
        }
    }

    /// Receives all events that are there, with one merge and one lock.
    pub fn drain(&self) -> Vec<E> {
        let mut events = Vec::new();
        self.drain_into(&mut events);
        events
    }

    /// Receives all events that are there, appends them to `events`, and returns how many came.
    ///
    /// If `events` is empty, its buffer is exchanged for the queue's and no event is copied: the
    /// fastest way to receive from one or two senders. With many, see
    /// [`drain_at_most`](Self::drain_at_most).
    pub fn drain_into(&self, events: &mut Vec<E>) -> usize {
        let before = events.len();
        match self.forms.small() {
            Ok(mut few) => few.move_all(events),
            Err(full) => full.drain_into(events),
        }
        events.len() - before
    }

    /// Receives up to `most` events, appends them to `events`, and returns how many came. Returns
    /// zero only if there are none, but perhaps fewer than there are.
    ///
    /// With many senders, the first events of a large merge come long before its last event has
    /// found its place.
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
        match self.forms.small() {
            Ok(mut few) => few.move_at_most(most, events),
            Err(full) => full.drain_at_most(most, events),
        }
        events.len() - before
    }

    /// Returns the number of events that are there. Gathers the logs, so not for hot paths.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.forms.small() {
            Ok(few) => few.events.len(),
            Err(full) => full.len(),
        }
    }

    /// Returns true if the queue is at its bound, so that a send would wait. Full is a state: it
    /// begins with the merge that reaches the bound, and ends when half of that has been received.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let is_full = |full: &Full<E>| full.signals().is_full() && !full.signals().is_closed();
        self.forms.large().is_some_and(is_full)
    }

    /// Returns true if no event is there. Costs as much as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns counts of what happened to the logs. Takes the queue's lock, so not for hot paths.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.full().inbox.stats()
    }
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
            .field("full", &self.is_full())
            .field("hot", &self.forms.large().is_some_and(|full| full.inbox.is_hot()))
            .finish_non_exhaustive()
    }
}

/// Factor of idle reads: a receiver that polls finds the queue empty many times while senders pause
/// for a moment.
const IDLE_FACTOR: u32 = if config::SMALL { 1 } else { 32 };

/// Divisor of the bias ratio. Merges are spaced out by many times their own duration (`front`), so
/// a barrier in them takes little of the senders' time, and pays from fewer updates per read on.
const BIAS_PART: u64 = if config::SMALL { 1 } else { 3 };

/// Default of the merged events that a queue holds.
const DEFAULT_MAX_EVENTS: usize = 1 << 20;

/// Builder for an [`EventQueue`].
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
    /// Sets how many events may wait for the receiver before the queue is full (default 2^20).
    ///
    /// The count is taken when logs are merged. Beyond it, each sending thread may have as many
    /// events in its log as an eighth of the bound (at least one, at most 4,096).
    #[must_use]
    pub fn max_events(mut self, events: usize) -> Self {
        self.max_events = events;
        self
    }

    /// Sets when the queue has logs. By default a busy sole sender gets a log, more than two
    /// senders get logs when they contend, and for one or two a trial finds out which is faster.
    #[must_use]
    pub fn logs(mut self, logs: Logs) -> Self {
        self.logs = logs;
        self
    }

    /// Sets how a send publishes its event (default: depends on the ratio of sends to merges).
    #[must_use]
    pub fn publish(mut self, publish: Publish) -> Self {
        self.publish = publish;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    /// If the bound is zero or absurdly large (an [`unbounded`](EventQueue::unbounded) queue has
    /// none).
    pub fn build(&self) -> Result<EventQueue<E>, BuildError> {
        match self.max_events {
            0 => Err(BuildError::Zero("max_events")),
            events if events > config::MAX_BOUND => Err(BuildError::TooLarge("max_events")),
            _ => self.build_checked(),
        }
    }

    fn build_checked(&self) -> Result<EventQueue<E>, BuildError> {
        let settings = Deferred::<run::Inbox<E>, run::Run<E>>::builder()
            .max_entries((self.max_events / 8).clamp(1, config::DEFAULT_MAX_ENTRIES))
            .growth(2)
            .logs(self.logs)
            .publish(self.publish)
            .idle_reads(config::IDLE_READS * IDLE_FACTOR)
            .ratio_for_bias(config::RATIO_FOR_BIAS / BIAS_PART)
            .check()?;
        let few = Few {
            events: VecDeque::new(),
            max_events: self.max_events,
            settings: Some(settings),
            tunes: self.logs == Logs::Auto,
        };
        let queue = EventQueue { forms: Promotable::new(few) };
        if self.logs == Logs::Always {
            queue.forms.promote();
        }
        Ok(queue)
    }
}
