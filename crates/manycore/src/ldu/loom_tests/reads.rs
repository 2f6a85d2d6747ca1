//! What reads see (ldu.U6), and that nothing is lost.

use super::{Member, contents, set, spawn};
use crate::ldu::Queue;
use crate::percpu::loom_tests::model;
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

/// One member is inserted and removed during two reads; in the end, nothing is lost.
fn changes_race_two_reads(queue: Queue) {
    model(3, move || {
        let set = set(queue);
        let other = spawn(&set, |set| {
            let kept = set.insert(Member::boxed(1)).remove().insert();
            std::mem::forget(kept);
        });
        for _ in 0..2 {
            let seen = contents(&set);
            assert!(matches!(seen[..], [] | [1]), "{seen:?}");
        }
        other.join().unwrap();
        assert_eq!(contents(&set), [1], "a change was lost");
    });
}

#[test]
fn loom_ldu_changes_race_reads_and_nothing_is_lost() {
    changes_race_two_reads(Queue::PerThread);
}

#[test]
fn loom_ldu_global_changes_race_reads_and_nothing_is_lost() {
    changes_race_two_reads(Queue::Global);
}

/// Two members are in one queue, and one of them goes back into it while a read walks the queue: no
/// member gets lost on the way (ldu.U3's order).
#[test]
fn loom_ldu_member_queued_again_behind_a_walk_is_not_lost() {
    model(3, || {
        let set = set(Queue::PerThread);
        let other = spawn(&set, |set| {
            let first = set.insert(Member::boxed(1));
            let second = set.insert(Member::boxed(2));
            std::mem::forget((first, second.remove().insert()));
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1] | [1, 2]), "{seen:?} was never the set");
        other.join().unwrap();
        assert_eq!(contents(&set), [1, 2], "a change was lost");
    });
}

/// One thread has X and Y queued, removes Y, and then inserts X: no read sees both.
fn one_thread_in_order(queue: Queue) {
    model(3, move || {
        let set = set(queue);
        let other = spawn(&set, |set| {
            let (x, y) = (set.insert(Member::boxed(1)).remove(), set.insert(Member::boxed(2)));
            // Both queued. Y goes, X comes and goes: X is never there with Y.
            let y = y.remove();
            let x = x.insert();
            std::mem::forget((x, y));
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1] | [2]), "{seen:?} was never the set");
        other.join().unwrap();
        assert_eq!(contents(&set), [1], "a change was lost");
    });
}

#[test]
fn loom_ldu_read_sees_a_state_that_was() {
    one_thread_in_order(Queue::PerThread);
}

#[test]
fn loom_ldu_global_read_sees_a_state_that_was() {
    one_thread_in_order(Queue::Global);
}

/// Y is inserted only after X was seen: no read may see Y without X. Y's slot has a member that was
/// queued before, so a read that looks at slots one by one would find Y first.
fn effect_has_its_cause(queue: Queue) {
    model(2, move || {
        let shared = Arc::new((set(queue), AtomicBool::new(false)));
        let (set, happened) = &*shared;
        let early = set.insert(Member::boxed(3));
        let cause = spawn(&shared, |(set, happened)| {
            std::mem::forget(set.insert(Member::boxed(1)));
            happened.store(true, Ordering::Release);
        });
        let reader = spawn(&shared, |(set, _)| {
            let seen = contents(set);
            assert!(seen.contains(&3), "what returned before the read began is missing");
            assert!(!seen.contains(&2) || seen.contains(&1), "effect without its cause: {seen:?}");
        });
        let knew = happened.load(Ordering::Acquire);
        if knew {
            std::mem::forget(set.insert(Member::boxed(2)));
        }
        cause.join().unwrap();
        reader.join().unwrap();
        std::mem::forget(early);
        assert_eq!(contents(set), if knew { vec![1, 2, 3] } else { vec![1, 3] });
    });
}

#[test]
fn loom_ldu_reader_never_sees_effect_without_cause() {
    effect_has_its_cause(Queue::PerThread);
}

#[test]
fn loom_ldu_global_reader_never_sees_effect_without_cause() {
    effect_has_its_cause(Queue::Global);
}

/// The store-buffering litmus on two sets: each thread changes one set and reads the other. If the
/// member is queued already, the change is only its word.
fn one_of_two_readers_sees_the_other(queued: bool) {
    model(2, move || {
        let sets = Arc::new((set(Queue::PerThread), set(Queue::PerThread)));
        let other = spawn(&sets, move |(x, y)| {
            let member = if queued {
                x.insert(Member::boxed(1)).remove().insert()
            } else {
                x.insert(Member::boxed(1))
            };
            std::mem::forget(member);
            contents(y).len()
        });
        let (x, y) = &*sets;
        std::mem::forget(y.insert(Member::boxed(1)));
        let seen = contents(x).len();
        assert!(other.join().unwrap() + seen > 0, "both changes were late");
    });
}

#[test]
fn loom_ldu_one_of_two_readers_sees_the_other() {
    one_of_two_readers_sees_the_other(false);
    one_of_two_readers_sees_the_other(true);
}
