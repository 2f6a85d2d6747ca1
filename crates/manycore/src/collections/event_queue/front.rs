//! The receivers' side: events that are handed out one by one, and when the queue has logs.
//!
//! Owns: the policies. A sole sender is best off with a log (it takes no stamp there, 8 ns against
//! 15 of a cold queue). Several senders pay a stamp for a log, so they begin on the cold queue's
//! lock, and its contention promotes. And senders stand still while a merge takes their logs, so a
//! receiver of batches that polls without a pause would leave them no time to send: it is paced. It
//! rests for a multiple of its merge's duration, by how many events that brought, and yields its
//! core for that time, because the senders may need it: with two senders and a receiver on two
//! cores, merges then bring 4,000 events instead of 40, and 2.4 to 3 times as many get through.

use super::merge::Pending;
use super::ring::Ring;
use super::signals::Signals;
use super::waiter::Waiter;
use crate::config::SMALL;
use crate::policy::Streak;
use crate::sync::thread;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events in a batch from which on it speaks for logs.
const BATCH_FOR_LOGS: usize = 16;
/// Such batches in a row of a sole sender until it gets a log.
const BATCHES_FOR_LOGS: u32 = 4;
/// Merges in a row that found one sender's events only until the others are forgotten.
const MERGES_TO_FORGET: u32 = 64;
/// Batches of a cold queue until its senders are forgotten.
const BATCHES_TO_FORGET: u32 = 32;

/// See the module header.
#[derive(Debug)]
pub(super) struct Front<E> {
    pub(super) events: VecDeque<E>,
    /// Comes after `events`.
    pub(super) pending: Pending<E>,
    /// Comes after `pending`; made when a receiver of single events has found none.
    pub(super) ring: Option<Arc<Ring<E>>>,
    /// Whether a buffer, here or in the inbox, has grown beyond what an empty queue keeps, since a
    /// receiver found the queue empty.
    pub(super) is_roomy: bool,
    pub(super) tuning: Tuning,
    pub(super) pace: Pace,
    /// Of the last merge, to be followed when the receivers' lock has been released.
    pub(super) advice: Advice,
    /// Senders to be woken then, because there is room.
    pub(super) released: Vec<Waiter>,
}

impl<E> Default for Front<E> {
    fn default() -> Self {
        let (events, pending) = (VecDeque::new(), Pending::default());
        let (tuning, pace) = (Tuning::default(), Pace::default());
        let (advice, released) = (Advice::default(), Vec::new());
        Self { events, pending, ring: None, is_roomy: false, tuning, pace, advice, released }
    }
}

impl<E> Front<E> {
    pub(super) fn len(&self) -> usize {
        self.events.len() + self.pending.len()
    }

    /// Says that so many events are left, of those that were taken.
    pub(super) fn note_left(&mut self, signals: &Signals) {
        let ring = self.ring.as_deref();
        let has_more = |than| ring.is_some_and(|ring| ring.has_more(than));
        if let Some(senders) = signals.note_taken(self.len(), has_more) {
            debug_assert!(self.released.is_empty(), "event_queue.Q7: woken senders are passed by");
            self.released = senders;
        }
    }

    /// The next event of those that were taken.
    pub(super) fn pop(&mut self) -> Option<E> {
        self.events.pop_front().or_else(|| self.pending.pop())
    }

    /// The next event in the ring. No other is here.
    #[inline]
    pub(super) fn pop_ring(&self) -> Option<E> {
        self.ring.as_ref()?.take()
    }

    /// Asks senders for single events (event_queue.Q10).
    pub(super) fn ask(&mut self, signals: &Signals) {
        let ring = self.ring.get_or_insert_with(|| Arc::new(Ring::new()));
        signals.use_ring(Arc::as_ptr(ring));
    }

    /// Moves up to `most` events to the end of `out`.
    pub(super) fn move_to(&mut self, most: usize, out: &mut Vec<E>) {
        let from_events = most.min(self.events.len());
        out.extend(self.events.drain(..from_events));
        self.pending.move_to(most - from_events, out);
    }
}

/// Events in a batch of logs from which on the merge was worth its time: about what two senders
/// make in the longest rest.
const BATCH_WORTH: usize = 2048;
/// A smaller batch is followed by its own time without a merge for each of its events, and for so
/// many at most: senders that send little lose little by a merge, and a lone event waits no longer
/// than a merge takes ...
const REST: usize = 16;
/// ... but no more than this.
const REST_MOST: Duration = Duration::from_micros(50);
/// What a small batch of a cold queue is followed by.
const REST_COLD: Duration = Duration::from_micros(1);

/// Keeps merges that bring little apart, so that senders on other cores get something done.
#[derive(Debug, Default)]
pub(super) struct Pace {
    rest_until: Option<Instant>,
}

impl Pace {
    /// Before a merge.
    pub(super) fn rest(&mut self) {
        if let Some(until) = self.rest_until.take() {
            // A model checker has no time.
            while !SMALL && Instant::now() < until {
                thread::yield_now();
            }
        }
    }

