//! The receivers' side: events that are handed out one by one, and the policy of when the queue has
//! logs.
//!
//! Owns: the policies. A sole sender takes no stamp for a log, so it gets a log when it is busy.
//! With two senders, each pays for a stamp, and saves turns at a lock that it mostly finds free.
//! What these cost differs from machine to machine, so a trial decides (policy.P4); for a sole
//! sender, too, once it has a log. With more than two senders, several would wait at once: when
//! they contend, they get logs, which stay.
//!
//! Senders stand still while a merge takes their logs. A receiver of batches that polls without a
//! pause would leave them no time to send, so it is paced. It rests for a multiple of its merge's
//! duration, by how many events the merge brought, and yields its core for that time, because the
//! senders may need it. With two senders and a receiver on two cores, merges then bring 4,000
//! events instead of 40, and 2.4 to 3 times as many get through.

use super::merge::Pending;
use super::ring::Ring;
use super::run::Senders;
use super::signals::Signals;
use super::waiter::Waiter;
use crate::config::SMALL;
use crate::policy::{Streak, Trial};
use crate::sync::thread;
use std::collections::VecDeque;
use std::mem::{replace, take};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events in a batch from which the batch speaks for logs.
const BATCH_FOR_LOGS: usize = 16;
/// Batches of that size in a row after which a sole sender gets a log.
const BATCHES_FOR_LOGS: u32 = 4;
/// Merges in a row with events of only one sender, after which the others are forgotten.
const MERGES_TO_FORGET: u32 = 64;
/// Batches in a window of the trial.
const BATCHES: u32 = 32;

/// See the module header.
#[derive(Debug)]
pub(super) struct Front<E> {
    pub(super) events: VecDeque<E>,
    /// Events that come after `events`.
    pub(super) pending: Pending<E>,
    /// Events that come after `pending`. Made when a receiver of single events has found none.
    pub(super) ring: Option<Arc<Ring<E>>>,
    /// True if a buffer, here or in the inbox, has grown beyond what an empty queue keeps, since a
    /// receiver last found the queue empty.
    pub(super) is_roomy: bool,
    pub(super) tuning: Tuning,
    pub(super) pace: Pace,
    /// True if the queue is to get logs, once the receivers' lock has been released.
    pub(super) promotes: bool,
    /// Senders to wake after that, because there is room.
    pub(super) released: Vec<Waiter>,
}

impl<E> Default for Front<E> {
    fn default() -> Self {
        let (events, pending) = (VecDeque::new(), Pending::default());
        let (tuning, pace) = (Tuning::default(), Pace::default());
        let (promotes, released) = (false, Vec::new());
        Self { events, pending, ring: None, is_roomy: false, tuning, pace, promotes, released }
    }
}

impl<E> Front<E> {
    pub(super) fn len(&self) -> usize {
        self.events.len() + self.pending.len()
    }

    /// Notes how many taken events are left.
    pub(super) fn note_left(&mut self, signals: &Signals) {
        let ring = self.ring.as_deref();
        let has_more = |than| ring.is_some_and(|ring| ring.has_more(than));
        if let Some(senders) = signals.note_taken(self.len(), has_more) {
            debug_assert!(self.released.is_empty(), "event_queue.Q7: woken senders are passed by");
            self.released = senders;
        }
    }

    /// Takes the next of the events that were taken from the inbox.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<E> {
        if self.len() == 0 { None } else { self.pop_taken() }
    }

    fn pop_taken(&mut self) -> Option<E> {
        self.events.pop_front().or_else(|| self.pending.pop())
    }

    /// Takes the next event in the ring. The caller has no other event.
    #[inline]
    pub(super) fn pop_ring(&self) -> Option<E> {
        self.ring.as_ref()?.take()
    }

    /// Asks senders for single events (event_queue.Q10).
    pub(super) fn ask(&mut self, signals: &Signals) {
        let ring = self.ring.get_or_insert_with(|| Arc::new(Ring::new()));
        signals.ask(&**ring);
    }

    /// Moves up to `most` events to the end of `out`.
    pub(super) fn move_to(&mut self, most: usize, out: &mut Vec<E>) {
        let from_events = most.min(self.events.len());
        out.extend(self.events.drain(..from_events));
        self.pending.move_to(most - from_events, out);
    }
}

