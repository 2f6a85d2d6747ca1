//! Models of laws board.B2 to board.B4: reads beside a key that is handed over, beside a place that
//! is reused, and beside each other.

use super::ActiveSet;
use super::board::Board;
use crate::percpu::loom_tests::{large_model, model, must_catch};
use crate::percpu::{Slot, barrier, give_back, spare_slot};
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence, thread};
use std::sync::Arc;

/// A board of two slots, and the epoch that a pool would have.
struct Boards {
    board: Board,
    epoch: AtomicU64,
    slots: [Slot; 2],
}

impl Boards {
    fn new() -> Arc<Self> {
        let board = Board::default();
        board.admit(|| true);
        Arc::new(Self { board, epoch: AtomicU64::new(0), slots: [spare_slot(), spare_slot()] })
    }

    /// Puts a key into a slot's cell. Only one thread at a time does that.
    fn enter(&self, slot: usize, key: u64) {
        let epoch = self.epoch.load(Ordering::Acquire);
        let entered = self.board.enter(self.slots[slot], key, epoch);
        assert!(entered.is_some(), "the row has a place");
    }

    /// The owner of the handle of the slot's first place leaves.
    fn leave(&self, slot: usize) {
        self.board.first(slot).leave(self.epoch.load(Ordering::Acquire));
    }

    /// Reads all keys by a cut, as a pool makes it. Only one thread at a time does that.
    fn cut(&self) -> Vec<u64> {
        self.board.block();
        let cut = self.epoch.load(Ordering::Relaxed);
        self.epoch.swap(cut + 1, Ordering::SeqCst);
        barrier::full_after_rmw();
        let mut keys = Vec::new();
        self.board.each_at(cut, |key| keys.push(key));
        self.board.admit(|| true);
        keys.sort_unstable();
        keys
    }

    fn end(&self) {
        self.slots.iter().for_each(|slot| give_back(slot.index()));
    }
}

/// The smallest key is in the second slot, then in both, then in the first. `read` is called
/// meanwhile.
fn hand_over(read: impl Fn(&Boards) + Send + Sync + 'static) {
    model(3, move || {
        let boards = Boards::new();
        boards.enter(1, 1);
        let other = {
            let boards = Arc::clone(&boards);
            thread::spawn(move || {
                boards.enter(0, 1);
                boards.leave(1);
            })
        };
        read(&boards);
        other.join().unwrap();
        assert_eq!(boards.cut(), [1]);
        assert_eq!(boards.board.scan(), Some(Some(1)), "nothing changes any more");
        boards.end();
    });
}

#[test]
fn loom_key_that_is_handed_over_is_scanned() {
    hand_over(|boards| {
        let oldest = boards.board.scan();
        assert!(oldest.is_none_or(|oldest| oldest == Some(1)), "a key was missed: {oldest:?}");
    });
}

#[test]
fn loom_key_that_is_handed_over_is_in_every_cut() {
    hand_over(|boards| {
        let keys = boards.cut();
        assert!(keys == [1] || keys == [1, 1], "a key was missed: {keys:?}");
    });
}

#[test]
fn loom_place_that_is_used_again_keeps_its_key_for_the_cut() {
    model(3, || {
        let boards = Boards::new();
        boards.enter(1, 1);
        let other = {
            let boards = Arc::clone(&boards);
            thread::spawn(move || {
                boards.leave(1);
                boards.enter(0, 5);
                boards.enter(1, 2);
            })
        };
        let keys = boards.cut();
        let states = [&[1][..], &[], &[5], &[2, 5]];
        assert!(states.contains(&&*keys), "never was there {keys:?}");
        other.join().unwrap();
        assert_eq!(boards.cut(), [2, 5]);
        boards.end();
    });
}

/// A late change, which the cut sees, and a change that a scan sees before the cut, which the cut
/// does not see.
#[test]
fn loom_scan_and_cut_are_of_one_order() {
    large_model(3, || {
        let boards = Boards::new();
        let late = {
            let boards = Arc::clone(&boards);
            thread::spawn(move || boards.enter(0, 1))
        };
        let scanning = {
            let boards = Arc::clone(&boards);
            thread::spawn(move || {
                boards.enter(1, 2);
                boards.board.scan()
            })
        };
        let cut = boards.cut();
        late.join().unwrap();
        let scan = scanning.join().unwrap();
        let both = cut == [1] && scan == Some(Some(2));
        assert!(!both, "the cut has the one change alone, and the scan the other one");
        boards.end();
    });
}

#[test]
fn loom_member_of_the_pool_keeps_scans_from_counting() {
    model(3, || {
        let boards = Boards::new();
        let queued = Arc::new(AtomicBool::new(false));
        let other = {
            let (boards, queued) = (Arc::clone(&boards), Arc::clone(&queued));
            thread::spawn(move || {
                queued.store(true, Ordering::Release);
                fence(Ordering::SeqCst); // as the pool's
                boards.board.block();
                // Its registration has returned.
                assert_eq!(boards.board.scan(), None, "the pool's member is missed");
            })
        };
        boards.board.block();
        boards.board.admit(|| !queued.load(Ordering::Acquire));
        other.join().unwrap();
        assert_eq!(boards.board.scan(), None, "the pool's member is missed");
        boards.end();
    });
}

#[test]
fn loom_oldest_of_a_large_set_is_found_beside_changes() {
    model(2, || {
        let set = Arc::new(ActiveSet { members: ActiveSet::new().members.promoted() });
        let first = set.register(1_u32);
        let other = {
            let set = Arc::clone(&set);
            thread::spawn(move || set.register(2).leave())
        };
        assert_eq!(set.oldest(), Some(1));
        first.leave();
        let left = set.oldest();
        assert!(left.is_none_or(|left| left == 2), "{left:?}");
        other.join().unwrap();
        assert!(set.is_empty());
    });
}

fn catches(bug: &str, test: &str, sign: &str) {
    must_catch(bug, &format!("collections::active_set::loom_tests::{test}"), &[sign]);
}

#[test]
fn loom_single_collect_is_caught() {
    catches("board-collect", "loom_key_that_is_handed_over_is_scanned", "a key was missed");
}

#[test]
fn loom_place_that_forgets_what_was_before_the_cut_is_caught() {
    catches("board-before", "loom_key_that_is_handed_over_is_in_every_cut", "a key was missed");
}

#[test]
fn loom_key_that_is_overwritten_before_the_cut_is_caught() {
    let test = "loom_place_that_is_used_again_keeps_its_key_for_the_cut";
    catches("board-reuse", test, "never was there");
}

#[test]
fn loom_scan_during_a_cut_is_caught() {
    catches("board-blocked", "loom_scan_and_cut_are_of_one_order", "the scan the other one");
}

#[test]
fn loom_scan_admitted_beside_a_member_of_the_pool_is_caught() {
    let test = "loom_member_of_the_pool_keeps_scans_from_counting";
    catches("board-admit", test, "the pool's member is missed");
}