    /// After a merge of `events` that began at `began` if it was one of logs.
    pub(super) fn note(&mut self, events: usize, began: Option<Instant>) {
        self.rest_until = match began {
            Some(began) if events < BATCH_WORTH => {
                let now = Instant::now();
                Some(now + rest_after(events, now.duration_since(began)))
            }
            None if (1..BATCH_FOR_LOGS).contains(&events) => Some(Instant::now() + REST_COLD),
            _ => None,
        };
    }
}

/// How long no merge follows one of logs that took so long and brought so few events.
fn rest_after(events: usize, took: Duration) -> Duration {
    (took * events.clamp(1, REST) as u32).min(REST_MOST)
}

/// What a receiver saw when it merged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) events: usize,
    pub(super) is_hot: bool,
    pub(super) many_senders: bool,
    /// Merges that found the events of one sender only.
    pub(super) single_merges: Streak,
}

/// What the receiver should do about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Advice {
    #[default]
    Keep,
    Promote,
    Demote,
    ForgetSenders,
}

/// The state of the policy.
#[derive(Debug, Default)]
pub(super) struct Tuning {
    large_batches: Streak,
    /// Batches of a cold queue with many senders.
    cold_batches: Streak,
    /// Whether the logs that the queue has now were given to a sole sender, by this policy.
    given_alone: bool,
}

impl Tuning {
    pub(super) fn advise(&mut self, batch: Batch) -> Advice {
        if batch.events == 0 {
            return Advice::Keep; // a receiver that polls says nothing about the senders
        }
        self.large_batches.observe(batch.events >= BATCH_FOR_LOGS);
        if batch.is_hot { self.advise_hot(batch) } else { self.advise_cold(batch) }
    }

    fn advise_hot(&mut self, batch: Batch) -> Advice {
        self.cold_batches.clear();
        let is_alone_again = batch.single_merges.is_due(MERGES_TO_FORGET);
        if !batch.many_senders || !(self.given_alone || is_alone_again) {
            return Advice::Keep;
        }
        self.given_alone = false;
        self.large_batches.clear();
        Advice::Demote
    }

    fn advise_cold(&mut self, batch: Batch) -> Advice {
        self.given_alone = !batch.many_senders && self.large_batches.is_due(BATCHES_FOR_LOGS);
        if self.given_alone {
            return Advice::Promote;
        }
        if !batch.many_senders {
            return Advice::Keep;
        }
        match self.cold_batches.observe(true).take(BATCHES_TO_FORGET) {
            true => Advice::ForgetSenders,
            false => Advice::Keep,
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const COLD: Batch =
        Batch { events: 100, is_hot: false, many_senders: false, single_merges: Streak::NONE };
    const HOT: Batch = Batch { is_hot: true, ..COLD };

    fn nth_advice(tuning: &mut Tuning, batch: Batch, n: u32) -> Advice {
        (1..n).for_each(|_| assert_eq!(tuning.advise(batch), Advice::Keep));
        tuning.advise(batch)
    }

    #[test]
    fn merges_that_bring_a_lone_event_are_no_further_apart_than_they_take() {
        let took = Duration::from_micros(2);
        let rests = [0, 1, 5, 16, 40].map(|events| rest_after(events, took));
        assert_eq!(rests, [2, 2, 10, 32, 32].map(Duration::from_micros));
        assert_eq!(rest_after(40, Duration::from_millis(1)), REST_MOST);
    }

    #[test]
    fn busy_sole_sender_gets_a_log_and_idle_one_does_not() {
        let mut tuning = Tuning::default();
        let small = Batch { events: BATCH_FOR_LOGS - 1, ..COLD };
        assert_eq!(nth_advice(&mut tuning, small, 1000), Advice::Keep);
        tuning.advise(COLD);
        tuning.advise(Batch { events: 0, ..COLD }); // does not interrupt
        assert_eq!(nth_advice(&mut tuning, COLD, BATCHES_FOR_LOGS - 1), Advice::Promote);
    }

    #[test]
    fn second_sender_takes_the_sole_senders_log_away_once() {
        let mut tuning = Tuning::default();
        assert_eq!(nth_advice(&mut tuning, COLD, BATCHES_FOR_LOGS), Advice::Promote);
        assert_eq!(nth_advice(&mut tuning, HOT, 100), Advice::Keep);
        let many = Batch { many_senders: true, ..HOT };
        assert_eq!(tuning.advise(many), Advice::Demote);
        // Contention gives logs again, and then they stay.
        tuning.advise(Batch { many_senders: true, ..COLD });
        assert_eq!(nth_advice(&mut tuning, many, 1000), Advice::Keep);
    }

    #[test]
    fn logs_that_contention_gave_before_the_first_look_stay() {
        let many = Batch { many_senders: true, ..HOT };
        assert_eq!(nth_advice(&mut Tuning::default(), many, 1000), Advice::Keep);
    }

    #[test]
    fn one_of_many_senders_left_is_found_out() {
        let mut tuning = Tuning::default();
        let many_cold = Batch { many_senders: true, ..COLD };
        assert_eq!(nth_advice(&mut tuning, many_cold, BATCHES_TO_FORGET), Advice::ForgetSenders);
        let alone =
            Batch { many_senders: true, single_merges: Streak::from_raw(MERGES_TO_FORGET), ..HOT };
        assert_eq!(tuning.advise(alone), Advice::Demote);
    }
}