/// Events in a batch of logs from which the merge was worth its time: about what two senders make
/// in the longest rest.
const BATCH_WORTH: usize = 2048;
/// Events that count for the rest after a smaller batch, at most. The rest is the merge's duration
/// times its events. Senders that send little lose little by a merge, and after a lone event the
/// rest takes no longer than a merge.
const REST: usize = 16;
/// The longest rest.
const REST_MOST: Duration = Duration::from_micros(50);
/// The rest after a small batch of a cold queue.
const REST_COLD: Duration = Duration::from_micros(1);

/// Spaces out merges that bring little, so that senders on other cores get work done.
#[derive(Debug, Default)]
pub(super) struct Pace {
    rest_until: Option<Instant>,
}

impl Pace {
    /// Waits before a merge.
    pub(super) fn rest(&mut self) {
        if let Some(until) = self.rest_until.take() {
            // A model checker has no time.
            while !SMALL && Instant::now() < until {
                thread::yield_now();
            }
        }
    }

    /// Notes a merge that brought `events` events; `began` is its start if it was a merge of logs.
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

/// Returns the rest after a merge of logs that took `took` and brought `events` events.
fn rest_after(events: usize, took: Duration) -> Duration {
    (took * events.clamp(1, REST) as u32).min(REST_MOST)
}

/// A receiver's observations when it took some events.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) events: usize,
    pub(super) is_hot: bool,
    pub(super) senders: Senders,
    /// True if events in logs are stamped, as those of many senders.
    pub(super) has_stamps: bool,
    /// Merges in a row that found events of only one sender.
    pub(super) single_merges: Streak,
}

/// The receiver's next task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Advice {
    #[default]
    Keep,
    /// Give the queue logs.
    Promote,
    /// Take the queue's logs away, even if senders contend.
    Rest,
    /// Give the queue logs if senders contend.
    Contend,
}

/// State of the policy.
#[derive(Debug, Default)]
pub(super) struct Tuning {
    large_batches: Streak,
    /// The trial of no logs and of logs.
    trial: Trial,
    /// True if the sole sender got logs without a trial.
    has_given: bool,
    /// True if senders get logs when they contend.
    contends: bool,
    /// Batches and events of a window, and when it began.
    batches: u32,
    events: u64,
    began: u64,
}

impl Tuning {
    /// Returns advice after a batch. A receiver that finds no events says nothing about the
    /// senders.
    pub(super) fn advise(&mut self, batch: Batch, now: impl FnOnce() -> u64) -> Advice {
        self.large_batches.observe(batch.events >= BATCH_FOR_LOGS);
        self.batches += 1;
        self.events += batch.events as u64;
        let is_sole = !batch.has_stamps && batch.senders.are_one();
        let was_given = self.has_given;
        self.has_given &= is_sole;
        // The log that a sole sender was given is no choice for two. And if one of two senders is
        // left, it is a sole sender again once the object has had no logs.
        let is_past = was_given || batch.single_merges.is_due(MERGES_TO_FORGET);
        if batch.is_hot && batch.has_stamps && !batch.senders.are_crowd() && is_past {
            self.large_batches.clear();
            return self.rest();
        }
        if !batch.is_hot && batch.senders.are_crowd() && !self.contends {
            self.contends = true;
            return Advice::Contend;
        }
        let is_busy = !batch.is_hot && self.large_batches.is_due(BATCHES_FOR_LOGS);
        if is_busy && is_sole && !self.has_given {
            self.has_given = true;
            self.trial.force(true);
            return Advice::Promote;
        }
        match self.batches < BATCHES {
            true => Advice::Keep,
            false => self.end_window(batch, is_sole, now()),
        }
    }

    /// Returns true if a window begins with the next batch.
    pub(super) fn begins(&self) -> bool {
        self.batches == 0
    }

    #[inline(never)]
    fn end_window(&mut self, batch: Batch, is_sole: bool, now: u64) -> Advice {
        let ticks = now.saturating_sub(replace(&mut self.began, now));
        let (_, events) = (take(&mut self.batches), take(&mut self.events));
        if batch.senders.are_crowd() {
            self.trial.measure_anew(); // several would wait at once
            return Advice::Keep;
        }
        let may_try = batch.is_hot || self.large_batches.is_due(1);
        match self.trial.note(batch.is_hot, events, ticks, may_try) {
            true if batch.is_hot => Advice::Keep,
            true => Advice::Promote,
            false if is_sole && !batch.is_hot => Advice::Keep, // no sender contends with it
            false => self.rest(),
        }
    }

