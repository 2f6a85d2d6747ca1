//! Gates: how a reader excludes updaters, and how it learns that they have left.
//!
//! Owns: the values of a gate, the numbers of collections, and *answers*. Source of the answers:
//! Liu, Zhang, Chen, *Scalable Read-mostly Synchronization Using Passive Reader-Writer Locks*,
//! USENIX ATC 2014, section 3 (there a reader reports the version of the lock that it has seen).
//!
//! A reader of a biased object has to know that no updater's entry is still in a store buffer. The
//! kernel can ensure that for all threads at once (`membarrier`), which takes microseconds and
//! interrupts the others. But a busy updater finds the closed gate by itself within nanoseconds; so
//! it stores an *answer* in its slot's record, and a reader that finds the answers of all dirty
//! slots needs no `membarrier`.
//!
//! Laws:
//! - oplog.G1 Every collection of the process has a number of its own, and closes gates with it. So
//!   no answer to an earlier collection is taken for an answer to this one.
//! - oplog.G2 An updater that answers has read the number from a gate (or from `collecting`), has
//!   none of the hot state's logs in hand under that record, and touches none until the collection
//!   is over. (It may help, and collect the logs of other updaters that have answered:
//!   `combining_tree`.) After a gate was seen closed, its earlier open value is not seen again
//!   (coherence), so this takes no fence.
//! - oplog.G3 An answer is stored with Release after all accesses of its thread under the record,
//!   and read with Acquire: the reader sees the log as its updater left it, with every entry.
//! - oplog.G4 A slot that is not dirty needs no answer: its next entry sets the dirty bit first,
//!   with a full fence before it loads the gate (oplog.C3).

use super::hot_state::{FROZEN, HotState, TREE};
use super::log::Log;
use super::promotion;
use crate::config;
use crate::percpu::{self, Slot};
use crate::sync::{self, AtomicU64, Backoff, Ordering, hint, seeded_bug};

/// A hot state takes this many numbers at a time, so that collections do not contend for one
/// counter.
const BLOCK: u64 = 1 << 16;

/// The number lies above the flag bits of a gate.
pub(super) const NUMBER_SHIFT: u32 = 4;

sync::global! {
    /// The first number that no hot state has taken. Zero is never given out.
    static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);
}

/// The numbers that a hot state has taken and not used.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    next: u64,
    end: u64,
}

impl Numbers {
    /// The value that closes the gates of the next collection (oplog.G1).
    pub(super) fn next_closed(&mut self) -> u64 {
        if self.next == self.end {
            // ORDER: Relaxed; it only matters that no other hot state gets these numbers.
            self.next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            self.end = self.next + BLOCK;
        }
        debug_assert!(
            self.next != 0 && self.next < self.end,
            "oplog.G1: a number of no collection"
        );
        self.next += 1;
        (self.next - 1) << NUMBER_SHIFT | FROZEN
    }
}

/// Whether a gate's value says that a collection is in progress.
#[inline(always)]
pub(super) fn is_frozen(gate: u64) -> bool {
    gate & FROZEN != 0
}

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Waits for the end of a collection (oplog.C8), and answers it. The caller announces the hot
    /// state as a waiter in `slot`'s record (promotion.H3).
    pub(super) fn wait_for_collection(&self, slot: Slot, backoff: &mut Backoff) {
        let mut answered = 0;
        let mut looks = 0;
        loop {
            // ORDER: Acquire; pairs with Release at the end of the collection: the open gate.
            // Logs with stamps have gates of their own, which a waiter may not touch.
            let seen = if L::ORDERED || seeded_bug!("no-cut") {
                self.collecting.load(Ordering::Acquire)
            } else {
                self.gate.load(Ordering::Acquire)
            };
            if !is_frozen(seen) {
                if answered == 0 {
                    backoff.pause(); // the collection is over, or the refusal has another cause
                }
                return;
            }
            if seen != answered {
                slot.answer(seen);
                answered = seen;
                if seen & TREE != 0 {
                    self.help_as_updater(seen, slot);
                }
            }
            // (Not `<`: the bound is 0 under a model checker, and no `u32` is below 0.)
            if looks != config::LOOKS_AT_GATE {
                looks += 1;
                hint::spin_loop();
            } else {
                backoff.pause();
            }
        }
    }

    /// Helps the collection (`combining_tree`), announced as an updater: an eviction after the
    /// collection may free the log set, where the branches are, and waits for updaters but not for
    /// waiters (oplog.C10).
    #[cold]
    fn help_as_updater(&self, seen: u64, slot: Slot) {
        // BUG: a helper reads the branches while announced as a waiter, for which no eviction waits
        // (oplog.C10).
        promotion::announce_again(slot, self, seeded_bug!("waiting-helper"));
        // ORDER: Acquire; after the announcement, as in `push`.
        if self.gate.load(Ordering::Acquire) == seen {
            // SAFETY: announced as an updater, and the gate said after that that the collection is
            // in progress (oplog.C10).
            unsafe { self.help(seen, slot.index()) };
        }
        promotion::announce_again(slot, self, true);
    }

    /// Whether the updaters of these slots answer the collection that closed the gates with
    /// `closed`, now or within a moment (oplog.G2, oplog.G3).
    pub(super) fn is_answered(&self, slots: &[usize], closed: u64) -> bool {
        let own = percpu::known_slot();
        let mut looks = 0;
        slots.iter().all(|index| {
            // The reader sees its own entries, and it is not inside (`lock_hot_state` checks that).
            if own == Some(*index) {
                return true;
            }
            while percpu::records().get(*index).answered() != closed {
                // BUG: a reader takes any answer for one to its own collection (oplog.G1 of the
                // gates).
                if seeded_bug!("unasked-answer") {
                    return true;
                }
                if looks == config::LOOKS_FOR_ANSWER {
                    return false;
                }
                looks += 1;
                hint::spin_loop();
            }
            true
        })
    }
}
