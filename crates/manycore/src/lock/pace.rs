//! How long a waiter of the object lock pauses between two looks at the word.
//!
//! Owns: what a thread learns from its looks. Does not own: the word (`word`), nor the turns, which
//! the lock's holders count.
//!
//! ```text
//! short pause, then a look:  free                      --> short pauses suit (a little)
//!                            held, in the same turn    --> holds are long: short pauses suit
//!                            held, in another turn     --> holds are short: long pauses suit
//!                                                          (after a fifth of such looks)
//! 64 long pauses             --> one short pause probes again
//! ```
//!
//! A look takes the line from the owner, and the owner takes it back. If threads do little else
//! than lock, one thread should go on for some microseconds before the next has its turn. So the
//! lock and the data stay in its cache. If holds, or the times between them, are long compared with
//! a hand-over, a waiter should look often. Otherwise threads stand still for the rest of a pause.
//! How often looks fail does not tell these two cases apart: in both, the lock may be held half of
//! the time.
//!
//! What does tell is whether the lock was *taken anew* within a short pause. So holders count their
//! turns beside the lock, in a line that they write anyway. If the lock is held in the same turn,
//! the hold is long, and short pauses go on. If more than a fifth of the short pauses end with the
//! lock held in another turn, holds are short. Then the thread takes long pauses, in its next waits
//! too, until a short pause probes again.
//!
//! If a look finds the lock free, that speaks for short pauses: the waiter can have the lock, and
//! runs beside the last holder. It does not if other waiters are parked, because short pauses make
//! them run no sooner. A lock without a count of turns tells less: there, a held lock always counts
//! as taken anew, and long pauses are shorter, since holds may be long.
//!
//! All of this is a hint. If it is wrong, waits take longer.

use crate::config::SMALL;
use crate::sync::{self, AtomicU32, Ordering, hint};
use std::cell::Cell;
use std::mem;

/// Pause instructions of a short pause: 0.2 to 1 us. (Every look takes the line from the owner.
/// Between two cores of an EPYC the owner waits some 200 ns for it, and the waiter as long on the
/// way back.)
const SHORT: u32 = if SMALL { 1 } else { 16 };

/// Pause instructions of a long pause: 2 to 24 us.
const LONG: u32 = if SMALL { 1 } else { 512 };

/// Pause instructions of a long pause if turns are not counted.
const LONG_BLIND: u32 = if SMALL { 1 } else { 128 };

/// What a short pause adds if the lock is then held in another turn; a lock held in the same turn
/// takes as much back.
const ANEW: u32 = 4;

/// What a free lock takes back: so a fifth of the looks decide.
const FREE: u32 = 1;

/// Pauses are long from this count on.
const SURE: u32 = 4 * ANEW;

/// Number of long pauses before a short pause probes again.
const PROBE_AFTER: u32 = 64;

sync::thread_local! {
    /// Below `SURE`, what the short pauses have told; from `SURE` on, it also counts the long
    /// pauses until the next short one. Starts with long pauses: if many threads come to a lock at
    /// once, each would disturb the owner just to learn that.
    static LEARNED: Cell<u32> = const { Cell::new(SURE + PROBE_AFTER) };
}

/// The pace of one waiter.
pub(super) struct Pace<'a> {
    /// A word that each holder of the lock changes, if there is one.
    turns: Option<&'a AtomicU32>,
    /// Same as [`LEARNED`].
    learned: u32,
    /// The turn at the last look.
    turn: u32,
    /// True if the waiter has taken a short pause since the last look.
    is_probing: bool,
}

impl<'a> Pace<'a> {
    /// Starts with what the thread has learned.
    pub(super) fn learned(turns: Option<&'a AtomicU32>) -> Self {
        let learned = if SMALL { 0 } else { LEARNED.with(Cell::get) };
        Self { turns, learned, turn: 0, is_probing: false }
    }

    /// Keeps what was learned for the thread's next wait.
    pub(super) fn keep(&self) {
        if !SMALL {
            LEARNED.with(|learned| learned.set(self.learned));
        }
    }