    fn rest(&mut self) -> Advice {
        self.contends = false;
        Advice::Rest
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const COLD: Batch = Batch {
        events: 100,
        is_hot: false,
        senders: Senders::ONE,
        has_stamps: false,
        single_merges: Streak::NONE,
    };
    const TWO: Batch = Batch { senders: Senders::TWO, ..COLD };
    const CROWD: Batch = Batch { senders: Senders::CROWD, ..COLD };

    fn nth_advice(tuning: &mut Tuning, batch: Batch, n: u32) -> Advice {
        let advise = |tuning: &mut Tuning| tuning.advise(batch, || 0);
        (1..n).for_each(|_| assert_eq!(advise(tuning), Advice::Keep));
        advise(tuning)
    }

    /// A queue that follows the advice.
    #[derive(Default)]
    struct Obeying {
        tuning: Tuning,
        is_hot: bool,
        ticks: u64,
    }

    impl Obeying {
        /// Returns the share of batches, in percent, that came by logs. `ticks` is the time of an
        /// event without logs and with them.
        fn logged_share(&mut self, batch: Batch, ticks: [u64; 2], batches: u64) -> u64 {
            let mut logged = 0;
            for _ in 0..batches {
                logged += u64::from(self.is_hot);
                self.ticks += batch.events as u64 * ticks[usize::from(self.is_hot)];
                match self.tuning.advise(Batch { is_hot: self.is_hot, ..batch }, || self.ticks) {
                    Advice::Promote => self.is_hot = true,
                    Advice::Rest => self.is_hot = false,
                    Advice::Keep => {}
                    Advice::Contend => panic!("they are no crowd"),
                }
            }
            logged * 100 / batches
        }
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
        assert_eq!(nth_advice(&mut tuning, COLD, BATCHES_FOR_LOGS), Advice::Promote);
    }

    #[test]
    fn one_or_two_senders_have_logs_where_a_trial_finds_these_faster() {
        for batch in [COLD, TWO] {
            let mut queue = Obeying::default();
            for _ in 0..3 {
                for ticks in [[10, 5], [100, 50]] {
                    queue.logged_share(batch, ticks, 400_000);
                    let share = queue.logged_share(batch, ticks, 400_000);
                    assert!(share >= 98, "logs are faster: {share}");
                }
                for ticks in [[10, 20], [100, 300]] {
                    queue.logged_share(batch, ticks, 400_000);
                    let share = queue.logged_share(batch, ticks, 400_000);
                    assert!(share <= 2, "the lock is faster: {share}");
                }
            }
        }
    }

    #[test]
    fn two_senders_of_small_batches_have_no_logs() {
        let batch = Batch { events: BATCH_FOR_LOGS - 1, ..TWO };
        assert_eq!(Obeying::default().logged_share(batch, [100, 10], 100_000), 0);
    }

    #[test]
    fn more_senders_get_logs_when_they_contend_and_keep_them() {
        let mut tuning = Tuning::default();
        assert_eq!(tuning.advise(CROWD, || 0), Advice::Contend);
        assert_eq!(nth_advice(&mut tuning, CROWD, 10 * BATCHES), Advice::Keep);
        let hot = Batch { is_hot: true, ..CROWD };
        assert_eq!(nth_advice(&mut tuning, hot, 10 * BATCHES), Advice::Keep);
    }

    #[test]
    fn second_sender_takes_away_what_the_first_was_given() {
        let mut tuning = Tuning::default();
        assert_eq!(nth_advice(&mut tuning, COLD, BATCHES_FOR_LOGS), Advice::Promote);
        let hot = Batch { is_hot: true, ..COLD };
        assert_eq!(nth_advice(&mut tuning, hot, BATCHES / 2), Advice::Keep);
        let stamped = Batch { has_stamps: true, ..hot };
        assert_eq!(tuning.advise(stamped, || 0), Advice::Rest);
        // Logs given by a trial or by contention stay.
        assert_eq!(nth_advice(&mut tuning, stamped, 8), Advice::Keep);
    }

    #[test]
    fn one_of_many_senders_left_is_found_out() {
        let mut tuning = Tuning::default();
        let single_merges = Streak::from_raw(MERGES_TO_FORGET);
        let alone = Batch { is_hot: true, has_stamps: true, single_merges, ..COLD };
        assert_eq!(tuning.advise(alone, || 0), Advice::Rest);
        assert_eq!(nth_advice(&mut tuning, COLD, BATCHES_FOR_LOGS), Advice::Promote);
    }
}
