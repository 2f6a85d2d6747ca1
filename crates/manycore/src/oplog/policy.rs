//! The controllers of a [`Deferred`](super::Deferred): they decide when it has logs, how its
//! updates publish, and whether a read uses the combining tree.
//!
//! Owns: the decisions. The mechanisms count evidence, ask here, and obey. The evidence comes from
//! updates of a cold object (`contention`), and from reads of a hot object. Each hot object has a
//! [`Policy`] in its log set. An eviction forgets what it has learned. Like [`crate::policy`],
//! which it is made of, it uses no atomics and no clock.

use super::settings::Publish;
use crate::config;
use crate::policy::{Streak, Trial};
use std::mem::{replace, take};

/// Number of reads in a row that must call for the other way to publish.
const READS_FOR_SWITCH: u32 = 2;
/// Number of reads in a window of the trial.
const READS: u32 = 32;
/// Number of collections in a window of the tree's trial. The first ones with a tree find out which
/// threads help; the trial leaves out its first window.
const COLLECTIONS: u32 = 2;

/// What a read of a hot object has found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// Number of updates since the read before.
    pub(super) updates: u64,
    /// True if updates are biased and one of the updaters did not answer in time.
    pub(super) unanswered: bool,
}

/// The controllers of one hot object; the module header explains them.
#[derive(Debug, Default)]
pub(super) struct Policy {
    demotion: Streak,
    publication: Streak,
    /// Decides whether updates are biased, where their ratio to reads does not.
    trial: Trial,
    /// Reads and updates in the trial's window, and the time at which the window began.
    reads: u32,
    updates: u64,
    began: u64,
    /// Decides whether collections of many dirty slots use a tree. Few objects ever have any.
    tree: Option<Box<TreeTrial>>,
}

/// A trial, and the collections in its window: their number, their dirty slots, and the time that
/// they took.
#[derive(Debug, Default)]
struct TreeTrial {
    trial: Trial,
    collections: u32,
    slots: u64,
    ticks: u64,
}

impl Policy {
    /// Returns true if the logs no longer pay, after `patience` reads in a row that found few
    /// updates.
    pub(super) fn wants_demotion(&mut self, found: Evidence, patience: u32) -> bool {
        let idle = found.updates < u64::from(config::RATIO_FOR_LOGS / 2);
        self.demotion.observe(idle).is_due(patience)
    }

    /// Returns true if updates are to publish biased from now on.
    ///
    /// They publish `biased` now, and can only where barriers are `asymmetric`. `ratio` updates per
    /// read pay for a membarrier. Fewer may pay, too, if updaters answer and so make the membarrier
    /// unnecessary; then both ways are tried. `now` is called rarely.
    pub(super) fn publication(
        &mut self,
        found: Evidence,
        publish: Publish,
        biased: bool,
        asymmetric: bool,
        ratio: u64,
        now: impl FnOnce() -> u64,
    ) -> bool {
        match publish {
            Publish::Locked => false,
            Publish::Biased => asymmetric,
            Publish::Auto if found.updates == 0 => biased, // the read has cost no barrier
            Publish::Auto if !asymmetric => false,
            Publish::Auto => {
                let switches = self.switches_by_ratio(found, biased, ratio);
                self.reads += 1;
                self.updates = self.updates.saturating_add(found.updates);
                if !switches && self.reads < READS {
                    return biased;
                }
                let now = now();
                let ticks = now.saturating_sub(replace(&mut self.began, now));
                let updates = take(&mut self.updates);
                self.reads = 0;
                self.trial.note(biased ^ switches, updates, ticks, found.updates <= ratio)
            }
        }
    }

    fn switches_by_ratio(&mut self, found: Evidence, biased: bool, ratio: u64) -> bool {
        let calls = match biased {
            false => found.updates > ratio,
            true => found.unanswered && found.updates <= (ratio / 2).max(1),
        };
        self.publication.observe(calls).take(READS_FOR_SWITCH)
    }