    /// Learns from a look. `is_held`: the look found the lock held. `is_crowded`: other waiters are
    /// parked.
    pub(super) fn looked(&mut self, is_held: bool, is_crowded: bool) {
        // ORDER: Relaxed; a hint. (Left out of models, where it is not worth its steps.)
        let turn = self.turns.filter(|_| !SMALL).map_or(0, |turns| turns.load(Ordering::Relaxed));
        let is_same = mem::replace(&mut self.turn, turn) == turn && self.turns.is_some();
        if !mem::take(&mut self.is_probing) {
            return;
        }
        let tells = is_held || is_crowded && self.turns.is_some();
        self.learned = if !tells {
            self.learned.saturating_sub(FREE)
        } else if is_same {
            self.learned.saturating_sub(ANEW)
        } else if self.learned + ANEW < SURE {
            self.learned + ANEW
        } else {
            SURE + PROBE_AFTER
        };
    }

    /// Pauses. Returns the number of pause instructions.
    pub(super) fn pause(&mut self) -> u32 {
        self.is_probing = self.learned < SURE;
        let pauses = if self.is_probing {
            SHORT
        } else {
            self.learned -= 1;
            if self.turns.is_some() { LONG } else { LONG_BLIND }
        };
        (0..pauses).for_each(|_| hint::spin_loop());
        pauses
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle), not(miri)))]
mod tests {
    use super::*;
    use crate::sync::thread;

    fn pace(turns: Option<&AtomicU32>, learned: u32) -> Pace<'_> {
        let mut pace = Pace { turns, learned, turn: 0, is_probing: false };
        pace.looked(true, false); // at its arrival
        pace
    }

    #[test]
    fn pauses_are_long_where_the_lock_is_taken_anew_within_short_ones() {
        let turns = AtomicU32::new(0);
        let mut pace = pace(Some(&turns), 0);
        let mut lengths = Vec::new();
        for _ in 0..4 + PROBE_AFTER + 2 {
            lengths.push(pace.pause());
            turns.fetch_add(1, Ordering::Relaxed);
            pace.looked(true, false);
        }
        let long = PROBE_AFTER as usize;
        assert_eq!(lengths[..4], [SHORT; 4]);
        assert!(lengths[4..][..=long].iter().all(|&length| length == LONG), "{lengths:?}");
        assert_eq!(lengths[4 + long + 1..], [SHORT], "a probe");
        assert_eq!(pace.pause(), LONG, "its lock was taken anew, too");
    }

    #[test]
    fn pauses_are_short_where_holds_outlast_them() {
        let turns = AtomicU32::new(0);
        let mut pace = pace(Some(&turns), SURE);
        assert_eq!(pace.pause(), LONG);
        for at in 1..=1000 {
            assert_eq!(pace.pause(), SHORT, "pause {at}");
            if at % 3 == 0 {
                turns.fetch_add(1, Ordering::Relaxed); // one hold in three is short
            }
            pace.looked(true, false);
        }
    }

    #[test]
    fn pauses_are_long_where_more_than_a_fifth_of_the_looks_find_the_lock_held() {
        let counted = AtomicU32::new(0);
        for turns in [None, Some(&counted)] {
            let long_of = |one_in: u32| {
                let mut pace = pace(turns, 0);
                let is_long = |at: &u32| {
                    let length = pace.pause();
                    counted.fetch_add(1, Ordering::Relaxed);
                    pace.looked(at % one_in == 0, false);
                    length > SHORT
                };
                (0..20_000).filter(is_long).count()
            };
            assert_eq!(long_of(6), 0);
            assert!(long_of(3) > 10_000 && long_of(1) > 19_000);
        }
    }

    #[test]
    fn free_lock_is_left_to_its_owner_where_it_was_taken_anew_and_others_are_parked() {
        let turns = AtomicU32::new(0);
        for (is_crowded, after) in [(true, LONG), (false, SHORT)] {
            let mut pace = pace(Some(&turns), 0);
            for _ in 0..4 {
                pace.pause();
                turns.fetch_add(1, Ordering::Relaxed);
                pace.looked(false, is_crowded);
            }
            assert_eq!(pace.pause(), after);
        }
    }

    #[test]
    fn what_a_thread_has_learned_is_kept_for_its_next_wait() {
        thread::scope(|scope| {
            scope.spawn(|| {
                let turns = AtomicU32::new(0);
                let mut first = Pace::learned(Some(&turns));
                assert_eq!(first.pause(), LONG);
                first.learned = 0;
                first.keep();
                assert_eq!(Pace::learned(Some(&turns)).pause(), SHORT);
            });
        });
    }
}
