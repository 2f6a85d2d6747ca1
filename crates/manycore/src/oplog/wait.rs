//! The updater's wait for the end of a collection, during which it answers and helps.
//!
//! Laws oplog.C8, oplog.C9 (header of `hot_state`) and oplog.G2 (header of `gate`).

use super::gate::Gate;
use super::hot_state::HotState;
use super::log::Log;
use super::promotion;
use crate::config;
use crate::percpu::Slot;
use crate::sync::{Backoff, hint, seeded_bug};

impl<T: Send + 'static, L: Log<T>> HotState<T, L> {
    /// Waits for the end of a collection (oplog.C8), and answers it. The caller announces the hot
    /// state as a waiter in `slot`'s record (promotion.H3).
    pub(super) fn wait_for_collection(&self, slot: Slot, backoff: &mut Backoff) {
        debug_assert!(
            cfg!(manycore_loom) || !self.is_updated_by(slot.index()),
            "promotion.H3: an updater waits for the collection that waits for it"
        );
        let mut answered = None;
        let mut looks = 0;
        loop {
            // Logs with stamps have gates of their own, which a waiter may not touch.
            let gated = L::ORDERED || seeded_bug!("no-cut");
            let seen = if gated { self.collecting.load() } else { self.gate.load() };
            if !seen.is_frozen() {
                if answered.is_none() {
                    backoff.pause(); // the collection is over, or the refusal has another cause
                }
                return;
            }
            if answered != Some(seen) {
                slot.answer(seen.answer());
                answered = Some(seen);
                if seen.is_helped() {
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
    fn help_as_updater(&self, seen: Gate, slot: Slot) {
        // BUG: a helper reads the branches while announced as a waiter, for which no eviction waits
        // (oplog.C10).
        promotion::announce_again(slot, self, seeded_bug!("waiting-helper"));
        // After the announcement, as in `push`.
        if self.gate.load() == seen {
            // SAFETY: announced as an updater, and the gate said after that that the collection is
            // in progress (oplog.C10).
            unsafe { self.help(seen, slot.index()) };
        }
        promotion::announce_again(slot, self, true);
    }
}
