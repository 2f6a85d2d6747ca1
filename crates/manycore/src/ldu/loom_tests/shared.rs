//! Parallel readers: what they see (ldu.U6), and that the structure does not change under them.

use super::{Member, Numbers, Set, contents, set, spawn};
use crate::ldu::change::GROWTH;
use crate::ldu::{DeferredSet, Queue};
use crate::percpu::loom_tests::{large_model, model};
use std::sync::Arc;

fn shared_contents(set: &Set) -> Vec<u32> {
    let shared = set.read_shared();
    let Numbers(numbers) = &*shared;
    let seen = numbers.clone();
    assert_eq!(seen, shared.0, "the structure changed under a reader");
    seen
}

/// Each thread changes the set and then reads it. Both see their own change, whichever did the
/// round, and one of them sees both changes.
#[test]
fn loom_ldu_shared_readers_see_their_own_changes() {
    model(2, || {
        let set = set(Queue::PerThread);
        let own = |set: &Set, number| {
            std::mem::forget(set.insert(Member::boxed(number)));
            let seen = shared_contents(set);
            assert!(seen.contains(&number), "an own change is missing in {seen:?}");
            seen.len()
        };
        let other = spawn(&set, move |set| own(set, 1));
        let seen = own(&set, 2);
        assert!(other.join().unwrap() + seen > 2, "both changes were late");
        assert_eq!(contents(&set), [1, 2], "a change was lost");
    });
}

/// A reader that finds nothing to do, beside a reader that has the structure alone.
#[test]
fn loom_ldu_shared_reader_and_exclusive_reader_with_changes() {
    large_model(3, || {
        let set = set(Queue::Global);
        let other = spawn(&set, |set| {
            let member = set.insert(Member::boxed(1));
            assert_eq!(contents(set), [1]);
            std::mem::forget(member.remove());
        });
        let seen = (shared_contents(&set).len(), shared_contents(&set).len());
        assert!(seen.0 <= 1 && seen.1 <= 1);
        other.join().unwrap();
        assert_eq!(shared_contents(&set), [0_u32; 0], "a change was lost");
    });
}

/// One thread makes changes in order, and two readers read in parallel.
#[test]
fn loom_ldu_shared_readers_see_states_that_were() {
    large_model(2, || {
        let set = set(Queue::PerThread);
        let changes = spawn(&set, |set| {
            let x = set.insert(Member::boxed(1));
            std::mem::forget((set.insert(Member::boxed(2)), x.remove()));
        });
        let read = |set: &Arc<Set>| {
            let mut seen = shared_contents(set);
            seen.sort_unstable();
            assert!(matches!(seen[..], [] | [1] | [1, 2] | [2]), "{seen:?} was never the set");
        };
        let other = {
            let set = Arc::clone(&set);
            crate::sync::thread::spawn(move || read(&set))
        };
        read(&set);
        other.join().unwrap();
        changes.join().unwrap();
        assert_eq!(contents(&set), [2], "a change was lost");
    });
}

/// Makes a set with a queue that is at its bound with each change.
fn tight_set() -> Arc<Set> {
    let builder = DeferredSet::builder().queue(Queue::Global).max_queued(1);
    Arc::new(builder.build(Numbers::default()).unwrap())
}

/// Makes so many changes that the last would wait for a reader.
fn change_beyond_the_bound(set: &Set) {
    (1..=GROWTH as u32).for_each(|number| {
        std::mem::forget(set.insert(Member::boxed(number)));
    });
}

/// This thread shares the set itself, and another thread waits for the structure.
#[test]
fn loom_ldu_sharer_that_changes_its_set_waits_for_no_reader() {
    large_model(2, || {
        let set = tight_set();
        let other = spawn(&set, |set| contents(set).len());
        let shared = set.read_shared();
        change_beyond_the_bound(&set);
        assert!(shared.0.is_empty(), "the structure changed under a reader");
        drop(shared);
        other.join().unwrap();
        assert_eq!(contents(&set).len(), GROWTH as usize, "a change was lost");
    });
}

/// Each thread shares a set and changes the other's set. One preemption suffices: between the two
/// shares.
#[test]
fn loom_ldu_sharers_that_change_each_others_sets_do_not_wait() {
    model(1, || {
        let sets = Arc::new([tight_set(), tight_set()]);
        let other = spawn(&sets, |sets| {
            let _shared = sets[0].read_shared();
            change_beyond_the_bound(&sets[1]);
        });
        let shared = sets[1].read_shared();
        change_beyond_the_bound(&sets[0]);
        drop(shared);
        other.join().unwrap();
    });
}
