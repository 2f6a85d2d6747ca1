//! The merge in a tree: helpers collect in the reader's place (B1 to B4).
//!
//! All slots are members from the start: it takes a collection to become one, which would make the
//! models too large.

use super::{Bag, Deferred, Log, builder, contents, push, spawn};
use crate::clock::Clock;
use crate::oplog::{MergeStrategy, Publish};
use crate::percpu::loom_tests::{large_model, model};
use crate::sync::{AtomicBool, Ordering};
use std::sync::Arc;

fn tree<L: Log<Vec<u32>>>(publish: Publish) -> Arc<Deferred<Vec<u32>, L>> {
    let builder = builder(publish).merge(MergeStrategy::Tree);
    let object = builder.clock(Arc::new(Clock::counter())).build(Vec::new()).unwrap();
    assert!(object.promote());
    object.with_core(|core, _| core.presume_members(&[0, 1, 2]));
    Arc::new(object)
}

/// Two updaters, each of which may collect for the other, and a reader: nothing is lost or there
/// twice, and no log is in two hands.
fn helpers_race_a_read(publish: Publish) {
    large_model(2, move || {
        let bag: Arc<Bag> = tree(publish);
        bag.append(push(0));
        let other = spawn(&bag, |bag| bag.append(push(1)));
        let reader = spawn(&bag, |bag| {
            let seen = contents(bag);
            assert!(matches!(seen[..], [0] | [0, 1] | [0, 2] | [0, 1, 2]), "{seen:?}");
        });
        bag.append(push(2));
        other.join().unwrap();
        reader.join().unwrap();
        assert_eq!(contents(&bag), [0, 1, 2]);
    });
}

/// One updater that helps with two reads: what the first saw stays.
fn helper_races_two_reads(publish: Publish) {
    model(3, move || {
        let bag: Arc<Bag> = tree(publish);
        let other = spawn(&bag, |bag| (1..=3).for_each(|number| bag.append(push(number))));
        let first = contents(&bag);
        let second = contents(&bag);
        assert!((1..=3).collect::<Vec<_>>().starts_with(&second), "{second:?}");
        assert!(second.starts_with(&first), "{first:?} was taken back: {second:?}");
        other.join().unwrap();
        assert_eq!(contents(&bag), [1, 2, 3]);
    });
}

#[test]
fn loom_tree_locked_helpers_race_reads_and_nothing_is_lost() {
    helpers_race_a_read(Publish::Locked);
    helper_races_two_reads(Publish::Locked);
}

#[test]
fn loom_tree_biased_helpers_race_reads_and_nothing_is_lost() {
    helper_races_two_reads(Publish::Biased);
}

/// As with the flat merge: no reader sees an update without one that happened before it, and sees
/// them in this order where there is one (B4).
fn reader_sees_cause_before_effect<L: Log<Vec<u32>, Op = super::Push>>() {
    model(2, || {
        let shared = Arc::new((tree::<L>(Publish::Locked), AtomicBool::new(false)));
        let (list, happened) = &*shared;
        list.append(push(0));
        let cause = spawn(&shared, |(list, happened)| {
            list.append(push(1));
            happened.store(true, Ordering::Release);
        });
        let reader = spawn(&shared, |(list, _)| {
            let seen = list.read().clone();
            assert!(seen.contains(&0), "what returned before the read began is missing");
            assert!(!seen.contains(&2) || seen.contains(&1), "effect without its cause: {seen:?}");
            assert!(!L::ORDERED || seen.is_sorted(), "effect before its cause: {seen:?}");
        });
        let knew = happened.load(Ordering::Acquire);
        if knew {
            list.append(push(2));
        }
        cause.join().unwrap();
        reader.join().unwrap();
        let mut all = list.read().clone();
        if !L::ORDERED {
            all.sort_unstable();
        }
        assert_eq!(all, if knew { vec![0, 1, 2] } else { vec![0, 1] }, "effect before its cause");
    });
}

#[test]
fn loom_tree_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect::<super::Commuting<super::Push>>();
}

#[test]
fn loom_tree_ordered_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect::<super::Ordered<super::Push>>();
}