    /// Returns true if a collection of many dirty slots uses a tree.
    pub(super) fn wants_tree(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.trial.is_second())
    }

    /// Notes a collection of many dirty slots, which took `ticks`.
    pub(super) fn note_collection(&mut self, has_tree: bool, slots: usize, ticks: u64) {
        let tree = self.tree.get_or_insert_default();
        tree.collections += 1;
        tree.slots += slots as u64;
        tree.ticks = tree.ticks.saturating_add(ticks);
        if tree.collections == COLLECTIONS {
            tree.collections = 0;
            tree.trial.note(has_tree, take(&mut tree.slots), take(&mut tree.ticks), true);
        }
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    const RATIO: u64 = config::RATIO_FOR_BIAS;
    /// Updates per read that pay only if the updaters answer.
    const FEW: u64 = 9;

    fn found(updates: u64) -> Evidence {
        Evidence { updates, unanswered: false }
    }

    /// A stream of (updates, unanswered while biased), and the time that a read and its updates
    /// take, biased and locked.
    struct Load<'a>(&'a [(u64, bool)], [u64; 2]);

    /// Returns the bias after each read.
    fn biases(policy: &mut Policy, first: bool, load: Load<'_>) -> Vec<bool> {
        let (mut biased, mut time) = (first, 0);
        let step = |&(updates, unanswered): &(u64, bool)| {
            let unanswered = biased && unanswered;
            time += if biased { load.1[0] } else { load.1[1] };
            let found = Evidence { updates, unanswered };
            biased = policy.publication(found, Publish::Auto, biased, true, RATIO, || time);
            biased
        };
        load.0.iter().map(step).collect()
    }

    const EVEN: [u64; 2] = [1000, 1000];

    /// Returns the percentage of reads that are biased in the second half.
    fn share_of_bias(first: bool, reads: usize, times: [u64; 2]) -> usize {
        let reads = vec![(FEW, false); reads];
        let chosen = biases(&mut Policy::default(), first, Load(&reads, times));
        let half = &chosen[chosen.len() / 2..];
        half.iter().filter(|biased| **biased).count() * 100 / half.len()
    }

    #[test]
    fn faster_publication_is_found_and_kept_whichever_is_first() {
        for first in [false, true] {
            assert!(share_of_bias(first, 100_000, [1000, 1200]) >= 97);
            assert!(share_of_bias(first, 100_000, [1200, 1000]) <= 3);
        }
        assert!(share_of_bias(true, 100_000, EVEN) >= 97);
        assert!(share_of_bias(false, 100_000, EVEN) <= 3);
    }

    #[test]
    fn first_trial_comes_soon() {
        let reads = vec![(FEW, false); 1000];
        let chosen = biases(&mut Policy::default(), true, Load(&reads, [2000, 1000]));
        assert!(chosen[..20 * READS as usize].iter().any(|biased| !biased));
        assert!(chosen[20 * READS as usize..].iter().all(|biased| !biased));
    }

    #[test]
    fn idle_reads_in_a_row_demote_and_one_busy_read_starts_again() {
        let pays = u64::from(config::RATIO_FOR_LOGS / 2);
        let reads = [0, pays - 1, pays, 0, 0, 0, 0];
        let mut policy = Policy::default();
        let wants = reads.map(|updates| policy.wants_demotion(found(updates), 3));
        assert_eq!(wants, [false, false, false, false, false, true, true]);
    }

    #[test]
    fn publication_that_is_configured_is_obeyed() {
        let mut policy = Policy::default();
        for (publish, asymmetric, biased) in [
            (Publish::Locked, true, false),
            (Publish::Biased, true, true),
            (Publish::Biased, false, false),
        ] {
            let chosen =
                policy.publication(found(RATIO * 2), publish, !biased, asymmetric, RATIO, || 0);
            assert_eq!(chosen, biased);
        }
    }

    #[test]
    fn two_reads_in_a_row_switch_publication() {
        let answered = |updates| (updates, false);
        let many = RATIO + 1;
        let [few, no_answer] = [(1, false), (1, true)];
        let many = answered(many);
        let reads = [many, few, many, many, answered(0), no_answer, many, no_answer, no_answer];
        let chosen = biases(&mut Policy::default(), false, Load(&reads, EVEN));
        assert_eq!(chosen, [false, false, false, true, true, true, true, true, false]);
    }

    #[test]
    fn without_asymmetric_barriers_no_load_is_biased() {
        let mut policy = Policy::default();
        let chosen = (0..9)
            .map(|_| policy.publication(found(u64::MAX), Publish::Auto, false, false, RATIO, || 0));
        assert!(chosen.collect::<Vec<_>>().iter().all(|biased| !biased));
    }

    #[test]
    fn updaters_that_never_answer_are_asked_ever_more_rarely() {
        let reads = vec![(FEW, true); 20_000];
        let chosen = biases(&mut Policy::default(), true, Load(&reads, EVEN));
        let starts: Vec<_> = (1..reads.len()).filter(|at| chosen[*at] && !chosen[at - 1]).collect();
        let gaps: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((4..9).contains(&starts.len()), "{starts:?}");
        assert!(gaps.windows(2).skip(1).all(|pair| pair[1] * 2 >= pair[0] * 3), "{gaps:?}");
    }

    #[test]
    fn enough_updates_pay_for_a_membarrier_whatever_the_answers() {
        let chosen =
            biases(&mut Policy::default(), false, Load(&vec![(RATIO + 1, true); 100], EVEN));
        assert_eq!(chosen.iter().position(|biased| *biased), Some(1));
        assert!(chosen[1..].iter().all(|biased| *biased));
    }

    /// Reads that find 16 to 79 dirty slots, each of which takes this many ticks without and with a
    /// tree. Returns how many of them had a tree.
    fn trees(policy: &mut Policy, ticks: [u64; 2]) -> u64 {
        let mut trees = 0;
        for read in 0..10_000_u64 {
            let (slots, has_tree) = (16 + read * 7 % 64, policy.wants_tree());
            trees += u64::from(has_tree);
            policy.note_collection(has_tree, slots as usize, slots * ticks[usize::from(has_tree)]);
        }
        trees
    }

    #[test]
    fn tree_is_kept_only_where_collections_are_faster_with_it() {
        let mut policy = Policy::default();
        assert!(trees(&mut policy, [100, 200]) < 150);
        for _ in 0..2 {
            trees(&mut policy, [100, 50]);
            assert!(trees(&mut policy, [100, 50]) > 9_900);
            trees(&mut policy, [100, 130]);
            assert!(trees(&mut policy, [100, 130]) < 150);
        }
    }
}
