//! The memory and data of members (ldu.U3, ldu.U4), bounds, and members that change hands.

use super::{Member, Set, contents, set, spawn};
use crate::ldu::{DeferredSet, Queue};
use crate::percpu::loom_tests::model;
use std::ptr::NonNull;
use std::sync::Arc;

/// A member is dropped while a read may have it: the last user frees it, once.
fn member_dropped_while_queued(queue: Queue) {
    model(3, move || {
        let set = set(queue);
        let other = spawn(&set, |set| {
            drop(set.insert(Member::boxed(1)));
            drop(set.insert(Member::boxed(2)).remove());
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1] | [2]), "{seen:?} was never the set");
        other.join().unwrap();
        assert_eq!(contents(&set), [0_u32; 0]);
    });
}

#[test]
fn loom_ldu_member_dropped_while_queued_is_freed_once() {
    member_dropped_while_queued(Queue::PerThread);
}

#[test]
fn loom_ldu_global_member_dropped_while_queued_is_freed_once() {
    member_dropped_while_queued(Queue::Global);
}

/// A member that was taken back belongs only to its owner: its data may change (ldu.U4).
#[test]
fn loom_ldu_member_taken_back_may_change() {
    model(3, || {
        let set = set(Queue::PerThread);
        let other = spawn(&set, |set| {
            let member = set.insert(Member::boxed(1)).remove().into_box();
            member.set(2);
            std::mem::forget(set.insert(member));
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1] | [2]), "{seen:?} was never the set");
        other.join().unwrap();
        assert_eq!(contents(&set), [2]);
    });
}

/// A member that came and went comes again with other data, while a queue still has it.
#[test]
fn loom_ldu_recycled_member_comes_again_with_other_data() {
    model(3, || {
        let set = set(Queue::PerThread);
        let other = spawn(&set, |set: &Set| {
            let member = NonNull::from(Box::leak(Member::boxed(1)));
            // SAFETY: the member is in this set alone, and is not used any more if it is not idle.
            unsafe {
                set.insert_raw(member);
                if set.recycle_raw(member) {
                    member.as_ref().set(2);
                    set.insert_raw(member);
                    set.retire_raw(member);
                }
            }
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1] | [2]), "{seen:?} was never the set");
        other.join().unwrap();
        assert_eq!(contents(&set), [0_u32; 0]);
    });
}

/// One thread inserts a member, another removes it beside a reader, and the last user frees it.
#[test]
fn loom_ldu_member_changes_hands() {
    model(2, || {
        let set = set(Queue::PerThread);
        let member = NonNull::from(Box::leak(Member::boxed(1)));
        // SAFETY: the member is in no other set, and its calls follow each other.
        unsafe { set.insert_raw(member) };
        let address = member.as_ptr() as usize;
        let other = spawn(&set, move |set: &Set| {
            let member = NonNull::new(address as *mut Member).unwrap();
            // SAFETY: ldu.U1 - the insertion returned before this thread began; the member is not
            // used after this call.
            unsafe { set.retire_raw(member) };
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1]), "{seen:?}");
        other.join().unwrap();
        assert_eq!(contents(&set), [0_u32; 0]);
        assert_eq!(set.stats().freed, 1);
    });
}

/// A change that finds its queue full becomes the reader; another thread reads at that time.
#[test]
fn loom_ldu_full_queue_is_drained_by_a_change() {
    model(2, || {
        let set: Arc<Set> =
            Arc::new(DeferredSet::builder().max_queued(1).build(Default::default()).unwrap());
        let other = spawn(&set, |set| {
            for number in 1..=2 {
                std::mem::forget(set.insert(Member::boxed(number)));
            }
        });
        let seen = contents(&set);
        assert!(matches!(seen[..], [] | [1] | [1, 2]), "{seen:?} was never the set");
        other.join().unwrap();
        assert_eq!(contents(&set), [1, 2]);
    });
}
