//! Eager changes beside deferred ones and readers: laws eager.E1, eager.E2 and rounds.V7.

use super::{Member, Set, contents, set, spawn};
use crate::ldu::Queue;
use crate::percpu::loom_tests::{large_model, model};
use std::ptr::NonNull;
use std::sync::Arc;

/// Makes a set that makes its changes eagerly.
fn eager_set() -> Arc<Set> {
    let set = set(Queue::Global);
    drop(set.read_at(|_, _| (true, 1)));
    assert!(set.is_eager());
    set
}

/// Inserts a new member, eagerly if possible. It stays in memory.
fn insert(set: &Set, number: u32) -> NonNull<Member> {
    let member = NonNull::from(Box::leak(Member::boxed(number)));
    // SAFETY: the member is new, and is never freed.
    unsafe { set.insert_at_pace(member) };
    member
}

/// Removes a member, eagerly if possible.
fn remove(set: &Set, member: NonNull<Member>) {
    // SAFETY: `insert` returned it, and this is called once for it.
    let _ = unsafe { set.recycle_at_pace(member) };
}

fn shared_contents(set: &Set, eager: bool) -> Vec<u32> {
    let shared = set.read_shared_at(|_, _| (eager, 1));
    let seen = shared.0.clone();
    assert_eq!(seen, shared.0, "the structure changed under a reader");
    seen
}

fn expect_a_state(mut seen: Vec<u32>) {
    seen.sort_unstable();
    assert!(matches!(seen[..], [] | [1] | [1, 2] | [2]), "{seen:?} was never the set");
}

/// One member comes, another comes, and the first goes: each change of either kind.
#[test]
fn loom_ldu_eager_and_deferred_changes_are_seen_in_their_order() {
    for deferred in 0..3 {
        model(2, move || {
            let set = eager_set();
            let other = spawn(&set, move |set| {
                let change = |at, eager: &dyn Fn(), late: &dyn Fn()| {
                    if at == deferred { late() } else { eager() }
                };
                let [one, two] =
                    [1, 2].map(|number| NonNull::from(Box::leak(Member::boxed(number))));
                // SAFETY: the members are new, and never freed; each change is made once.
                let late = |member| unsafe { set.insert_raw(member) };
                // SAFETY: the members are new, and never freed; each change is made once.
                let soon = |member| unsafe { set.insert_at_pace(member) };
                change(0, &|| soon(one), &|| late(one));
                change(1, &|| soon(two), &|| late(two));
                // SAFETY: `one` was inserted by the first change, and is removed by this one alone.
                change(2, &|| remove(set, one), &|| unsafe { set.remove_raw(one) });
            });
            expect_a_state(shared_contents(&set, true));
            other.join().unwrap();
            assert_eq!(contents(&set), [2], "a change was lost");
        });
    }
}

/// A reader ends the eager state, and shares the structure.
#[test]
fn loom_ldu_eager_change_of_a_set_that_is_eager_no_longer_is_deferred() {
    large_model(2, || {
        let set = eager_set();
        let other = spawn(&set, |set| {
            let member = insert(set, 1);
            insert(set, 2);
            remove(set, member);
        });
        expect_a_state(shared_contents(&set, false));
        expect_a_state(shared_contents(&set, true));
        other.join().unwrap();
        assert_eq!(contents(&set), [2], "a change was lost");
    });
}

/// Two threads make eager changes, or find the lock busy.
#[test]
fn loom_ldu_eager_changes_of_two_threads_are_not_lost() {
    model(3, || {
        let set = eager_set();
        let other = spawn(&set, |set| {
            let member = insert(set, 1);
            remove(set, member);
        });
        insert(&set, 2);
        other.join().unwrap();
        assert_eq!(shared_contents(&set, true), [2], "a change was lost");
    });
}
