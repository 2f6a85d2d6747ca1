//! The combining tree: helpers collect on the reader's behalf (combining_tree.B1 to
//! combining_tree.B4), in one branch and in two.
//!
//! By default all slots are members from the start: becoming a member takes a collection, which
//! would make the models too large.

use super::races::{appends_race_a_read, appends_race_two_reads, reader_sees_cause_before_effect};
use super::{Bag, Commuting, Deferred, Log, Ordered, Push, builder, contents, push, spawn};
use crate::clock::Clock;
use crate::oplog::{LogTable, MergeStrategy, Publish};
use crate::percpu::loom_tests::{large_model, model};
use std::sync::Arc;

/// The member slots of each branch.
type Members = &'static [&'static [usize]];

const ONE: Members = &[&[0, 1, 2]];
/// A slot is in the branch of its number's last bit, and so is the slot's thread.
const TWO: Members = &[&[0, 2], &[1]];

fn branches<L: Log<Vec<u32>>>(publish: Publish, members: Members) -> Arc<Deferred<Vec<u32>, L>> {
    let builder = builder(publish).merge(MergeStrategy::Tree);
    let object = builder.clock(Arc::new(Clock::synchronized())).build(Vec::new()).unwrap();
    assert!(object.promote());
    object.with_hot_state(|hot, _| hot.presume_members(members));
    Arc::new(object)
}

fn tree<L: Log<Vec<u32>>>(publish: Publish) -> Arc<Deferred<Vec<u32>, L>> {
    branches(publish, ONE)
}

/// Each updater may collect the other's log, and no two threads access one log at a time.
#[test]
fn loom_tree_locked_helpers_race_reads_and_nothing_is_lost() {
    appends_race_a_read(|| tree(Publish::Locked));
    appends_race_two_reads(3, || tree(Publish::Locked));
}

#[test]
fn loom_tree_biased_helpers_race_reads_and_nothing_is_lost() {
    appends_race_two_reads(3, || tree(Publish::Biased));
}

#[test]
fn loom_tree_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect(|| tree::<Commuting<Push>>(Publish::Locked));
}

#[test]
fn loom_tree_ordered_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect(|| tree::<Ordered<Push>>(Publish::Locked));
}

/// A helper of a collection that is over may still access the branches when an eviction frees them
/// (log_set.C10).
#[test]
fn loom_tree_helper_races_an_eviction() {
    large_model(2, || {
        let table = Arc::new(LogTable::new(1));
        let builder = builder(Publish::Locked).merge(MergeStrategy::Tree).table(table);
        let victim: Arc<Bag> = Arc::new(builder.build(Vec::new()).unwrap());
        let newcomer: Bag = builder.build(Vec::new()).unwrap();
        assert!(victim.promote());
        victim.with_hot_state(|hot, _| hot.presume_members(&[&[0, 1, 2]]));
        // By another slot than the reader's, which would need no collection.
        spawn(&victim, |victim| victim.append(push(1))).join().unwrap();
        let helper = spawn(&victim, |victim| victim.append(push(2)));
        assert!(contents(&victim).contains(&1));
        newcomer.promote();
        helper.join().unwrap();
        assert_eq!(contents(&victim), [1, 2], "lost or doubled");
    });
}

/// Two updaters with a branch each, and a reader that is in neither: both may help it.
fn two_helpers_race_a_read(preemptions: usize, publish: Publish) {
    model(preemptions, move || {
        let bag: Arc<Bag> = branches(publish, &[&[0], &[1]]);
        bag.append(push(1)); // slot 0
        let second = spawn(&bag, |bag| (11..=12).for_each(|number| bag.append(push(number))));
        let reader = spawn(&bag, contents);
        bag.append(push(2));
        second.join().unwrap();
        let seen = reader.join().unwrap();
        assert!(seen.contains(&1), "what returned before the read began is missing: {seen:?}");
        assert!(!seen.contains(&12) || seen.contains(&11), "{seen:?}");
        assert_eq!(contents(&bag), [1, 2, 11, 12], "lost or doubled");
    });
}

#[test]
fn loom_tree_of_two_branches_locked_helpers_race_a_read() {
    two_helpers_race_a_read(2, Publish::Locked);
}

#[test]
fn loom_tree_of_two_branches_biased_helpers_race_a_read() {
    two_helpers_race_a_read(1, Publish::Biased);
}

#[test]
fn loom_tree_of_two_branches_ordered_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect(|| branches::<Ordered<Push>>(Publish::Locked, TWO));
}

#[test]
fn loom_tree_of_two_branches_reader_sees_cause_before_effect() {
    reader_sees_cause_before_effect(|| branches::<Commuting<Push>>(Publish::Biased, TWO));
}
